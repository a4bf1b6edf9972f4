"""The status listener: liveness, readiness and metrics, read-only, without any session's data.

It answers `/livez`, `/readyz` and `/metrics` to GET and HEAD and nothing else. Readiness is a set of
reasons not to be ready; it starts with one, so that nobody sends traffic before the proxy says so. A
timer here measures how late the event loop runs, since a loop that is late is what this is asked about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson
from aiohttp import web

from proxy.endpoint import Endpoint
from proxy.logs import QUIET
from proxy.metrics import Metrics
from proxy.side_listener import listen

STARTING = "starting"
DRAINING = "draining"
LAG_INTERVAL_S = 0.1
STALLED_S = 1.0
"""A timer this late is worth a line in the log: streams stood still for as long."""
_SHUTDOWN_S = 1.0


class Readiness:
    """Why the proxy is not ready, as a set of reasons; ready when there is none.

    The gauges `ready` and `draining` follow it.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._reasons: dict[str, None] = {}
        self.set_reason(STARTING)

    @property
    def reasons(self) -> list[str]:
        """The reasons, oldest first."""
        return list(self._reasons)

    def set_reason(self, reason: str) -> None:
        """Not ready because of `reason`, until it is cleared. Idempotent."""
        self._reasons[reason] = None
        self._follow()

    def clear(self, reason: str) -> None:
        """`reason` no longer holds, if it did."""
        self._reasons.pop(reason, None)
        self._follow()

    def _follow(self) -> None:
        self._metrics.ready = not self._reasons
        self._metrics.draining = DRAINING in self._reasons


class Status:
    """The listener, from `start` to `stop`. `stalled` is called with the seconds the loop stood still."""

    def __init__(
        self, metrics: Metrics, endpoint: Endpoint, *, stalled: Callable[[float], None] | None = None
    ) -> None:
        self.ready = Readiness(metrics)
        self._metrics = metrics
        self._endpoint = endpoint
        self._stalled = stalled
        self._scraping = asyncio.Lock()
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and say where. Raises OSError if the address cannot be used."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        app.on_response_prepare.append(_hide_server)
        runner = web.AppRunner(app, access_log=None, logger=QUIET, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        try:
            self._server = await listen(runner, (self._endpoint.host, self._endpoint.port))
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        self._tick(asyncio.get_running_loop().time())
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Close the listener and its connections, within about a second. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer(self, request: web.Request) -> web.Response:
        answer = {"/livez": self._live, "/readyz": self._readiness, "/metrics": self._scrape}.get(
            request.path
        )
        if answer is None:
            return _json(404, {"error": "not found", "paths": ["/livez", "/readyz", "/metrics"]})
        if request.method not in ("GET", "HEAD"):
            response = _json(405, {"error": "method not allowed"})
            response.headers["Allow"] = "GET, HEAD"
            return response
        return await answer(request)

    async def _live(self, _request: web.Request) -> web.Response:
        return _json(200, {"live": True})

    async def _readiness(self, _request: web.Request) -> web.Response:
        reasons = self.ready.reasons
        return _json(503 if reasons else 200, {"ready": not reasons, "reasons": reasons})

    async def _scrape(self, request: web.Request) -> web.Response:
        # Rendering takes milliseconds of the interpreter, hence a thread; and one at a time, so that
        # many scrapers cannot take the interpreter from the streams.
        async with self._scraping:
            body, content_type = await asyncio.to_thread(
                self._metrics.render, request.headers.get("Accept"), request.query.getall("name[]", [])
            )
        return web.Response(body=body, headers={"Content-Type": content_type, "Cache-Control": "no-store"})

    def _tick(self, due: float) -> None:
        """Measure how late this is, and come back in an interval."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        lag = max(0.0, now - due)
        self._metrics.event_loop_lag.observe(lag)
        self._timer = loop.call_at(now + LAG_INTERVAL_S, self._tick, now + LAG_INTERVAL_S)
        if lag >= STALLED_S and self._stalled is not None:
            self._stalled(lag)


def _json(status: int, body: dict[str, object]) -> web.Response:
    return web.Response(
        status=status,
        body=orjson.dumps(body) + b"\n",
        headers={"Content-Type": "application/json", "Cache-Control": "no-store"},
    )


async def _hide_server(_request: web.Request, response: web.StreamResponse) -> None:
    """Name the product, not the versions of what it is made of."""
    response.headers["Server"] = "forkwatch"
