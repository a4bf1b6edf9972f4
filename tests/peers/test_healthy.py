"""Resumes that real servers answer well: every event comes once, in order, and the proxy raises no alarm."""

from __future__ import annotations

import asyncio

import pytest

from tests.peers.conftest import Serve, Watch
from tests.peers.session import Session

RETRY_S = 0.5
"""What these servers ask a client to wait before it comes back; sooner they may still hold the old stream."""

REPLAYED = {("resumed", "replayed", "proven"): 1}


COUNTING = {
    **dict.fromkeys(["py1-uuid", "py1-int", "py2-uuid", "py2-int", "fastmcp", "ts1"], "count"),
    "mcp-proxy": "steps",
}


@pytest.mark.parametrize(("name", "tool"), COUNTING.items(), ids=COUNTING)
async def test_a_dropped_call_resumes_where_it_was(name: str, tool: str, serve: Serve, watch: Watch) -> None:
    """A client that consumed two of six messages of a call, and saw three, gets the rest and the result."""
    watched = await watch(await serve(name))
    async with Session.open(watched.url) as session:
        stream = await session.call(
            1, tool, n=6, ms=200, tag="c"
        )  # so that the resume falls between two events
        seen = await stream.until_text("c2")
        stream.drop()
        cursor = next(frame.id for frame in seen if frame.text == "c1")
        assert cursor is not None
        await asyncio.sleep(RETRY_S)
        resumed = await session.resume(cursor)
        rest = await resumed.until_text("done c 6")
        resumed.drop()
        await session.end()
    texts = [frame.text for frame in rest if frame.text is not None]
    assert texts == [f"c{i}" for i in range(2, 6)] + ["done c 6"]
    assert await watched.verdicts() == REPLAYED


@pytest.mark.parametrize("name", ["py1-uuid", "py1-int", "py2-uuid", "py2-int", "fastmcp", "mcp-proxy"])
async def test_a_dropped_standalone_stream_resumes_where_it_was(
    name: str, serve: Serve, watch: Watch
) -> None:
    """Notifications seen but not consumed, and those sent while nobody listened, come after the cursor."""
    watched = await watch(await serve(name))
    async with Session.open(watched.url) as session:
        stream = await session.listen()
        await (await session.call(1, "poke", n=2)).until_text("poked")
        seen = await stream.until_text("g1")
        stream.drop()
        cursor = next(frame.id for frame in seen if frame.text == "g0")
        assert cursor is not None
        await asyncio.sleep(RETRY_S)
        await (await session.call(2, "poke", n=1, tag="away")).until_text("poked")
        resumed = await session.resume(cursor)
        rest = await resumed.until_text("away0")
        resumed.drop()
        await session.end()
    assert [frame.text for frame in rest if frame.text is not None] == ["g1", "away0"]
    assert await watched.verdicts() == REPLAYED


@pytest.mark.parametrize("name", ["py1-int", "py2-uuid", "fastmcp", "ts1"])
async def test_a_server_that_closes_on_purpose_is_polled(name: str, serve: Serve, watch: Watch) -> None:
    """A stream that the server ended in order to be polled goes on with the next id and the result."""
    watched = await watch(await serve(name))
    async with Session.open(watched.url) as session:
        stream = await session.call(1, "poll")
        seen = await stream.until_text("before-close")
        assert await stream.next() is None
        cursor = seen[-1].id
        assert cursor is not None
        await asyncio.sleep(RETRY_S)
        resumed = await session.resume(cursor)
        rest = await resumed.until_text("polled")
        resumed.drop()
        await session.end()
    assert [frame.text for frame in rest if frame.text is not None] == ["while-away", "polled"]
    given = await watched.verdicts()
    assert sum(given.values()) == 1
    assert not await watched.alarms()
