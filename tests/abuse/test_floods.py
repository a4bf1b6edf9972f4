"""Far more of everything than anybody needs: what is kept of it is bounded, and everybody else is served.

The sizes are as large as proves the bound in a second or so each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.abuse.process import MIB, abused, gauge, grows_less_than
from tests.abuse.witness import Witness
from tests.forkwatch_process import POLL_S, Counters
from tests.scripted_upstream import GONE_S, OK, PATIENCE_S, Peer, Upstream
from tests.wire import LAST, SSE, End, Head, Lab, entry

pytestmark = pytest.mark.asyncio(loop_scope="module")

SESSIONS = 200
LEDGER_BYTES = 4 * MIB
CONNECTIONS = 150
LIMITS = {
    "sessions_per_upstream": SESSIONS,
    "ledger_bytes": "4MiB",
    "max_connections": CONNECTIONS,
}
LEDGER_ROOM = LEDGER_BYTES + 8 * MIB
"""What a full ledger may cost: what it accounts for, and what the allocator and the metrics add to it."""
REQUESTS_ROOM = 12 * MIB
"""What ten large batches, or a connection full of requests, may cost."""
MAX_IN_FLIGHT = 1024
EMPTY_ANSWER = OK + b"Content-Length: 0\r\n\r\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Lab, Witness]]:
    """The proxy of all these tests, with bounds that can be reached."""

    def entries(upstream: Upstream) -> list[dict[str, Any]]:
        kept = {"upstream_keepalive": "60s"}
        return [
            entry("mcp", upstream),
            entry("kept", upstream, timeouts=kept),
            entry("enforce", upstream, mode="enforce"),
        ]

    async with abused(tmp_path_factory.mktemp("floods"), entries, limits=LIMITS) as made:
        yield made


@contextlib.asynccontextmanager
async def answering(upstream: Upstream, answer: Callable[[Head], bytes]) -> AsyncIterator[None]:
    """Every request is answered, on whatever connection it comes."""

    async def serve(peer: Peer) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = Head.parse(await peer.reader.readuntil(b"\r\n\r\n"))
                await peer.reader.readexactly(int(head.one(b"Content-Length") or 0))
                peer.send(answer(head))

    async def accept() -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(serve(await upstream.queue.get()))

    accepting = asyncio.create_task(accept())
    try:
        yield
    finally:
        accepting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await accepting


def message(method: str, request: object, **params: object) -> bytes:
    """A JSON-RPC request."""
    return json.dumps({"jsonrpc": "2.0", "id": request, "method": method, "params": params}).encode()


# What the ledger keeps.


async def test_a_flood_of_sessions(here: Lab) -> None:
    """As many are known as the limit says, the newest ones; the rest is counted as evicted."""
    flood = 4 * SESSIONS
    counters = await Counters.since_now(here.proxy)
    numbers = iter(range(flood))
    body = message("initialize", 1, protocolVersion="2025-06-18")

    def mint(_: Head) -> bytes:
        return OK + b"Mcp-Session-Id: flood-%d\r\nContent-Length: 0\r\n\r\n" % next(numbers)

    client = await here.client()
    async with answering(here.upstream, mint):
        with grows_less_than(LEDGER_ROOM, here):
            for _ in range(flood):
                client.request("POST /kept", f"Content-Length: {len(body)}", body=body)
                await client.response()
    assert await gauge(here.proxy, "sessions", upstream="kept", state="active") == SESSIONS
    assert await counters.grown("sessions_opened_total", upstream="kept") == flood
    evicted = await counters.grown("sessions_closed_total", upstream="kept", reason="evicted")
    assert evicted == flood - SESSIONS
    assert await gauge(here.proxy, "ledger_bytes") <= LEDGER_BYTES


async def test_a_flood_of_sessions_with_long_names(here: Lab) -> None:
    """The names count: the sessions that are known take no more than the ledger may."""
    numbers = iter(range(SESSIONS))
    body = message("initialize", 1, protocolVersion="2025-06-18")

    def mint(_: Head) -> bytes:
        name = b"%d" % next(numbers) + b"n" * 50_000
        return OK + b"Mcp-Session-Id: " + name + b"\r\nContent-Length: 0\r\n\r\n"

    client = await here.client()
    async with answering(here.upstream, mint):
        with grows_less_than(LEDGER_ROOM, here):
            for _ in range(SESSIONS):
                client.request("POST /kept", f"Content-Length: {len(body)}", body=body)
                await client.response()
    assert await gauge(here.proxy, "ledger_bytes") <= LEDGER_BYTES


async def test_a_flood_of_streams_in_one_session(here: Lab) -> None:
    """Hundreds of streams come and go; of a session's, as many are kept as the limit says."""
    before = await gauge(here.proxy, "ledger_bytes")
    stream = SSE + b"10\r\nid: 1\ndata: {}\n\n\r\n" + LAST
    client = await here.client()
    async with answering(here.upstream, lambda _: stream):
        with grows_less_than(LEDGER_ROOM, here):
            for n in range(200):
                body = message("tools/call", n)
                client.request(
                    "POST /kept", "Mcp-Session-Id: streams", f"Content-Length: {len(body)}", body=body
                )
                assert (await client.response()).end is End.CLEAN
    assert await gauge(here.proxy, "ledger_bytes") - before < 256 * 1024


@pytest.mark.parametrize("fraction", [0, 0.5], ids=["integers", "floats"])
async def test_ten_thousand_requests_in_flight_in_one_session(here: Lab, fraction: float) -> None:
    """Ten batches of them are forwarded whole; the newest requests are remembered, and go with the session."""
    counters = await Counters.since_now(here.proxy)
    session = f"Mcp-Session-Id: batch-{fraction}"
    with grows_less_than(REQUESTS_ROOM, here):
        for first in range(0, 10_000, 1000):
            calls = [message("tools/call", n + fraction) for n in range(first, first + 1000)]
            body = b"[" + b",".join(calls) + b"]"
            client = await here.client()
            client.request("POST /mcp", session, f"Content-Length: {len(body)}", body=body)
            peer = await here.upstream.accepted()
            await peer.head()
            assert await peer.body(len(body)) == body
            peer.send(SSE)
            await client.head()
    assert await counters.grown("requests_in_flight", upstream="mcp") == MAX_IN_FLIGHT
    head, _ = await here.exchange("DELETE /mcp", session, answer=EMPTY_ANSWER)
    assert head.line.startswith(b"DELETE")
    assert await counters.grown("requests_in_flight", upstream="mcp") == 0


async def test_requests_with_ids_of_half_a_mebibyte(here: Lab) -> None:
    """What is kept to answer them counts in the ledger, and the session that holds too much is let go."""
    counters = await Counters.since_now(here.proxy)
    for n in range(12):
        body = message("tools/call", f"{n}" + "i" * (MIB // 2))
        client = await here.client()
        client.request("POST /mcp", "Mcp-Session-Id: ids", f"Content-Length: {len(body)}", body=body)
        peer = await here.upstream.accepted()
        await peer.head()
        assert await peer.body(len(body)) == body
        peer.send(SSE)
        await client.head()
    await counters.reached("sessions_closed_total", upstream="mcp", reason="evicted")
    async with asyncio.timeout(PATIENCE_S):
        while await gauge(here.proxy, "ledger_bytes") > LEDGER_BYTES:
            await asyncio.sleep(POLL_S)


# Heads and connections.


async def test_more_connections_than_allowed(here: Lab) -> None:
    """Each one above the limit is told 503 and closed; once some have left, others are served."""
    clients = [await here.client() for _ in range(2 * CONNECTIONS)]
    refused = clients[CONNECTIONS - 1 :]  # the witness has one
    for client in refused:
        response = await client.response()
        assert (response.status, b'"forkwatch:over-limit"' in response.body) == (503, True)
        assert await client.closed() == b""
    clients[0].request("GET /nowhere")
    assert (await clients[0].response()).status == 404
    clients[1].leave()
    await clients[1].writer.wait_closed()
    async with asyncio.timeout(PATIENCE_S):
        while not await served(here):
            pass


async def served(here: Lab) -> bool:
    """Whether a new connection is: the proxy may see another's end a little later."""
    client = await here.client()
    client.request("GET /nowhere")
    return (await client.response()).status == 404


async def test_a_hundred_heads_just_below_the_limit(here: Lab) -> None:
    """Unfinished heads cost about what has come of them."""
    with grows_less_than(100 * 256 * 1024, here):
        clients = [await here.client() for _ in range(100)]
        for client in clients:
            client.send(b"GET /mcp HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 60_000)
        clients[-1].send(b"\r\n\r\n")
        peer = await here.upstream.accepted()
        assert Head.parse(await peer.head()).one(b"X") == b"x" * 60_000


async def test_ten_thousand_fields(here: Lab) -> None:
    """Fields are not counted but weighed: so many small ones pass in their order."""
    fields = [f"{n % 10}: {n % 7}" for n in range(9_000)]
    for _ in range(3):
        head, response = await here.exchange("GET /mcp", *fields, answer=EMPTY_ANSWER)
        assert [f"{name.decode()}: {value.decode()}" for name, value in head.fields][1:9_001] == fields
        assert response.status == 200


async def test_a_query_of_60_kilobytes(here: Lab) -> None:
    """It goes upstream as it is, and not into the log."""
    target = "/mcp?" + "query=x&" * 7_500
    head, _ = await here.exchange(f"GET {target}", "Mcp-Session-Id: query", answer=SSE + LAST)
    assert head.line == f"GET {target} HTTP/1.1".encode()
    assert not any("query=x" in str(line) for line in here.proxy.log())


async def test_a_thousand_requests_at_once_on_one_connection(here: Lab) -> None:
    """While the first is answered the rest costs little, and none of it goes upstream."""
    request = b"GET /mcp HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 20_000 + b"\r\n\r\n"
    client = await here.client()
    with grows_less_than(REQUESTS_ROOM, here):
        client.send(request)
        peer = await here.upstream.accepted()
        await peer.head()
        client.send(request * 1000)
        peer.send(SSE + b"9\r\ndata: 1\n\n\r\n")
        await client.head()
        assert await client.chunk() == b"data: 1\n\n"
    client.reset()
    await peer.gone(PATIENCE_S)
    assert len(here.upstream.peers) == 1


async def test_leaving_with_requests_that_wait(here: Lab) -> None:
    """A client that leaves a silent stream is noticed at once, whatever it has asked for behind it."""
    client, peer, _ = await here.opened("GET /mcp")
    client.send(b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n" * 3)
    await client.writer.drain()
    client.leave()
    await peer.gone(GONE_S)
    assert len(here.upstream.peers) == 1
