"""Everything one proxy process runs, put together once: from checked settings to the end of its drain."""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
import signal
import sys
import time
import uuid
from collections.abc import Callable

from structlog.typing import EventDict

from proxy import __version__
from proxy.admin.controls import Controls
from proxy.admin.feed import Feed
from proxy.admin.listener import Admin, place_of
from proxy.admin.token import read_token
from proxy.config import Loaded
from proxy.config.settings import Limits, Settings
from proxy.drain import Drain
from proxy.endpoint import Endpoint
from proxy.engine import ids
from proxy.engine.ledger import Bounds
from proxy.engine.privacy import hash_session
from proxy.engine.sessions import Ledger
from proxy.errors import ConfigError, ListenFailed, Problem
from proxy.forward import Services
from proxy.logs import Log
from proxy.metrics import Metrics
from proxy.modes import Modes
from proxy.notify import Notifier
from proxy.reload import Reload
from proxy.reporting import Reporter
from proxy.server import Listener
from proxy.status import STARTING, Status

_EXPIRY_INTERVAL_S = 1.0
_COLLECT_AFTER = (10_000, 20, 50)
"""Objects made before the youngest are looked through, and how many such rounds before older ones are."""
_SPARE_DESCRIPTORS = 256
"""Beside two for each exchange: listeners, the status port, files."""


class Process:
    """One process. `read` loads the configuration again, as it was loaded the first time."""

    def __init__(self, loaded: Loaded, read: Callable[[], Loaded], log: Log) -> None:
        self._log = log
        settings = loaded.settings
        forced = {u.name: ids.forced(u.ids) for u in settings.upstreams}
        self._ledger = Ledger(_bounds(settings.limits), forced)
        self._metrics = Metrics(
            ((u.name, u.mode) for u in settings.upstreams),
            version=__version__,
            limits=_limits(settings.limits),
            exemplars=settings.metrics.exemplars,
        )
        self._metrics.log_messages_dropped = lambda: log.dropped
        for name, upstream in self._ledger.upstreams.items():
            self._metrics.watch(name, upstream)
        self._reporter = Reporter(self._metrics, log)
        self._modes = Modes(self._ledger, self._metrics, self._reporter, log)
        self._modes.configure(settings.upstreams, time.monotonic())
        self._reload = Reload(loaded, read, self._apply, self._metrics, log)
        self._status = Status(self._metrics, settings.status, stalled=self._stalled)
        self._listener = Listener(settings, self._services(settings), self._metrics)
        self._drain = Drain(self._listener, self._status.ready, log, lambda: self._settings.shutdown)
        self._controls = Controls(
            ledger=self._ledger,
            metrics=self._metrics,
            reporter=self._reporter,
            log=log,
            modes=self._modes,
            reload=self._reload,
            drain=self._drain,
            ready=self._status.ready,
            listener=self._listener,
            feed=Feed(uuid.uuid4().hex[:8]),
            clock=time.monotonic,
        )
        self._admin = Admin(self._controls, read_token(settings.admin_token_file))
        self._notifier = Notifier()
        self._stop = asyncio.Event()
        self._reloading: asyncio.Task[None] | None = None

    @property
    def _settings(self) -> Settings:
        """The settings in force."""
        return self._reload.loaded.settings

    async def run(self) -> int:
        """Listen, serve, drain. Raises ListenFailed, and ConfigError for an admin address that cannot be used."""
        loop, log = asyncio.get_running_loop(), self._log
        settings, where = self._settings, self._controls.where
        log.event("proxy.started", version=__version__, python=platform.python_version(), pid=os.getpid(),
                  config=str(self._reload.loaded.path or ""), upstreams=[u.name for u in settings.upstreams],
                  mode=sorted({u.mode for u in settings.upstreams}))  # fmt: skip
        try:
            warnings = await self._start(settings)
            warnings += _raise_descriptor_limit(settings.limits.max_connections)
            log.event("config.loaded", path=str(self._reload.loaded.path or ""),
                      upstreams=[u.name for u in settings.upstreams],
                      warnings=[*self._reload.loaded.warnings, *warnings])  # fmt: skip
            self._handle_signals(loop)
            self._status.ready.clear(STARTING)
            log.event("proxy.ready", listen=where["listen"], status=where["status"], admin=where.get("admin"))
            print(_ready_line(settings, where), file=sys.stderr, flush=True)
            self._notifier.ready()
            _calm_collector()
            tasks = [loop.create_task(self._expire()), loop.create_task(self._feed_watchdog())]
            await self._stop.wait()
            await self._end()
            for task in tasks:
                task.cancel()
            return 0
        finally:
            log.tap = None
            await self._admin.stop()
            await self._listener.stop()
            await self._status.stop()

    async def _start(self, settings: Settings) -> list[str]:
        """Start the listeners, and note where they are; returns warnings."""
        where = self._controls.where
        scheme = "http" if settings.tls is None else "https"
        listen = await self._listener.start()
        where["listen"] = f"{scheme}://{listen}"
        try:
            where["status"] = f"http://{Endpoint(*await self._status.start())}"
        except OSError as error:
            reason = error.strerror or error
            raise ListenFailed(f"cannot listen on {settings.status} (status): {reason}") from error
        if settings.admin is None:
            return []
        return await self._start_admin(settings.admin, listen)

    async def _start_admin(self, setting: str, listen: Endpoint) -> list[str]:
        place = place_of(setting, listen, os.environ)
        if place is None:
            return ["admin: auto finds no place: neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR is set; "
                    "nothing listens; set admin: unix:/PATH, or null to say so"]  # fmt: skip
        try:
            self._controls.where["admin"] = await self._admin.start(place)
        except OSError as error:
            reason = error.strerror or str(error)
            if setting == "auto":
                return [f"admin: auto cannot use {place}: {reason}; nothing listens"]
            problem = Problem("admin", None, f"cannot listen on {place}: {reason}", "choose another place")
            raise ConfigError([problem]) from error
        self._log.tap = self._show_live
        return []

    def _show_live(self, fields: EventDict) -> None:
        """A line of the log goes to those who read along; they never see a session's own id."""
        if "session" in fields and self._settings.log.session_ids == "raw":
            fields = {**fields, "session": hash_session(str(fields["session"]))}
        self._controls.feed.publish(fields)

    def _services(self, settings: Settings) -> Services:
        return Services(
            ledger=self._ledger,
            reporter=self._reporter,
            log=self._log,
            request_inspect_bytes=settings.limits.request_inspect_bytes,
            gate_bytes=settings.limits.gate_bytes,
            clock=time.monotonic,
        )

    # ---- while it runs

    def _apply(self, settings: Settings) -> None:
        """Put new settings in force. Raises OSError or ValueError for files that cannot be used; then nothing
        has changed but that a new upstream has its counters, at 0."""
        token = read_token(settings.admin_token_file)
        forced = {u.name: ids.forced(u.ids) for u in settings.upstreams}
        new = {name: dialect for name, dialect in forced.items() if name not in self._ledger.upstreams}
        self._ledger.configure(self._ledger.bounds, new)
        for upstream in settings.upstreams:
            if self._metrics.add(upstream.name, upstream.mode):
                self._metrics.watch(upstream.name, self._ledger.upstreams[upstream.name])
        self._listener.reload(settings, self._services(settings))
        self._ledger.configure(_bounds(settings.limits), forced)
        _raise_descriptor_limit(settings.limits.max_connections)
        self._admin.use_token(token)
        self._metrics.limits = _limits(settings.limits)
        self._metrics.exemplars = settings.metrics.exemplars
        self._log.apply(settings.log)
        self._modes.configure(settings.upstreams, time.monotonic())

    async def _reload_now(self) -> None:
        self._notifier.reloading()
        try:
            await self._reload.run()
        except ConfigError as error:
            for line in error.lines():  # logged as well; this is for whoever looks at the unit
                print(f"forkwatch: not reloaded: {line}", file=sys.stderr, flush=True)
        self._notifier.ready()

    async def _expire(self) -> None:
        """Let idle sessions and switches of the mode go, a second late at most."""
        while True:
            await asyncio.sleep(_EXPIRY_INTERVAL_S)
            now = time.monotonic()
            for name, item in self._ledger.expire(now):
                self._reporter.report(name, item, now)
            self._modes.expire(now)

    async def _feed_watchdog(self) -> None:
        """Tell the service manager that the loop turns, if it wants to know."""
        while (interval_s := self._notifier.watchdog_interval_s) is not None:
            self._notifier.watchdog()
            await asyncio.sleep(interval_s)

    def _stalled(self, lag_s: float) -> None:
        self._log.event("loop.stalled", level="warning", lag_s=round(lag_s, 3))

    # ---- signals, and the end

    def _handle_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._told_to_reload, loop)

    def _told_to_reload(self, loop: asyncio.AbstractEventLoop) -> None:
        self._reloading = loop.create_task(self._reload_now())

    def _told_to_stop(self, name: str) -> None:
        if self._stop.is_set():  # the second time: whoever sends it does not want to wait
            self._log.close()
            os._exit(1)
        self._log.event("proxy.stopping", reason=name)
        self._notifier.stopping()
        self._controls.ending = True
        self._stop.set()

    async def _end(self) -> None:
        self._drain.begin()
        took_s, cut = await self._drain.finished()
        self._log.event("proxy.stopped", took_s=took_s, streams_cut=cut)


def _calm_collector() -> None:
    """Look through all that lives less often: that takes 100 ms with 10,000 sessions, and streams stand still.

    What an exchange leaves behind is young, and found without it.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


def _bounds(limits: Limits) -> Bounds:
    return Bounds(
        sessions_per_upstream=limits.sessions_per_upstream,
        streams_per_session=limits.streams_per_session,
        ids_per_stream=limits.ids_per_stream,
        ledger_bytes=limits.ledger_bytes,
        session_idle_s=limits.session_idle_s,
    )


def _limits(limits: Limits) -> dict[str, float]:
    return {name: float(getattr(limits, name)) for name in limits.__slots__}


def _ready_line(settings: Settings, where: dict[str, str]) -> str:
    upstreams = ", ".join(f"{u.name} ({u.mode}) at {u.url}" for u in settings.upstreams)
    admin = f", admin on {where['admin']}" if "admin" in where else ""
    return f"forkwatch ready: listening on {where['listen']}, status on {where['status']}{admin}, upstream {upstreams}"


def _raise_descriptor_limit(connections: int) -> list[str]:
    """Each exchange holds two descriptors: raise the soft limit. A warning where the hard one is low."""
    wanted = 2 * connections + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if unlimited else min(wanted, hard), hard))
    if unlimited or hard >= wanted:
        return []
    return [
        f"the hard limit of {hard} open files holds fewer than limits.max_connections ({connections})"
        f" exchanges; raise it to {wanted}"
    ]
