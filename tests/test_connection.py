"""One exchange on one upstream socket: how it may end, and what holds it back."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from proxy.errors import (
    ProxyError,
    UpstreamIdle,
    UpstreamMalformed,
    UpstreamReset,
    UpstreamTimeout,
    UpstreamTruncated,
)
from proxy.upstream.address import Address
from tests.scripted_upstream import EMPTY, OK, PATIENCE_S, Recorder, get, on_both_loops, origin, served, turns

CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@on_both_loops
async def test_events_arrive_one_read_at_a_time() -> None:
    """The head comes at once, each event with its read and without framing, the end with the last chunk."""
    async with served() as (upstream, to):
        sink = Recorder()
        get(to, sink)
        peer = await upstream.accepted()
        await peer.head()
        peer.send(CHUNKED)
        await sink.until(lambda: sink.head is not None)
        assert (sink.reads, sink.ended) == ([b""], False)
        for n, wire in enumerate((b"3\r\nabc\r\n", b"1\r\nd\r\n2\r\nef\r\n", b"0\r\n\r\n"), start=2):
            peer.send(wire)
            await sink.until(lambda n=n: len(sink.reads) == n)  # type: ignore[misc]
        assert (sink.reads, sink.ended) == ([b"", b"abc", b"def", b""], True)


@on_both_loops
async def test_chunk_framing_alone_brings_nothing() -> None:
    """A read of framing only is no call of the sink."""
    async with served() as (upstream, to):
        sink = Recorder()
        get(to, sink)
        peer = await upstream.accepted()
        peer.send(CHUNKED)
        await sink.until(lambda: sink.head is not None)
        peer.send(b"3\r")
        await turns()
        peer.send(b"\nabc\r\n")
        await sink.until(lambda: sink.body == b"abc")
        assert sink.reads == [b"", b"abc"]


@on_both_loops
async def test_whole_answer_in_one_read_is_one_call() -> None:
    """Head, body and end of a small answer come together."""
    async with served() as (upstream, to):
        sink = Recorder()
        get(to, sink)
        (await upstream.accepted()).send(OK + b"Content-Length: 2\r\n\r\nhi")
        await sink.over()
        assert (sink.reads, sink.ended, sink.error) == ([b"hi"], True, None)


@on_both_loops
async def test_interim_heads_come_first() -> None:
    """1xx heads are told in order, as they come, before the final head."""
    async with served() as (upstream, to):
        sink = Recorder()
        get(to, sink)
        peer = await upstream.accepted()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await sink.until(lambda: len(sink.interim) == 1)
        assert sink.head is None
        peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n")
        await sink.over()
        assert [(h.status, h.headers) for h in sink.interim] == [(100, []), (103, [(b"Link", b"a")])]
        assert sink.ended


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@on_both_loops
async def test_close_delimited_body_ends_with_the_connection(method: bytes) -> None:
    """EOF is a clean end where nothing else was promised; an answer to HEAD does not wait for it."""
    async with served() as (upstream, to):
        sink = Recorder()
        get(to, sink, method=method)
        peer = await upstream.accepted()
        await peer.head()
        peer.send(OK + b"\r\n" + (b"abc" if method == b"GET" else b""))
        if method == b"GET":
            await sink.until(lambda: sink.body == b"abc")
            assert not sink.ended
            peer.end()
        await sink.over()
        assert (sink.ended, sink.error) == (True, None)
        assert await peer.gone() == b""


ENDINGS = [
    pytest.param(b"", "end", UpstreamReset, b"", id="eof-before-head"),
    pytest.param(b"", "reset", UpstreamReset, b"", id="rst-before-head"),
    pytest.param(OK + b"A: b", "end", UpstreamReset, b"", id="eof-in-head"),
    pytest.param(OK + b"Content-Length: 9\r\n\r\nabc", "end", UpstreamTruncated, b"abc", id="eof-in-length"),
    pytest.param(CHUNKED + b"9\r\nabc", "end", UpstreamTruncated, b"abc", id="eof-in-chunk"),
    pytest.param(CHUNKED + b"3\r\nabc\r\n", "end", UpstreamTruncated, b"abc", id="eof-between-chunks"),
    pytest.param(CHUNKED + b"3\r\nabc\r\n", "reset", UpstreamReset, b"abc", id="rst-between-chunks"),
    pytest.param(OK + b"\r\nabc", "reset", UpstreamReset, b"abc", id="rst-in-close-delimited"),
    pytest.param(CHUNKED + b"3\r\nabc\r\nzz\r\n", "", UpstreamMalformed, b"abc", id="broken-chunk"),
    pytest.param(OK + b"A : b\r\n\r\n", "", UpstreamMalformed, b"", id="broken-head"),
    pytest.param(OK + b"A: " + b"x" * 70_000 + b"\r\n\r\n", "", UpstreamMalformed, b"", id="huge-head"),
    pytest.param(
        b"HTTP/1.1 101 S\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "", UpstreamMalformed, b"", id="101"
    ),
]


@pytest.mark.parametrize(("wire", "how", "expected", "body"), ENDINGS)
@on_both_loops
async def test_unclean_end(wire: bytes, how: str, expected: type[ProxyError], body: bytes) -> None:
    """Every unclean end has its own name, comes after the bytes that did arrive, and costs the connection."""
    async with served() as (upstream, to):
        sink = Recorder()
        get(to, sink)
        peer = await upstream.accepted()
        await peer.head()
        peer.send(wire)
        if body:
            await sink.until(lambda: sink.body == body)
        if how == "end":
            peer.end()
        elif how == "reset":
            peer.reset()
        await sink.over()
        assert (type(sink.error), sink.body, sink.ended) == (expected, body, False)
        assert (sink.head is not None) is bool(body)
        if not how:
            assert await peer.gone() == b""
        await turns()
        assert (to.open_connections, to.idle_connections) == (0, 0)


@on_both_loops
async def test_paused_reading_holds_the_upstream_back() -> None:
    """After a pause at most one more read is delivered, the upstream fills up, and nothing is lost."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink)
        peer = await upstream.accepted()
        total = 20_000_000
        peer.send(OK + b"Content-Length: %d\r\n\r\n" % total + bytes(total))
        await sink.until(lambda: sink.head is not None)
        call.pause_reading()
        reads = len(sink.reads)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):  # time itself is what is tested: this never drains
                await peer.writer.drain()
        assert len(sink.reads) <= reads + 1
        call.resume_reading()
        await sink.over()
        assert (len(sink.body), sink.ended) == (total, True)


@on_both_loops
async def test_reading_paused_by_the_sink_itself() -> None:
    """A sink that pauses inside a delivery gets nothing more until it resumes."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink)
        sink.on_received = call.pause_reading
        peer = await upstream.accepted()
        peer.send(CHUNKED)
        await sink.until(lambda: sink.head is not None)
        peer.send(b"3\r\nabc\r\n0\r\n\r\n")
        await turns(20)
        assert sink.reads == [b""]
        sink.on_received = None
        call.resume_reading()
        await sink.over()
        assert sink.body == b"abc"


@on_both_loops
async def test_connection_paused_at_the_end_is_reused_reading() -> None:
    """A pause ends with its exchange: the next one on the connection is read."""
    async with served() as (upstream, to):
        sink = Recorder()
        sink.on_informational = get(to, sink).pause_reading
        peer = await upstream.accepted()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" + EMPTY)
        await sink.over()
        again = Recorder()
        get(to, again)
        peer.send(OK + b"Content-Length: 2\r\n\r\nho")
        assert (await again.over()).body == b"ho"
        assert len(upstream.peers) == 1


@on_both_loops
async def test_reading_paused_while_connecting() -> None:
    """A call paused before it has a connection starts paused."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink)
        call.pause_reading()
        peer = await upstream.accepted()
        peer.send(EMPTY)
        await peer.head()
        await turns(20)
        assert sink.head is None
        call.resume_reading()
        assert (await sink.over()).ended


@on_both_loops
async def test_header_timeout() -> None:
    """No final head in time is a timeout; an interim head is none."""
    async with served(headers_timeout_s=0.05) as (upstream, to):
        sink = Recorder()
        get(to, sink)
        peer = await upstream.accepted()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await sink.over()
        assert isinstance(sink.error, UpstreamTimeout)
        assert (sink.error.reason, sink.error.status) == ("header_timeout", 504)
        await peer.gone()


@on_both_loops
async def test_header_timeout_is_for_the_head_only() -> None:
    """A body may take longer than the head was allowed to, on a connection used before as well."""
    async with served(headers_timeout_s=0.1) as (upstream, to):
        peer = None
        for _ in range(2):
            sink = Recorder()
            get(to, sink)
            peer = peer or await upstream.accepted()
            peer.send(CHUNKED)
            await sink.until(lambda sink=sink: sink.head is not None)  # type: ignore[misc]
            await asyncio.sleep(0.15)  # time itself is what is tested
            peer.send(b"0\r\n\r\n")
            await sink.over()
            assert sink.ended


@on_both_loops
async def test_body_idle_timeout() -> None:
    """Every read renews the limit; then silence ends the exchange, and what came before was delivered."""
    async with served(body_idle_timeout_s=0.1) as (upstream, to):
        sink = Recorder()
        get(to, sink)
        peer = await upstream.accepted()
        peer.send(CHUNKED)
        for _ in range(4):
            await asyncio.sleep(0.05)  # time itself is what is tested
            peer.send(b"1\r\nx\r\n")
        await sink.over()
        assert (type(sink.error), sink.body) == (UpstreamIdle, b"xxxx")
        await peer.gone()


@on_both_loops
async def test_time_while_reading_is_paused_is_not_idle() -> None:
    """An upstream that is held back is not called idle."""
    async with served(body_idle_timeout_s=0.05) as (upstream, to):
        sink = Recorder()
        call = get(to, sink)
        peer = await upstream.accepted()
        peer.send(CHUNKED)
        await sink.until(lambda: sink.head is not None)
        call.pause_reading()
        await asyncio.sleep(0.2)  # time itself is what is tested
        assert sink.error is None
        call.resume_reading()
        await sink.over()
        assert isinstance(sink.error, UpstreamIdle)


@on_both_loops
async def test_answer_behind_a_failing_upload_is_delivered() -> None:
    """An upstream that answers and then resets the upload is heard, though a write fails first."""
    server = socket.create_server(("127.0.0.1", 0))
    reached, uploaded, left = threading.Event(), threading.Event(), threading.Event()

    def serve() -> None:
        conn, _ = server.accept()
        with conn:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += conn.recv(1)  # no more than the head: closing on unread bytes sends RST
            reached.set()
            uploaded.wait(PATIENCE_S)
            conn.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nfull")
        left.set()

    thread = threading.Thread(target=serve)
    thread.start()
    async with origin(Address("http", *server.getsockname())) as to:
        sink = Recorder()
        call = get(to, sink, method=b"POST", headers=[(b"Content-Length", b"9")], streaming=True)
        assert await asyncio.to_thread(reached.wait, PATIENCE_S)
        call.send(b"x")
        await turns()
        uploaded.set()
        assert left.wait(PATIENCE_S)  # the loop stands still, so that the next write comes before any read
        call.send(b"y")
        await sink.over()
        assert sink.head is not None
        assert (sink.head.status, sink.body, sink.ended, sink.error) == (413, b"full", True, None)
    thread.join(PATIENCE_S)
    server.close()
