"""Upstreams that answer with what is no answer, too much of one, or two: nobody but their client is concerned."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.abuse.process import MIB, abused, grows_less_than
from tests.abuse.witness import Witness
from tests.forkwatch_process import Counters
from tests.scripted_upstream import OK, PATIENCE_S, Peer, Upstream
from tests.wire import LAST, SSE, Client, End, Head, Lab, entry

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEADERS_S = 0.4
DRIBBLE_S = 0.02
HEAD_BYTES = 6 * MIB
"""What an endless head may cost: 64 KiB and a read of 128 KiB are 32,768 of the smallest fields, at 170 bytes each."""
MAX_INTERIM = 16
FIRST = b"9\r\ndata: 1\n\n\r\n"
EVIL = OK + b"Content-Length: 4\r\n\r\nevil"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Lab, Witness]]:
    """The proxy of all these tests: an upstream with new connections, with kept ones, and with a limit."""

    def entries(upstream: Upstream) -> list[dict[str, Any]]:
        return [
            entry("mcp", upstream),
            entry("kept", upstream, timeouts={"upstream_keepalive": "60s"}),
            entry("slow", upstream, timeouts={"headers": f"{HEADERS_S}s"}),
        ]

    async with abused(tmp_path_factory.mktemp("answers"), entries) as made:
        yield made


async def asked(here: Lab, line: str) -> tuple[Client, Peer]:
    """A request that the upstream has and has not answered."""
    client = await here.client()
    client.request(line)
    peer = await here.upstream.accepted()
    await peer.head()
    return client, peer


async def problem(client: Client, status: int, kind: str) -> None:
    """The client gets this problem, whole, and then the end of the connection."""
    response = await client.response()
    assert (response.status, response.end) == (status, End.CLEAN)
    assert f'"forkwatch:{kind}"'.encode() in response.body
    assert await client.closed() == b""


async def another_is_served(here: Lab, client: Client, path: str = "/kept") -> None:
    """The client's next request gets its own answer, over another connection to the upstream."""
    client.request(f"GET {path}")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(OK + b"Connection: close\r\nContent-Length: 4\r\n\r\ngood")
    assert (await client.response()).body == b"good"


# Heads.

NO_HEADS = {
    "CR in a value": OK + b"X: a\rSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
    "LF in a value": OK + b"X: a\nSet-Cookie: b\r\nContent-Length: 0\r\n\r\n",
    "CR at the end of a value": OK + b"X: a\r\r\nContent-Length: 0\r\n\r\n",
    "NUL in a value": OK + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "CR in the reason": b"HTTP/1.1 200 O\rK\r\nContent-Length: 0\r\n\r\n",
    "LF in the reason": b"HTTP/1.1 200 O\nX: K\r\nContent-Length: 0\r\n\r\n",
    "CR in an interim head": b"HTTP/1.1 103 E\r\nX: a\rY: b\r\n\r\n" + EVIL,
    "space in a name": OK + b"X Y: a\r\nContent-Length: 0\r\n\r\n",
    "no colon": OK + b"abc\r\nContent-Length: 0\r\n\r\n",
    "negative length": OK + b"Content-Length: -1\r\n\r\n",
    "signed length": OK + b"Content-Length: +1\r\n\r\na",
    "two numbers": OK + b"Content-Length: 1 1\r\n\r\na",
    "length overflow": OK + b"Content-Length: 18446744073709551617\r\n\r\na",
    "same length twice": OK + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\nevil",
    "chunked, length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "xchunked": OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "status of four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
    "no status": b"HTTP/1.1 OK\r\nContent-Length: 0\r\n\r\n",
    "version 1.2": b"HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "body alone": b"data: hello\n\n",
}


@pytest.mark.parametrize("answer", NO_HEADS.values(), ids=NO_HEADS)
async def test_what_is_no_head(here: Lab, answer: bytes) -> None:
    """It is a 502, none of it reaches the client, and its connection is used no more."""
    client, peer = await asked(here, "GET /kept")
    peer.send(answer)
    await problem(client, 502, "upstream-malformed")
    await peer.gone(PATIENCE_S)


async def test_a_flood_of_interim_heads(here: Lab) -> None:
    """Sixteen pass; the next makes it a 502."""
    client, peer = await asked(here, "GET /kept")
    peer.send((b"HTTP/1.1 103 Early Hints\r\nX: " + b"x" * 1000 + b"\r\n\r\n") * 1000)
    await problem(client, 502, "upstream-malformed")
    early = Head(b"HTTP/1.1 103 Early Hints", [(b"X", b"x" * 1000)])
    assert client.interim == [early] * MAX_INTERIM
    await peer.gone(PATIENCE_S)


@pytest.mark.parametrize(
    "piece",
    [b"X: " + b"x" * 60_000 + b"\r\n", b"X: x\r\n" * 10_000, b"x" * 60_000],
    ids=["long", "many", "one"],
)
async def test_a_head_of_100_megabytes(here: Lab, piece: bytes) -> None:
    """It is a 502 after 64 KiB; the rest is not read."""
    client, peer = await asked(here, "GET /mcp")
    with grows_less_than(HEAD_BYTES, here):
        peer.send(OK + b"X: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(100 * MIB // len(piece)):
                peer.send(piece)
                await peer.writer.drain()
            pytest.fail("the upstream could send all of it")
        await problem(client, 502, "upstream-malformed")


async def test_a_head_of_a_byte_at_a_time(here: Lab) -> None:
    """`timeouts.headers` is for the whole head, however diligently it comes."""
    client, peer = await asked(here, "GET /slow")

    async def dribble() -> None:
        for byte in OK + b"X: y\r\n" * 100:
            peer.send(bytes([byte]))
            await asyncio.sleep(DRIBBLE_S)

    dribbling = asyncio.create_task(dribble())
    await problem(client, 504, "upstream-timeout")
    dribbling.cancel()
    await peer.gone(PATIENCE_S)


# Bodies.

NO_CHUNKS = [
    b"zz\r\n",
    b"-1\r\na\r\n",
    b"+1\r\na\r\n",
    b" 1\r\na\r\n",
    b"0x1\r\na\r\n",
    b"1\na\n",
    b"1;\x01\r\na\r\n",
    b"10000000000000001\r\na\r\n",
    b"1\r\nab\r\n",
    b"\r\n",
    b"0\r\nno trailer\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n\r\n",
]


@pytest.mark.parametrize("broken", NO_CHUNKS)
async def test_broken_chunks(here: Lab, broken: bytes) -> None:
    """What came before them is delivered; then the client is cut off, and the upstream's connection closed."""
    counters = await Counters.since_now(here.proxy)
    client, peer, head = await here.opened("GET /kept", answer=SSE + FIRST)
    assert await client.chunk() == b"data: 1\n\n"
    peer.send(broken)
    body, end = await client.body(head)
    assert (body in (b"", b"a"), end) == (True, End.CUT)
    await peer.gone(PATIENCE_S)
    await counters.reached("upstream_errors_total", upstream="kept", reason="protocol")


async def test_a_length_without_end(here: Lab) -> None:
    """The largest length there is passes as it is, and the end that comes early is no clean one."""
    length = b"Content-Length: 18446744073709551615\r\n\r\n"
    client, peer, head = await here.opened("GET /kept", answer=OK + length + b"abc")
    assert head.one(b"Content-Length") == b"18446744073709551615"
    assert await client.exactly(3) == b"abc"
    peer.end()
    assert await client.body(head) == (b"", End.CUT)


BODILESS = {
    "HEAD": ("HEAD /kept", OK + b"Content-Length: 4\r\n\r\n"),
    "HEAD, chunked": ("HEAD /kept", OK + b"Transfer-Encoding: chunked\r\n\r\n"),
    "204": ("GET /kept", b"HTTP/1.1 204 No Content\r\n\r\n"),
    "204 with a length": ("GET /kept", b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n"),
    "304": ("GET /kept", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n"),
    "0": ("GET /kept", OK + b"Content-Length: 0\r\n\r\n"),
    "after its length": ("GET /kept", OK + b"Content-Length: 2\r\n\r\nok"),
    "after its last chunk": ("GET /kept", OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n" + LAST),
}


@pytest.mark.parametrize("surplus", [b"evil", EVIL], ids=["bytes", "an answer"])
@pytest.mark.parametrize(("line", "answer"), BODILESS.values(), ids=BODILESS)
async def test_more_than_an_answer(here: Lab, line: str, answer: bytes, surplus: bytes) -> None:
    """What follows a complete answer reaches nobody: its connection is closed, the next request gets its own."""
    client, peer = await asked(here, line)
    peer.send(answer + surplus)
    response = await client.response(of_head=line.startswith("HEAD"))
    assert (b"evil" in response.body, response.end) == (False, End.CLEAN)
    await another_is_served(here, client)
    await peer.gone(PATIENCE_S)


async def test_an_answer_before_the_next_request(here: Lab) -> None:
    """What an upstream sends on an idle connection is not taken for the answer to a request yet to come."""
    client, peer = await asked(here, "GET /kept")
    peer.send(OK + b"Content-Length: 2\r\n\r\nok")
    assert (await client.response()).body == b"ok"
    peer.send(EVIL)
    await another_is_served(here, client)
    assert await peer.gone(PATIENCE_S) == b""


async def test_an_encoded_stream_is_not_unpacked(here: Lab) -> None:
    """A few kilobytes that would become 32 MiB pass as they are, and the resume cannot be judged."""
    counters = await Counters.since_now(here.proxy)
    packed = gzip.compress(b"data: " + bytes(32 * MIB) + b"\n\n")
    encoded = OK + b"Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
    with grows_less_than(HEAD_BYTES, here):
        client, peer, head = await here.opened(
            "GET /mcp",
            "Mcp-Session-Id: packed",
            "Last-Event-ID: 1",
            answer=encoded + b"Content-Length: %d\r\n\r\n" % len(packed) + packed,
        )
        body, end = await client.body(head)
    assert (body == packed, end) == (True, End.CLEAN)
    await peer.gone(PATIENCE_S)
    assert await counters.settled() == {("unverifiable", "encoded", "suspected"): 1}
