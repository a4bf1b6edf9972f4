"""The data listener: clients connect, and each of their requests is carried by a `Forward`.

It knows which upstream takes a request, how many clients there may be, how long an idle one may stay,
and how all of them are sent away in good order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl

from proxy.config.settings import Settings, UpstreamSettings
from proxy.downstream import ClientConnection, Request
from proxy.downstream.connection import MAX_HEAD_BYTES
from proxy.endpoint import Endpoint
from proxy.engine.headers import Forwarding
from proxy.errors import BadRequest, Draining, HeaderTooLarge, ListenFailed, NoUpstream, OverLimit, ProxyError
from proxy.forward import Forward, Route, Services
from proxy.metrics import Metrics
from proxy.routing import find_upstream
from proxy.sockets import keep_alive
from proxy.synthetic import CorsMemory
from proxy.tls import client_context, server_context
from proxy.upstream import Address, Origin

_LENGTH_DIGITS = 18
"""More overflow somewhere."""
_CLOSE_S = 2.0
"""How long the end of the process waits for upstream connections to be closed."""
_NEVER_S = 10 * 365 * 86400.0
_SWEEP_S = 1.0
"""How often idle connections are looked through."""


class Listener:
    """The listener for clients, from `start` to `stop`."""

    def __init__(self, settings: Settings, services: Services, metrics: Metrics) -> None:
        self._settings = settings
        self._services = services
        self._metrics = metrics
        self._routes = {u.name: _route(settings, u, services, metrics) for u in settings.upstreams}
        self._let_go: list[Origin] = []
        """Origins that a reload has replaced, whose last exchanges may still be under way."""
        self._connections: set[ClientConnection] = set()
        self._idle: dict[ClientConnection, float] = {}
        """Connections on which nothing is under way, and since when; the longest first."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._server: asyncio.Server | None = None
        self._tls: ssl.SSLContext | None = None
        self._endpoint = settings.listen
        """Where it listens: what the configuration says, with the port that was chosen."""
        self._winding_down = False
        """Each answer is the last of its connection."""
        self._draining = False

    def reload(self, settings: Settings, services: Services) -> None:
        """Serve what begins from now on by `settings`; what is under way ends as it began.

        The listener's own address and whether it speaks TLS cannot change. Raises OSError, and changes
        nothing then, if a certificate cannot be used any more.
        """
        routes = {}
        for upstream in settings.upstreams:
            old = self._routes.get(upstream.name)
            routes[upstream.name] = _route(settings, upstream, services, self._metrics, old)
        if self._tls is not None and settings.tls is not None:
            server_context(settings.tls)  # a pair that does not fit must not half replace the one in use
            self._tls.load_cert_chain(settings.tls.cert, settings.tls.key)
        self._probe_silent_clients(settings)
        kept = {id(route.origin) for route in routes.values()}
        self._let_go = [origin for origin in self._let_go if origin.open_connections]
        for route in self._routes.values():
            if id(route.origin) not in kept:
                route.origin.let_go()
                self._let_go.append(route.origin)
        self._settings, self._services, self._routes = settings, services, routes

    async def start(self) -> Endpoint:
        """Listen, and say where. Raises ListenFailed."""
        tls = self._settings.tls
        try:
            self._tls = None if tls is None else server_context(tls)
        except (OSError, ssl.SSLError) as error:
            raise ListenFailed(f"cannot use the certificate (tls): {error.strerror or error}") from error
        await self._listen()
        return self._endpoint

    async def _listen(self) -> None:
        endpoint, loop = self._endpoint, asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: ClientConnection(self, loop),
                endpoint.host,
                endpoint.port,
                ssl=self._tls,
                backlog=1024,
                reuse_address=True,
            )
            self._probe_silent_clients(self._settings)
        except OSError as error:
            raise ListenFailed(f"cannot listen on {endpoint} (listen): {error.strerror or error}") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        self._endpoint = Endpoint(str(host), int(port))

    def _probe_silent_clients(self, settings: Settings) -> None:
        """Have the kernel find out that a client is gone. What is set here, each accepted connection inherits."""
        idle_s = min((s for u in settings.upstreams if (s := u.timeouts.tcp_keepalive_s)), default=None)
        for listening in () if self._server is None else self._server.sockets:
            with socket.socket(fileno=os.dup(listening.fileno())) as sock:
                keep_alive(sock, idle_s)

    # ---- connections

    def connected(self, connection: ClientConnection) -> None:
        """A client has connected; above `max_connections` it is told so and closed."""
        limit = self._settings.limits.max_connections
        if len(self._connections) >= limit or self._draining:
            error = Draining("the proxy is stopping") if self._draining else OverLimit(
                f"{limit} connections are open (limits.max_connections)"
            )  # fmt: skip
            connection.refuse(error, None)
            return
        self._connections.add(connection)
        self.idles(connection)

    def disconnected(self, connection: ClientConnection) -> None:
        """A client's connection is gone."""
        self._connections.discard(connection)
        self._idle.pop(connection, None)

    def idles(self, connection: ClientConnection) -> None:
        """Nothing is under way on this connection: it is closed if that stays so for too long."""
        loop = connection.loop
        self._idle[connection] = loop.time()
        if self._sweeper is None:
            self._sweeper = loop.call_later(_SWEEP_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what has been idle for too long: one timer for all."""
        self._sweeper = None
        before = loop.time() - _longest_keepalive_s(self._settings)
        for connection, since in list(self._idle.items()):
            if since > before:
                break
            connection.close()
        if self._idle:
            self._sweeper = loop.call_later(_SWEEP_S, self._sweep, loop)

    def refused(self, error: ProxyError, method: str | None) -> None:
        """A request was not taken."""
        self._services.reporter.refused(error, method, self._services.clock())

    def begins(self, connection: ClientConnection, request: Request) -> Forward | None:
        """Serve a request; None if it is refused."""
        self._idle.pop(connection, None)
        error = self._refusal(request)
        upstream = None
        if error is None:
            hosts = request.values(b"host")
            host = hosts[0].decode("latin-1") if hosts else None
            upstream = find_upstream(self._settings, host, request.target)
            if upstream is None:
                error = NoUpstream("no configured upstream takes this path and Host")
        if error is not None or upstream is None:
            assert error is not None
            connection.refuse(error, request.method)
            return None
        forward = Forward(self._services, self._routes[upstream.name], connection, request)
        if self._winding_down:
            forward.close_after()
        forward.start()
        return forward

    def _refusal(self, request: Request) -> ProxyError | None:
        """Why a request is not served, None if it is."""
        if self._draining:
            return Draining("the proxy is stopping")
        if request.size > MAX_HEAD_BYTES:
            return HeaderTooLarge(f"the request head is larger than {MAX_HEAD_BYTES} bytes")
        if request.method == "CONNECT":
            return BadRequest("this is no tunnel: CONNECT is not served")
        unclear = _unclear(request)
        return None if unclear is None else BadRequest(unclear)

    # ---- the end

    def _open(self) -> list[Forward]:
        return [c.exchange for c in self._connections if isinstance(c.exchange, Forward)]

    @property
    def open_exchanges(self) -> int:
        """Exchanges under way."""
        return len(self._open())

    def wind_down(self) -> None:
        """Let each answer be the last of its connection, so that clients look for another proxy."""
        self._winding_down = True

    async def resume(self) -> None:
        """Take clients as before, after `wind_down` or `drain`. Raises ListenFailed."""
        if self._draining:
            await self._listen()
        self._draining = self._winding_down = False

    async def drain(self, spread_s: float, deadline_s: float) -> int:
        """Take no new work, end standalone streams over `spread_s`, give the rest until `deadline_s`.

        Returns how many exchanges had to be broken off.
        """
        self._draining = True
        if self._server is not None:
            self._server.close()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + deadline_s
        for connection in list(self._connections):
            if isinstance(connection.exchange, Forward):
                connection.exchange.close_after()
            else:
                connection.close()
        standalone = [forward for forward in self._open() if forward.standalone]
        for place, forward in enumerate(standalone):
            if place:
                await asyncio.sleep(spread_s / len(standalone))
            forward.drain(clean=True)
        while self._open() and loop.time() < deadline:
            await asyncio.sleep(0.05)
        rest = self._open()
        for forward in rest:
            forward.drain(clean=False)
        return len(rest)

    async def stop(self) -> None:
        """Close everything that is still open."""
        self._draining = True
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.force_close()
        with contextlib.suppress(TimeoutError):  # the process ends, whatever an upstream does
            async with asyncio.timeout(_CLOSE_S):
                origins = [*(route.origin for route in self._routes.values()), *self._let_go]
                await asyncio.gather(*(origin.close() for origin in origins))


def _unclear(request: Request) -> str | None:
    """What of this head, which llhttp takes, others would read in another way; None if nothing."""
    if request.version not in ("1.0", "1.1"):
        return f"HTTP/{request.version} is not spoken here"
    if codings := request.values(b"transfer-encoding"):
        if [coding.strip().lower() for coding in codings] != [b"chunked"]:
            return "a transfer coding other than chunked cannot be passed on"
        if request.old:
            return "HTTP/1.0 has no transfer coding"
    for value in request.values(b"content-length"):
        if len(value) > _LENGTH_DIGITS:
            return "the length of the body is no length"
    hosts = request.names.count(b"host")
    if hosts > 1 or (hosts == 0 and not request.old):
        return "there is one Host in a request of HTTP/1.1"
    return None


def _longest_keepalive_s(settings: Settings) -> float:
    """Connections are not of one upstream: the most patient one decides."""
    keepalives = [u.timeouts.client_keepalive_s for u in settings.upstreams]
    return max(_NEVER_S if s is None else s for s in keepalives)


def _route(
    settings: Settings,
    upstream: UpstreamSettings,
    services: Services,
    metrics: Metrics,
    old: Route | None = None,
) -> Route:
    """The upstream's route; with the connections of the `old` one where these are made alike."""
    address = Address.parse(upstream.url)
    rewrite = address.authority if upstream.host_header == "rewrite" else None
    scheme = b"http" if settings.tls is None else b"https"
    path = upstream.match.path.encode("ascii")
    return Route(
        settings=upstream,
        origin=old.origin
        if old is not None and _connects_alike(old.settings, upstream)
        else _origin(upstream),
        state=services.ledger.upstreams[upstream.name],
        counters=metrics.upstream(upstream.name),
        forwarding=Forwarding(rewrite, upstream.forwarded == "append", scheme),
        replica_header=upstream.replica_header.lower().encode() if upstream.replica_header else None,
        prefix=path if upstream.strip_prefix and path != b"/" else b"",
        cors=CorsMemory() if old is None else old.cors,
    )


def _connects_alike(old: UpstreamSettings, new: UpstreamSettings) -> bool:
    """Whether connections made for one serve the other. Certificates are files, which may have changed."""
    return (old.url, old.timeouts) == (new.url, new.timeouts) and not new.url.startswith("https:")


def _origin(upstream: UpstreamSettings) -> Origin:
    address = Address.parse(upstream.url)
    timeouts = upstream.timeouts
    return Origin(
        address,
        connect_timeout_s=timeouts.connect_s,
        headers_timeout_s=timeouts.headers_s,
        body_idle_timeout_s=timeouts.body_idle_s,
        keepalive_s=_NEVER_S if timeouts.upstream_keepalive_s is None else timeouts.upstream_keepalive_s,
        tcp_keepalive_s=timeouts.tcp_keepalive_s,
        ssl_context=client_context(upstream.tls) if address.scheme == "https" else None,
    )
