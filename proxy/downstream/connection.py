"""A client's connection: requests are read one after another, and each is answered before the next begins.

llhttp reads them strictly: what two readers could understand differently (both framings, a folded
field, a bare line feed) is refused, never passed on. Nothing here knows what a request asks for.
There is no task for a connection, and none for a request whose body has come with its head.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol, cast

import httptools

from proxy.downstream.request import Request, Upload
from proxy.engine.headers import Fields
from proxy.errors import BadRequest, HeaderTooLarge, ProxyError
from proxy.problem import problem_response

MAX_HEAD_BYTES = 64 * 1024
"""The largest request head: its target and its fields."""
MAX_WAITING = 64
"""Requests that may wait for the answer to an earlier one; what follows is not read. MCP clients send none."""
LINGER_S = 2.0
"""How long a client that is told off while it sends may go on, so that it can read what it was told."""


class Exchange(Protocol):
    """What carries one request, as its connection sees it."""

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may live on after the answer."""

    @property
    def began(self) -> bool:
        """Whether a part of the answer has been written."""

    def pause(self) -> None:
        """The client does not keep up."""

    def resume(self) -> None:
        """The client keeps up again."""

    def client_left(self) -> None:
        """The client is gone."""


class Owner(Protocol):
    """Who listens, and serves what is read. Its methods are called in turn, never at once."""

    def connected(self, connection: ClientConnection) -> None:
        """A client has connected."""

    def disconnected(self, connection: ClientConnection) -> None:
        """A client is gone."""

    def idles(self, connection: ClientConnection) -> None:
        """Nothing is under way on this connection: it may be given up after a while."""

    def begins(self, connection: ClientConnection, request: Request) -> Exchange | None:
        """Serve this request; None if it was refused."""

    def refused(self, error: ProxyError, method: str | None) -> None:
        """A request was answered with a problem; its method is None if it could not be read."""


class ClientConnection(asyncio.Protocol):
    """One client, from `connection_made` to `connection_lost`."""

    __slots__ = ("_came", "_counted", "_deaf", "_fields", "_full", "_head_bytes", "_in_head", "_offered", "_owner",
                 "_parser", "_reading", "_standing_in", "_target", "_upload", "_waiting", "exchange", "loop", "peer",
                 "transport")  # fmt: skip

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self.loop = loop
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        """What is under way."""
        self.peer: bytes | None = None
        """The client's address, None if it has none."""
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._fields: Fields = []
        self._in_head = True
        self._head_bytes = 0
        """What has come of a head that is not complete, or of a body's framing since its last byte of data."""
        self._came = 0
        """What has come since the read in which the present head began: it is no larger than that."""
        self._counted = False
        """A head was completed in the present read."""
        self._upload = Upload(self._flow)
        """The body of the last request whose head is complete."""
        self._waiting: deque[Request] = deque()
        self._offered = False
        """The head offers another protocol."""
        self._standing_in = False
        """What is being read is a head of ours, in the place of one with such an offer."""
        self._full = False
        """A body waits to be taken."""
        self._reading = True
        self._deaf = False
        """Nothing the client sends matters any more."""

    # ---- what happens to the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none of its class
        address = transport.get_extra_info("peername")
        if isinstance(address, tuple):
            self.peer = str(address[0]).encode("ascii", "replace")
        self._upload.complete = True
        self._owner.connected(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of the client: heads, bodies, or what is neither."""
        if self._deaf:
            return
        self._head_bytes += len(data)
        self._came += len(data)
        self._counted = False
        try:
            self._read(data)
        except httptools.HttpParserError as error:
            self._unreadable(error)
        if self._counted:
            self._came = len(data)  # the next head may have begun in it
        if self._head_bytes > MAX_HEAD_BYTES and not self._deaf:
            head = HeaderTooLarge(f"the request head is larger than {MAX_HEAD_BYTES} bytes")
            framing = BadRequest("the framing of the request's body is too large")
            self._give_up(head if self._in_head else framing)
        self._next()

    def _read(self, data: bytes) -> None:
        """Let llhttp read on, also beyond a head that offers another protocol, which it takes for the end."""
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._read_on_in_http()
            else:
                return

    def _read_on_in_http(self) -> None:
        """The offer is not taken up: what follows is the request's body, by the framing of its head."""
        framing = (b"content-length", b"transfer-encoding")
        fields = [b"%b: %b\r\n" % field for field in self._fields if field[0].lower() in framing]
        self._parser = httptools.HttpRequestParser(self)
        self._standing_in = True
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(fields))

    def _unreadable(self, error: httptools.HttpParserError) -> None:
        """What came is no HTTP: say so, unless an answer is under way that is still worth its end."""
        if self._upload.complete and (self.exchange is not None or self._waiting):
            self._deaf = True  # the client gets the answers to what it asked before, and no more
        elif not self._upload.complete:
            self._give_up(BadRequest("the framing of the request's body is broken"))
        else:
            self._give_up(BadRequest(f"the request is not valid HTTP/1.1: {error}"))

    def pause_writing(self) -> None:
        """The client does not keep up."""
        if self.exchange is not None:
            self.exchange.pause()

    def resume_writing(self) -> None:
        """The client keeps up again."""
        if self.exchange is not None:
            self.exchange.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone: the upstream learns it before anything else happens."""
        self.transport = None
        self._deaf = True
        self._waiting.clear()
        self._owner.disconnected(self)
        if self.exchange is not None:
            self.exchange.client_left()
        # Both refer back here: nothing of a connection may wait for the garbage collector.
        del self._parser, self._upload

    # ---- what llhttp reads

    def on_message_begin(self) -> None:
        """A head begins."""
        if not self._standing_in:
            self._target = b""
            self._fields = []

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        if not self._standing_in:
            self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of the head; after the body it is a trailer, which goes nowhere."""
        if self._in_head and not self._standing_in:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is complete."""
        if self._standing_in:
            self._standing_in = False
            return
        if len(self._waiting) > MAX_WAITING:
            self._deaf = True
        if self._deaf:
            return
        parser = self._parser
        self._counted = True
        self._in_head = False
        self._head_bytes = 0
        self._upload = Upload(self._flow)
        request = Request(
            parser.get_method().decode("ascii"),
            self._target,
            parser.get_http_version(),
            self._fields,
            self._upload,
            size=self._came if self._came <= MAX_HEAD_BYTES else self._size(),
            keep_alive=parser.should_keep_alive(),
        )
        self._offered = parser.should_upgrade()
        self._waiting.append(request)

    def _size(self) -> int:
        return len(self._target) + sum(len(name) + len(value) + 4 for name, value in self._fields)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._head_bytes = 0
        if not self._deaf:
            self._upload.feed(body)

    def on_message_complete(self) -> None:
        """The body is complete; what follows is another head."""
        if self._offered:  # llhttp says so before the body
            self._offered = False
            return
        self._in_head = True
        self._head_bytes = 0
        self._upload.finish()

    # ---- one request after another

    def _next(self) -> None:
        """Begin the next request, if none is under way."""
        waiting = self._waiting
        if self.exchange is None and waiting and self.transport is not None:
            self.exchange = self._owner.begins(self, waiting.popleft())
        self._read_or_not()

    def answered(self, exchange: Exchange) -> None:
        """The answer is complete, or was broken off."""
        if exchange is not self.exchange:
            return
        self.exchange = None
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if not exchange.keep_alive or (self._deaf and not self._waiting):
            self.close()
        elif self._waiting:
            self._next()
        elif self._upload.complete:
            self._owner.idles(self)
        else:
            self.close()  # answered before all was sent: whoever sends it need not go on

    def _flow(self, wanted: bool) -> None:
        """A body wants more of the client, or has enough."""
        self._full = not wanted
        self._read_or_not()

    def _read_or_not(self) -> None:
        """Read on from the client unless a body waits: only who reads notices that it has left."""
        transport, wanted = self.transport, self._deaf or not self._full
        if wanted is self._reading or transport is None or transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    # ---- the end

    def refuse(self, error: ProxyError, method: str | None) -> None:
        """Answer with a problem and close. `method` is None if the request could not be read."""
        self._owner.refused(error, method)
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(problem_response(error, head_only=method == "HEAD"))
        self.close()

    def _give_up(self, error: ProxyError) -> None:
        """The client can be understood no more: say so, unless it is being answered, and close."""
        exchange, self.exchange = self.exchange, None
        self._waiting.clear()
        if exchange is not None:
            answering = exchange.began
            exchange.client_left()
            if answering:
                self.force_close()
                return
        self._deaf = True
        self.refuse(error, None)

    def close(self) -> None:
        """Close once everything is written. A client that still sends may finish, so that it can read it all."""
        self._waiting.clear()
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if self._upload.complete and not self._deaf and not self._head_bytes:
            transport.close()
            return
        # To close with bytes unread would reset the connection, and take the answer back.
        self._deaf = True
        self._read_or_not()
        if transport.can_write_eof():
            transport.write_eof()
        self.loop.call_later(LINGER_S, self.force_close)

    def force_close(self) -> None:
        """Close now, whatever the client still sends."""
        if self.transport is not None:
            self.transport.close()
