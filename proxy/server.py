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

    def refuse(self, error: ProxyError, *, head_only: bool = False) -> Done:
        """Answer with a problem and close."""
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

    def __call__(self) -> ClientConnection:
        return ClientConnection(self._listener, self, loop=self._loop, **self._kwargs)


class Listener:
    """The listener for clients, from `start` to `stop`."""

    def __init__(self, settings: Settings, services: Services, metrics: Metrics) -> None:
        self._settings = settings
        self._services = services
        self._routes = {u.name: _route(settings, u, services, metrics) for u in settings.upstreams}
        self._connections: set[ClientConnection] = set()
        self._server: asyncio.Server | None = None
        self._draining = False
        keepalives = [u.timeouts.client_keepalive_s for u in settings.upstreams]
        self._keepalive_s = max(_NEVER_S if s is None else s for s in keepalives)
        self._tcp_keepalive_s = min((u.timeouts.tcp_keepalive_s or _NEVER_S) for u in settings.upstreams)

    async def start(self) -> tuple[str, int]:
        """Listen, and say where. Raises ListenFailed."""
        loop = asyncio.get_running_loop()
        server = _Server(
            self,
            self._serve,
            loop=loop,
            logger=_quiet,
            access_log=None,
            keepalive_timeout=self._keepalive_s,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            max_headers=MAX_HEAD_BYTES,  # fields are not counted, their bytes are
            auto_decompress=False,
        )
        endpoint, tls = self._settings.listen, self._settings.tls
        try:
            context = None if tls is None else server_context(tls)
            self._server = await loop.create_server(
                server, endpoint.host, endpoint.port, ssl=context, backlog=1024, reuse_address=True
            )
        except (OSError, ssl.SSLError) as error:
            raise ListenFailed(f"cannot listen on {endpoint} (listen): {error.strerror or error}") from error
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

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
        if raw is not None and raw.family != socket.AF_UNIX and self._tcp_keepalive_s < _NEVER_S:
            interval = max(1, int(self._tcp_keepalive_s / _KEEPALIVE_PROBES))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, int(self._tcp_keepalive_s)))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)

    def disconnected(self, connection: ClientConnection) -> None:
        """A client's connection is gone."""
        self._connections.discard(connection)

    async def _serve(self, request: web.BaseRequest) -> Done:
        connection = request.protocol
        assert isinstance(connection, ClientConnection)
        head_only = request.method == "HEAD"
        if connection.transport is None:
            return CLOSE
        if self._draining:
            return connection.refuse(Draining("the proxy is stopping"), head_only=head_only)
        if _head_bytes(request) > MAX_HEAD_BYTES:
            return connection.refuse(_head_too_large(), head_only=head_only)
        if request.method == "CONNECT":
            return connection.refuse(BadRequest("this is no tunnel: CONNECT is not served"))
        target = request.raw_path.encode("utf-8", "surrogateescape")
        upstream = find_upstream(self._settings, request.headers.get("Host"), target)
        if upstream is None:
            error = NoUpstream("no configured upstream takes this path and Host")
            return connection.refuse(error, head_only=head_only)
        forward = connection.forward = Forward(
            self._services, self._routes[upstream.name], connection, request
        )
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
                await asyncio.gather(*(route.origin.close() for route in self._routes.values()))


def _head_too_large() -> HeaderTooLarge:
    return HeaderTooLarge(f"the request head is larger than {MAX_HEAD_BYTES} bytes")


def _head_bytes(request: web.BaseRequest) -> int:
    """The size of a head that came in one read, too fast for the count of what is incomplete."""
    size = len(request.raw_path)
    for name, value in request.raw_headers:
        size += len(name) + len(value) + 4
    return size


def _route(settings: Settings, upstream: UpstreamSettings, services: Services, metrics: Metrics) -> Route:
    address = Address.parse(upstream.url)
    timeouts = upstream.timeouts
    rewrite = address.authority if upstream.host_header == "rewrite" else None
    scheme = b"http" if settings.tls is None else b"https"
    path = upstream.match.path.encode("ascii")
    return Route(
        settings=upstream,
        origin=Origin(
            address,
            connect_timeout_s=timeouts.connect_s,
            headers_timeout_s=timeouts.headers_s,
            body_idle_timeout_s=timeouts.body_idle_s,
            keepalive_s=_NEVER_S if timeouts.upstream_keepalive_s is None else timeouts.upstream_keepalive_s,
            tcp_keepalive_s=timeouts.tcp_keepalive_s,
            ssl_context=client_context(upstream.tls) if address.scheme == "https" else None,
        ),
        state=services.ledger.upstreams[upstream.name],
        counters=metrics.upstream(upstream.name),
        forwarding=Forwarding(rewrite, upstream.forwarded == "append", scheme),
        replica_header=upstream.replica_header.lower().encode() if upstream.replica_header else None,
        prefix=path if upstream.strip_prefix and path != b"/" else b"",
        cors=CorsMemory(),
    )
