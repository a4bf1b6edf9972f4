"""One upstream socket, and the one exchange it carries at a time.

Everything here is synchronous and driven by the event loop: a read becomes at most one `Sink.received`, with
no future, task, lock or timer per read. A request is written once and never again: whatever happens to the
connection after that reaches the sink as `failed`.
"""

from __future__ import annotations

import asyncio
import os
import select
import ssl
from dataclasses import dataclass
from typing import Protocol, cast

from proxy.errors import (
    ProxyError,
    UpstreamIdle,
    UpstreamReset,
    UpstreamTimeout,
    UpstreamTruncated,
    UpstreamUnreachable,
)
from proxy.upstream.call import OVER, Call
from proxy.upstream.wire import BODY, COMPLETE, HEAD, ResponseReader

_SALVAGE_BYTES = 256 * 1024
# As much as either event loop takes in one read.

_READ_BYTES = 128 * 1024
_read_buffer = memoryview(bytearray(_READ_BYTES))
# Shared: what a read brought is handed on before the next one. Its size bounds how long one stream of tiny
# events keeps all others waiting.

CLOCK_STEP_S = 0.001
# uvloop's time goes in whole milliseconds: a timer may call, and an age be, a little short.


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a connection waits, in seconds; None is for ever."""

    headers_s: float | None
    """From the start of the request to the final response head."""
    body_idle_s: float | None
    """Between two reads of a body; time in which the caller paused reading does not count."""


class Owner(Protocol):
    """Who keeps the connections; told of every change that matters to a pool."""

    def opened(self, connection: Connection, transport: asyncio.Transport) -> None:
        """The socket is connected. Sets `Connection.fd` and `Connection.peer`."""

    def released(self, connection: Connection) -> None:
        """An exchange ended cleanly and the connection may carry another."""

    def retired(self, connection: Connection) -> None:
        """The connection may carry nothing more. May be said twice."""

    def lost(self, connection: Connection) -> None:
        """The socket is closed."""


class Connection(asyncio.BufferedProtocol):
    """A socket to the upstream. Idle while it carries no call; bytes or EOF that come then close it."""

    __slots__ = (
        "_call",
        "_last_read",
        "_limits",
        "_loop",
        "_owner",
        "_reader",
        "_reading_paused",
        "_timer",
        "_transport",
        "_write_paused",
        "fd",
        "idle_since",
        "peer",
        "unread",
    )

    def __init__(self, owner: Owner, limits: Limits, loop: asyncio.AbstractEventLoop) -> None:
        """Not connected yet; `loop` is the one that will call it."""
        self._owner = owner
        self._limits = limits
        self._loop = loop
        self._reader = ResponseReader()
        self._transport: asyncio.Transport
        self._call: Call | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_read = 0.0
        self._reading_paused = False
        self._write_paused = False
        self.fd = -1
        self.idle_since = 0.0
        """Loop time since when it carries no call."""
        self.peer: str | None = None
        self.unread = select.poll()
        """Asks the kernel whether something has come that was not read."""

    # What the pool asks.

    @property
    def closing(self) -> bool:
        """Whether the socket is closed or about to be."""
        return self._transport.is_closing()

    def start(self, call: Call) -> None:
        """Write `call`'s request and read its response. On an open connection the sink is not called yet."""
        if call.state is OVER:
            self.abort()
            return
        if self._transport.is_closing():
            # With TLS the end may come in the same read as the handshake's; `connection_lost` may be over.
            call.fail(UpstreamReset("the upstream closed the connection as soon as it was made"))
            return
        self._reader.begin(bodiless=call.bodiless)
        # The call is set after the write: a transport that wants a pause says so from inside it.
        self._transport.write(call.attach(self))
        self._call = call
        if self._write_paused or call.upload_paused:
            self._loop.call_soon(self._show_upload)
        if self._limits.headers_s is not None:
            self._arm(call.started + self._limits.headers_s)

    def abort(self) -> None:
        """Close at once, dropping what is not yet sent. The sink is not called."""
        self._call = None
        self._owner.retired(self)
        self._transport.abort()

    def close(self) -> None:
        """Close an idle connection the polite way."""
        self._owner.retired(self)
        self._transport.close()

    def fail(self, error: ProxyError) -> None:
        """Close at once and tell the call, if there is one."""
        call = self._call
        self.abort()
        if call is not None:
            call.fail(error)

    # What the call asks.

    def write(self, data: bytes) -> None:
        """Send more of the request body; dropped if the connection is closing, as the sink will hear."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def pause_reading(self) -> None:
        """Leave what the upstream sends in the kernel, so that the upstream is held back."""
        if not self._reading_paused and not self._transport.is_closing():
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._reading_paused:
            self._reading_paused = False
            self._last_read = self._loop.time()
            if not self._transport.is_closing():
                self._transport.resume_reading()

    # What the event loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected, with TLS if any; `start` follows."""
        self._transport = cast(asyncio.Transport, transport)
        self._owner.opened(self, self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next read goes."""
        return _read_buffer

    def buffer_updated(self, nbytes: int) -> None:
        """One read. After a full one libuv would read on, up to 32 times, and let nobody else have a turn."""
        self.data_received(bytes(_read_buffer[:nbytes]))
        if nbytes == _READ_BYTES and not self._reading_paused and not self._transport.is_closing():
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if not self._reading_paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """One read: at most one call of `Sink.received`."""
        call = self._call
        if call is None:
            self.abort()  # nobody asked: an answer to nothing must not become the answer to something
            return
        reader = self._reader
        body = reader.feed(data)
        if self._limits.body_idle_s is not None:
            self._last_read = self._loop.time()
        if reader.head is None and reader.phase is BODY and reader.error is None:
            if body:
                call.sink.received(None, body, False)
            return
        self._turn(call, body)

    def eof_received(self) -> None:
        """The upstream sends no more. Returning None lets the transport close."""
        self._owner.retired(self)
        self._peer_ended(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed, by either side."""
        self._owner.lost(self)
        if exc is not None:
            self._salvage()
        self._peer_ended(exc)
        if self._timer is not None:
            self._timer.cancel()
        self._reader.close()

    def pause_writing(self) -> None:
        """The transport's buffer is over its high-water mark."""
        self._write_paused = True
        self._show_upload()

    def resume_writing(self) -> None:
        """The transport's buffer is under its low-water mark."""
        self._write_paused = False
        self._show_upload()

    # The rest of an exchange, after the common case of `data_received`.

    def _turn(self, call: Call, body: bytes) -> None:
        """A read that completed a head, a message or an error."""
        reader = self._reader
        while reader.interim and self._call is call:
            call.sink.informational(reader.interim.pop(0))
        if self._call is not call:
            return  # cancelled by its sink
        head, reader.head = reader.head, None
        ended = reader.phase is COMPLETE
        if ended:
            self._complete(call)
        elif head is not None and self._limits.body_idle_s is not None:
            self._arm(self._last_read + self._limits.body_idle_s)
        if head is not None or body or ended:
            call.sink.received(head, body, ended)
        if reader.error is not None and self._call is call:
            self.fail(reader.error)

    def _complete(self, call: Call) -> None:
        """Part from `call`; keep the connection only if both sides have said all they had to say."""
        sent = not call.uploading and self._transport.get_write_buffer_size() == 0
        self._call = None
        call.over()
        if not sent:
            # An early answer. What remains of the upload was not wanted, and flushing it may never end.
            self.abort()
        elif self._reader.reusable and not self._transport.is_closing():
            self.resume_reading()
            self._owner.released(self)
        else:
            self.close()

    def _peer_ended(self, exc: Exception | None) -> None:
        """EOF (None) or a lost connection: an end only where the framing says so."""
        call, reader = self._call, self._reader
        if call is None:
            return
        error: ProxyError
        if reader.phase is HEAD and isinstance(exc, ssl.SSLError):
            # Since TLS 1.3 a server refuses the client's certificate after the handshake.
            text = f"TLS with {self.peer} failed: {exc.reason or exc}"
            error = UpstreamUnreachable(text, reason="tls")
        elif reader.phase is HEAD:
            error = UpstreamReset("the upstream closed the connection before its response head was complete")
        elif exc is not None:
            error = UpstreamReset("the upstream reset the connection within a response body")
        elif reader.until_eof:
            self._call = None
            call.over()
            self.abort()
            call.sink.received(None, b"", True)
            return
        else:
            error = UpstreamTruncated("the upstream closed the connection within a response body")
        error.__cause__ = exc
        self.fail(error)

    def _salvage(self) -> None:
        """Take what the upstream sent before a reset.

        An upload into a connection the upstream has answered and closed fails in the write, and the event
        loop then reads no more: the answer that explains the failure would be lost in the kernel. The socket
        is still open here. TLS records cannot be read this way.
        """
        if self._call is None or self._transport.get_extra_info("sslcontext") is not None:
            return
        try:
            data = os.read(self.fd, _SALVAGE_BYTES)
        except OSError:
            return
        if data:
            self.data_received(data)

    def _show_upload(self) -> None:
        if self._call is not None:
            self._call.show_upload(paused=self._write_paused)

    def _arm(self, due: float) -> None:
        """Look at the limits at loop time `due`: one timer a connection, left to run out, not one a read."""
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._look)

    def _look(self) -> None:
        self._timer = None
        call = self._call
        if call is None:
            return
        now = self._loop.time()
        if self._reading_paused:
            self._last_read = now
        in_head = self._reader.phase is HEAD
        limit_s = self._limits.headers_s if in_head else self._limits.body_idle_s
        if limit_s is None:
            return
        due = (call.started if in_head else self._last_read) + limit_s
        if now + CLOCK_STEP_S < due:
            self._arm(due)
        elif in_head:
            text = f"the upstream sent no response head within {limit_s:g} s"
            self.fail(UpstreamTimeout(text, reason="header_timeout"))
        else:
            self.fail(UpstreamIdle(f"the upstream sent nothing of its response body for {limit_s:g} s"))
