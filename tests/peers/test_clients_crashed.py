"""Real clients of a real server that dies during a call and comes back with their session, not their log.

The server is one on the official SDK that takes any session id for its own and numbers events from one
counter. It is killed while a call is pending whose stream was polled before; its successor answers other
customers' calls under the numbers that the client has seen, then the client comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.forkwatch_process import ALARMS, POLL_S, Forkwatch, free_port
from tests.peers.client_table import ClientTable, words
from tests.peers.driver import CUT_MESSAGE, HANG, SESSION_ERRORS, Driver, Outcome, drivers, each_client
from tests.peers.processes import MCP1, SERVERS
from tests.peers.session import Session

MODES = ["observe", "annotate", "enforce"]
START_TIMEOUT_S = 15.0
HARM_WITHIN_S = 5.0
AWAY_S = 2.0
"""What the server asks its clients to wait before they come back."""
SOON_S = 1.0
POLL_MS = 3500
"""The server closes the stream of `poll` at once and goes on after this time, when the client is back."""

WRONG = ("done unseen 2", "done theirs 2")
"""The answers of the other customers."""
_OLDER_CURSOR, _LAST_CURSOR = ("fork", "content_diverged"), ("crossed", "other_session")
VERDICTS = {
    "mcp 1.30": _OLDER_CURSOR,
    "mcp 2.3": _OLDER_CURSOR,
    "fastmcp 4.2": _OLDER_CURSOR,
    "npm sdk 1.32": _LAST_CURSOR,
    "npm client 2.4": _LAST_CURSOR,
}
"""What forkwatch must say. The Python clients come back with the cursor of their first resume, so known
numbers return with other events; the npm clients with the last, after which comes another session's event.
"""


class Standby:
    """A server process that has loaded everything and starts to listen when told."""

    def __init__(self, port: int, output: Path) -> None:
        self.port = port
        with output.open("wb") as out:
            self.process = subprocess.Popen(
                [MCP1, str(SERVERS / "py1_standby.py"), str(port)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def start(self) -> None:
        """Listen, and return once it answers; TimeoutError if it never does."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"start\n")
        self.process.stdin.flush()
        async with asyncio.timeout(START_TIMEOUT_S), aiohttp.ClientSession() as http:
            while not await self._answers(http):
                await asyncio.sleep(POLL_S)

    async def _answers(self, http: aiohttp.ClientSession) -> bool:
        try:
            async with http.get(f"http://127.0.0.1:{self.port}/") as response:
                return bool(response.status)
        except (aiohttp.ClientError, OSError):
            return False

    def kill(self) -> None:
        """kill -9."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(5)
        if self.process.stdin is not None:
            self.process.stdin.close()


@dataclass
class Run:
    """What one client saw of the crash, and what forkwatch said of its resumes."""

    pending: Outcome
    took_s: float
    """From the judgement of the last resume to the end of the pending call."""
    verdicts: list[tuple[str, str]]
    actions: list[str]
    notes: list[str]
    next_call: Outcome
    next_call_took_s: float
    fresh: Outcome


async def crash(driver: Driver, mode: str, directory: Path) -> Run:
    """A call is polled and resumed; then its server is killed and replaced, and its client comes back."""
    port = free_port()
    first, second = (Standby(port, directory / f"{name}.txt") for name in ("first", "second"))
    url = f"http://127.0.0.1:{port}"
    proxy = Forkwatch([{"name": "server", "url": url, "mode": mode, "host_header": "rewrite"}], directory)
    try:
        await asyncio.gather(first.start(), asyncio.to_thread(proxy.start))
        watched = f"http://127.0.0.1:{proxy.port}"
        await driver.open(mode, f"{watched}/mcp")
        driver.call(mode, f"{mode} pending", "poll", ms=POLL_MS)
        await driver.note(mode, "while-away")
        first.kill()
        await second.start()
        # The new log up to the last number that the client saw is of somebody whom forkwatch does not see,
        # what follows is of another of its own sessions. Both use the request id of the pending call.
        assert await answered(url, "unseen") == ["3", "4", "5", "6"]
        assert await answered(watched, "theirs") == ["9", "10", "11", "12"]
        pending = await driver.outcome(f"{mode} pending", AWAY_S + HARM_WITHIN_S)
        return await aftermath(driver, mode, watched, proxy, pending)
    finally:
        first.kill()
        second.kill()
        await asyncio.to_thread(proxy.stop)


async def answered(url: str, tag: str) -> list[str | None]:
    """Another customer's call is answered; the event ids of its stream."""
    async with Session.open(url) as session:
        stream = await session.call(1, "count", n=2, ms=0, tag=tag)
        return [frame.id for frame in await stream.until_text(f"done {tag} 2")]


async def aftermath(driver: Driver, mode: str, watched: str, proxy: Forkwatch, pending: Outcome) -> Run:
    """The next call on the same client object, and a new one; then all that was seen."""
    began, wall_ahead_s = time.monotonic(), time.time() - time.monotonic()
    driver.call(mode, f"{mode} next", "count", n=0, tag="next")
    next_call = await driver.outcome(f"{mode} next", HARM_WITHIN_S)
    await driver.open(f"{mode} fresh", f"{watched}/mcp")
    driver.call(f"{mode} fresh", f"{mode} first", "count", n=1, ms=0, tag="fresh")
    fresh = await driver.outcome(f"{mode} first", HARM_WITHIN_S)
    await driver.close(f"{mode} fresh")
    await driver.close(mode)
    judged = await alarming(proxy)
    judged_at = datetime.datetime.fromisoformat(judged[-1]["ts"]).timestamp()
    return Run(
        pending=pending,
        took_s=pending.at + wall_ahead_s - judged_at,
        verdicts=[(line["verdict"], line["reason"]) for line in judged],
        actions=[line["action"] for line in judged],
        notes=driver.notes(mode),
        next_call=next_call,
        next_call_took_s=next_call.at - began,
        fresh=fresh,
    )


async def alarming(proxy: Forkwatch) -> list[dict[str, Any]]:
    """The judgements that found a stream unsound, once there is one: the log lags behind."""
    async with asyncio.timeout(HARM_WITHIN_S):
        while True:
            judged = [line for line in proxy.log() if line["event"] == "resume.judged"]
            if found := [line for line in judged if line["verdict"] in ALARMS]:
                return found
            await asyncio.sleep(POLL_S)


Runs = dict[tuple[str, str], Run | BaseException]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Runs]:
    """Every client in every mode, all clients at once, each with a server of its own."""
    found: Runs = {}
    async with drivers(tmp_path_factory.mktemp("clients")) as clients:
        for mode in MODES:
            work = [crash(driver, mode, tmp_path_factory.mktemp("crash")) for driver in clients.values()]
            results = await asyncio.gather(*work, return_exceptions=True)
            found |= {(client, mode): run for client, run in zip(clients, results, strict=True)}
        table = ClientTable.of(request.config)
        table.versions |= {name: driver.version for name, driver in clients.items()}
    for (client, mode), run in found.items():
        if isinstance(run, Run) and mode != "annotate":
            table.put(mode, "crashed: the pending call", client, words(run.pending, run.took_s, WRONG))
    yield found


def seen(runs: Runs, client: str, mode: str) -> Run:
    """The run of this client, or what prevented it."""
    run = runs[client, mode]
    if isinstance(run, BaseException):
        raise run
    return run


@pytest.mark.parametrize("client", each_client())
def test_a_crash_that_keeps_the_session_id_is_silent_without_the_cut(client: str, runs: Runs) -> None:
    """In observe the client takes another customer's answer for its own, or hangs; only forkwatch says so."""
    run = seen(runs, client, "observe")
    assert run.pending == HANG or run.pending.text in WRONG
    assert run.verdicts == [VERDICTS[client]]
    assert run.next_call.text == "done next 0"


@pytest.mark.parametrize("client", each_client())
def test_annotating_a_crash_changes_nothing_for_the_client(client: str, runs: Runs) -> None:
    """In annotate the client sees what it sees in observe, and the verdict is the same."""
    observed, annotated = seen(runs, client, "observe"), seen(runs, client, "annotate")
    assert (annotated.pending.kind, annotated.pending.text) == (observed.pending.kind, observed.pending.text)
    assert annotated.notes == observed.notes
    assert annotated.verdicts == observed.verdicts
    assert annotated.actions == ["annotate"]


@pytest.mark.parametrize("client", each_client())
def test_the_cut_ends_a_crashed_session_out_loud(client: str, runs: Runs) -> None:
    """In enforce the call fails at once, the next one too, and a new client object works."""
    run = seen(runs, client, "enforce")
    assert (run.pending.kind, run.pending.code) == ("error", -32600)
    assert CUT_MESSAGE in run.pending.text
    assert run.took_s < SOON_S
    assert run.verdicts == [VERDICTS[client]]
    assert run.actions == ["cut"]
    assert run.next_call.kind == "error"
    code, message = SESSION_ERRORS[client]
    assert run.next_call.code == code
    assert message in run.next_call.text
    assert run.next_call_took_s < SOON_S
    assert (run.fresh.kind, run.fresh.text) == ("result", "done fresh 1")
