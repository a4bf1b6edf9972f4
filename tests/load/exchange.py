"""One request and its answer, from both ends: what the upstream sent is what the client must get, byte for byte.

Whoever plays an exchange drives both ends, and waits for what must arrive.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

PATIENCE_S = 30.0
"""How long anything may take that must happen; two busy cores are slow without being wrong."""
_COMMENT = re.compile(rb": forkwatch verdict=[^\r\n]*\n")
SSE_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache, no-transform\r\n"
    b"X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\n"
)


_CATCH_UP_S = 1.0
"""On a busy machine this process may be the one that is late: what has come must be read first."""


class Disrupted(Exception):
    """The exchange ended before what was awaited came."""


class Stuck(Exception):
    """What was awaited neither came nor became impossible."""


class End(Enum):
    """How an answer ended for the client."""

    CLEAN = "clean"
    # as its framing promised
    ABORT = "abort"
    # before its promised end
    LEFT = "left"
    # the client closed


class Side(Protocol):
    """A connection that carries an exchange, at either end."""

    transport: asyncio.Transport
    exchange: Exchange | None

    def reset(self) -> None:
        """Break off by RST."""


class Exchange:
    """One request and its answer, from both ends."""

    __slots__ = ("_waiter", "altered", "body", "client", "end", "gone", "headers", "number", "owed", "received",
                 "request", "sent", "status", "upstream")  # fmt: skip

    def __init__(self, number: int, *, keep: bool) -> None:
        """`keep`: other bytes than the upstream's may come, so the body is kept and not compared."""
        self.number = number
        self.client: Side | None = None
        self.upstream: Side | None = None
        self.request: dict[bytes, bytes] = {}
        """The fields of the request as the upstream got it, names in lower case."""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.sent = self.received = 0
        """Bytes of the body."""
        self.owed = bytearray()
        """Sent and not received yet; while the body is kept, all that was sent."""
        self.body: bytearray | None = bytearray() if keep else None
        self.altered = ""
        """What came that was not sent, if anything did."""
        self.end: End | None = None
        self.gone = False
        """The upstream's side has seen its connection end."""
        self._waiter: asyncio.Future[None] | None = None

    # ---- what happens

    def changed(self) -> None:
        """Something has; whoever waits looks again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def got(self, data: bytes) -> None:
        """The client has read this of the body."""
        self.received += len(data)
        if self.body is not None:
            self.body += data
        elif self.owed.startswith(data):
            del self.owed[: len(data)]
        elif not self.altered:
            self.altered = f"owed {bytes(self.owed[:120])!r}, got {data[:120]!r}"
        self.changed()

    def ended(self, how: End) -> None:
        """The client's side is over."""
        if self.end is None:
            self.end = how
            self.client = None
            self.changed()

    async def until(self, holds: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Return once it is so. Disrupted if the answer has ended and it is not, Stuck if it never is."""
        deadline = time.monotonic() + patience_s
        while not holds():
            if self.end is not None:
                raise Disrupted(f"{what}: {self.state()}")
            if not await self._changes(deadline) and not holds():
                raise Stuck(f"{what}: {self.state()}")

    async def over(self, patience_s: float = PATIENCE_S) -> End:
        """Wait for the end, whichever it is."""
        deadline = time.monotonic() + patience_s
        while self.end is None:
            if not await self._changes(deadline) and self.end is None:
                raise Stuck(f"the end: {self.state()}")
        return self.end

    async def unheard(self, patience_s: float = PATIENCE_S) -> None:
        """Wait until the upstream has seen that the client, or the proxy, is gone."""
        deadline = time.monotonic() + patience_s
        while not self.gone:
            if not await self._changes(deadline) and not self.gone:
                raise Stuck(f"the upstream sees that nobody listens: {self.state()}")

    async def _changes(self, deadline: float) -> bool:
        """Wait for a change; False if none came in time, not even while this process caught up."""
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                await waiter
        except TimeoutError:
            await asyncio.sleep(_CATCH_UP_S)
            return False
        finally:
            self._waiter = None
        return True

    def state(self) -> str:
        """What is known of it, for a report."""
        return (
            f"status {self.status}, end {self.end}, sent {self.sent}, received {self.received}, "
            f"arrived {self.upstream is not None}"
        )

    # ---- the upstream's side

    async def arrived(self) -> Exchange:
        """Wait until the upstream has the request."""
        await self.until(lambda: self.upstream is not None, "the request arrives")
        return self

    def _write(self, data: bytes) -> None:
        if self.upstream is not None and self.upstream.exchange is self and not self.gone:
            self.upstream.transport.write(data)

    def respond(self, status: int, fields: dict[str, str], body: bytes = b"") -> None:
        """The upstream answers in full."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        length = "" if status == 204 else f"Content-Length: {len(body)}\r\n"
        self._promise(body)
        self._write(f"HTTP/1.1 {status} X\r\n{lines}{length}\r\n".encode() + body)

    def open_stream(self, fields: str = "") -> None:
        """The upstream begins an event stream."""
        self._write(SSE_HEAD + fields.encode() + b"\r\n")

    def send(self, data: bytes, cut: int = 0) -> None:
        """The upstream sends a part of the stream, in two chunks if `cut` is within it."""
        self._promise(data)
        parts = (data[:cut], data[cut:]) if 0 < cut < len(data) else (data,)
        self._write(b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts))

    def _promise(self, data: bytes) -> None:
        self.sent += len(data)
        self.owed += data

    def compare(self) -> None:
        """What may be added has been: what was kept must be what was sent, and so from here on."""
        if self.body is not None:
            if not self.altered and (plain := self.plain()) != self.owed:
                self.altered = f"sent {bytes(self.owed[-200:])!r}, got {plain[-200:]!r}"
            self.body = None
            self.owed.clear()

    def plain(self) -> bytes:
        """The kept body without the proxy's comment lines."""
        return _COMMENT.sub(b"", self.body or b"")

    def finish(self) -> None:
        """The upstream ends the stream as it should."""
        self._write(b"0\r\n\r\n")

    def reset(self) -> None:
        """The upstream's connection breaks, by RST."""
        if self.upstream is not None and self.upstream.exchange is self:
            self.upstream.reset()

    # ---- the client's side

    async def head(self) -> int:
        """The status, once the head is here."""
        await self.until(lambda: self.status != 0, "the head")
        return self.status

    async def delivered(self) -> None:
        """Wait until the client has everything that was sent."""
        if self.body is None:
            await self.until(lambda: self.received >= self.sent, "everything that was sent")
        else:
            await self.until(lambda: len(self.plain()) >= self.sent, "everything that was sent")

    def leave(self) -> None:
        """The client closes."""
        client = self.client
        self.ended(End.LEFT)
        if client is not None:
            client.exchange = None
            client.transport.close()
