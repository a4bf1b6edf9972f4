"""A real data listener in this process, between raw clients and an upstream that a fuzzer scripts, in one event loop.

All sockets are on loopback and all three parties take turns, so "nothing moves any more" can be seen: several turns
of the loop in which nobody received anything. What must happen is waited for with a deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

import uvloop

from proxy.config import load
from proxy.config.settings import Settings
from proxy.engine.ledger import Bounds
from proxy.engine.sessions import Ledger
from proxy.forward import Services
from proxy.logs import Log, open_log
from proxy.metrics import Metrics
from proxy.modes import Modes
from proxy.reporting import Reporter
from proxy.server import Listener
from tests.fuzz.target import Finding, must

PATIENCE_S = 5.0
"""What must happen happens by then; the common case takes milliseconds."""
MODES = ("observe", "annotate", "enforce")
LOGGERS = ("forkwatch.http", "asyncio")
_QUIET_TURNS = 12
_RESET = struct.pack("ii", 1, 0)

T = TypeVar("T")


class Party(asyncio.Protocol):
    """One end of a connection: all it received, and how it ended."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.raw = b""
        self.closed = False
        self.reset = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast(asyncio.Transport, transport)
        self.stage.moved += 1

    def data_received(self, data: bytes) -> None:
        """Keep what came."""
        self.raw += data
        self.stage.moved += 1

    def eof_received(self) -> None:
        """The other end is done; so is this one."""
        self.closed = True
        self.stage.moved += 1

    def connection_lost(self, exc: Exception | None) -> None:
        """Over."""
        self.closed = True
        self.reset = self.reset or exc is not None
        self.stage.moved += 1

    def send(self, data: bytes) -> None:
        """Send, unless the connection is over."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def hang_up(self, *, reset: bool = True) -> None:
        """Close; a reset leaves no port behind that has to wait."""
        if reset and not self.transport.is_closing():
            sock = self.transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()
        else:
            self.transport.close()


class Faults(logging.Handler):
    """What aiohttp and asyncio log as an error: none may ever be."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def keep(self, context: dict[str, Any]) -> None:
        """Keep what the event loop caught, with its traceback."""
        error = context.get("exception")
        trace = traceback.format_exception(error) if isinstance(error, BaseException) else []
        self.seen.append("".join([str(context.get("message")), "\n", *trace]))

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.seen.append(self.format(record))


class Stage:
    """The listener, its upstream and its clients. `answer` is called with an upstream's end when it received."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.moved = 0
        self.upstreams: list[Party] = []
        self.answer: Callable[[Party], None] = lambda _: None
        self.faults = Faults()
        for name in LOGGERS:
            logging.getLogger(name).addHandler(self.faults)
        self.loop.set_exception_handler(lambda _, context: self.faults.keep(context))
        self.run(self._start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do this on the loop."""
        return self.loop.run_until_complete(work)

    async def _start(self) -> None:
        made = await self.loop.create_server(lambda: _Upstream(self), "127.0.0.1", 0)
        self.server = server = cast(asyncio.Server, made)  # uvloop's is none of its class
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        entries = [{"name": mode, "url": url, "match": {"path": f"/{mode}"}, "mode": mode} for mode in MODES]
        entries.append({"name": "rest", "url": url})
        config = {"listen": "127.0.0.1:0", "admin": None, "upstreams": entries,
                  "log": {"format": "json", "level": "error"}}  # fmt: skip
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            json.dump(config, file)
            file.flush()
            self.settings: Settings = load(Path(file.name), flags={}, env={}).settings
        self.nowhere = open(os.devnull, "wb")  # noqa: SIM115
        self.log: Log = open_log(self.settings.log, stream=self.nowhere, env={})
        self.metrics = Metrics(((u.name, u.mode) for u in self.settings.upstreams), version="0", limits={})
        self.listener = Listener(self.settings, self._services(), self.metrics)
        self.port = (await self.listener.start()).port

    def _services(self) -> Services:
        """Services with a ledger that remembers nothing."""
        ledger = Ledger(Bounds(), {u.name: None for u in self.settings.upstreams})
        reporter = Reporter(self.metrics, self.log)
        Modes(ledger, self.metrics, reporter, self.log).configure(self.settings.upstreams, time.monotonic())
        limits = self.settings.limits
        return Services(
            ledger=ledger,
            reporter=reporter,
            log=self.log,
            request_inspect_bytes=limits.request_inspect_bytes,
            gate_bytes=limits.gate_bytes,
            clock=time.monotonic,
        )

    def forget(self, answer: Callable[[Party], None]) -> None:
        """Begin anew: no sessions are known, and the upstream behaves so."""
        self.listener.reload(self.settings, self._services())
        self.forget_connections(answer)

    def forget_connections(self, answer: Callable[[Party], None]) -> None:
        """The upstream behaves so from now on."""
        self.upstreams = [party for party in self.upstreams if not party.closed]
        for party in self.upstreams:
            party.raw = b""
        self.answer = answer

    async def client(self) -> Party:
        """A client's connection."""
        _, party = await self.loop.create_connection(lambda: Party(self), "127.0.0.1", self.port)
        return party

    async def settle(self) -> None:
        """Until nothing has moved for several turns."""
        quiet = 0
        while quiet < _QUIET_TURNS:
            before = self.moved
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.moved == before else 0

    async def until(self, met: Callable[[], bool], what: Callable[[], object]) -> None:
        """Wait until `met`; a Finding at the deadline that shows `what`."""
        deadline = self.loop.time() + PATIENCE_S
        while not met():
            if self.loop.time() > deadline:
                raise Finding(f"nothing happens within {PATIENCE_S:g} s: {what()!r}")
            await asyncio.sleep(0.0005)

    def close(self) -> None:
        """End all of it."""
        self.server.close()
        self.run(self.listener.stop())
        self.run(self.settle())
        self.loop.close()
        self.log.close()
        self.nowhere.close()
        for name in LOGGERS:
            logging.getLogger(name).removeHandler(self.faults)

    @property
    def failed_open(self) -> int:
        """How often the detector gave up, ever."""
        return sum(sum(self.metrics.upstream(u.name).fail_open.values()) for u in self.settings.upstreams)

    async def sound(self) -> None:
        """Nothing is left open, nothing was logged as an error, and the next client is served."""
        await self.until(lambda: not self.listener.open_exchanges, lambda: "an exchange stays open")
        must(not self.faults.seen, "errors in the log", *self.faults.seen)
        must(not self.failed_open, "failed open", self.failed_open)
        self.answer = lambda party: party.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        client = await self.client()
        client.send(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
        await self.until(lambda: client.raw.endswith(b"\r\n\r\nok"), lambda: ("the next client", client.raw))
        client.hang_up()
        await self.settle()


class _Upstream(Party):
    """The upstream's end of one connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The proxy connects."""
        super().connection_made(transport)
        self.stage.upstreams.append(self)

    def data_received(self, data: bytes) -> None:
        """The proxy sends."""
        super().data_received(data)
        self.stage.answer(self)


_made: list[Stage] = []


def stage() -> Stage:
    """The one listener of this process."""
    if not _made:
        _made.append(Stage())
    found = _made[0]
    found.faults.seen.clear()
    for upstream in found.settings.upstreams:
        counted = found.metrics.upstream(upstream.name).fail_open
        for component in counted:
            counted[component] = 0
    return found


def close_stage() -> None:
    """End it, if it was used."""
    while _made:
        _made.pop().close()
