"""One request as its caller steers it: uploading, being held back, and giving up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from proxy.upstream import Headers
from proxy.upstream.call import BACKLOG_BYTES
from tests.scripted_upstream import EMPTY, OK, PATIENCE_S, Peer, Recorder, get, on_both_loops, served, turns

CHUNKED: Headers = [(b"Transfer-Encoding", b"chunked")]


def length(size: int) -> Headers:
    """The fields of a body of `size` bytes."""
    return [(b"Content-Length", b"%d" % size)]


@on_both_loops
async def test_request_reaches_the_upstream_as_given() -> None:
    """Method, target and fields are sent raw, with the body, and nothing is added."""
    fields: Headers = [(b"hOST", b"x"), (b"A", b"1"), (b"a", b"\xe6\xff"), (b"Content-Length", b"2")]
    async with served() as (upstream, to):
        sink = Recorder()
        to.request(b"POST", b"/%41/../b?c=%2F", fields, sink, body=b"hi", streaming=False)
        peer = await upstream.accepted()
        expected = (
            b"POST /%41/../b?c=%2F HTTP/1.1\r\nhOST: x\r\nA: 1\r\na: \xe6\xff\r\nContent-Length: 2\r\n\r\nhi"
        )
        assert await peer.body(len(expected)) == expected
        peer.send(EMPTY)
        await sink.over()


UPLOADS = [
    pytest.param(b"ab", False, length(2), b"ab", id="length-complete"),
    pytest.param(b"ab", False, CHUNKED, b"2\r\nab\r\n0\r\n\r\n", id="chunked-complete"),
    pytest.param(b"", False, CHUNKED, b"0\r\n\r\n", id="chunked-empty"),
    pytest.param(None, False, [], b"", id="no-body"),
    pytest.param(b"ab", True, length(7), b"abcdefg", id="length-streaming"),
    pytest.param(
        b"ab", True, CHUNKED, b"2\r\nab\r\n3\r\ncde\r\n2\r\nfg\r\n0\r\n\r\n", id="chunked-streaming"
    ),
    pytest.param(b"", True, CHUNKED, b"3\r\ncde\r\n2\r\nfg\r\n0\r\n\r\n", id="chunked-streaming-from-empty"),
]


@pytest.mark.parametrize("late", [False, True], ids=["while-connecting", "connected"])
@pytest.mark.parametrize(("body", "streaming", "fields", "wire"), UPLOADS)
@on_both_loops
async def test_upload(late: bool, body: bytes | None, streaming: bool, fields: Headers, wire: bytes) -> None:
    """A body is framed as its fields say, whether it is known at once or comes before or after connecting."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink, method=b"POST", headers=fields, body=body, streaming=streaming)
        peer = await upstream.accepted() if late else None
        if peer is not None:
            await peer.head()
        if streaming:
            for piece in (b"cde", b"", b"fg"):
                call.send(piece)
            call.finish()
        if peer is None:
            peer = await upstream.accepted()
            await peer.head()
        assert await peer.body(len(wire)) == wire
        peer.send(EMPTY)
        await sink.over()
        assert (sink.ended, sink.uploads, to.idle_connections) == (True, [], 1)


@on_both_loops
async def test_expectation_is_left_to_the_two_ends() -> None:
    """With nothing of the body known the head goes alone, and 100 comes back before anything is sent."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(
            to, sink, method=b"POST", headers=[(b"Expect", b"100-continue"), *length(2)], streaming=True
        )
        peer = await upstream.accepted()
        await peer.head()
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        await sink.until(lambda: len(sink.interim) == 1)
        call.send(b"hi")
        call.finish()
        assert await peer.body(2) == b"hi"
        peer.send(EMPTY)
        assert (await sink.over()).ended


@on_both_loops
async def test_sending_after_the_end_of_the_body_is_an_error() -> None:
    """A body that has ended cannot be continued, except into a call that is over, where nothing happens."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink, method=b"POST", headers=length(0), body=b"", streaming=False)
        with pytest.raises(RuntimeError, match="already complete"):
            call.send(b"x")
        (await upstream.accepted()).send(EMPTY)
        await sink.over()
        call.send(b"x")
        call.finish()
        call.cancel()


@on_both_loops
async def test_slow_upstream_pauses_the_upload() -> None:
    """A full write buffer asks for a pause once, draining asks to go on once, and every byte arrives."""
    async with served() as (upstream, to):
        sink, total, piece = Recorder(), 20_000_000, bytes(50_000)
        call = get(to, sink, method=b"POST", headers=length(total), streaming=True)
        peer = await upstream.accepted()
        await peer.head()
        sent = received = 0
        while sent < total:
            while sent < total and sink.uploads[-1:] != ["pause"]:
                call.send(piece)
                sent += len(piece)
                await turns(1)
            assert sent - received < 10_000_000  # what the kernel and two stream buffers take
            while sink.uploads[-1:] == ["pause"]:
                received += len(await peer.reader.read(1_000_000))
        call.finish()
        await peer.body(total - received)
        peer.send(EMPTY)
        await sink.over()
        assert sink.uploads == ["pause", "resume"] * (len(sink.uploads) // 2)
        assert sink.uploads
        assert sink.ended


@on_both_loops
async def test_upload_pauses_while_connecting() -> None:
    """What is kept for a connection still being made is bounded, and goes on once there is one."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink, method=b"POST", headers=CHUNKED, streaming=True)
        call.send(bytes(BACKLOG_BYTES + 1))
        call.send(b"x")
        assert sink.uploads == ["pause"]
        peer = await upstream.accepted()
        await peer.head()
        await sink.until(lambda: sink.uploads == ["pause", "resume"])
        call.finish()
        assert (await peer.body(BACKLOG_BYTES + 9)).startswith(b"10001\r\n")


@on_both_loops
async def test_large_body_known_at_once_never_pauses() -> None:
    """There is nothing to hold back when the body is complete at the start."""
    async with served() as (upstream, to):
        for _ in range(2):
            sink = Recorder()
            get(to, sink, method=b"POST", headers=length(5_000_000), body=bytes(5_000_000))
            peer = upstream.peers[0] if upstream.peers else await upstream.accepted()
            await peer.head()
            await peer.body(5_000_000)
            peer.send(EMPTY)
            await sink.over()
            assert sink.uploads == []
        assert len(upstream.peers) == 1


@on_both_loops
async def test_pause_is_told_after_the_request_returned() -> None:
    """A first piece that fills the buffer of a reused connection asks for the pause in a later turn."""
    async with served() as (upstream, to):
        first = Recorder()
        get(to, first)
        peer = await upstream.accepted()
        await peer.head()
        peer.send(EMPTY)
        await first.over()
        sink = Recorder()
        get(to, sink, method=b"POST", headers=length(9_000_000), body=bytes(8_000_000), streaming=True)
        assert sink.uploads == []
        await sink.until(lambda: sink.uploads == ["pause"])
        await peer.head()
        await peer.body(8_000_000)
        await sink.until(lambda: sink.uploads == ["pause", "resume"])


@on_both_loops
async def test_early_answer_ends_the_upload() -> None:
    """An answer complete before the upload reaches the sink at once, and the connection is not used again."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink, method=b"POST", headers=length(9), streaming=True)
        peer = await upstream.accepted()
        await peer.head()
        call.send(b"abc")
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nfull")
        await sink.over()
        call.send(b"def")
        call.finish()
        assert (sink.body, sink.ended, to.idle_connections) == (b"full", True, 0)
        assert await peer.gone() == b"abc"


@on_both_loops
async def test_early_answer_to_a_body_still_unsent() -> None:
    """A body known at once but not yet taken by the upstream costs the connection as well."""
    async with served() as (upstream, to):
        sink = Recorder()
        get(to, sink, method=b"POST", headers=length(30_000_000), body=bytes(30_000_000))
        peer = await upstream.accepted()
        peer.send(EMPTY)
        await sink.over()
        assert (sink.ended, to.idle_connections) == (True, 0)
        assert len(await peer.gone(PATIENCE_S)) < 30_000_000


@on_both_loops
async def test_early_head_lets_the_upload_go_on() -> None:
    """An answer may begin, and stream, while the upload does; finished both ways the connection is kept."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink, method=b"POST", headers=CHUNKED, streaming=True)
        peer = await upstream.accepted()
        await peer.head()
        peer.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        await sink.until(lambda: sink.head is not None)
        call.send(b"abc")
        assert await peer.body(8) == b"3\r\nabc\r\n"
        call.finish()
        assert await peer.body(5) == b"0\r\n\r\n"
        peer.send(b"0\r\n\r\n")
        await sink.over()
        assert (sink.ended, to.idle_connections) == (True, 1)


async def until_upload(peer: Peer, sink: Recorder) -> None:
    """Half an upload has arrived."""
    await peer.body(3)


async def until_body(peer: Peer, sink: Recorder) -> None:
    """Half an answer was delivered."""
    peer.send(OK + b"Content-Length: 9\r\n\r\nabc")
    await sink.until(lambda: sink.body == b"abc")


@pytest.mark.parametrize("until", [until_upload, until_body], ids=["upload", "body"])
@on_both_loops
async def test_cancel_closes_the_connection_at_once(
    until: Callable[[Peer, Recorder], Awaitable[None]],
) -> None:
    """The upstream sees a client that left within a tenth of a second, and the sink hears nothing more."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink, method=b"POST", headers=length(9), streaming=True)
        peer = await upstream.accepted()
        await peer.head()
        call.send(b"abc")
        await until(peer, sink)
        heard = len(sink.reads)
        call.cancel()
        await peer.gone()
        assert (len(sink.reads), sink.ended, sink.error, sink.uploads) == (heard, False, None, [])
        assert to.open_connections == 0


@on_both_loops
async def test_cancel_drops_an_upload_nobody_reads() -> None:
    """Bytes the upstream never took do not keep a cancelled connection open."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink, method=b"POST", headers=length(30_000_000), streaming=True)
        peer = await upstream.accepted()
        await peer.head()
        call.send(bytes(20_000_000))
        await sink.until(lambda: sink.uploads == ["pause"])
        call.cancel()
        await turns()
        assert to.open_connections == 0
        assert len(await peer.gone(PATIENCE_S)) < 20_000_000


@on_both_loops
async def test_cancel_from_inside_the_sink() -> None:
    """A sink may cancel while it is being told something; nothing follows."""
    async with served() as (upstream, to):
        sink = Recorder()
        call = get(to, sink)
        sink.on_received = call.cancel
        peer = await upstream.accepted()
        peer.send(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nbroken")
        await sink.until(lambda: sink.head is not None)
        await peer.gone()
        assert (sink.body, sink.ended, sink.error) == (b"hi", False, None)


@on_both_loops
async def test_cancel_before_the_connection_is_made() -> None:
    """A call cancelled at once never sends a byte."""
    async with served() as (upstream, to):
        sink = Recorder()
        get(to, sink, headers=[(b"X", b"cancelled")]).cancel()
        await turns()
        other = Recorder()
        get(to, other)
        peer = await upstream.accepted()
        while not (seen := await peer.reader.read(4096)):
            peer = await upstream.accepted()  # a connection that was accepted and given up
        assert b"cancelled" not in seen
        peer.send(EMPTY)
        await other.over()
        assert (sink.head, sink.error, to.open_connections) == (None, None, 1)
