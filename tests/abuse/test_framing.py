"""Requests that two readers may take for different things: refused, or sent on in one clear framing.

After each comes another request in the same write. The upstream must see it only where the client clearly
sent it, and never as a part of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.abuse.framings import CHUNKED, EMPTY_CHUNKED, GET, LAST_REQUESTS, PASSED, REFUSED, SECOND
from tests.abuse.process import abused
from tests.abuse.witness import Witness
from tests.scripted_upstream import OK, PATIENCE_S, Peer, Upstream
from tests.wire import Client, End, Head, Lab, entry

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER = OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Lab, Witness]]:
    """The proxy of all these tests, which adds no field."""
    directory = tmp_path_factory.mktemp("framing")

    def entries(upstream: Upstream) -> list[dict[str, object]]:
        return [entry("all", upstream, match={"path": "/"}, forwarded="none")]

    async with abused(directory, entries) as made:
        yield made


async def all_of(peer: Peer) -> bytes:
    """What one connection to the upstream carries: its first request is answered, then it ends."""
    head = await peer.head()
    body = await body_of(peer, Head.parse(head))
    peer.send(ANSWER)
    return head + body + await peer.gone(PATIENCE_S)


async def body_of(peer: Peer, head: Head) -> bytes:
    """The request body as it is on the wire, by the framing its head declares."""
    length = head.one(b"Content-Length")
    if length is not None:
        assert head.one(b"Transfer-Encoding") is None
        return await peer.body(int(length))
    if head.one(b"Transfer-Encoding") is None:
        return b""
    wire = b""
    async with asyncio.timeout(PATIENCE_S):
        while not wire.endswith(b"0\r\n\r\n"):
            line = await peer.reader.readuntil(b"\r\n")
            wire += line + await peer.reader.readexactly(int(line, 16) + 2)
    return wire


async def nothing_more_goes_upstream(here: Lab) -> None:
    """The upstream's next connection is that of a request made now: none was made for what came before."""
    client = await here.client()
    client.send(b"GET /fence HTTP/1.1\r\nHost: fence\r\n\r\n")
    peer = await here.upstream.accepted()
    assert await all_of(peer) == b"GET /fence HTTP/1.1\r\nHost: fence\r\n\r\n"
    assert here.upstream.queue.empty()


async def refused(client: Client) -> None:
    """The client's next answer is a 400 problem, and the end of the connection."""
    response = await client.response()
    assert (response.status, response.end) == (400, End.CLEAN)
    assert response.head.one(b"Content-Type") == b"application/problem+json"
    assert b'"forkwatch:bad-request"' in response.body
    assert await client.closed() == b""


@pytest.mark.parametrize("raw", REFUSED.values(), ids=REFUSED)
async def test_what_is_refused(here: Lab, raw: bytes) -> None:
    """The client gets one 400 and the end; neither this request nor what follows it goes upstream."""
    client = await here.client()
    client.send(raw + SECOND)
    await refused(client)
    await nothing_more_goes_upstream(here)


@pytest.mark.parametrize(("raw", "forwarded"), PASSED.values(), ids=PASSED)
async def test_what_is_passed_on(here: Lab, raw: bytes, forwarded: bytes) -> None:
    """The upstream sees this request in one clear framing, then the next one, each once."""
    client = await here.client()
    client.send(raw + SECOND)
    for expected in (forwarded, SECOND):
        assert await all_of(await here.upstream.accepted()) == expected
        assert (await client.response()).body == b"ok"
    await nothing_more_goes_upstream(here)


@pytest.mark.parametrize("later", [False, True], ids=["in the same write", "later"])
async def test_a_trailer_is_no_field_of_the_next_request(here: Lab, later: bool) -> None:
    """What a client says after a chunked body is not said of what it asks next."""
    client = await here.client()
    chunked = CHUNKED + b"0\r\nX: a\r\nAuthorization: Bearer of-somebody-else\r\n\r\n"
    client.send(chunked if later else chunked + SECOND)
    assert await all_of(await here.upstream.accepted()) == EMPTY_CHUNKED
    assert (await client.response()).body == b"ok"
    if later:
        client.send(SECOND)
    assert await all_of(await here.upstream.accepted()) == SECOND
    assert (await client.response()).body == b"ok"
    await nothing_more_goes_upstream(here)


@pytest.mark.parametrize(("raw", "forwarded"), LAST_REQUESTS.values(), ids=LAST_REQUESTS)
async def test_what_follows_a_last_request(here: Lab, raw: bytes, forwarded: bytes) -> None:
    """The last request is served; what came with it is not, and the connection ends."""
    client = await here.client()
    client.send(raw + SECOND)
    assert await all_of(await here.upstream.accepted()) == forwarded
    assert (await client.response()).body == b"ok"
    assert await client.closed() == b""
    await nothing_more_goes_upstream(here)


@pytest.mark.parametrize(
    "second",
    [
        b"GET /second HTTP/1.1\r\nHost : b\r\n\r\n",
        b"POST /second HTTP/1.1\r\nHost: b\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /second HTTP/2.0\r\nHost: b\r\n\r\n",
        b"\0",
    ],
)
async def test_what_is_no_request_after_one_that_is(here: Lab, second: bytes) -> None:
    """The first is answered, the second does not go upstream, and the connection ends."""
    client = await here.client()
    client.send(GET + b"\r\n" + second + SECOND)
    assert await all_of(await here.upstream.accepted()) == GET + b"\r\n"
    assert (await client.response()).body == b"ok"
    assert b" 200 " not in await client.closed()
    await nothing_more_goes_upstream(here)


async def test_a_second_request_after_the_last(here: Lab) -> None:
    """What a client sends after `Connection: close`, while it is answered, is not even read."""
    client = await here.client()
    client.send(GET + b"Connection: close\r\n\r\n")
    peer = await here.upstream.accepted()
    await peer.head()
    client.send(SECOND)
    peer.send(ANSWER)
    assert (await client.response()).body == b"ok"
    assert await client.closed() == b""
    await nothing_more_goes_upstream(here)


async def test_the_largest_chunk(here: Lab) -> None:
    """A chunk of 2**64 - 1 bytes is an upload that never ends: what follows is its data, framed anew."""
    client = await here.client()
    client.send(CHUNKED + b"ffffffffffffffff\r\n" + SECOND)
    peer = await here.upstream.accepted()
    assert await peer.head() == CHUNKED
    chunk = b"%x\r\n%b\r\n" % (len(SECOND), SECOND)
    assert await peer.body(len(chunk)) == chunk
    client.leave()
    assert await peer.gone(PATIENCE_S) == b""
    await nothing_more_goes_upstream(here)


async def test_a_tunnel_is_not_opened(here: Lab) -> None:
    """An upgrade that the upstream grants unasked is a 502: no byte of another protocol passes."""
    client = await here.client()
    client.request("GET /mcp", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: a")
    peer = await here.upstream.accepted()
    assert b"Upgrade" not in await peer.head()
    peer.send(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x00"
    )
    response = await client.response()
    assert (response.status, b'"forkwatch:upstream-malformed"' in response.body) == (502, True)
    assert await client.closed() == b""
