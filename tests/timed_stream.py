"""An event stream through a proxy, each event timed from the upstream's write to the client's read.

Both ends are this process's, so one clock times them, and a sender that is late delays no event.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from tests.forkwatch_process import POLL_S
from tests.scripted_upstream import Peer
from tests.wire import Client, Lab

CATCH_UP_S = 20.0
_FRAME_END = b"\n\n"


class TimedStream:
    """A stream under way. Made by `timed_stream`."""

    def __init__(self, client: Client, peer: Peer, every_s: float) -> None:
        self._client, self._peer, self._every_s = client, peer, every_s
        self._sent: list[float] = []
        self._delays: list[float] = []
        self._taken = 0

    async def send(self) -> None:
        """Send an event every so often, until cancelled."""
        due = asyncio.get_running_loop().time()
        while True:
            frame = b"id: %d\ndata: {}\n\n" % (len(self._sent) + 1)
            self._sent.append(asyncio.get_running_loop().time())
            self._peer.send(b"%x\r\n%b\r\n" % (len(frame), frame))
            due += self._every_s
            await asyncio.sleep(due - asyncio.get_running_loop().time())

    async def read(self) -> None:
        """Note when each event comes, until cancelled; a chunk may hold several, or a part of one."""
        reader, unended = self._client.reader, b""
        while True:
            size = int(await reader.readuntil(b"\r\n"), 16)
            unended += (await reader.readexactly(size + 2))[:-2]
            now = asyncio.get_running_loop().time()
            *frames, unended = unended.split(_FRAME_END)
            for _ in frames:
                self._delays.append(now - self._sent[len(self._delays)])

    async def delays(self) -> list[float]:
        """The delays in seconds of the events sent since the last call, once all of them have come."""
        upto, deadline = len(self._sent), asyncio.get_running_loop().time() + CATCH_UP_S
        while len(self._delays) < upto:
            assert asyncio.get_running_loop().time() < deadline, "events never came"
            await asyncio.sleep(POLL_S)
        taken, self._taken = self._taken, upto
        return self._delays[taken:upto]


@contextlib.asynccontextmanager
async def timed_stream(lab: Lab, target: str, every_s: float) -> AsyncIterator[TimedStream]:
    """A standalone stream of a session of its own, with an event every `every_s` seconds while it is open."""
    client, peer, head = await lab.opened(
        f"GET {target}", "Accept: text/event-stream", "Mcp-Session-Id: timed"
    )
    assert head.status == 200
    stream = TimedStream(client, peer, every_s)
    both = [asyncio.create_task(stream.send()), asyncio.create_task(stream.read())]
    try:
        yield stream
    finally:
        for task in both:
            task.cancel()
        ended = await asyncio.gather(*both, return_exceptions=True)
        assert [type(one) for one in ended] == [asyncio.CancelledError] * 2, ended
