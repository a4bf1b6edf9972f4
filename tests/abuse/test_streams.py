"""What one stream may carry: lines and ids without end, and as many of them as there is time for.

The figures are what the whole process grows by.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.abuse.process import MIB, abused, gauge, grows_less_than, logged
from tests.abuse.witness import Witness
from tests.forkwatch_process import Counters
from tests.scripted_upstream import Peer, Upstream
from tests.wire import LAST, SSE, Client, End, Head, Lab, entry

pytestmark = pytest.mark.asyncio(loop_scope="module")

STREAM_ROOM = 12 * MIB
"""What one stream may cost whatever it carries: the frame held at the gate (1 MiB), and a few reads."""
LINE_BYTES = 64 * MIB
LOG_LINE_BYTES = 4096
OWNERS_BYTES = 8 * (65_536 + 32_768)
"""Of an upstream's table of who showed an id last: both generations, after 50,000 ids."""
WINDOW_BYTES = 64 * 1024
"""More than the ledger counts for one stream with all its remembered ids."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Lab, Witness]]:
    """The proxy of all these tests."""

    def entries(upstream: Upstream) -> list[dict[str, Any]]:
        return [entry("mcp", upstream), entry("enforce", upstream, mode="enforce")]

    async with abused(tmp_path_factory.mktemp("streams"), entries) as made:
        yield made


async def sent(peer: Peer, body: bytes) -> None:
    """The upstream sends `body` in chunks as fast as it is taken, and its end."""
    for at in range(0, len(body), 64 * 1024):
        piece = body[at : at + 64 * 1024]
        peer.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        await peer.writer.drain()
    peer.send(LAST)


async def test_a_flood_of_ids(here: Lab) -> None:
    """A stream of 50,000 ids at once passes byte for byte; little of it is remembered, nobody waits for it."""
    client, peer, head = await here.opened("GET /mcp", "Mcp-Session-Id: ids")
    before = await gauge(here.proxy, "ledger_bytes")
    events = b"".join(b'id: %d\ndata: {"jsonrpc":"2.0","method":"a"}\n\n' % n for n in range(50_000))
    with grows_less_than(STREAM_ROOM, here):
        sending = asyncio.create_task(sent(peer, events))
        assert await client.body(head) == (events, End.CLEAN)
        await sending
    assert await gauge(here.proxy, "ledger_bytes") - before < WINDOW_BYTES + OWNERS_BYTES


async def test_a_line_of_64_mebibytes(here: Lab) -> None:
    """An event that never ends passes as it comes, in constant memory."""
    client, peer, head = await here.opened("GET /mcp", "Mcp-Session-Id: line")
    with grows_less_than(STREAM_ROOM, here):
        await pass_through(client, peer, head, b"data: ")


async def test_a_line_of_64_mebibytes_that_is_to_be_judged(here: Lab) -> None:
    """Where the first frame of a resume is held back, it is up to `gate_bytes` of it."""
    client, peer, head = await here.opened("GET /enforce", "Mcp-Session-Id: gate")
    peer.send(b"10\r\nid: 1\ndata: {}\n\n\r\n" + LAST)
    assert await client.body(head) == (b"id: 1\ndata: {}\n\n", End.CLEAN)
    client, peer, head = await here.opened("GET /enforce", "Mcp-Session-Id: gate", "Last-Event-ID: 1")
    with grows_less_than(STREAM_ROOM, here):
        await pass_through(client, peer, head, b"id: 2\ndata: ")


async def pass_through(client: Client, peer: Peer, head: Head, begin: bytes) -> None:
    """`LINE_BYTES` of one line, after `begin`, reach the client unchanged."""
    line = begin + b"z" * (LINE_BYTES - len(begin))
    sending = asyncio.create_task(sent(peer, line))
    body, end = await client.body(head)
    await sending
    assert (body == line, end) == (True, End.CLEAN)


async def test_ids_of_a_mebibyte(here: Lab) -> None:
    """They pass, are counted as malformed, and are kept nowhere."""
    counters = await Counters.since_now(here.proxy)
    client, peer, head = await here.opened("GET /mcp", "Mcp-Session-Id: long")
    event = b"id: " + b"7" * MIB + b"\ndata: {}\n\n"
    with grows_less_than(STREAM_ROOM, here):
        sending = asyncio.create_task(sent(peer, event * 16))
        body, end = await client.body(head)
        await sending
    assert (body == event * 16, end) == (True, End.CLEAN)
    await counters.reached("sse_parse_errors_total", 16, upstream="mcp")


async def test_cursors_of_60_kilobytes(here: Lab) -> None:
    """They go upstream as they are, the resume gets its verdict, and no log line becomes long of it."""
    counters = await Counters.since_now(here.proxy)
    with grows_less_than(STREAM_ROOM, here):
        for n in range(20):
            cursor = f"{n}" + "7" * 60_000
            fields = ("Mcp-Session-Id: cursor", f"Last-Event-ID: {cursor}")
            head, _ = await here.exchange(
                "GET /mcp", *fields, answer=SSE + b"10\r\nid: 1\ndata: {}\n\n\r\n" + LAST
            )
            assert head.one(b"Last-Event-ID") == cursor.encode()
    assert sum((await counters.settled()).values()) == 20
    judged = await logged(here.proxy, "resume.judged", "mcp")
    assert max(len(str(line)) for line in judged) < LOG_LINE_BYTES
