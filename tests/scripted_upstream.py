"""A raw HTTP/1.1 upstream on loopback that does what a test tells it, and a sink that records."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field

import pytest
import uvloop

from proxy.errors import ProxyError
from proxy.upstream import Call, Headers, Origin, ResponseHead
from proxy.upstream.address import Address

PATIENCE_S = 5.0
"""How long a test waits for what must happen; nothing takes nearly as long."""

OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"Content-Length: 0\r\n\r\n"

GONE_S = 0.1
"""How soon the upstream must see that a call was cancelled."""


def on_both_loops(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    """Run an async test on asyncio's event loop and on uvloop."""

    @functools.wraps(test)
    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], **fixtures: object) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(4 * PATIENCE_S):
                await test(**fixtures)

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(bounded())

    signature = inspect.signature(test)
    loop = inspect.Parameter("loop_factory", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    del run.__dict__["__wrapped__"]  # pytest would take the test for a coroutine function
    run.__dict__["__signature__"] = signature.replace(parameters=[loop, *signature.parameters.values()])
    loops = [asyncio.new_event_loop, uvloop.new_event_loop]
    both: Callable[..., None] = pytest.mark.parametrize("loop_factory", loops, ids=["asyncio", "uvloop"])(run)
    return both


@dataclass(slots=True)
class Peer:
    """The upstream's end of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> bytes:
        """The next request head, raw."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readuntil(b"\r\n\r\n")

    async def body(self, size: int) -> bytes:
        """The next `size` bytes."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readexactly(size)

    def send(self, data: bytes) -> None:
        """Send `data`."""
        self.writer.write(data)

    def end(self) -> None:
        """Send EOF after what was sent."""
        self.writer.close()

    def reset(self) -> None:
        """Send RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def gone(self, within_s: float = GONE_S) -> bytes:
        """Wait until the proxy has closed; returns what it sent before."""
        rest = b""
        async with asyncio.timeout(within_s):
            # A reset, or a pipe that broke under what was sent to it.
            with contextlib.suppress(ConnectionError):
                while piece := await self.reader.read(65536):
                    rest += piece
        return rest


def abort(writer: asyncio.StreamWriter) -> None:
    """Close at once. Python 3.11.2 cannot say that of a TLS connection that is over already."""
    with contextlib.suppress(AttributeError):
        writer.transport.abort()


@dataclass(slots=True)
class Upstream:
    """A listening upstream; every connection waits in `accepted` for its turn."""

    server: asyncio.Server
    peers: list[Peer]
    queue: asyncio.Queue[Peer]

    @property
    def address(self) -> Address:
        """Where it listens."""
        name = self.server.sockets[0].getsockname()
        if isinstance(name, str):
            return Address.parse(f"unix:{name}")
        return Address("http", name[0], name[1])

    async def accepted(self) -> Peer:
        """The next new connection."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.queue.get()


@contextlib.asynccontextmanager
async def listening(
    host: str = "127.0.0.1", *, path: str | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Upstream]:
    """An upstream on a free port of `host`, or on the Unix socket `path`; all connections end with it."""
    peers: list[Peer] = []
    queue: asyncio.Queue[Peer] = asyncio.Queue()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(Peer(reader, writer))
        queue.put_nowait(peers[-1])

    if path is not None:
        server = await asyncio.start_unix_server(connected, path)
    else:
        server = await asyncio.start_server(connected, host, 0, ssl=tls)
    try:
        yield Upstream(server, peers, queue)
    finally:
        server.close()
        for peer in peers:
            abort(peer.writer)
        for peer in peers:
            with contextlib.suppress(OSError):
                await peer.writer.wait_closed()


@contextlib.asynccontextmanager
async def origin(
    address: Address,
    *,
    connect_timeout_s: float | None = PATIENCE_S,
    headers_timeout_s: float | None = None,
    body_idle_timeout_s: float | None = None,
    keepalive_s: float = 4.0,
    tcp_keepalive_s: float | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[Origin]:
    """An origin with the defaults of the configuration, closed at the end."""
    made = Origin(
        address,
        connect_timeout_s=connect_timeout_s,
        headers_timeout_s=headers_timeout_s,
        body_idle_timeout_s=body_idle_timeout_s,
        keepalive_s=keepalive_s,
        tcp_keepalive_s=tcp_keepalive_s,
        ssl_context=ssl_context,
    )
    try:
        yield made
    finally:
        await made.close()
        assert (made.open_connections, made.idle_connections) == (0, 0)


@contextlib.asynccontextmanager
async def served(
    *,
    headers_timeout_s: float | None = None,
    body_idle_timeout_s: float | None = None,
    keepalive_s: float = 4.0,
) -> AsyncIterator[tuple[Upstream, Origin]]:
    """A scripted upstream on TCP, and an origin in front of it."""
    async with (
        listening() as upstream,
        origin(
            upstream.address,
            headers_timeout_s=headers_timeout_s,
            body_idle_timeout_s=body_idle_timeout_s,
            keepalive_s=keepalive_s,
        ) as to,
    ):
        yield upstream, to


@dataclass(slots=True)
class Recorder:
    """A sink that keeps all it hears, and fails the test if it hears anything after the end."""

    interim: list[ResponseHead] = field(default_factory=list)
    head: ResponseHead | None = None
    reads: list[bytes] = field(default_factory=list)
    error: ProxyError | None = None
    ended: bool = False
    uploads: list[str] = field(default_factory=list)
    on_informational: Callable[[], None] | None = None
    on_received: Callable[[], None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    heard_after_end: list[str] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        """All body bytes so far."""
        return b"".join(self.reads)

    def informational(self, head: ResponseHead) -> None:
        """Record."""
        self._heard("informational")
        self.interim.append(head)
        if self.on_informational is not None:
            self.on_informational()

    def received(self, head: ResponseHead | None, body: bytes, ended: bool) -> None:
        """Record."""
        self._heard("received")
        assert (head is None) is (self.head is not None)
        assert head is not None or body or ended
        self.head = self.head or head
        self.reads.append(body)
        self.ended = ended
        if self.on_received is not None:
            self.on_received()

    def failed(self, error: ProxyError) -> None:
        """Record."""
        self._heard("failed")
        self.error = error

    def pause_upload(self) -> None:
        """Record."""
        self._heard("pause")
        self.uploads.append("pause")

    def resume_upload(self) -> None:
        """Record."""
        self._heard("resume")
        self.uploads.append("resume")

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until `met`."""
        async with asyncio.timeout(PATIENCE_S):
            while not met():
                self.changed.clear()
                await self.changed.wait()

    async def over(self) -> Recorder:
        """Wait for the end, whichever it is, and for what must not follow it."""
        await self.until(lambda: self.ended or self.error is not None)
        await turns()
        assert self.heard_after_end == []
        return self

    def _heard(self, what: str) -> None:
        if self.ended or self.error is not None:
            self.heard_after_end.append(what)
        self.changed.set()


async def turns(count: int = 5) -> None:
    """Let the event loop go round, so that whatever is ready happens."""
    for _ in range(count):
        await asyncio.sleep(0)


def disturb(peer: Peer, how: str) -> None:
    """The upstream's end does `how`: end, reset, or bytes that were not asked for."""
    if how == "end":
        peer.end()
    elif how == "reset":
        peer.reset()
    else:
        peer.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")


async def exchange(upstream: Upstream, to: Origin, peer: Peer | None = None, answer: bytes = EMPTY) -> Peer:
    """One request and its `answer`, on the connection of `peer` or on a new one."""
    sink = Recorder()
    get(to, sink)
    peer = peer or await upstream.accepted()
    await peer.head()
    peer.send(answer)
    await sink.over()
    assert sink.ended
    return peer


def get(
    origin: Origin,
    sink: Recorder,
    *,
    method: bytes = b"GET",
    headers: Headers | None = None,
    body: bytes | None = None,
    streaming: bool = False,
) -> Call:
    """A request for `/mcp` with a Host field and `headers`."""
    fields = [(b"Host", b"up"), *(headers or [])]
    return origin.request(method, b"/mcp", fields, sink, body=body, streaming=streaming)
