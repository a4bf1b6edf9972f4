"""Two hundred healthy calls of each real client in enforce: none is cut, the results are the direct ones.

The streams are primed, polled, lost and resumed, calls run at once, notifications come on the
standalone stream; the same work without forkwatch says what the client must see.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.forkwatch_process import ALARMS, Counters, Forkwatch
from tests.peers.driver import Driver, drivers, each_client
from tests.peers.plays import CLEAN, LOST, PLAYS
from tests.peers.processes import Server
from tests.peers.scripted import ScriptedServer

AT_ONCE = 10
BREAKS, LOSSES = 20, 5
"""Calls whose stream the server closes, and calls whose connection is lost too."""
REPLAYED = ("resumed", "replayed", "proven")
RETURNING_EARLIER = {"mcp 1.30", "mcp 2.3", "fastmcp 4.2"}
"""Clients that, after a loss, come back with the cursor of an earlier resume: events are shown them again."""
MODES = ["annotate", "enforce"]


@dataclass(frozen=True)
class Seen:
    """What one client saw of the work: the results in the order of the calls, the notifications sorted."""

    results: list[str]
    notes: list[str]


class Work:
    """The calls of one session, made on one client object; AssertionError where one is not answered."""

    def __init__(self, driver: Driver, name: str) -> None:
        self.driver, self.name = driver, name
        self.results: list[str] = []

    async def together(self, count: int, tool: str, prefix: str, **arguments: object) -> None:
        """So many calls of a tool, `AT_ONCE` at a time, each with a tag of its own."""
        tags = [f"{prefix}{i}-" for i in range(count)]
        for start in range(0, count, AT_ONCE):
            keys = []
            for tag in tags[start : start + AT_ONCE]:
                keys.append(f"{self.name} {tool} {tag}")
                self.driver.call(self.name, keys[-1], tool, **{**arguments, "tag": tag})
            await self.take(*keys)

    async def take(self, *keys: str) -> None:
        """The results of these calls, in this order."""
        outcomes = [await self.driver.outcome(key) for key in keys]
        assert {outcome.kind for outcome in outcomes} == {"result"}, (self.driver.name, self.name, outcomes)
        self.results += [outcome.text for outcome in outcomes]

    def seen(self) -> Seen:
        """What came of it."""
        return Seen(self.results, sorted(self.driver.notes(self.name)))


async def real_server(work: Work, server: ScriptedServer) -> None:
    """What the tools of the real server offer: 200 calls.

    The polled calls go on well before the client is back, or well after: what this server sends in the
    very moment of a resume, it loses.
    """
    await work.together(150, "count", "c", n=2, ms=2)
    polls = [f"{work.name} poll{i}" for i in range(BREAKS)]
    for i, key in enumerate(polls):
        work.driver.call(work.name, key, "poll", ms=50 if i % 2 else 1500)
    await work.take(*polls)
    await work.together(30, "poke", "g", n=1)
    for i in range(30):
        await work.driver.note(work.name, f"g{i}-0")


async def scripted_server(work: Work, server: ScriptedServer) -> None:
    """The healthy plays: 200 calls."""
    await work.together(100, "answer", "a", n=2)
    await work.together(60, "plain", "p")
    await work.together(BREAKS, "broken", "b", breaks=[CLEAN, CLEAN])
    for i in range(LOSSES):
        scene_name = f"{work.driver.name} {work.name} {i}"
        scene = server.scene(scene_name)
        key = f"{work.name} lost{i}"
        work.driver.call(work.name, key, "broken", tag=f"l{i}-", breaks=[CLEAN, LOST], scene=scene_name)
        await work.driver.note(work.name, f"l{i}-1")
        scene.consumed.set()
        await work.take(key)
    await work.together(10, "poke", "g", n=2)
    for i in range(5):  # one after the other: each ends the standalone stream
        work.driver.call(work.name, f"{work.name} away{i}", "poke", tag=f"w{i}-", away=True)
        await work.take(f"{work.name} away{i}")
        await work.driver.note(work.name, f"w{i}-0")


SCRIPTS: dict[str, Callable[[Work, ScriptedServer], Awaitable[None]]] = {
    "py1-resurrect-int": real_server,
    "scripted": scripted_server,
}


@dataclass
class Lane:
    """One client, a server of its own, and forkwatch between them."""

    driver: Driver
    scripted: ScriptedServer
    direct_url: str
    proxy: Forkwatch

    async def run(self, script: str) -> dict[str, Seen]:
        """What the client saw of this work without forkwatch, and in each mode."""
        base = f"http://127.0.0.1:{self.proxy.port}"
        urls = {"direct": self.direct_url, **{mode: f"{base}/{mode}" for mode in MODES}}
        found = {}
        for way, url in urls.items():
            work = Work(self.driver, f"{script} {way}")
            await self.driver.open(work.name, f"{url}/mcp")
            await SCRIPTS[script](work, self.scripted)
            await self.driver.close(work.name)
            found[way] = work.seen()
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clients(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Driver]]:
    """The clients, for all tests of this module."""
    async with drivers(tmp_path_factory.mktemp("clients")) as started:
        yield started


@dataclass(frozen=True)
class Done:
    """What one client saw of a script without forkwatch and in each mode, and what was counted."""

    script: str
    seen: dict[str, Seen]
    counters: Counters


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SCRIPTS)
async def outcomes(
    request: pytest.FixtureRequest, clients: dict[str, Driver], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, Done | BaseException]]:
    """All clients at the work at once: what each saw, and what was counted for it."""
    async with AsyncExitStack() as stack:
        lanes = {
            name: await _lane(stack, request.param, driver, tmp_path_factory.mktemp("lane"))
            for name, driver in clients.items()
        }
        before = {name: await Counters.since_now(lane.proxy) for name, lane in lanes.items()}
        results = await asyncio.gather(
            *(lane.run(request.param) for lane in lanes.values()), return_exceptions=True
        )
        yield {
            name: result if isinstance(result, BaseException) else Done(request.param, result, before[name])
            for name, result in zip(lanes, results, strict=True)
        }


async def _lane(stack: AsyncExitStack, script: str, driver: Driver, directory: Path) -> Lane:
    scripted = ScriptedServer(PLAYS)
    url = await scripted.start()
    stack.push_async_callback(scripted.stop)
    if script != "scripted":  # one server for each client: the SDK's streams are not kept apart by session
        server = Server(script, directory)
        await server.start()
        stack.callback(server.kill)
        url = server.url
    upstreams = [
        {
            "name": mode,
            "url": url,
            "match": {"path": f"/{mode}"},
            "strip_prefix": True,
            "mode": mode,
            "host_header": "rewrite",
        }
        for mode in MODES
    ]
    proxy = Forkwatch(upstreams, directory).start()
    stack.callback(proxy.stop)
    return Lane(driver, scripted, url, proxy)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("client", each_client())
async def test_healthy_work_is_never_cut(client: str, outcomes: dict[str, Done | BaseException]) -> None:
    """The client sees what it sees without forkwatch; its resumes are sound, nothing is cut."""
    done = outcomes[client]
    if isinstance(done, BaseException):
        raise done
    seen, counters = done.seen, done.counters
    assert len(seen["direct"].results) == 200
    assert {mode: seen[mode] for mode in MODES} == dict.fromkeys(MODES, seen["direct"])
    verdicts = await counters.settled()
    assert sum(count for key, count in verdicts.items() if key[0] == "resumed") >= BREAKS * len(MODES), (
        verdicts
    )
    if client in RETURNING_EARLIER and done.script == "scripted":
        assert verdicts[REPLAYED] == LOSSES * len(MODES), verdicts
    assert not {key: count for key, count in verdicts.items() if key[0] in ALARMS}
    for action in ("cut", "annotate"):
        assert await counters.grown("policy_actions_total", action=action) == 0
    assert await counters.grown("quarantines_total") == 0
    assert await counters.grown("fail_open_total") == 0
    assert await counters.grown("sessions_closed_total", reason="deleted") == len(MODES)
