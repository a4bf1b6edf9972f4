"""The two scripted ends of the wire: an upstream that does as it is told, and one exchange.

A step ends when the other end has read what it sent, so that no result depends on a race.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

STEP_TIMEOUT_S = 5.0
LEAVE_TIMEOUT_S = 1.0
LINGER_ZERO = b"\x01\0\0\0\0\0\0\0"  # a close that resets
MAX_LINE = 2**24

Headers = list[tuple[str, str]]


class Arrival(NamedTuple):
    """One request as the upstream got it, and the way back."""

    request: str
    headers: Headers
    body: bytes
    writer: asyncio.StreamWriter
    gone: asyncio.Event


async def read_head(reader: asyncio.StreamReader, prefix: bytes = b"") -> tuple[str, Headers]:
    """The first line and the headers, as they came."""
    raw = (prefix + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = raw[:-4].split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, [(name.strip(), value.strip()) for name, _, value in pairs]


async def read_chunk(reader: asyncio.StreamReader) -> bytes:
    """One chunk of a body, empty at its end."""
    size = int((await reader.readline()).split(b";")[0], 16)
    return (await reader.readexactly(size + 2))[:-2]


def one(headers: Headers, name: str) -> str | None:
    """The first value of a header, None without it."""
    return next((value for found, value in headers if found.lower() == name.lower()), None)


class ScriptedUpstream:
    """A server that answers nothing by itself: each request waits for the scenario to say what happens."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[Arrival] = asyncio.Queue()

    async def start(self) -> int:
        """Listen on a loopback port and return it."""
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=MAX_LINE)
        port: int = self.server.sockets[0].getsockname()[1]
        return port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone, prefix = asyncio.Event(), b""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                first, headers = await read_head(reader, prefix)
                gone = asyncio.Event()
                await self.waiting.put(
                    Arrival(first, headers, await self._body(reader, headers), writer, gone)
                )
                if not (prefix := await reader.read(1)):
                    break
        gone.set()
        writer.close()

    async def _body(self, reader: asyncio.StreamReader, headers: Headers) -> bytes:
        body = b""
        if length := one(headers, "Content-Length"):
            body = await reader.readexactly(int(length))
        elif one(headers, "Transfer-Encoding"):
            while chunk := await read_chunk(reader):
                body += chunk
        return body


@dataclass
class Exchange:
    """One request of the client and, once it arrived, the upstream's side of it."""

    path: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int | None = None
    headers: Headers = field(default_factory=list)
    body: bytes = b""
    ended: str | None = None
    """How the body ended for the client: `clean`, `abort`, or None while it is open."""
    sent: bytes = b""
    """What the upstream sent as body."""
    arrived: Arrival | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.task = asyncio.create_task(self._read())

    @property
    def upstream(self) -> Arrival:
        """The upstream's side; AssertionError if the request did not get there."""
        assert self.arrived is not None, "the request did not reach the upstream"
        return self.arrived

    async def respond(self, status: int, headers: Headers, body: bytes | None = None) -> None:
        """The upstream answers: a head, and a whole body unless it is None."""
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers)]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        head = "".join(line + "\r\n" for line in [*lines, ""]).encode("latin-1")
        self.upstream.writer.write(head + (body or b""))
        await self.upstream.writer.drain()
        self.sent += body or b""

    async def answer(self, status: int, headers: Headers, body: bytes | None = b"") -> None:
        """The upstream answers in full, and the client has read it."""
        await self.respond(status, headers, body)
        await self.until(lambda: self.ended is not None, f"the answer {status}")

    async def stream(self, *frames: bytes, status: int = 200, extra: Headers | None = None) -> Exchange:
        """The upstream opens an event stream and sends frames; the client has read each before the next."""
        headers = [("Content-Type", "text/event-stream"), ("Cache-Control", "no-cache, no-transform")]
        await self.respond(status, [*headers, ("Transfer-Encoding", "chunked"), *(extra or [])])
        await self.until(lambda: self.status is not None, "the response head at once")
        return await self.send(*frames)

    async def offer(self, *frames: bytes) -> None:
        """The upstream sends frames, whether or not the client gets them."""
        for frame in frames:
            with contextlib.suppress(ConnectionError):
                self.upstream.writer.write(b"%x\r\n%s\r\n" % (len(frame), frame))
                await self.upstream.writer.drain()
            self.sent += frame

    async def send(self, *frames: bytes) -> Exchange:
        """The upstream sends frames one by one, the client has read each before the next."""
        for frame in frames:
            await self.offer(frame)
            await self.until(lambda: len(self.plain()) >= len(self.sent), f"the client reads {frame[:40]!r}")
        return self

    async def end(self) -> None:
        """The upstream ends the body as it promised, and the client has seen the end."""
        with contextlib.suppress(ConnectionError):
            self.upstream.writer.write(b"0\r\n\r\n")
            await self.upstream.writer.drain()
        await self.until(lambda: self.ended is not None, "the end")

    async def abort(self, wait: bool = True) -> None:
        """The upstream's connection is reset, and the client has seen it unless told not to wait."""
        transport = self.upstream.writer.transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
        transport.abort()
        if wait:
            await self.until(lambda: self.ended is not None, "the abort")

    async def leave(self) -> None:
        """The client closes; the upstream must see it at once."""
        self.task.cancel()
        self.writer.close()
        try:
            await asyncio.wait_for(self.upstream.gone.wait(), LEAVE_TIMEOUT_S)
        except TimeoutError:
            raise AssertionError("the upstream connection stayed open after the client left") from None

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Return once the client's side is so; AssertionError that says what never came."""

        async def wait() -> None:
            while not holds():
                self.changed.clear()
                await self.changed.wait()

        try:
            await asyncio.wait_for(wait(), STEP_TIMEOUT_S)
        except TimeoutError:
            state = f"status {self.status}, ended {self.ended}, body ends {self.body[-120:]!r}"
            raise AssertionError(f"never came: {what} ({state})") from None

    def plain(self) -> bytes:
        """What the client got, without the proxy's comment lines."""
        return re.sub(rb": forkwatch [^\r\n]*(?:\r\n|\n|\r)", b"", self.body)

    def events(self) -> list[dict[str, Any]]:
        """The JSON payloads of the frames that the client got."""
        found = []
        for frame in re.split(rb"\r?\n\r?\n", self.body):
            data = b"\n".join(line[5:].strip() for line in frame.splitlines() if line.startswith(b"data:"))
            if data:
                found.append(json.loads(data))
        return found

    async def _read(self) -> None:
        try:
            first, self.headers = await read_head(self.reader)
            self.status = int(first.split()[1])
            self.changed.set()
            await self._read_body()
            self.ended = "clean"
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            self.ended = "abort"
        finally:
            self.changed.set()

    async def _read_body(self) -> None:
        if one(self.headers, "Transfer-Encoding"):
            while chunk := await read_chunk(self.reader):
                self.body += chunk
                self.changed.set()
        elif (length := one(self.headers, "Content-Length")) is not None:
            self.body += await self.reader.readexactly(int(length))
        elif self.status not in (202, 204, 304):
            while part := await self.reader.read(65536):
                self.body += part
                self.changed.set()
