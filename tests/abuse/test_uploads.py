"""Uploads that do not go to their end: answered early, held back, cut, or never wanted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.abuse.process import MIB, abused, grows_less_than, tcp_socket
from tests.abuse.witness import Witness
from tests.forkwatch_process import POLL_S, Counters
from tests.scenarios.frames import event, priming
from tests.scripted_upstream import OK, PATIENCE_S, Peer, Upstream, listening
from tests.wire import SSE, Client, End, Head, Lab, entry

pytestmark = pytest.mark.asyncio(loop_scope="module")

INSPECTED = 2 * MIB
"""Bodies up to this are read for their ids: more than proxy and kernel hold of an upload that is not read."""
LIMITS = {"request_inspect_bytes": "2MiB"}
LARGE_BYTES = 8 * MIB
"""What a large upload may cost: the inspected part of it as it grows, and a few reads."""
UNREAD_POLLS = 3
"""A reader that leaves the same bytes unread for so many polls does not read."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unix(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Upstream]:
    """An upstream on a Unix socket: the kernel holds little for it, so it soon holds back an upload."""
    async with listening(path=str(tmp_path_factory.mktemp("unix") / "s")) as upstream:
        yield upstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(
    tmp_path_factory: pytest.TempPathFactory, unix: Upstream
) -> AsyncIterator[tuple[Lab, Witness]]:
    """The proxy of all these tests."""

    def entries(upstream: Upstream) -> list[dict[str, Any]]:
        kept = {"upstream_keepalive": "60s"}
        return [
            entry("mcp", upstream),
            entry("kept", upstream, timeouts=kept),
            entry("enforce", unix, mode="enforce"),
        ]

    async with abused(tmp_path_factory.mktemp("uploads"), entries, limits=LIMITS) as made:
        yield made


async def begun(here: Lab, target: str, *fields: str, body: bytes = b"") -> tuple[Client, Peer]:
    """An upload whose head the upstream has."""
    client = await here.client()
    client.request(f"POST {target}", *fields, body=body)
    peer = await here.upstream.accepted()
    await peer.head()
    return client, peer


async def held_back(here: Lab, client: Client) -> None:
    """Return once the proxy leaves unread what the client has sent."""
    port: int = client.writer.get_extra_info("sockname")[1]
    unread = [0]
    async with asyncio.timeout(2 * PATIENCE_S):
        while unread[-1] == 0 or len(unread) < UNREAD_POLLS or len(set(unread[-UNREAD_POLLS:])) > 1:
            await asyncio.sleep(POLL_S)
            unread.append(tcp_socket(here.proxy.port, port).unread)


# Answered before its end.


@pytest.mark.parametrize("target", ["/mcp", "/kept"])
async def test_an_answer_before_the_upload_ends(here: Lab, target: str) -> None:
    """It is whole; the rest of the upload goes nowhere, least of all in front of another request."""
    client, peer = await begun(here, target, "Content-Length: 100000", body=b"x" * 1000)
    assert await peer.body(1000) == b"x" * 1000
    peer.send(OK + b"Content-Length: 2\r\n\r\nok")
    assert (await client.response()).body == b"ok"
    client.send(b"x" * 99_000)
    assert b"GET" not in await peer.gone(PATIENCE_S)
    _, response = await here.exchange(f"GET {target}", answer=OK + b"Content-Length: 2\r\n\r\n2!")
    assert response.body == b"2!"


async def test_an_answer_before_the_upload_ends_and_then_nothing(here: Lab) -> None:
    """A client that stops in an upload that was answered can use its connection no more."""
    client, peer = await begun(here, "/mcp", "Transfer-Encoding: chunked", body=b"1\r\nx\r\n")
    assert await peer.body(6) == b"1\r\nx\r\n"
    peer.send(OK + b"Content-Length: 2\r\n\r\nok")
    assert (await client.response()).body == b"ok"
    assert await peer.gone(PATIENCE_S) == b""
    assert await client.closed() == b""


async def test_an_event_stream_before_the_upload_ends(here: Lab) -> None:
    """Answer and upload go on side by side, each as it comes."""
    client, peer = await begun(here, "/mcp", "Content-Length: 4", body=b"ab")
    assert await peer.body(2) == b"ab"
    peer.send(SSE + b"9\r\ndata: 1\n\n\r\n")
    head = await client.head()
    assert await client.chunk() == b"data: 1\n\n"
    client.send(b"cd")
    assert await peer.body(2) == b"cd"
    peer.send(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
    assert await client.body(head) == (b"data: 2\n\n", End.CLEAN)


async def test_a_reset_during_the_upload(here: Lab) -> None:
    """An upstream that resets an upload which it has not answered is a 502."""
    client, peer = await begun(here, "/mcp", "Content-Length: 100000", body=b"x" * 1000)
    peer.reset()
    response = await client.response()
    assert (response.status, b'"forkwatch:upstream-reset"' in response.body) == (502, True)


# Expect: 100-continue.


async def test_an_expectation_that_is_ignored(here: Lab) -> None:
    """Nobody says 100: the client sends after its own patience, and is served."""
    client, peer = await begun(here, "/mcp", "Content-Length: 4", "Expect: 100-continue")
    client.send(b"body")
    assert await peer.body(4) == b"body"
    peer.send(OK + b"Content-Length: 2\r\n\r\nok")
    assert (await client.response()).body == b"ok"
    assert client.interim == []


async def test_an_expectation_that_is_refused_costs_the_connections(here: Lab) -> None:
    """A body that was held back is never taken for the next request, on either side."""
    client, peer = await begun(here, "/kept", "Content-Length: 40", "Expect: 100-continue")
    peer.send(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")
    assert (await client.response()).status == 417
    client.send(b"GET /kept/second HTTP/1.1\r\nHost: a\r\n\r\n" + b"x" * 40)
    assert b"GET" not in await peer.gone(PATIENCE_S)
    _, response = await here.exchange("GET /kept", answer=OK + b"Content-Length: 2\r\n\r\nok")
    assert response.body == b"ok"


# Large, and read for ids.


async def test_a_body_of_100_megabytes(here: Lab) -> None:
    """A JSON body beyond the inspection limit passes unchanged; only the limit's worth of it is kept."""
    begin, piece = b'{"jsonrpc":"2.0","id":1,"method":"a","params":"', b"p" * MIB
    client, peer = await begun(here, "/mcp", f"Content-Length: {len(begin) + 100 * MIB}", body=begin)
    with grows_less_than(LARGE_BYTES, here):

        async def upload() -> None:
            for _ in range(100):
                client.send(piece)
                await client.writer.drain()

        uploading = asyncio.create_task(upload())
        assert await peer.body(len(begin)) == begin
        async with asyncio.timeout(6 * PATIENCE_S):
            for _ in range(100):
                assert await peer.reader.readexactly(MIB) == piece
        await uploading
    peer.send(OK + b"Content-Length: 2\r\n\r\nok")
    assert (await client.response()).body == b"ok"


# Held back while its session is cut.


def of(session: str) -> tuple[str, str]:
    """The fields of a request in a session."""
    return f"Mcp-Session-Id: {session}", "Accept: application/json, text/event-stream"


def call(request: int, size: int = 0) -> bytes:
    """A tool call with `size` bytes of arguments."""
    params = {"name": "work", "arguments": {"text": "t" * size}}
    return json.dumps({"jsonrpc": "2.0", "id": request, "method": "tools/call", "params": params}).encode()


def framed(*frames: bytes) -> bytes:
    """Each frame as one chunk."""
    return b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames)


async def show(here: Lab, session: str) -> None:
    """A session whose stream has shown three ids and was lost, its call unanswered."""
    body = call(10)
    client, peer = await begun(here, "/enforce", *of(session), f"Content-Length: {len(body)}", body=body)
    assert await peer.body(len(body)) == body
    peer.send(SSE)
    await client.head()
    for frame in (priming(1), event(2), event(3)):
        peer.send(framed(frame))
        assert await client.chunk() == frame
    peer.reset()
    await client.closed()


async def fork(here: Lab, session: str) -> tuple[Client, Head]:
    """The stream is resumed, and the upstream shows another log: the session is cut."""
    client, peer, head = await here.opened("GET /enforce", *of(session), "Last-Event-ID: 3")
    peer.send(framed(event(1, "another log")))
    return client, head


@pytest.mark.parametrize("size", [1_900_000, 4 * MIB], ids=["read", "too large"])
async def test_an_upload_that_is_held_back_when_its_session_is_cut(
    here: Lab, unix: Upstream, size: int
) -> None:
    """It goes on to where its id is known, and is answered: under its id, or as a session that is gone."""
    session, body = f"cut-{size}", call(11, size)
    counters = await Counters.since_now(here.proxy)
    async with Lab(here.proxy, unix).for_one_test() as lab:
        await show(lab, session)
        client, peer = await begun(lab, "/enforce", *of(session), f"Content-Length: {len(body)}")
        client.send(body)
        await held_back(lab, client)
        resumed, head = await fork(lab, session)
        assert b'"id":10,"error"' in (await resumed.body(head))[0]
        assert await counters.grown("quarantines_total", upstream="enforce") == 1
        response = await client.response()
        assert len(await peer.gone(PATIENCE_S)) < len(body)
    told = json.loads(response.body)
    if size < INSPECTED:
        assert (response.status, told["id"], told["error"]["code"]) == (200, 11, -32600)
    else:
        assert (response.status, told["id"], told["error"]["code"]) == (404, None, -32001)
