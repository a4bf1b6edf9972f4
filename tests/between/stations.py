"""All that the tests of this folder run: one forkwatch, the middleboxes around it, and the servers behind.

Each setting of a middlebox is a column of the tables. It has servers and entries of forkwatch of its own,
so that the columns of a row are measured at the same time.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.between.crossing import Route, Servers
from tests.between.middlebox import HASTY, HERE, PROGRAMS, Middlebox, Program, installed, reserved
from tests.forkwatch_process import Counters, Forkwatch
from tests.scenarios.exchange import ScriptedUpstream

TITLES = {"nginx": "nginx", "haproxy": "HAProxy", "caddy": "Caddy"}


@dataclass(slots=True)
class Column:
    """One program with one set of settings."""

    title: str
    """As it stands in the tables."""
    name: str
    program: Program
    box: Middlebox
    server: Servers
    replicas: Servers

    def entries(self) -> list[dict[str, Any]]:
        """What forkwatch is configured with for it."""
        server, replicas = f"http://127.0.0.1:{self.server.ports[0]}", f"http://127.0.0.1:{self.box.behind}"
        return [
            _entry(f"front-{self.name}-cut", server, mode="enforce"),
            _entry(f"front-{self.name}", server),
            _entry(f"behind-{self.name}", replicas, replica_header="X-Served-By"),
        ]

    @property
    def replica_names(self) -> dict[int, str]:
        """How the middlebox names its replicas, by their ports."""
        a, b = self.replicas.ports
        return {a: "a", b: "b"} if self.program.name == "haproxy" else {p: f"127.0.0.1:{p}" for p in (a, b)}


def _entry(name: str, url: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "url": url, "match": {"path": f"/{name}"}, **settings}


@dataclass(slots=True)
class Stations:
    """The running processes."""

    forkwatch: Forkwatch
    columns: list[Column]
    hasty: dict[str, Column]
    """By title: the same with a limit on silence that a test can wait for; none where there is no limit."""

    def forget(self, program: str) -> None:
        """Start a program anew, in each of its columns."""
        for column in self.columns:
            if column.program.name == program:
                column.box.restart()

    @contextlib.asynccontextmanager
    async def in_front(self, column: Column) -> AsyncIterator[Route]:
        """A session of a client that reaches forkwatch by the middlebox."""
        async with self._route(column.server, column.box.in_front, f"front-{column.name}") as route:
            yield route

    @contextlib.asynccontextmanager
    async def behind(self, column: Column) -> AsyncIterator[Route]:
        """A session of a client of forkwatch, which reaches two replicas by the middlebox."""
        async with self._route(column.replicas, self.forkwatch.port, f"behind-{column.name}") as route:
            route.names = column.replica_names
            yield route

    @contextlib.asynccontextmanager
    async def _route(self, servers: Servers, port: int, name: str) -> AsyncIterator[Route]:
        counters = await Counters.since_now(self.forkwatch)
        route = Route(self.forkwatch, servers, counters, port, name)
        await route.initialize()
        try:
            yield route
        finally:
            await route.close()


def configurations(program: Program) -> dict[str, tuple[str, str]]:
    """By the suffix of the title: the configuration, and the same with a hasty limit."""
    recommended, defaults = (HERE / name for name in (program.recommended, program.defaults))
    hasty = f"proxy_read_timeout {HASTY};\n" if program.name == "nginx" else ""
    return {
        "": (defaults.read_text(), hasty + defaults.read_text().replace(" 50000", f" {HASTY}")),
        ", set": (recommended.read_text(), recommended.read_text().replace(" 1h", f" {HASTY}")),
    }


@contextlib.asynccontextmanager
async def stations(directory: Path) -> AsyncIterator[Stations]:
    """Everything that is installed here, started; nothing of it is left afterwards."""
    shutdown = {"delay": "0s", "spread": "300ms", "deadline": "4s"}
    async with contextlib.AsyncExitStack() as stack:
        port, status_port = reserved(stack), reserved(stack)
        addresses = {"listen": f"127.0.0.1:{port}", "status": f"127.0.0.1:{status_port}"}
        forkwatch = Forkwatch([], directory, shutdown=shutdown, **addresses)
        forkwatch.port, forkwatch.status_port = port, status_port
        found = Stations(forkwatch, [], {})
        for program in filter(installed, PROGRAMS):
            for suffix, (configuration, hasty) in configurations(program).items():
                title = TITLES[program.name] + suffix
                found.columns.append(await _column(stack, title, program, configuration, found, directory))
                if hasty != configuration:
                    column = await _column(stack, title, program, hasty, found, directory, "-hasty")
                    found.hasty[title] = column
        everything = [*found.columns, *found.hasty.values()]
        for column in everything:
            column.box.ready()
        forkwatch.settings["upstreams"] = [each for column in everything for each in column.entries()]
        forkwatch.start()
        try:
            yield found
        finally:
            forkwatch.stop()
        said = forkwatch.errors.read_text() + forkwatch.log_file.read_text()
        assert "Traceback" not in said, said[-2000:]


async def _column(
    stack: contextlib.AsyncExitStack,
    title: str,
    program: Program,
    configuration: str,
    found: Stations,
    directory: Path,
    suffix: str = "",
) -> Column:
    server, replicas = await _servers(stack, 1), await _servers(stack, 2)
    name = title.lower().replace(", ", "-") + suffix
    a, b = replicas.ports
    listens = reserved(stack), reserved(stack)
    box = Middlebox(program, configuration, found.forkwatch.port, (a, b), directory / name, *listens)
    box.configure()
    box.start()
    stack.callback(box.stop)
    return Column(title, name, program, box, server, replicas)


async def _servers(stack: contextlib.AsyncExitStack, count: int) -> Servers:
    servers, listening = await Servers.listening(count)

    def close(each: ScriptedUpstream) -> None:
        each.server.close()

    for each in listening:
        stack.callback(close, each)
    return servers
