"""The client leg of the proxy: one `Origin` for each configured upstream, with its pool of connections.

Invariants: a request is never sent twice, whatever its method, so a connection that dies under it is the
caller's to hear of; a connection is reused only if nothing has arrived on it since its last answer; the
fields of a request are written as given. Connections are made without limit; the caller limits requests.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl

from proxy.errors import Draining, ProxyError, UpstreamTimeout, UpstreamUnreachable
from proxy.sockets import keep_alive
from proxy.upstream.address import Address
from proxy.upstream.call import Call, Sink
from proxy.upstream.connection import CLOCK_STEP_S, Connection, Limits
from proxy.upstream.wire import Headers, encode_head, is_chunked

_TLS_SHUTDOWN_S = 1.0
# How long an unused connection waits for the peer's half of a TLS goodbye; the event loop's default is 30 s.


class Origin:
    """One upstream: makes connections, keeps idle ones for the next request, and closes them.

    Bound to the event loop of its first `request`.
    """

    def __init__(
        self,
        address: Address,
        *,
        connect_timeout_s: float | None,
        headers_timeout_s: float | None,
        body_idle_timeout_s: float | None,
        keepalive_s: float,
        tcp_keepalive_s: float | None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Timeouts in seconds, None is never; the header timeout runs from the start of a request.

        `keepalive_s` is how long an idle connection may wait for its next request, 0 for not at all.
        `ssl_context` is for https only, the system's trust store without one.
        """
        self.address = address
        self._connect_timeout_s = connect_timeout_s
        self._limits = Limits(headers_timeout_s, body_idle_timeout_s)
        self._keepalive_s = keepalive_s
        self._tcp_keepalive_s = tcp_keepalive_s
        self._ssl = (ssl_context or ssl.create_default_context()) if address.scheme == "https" else None
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # ordered: the longest idle first
        self._connecting: dict[asyncio.Task[None], Call] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        # kept, since asking for it costs a system call on some Python versions
        self._all_lost: asyncio.Future[None] | None = None

    @property
    def open_connections(self) -> int:
        """Connections with a request on them or without."""
        return len(self._open)

    @property
    def idle_connections(self) -> int:
        """Connections waiting for a request."""
        return len(self._idle)

    def request(
        self,
        method: bytes,
        target: bytes,
        headers: Headers,
        sink: Sink,
        *,
        body: bytes | None,
        streaming: bool,
    ) -> Call:
        """Send a request at once, on an idle connection or a new one; the sink hears what becomes of it.

        `headers` are written as given, Host and framing included. `body` is what is known of the body, in
        the same write as the head; with `streaming` more follows through the call. The body is framed in
        chunks if the fields say `Transfer-Encoding: chunked`, raw otherwise. If the answer is complete before
        the upload is, the call is over and its connection closed. Raises ValueError for a field with a line
        break, RuntimeError once closed.
        """
        if self._closed:
            raise RuntimeError("the origin is closed")
        loop = self._loop = self._loop or asyncio.get_running_loop()
        now = loop.time()
        head = encode_head(method, target, headers)
        call = Call(sink, head, bodiless=method == b"HEAD", chunked=is_chunked(headers), started=now)
        call.begin(body, complete=not streaming)
        connection = self._take_idle(now)
        if connection is not None:
            connection.start(call)
            return call
        task = loop.create_task(self._connect(call, loop))
        call.connect_with(task)
        self._connecting[task] = call
        task.add_done_callback(self._connecting.pop)
        return call

    def let_go(self) -> None:
        """There will be no more requests: each connection closes with its answer, idle ones now."""
        self._keepalive_s = 0.0
        for connection in list(self._idle):
            connection.close()

    async def close(self) -> None:
        """Close every connection; calls still running fail with `Draining`. Returns when all are closed."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        error = Draining("the proxy is shutting down")
        connecting = dict(self._connecting)
        for task, call in connecting.items():
            task.cancel()
            call.fail(error)
        for connection in list(self._open):
            connection.fail(error)
        if connecting:
            await asyncio.wait(connecting)
        if self._open:
            self._all_lost = asyncio.get_running_loop().create_future()
            await self._all_lost

    # The owner's side of a connection.

    def opened(self, connection: Connection, transport: asyncio.Transport) -> None:
        """Count it, and set what the socket needs."""
        self._open.add(connection)
        sock = transport.get_extra_info("socket")
        connection.fd = sock.fileno()
        connection.unread.register(connection.fd, select.POLLIN)
        if self.address.scheme == "unix":
            connection.peer = str(self.address)
            return
        peer = transport.get_extra_info("peername")
        connection.peer = (
            (f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}") if peer else None
        )
        if self._tcp_keepalive_s is not None:
            # One socket object for all its options: uvloop would make one for each.
            whole = socket.socket(sock.family, sock.type, sock.proto, connection.fd)
            try:
                keep_alive(whole, self._tcp_keepalive_s)
            finally:
                whole.detach()

    def released(self, connection: Connection) -> None:
        """Keep it for the next request."""
        loop = self._loop
        assert loop is not None  # a connection is made by a request
        connection.idle_since = loop.time()
        self._idle[connection] = None
        if self._sweeper is None:
            self._sweeper = loop.call_later(self._keepalive_s, self._sweep, loop)

    def retired(self, connection: Connection) -> None:
        """Give it no request any more."""
        self._idle.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        """Forget it."""
        self._idle.pop(connection, None)
        self._open.discard(connection)
        if not self._open and self._all_lost is not None and not self._all_lost.done():
            self._all_lost.set_result(None)

    def _take_idle(self, now: float) -> Connection | None:
        """The idle connection used last, if it is fresh and silent. Writes nothing to find out."""
        while self._idle:
            connection, _ = self._idle.popitem()
            age = now - connection.idle_since + CLOCK_STEP_S
            if age < self._keepalive_s and self._silent(connection):
                return connection
            connection.abort()
        return None

    def _silent(self, connection: Connection) -> bool:
        """Whether no byte, EOF or error waits in the kernel that the event loop has yet to see."""
        return not connection.closing and not connection.unread.poll(0)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what has been idle too long: one timer for the whole pool."""
        self._sweeper = None
        horizon = loop.time() - self._keepalive_s
        for connection in [c for c in self._idle if c.idle_since <= horizon]:
            connection.close()
        if self._idle:
            oldest = next(iter(self._idle))
            self._sweeper = loop.call_at(oldest.idle_since + self._keepalive_s, self._sweep, loop)

    async def _connect(self, call: Call, loop: asyncio.AbstractEventLoop) -> None:
        try:
            connection = await self._dial(loop)
        except ProxyError as error:
            call.fail(error)
        else:
            connection.start(call)

    async def _dial(self, loop: asyncio.AbstractEventLoop) -> Connection:
        """A new connection. The one place where what can go wrong in making it gets our names."""
        limit_s, reason = self._connect_limit()
        try:
            async with asyncio.timeout(limit_s):
                return await self._open_socket(loop)
        except TimeoutError as error:
            limit = f" within {limit_s:g} s" if limit_s is not None else ""
            text = f"no connection to {self.address}{limit}"
            raise UpstreamTimeout(text, reason=reason) from error
        except socket.gaierror as error:
            text = f"the name {self.address.host} cannot be resolved: {error.strerror}"
            raise UpstreamUnreachable(text, reason="dns") from error
        except ssl.SSLError as error:
            text = f"TLS with {self.address} failed: {error.reason or error}"
            raise UpstreamUnreachable(text, reason="tls") from error
        except (ConnectionResetError, ConnectionAbortedError) as error:
            # Once a connection was accepted only the TLS handshake is left to lose it.
            reason = "tls" if self._ssl is not None else "connect"
            raise UpstreamUnreachable(f"{self.address} hung up while connecting", reason=reason) from error
        except OSError as error:
            # The event loops put their own words, with the address again, into `strerror`.
            why = os.strerror(error.errno) if error.errno else str(error)
            raise UpstreamUnreachable(f"cannot connect to {self.address}: {why}") from error

    def _connect_limit(self) -> tuple[float | None, str]:
        """How long connecting may take, and whose limit that is: the head's runs from the start as well."""
        connect_s, headers_s = self._connect_timeout_s, self._limits.headers_s
        if headers_s is not None and (connect_s is None or headers_s < connect_s):
            return headers_s, "header_timeout"
        return connect_s, "connect_timeout"

    async def _open_socket(self, loop: asyncio.AbstractEventLoop) -> Connection:
        def protocol() -> Connection:
            return Connection(self, self._limits, loop)

        address = self.address
        if address.scheme == "unix":
            return (await loop.create_unix_connection(protocol, address.path))[1]
        if self._ssl is None:
            return (await loop.create_connection(protocol, address.host, address.port))[1]
        _, connection = await loop.create_connection(
            protocol,
            address.host,
            address.port,
            ssl=self._ssl,
            server_hostname=address.host,
            ssl_shutdown_timeout=_TLS_SHUTDOWN_S,
        )
        return connection
