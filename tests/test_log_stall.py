"""A reader of the log that stalls, as a real pipe shows it: no stream waits for it, and no line is torn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from statistics import median

from proxy.logs import EVENTS
from tests.forkwatch_process import POLL_S, Forkwatch
from tests.scripted_upstream import PATIENCE_S, Peer, Upstream, listening
from tests.timed_stream import timed_stream
from tests.wire import LAST, SSE, Lab, entry

EVERY_S = 0.02
FLOWING_S = 2.0
STALL_S = 10.0
CHANGE_S = 0.25
ATTEMPTS = 2
"""Of which one must do: a busy machine may hold this process or the proxy for as long, but not each time."""
CLIENTS = 4
PAUSE_S = 0.005
LOG = {"format": "json", "level": "debug", "session_ids": "raw"}
DROPPED = ("forkwatch_log_messages_dropped_total", frozenset[tuple[str, str]]())
ANSWER = SSE + b"f\r\nid: 1\ndata: 1\n\n\r\n" + LAST


async def test_a_log_reader_that_stalls_delays_no_stream(tmp_path: Path) -> None:
    """Ten seconds without a read, under more lines than pipe and queue hold: they are dropped, and counted."""
    with fifo(tmp_path / "stdout.jsonl") as pipe:
        async with listening() as upstream:
            proxy = Forkwatch([settings(upstream)], tmp_path, log=LOG).start()
            reader = Reader(pipe)
            try:
                async with Lab(proxy, upstream).for_one_test() as here:
                    changed = await changes(here, reader)
                await reader.until(b'"event":"stream.closed","upstream":"mcp","session":"timed"')
                dropped = (await proxy.metrics()).get(DROPPED, 0.0)
            finally:
                reader.go_on()
                proxy.stop()
        lines = [json.loads(line) for line in reader.lines()]
    assert min(changed) < CHANGE_S
    assert {line["event"] for line in lines} < EVENTS.keys()
    assert lines[-1]["event"] == "proxy.stopped"
    counts = [line["count"] for line in lines if line["event"] == "log.dropped"]
    assert sum(counts) == dropped > 0


def settings(upstream: Upstream) -> dict[str, object]:
    """An upstream whose connections are used again, so that requests cost little."""
    return entry("mcp", upstream, timeouts={"upstream_keepalive": "4s"})


async def changes(here: Lab, reader: Reader) -> list[float]:
    """How much later than usual the latest event of a stream was, under a flood of lines that nobody reads."""
    found: list[float] = []
    async with timed_stream(here, "/mcp", EVERY_S) as stream, flood(here) as numbers:
        await asyncio.sleep(FLOWING_S)  # what the stall is compared with
        usual = median(await stream.delays())
        while len(found) < ATTEMPTS and min(found, default=CHANGE_S) >= CHANGE_S:
            reader.stall()
            await asyncio.sleep(STALL_S)  # what is measured
            reader.go_on()
            delays = await stream.delays()
            assert len(delays) > STALL_S / EVERY_S / 2
            found.append(max(delays) - usual)
            await reader.until_past(next(numbers))
    return found


class Reader:
    """Whoever reads the proxy's standard output, in a thread; when told to stall, it reads nothing more."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._seen = bytearray()
        self._going = threading.Event()
        self._going.set()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while piece := os.read(self._pipe, 65536):
            self._seen += piece
            self._going.wait()

    def stall(self) -> None:
        """Read nothing more, but for what is being read at this moment."""
        self._going.clear()

    def go_on(self) -> None:
        """Read again."""
        self._going.set()

    async def until(self, words: bytes) -> None:
        """Wait until these words have been read."""
        await self._until(lambda: words in self._seen)

    async def until_past(self, number: int) -> None:
        """Wait until a line of a later session of the flood has been read: the queue has room again."""
        numbers = re.compile(rb'"session":"flood-(\d+)"')
        await self._until(lambda: any(int(n) > number for n in numbers.findall(self._seen[-16384:])))

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(POLL_S)

    def lines(self) -> list[bytes]:
        """Every line, once all writers have closed; the last one is whole as well."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert self._seen.endswith(b"\n")
        return bytes(self._seen).splitlines()


@contextlib.contextmanager
def fifo(path: Path) -> Iterator[int]:
    """The read end of a pipe that a process can open by its name."""
    os.mkfifo(path)
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # else it would wait for a writer
    os.set_blocking(pipe, True)
    try:
        yield pipe
    finally:
        os.close(pipe)


@contextlib.asynccontextmanager
async def flood(here: Lab) -> AsyncIterator[Iterator[int]]:
    """Short resumes, each of a session with a number of its own: about five lines each at the level debug."""
    numbers = itertools.count()
    tasks = [asyncio.create_task(serve(here.upstream))]
    tasks += [asyncio.create_task(resume(here, numbers)) for _ in range(CLIENTS)]
    try:
        yield numbers
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * len(tasks), ended


async def resume(here: Lab, numbers: Iterator[int]) -> None:
    """One after another on one connection, until cancelled; the pauses leave time for the stream."""
    client = await here.client()
    while True:
        fields = (f"Mcp-Session-Id: flood-{next(numbers)}", "Last-Event-ID: 1", "Accept: text/event-stream")
        client.request("GET /mcp", *fields)
        await client.reader.readuntil(b"\r\n" + LAST)
        await asyncio.sleep(PAUSE_S)


async def serve(upstream: Upstream) -> None:
    """Answer every request on every new connection, until cancelled."""

    async def answer(peer: Peer) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while await peer.reader.readuntil(b"\r\n\r\n"):
                peer.send(ANSWER)

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(answer(await upstream.queue.get()))
