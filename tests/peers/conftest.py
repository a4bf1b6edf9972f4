"""Fixtures of the peer tests: real servers, and forkwatch in front of one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forkwatch_process import ALARMS, Counters, Forkwatch, Verdicts
from tests.peers.processes import PEERS, Server

Serve = Callable[[str], Awaitable[Server]]
Watch = Callable[[Server], Awaitable["Watched"]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs the peers."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.peers)


@dataclass
class Watched:
    """A server behind forkwatch: where clients connect, and what was counted since."""

    url: str
    counters: Counters

    async def verdicts(self) -> Verdicts:
        """The verdicts, once every resume has one."""
        assert await self.counters.grown("fail_open_total") == 0
        return await self.counters.settled()

    async def alarms(self) -> Verdicts:
        """The verdicts that would wake somebody."""
        return {key: count for key, count in (await self.verdicts()).items() if key[0] in ALARMS}


@pytest.fixture(scope="session", autouse=True)
def peers_are_set_up() -> None:
    """Say what to do where the peers are missing, rather than fail in each test."""
    if not (PEERS / "npm/.installed").exists():
        pytest.fail("the peers are not set up: run `make peers`, or tests/peers/setup.sh", pytrace=False)


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """Starts a peer server by name; all end with the test."""
    started: list[Server] = []

    async def start(name: str) -> Server:
        server = Server(name, tmp_path)
        started.append(server)
        await server.start()
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """Puts forkwatch in front of a server; it ends with the test."""
    started: list[Forkwatch] = []

    async def start(server: Server) -> Watched:
        upstream = {"name": server.name, "url": server.url, "replay_deadline": "1s"}
        proxy = Forkwatch([upstream], tmp_path)
        started.append(proxy)
        proxy.start()
        return Watched(f"http://127.0.0.1:{proxy.port}", await Counters.since_now(proxy))

    yield start
    for proxy in started:
        proxy.stop()
