"""The parts behind an admin interface, put together without a process: for what takes very many sessions."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from proxy.admin.controls import Controls
from proxy.admin.feed import Feed
from proxy.admin.listener import Admin
from proxy.config import load
from proxy.config.settings import Settings
from proxy.drain import Drain
from proxy.engine.ledger import Bounds, Session
from proxy.engine.sessions import Ledger
from proxy.forward import Services
from proxy.logs import Log, open_log
from proxy.metrics import Metrics
from proxy.modes import Modes
from proxy.reload import Reload
from proxy.reporting import Reporter
from proxy.server import Listener
from proxy.status import STARTING, Status
from tests.admin.operator import Operator

BOOT = "b00t"


def controls(directory: Path, *names: str) -> Controls:
    """The controls of a proxy with these upstreams, which neither listens nor serves."""
    file = directory / "forkwatch.yaml"
    routes = [f"{{name: {name}, url: 'http://127.0.0.1:9', match: {{path: /{name}}}}}" for name in names]
    file.write_text(f"upstreams: [{', '.join(routes)}]\nadmin: null\n")
    loaded = load(file, flags={}, env={})
    settings = loaded.settings
    log = open_log(settings.log, stream=io.BytesIO(), env={})
    ledger = Ledger(Bounds(), dict.fromkeys(names))
    metrics = Metrics(((u.name, u.mode) for u in settings.upstreams), version="0", limits={})
    for name, upstream in ledger.upstreams.items():
        metrics.watch(name, upstream)
    reporter = Reporter(metrics, log)
    modes = Modes(ledger, metrics, reporter, log)
    modes.configure(settings.upstreams, 0.0)
    status = Status(metrics, settings.status)
    status.ready.clear(STARTING)
    listener = Listener(settings, _services(settings, ledger, reporter, log), metrics)
    feed = Feed(BOOT)
    log.tap = feed.publish
    return Controls(
        ledger=ledger,
        metrics=metrics,
        reporter=reporter,
        log=log,
        modes=modes,
        reload=Reload(loaded, lambda: loaded, lambda _: None, metrics, log),
        drain=Drain(listener, status.ready, log, lambda: settings.shutdown),
        ready=status.ready,
        listener=listener,
        feed=feed,
        clock=time.monotonic,
    )


def _services(settings: Settings, ledger: Ledger, reporter: Reporter, log: Log) -> Services:
    return Services(
        ledger=ledger,
        reporter=reporter,
        log=log,
        request_inspect_bytes=settings.limits.request_inspect_bytes,
        gate_bytes=settings.limits.gate_bytes,
        clock=time.monotonic,
    )


def open_sessions(of: Controls, upstream: str, count: int, name: Callable[[int], str]) -> list[Session]:
    """So many sessions that an `initialize` has made, in this order, a second apart."""
    where = of.ledger.upstreams[upstream]
    made = []
    for number in range(count):
        key, now = name(number).encode(), float(where.next_number)
        session, _ = of.ledger.open(where, key, now, initialized=True, protocol="2025-06-18")
        made.append(session)
    return made


@contextlib.asynccontextmanager
async def serving(of: Controls, directory: Path, *, heartbeat_s: float = 15.0) -> AsyncIterator[Operator]:
    """The interface on a Unix socket, in this event loop, and its operator."""
    admin = Admin(of, None, heartbeat_s=heartbeat_s)
    operator = Operator(await admin.start(f"unix:{directory}/admin.sock"))
    try:
        yield operator
    finally:
        operator.leave()
        await admin.stop()
        of.log.close()
