"""Bodies through a real proxy process: every byte, no more memory than a constant, and no byte held back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from hashlib import blake2b

import pytest
import pytest_asyncio

from tests.forkwatch_process import Counters
from tests.scripted_upstream import EMPTY, OK, PATIENCE_S, Peer
from tests.wire import LAST, SSE, Client, End, Lab, forget_peak, lab, peak_rss_bytes, rss_bytes

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024
LARGE = os.urandom(MIB) * 20
DIGEST = blake2b(LARGE).digest()
ROOM_BYTES = 12 * MIB
"""What the process may grow by while it carries `LARGE`: the inspected part of a request, and a few reads."""
STALLED_S = 0.3
"""A writer that could write nothing for so long is held back."""
IN_FLIGHT_BYTES = 24 * MIB
"""What may lie in the kernel's buffers of four sockets and the transports' between two ends."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """The proxy of all these tests."""
    async with lab(tmp_path_factory.mktemp("bodies")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def here(process: Lab) -> AsyncIterator[Lab]:
    """It, for one test."""
    async with process.for_one_test() as found:
        yield found


class Memory:
    """How much a process grows from here on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        forget_peak(pid)
        self._before = rss_bytes(pid)

    def grown(self) -> int:
        """The peak since then, over what it was."""
        return peak_rss_bytes(self._pid) - self._before


async def fill(writer: asyncio.StreamWriter, data: bytes, piece: int = 256 * 1024) -> None:
    """Write `data` as fast as the other side takes it."""
    async with asyncio.timeout(4 * PATIENCE_S):
        for at in range(0, len(data), piece):
            writer.write(data[at : at + piece])
            await writer.drain()


def chunked(data: bytes, piece: int = 100_000) -> bytes:
    """`data` as a whole chunked body."""
    parts = [data[at : at + piece] for at in range(0, len(data), piece)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + LAST


async def read_chunked(peer: Peer) -> bytes:
    """A whole chunked request body."""
    pieces = []
    async with asyncio.timeout(4 * PATIENCE_S):
        while True:
            size = int(await peer.reader.readuntil(b"\r\n"), 16)
            pieces.append((await peer.reader.readexactly(size + 2))[:-2])
            if not size:
                return b"".join(pieces)


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_large_answer(here: Lab, framing: str) -> None:
    """20 MB come down unchanged in constant memory."""
    memory = Memory(here.proxy.process.pid)
    wire = LARGE if framing == "length" else chunked(LARGE)
    field = b"Content-Length: %d" % len(LARGE) if framing == "length" else b"Transfer-Encoding: chunked"
    client, peer, head = await here.opened("GET /mcp", answer=OK + field + b"\r\n\r\n")
    sending = asyncio.ensure_future(fill(peer.writer, wire))
    body, end = await client.body(head)
    await sending
    assert (len(body), blake2b(body).digest(), end) == (len(LARGE), DIGEST, End.CLEAN)
    assert memory.grown() < ROOM_BYTES


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_large_upload(here: Lab, framing: str) -> None:
    """20 MB go up unchanged in constant memory."""
    memory = Memory(here.proxy.process.pid)
    client = await here.client()
    length = f"Content-Length: {len(LARGE)}"
    client.request("POST /mcp", length if framing == "length" else "Transfer-Encoding: chunked")
    sending = asyncio.ensure_future(fill(client.writer, LARGE if framing == "length" else chunked(LARGE)))
    peer = await here.upstream.accepted()
    head = await peer.head()
    assert ("content-length" in head.decode().lower()) is (framing == "length")
    if framing == "length":
        async with asyncio.timeout(4 * PATIENCE_S):
            body = await peer.reader.readexactly(len(LARGE))
    else:
        body = await read_chunked(peer)
    await sending
    peer.send(EMPTY)
    assert (await client.response()).status == 200
    assert (len(body), blake2b(body).digest()) == (len(LARGE), DIGEST)
    assert memory.grown() < ROOM_BYTES


async def test_large_event(here: Lab) -> None:
    """A single line of 2.2 MB is one event, its bytes unchanged, in constant memory."""
    memory = Memory(here.proxy.process.pid)
    counters = await Counters.since_now(here.proxy)
    event = b"id: 1\ndata: " + b"x" * 2_200_000 + b"\n\n"
    client, peer, head = await here.opened("GET /mcp")
    sending = asyncio.ensure_future(fill(peer.writer, b"%x\r\n%b\r\n" % (len(event), event) + LAST))
    body, end = await client.body(head)
    await sending
    assert (body == event, end) == (True, End.CLEAN)
    await counters.reached("streams_closed_total")
    assert await counters.grown("events_relayed_total", attachment="get") == 1
    assert memory.grown() < ROOM_BYTES


async def pour(writer: asyncio.StreamWriter, piece: bytes) -> int:
    """Write until nothing can be written for `STALLED_S`, or far too much was; returns how many pieces."""
    count = 0
    try:
        while count * len(piece) < 4 * IN_FLIGHT_BYTES:
            writer.write(piece)
            count += 1
            async with asyncio.timeout(STALLED_S):
                await writer.drain()
    except TimeoutError:
        pass
    return count


async def test_a_slow_reader_holds_the_upstream_back(here: Lab) -> None:
    """A client that does not read stops its upstream, in constant memory; later it gets every byte."""
    memory = Memory(here.proxy.process.pid)
    client = await here.client(limit=64 * 1024, receive_buffer=64 * 1024)
    client.request("GET /mcp")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(SSE)
    event = b"data: " + b"y" * 100_000 + b"\n\n"
    count = await pour(peer.writer, b"%x\r\n%b\r\n" % (len(event), event))
    assert count * len(event) < IN_FLIGHT_BYTES
    assert memory.grown() < ROOM_BYTES
    peer.send(LAST)
    body, end = await client.body(await client.head())
    assert (body == event * count, end) == (True, End.CLEAN)


async def test_a_slow_upstream_holds_the_upload_back(here: Lab) -> None:
    """An upstream that does not read stops its client, in constant memory; later it gets every byte."""
    memory = Memory(here.proxy.process.pid)
    client = await here.client()
    client.request("POST /mcp", "Transfer-Encoding: chunked")
    peer = await here.upstream.accepted()
    await peer.head()
    piece = b"z" * 100_000
    count = await pour(client.writer, b"%x\r\n%b\r\n" % (len(piece), piece))
    assert count * len(piece) < IN_FLIGHT_BYTES
    assert memory.grown() < ROOM_BYTES
    client.send(LAST)
    assert await read_chunked(peer) == piece * count
    peer.send(EMPTY)
    assert (await client.response()).status == 200


async def test_an_upload_leaves_as_it_comes(here: Lab) -> None:
    """Each part of an upload reaches the upstream before the client sends the next, the head before all."""
    client = await here.client()
    client.request("POST /mcp", "Content-Length: 6")
    peer = await here.upstream.accepted()
    await peer.head()
    for part in (b"ab", b"cd", b"ef"):
        client.send(part)
        assert await peer.body(2) == part
    peer.send(EMPTY)
    assert (await client.response()).status == 200


async def test_a_request_in_single_bytes(here: Lab) -> None:
    """A head and a chunked body that dribble in are forwarded like any other."""
    client = await here.client()
    client.writer.transport.set_write_buffer_limits(0)
    head = b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw = head + b"3;x=y\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"
    for i in range(len(raw)):
        client.send(raw[i : i + 1])
        await client.writer.drain()
    peer = await here.upstream.accepted()
    assert b"Transfer-Encoding: chunked\r\n" in await peer.head()
    assert await read_chunked(peer) == b"abc"
    peer.send(EMPTY)
    assert (await client.response()).status == 200


async def test_expect_continue(here: Lab) -> None:
    """The upstream decides on `Expect`: its 100 lets the client send its body."""
    client = await here.client()
    client.request("POST /mcp", "Content-Length: 4", "Expect: 100-continue")
    peer = await here.upstream.accepted()
    assert b"Expect: 100-continue\r\n" in await peer.head()
    go_on = b"HTTP/1.1 100 Continue\r\n\r\n"
    peer.send(go_on)
    assert await client.exactly(len(go_on)) == go_on
    client.send(b"body")
    assert await peer.body(4) == b"body"
    peer.send(EMPTY)
    assert (await client.response()).status == 200
    assert client.interim == []


async def test_expect_refused(here: Lab) -> None:
    """An upstream that refuses before the body is heard, though the client holds its body back."""
    client = await here.client()
    client.request("POST /mcp", "Content-Length: 4", "Expect: 100-continue")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(b"HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n")
    assert (await client.response()).status == 417
    assert client.interim == []


async def test_early_answer(here: Lab) -> None:
    """An answer during the upload is heard at once and whole, also by a client that sends all of its body."""
    client = await here.client()
    client.request("POST /mcp", "Content-Length: 2000000", body=b"x" * 1000)
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(b"HTTP/1.1 413 Too Much\r\nContent-Length: 4\r\nConnection: close\r\n\r\nmuch")
    head = await client.head()
    await fill(client.writer, b"x" * 1_999_000)
    assert (head.status, await client.body(head)) == (413, (b"much", End.CLEAN))
    await peer.gone(PATIENCE_S)


async def test_an_answer_as_long_as_its_connection(here: Lab) -> None:
    """A body that ends with its connection is framed in chunks for the client, and ends cleanly."""
    client, peer, head = await here.opened("GET /mcp", answer=OK + b"Connection: close\r\n\r\nabc")
    assert head.fields == [(b"Transfer-Encoding", b"chunked")]
    peer.send(b"def")
    peer.end()
    assert await client.body(head) == (b"abcdef", End.CLEAN)
    await second_request(here, client)


async def second_request(here: Lab, client: Client) -> None:
    """The client's connection serves another request."""
    client.request("GET /mcp")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(EMPTY)
    assert (await client.response()).status == 200
