"""How an exchange ends through a real proxy process: who left, who broke off, who was never there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.forkwatch_process import Counters, free_port
from tests.scripted_upstream import EMPTY, GONE_S, OK, PATIENCE_S, Peer, Upstream
from tests.wire import LAST, SSE, Client, End, Head, Lab, entry, lab

pytestmark = pytest.mark.asyncio(loop_scope="module")

HALF = b"id: 1\ndata: half a fra"


def entries(upstream: Upstream) -> list[dict[str, Any]]:
    """The upstream without and with kept connections and limits, and one that is not there."""
    return [
        entry("mcp", upstream),
        entry("kept", upstream, timeouts={"upstream_keepalive": "60s"}),
        entry("slow", upstream, timeouts={"headers": "100ms"}),
        entry("idle", upstream, timeouts={"body_idle": "100ms"}),
        entry("down", f"http://127.0.0.1:{free_port()}"),
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """The proxy of all these tests."""
    async with lab(tmp_path_factory.mktemp("endings"), entries) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def here(process: Lab) -> AsyncIterator[Lab]:
    """It, for one test."""
    async with process.for_one_test() as found:
        yield found


# The client leaves.


def leave(client: Client, how: str) -> None:
    """The client closes or resets."""
    if how == "close":
        client.leave()
    else:
        client.reset()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_leaving_a_stream(here: Lab, how: str) -> None:
    """A client that leaves a silent stream is a cancelled request at once."""
    counters = await Counters.since_now(here.proxy)
    client, peer, _ = await here.opened("GET /mcp")
    leave(client, how)
    await peer.gone(GONE_S)
    await counters.reached("streams_closed_total", cause="client_closed")


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_leaving_before_the_head(here: Lab, how: str) -> None:
    """A client that waits for an answer no more is a cancelled request at once."""
    client = await here.client()
    client.request("POST /mcp", "Content-Length: 2", body=b"{}")
    peer = await here.upstream.accepted()
    await peer.head()
    leave(client, how)
    assert await peer.gone(GONE_S) == b"{}"


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("framing", ["Content-Length: 1000000", "Transfer-Encoding: chunked"])
async def test_leaving_an_upload(here: Lab, framing: str, how: str) -> None:
    """A client that leaves in its upload is a cancelled request at once, never a completed one."""
    client = await here.client()
    client.request("POST /mcp", framing, body=b"5\r\nhello\r\n")
    peer = await here.upstream.accepted()
    await peer.head()
    sent = await peer.body(10)
    leave(client, how)
    assert sent + await peer.gone(GONE_S) == b"5\r\nhello\r\n"


# The upstream breaks off.


def die(peer: Peer, how: str) -> None:
    """The upstream sends FIN or RST."""
    if how == "fin":
        peer.end()
    else:
        peer.reset()


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_dying_inside_a_frame(here: Lab, how: str) -> None:
    """An upstream that dies inside a frame: the client has each byte of it, and no clean end."""
    counters = await Counters.since_now(here.proxy)
    client, peer, _ = await here.opened("GET /mcp")
    peer.send(b"%x\r\n%b\r\n" % (len(HALF), HALF))
    assert await client.chunk() == HALF
    die(peer, how)
    assert await client.closed() == b""
    await counters.reached("findings_total", finding="frame_truncated")
    await counters.reached("streams_closed_total", cause="upstream_reset")


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_dying_inside_a_chunk(here: Lab, how: str) -> None:
    """What came of a chunk whose rest never comes is delivered before the abrupt end."""
    client, peer, _ = await here.opened("GET /mcp")
    peer.send(b"100\r\n" + HALF)
    assert await client.chunk() == HALF
    die(peer, how)
    assert await client.closed() == b""


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_dying_inside_a_promised_length(here: Lab, how: str) -> None:
    """An answer that falls short of its length is cut for the client as well."""
    client, peer, head = await here.opened("GET /mcp", answer=OK + b"Content-Length: 10\r\n\r\nabc")
    assert await client.exactly(3) == b"abc"
    die(peer, how)
    body, end = await client.body(head)
    assert (body, end is End.CLEAN) == (b"", False)


async def test_a_reset_is_no_end_of_a_body_without_framing(here: Lab) -> None:
    """Where EOF is the end, a reset is none, and the client is told so."""
    client, peer, head = await here.opened("GET /mcp", answer=OK + b"\r\nabc")
    assert await client.chunk() == b"abc"
    die(peer, "rst")
    assert await client.closed() == b""
    assert head.one(b"Transfer-Encoding") == b"chunked"


async def test_dying_with_a_large_backlog(here: Lab) -> None:
    """All that was sent before the end reaches a client that reads late."""
    client, peer, head = await here.opened("GET /mcp")
    data = b"d" * 1_000_000
    peer.send(b"%x\r\n%b\r\n" % (len(data), data))
    peer.end()
    body, end = await client.body(head)
    assert (body == data, end) == (True, End.CUT)


async def test_an_idle_body(here: Lab) -> None:
    """A configured `body_idle` ends a silent body, abruptly."""
    counters = await Counters.since_now(here.proxy)
    client, peer, _ = await here.opened("GET /idle")
    assert await client.closed() == b""
    await peer.gone(PATIENCE_S)
    await counters.reached("streams_closed_total", cause="upstream_idle")
    assert await counters.grown("upstream_errors_total", reason="idle_timeout") == 1


# No answer at all.


async def problem(client: Client, status: int, kind: str, *, of_head: bool = False) -> None:
    """The client gets this problem, whole, and then the end of the connection."""
    response = await client.response(of_head=of_head)
    assert (response.status, response.end) == (status, End.CLEAN)
    assert response.head.one(b"Content-Type") == b"application/problem+json"
    if not of_head:
        assert f'"forkwatch:{kind}"'.encode() in response.body
        assert b"127.0.0.1" not in response.body or kind == "upstream-unreachable"
    assert await client.closed() == b""


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "HEAD"])
async def test_unreachable(here: Lab, method: str) -> None:
    """Nobody listens: 502, counted and logged once."""
    counters = await Counters.since_now(here.proxy)
    client = await here.client()
    client.request(f"{method} /down", "Content-Length: 2", body=b"{}")
    await problem(client, 502, "upstream-unreachable", of_head=method == "HEAD")
    assert await counters.grown("upstream_errors_total", reason="connect") == 1
    [line] = [e for e in here.proxy.log() if e["event"] == "upstream.error" and e["method"] == method][-1:]
    assert (line["upstream"], line["reason"], line["status"]) == ("down", "connect", 502)


async def test_no_head_in_time(here: Lab) -> None:
    """No response head within the configured time: 504, and the upstream is let go."""
    client = await here.client()
    client.request("GET /slow")
    peer = await here.upstream.accepted()
    await peer.head()
    await problem(client, 504, "upstream-timeout")
    await peer.gone(PATIENCE_S)


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x00\xa5",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        OK + b"X-A : 1\r\n\r\n",
        OK + b"X-A: a\r\n b\r\n\r\n",
        OK + b"X-A: " + b"a" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_malformed_answer(here: Lab, answer: bytes) -> None:
    """An answer that is not acceptable HTTP/1.1 is a 502, and its connection is closed."""
    client = await here.client()
    client.request("GET /mcp")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(answer)
    await problem(client, 502, "upstream-malformed")
    await peer.gone(PATIENCE_S)


@pytest.mark.parametrize("how", ["fin", "rst"])
@pytest.mark.parametrize("path", ["/mcp", "/kept"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_request_is_sent_once(here: Lab, method: str, path: str, how: str) -> None:
    """The upstream hangs up before its head: 502, and no request is ever sent a second time."""
    client = await here.client()
    peer = None
    if path == "/kept":
        client.request(f"GET {path}")
        peer = await here.upstream.accepted()
        await peer.head()
        peer.send(EMPTY)
        await client.response()
    client.request(f"{method} {path}", "Content-Length: 2", body=b"{}")
    peer = peer or await here.upstream.accepted()
    assert (await peer.head()).startswith(method.encode())
    assert await peer.body(2) == b"{}"
    die(peer, how)
    await problem(client, 502, "upstream-reset")
    assert len(here.upstream.peers) == 1


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_a_kept_connection_that_the_upstream_closed(here: Lab, how: str) -> None:
    """A connection the upstream closed while it was idle is not used: the request goes out once, anew."""
    client = await here.client()
    client.request("GET /kept")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(EMPTY)
    assert (await client.response()).status == 200
    die(peer, how)
    assert await peer.gone(PATIENCE_S) == b""
    client.request("POST /kept", "Content-Length: 2", body=b"{}")
    second = await here.upstream.accepted()
    await second.head()
    assert await second.body(2) == b"{}"
    second.send(EMPTY)
    assert (await client.response()).status == 200


async def test_connections_are_kept_on_both_sides(here: Lab) -> None:
    """Requests of one client use one connection to it and one to the upstream."""
    client = await here.client()
    peer = None
    for method in ("GET", "POST", "DELETE"):
        client.request(f"{method} /kept", "Content-Length: 0")
        peer = peer or await here.upstream.accepted()
        assert (await peer.head()).startswith(method.encode())
        peer.send(SSE + LAST if method == "GET" else EMPTY)
        assert (await client.response()).end is End.CLEAN
    assert len(here.upstream.peers) == 1


# What the upstream sends is wrong, but only as an event stream.


@pytest.mark.parametrize("bad", [b"id: a\x00b\ndata: {}\n\n", b"id: " + b"i" * 100_000 + b"\ndata: {}\n\n"])
async def test_malformed_events_pass(here: Lab, bad: bytes) -> None:
    """An id that cannot be one is counted, and its bytes pass unchanged."""
    counters = await Counters.since_now(here.proxy)
    client, peer, head = await here.opened("GET /mcp", "Mcp-Session-Id: s-malformed")
    peer.send(b"%x\r\n%b\r\n" % (len(bad), bad) + LAST)
    assert await client.body(head) == (bad, End.CLEAN)
    await counters.reached("sse_parse_errors_total", upstream="mcp")


@pytest.mark.parametrize("noise", [b"\xff\xfe\x00\x01", b"data", b"\r\r\n\n:::\n\r\ndata\r", b"<html>\n\n"])
async def test_what_is_no_event_stream_passes(here: Lab, noise: bytes) -> None:
    """Bytes that mean nothing as events pass unchanged."""
    client, peer, head = await here.opened("GET /mcp", "Mcp-Session-Id: s-noise")
    peer.send(b"%x\r\n%b\r\n" % (len(noise), noise) + LAST)
    assert await client.body(head) == (noise, End.CLEAN)


@pytest.mark.parametrize(("cursor", "found"), [(b"caf\xc3\xa9", 0), (b"\xff\xfe", 1), (b"a\xe9", 1)])
async def test_a_cursor_no_field_can_carry(here: Lab, cursor: bytes, found: int) -> None:
    """A cursor goes upstream as its raw bytes; one that is not UTF-8, and many clients lose, is a finding."""
    counters = await Counters.since_now(here.proxy)
    client = await here.client()
    field = b"Last-Event-ID: " + cursor + b"\r\n"
    client.send(b"GET /mcp HTTP/1.1\r\nHost: a\r\nMcp-Session-Id: s-cursor\r\n" + field + b"\r\n")
    peer = await here.upstream.accepted()
    assert Head.parse(await peer.head()).one(b"Last-Event-ID") == cursor
    peer.send(EMPTY)
    await client.response()
    await counters.reached("resume_verdicts_total")
    assert await counters.grown("findings_total", finding="cursor_unrepresentable") == found
