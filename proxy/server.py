"""The data listener: aiohttp's server reads requests, and each is carried by a `Forward`.

aiohttp parses requests, keeps connections alive and limits heads; its response classes are not
used, so that the bytes of an answer, its field order and the kind of its ending are the upstream's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD

from proxy.config.settings import Settings, UpstreamSettings
from proxy.endpoint import Endpoint
from proxy.engine.headers import Forwarding
from proxy.errors import BadRequest, Draining, HeaderTooLarge, ListenFailed, NoUpstream, OverLimit, ProxyError
from proxy.forward import CLOSE, Done, Forward, Route, Services
from proxy.metrics import Metrics
from proxy.problem import problem_response
from proxy.routing import find_upstream
from proxy.synthetic import CorsMemory
from proxy.tls import client_context, server_context
from proxy.upstream import Address, Origin

MAX_HEAD_BYTES = 64 * 1024
"""The largest request head: its target and its fields."""
_LINGER_S = 2.0
"""How long a client that is told off while it sends may go on, so that it can read what it was told."""
_CLOSE_S = 2.0
"""How long the end of the process waits for upstream connections to be closed."""
_NEVER_S = 10 * 365 * 86400.0
_KEEPALIVE_PROBES = 4

_quiet = logging.getLogger("forkwatch.http")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False
"""aiohttp logs tracebacks of clients that leave or send nonsense; ours are answers and counters."""


class ClientConnection(web.RequestHandler):
    """A client's connection: aiohttp's protocol, which tells the exchange on it what happens at once."""

    __slots__ = ("_deaf", "_head_bytes", "_listener", "_upload", "forward", "loop", "peer")

    def __init__(self, listener: Listener, server: web.Server, **settings: Any) -> None:
        super().__init__(server, **settings)
        self._listener = listener
        self.loop: asyncio.AbstractEventLoop = settings["loop"]
        self.forward: Forward | None = None
        self.peer: bytes | None = None
        self._upload: StreamReader = EMPTY_PAYLOAD
        """The body of the last request whose head is complete."""
        self._head_bytes = 0
        """What has come of a head that is not."""
        self._deaf = False
        """Nothing the client sends matters any more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.peer = str(address[0]).encode("ascii", "replace")
        self._listener.connected(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client: too large a head, or an upload that breaks its framing, ends here."""
        if self._deaf:
            return
        known, upload = self._request_count, self._upload
        in_head = upload.is_eof()
        super().data_received(data)
        if self._request_count != known and self._messages:
            self._upload = self._messages[-1][1]
            self._head_bytes = 0
            if not upload.is_eof():  # what followed was neither more of it nor its end
                self._give_up(BadRequest("the framing of the request's body is broken"))
        elif in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self._give_up(_head_too_large())

    def _give_up(self, error: ProxyError) -> None:
        """The client can be understood no more: say so, unless it is being answered, and close."""
        forward = self.forward
        if forward is not None:
            answering = forward.began
            forward.client_left()
            if answering:
                self.force_close()
                return
        self.refuse(error)
        self._deaf = True
        transport = self.transport
        if transport is not None and transport.can_write_eof():
            transport.write_eof()  # closing at once would reset, and take the answer back
        self.loop.call_later(_LINGER_S, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone: the upstream learns it before anything else happens."""
        self._listener.disconnected(self)
        if self.forward is not None:
            self.forward.client_left()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not keep up."""
        super().pause_writing()
        if self.forward is not None:
            self.forward.pause()

    def resume_writing(self) -> None:
        """The client keeps up again."""
        super().resume_writing()
        if self.forward is not None:
            self.forward.resume()

    def refuse(self, error: ProxyError, *, method: str | None = None) -> Done:
        """Answer with a problem and close. `method` is None if the request could not be read."""
        head_only = method == "HEAD"
        self._listener.refused(error, method)
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(problem_response(error, head_only=head_only))
        return CLOSE

    def handle_error(  # type: ignore[override]
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> Done:
        """What aiohttp could not parse: an answer, no traceback."""
        if isinstance(exc, LineTooLong):
            return self.refuse(_head_too_large())
        if status == 400:
            return self.refuse(BadRequest("the request is not valid HTTP/1.1"))
        return self.refuse(ProxyError("the proxy failed on this request"))


class _Server(web.Server):
    """aiohttp's low-level server, with our connections."""

    def __init__(self, listener: Listener, handler: Any, **settings: Any) -> None:
        super().__init__(handler, handler_cancellation=True, **settings)
        self._listener = listener

    def keep_alive_for(self, seconds: float) -> None:
        """How long idle connections live that are made from now on."""
        self._kwargs["keepalive_timeout"] = seconds

    def __call__(self) -> ClientConnection:
        return ClientConnection(self._listener, self, loop=self._loop, **self._kwargs)


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
        self._factory: _Server | None = None
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
        kept = {id(route.origin) for route in routes.values()}
        self._let_go = [origin for origin in self._let_go if origin.open_connections]
        for route in self._routes.values():
            if id(route.origin) not in kept:
                route.origin.let_go()
                self._let_go.append(route.origin)
        self._settings, self._services, self._routes = settings, services, routes
        if self._factory is not None:
            self._factory.keep_alive_for(_longest_keepalive_s(settings))

    async def start(self) -> Endpoint:
        """Listen, and say where. Raises ListenFailed."""
        loop = asyncio.get_running_loop()
        self._factory = _Server(
            self,
            self._serve,
            loop=loop,
            logger=_quiet,
            access_log=None,
            keepalive_timeout=_longest_keepalive_s(self._settings),
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEAD_BYTES,  # fields are not counted, their bytes are
            auto_decompress=False,
        )
        tls = self._settings.tls
        try:
            self._tls = None if tls is None else server_context(tls)
        except (OSError, ssl.SSLError) as error:
            raise ListenFailed(f"cannot use the certificate (tls): {error.strerror or error}") from error
        await self._listen()
        return self._endpoint

    async def _listen(self) -> None:
        assert self._factory is not None
        endpoint = self._endpoint
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._factory, endpoint.host, endpoint.port, ssl=self._tls, backlog=1024, reuse_address=True
            )
        except OSError as error:
            raise ListenFailed(f"cannot listen on {endpoint} (listen): {error.strerror or error}") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        self._endpoint = Endpoint(str(host), int(port))

    # ---- connections

    def connected(self, connection: ClientConnection) -> None:
        """A client has connected; above `max_connections` it is told so and closed."""
        limit = self._settings.limits.max_connections
        if len(self._connections) >= limit or self._draining:
            error = Draining("the proxy is stopping") if self._draining else OverLimit(
                f"{limit} connections are open (limits.max_connections)"
            )  # fmt: skip
            connection.refuse(error)
            connection.force_close()
            return
        self._connections.add(connection)
        transport = connection.transport
        raw = None if transport is None else transport.get_extra_info("socket")
        keepalive_s = min((u.timeouts.tcp_keepalive_s or _NEVER_S) for u in self._settings.upstreams)
        if raw is not None and raw.family != socket.AF_UNIX and keepalive_s < _NEVER_S:
            interval = max(1, int(keepalive_s / _KEEPALIVE_PROBES))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(keepalive_s)))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)

    def disconnected(self, connection: ClientConnection) -> None:
        """A client's connection is gone."""
        self._connections.discard(connection)

    def refused(self, error: ProxyError, method: str | None) -> None:
        """A request was not taken."""
        self._services.reporter.refused(error, method, self._services.clock())

    async def _serve(self, request: web.BaseRequest) -> Done:
        connection, method = request.protocol, request.method
        assert isinstance(connection, ClientConnection)
        if connection.transport is None:
            return CLOSE
        if self._draining:
            return connection.refuse(Draining("the proxy is stopping"), method=method)
        if _head_bytes(request) > MAX_HEAD_BYTES:
            return connection.refuse(_head_too_large(), method=method)
        if method == "CONNECT":
            return connection.refuse(BadRequest("this is no tunnel: CONNECT is not served"), method=method)
        target = request.raw_path.encode("utf-8", "surrogateescape")
        upstream = find_upstream(self._settings, request.headers.get("Host"), target)
        if upstream is None:
            error = NoUpstream("no configured upstream takes this path and Host")
            return connection.refuse(error, method=method)
        forward = connection.forward = Forward(
            self._services, self._routes[upstream.name], connection, request
        )
        if self._winding_down:
            forward.close_after()
        try:
            done = await forward.run()
        finally:
            connection.forward = None
        return CLOSE if self._draining else done

    # ---- the end

    def _open(self) -> list[Forward]:
        return [c.forward for c in self._connections if c.forward is not None]

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
            if connection.forward is None:
                connection.close()
            else:
                connection.forward.close_after()
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
        for connection in list(self._connections):
            connection.force_close()
        with contextlib.suppress(TimeoutError):  # the process ends, whatever an upstream does
            async with asyncio.timeout(_CLOSE_S):
                origins = [*(route.origin for route in self._routes.values()), *self._let_go]
                await asyncio.gather(*(origin.close() for origin in origins))


def _head_too_large() -> HeaderTooLarge:
    return HeaderTooLarge(f"the request head is larger than {MAX_HEAD_BYTES} bytes")


def _head_bytes(request: web.BaseRequest) -> int:
    """The size of a head that came in one read, too fast for the count of what is incomplete."""
    size = len(request.raw_path)
    for name, value in request.raw_headers:
        size += len(name) + len(value) + 4
    return size


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
