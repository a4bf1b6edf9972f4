"""Heads through a real proxy process: what reaches the upstream and what comes back, field by field."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.scripted_upstream import EMPTY, OK, Upstream
from tests.wire import LAST, SSE, End, Head, Lab, entry, hang_up, lab

pytestmark = pytest.mark.asyncio(loop_scope="module")

FORWARDED = [
    (b"X-Forwarded-For", b"127.0.0.1"),
    (b"X-Forwarded-Proto", b"http"),
    (b"X-Forwarded-Host", b"proxy.test"),
]


def entries(upstream: Upstream) -> list[dict[str, Any]]:
    """One upstream under several names, each with a setting of its own."""
    return [
        entry("mcp", upstream),
        entry("stripped", upstream, strip_prefix=True),
        entry("rewritten", upstream, host_header="rewrite"),
        entry("plain", upstream, forwarded="none"),
        entry("hosted-a", upstream, match={"path": "/hosted", "host": "a.test"}, strip_prefix=True),
        entry("hosted", upstream, match={"path": "/hosted"}),
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """The proxy of all these tests."""
    async with lab(tmp_path_factory.mktemp("forward"), entries) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def here(process: Lab) -> AsyncIterator[Lab]:
    """It, for one test."""
    async with process.for_one_test() as found:
        yield found


async def test_request_head_is_as_sent(here: Lab) -> None:
    """Method, raw target, and the order, case, duplicates and bytes of fields go upstream unchanged."""
    target = "/mcp/%3A%41%2f;a='b'/../x//y?q=%20&&r=a+b|c"
    fields = [
        (b"x-One", b"1"),
        (b"X-DUP", b"a"),
        (b"last-event-id", b"7"),
        (b"x-dup", b"b"),
        (b"Authorization", b"Bearer t"),
        (b"Cookie", b"a=1; b=2"),
        (b"X-Utf8", "日本 é".encode()),
        (b"X-Empty", b""),
    ]
    sent = [f"{name.decode()}: {value.decode('latin-1')}" for name, value in fields]
    head, _ = await here.exchange(f"PROPFIND {target}", *sent, answer=EMPTY)
    assert head == Head(
        f"PROPFIND {target} HTTP/1.1".encode(), [(b"Host", b"proxy.test"), *fields, *FORWARDED]
    )


async def test_response_head_is_as_sent(here: Lab) -> None:
    """Status, reason phrase, and the order, case and duplicates of fields reach the client unchanged."""
    fields = [
        (b"x-One", b"1"),
        (b"Set-Cookie", b"a=1; Path=/"),
        (b"DATE", b"Sun, 06 Nov 1994 08:49:37 GMT"),
        (b"set-cookie", b"b=2"),
        (b"Server", b"scripted"),
        (b"X-Bytes", b"a\xff\xe9b"),
        (b"Mcp-Session-Id", b"s-1"),
        (b"content-LENGTH", b"2"),
    ]
    answer = b"HTTP/1.1 299 Quite \xe9 Fine\r\n" + b"".join(b"%b: %b\r\n" % f for f in fields) + b"\r\nhi"
    _, response = await here.exchange("GET /mcp", answer=answer)
    assert response.head == Head(b"HTTP/1.1 299 Quite \xe9 Fine", fields)
    assert (response.body, response.end) == (b"hi", End.CLEAN)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nnil",
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_errors_and_redirects_are_the_upstreams(here: Lab, answer: bytes) -> None:
    """A redirect is not followed, an error not replaced: the client gets every byte of it."""
    client = await here.client()
    client.request("POST /mcp", "Content-Length: 2", body=b"{}")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(answer)
    assert await client.exactly(len(answer)) == answer
    assert here.upstream.queue.empty()


async def test_hop_by_hop_fields_stay_on_their_hop(here: Lab) -> None:
    """Hop-by-hop fields, and those `Connection` names, are dropped both ways; the session's never are."""
    head, response = await here.exchange(
        "GET /mcp",
        "Connection: keep-alive, X-Mine, Mcp-Session-Id",
        "Keep-Alive: timeout=5",
        "X-Mine: 1",
        "TE: trailers",
        "Upgrade: h2c",
        "Proxy-Connection: keep-alive",
        "Mcp-Session-Id: s-1",
        "X-Kept: 1",
        answer=OK + b"Connection: X-Theirs, close\r\nX-Theirs: 1\r\nKeep-Alive: 5\r\nX-Kept: 2\r\n"
        b"Upgrade: h2c\r\nTrailer: X\r\nContent-Length: 0\r\n\r\n",
    )
    assert head.fields == [
        (b"Host", b"proxy.test"),
        (b"Mcp-Session-Id", b"s-1"),
        (b"X-Kept", b"1"),
        *FORWARDED,
    ]
    assert response.head.fields == [(b"X-Kept", b"2"), (b"Content-Length", b"0")]


@pytest.mark.parametrize(
    ("accept", "encoding"),
    [
        ("application/json, text/event-stream", [b"identity"]),
        ("text/event-stream;q=0.5", [b"identity"]),
        ("application/json", [b"gzip, br"]),
    ],
)
async def test_only_event_streams_are_asked_for_unencoded(
    here: Lab, accept: str, encoding: list[bytes]
) -> None:
    """`Accept-Encoding` becomes identity where an event stream is accepted, and only there."""
    fields = [f"Accept: {accept}", "Accept-Encoding: gzip, br"]
    head, _ = await here.exchange("GET /mcp", *fields, answer=EMPTY)
    assert head.all(b"Accept-Encoding") == encoding


async def test_an_encoded_answer_is_not_decoded(here: Lab) -> None:
    """A content coding passes as it is, field and bytes, also on an event stream."""
    for kind in (b"application/json", b"text/event-stream"):
        answer = (
            OK + b"Content-Type: %b\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\n\x1f\x8b\x08notgzip"
        )
        _, response = await here.exchange("GET /mcp", answer=answer[:-1] % kind)
        assert response.head.one(b"Content-Encoding") == b"gzip"
        assert response.body == b"\x1f\x8b\x08notgzi"


async def test_forwarded_fields_are_appended_to(here: Lab) -> None:
    """An `X-Forwarded-For` is appended to; a `-Proto` and a `-Host` that are there stay."""
    sent = ["X-Forwarded-For: 10.0.0.9", "X-Forwarded-Proto: https", "X-Forwarded-Host: outer.test"]
    head, _ = await here.exchange("GET /mcp", *sent, answer=EMPTY)
    assert head.fields[1:] == [
        (b"X-Forwarded-For", b"10.0.0.9, 127.0.0.1"),
        (b"X-Forwarded-Proto", b"https"),
        (b"X-Forwarded-Host", b"outer.test"),
    ]


async def test_forwarded_none(here: Lab) -> None:
    """With `forwarded: none` the upstream gets what the client sent and nothing else."""
    head, _ = await here.exchange("GET /plain", "X-Forwarded-For: 10.0.0.9", answer=EMPTY)
    assert head.fields == [(b"Host", b"proxy.test"), (b"X-Forwarded-For", b"10.0.0.9")]


async def test_host_header(here: Lab) -> None:
    """`preserve` sends the client's Host, `rewrite` the upstream's and forwards it apart."""
    address = here.upstream.address
    head, _ = await here.exchange("GET /rewritten", answer=EMPTY)
    assert head.fields[0] == (b"Host", f"127.0.0.1:{address.port}".encode())
    assert head.one(b"X-Forwarded-Host") == b"proxy.test"


@pytest.mark.parametrize(
    ("target", "upstream"),
    [
        ("/stripped", "/"),
        ("/stripped/", "/"),
        ("/stripped/a%2Fb?c=/stripped", "/a%2Fb?c=/stripped"),
        ("/stripped?x=1", "/?x=1"),
        ("/mcp/stripped", "/mcp/stripped"),
    ],
)
async def test_strip_prefix(here: Lab, target: str, upstream: str) -> None:
    """The prefix comes off the target's path and nothing else of it changes."""
    head, _ = await here.exchange(f"GET {target}", answer=EMPTY)
    assert head.line == f"GET {upstream} HTTP/1.1".encode()


@pytest.mark.parametrize(
    ("host", "target", "upstream"),
    [
        ("a.test", "/hosted/x", "/x"),
        ("A.TEST:8080", "/hosted/x", "/x"),
        ("b.test", "/hosted/x", "/hosted/x"),
    ],
)
async def test_the_first_match_takes_a_request(here: Lab, host: str, target: str, upstream: str) -> None:
    """Path and Host together choose the upstream; the first that matches takes the request."""
    client = await here.client()
    client.request(f"GET {target}", host=host)
    peer = await here.upstream.accepted()
    assert (await peer.head()).startswith(f"GET {upstream} HTTP/1.1\r\n".encode())


@pytest.mark.parametrize("target", ["/", "/mcps", "/other?x=/mcp", "/MCP"])
async def test_no_upstream_takes_it(here: Lab, target: str) -> None:
    """A path that no upstream has is a 404 problem, and nothing goes upstream."""
    client = await here.client()
    client.request(f"GET {target}")
    response = await client.response()
    assert (response.status, response.head.one(b"Content-Type")) == (404, b"application/problem+json")
    assert b'"forkwatch:no-upstream"' in response.body
    assert here.upstream.peers == []


async def test_large_fields_both_ways(here: Lab) -> None:
    """A field of 12 kB passes in either direction."""
    large = "x" * 12_000
    answer = OK + f"X-Large: {large}\r\nContent-Length: 0\r\n\r\n".encode()
    head, response = await here.exchange("GET /mcp", f"X-Large: {large}", answer=answer)
    assert (head.one(b"X-Large"), response.head.one(b"X-Large")) == (large.encode(), large.encode())


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("HEAD /mcp", OK + b"Content-Length: 5\r\n\r\n"),
        ("HEAD /mcp", OK + b"Content-Type: text/event-stream\r\nX-Accel-Buffering: no\r\n\r\n"),
        ("GET /mcp", b"HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n"),
        ("GET /mcp", b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 5\r\n\r\n'),
        ("DELETE /mcp", OK + b"Content-Length: 0\r\n\r\n"),
        ("POST /mcp", b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"),
    ],
)
async def test_answers_without_a_body(here: Lab, line: str, answer: bytes) -> None:
    """A bodiless answer keeps its fields, promises included, and the connection serves the next request."""
    client = await here.client()
    for _ in range(2):
        client.request(line, "Content-Length: 0")
        peer = await here.upstream.accepted()
        await peer.head()
        peer.send(answer)
        assert await client.exactly(len(answer)) == answer
        await hang_up(peer)


async def test_interim_answers(here: Lab) -> None:
    """1xx answers pass as they come, before the final one."""
    client = await here.client()
    client.request("GET /mcp")
    peer = await here.upstream.accepted()
    await peer.head()
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"
    peer.send(hint)
    assert await client.exactly(len(hint)) == hint
    peer.send(b"HTTP/1.1 102 Processing\r\n\r\n" + EMPTY)
    assert (await client.head()).status == 200
    assert [head.line for head in client.interim] == [b"HTTP/1.1 102 Processing"]


async def test_event_streams_ask_not_to_be_buffered(here: Lab) -> None:
    """`X-Accel-Buffering: no` is added to event streams that say nothing of it, and only there."""
    for kind, field, found in [
        (b"text/event-stream; charset=utf-8", b"", [b"no"]),
        (b"text/event-stream", b"x-accel-buffering: yes\r\n", [b"yes"]),
        (b"application/json", b"", []),
    ]:
        answer = OK + b"Content-Type: " + kind + b"\r\n" + field + b"Content-Length: 0\r\n\r\n"
        _, response = await here.exchange("GET /mcp", answer=answer)
        assert response.head.all(b"X-Accel-Buffering") == found


async def test_a_head_leaves_at_once(here: Lab) -> None:
    """The head of a silent stream reaches the client, and each frame before the next is sent."""
    client, peer, head = await here.opened("GET /mcp")
    assert head == Head.parse(SSE)
    for i in range(3):
        frame = b"id: %d\ndata: {}\n\n" % i
        peer.send(b"%x\r\n%b\r\n" % (len(frame), frame))
        assert await client.chunk() == frame
    peer.send(LAST)
    assert await client.chunk() == b""


async def test_trailers_are_dropped(here: Lab) -> None:
    """Chunk extensions and trailers belong to the hop; the body and its clean end pass."""
    answer = OK + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhi\r\n0\r\nX-T: 1\r\n\r\n"
    _, response = await here.exchange("GET /mcp", answer=answer)
    assert (response.body, response.end) == (b"hi", End.CLEAN)
    assert response.head.fields == [(b"Transfer-Encoding", b"chunked")]
