"""`forkwatch run`: the proxy, from a checked configuration to the end of its drain."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Callable

from proxy import __version__
from proxy.cli.loading import load_from
from proxy.config import Loaded
from proxy.config.settings import Settings, UpstreamSettings
from proxy.engine import ids
from proxy.engine.findings import Action
from proxy.engine.ledger import Bounds
from proxy.engine.policy import Mode, Policy
from proxy.engine.sessions import Ledger
from proxy.errors import ListenFailed
from proxy.forward import Services
from proxy.logs import Log, open_log
from proxy.metrics import Metrics
from proxy.reporting import Reporter
from proxy.server import Listener
from proxy.status import DRAINING, STARTING, Status

_EXPIRY_INTERVAL_S = 5.0
_SPARE_DESCRIPTORS = 256
"""Beside two for each exchange: listeners, the status port, files."""


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT and drain; a second signal ends at once. 0 after a drain, 1 on failure."""
    loaded = load_from(args)
    log = open_log(loaded.settings.log)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_Process(loaded, log).run())
    finally:
        log.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed: a third of the cost of a chunk; else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class _Process:
    """Everything one process runs, put together once."""

    def __init__(self, loaded: Loaded, log: Log) -> None:
        self._loaded = loaded
        self._log = log
        settings = loaded.settings
        limits = settings.limits
        bounds = Bounds(
            sessions_per_upstream=limits.sessions_per_upstream,
            streams_per_session=limits.streams_per_session,
            ids_per_stream=limits.ids_per_stream,
            ledger_bytes=limits.ledger_bytes,
            session_idle_s=limits.session_idle_s,
        )
        self._ledger = Ledger(bounds, {u.name: ids.forced(u.ids) for u in settings.upstreams})
        for u in settings.upstreams:
            self._ledger.upstreams[u.name].policy = _policy(u)
        self._metrics = Metrics(
            ((u.name, u.mode) for u in settings.upstreams),
            version=__version__,
            limits={name: float(getattr(limits, name)) for name in limits.__slots__},
            exemplars=settings.metrics.exemplars,
        )
        self._metrics.log_messages_dropped = lambda: log.dropped
        for name, upstream in self._ledger.upstreams.items():
            self._metrics.watch(name, upstream)
        self._reporter = Reporter(self._metrics, log)
        self._stop = asyncio.Event()

    async def run(self) -> int:
        """Listen, serve, drain."""
        loop = asyncio.get_running_loop()
        settings, log = self._loaded.settings, self._log
        self._announce(settings)
        services = Services(
            ledger=self._ledger,
            reporter=self._reporter,
            log=log,
            request_inspect_bytes=settings.limits.request_inspect_bytes,
            gate_bytes=settings.limits.gate_bytes,
            clock=time.monotonic,
        )
        status = Status(self._metrics, settings.status, stalled=self._stalled)
        listener = Listener(settings, services, self._metrics)
        try:
            where = await self._start(settings, status, listener)
            log.event("proxy.ready", listen=where["listen"], status=where["status"])
            status.ready.clear(STARTING)
            upstreams = ", ".join(f"{u.name} ({u.mode}) at {u.url}" for u in settings.upstreams)
            print(
                f"forkwatch ready: listening on {where['listen']}, status on {where['status']}, upstream {upstreams}",
                file=sys.stderr,
                flush=True,
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._signalled, signal.Signals(number).name)
            signal.signal(
                signal.SIGHUP, signal.SIG_IGN
            )  # there is no reload: a terminal that closes ends nothing
            expiry = loop.create_task(self._expire())
            await self._stop.wait()
            await self._drain(settings, status, listener, loop)
            expiry.cancel()
            return 0
        finally:
            await listener.stop()
            await status.stop()

    async def _start(self, settings: Settings, status: Status, listener: Listener) -> dict[str, str]:
        scheme = "http" if settings.tls is None else "https"
        host, port = await listener.start()
        try:
            status_host, status_port = await status.start()
        except OSError as error:
            reason = error.strerror or error
            raise ListenFailed(f"cannot listen on {settings.status} (status): {reason}") from error
        return {"listen": f"{scheme}://{_bracketed(host)}:{port}",
                "status": f"http://{_bracketed(status_host)}:{status_port}"}  # fmt: skip

    def _announce(self, settings: Settings) -> None:
        log, loaded = self._log, self._loaded
        warnings = [*loaded.warnings, *_raise_descriptor_limit(settings.limits.max_connections)]
        path = str(loaded.path) if loaded.path is not None else ""
        names = [u.name for u in settings.upstreams]
        log.event("proxy.started", version=__version__, python=platform.python_version(), pid=os.getpid(),
                  config=path, upstreams=names, mode=sorted({u.mode for u in settings.upstreams}))  # fmt: skip
        log.event("config.loaded", path=path, upstreams=names, warnings=warnings)

    # ---- while it runs

    async def _expire(self) -> None:
        """Let idle sessions go, a few seconds late at most."""
        while True:
            await asyncio.sleep(_EXPIRY_INTERVAL_S)
            now = time.monotonic()
            for name, item in self._ledger.expire(now):
                self._reporter.report(name, item, now)

    def _stalled(self, lag_s: float) -> None:
        self._log.event("loop.stalled", level="warning", lag_s=round(lag_s, 3))

    # ---- the end

    def _signalled(self, name: str) -> None:
        if self._stop.is_set():  # the second time: whoever sends it does not want to wait
            self._log.close()
            os._exit(1)
        self._log.event("proxy.stopping", reason=name)
        self._stop.set()

    async def _drain(
        self, settings: Settings, status: Status, listener: Listener, loop: asyncio.AbstractEventLoop
    ) -> None:
        shutdown, began = settings.shutdown, loop.time()
        status.ready.set_reason(DRAINING)
        self._log.event("drain.started", delay_s=shutdown.delay_s, spread_s=shutdown.spread_s,
                        deadline_s=shutdown.deadline_s, open_streams=listener.open_exchanges)  # fmt: skip
        await asyncio.sleep(shutdown.delay_s)
        left = max(0.0, shutdown.deadline_s - (loop.time() - began))
        cut = await listener.drain(min(shutdown.spread_s, left), left)
        took = round(loop.time() - began, 3)
        self._log.event("drain.finished", took_s=took, streams_cut=cut)
        self._log.event("proxy.stopped", took_s=took, streams_cut=cut)


def _policy(upstream: UpstreamSettings) -> Policy:
    return Policy(
        mode=Mode(upstream.mode),
        cut_on_suspected=upstream.enforce.cut_on == "suspected",
        only_in_flight=upstream.enforce.when == "in_flight",
        notify=upstream.annotate.notify,
        quarantine_ttl_s=upstream.enforce.quarantine_ttl_s,
        actions={key: Action(action) for key, action in upstream.actions.items()},
    )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


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
