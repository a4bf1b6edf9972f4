"""The two ends of the wire in one process: all clients of the proxy, and the upstream behind it.

A request carries its exchange's number, so that the upstream's side finds the client's.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import time
from typing import cast

import httptools

from tests.load.exchange import End, Exchange

NUMBER = "X-Exchange"
_POOLED_S = 20.0
"""An idle client connection older than this is not used again: the proxy may be closing it."""
_LINGER_ZERO = struct.pack("ii", 1, 0)


class ClientEnd(asyncio.Protocol):
    """A client's connection, for one exchange after another."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.exchange: Exchange | None = None
        self.idle_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[bytes, bytes] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of an answer."""
        if self.exchange is None:
            return  # left meanwhile
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self.exchange is not None:
                self.exchange.altered = f"no HTTP: {error!r} at {data[:80]!r}"
            self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head."""
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head."""
        if self.exchange is not None:
            self.exchange.status = self._parser.get_status_code()
            self.exchange.headers = self._headers
            self.exchange.changed()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self.exchange is not None:
            self.exchange.got(body)

    def on_message_complete(self) -> None:
        """The end of an answer: the connection may serve another one."""
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            return
        exchange.ended(End.CLEAN)
        if self._parser.should_keep_alive():
            self.idle_since = time.monotonic()
            self._begin()
            self._wire.pool.append(self)
        else:
            self.transport.close()

    def reset(self) -> None:
        """Break off by RST."""
        _reset(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy has closed, or broken off."""
        if self in self._wire.pool:
            self._wire.pool.remove(self)
        if self.exchange is not None:
            self.exchange.ended(End.ABORT)
            self.exchange = None


def _reset(transport: asyncio.Transport) -> None:
    sock = transport.get_extra_info("socket")
    if sock is not None and not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
    transport.abort()


class UpstreamEnd(asyncio.Protocol):
    """The upstream's end of one connection of the proxy's."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._parser = httptools.HttpRequestParser(self)
        self._headers: dict[bytes, bytes] = {}
        self.exchange: Exchange | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self.transport = cast(asyncio.Transport, transport)
        self._wire.upstreams.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request."""
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field."""
        self._headers[name.lower()] = value

    def on_message_complete(self) -> None:
        """The whole request: its exchange goes on here."""
        headers, self._headers = self._headers, {}
        exchange = self._wire.exchanges.pop(int(headers.get(NUMBER.lower().encode(), b"-1")), None)
        if exchange is None:
            self._wire.unasked += 1
            self.transport.abort()
            return
        self.exchange = exchange
        exchange.request = headers
        exchange.upstream = self
        exchange.changed()

    def connection_lost(self, exc: Exception | None) -> None:
        """The proxy has closed it, or we did."""
        self._wire.upstreams.discard(self)
        if self.exchange is not None:
            self.exchange.gone = True
            self.exchange.changed()

    def reset(self) -> None:
        """Break off by RST."""
        if self.exchange is not None:
            self.exchange.gone = True
        _reset(self.transport)


class Wire:
    """All clients, and the upstream, which can be killed and come back on its port."""

    def __init__(self) -> None:
        self.pool: list[ClientEnd] = []
        self.upstreams: set[UpstreamEnd] = set()
        self.exchanges: dict[int, Exchange] = {}
        """Sent, and not arrived yet."""
        self.unasked = 0
        """Requests that came and nobody made."""
        self.kills = 0
        self._numbers = itertools.count(1)
        self._proxy_port = self.port = 0
        self._accepting: set[asyncio.Task[tuple[asyncio.Transport, UpstreamEnd]]] = set()

    def listen(self) -> int:
        """Start the upstream; its port.

        It accepts all that wait at once: a uvloop server takes one connection a turn of its loop, and with
        thousands of streams ready in each turn the newcomers would wait for minutes.
        """
        self._listening = socket.create_server(("127.0.0.1", self.port), backlog=4096)
        self._listening.setblocking(False)
        self.port = self._listening.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._listening, self._accept)
        return self.port

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:  # nobody waits, or whoever did is gone
                return
            sock.setblocking(False)
            task = loop.create_task(loop.connect_accepted_socket(lambda: UpstreamEnd(self), sock))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    def _deafen(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()

    def serve_through(self, port: int) -> None:
        """Where the proxy listens."""
        self._proxy_port = port

    async def request(
        self, method: str, target: str, fields: dict[str, str], body: bytes = b"", *, keep: bool = False
    ) -> Exchange:
        """Send a request to the proxy."""
        exchange = Exchange(next(self._numbers), keep=keep)
        client = self._pooled() or await self._connect()
        exchange.client, client.exchange = client, exchange
        self.exchanges[exchange.number] = exchange
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        length = f"Content-Length: {len(body)}\r\n" if method == "POST" else ""
        head = (
            f"{method} {target} HTTP/1.1\r\nHost: load\r\n{NUMBER}: {exchange.number}\r\n{lines}{length}\r\n"
        )
        client.transport.write(head.encode() + body)
        return exchange

    def _pooled(self) -> ClientEnd | None:
        while self.pool:
            client = self.pool.pop()
            if not client.transport.is_closing() and time.monotonic() - client.idle_since < _POOLED_S:
                return client
            client.transport.close()
        return None

    async def _connect(self) -> ClientEnd:
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: ClientEnd(self), "127.0.0.1", self._proxy_port)
        return client

    def kill(self) -> None:
        """The upstream dies as by `kill -9`: every connection is reset, nobody listens."""
        self.kills += 1
        self._deafen()
        for end in list(self.upstreams):
            end.reset()

    def close(self) -> None:
        """The end."""
        self._deafen()
        for end in list(self.upstreams):
            end.transport.abort()
        for client in self.pool[:]:
            client.transport.abort()
