"""Peers that read or write a byte at a time, say half a goodbye, or vanish without one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.abuse.process import MIB, abused, grows_less_than, tcp_socket
from tests.abuse.witness import Witness
from tests.forkwatch_process import POLL_S, Counters
from tests.scripted_upstream import GONE_S, OK, PATIENCE_S, Peer, Upstream
from tests.wire import SSE, Client, End, Lab, entry

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEEPALIVE_S = 0.5
"""How long a client's connection may be without a request; also the time for its first head."""
DRIBBLE_S = 0.02
SLOW_READERS = 8
READER_BYTES = 1 * MIB
"""More than the proxy may keep for one stream: a read of 256 KiB, a transport's 64 KiB, and twice that."""
PIECE = b"%x\r\n%b\r\n" % (100_008, b"data: " + b"y" * 100_000 + b"\n\n")
STALLED_S = 0.3
TOO_MUCH = 50 * MIB
"""Far more than the kernel's buffers and the proxy's take of one stream."""
SLOW_WRITERS = 40
FRAMING_BYTES = 4 * MIB
"""Less than what is sent of it by far, and more than the 64 KiB that are read and a few reads."""
TCP_REPAIR = 19
"""Linux: a socket in this mode is closed without a word to its peer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Lab, Witness]]:
    """The proxy of all these tests: impatient with idle clients, quick to probe silent ones."""
    timeouts = {"client_keepalive": f"{KEEPALIVE_S}s", "tcp_keepalive": "1s"}

    def entries(upstream: Upstream) -> list[dict[str, Any]]:
        return [entry("mcp", upstream, timeouts=timeouts)]

    async with abused(tmp_path_factory.mktemp("slow"), entries, timeouts=timeouts) as made:
        yield made


# Slow readers.


async def pour(peer: Peer) -> int:
    """Send events until none was taken for `STALLED_S`; returns how many bytes were sent."""
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < TOO_MUCH:
            peer.send(PIECE)
            sent += len(PIECE)
            async with asyncio.timeout(STALLED_S):
                await peer.writer.drain()
    return sent


async def test_readers_of_a_byte_at_a_time(here: Lab) -> None:
    """Each holds its own upstream back and costs a constant; they leave, and their upstreams are let go."""
    ends = []
    for _ in range(SLOW_READERS):
        client = await here.client(limit=1024, receive_buffer=4096)
        client.request("GET /mcp", "Mcp-Session-Id: slow")
        peer = await here.upstream.accepted()
        await peer.head()
        peer.send(SSE)
        await client.head()
        ends.append((client, peer))
    with grows_less_than(SLOW_READERS * READER_BYTES, here):
        pouring = asyncio.gather(*(pour(peer) for _, peer in ends))
        while not pouring.done():
            for client, _ in ends:
                await client.exactly(1)
            await asyncio.sleep(DRIBBLE_S)
        assert max(await pouring) < TOO_MUCH
    for client, peer in ends:
        client.reset()
        await peer.gone(PATIENCE_S)


# Slow writers.


async def dribble(client: Client, data: bytes) -> None:
    """Send `data` byte by byte, until it is all sent or the connection ends."""
    with contextlib.suppress(ConnectionError):
        for i in range(len(data)):
            client.send(data[i : i + 1])
            await client.writer.drain()
            await asyncio.sleep(DRIBBLE_S)


async def test_heads_of_a_byte_at_a_time(here: Lab) -> None:
    """A head that is not whole within `client_keepalive` is closed without an answer; others are served."""
    slow = [await here.client() for _ in range(SLOW_WRITERS)]
    writing = [
        asyncio.create_task(dribble(client, b"GET /mcp HTTP/1.1\r\n" + b"X: y\r\n" * 100)) for client in slow
    ]
    _, response = await here.exchange("GET /mcp", answer=OK + b"Content-Length: 2\r\n\r\nok")
    assert response.body == b"ok"
    assert [await client.closed() for client in slow] == [b""] * SLOW_WRITERS
    await asyncio.gather(*writing)
    assert len(here.upstream.peers) == 1


async def test_a_second_head_of_a_byte_at_a_time(here: Lab) -> None:
    """The same holds for the next request of a connection."""
    client = await here.client()
    client.request("GET /mcp")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(OK + b"Content-Length: 2\r\n\r\nok")
    assert (await client.response()).body == b"ok"
    writing = asyncio.create_task(dribble(client, b"GET /mcp HTTP/1.1\r\n" + b"X: y\r\n" * 100))
    assert await client.closed() == b""
    await writing


@pytest.mark.parametrize("framing", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
async def test_bodies_of_a_byte_at_a_time(here: Lab, framing: str) -> None:
    """A slow upload is the upstream's to bear, byte by byte; given up, it is never completed."""
    ends = []
    for _ in range(SLOW_WRITERS):
        client = await here.client()
        client.request("POST /mcp", framing)
        peer = await here.upstream.accepted()
        await peer.head()
        ends.append((client, peer))
    wire, seen = (b"x", b"x") if "Length" in framing else (b"1\r\nx\r\n", b"1\r\nx\r\n")
    for _ in range(3):
        for client, _ in ends:
            client.send(wire)
        for _, peer in ends:
            assert await peer.body(len(seen)) == seen
    for client, peer in ends:
        client.leave()
        assert await peer.gone(PATIENCE_S) == b""


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"1;", b"a" * 65_536),
        (b"0\r\n", b"X: " + b"a" * 60_000 + b"\r\n"),
        (b"0\r\nX: ", b"a" * 65_536),
    ],
    ids=["extension", "trailers", "trailer"],
)
async def test_framing_without_end(here: Lab, start: bytes, more: bytes) -> None:
    """Framing that never becomes data is not kept, and the upload is never completed upstream."""
    client = await here.client()
    client.request("POST /mcp", "Transfer-Encoding: chunked", body=start)
    peer = await here.upstream.accepted()
    await peer.head()
    with grows_less_than(FRAMING_BYTES, here), contextlib.suppress(ConnectionError):
        for _ in range(300):
            client.send(more)
            await client.writer.drain()
    client.leave()
    assert await peer.gone(PATIENCE_S) == b""


# Half a goodbye.


@pytest.mark.parametrize("answering", [True, False])
async def test_a_client_that_says_it_sends_no_more(here: Lab, answering: bool) -> None:
    """A client's FIN is its departure: the upstream is let go at once, and the answer is not ended cleanly."""
    client = await here.client()
    client.request("GET /mcp")
    peer = await here.upstream.accepted()
    await peer.head()
    if answering:
        peer.send(SSE)
        await client.head()
    client.writer.write_eof()
    await peer.gone(GONE_S)
    assert await client.closed() == b""


async def test_an_upstream_that_says_it_sends_no_more(here: Lab) -> None:
    """A FIN inside a stream is no end of it: the client is cut off, and the other direction is closed too."""
    client, peer, head = await here.opened("GET /mcp", answer=SSE + b"9\r\ndata: a\n\n\r\n")
    assert await client.chunk() == b"data: a\n\n"
    peer.writer.write_eof()
    assert await client.body(head) == (b"", End.CUT)
    assert await peer.gone(PATIENCE_S) == b""


async def test_an_upstream_that_says_so_during_an_upload(here: Lab) -> None:
    """Without an answer it is a 502, though the upstream still reads."""
    client = await here.client()
    client.request("POST /mcp", "Content-Length: 10", body=b"hello")
    peer = await here.upstream.accepted()
    await peer.head()
    assert await peer.body(5) == b"hello"
    peer.writer.write_eof()
    response = await client.response()
    assert (response.status, b'"forkwatch:upstream-reset"' in response.body) == (502, True)
    assert await peer.gone(PATIENCE_S) == b""


# No goodbye.


async def probed_in_s(local: int, remote: int) -> int:
    """When the kernel will probe the silent peer of a connection, once all was acknowledged."""
    async with asyncio.timeout(PATIENCE_S):
        while (seconds := tcp_socket(local, remote).probed_in_s) is None:
            await asyncio.sleep(POLL_S)
    return seconds


def port(writer: asyncio.StreamWriter, end: str) -> int:
    """The port of one end of a connection."""
    found: int = writer.get_extra_info(end)[1]
    return found


async def test_silent_peers_are_probed(here: Lab) -> None:
    """The kernel probes the client of a silent stream, and its upstream, after `tcp_keepalive`."""
    client, peer, _ = await here.opened("GET /mcp")
    towards_client = await probed_in_s(here.proxy.port, port(client.writer, "sockname"))
    towards_upstream = await probed_in_s(port(peer.writer, "peername"), here.upstream.address.port)
    assert (towards_client, towards_upstream) == (1, 1)


def vanish(writer: asyncio.StreamWriter) -> None:
    """The peer is gone without FIN or RST, as after a power cut."""
    sock: socket.socket = writer.get_extra_info("socket")
    try:
        sock.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except PermissionError:
        pytest.skip("a socket cannot vanish here: CAP_NET_ADMIN is missing")
    writer.transport.abort()


async def test_a_client_that_vanishes(here: Lab) -> None:
    """It is noticed by the probes, and its upstream is let go."""
    counters = await Counters.since_now(here.proxy)
    client, peer, _ = await here.opened("GET /mcp", "Mcp-Session-Id: gone")
    await probed_in_s(here.proxy.port, port(client.writer, "sockname"))
    vanish(client.writer)
    await peer.gone(PATIENCE_S)
    await counters.reached("streams_closed_total", cause="client_closed")


async def test_an_upstream_that_vanishes(here: Lab) -> None:
    """It is noticed by the probes, and its client is cut off."""
    client, peer, head = await here.opened("GET /mcp")
    await probed_in_s(port(peer.writer, "peername"), here.upstream.address.port)
    vanish(peer.writer)
    assert await client.body(head) == (b"", End.CUT)
