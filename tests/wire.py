"""A raw HTTP/1.1 client, and a proxy process between it and a scripted upstream.

Nothing here knows more of HTTP than the framing of one answer: what a test sends is on the wire as written,
and what it gets is as it came. How an answer ended is part of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from tests.forkwatch_process import Forkwatch
from tests.scripted_upstream import PATIENCE_S, Peer, Upstream, abort, listening

Fields = list[tuple[bytes, bytes]]

BUFFER_BYTES = 4 * 1024 * 1024
SSE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"


class End(Enum):
    """How an answer's body ended for the client."""

    CLEAN = "clean"
    # as its framing promised; of a body that ends with its connection: EOF
    CUT = "cut"
    # EOF before the promised end
    RESET = "reset"
    # RST


@dataclass(slots=True)
class Head:
    """A request's or response's head as it came: the first line, and fields in order with their case."""

    line: bytes
    fields: Fields

    @classmethod
    def parse(cls, raw: bytes) -> Head:
        """A head with its blank line."""
        line, *rest = raw.removesuffix(b"\r\n\r\n").split(b"\r\n")
        pairs = (text.partition(b":") for text in rest)
        return cls(line, [(name, value.strip(b" \t")) for name, _, value in pairs])

    @property
    def status(self) -> int:
        """Of a response."""
        return int(self.line.split()[1])

    def all(self, name: bytes) -> list[bytes]:
        """The values of a field, in order."""
        return [value for found, value in self.fields if found.lower() == name.lower()]

    def one(self, name: bytes) -> bytes | None:
        """The only value of a field, None without it."""
        values = self.all(name)
        assert len(values) <= 1, f"{name!r} came {len(values)} times"
        return values[0] if values else None


@dataclass(slots=True)
class Response:
    """A whole answer."""

    head: Head
    body: bytes
    end: End

    @property
    def status(self) -> int:
        """Its status."""
        return self.head.status


@dataclass(slots=True)
class Client:
    """A client's connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    interim: list[Head] = field(default_factory=list)
    """The 1xx heads of the last answer."""

    @classmethod
    async def connect(
        cls,
        port: int,
        host: str = "127.0.0.1",
        *,
        tls: ssl.SSLContext | None = None,
        limit: int = BUFFER_BYTES,
        receive_buffer: int | None = None,
    ) -> Client:
        """A connection; `limit` bounds what it reads ahead, `receive_buffer` what the kernel does."""
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock.setblocking(False)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, (host, port))
        except OSError:
            sock.close()
            raise
        name = host if tls is not None else None
        reader, writer = await asyncio.open_connection(sock=sock, ssl=tls, server_hostname=name, limit=limit)
        return cls(reader, writer)

    def send(self, data: bytes) -> None:
        """Send `data`."""
        self.writer.write(data)

    def request(self, line: str, *fields: str, body: bytes = b"", host: str = "proxy.test") -> None:
        """Send `METHOD TARGET` with a Host and `fields`, `Name: value` each, and the start of a body."""
        head = "\r\n".join([f"{line} HTTP/1.1", f"Host: {host}", *fields, "", ""])
        self.send(head.encode("latin-1") + body)

    async def head(self) -> Head:
        """The next head that is not interim; the interim ones before it are in `interim`."""
        self.interim = []
        async with asyncio.timeout(PATIENCE_S):
            while True:
                head = Head.parse(await self.reader.readuntil(b"\r\n\r\n"))
                if head.status >= 200:
                    return head
                self.interim.append(head)

    async def exactly(self, size: int) -> bytes:
        """The next `size` bytes as they are on the wire."""
        async with asyncio.timeout(PATIENCE_S):
            return await self.reader.readexactly(size)

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body, b"" for the last."""
        async with asyncio.timeout(PATIENCE_S):
            size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def body(self, head: Head, *, of_head: bool = False) -> tuple[bytes, End]:
        """The rest of the answer that `head` began; `of_head`: it answers HEAD."""
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(4 * PATIENCE_S):
                await self._read_body(head, pieces, of_head)
        except asyncio.IncompleteReadError as error:
            return b"".join([*pieces, error.partial]), End.CUT
        except ConnectionResetError:
            return b"".join(pieces), End.RESET
        return b"".join(pieces), End.CLEAN

    async def _read_body(self, head: Head, pieces: list[bytes], of_head: bool) -> None:
        if of_head or head.status in (204, 304):
            return
        length = head.one(b"Content-Length")
        if head.one(b"Transfer-Encoding") is not None:
            while True:
                size = int((await self.reader.readuntil(b"\r\n")).split(b";")[0], 16)
                data = await self.reader.readexactly(size)
                pieces.append(data)
                assert await self.reader.readexactly(2) == b"\r\n"
                if not size:
                    return
        elif length is not None:
            pieces.append(await self.reader.readexactly(int(length)))
        else:
            while piece := await self.reader.read(65536):
                pieces.append(piece)

    async def response(self, *, of_head: bool = False) -> Response:
        """The next whole answer."""
        head = await self.head()
        return Response(head, *await self.body(head, of_head=of_head))

    async def closed(self) -> bytes:
        """Wait until the proxy has closed; returns what it sent before."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""

    def leave(self) -> None:
        """Close."""
        self.writer.close()

    def reset(self) -> None:
        """Send RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass(slots=True)
class Lab:
    """A proxy process, the upstream behind it, and the clients of one test."""

    proxy: Forkwatch
    upstream: Upstream
    clients: list[Client] = field(default_factory=list)

    async def client(self, **options: Any) -> Client:
        """A new client connection to the proxy, closed after the test."""
        self.clients.append(await Client.connect(self.proxy.port, **options))
        return self.clients[-1]

    async def exchange(
        self, line: str, *fields: str, answer: bytes, body: bytes = b""
    ) -> tuple[Head, Response]:
        """One request on connections of its own: its head as the upstream got it, and the answer."""
        client = await self.client()
        client.request(line, *fields, body=body)
        peer = await self.upstream.accepted()
        head = Head.parse(await peer.head())
        peer.send(answer)
        response = await client.response(of_head=line.startswith("HEAD "))
        await hang_up(peer)
        return head, response

    async def opened(self, line: str, *fields: str, answer: bytes = SSE) -> tuple[Client, Peer, Head]:
        """A request whose answer has begun with `answer`: both ends, and the head the client got."""
        client = await self.client()
        client.request(line, *fields)
        peer = await self.upstream.accepted()
        await peer.head()
        peer.send(answer)
        return client, peer, await client.head()

    @contextlib.asynccontextmanager
    async def for_one_test(self) -> AsyncIterator[Lab]:
        """The lab, and nothing of the test's left in it afterwards."""
        try:
            yield self
        finally:
            for client in self.clients:
                abort(client.writer)
            self.clients.clear()
            for peer in self.upstream.peers:
                abort(peer.writer)
            self.upstream.peers.clear()
            while not self.upstream.queue.empty():
                self.upstream.queue.get_nowait()


async def hang_up(peer: Peer) -> None:
    """The upstream closes an idle connection, so that the proxy's next request comes on another."""
    peer.end()
    async with asyncio.timeout(PATIENCE_S):
        await peer.writer.wait_closed()


def entry(name: str, upstream: Upstream | str, **settings: Any) -> dict[str, Any]:
    """The configuration of an upstream for the path /NAME; no connection to it is kept unless told."""
    url = upstream if isinstance(upstream, str) else str(upstream.address)
    timeouts = {"upstream_keepalive": "0.001ms", **settings.pop("timeouts", {})}
    return {"name": name, "url": url, "match": {"path": f"/{name}"}, "timeouts": timeouts, **settings}


@contextlib.asynccontextmanager
async def lab(
    directory: Path,
    entries: Callable[[Upstream], list[dict[str, Any]]] = lambda upstream: [entry("mcp", upstream)],
    *,
    tls: ssl.SSLContext | None = None,
    listener_tls: dict[str, str] | None = None,
    mode: str = "observe",
    **top: Any,
) -> AsyncIterator[Lab]:
    """A proxy process with a configuration of its own in front of an upstream, which may use `tls`."""
    async with listening(tls=tls) as upstream:
        upstreams = [{"mode": mode, **settings} for settings in entries(upstream)]
        proxy = Forkwatch(upstreams, directory, tls=listener_tls, **top).start()
        try:
            async with Lab(proxy, upstream).for_one_test() as made:
                yield made
        finally:
            proxy.stop()
            said = proxy.errors.read_text() + proxy.log_file.read_text()
            assert "Traceback" not in said, said[-2000:]


def rss_bytes(pid: int) -> int:
    """The resident memory of a process now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_rss_bytes(pid: int) -> int:
    """The most it ever was since its start, or since `forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def forget_peak(pid: int) -> None:
    """Let `peak_rss_bytes` begin anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
