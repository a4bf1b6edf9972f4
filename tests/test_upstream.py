"""The pool in front of one upstream: what is reused, and what is never sent twice."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from proxy.errors import Draining, UpstreamReset
from proxy.upstream.address import Address
from tests.scripted_upstream import (
    EMPTY,
    OK,
    PATIENCE_S,
    Recorder,
    disturb,
    exchange,
    get,
    on_both_loops,
    origin,
    served,
    turns,
)


@on_both_loops
async def test_connection_is_reused() -> None:
    """Requests in turn share a connection, requests at once do not; the newest idle one is first."""
    async with served() as (upstream, to):
        peer = await exchange(upstream, to)
        await exchange(upstream, to, peer)
        sinks = [Recorder(), Recorder()]
        calls = [get(to, sink) for sink in sinks]
        other = await upstream.accepted()
        assert (to.open_connections, to.idle_connections) == (2, 0)
        name = f"{to.address.host}:{to.address.port}"
        assert calls[0].peer == name
        for end, sink in ((peer, sinks[0]), (other, sinks[1])):
            await end.head()
            end.send(EMPTY)
            await sink.over()
        assert [call.peer for call in calls] == [name, name]
        assert (to.open_connections, to.idle_connections) == (2, 2)
        await exchange(upstream, to, other)
        assert len(upstream.peers) == 2


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Connection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        EMPTY + EMPTY,
    ],
    ids=["connection-close", "http-1.0", "surplus"],
)
@on_both_loops
async def test_connection_is_not_reused(answer: bytes) -> None:
    """An upstream that says so, or says too much, has its connection closed after the answer."""
    async with served() as (upstream, to):
        peer = await exchange(upstream, to, answer=answer)
        assert await peer.gone() == b""
        await exchange(upstream, to)
        assert len(upstream.peers) == 2


@on_both_loops
async def test_idle_connection_is_closed_after_its_time() -> None:
    """A connection idle for longer than the limit is closed, each after its own time."""
    async with served(keepalive_s=0.1) as (upstream, to):
        first = await exchange(upstream, to)
        sink = Recorder()
        get(to, sink)
        await first.head()
        second = await exchange(upstream, to)
        first.send(EMPTY)
        await sink.over()
        for peer in (second, first):
            assert await peer.gone(PATIENCE_S) == b""
        assert (to.open_connections, to.idle_connections) == (0, 0)


async def test_idle_connection_is_too_old_though_the_timer_is_late() -> None:
    """A loop that was held up does not reuse what it should have closed meanwhile."""
    async with served(keepalive_s=0.02) as (upstream, to):
        await exchange(upstream, to)
        time.sleep(0.05)  # the loop is held up on purpose
        await exchange(upstream, to)
        assert len(upstream.peers) == 2


@on_both_loops
async def test_an_idle_limit_that_the_clock_cannot_tell_from_none() -> None:
    """A clock of whole milliseconds says that no time has passed: nothing is reused for that."""
    async with served(keepalive_s=0.000_9) as (upstream, to):
        sinks = [Recorder() for _ in range(8)]
        for sink in sinks:
            get(to, sink)
        for _ in sinks:
            (await upstream.accepted()).send(EMPTY)
        for sink in sinks:
            await sink.over()
            get(to, Recorder())  # in the turn in which another's connection has become idle
        for _ in sinks:
            await upstream.accepted()


@on_both_loops
async def test_no_keepalive() -> None:
    """With an idle limit of 0 every connection carries one request."""
    async with served(keepalive_s=0) as (upstream, to):
        peer = await exchange(upstream, to)
        assert await peer.gone() == b""


@pytest.mark.parametrize("how", ["end", "reset", "bytes"])
@on_both_loops
async def test_connection_that_stirs_while_idle_is_discarded(how: str) -> None:
    """EOF, RST or bytes nobody asked for take an idle connection out of the pool."""
    async with served() as (upstream, to):
        peer = await exchange(upstream, to)
        assert to.idle_connections == 1
        disturb(peer, how)
        async with asyncio.timeout(PATIENCE_S):
            while to.open_connections:
                await asyncio.sleep(0)
        assert to.idle_connections == 0
        await exchange(upstream, to)


@pytest.mark.parametrize("how", ["end", "reset", "bytes"])
@on_both_loops
async def test_what_the_loop_has_not_seen_is_seen_before_reuse(how: str) -> None:
    """A request does not go out on a connection whose end already waits in the kernel, unread."""
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    async with origin(Address("http", *server.getsockname())) as to:
        sink = Recorder()
        get(to, sink)
        loop = asyncio.get_running_loop()
        conn, _ = await loop.sock_accept(server)
        await loop.sock_recv(conn, 4096)
        await loop.sock_sendall(conn, EMPTY)
        await sink.over()
        # All in one turn of the loop, so that only the kernel knows.
        if how == "bytes":
            conn.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        elif how == "reset":
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            conn.close()
        else:
            conn.close()
        again = Recorder()
        get(to, again)
        fresh, _ = await loop.sock_accept(server)
        assert (await loop.sock_recv(fresh, 4096)).startswith(b"GET /mcp HTTP/1.1\r\n")
        await loop.sock_sendall(fresh, EMPTY)
        await again.over()
        assert (again.ended, again.error) == (True, None)
        conn.close()
        fresh.close()
    server.close()


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"POST"])
@pytest.mark.parametrize("how", ["end", "reset"])
@on_both_loops
async def test_a_request_is_never_sent_twice(method: bytes, how: str) -> None:
    """A reused connection that dies under a request fails it, whatever the method; it is seen only once."""
    async with served() as (upstream, to):
        peer = await exchange(upstream, to)
        sink = Recorder()
        get(to, sink, method=method)
        await peer.head()
        disturb(peer, how)
        await sink.over()
        assert (type(sink.error), sink.head) == (UpstreamReset, None)
        await turns(20)
        assert len(upstream.peers) == 1


@on_both_loops
async def test_close_ends_everything() -> None:
    """Closing fails the calls that run and the ones that connect, and no request is taken any more."""
    async with served() as (upstream, to):
        sinks = [Recorder() for _ in range(3)]
        get(to, sinks[0])
        await upstream.accepted()
        idle = await exchange(upstream, to)
        get(to, sinks[1])
        get(to, sinks[2])  # no idle connection is left for it
        assert (to.open_connections, to.idle_connections) == (2, 0)
        await to.close()
        for sink in sinks:
            await sink.over()
            assert isinstance(sink.error, Draining)
        await idle.gone()
        assert (to.open_connections, to.idle_connections) == (0, 0)
        with pytest.raises(RuntimeError, match="closed"):
            get(to, Recorder())
