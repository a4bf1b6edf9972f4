"""One request under way, as its caller steers it, and what its caller is told.

Every call ends exactly once: by `received` with `ended`, by `failed`, or silently by its own `cancel`. After
that the sink hears nothing and every method does nothing.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Protocol

from proxy.errors import ProxyError
from proxy.upstream.wire import LAST_CHUNK, ResponseHead, encode_chunk

BACKLOG_BYTES = 64 * 1024
"""Upload kept while connecting before the sink is asked to pause: the high-water mark of a transport."""


class Sink(Protocol):
    """What a call tells its caller, from the event loop and never from inside `Origin.request`.

    `pause_upload` alone may also come from inside `Call.send`.
    """

    def informational(self, head: ResponseHead) -> None:
        """A 1xx response, in order, before the final head."""

    def received(self, head: ResponseHead | None, body: bytes, ended: bool) -> None:
        """What one read from the upstream brought.

        `head` is the final head, once, on the first of these. `body` is every body byte of the read, without
        chunk framing. `ended`: the message is complete; no other call follows.
        """

    def failed(self, error: ProxyError) -> None:
        """The exchange failed, after everything that did arrive was handed over; no other call follows."""

    def pause_upload(self) -> None:
        """Bytes given to `Call.send` are piling up: hold back. More is accepted all the same."""

    def resume_upload(self) -> None:
        """They have drained."""


class Carrier(Protocol):
    """The connection that carries a call: `proxy.upstream.connection.Connection`."""

    peer: str | None

    def write(self, data: bytes) -> None:
        """Send more of the request."""

    def pause_reading(self) -> None:
        """Stop reading the response."""

    def resume_reading(self) -> None:
        """Read the response again."""

    def abort(self) -> None:
        """Close at once, without a word to the sink."""


class CallState(Enum):
    """Where one request is."""

    CONNECTING = "connecting"
    # no connection yet; head and upload wait in the call
    RUNNING = "running"
    # a connection carries it; the head, at least, has been written
    OVER = "over"
    # ended, failed or cancelled; the sink hears no more and every method does nothing


# On Python 3.11 an enum's member costs as much as a call each time it is looked up on its class.
CONNECTING, RUNNING, OVER = CallState.CONNECTING, CallState.RUNNING, CallState.OVER


class Call:
    """One request under way, as its caller steers it. Made by `Origin.request` only."""

    __slots__ = (
        "_backlog",
        "_backlog_size",
        "_chunked",
        "_connecting",
        "_connection",
        "_pause_on_start",
        "bodiless",
        "peer",
        "sink",
        "started",
        "state",
        "upload_paused",
        "uploading",
    )

    def __init__(self, sink: Sink, head: bytes, *, bodiless: bool, chunked: bool, started: float) -> None:
        """`bodiless`: the method is HEAD. `chunked`: how `send` frames. `started`: in loop time."""
        self.sink = sink
        self.state = CONNECTING
        self.bodiless = bodiless
        self.started = started
        self.uploading = True
        """Whether the body's end is still to come."""
        self.peer: str | None = None
        """The upstream's address once connected, such as `127.0.0.1:9000`; it stays after the end."""
        self._chunked = chunked
        self._backlog = [head]
        self._backlog_size = 0
        self._connecting: asyncio.Task[None] | None = None
        self._connection: Carrier | None = None
        self._pause_on_start = False
        self.upload_paused = False
        """What the sink was last told."""

    def begin(self, body: bytes | None, *, complete: bool) -> None:
        """What is known of the body at the start; `complete`: that is all of it."""
        if body:
            self._write(encode_chunk(body) if self._chunked else body)
        if complete:
            self.finish()

    def send(self, data: bytes) -> None:
        """Upload more of the body. Nothing happens once the call is over.

        Raises RuntimeError after `finish`.
        """
        if not data or self.state is OVER:
            return
        if not self.uploading:
            raise RuntimeError("the request body is already complete")
        self._write(encode_chunk(data) if self._chunked else data)
        if self._backlog_size > BACKLOG_BYTES:
            self.show_upload(paused=True)

    def finish(self) -> None:
        """The body is complete. Nothing happens once the call is over, or the second time."""
        if self.uploading and self.state is not OVER:
            self.uploading = False
            if self._chunked:
                self._write(LAST_CHUNK)

    def pause_reading(self) -> None:
        """Stop reading from the upstream; at most one more read is delivered."""
        if self._connection is not None:
            self._connection.pause_reading()
        else:
            self._pause_on_start = True

    def resume_reading(self) -> None:
        """Read from the upstream again."""
        if self._connection is not None:
            self._connection.resume_reading()
        else:
            self._pause_on_start = False

    def cancel(self) -> None:
        """Give up: the upstream connection is closed at once, the sink is not called again."""
        connection, connecting = self._connection, self._connecting
        self.over()
        if connection is not None:
            connection.abort()
        elif connecting is not None:
            connecting.cancel()

    def connect_with(self, task: asyncio.Task[None]) -> None:
        """`task` makes the connection; `cancel` stops it."""
        self._connecting = task

    def attach(self, connection: Carrier) -> bytes:
        """`connection` carries the call from now on; returns all there is to write so far."""
        self.state = RUNNING
        self.peer = connection.peer
        self._connection = connection
        self._connecting = None
        backlog, self._backlog, self._backlog_size = self._backlog, [], 0
        if self._pause_on_start:
            connection.pause_reading()
        return backlog[0] if len(backlog) == 1 else b"".join(backlog)

    def over(self) -> None:
        """Detach: the end has come, whichever it was."""
        self.state = OVER
        self._connection = self._connecting = None
        self._backlog, self._backlog_size = [], 0

    def fail(self, error: ProxyError) -> None:
        """End with `error`, unless the call is over."""
        if self.state is not OVER:
            self.over()
            self.sink.failed(error)

    def show_upload(self, *, paused: bool) -> None:
        """Tell the sink whether to hold its upload back, if that is news and still matters."""
        if paused is not self.upload_paused and self.uploading and self.state is not OVER:
            self.upload_paused = paused
            if paused:
                self.sink.pause_upload()
            else:
                self.sink.resume_upload()

    def _write(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.write(data)
        else:
            self._backlog.append(data)
            self._backlog_size += len(data)
