"""Five real clients on streams that fork: what goes unnoticed without the cut, and how each hears it with.

The server is scripted, so the moment of the offending frame is known. Every client runs each case in
each mode, all clients and modes at once; the tests look at what came of it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.forkwatch_process import ALARMS, POLL_S, ROOT, Counters, Forkwatch
from tests.peers.client_table import ClientTable, words
from tests.peers.driver import (
    COMMANDS,
    CUT_MESSAGE,
    HANG,
    SESSION_ERRORS,
    Driver,
    Outcome,
    drivers,
    each_client,
    missing,
)
from tests.peers.plays import FORKED_RETRY_MS, LATE_RETRY_MS, PLAYS, WRONG
from tests.peers.scripted import ScriptedServer

MODES = ["observe", "annotate", "enforce"]
VERDICTS = {
    "restarted": ("fork", "log_restarted", "proven"),
    "misaddressed": ("fork", "log_restarted", "proven"),
    "rewritten": ("fork", "log_restarted", "proven"),
    "foreign": ("crossed", "other_session", "proven"),
}
"""Each case, and what forkwatch must say of it.

Ids start again and an answer carries the pending request's id, or another's; ids of the past carry other
events; the answer is the very event that answered somebody else's call.
"""
HARM_WITHIN_S = 5.0
SOON_S = FORKED_RETRY_MS / 1000
"""Sooner than any client would come back: only what it is told can be the cause."""


@dataclass
class Run:
    """What one client saw of one case in one mode."""

    outcomes: dict[str, Outcome]
    """How each pending call ended."""
    took_s: dict[str, float]
    """The same in seconds since the offending frame was written."""
    verdicts: list[tuple[str, str, str]]
    next_call: Outcome
    next_call_took_s: float
    fresh: Outcome
    """A call of a new client object."""
    again: Outcome | None
    """In enforce, a call of a client object that sent the old session along when it began."""
    notes: list[str]
    faults: list[str]
    calls: list[str]
    said: list[str] = field(default_factory=list)
    """The calls that ended, once for each time they were said to."""


Runs = dict[tuple[str, str, str], Run | BaseException]


class Stage:
    """The scripted server, forkwatch in front of it in every mode, and the clients."""

    def __init__(self, server: ScriptedServer, proxy: Forkwatch, clients: dict[str, Driver]) -> None:
        self.server, self.proxy, self.clients = server, proxy, clients

    def url(self, mode: str) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self.proxy.port}/{mode}/mcp"

    async def logged(self, event: str, session: str, count: int) -> list[dict[str, Any]]:
        """The log lines of this event about a session, once there are so many: the log lags behind."""
        async with asyncio.timeout(HARM_WITHIN_S):
            while True:
                wanted = {"event": event, "session": session}
                lines = [line for line in self.proxy.log() if wanted.items() <= line.items()]
                if len(lines) >= count:
                    return lines
                await asyncio.sleep(POLL_S)

    async def forked(self, client: str, case: str, mode: str) -> Run:
        """One pending call whose stream forks."""
        driver, name, scene_name = self.clients[client], f"{case} {mode}", f"{client} {case} {mode}"
        scene, url = self.server.scene(scene_name), self.url(mode)
        if case == "foreign":  # somebody else has the same request answered first
            await driver.open(f"{name} other", url)
            driver.call(f"{name} other", f"{name} own", "own", scene=scene_name)
            assert (await driver.outcome(f"{name} own")).text == WRONG
        await driver.open(name, url)
        driver.call(name, f"{name} pending", "forked", scene=scene_name, log=case)
        await driver.note(name, "last")
        scene.consumed.set()
        scene.go.set()
        pending = await driver.outcome(f"{name} pending", HARM_WITHIN_S)
        return await self._aftermath(driver, name, mode, scene_name, {"pending": pending})

    async def concurrent(self, client: str, mode: str) -> Run:
        """One stream forks while three more calls are pending: streaming, unanswered, lost for a while."""
        driver, name, scene_name = self.clients[client], f"concurrent {mode}", f"{client} concurrent {mode}"
        scene, away = self.server.scene(scene_name), self.server.scene(f"{scene_name} away")
        await driver.open(name, self.url(mode))
        driver.call(name, f"{name} pending", "forked", scene=scene_name, log="restarted")
        await driver.note(name, "last")
        scene.consumed.set()
        driver.call(name, f"{name} streaming", "slow", scene=scene_name)
        await driver.note(name, "slow")
        driver.call(name, f"{name} unanswered", "silent", scene=scene_name)
        await scene.reached.wait()
        driver.call(name, f"{name} away", "dropped", scene=f"{scene_name} away")
        await driver.note(name, "late")
        away.consumed.set()
        await self.logged("stream.closed", scene.session, 2)
        scene.go.set()
        kinds = ("pending", "streaming", "unanswered", "away")
        outcomes = {kind: await driver.outcome(f"{name} {kind}", HARM_WITHIN_S) for kind in kinds}
        scene.calls += away.calls
        return await self._aftermath(driver, name, mode, scene_name, outcomes)

    async def _new(
        self, driver: Driver, name: str, mode: str, kind: str, stale: str | None = None
    ) -> Outcome:
        """A call of a new client object, which is closed again."""
        client = f"{name} {kind}"
        try:
            await driver.open(client, self.url(mode), stale)
        except AssertionError as refused:
            return Outcome("refused", str(refused))
        driver.call(client, client, "answer", tag=kind, n=1)
        outcome = await driver.outcome(client, HARM_WITHIN_S)
        await driver.close(client)
        return outcome

    async def _aftermath(
        self, driver: Driver, name: str, mode: str, scene_name: str, outcomes: dict[str, Outcome]
    ) -> Run:
        """The next call on the same client object, and a new one; then all that was seen."""
        scene, began = self.server.scenes[scene_name], time.monotonic()
        assert scene.offended_at is not None
        driver.call(name, f"{name} next", "plain", tag="next")
        next_call = await driver.outcome(f"{name} next", HARM_WITHIN_S)
        fresh = await self._new(driver, name, mode, "fresh")
        again = None
        if mode == "enforce":
            again = await self._new(driver, name, mode, "again", stale=scene.session)
        await driver.close(name)
        judged = await self.logged("resume.judged", scene.session, 1)
        ended = [each["key"] for each in driver.said if each["event"] in ("result", "error")]
        return Run(
            outcomes=outcomes,
            took_s={kind: outcome.at - scene.offended_at for kind, outcome in outcomes.items()},
            verdicts=[(line["verdict"], line["reason"], line["certainty"]) for line in judged],
            next_call=next_call,
            next_call_took_s=next_call.at - began,
            fresh=fresh,
            again=again,
            notes=driver.notes(name),
            faults=driver.faults(name),
            calls=scene.calls,
            said=[key.removeprefix(f"{name} ") for key in ended if key.startswith(f"{name} ")],
        )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """Everything started, in one loop for all tests of this module."""
    directory: Path = tmp_path_factory.mktemp("forked")
    server = ScriptedServer(PLAYS)
    url = await server.start()
    upstreams = [
        {"name": mode, "url": url, "match": {"path": f"/{mode}"}, "strip_prefix": True, "mode": mode}
        for mode in MODES
    ]
    proxy = Forkwatch(upstreams, directory)
    try:
        proxy.start()
        async with drivers(directory) as clients:
            yield Stage(server, proxy, clients)
    finally:
        proxy.stop()
        await server.stop()
    assert "Traceback" not in proxy.errors.read_text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runs(stage: Stage, request: pytest.FixtureRequest) -> Runs:
    """Every client in every case and mode; one case at a time, so that no time is that of a crowd."""
    found: Runs = {}
    for case in [*VERDICTS, "concurrent"]:
        for mode in MODES if case in VERDICTS else ["enforce"]:
            work = [
                stage.forked(client, case, mode) if case in VERDICTS else stage.concurrent(client, mode)
                for client in stage.clients
            ]
            results = await asyncio.gather(*work, return_exceptions=True)
            found |= {(client, case, mode): run for client, run in zip(stage.clients, results, strict=True)}
    _tabulate(ClientTable.of(request.config), stage, found)
    return found


def _tabulate(table: ClientTable, stage: Stage, runs: Runs) -> None:
    table.versions |= {name: driver.version for name, driver in stage.clients.items()}
    for (client, case, mode), run in runs.items():
        if isinstance(run, BaseException) or mode == "annotate":
            continue
        for kind, outcome in run.outcomes.items():
            row = f"{case}: the {kind} call"
            table.put(mode, row, client, words(outcome, run.took_s[kind], (WRONG,)))
        if case == "concurrent":
            table.put(mode, "any: the next call", client, words(run.next_call, run.next_call_took_s, ()))


def seen(runs: Runs, client: str, case: str, mode: str) -> Run:
    """The run of this client, or what prevented it."""
    run = runs[client, case, mode]
    if isinstance(run, BaseException):
        raise run
    return run


@pytest.mark.parametrize("client", each_client())
@pytest.mark.parametrize("case", VERDICTS)
def test_a_fork_is_silent_without_the_cut(case: str, client: str, runs: Runs) -> None:
    """In observe the client takes another log's answer for its own, or hangs; only forkwatch says so."""
    run = seen(runs, client, case, "observe")
    pending = run.outcomes["pending"]
    assert pending == HANG or (pending.kind, pending.text) == ("result", WRONG)
    assert run.verdicts == [VERDICTS[case]]
    assert run.next_call.text == "done next"


@pytest.mark.parametrize("client", each_client())
@pytest.mark.parametrize("case", VERDICTS)
def test_an_annotation_is_invisible_to_clients(case: str, client: str, runs: Runs) -> None:
    """In annotate each client sees exactly what it sees in observe, and the verdict is the same."""
    observed, annotated = seen(runs, client, case, "observe"), seen(runs, client, case, "annotate")
    (before,), (after,) = observed.outcomes.values(), annotated.outcomes.values()
    assert (after.kind, after.text) == (before.kind, before.text)
    assert annotated.notes == observed.notes
    assert annotated.verdicts == observed.verdicts
    assert annotated.next_call.text == observed.next_call.text


@pytest.mark.parametrize("client", each_client())
@pytest.mark.parametrize("case", VERDICTS)
def test_the_cut_fails_the_pending_call_at_once(case: str, client: str, runs: Runs) -> None:
    """In enforce the call fails within a second of the offending frame, of which nothing was delivered."""
    run = seen(runs, client, case, "enforce")
    pending = run.outcomes["pending"]
    assert (pending.kind, pending.code) == ("error", -32600)
    assert CUT_MESSAGE in pending.text
    assert run.took_s["pending"] < SOON_S
    assert run.notes == ["1", "2", "last"]
    assert run.calls.count("forked") == 1
    assert run.verdicts == [VERDICTS[case]]


@pytest.mark.parametrize("client", each_client())
@pytest.mark.parametrize("case", VERDICTS)
def test_a_cut_session_is_over_and_a_new_one_works(case: str, client: str, runs: Runs) -> None:
    """The next call on the client object fails at once as its session is gone; a new client object works."""
    run = seen(runs, client, case, "enforce")
    assert run.next_call.kind == "error"
    code, message = SESSION_ERRORS[client]
    assert run.next_call.code == code
    assert message in run.next_call.text
    assert run.next_call_took_s < SOON_S
    assert (run.fresh.kind, run.fresh.text) == ("result", "done fresh")


@pytest.mark.parametrize("client", each_client())
def test_a_client_that_still_sends_its_dead_session_can_start_anew(client: str, runs: Runs) -> None:
    """An `initialize` that carries the session that was cut opens a new one."""
    run = seen(runs, client, "restarted", "enforce")
    assert run.again is not None
    assert (run.again.kind, run.again.text) == ("result", "done again")


@pytest.mark.parametrize("client", each_client())
def test_every_pending_call_fails_once(client: str, runs: Runs) -> None:
    """Calls that stream, that have no answer yet, or that lost their stream: each fails, each once."""
    run = seen(runs, client, "concurrent", "enforce")
    for kind, outcome in run.outcomes.items():
        assert (outcome.kind, outcome.code) == ("error", -32600), (kind, outcome)
        assert CUT_MESSAGE in outcome.text, (kind, outcome)
        away_s = LATE_RETRY_MS / 1000 if kind == "away" else 0.0
        assert run.took_s[kind] < away_s + SOON_S, kind
    assert sorted(key for key in run.said if key in run.outcomes) == sorted(run.outcomes)
    assert not [text for text in run.faults if "unknown" in text]
    assert sorted(run.calls) == ["dropped", "forked", "silent", "slow"]
    code, message = SESSION_ERRORS[client]
    assert run.next_call.code == code
    assert message in run.next_call.text


@pytest.mark.asyncio(loop_scope="module")
async def test_one_fork_is_one_incident(runs: Runs, stage: Stage) -> None:
    """What clients try once their session is cut is refused, and neither judged nor cut again."""
    cut = [run for (_, _, mode), run in runs.items() if mode == "enforce"]
    counters = Counters(stage.proxy, {})
    assert await counters.grown("policy_actions_total", upstream="enforce", action="cut") == len(cut)
    assert await counters.grown("quarantines_total", upstream="enforce") == len(cut)
    alarms = {key: count for key, count in (await counters.settled()).items() if key[0] in ALARMS}
    assert sum(alarms.values()) == len(runs)


def test_the_page_says_what_was_measured(runs: Runs, request: pytest.FixtureRequest) -> None:
    """docs/clients.md has every row of this run, times apart."""
    if skipped := [why for client in COMMANDS if (why := missing(client))]:
        pytest.skip(skipped[0])
    times = re.compile(r"\d+ ms")
    page = times.sub("", (ROOT / "docs/clients.md").read_text()).splitlines()
    measured = [times.sub("", line) for line in ClientTable.of(request.config).lines() if line[:1] == "|"]
    assert [line for line in measured if line not in page] == []
