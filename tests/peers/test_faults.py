"""What goes wrong silently with real servers: status 200, well-formed events; the proxy tells."""

from __future__ import annotations

import asyncio

from tests.peers.conftest import Serve, Watch
from tests.peers.session import Session, Stream

RETRY_S = 0.5


async def test_a_session_that_survives_a_crash_in_name_only_is_a_fork(serve: Serve, watch: Watch) -> None:
    """A server that adopts unknown session ids numbers from one again after kill -9: the resume is a fork."""
    server = await serve("py1-resurrect-int")
    watched = await watch(server)
    async with Session.open(watched.url) as session:
        stream = await session.listen()
        await (await session.call(1, "poke", n=4)).until_text("poked")
        seen = await stream.until_text("g3")
        cursor = next(frame.id for frame in seen if frame.text == "g1")
        assert cursor is not None
        server.kill()
        assert await stream.ending() == "aborted"
        await server.start()
        # The reborn log grows past the cursor before the client is back: the numbers fit, the events do not.
        await (await session.call(2, "poke", n=8, tag="reborn")).until_text("poked")
        resumed = await session.resume(cursor)
        await resumed.until_text("reborn7")
        resumed.drop()
    assert await watched.verdicts() == {("fork", "content_diverged", "proven"): 1}


async def test_a_replay_of_every_stream_is_crossed(serve: Serve, watch: Watch) -> None:
    """server-everything replays all that the session emitted after the cursor, also another call's answer."""
    watched = await watch(await serve("everything"))
    async with Session.open(watched.url) as session:
        stream = await session.call(1, "trigger-long-running-operation", duration=2, steps=4)
        first = await _next_message(stream)
        stream.drop()
        other = await session.call(2, "echo", message="not yours")
        await other.until_text("Echo: not yours")
        resumed = await session.resume(first)
        await resumed.until_text("Echo: not yours")
        resumed.drop()
    assert await watched.verdicts() == {("crossed", "other_stream", "proven"): 1}


async def test_another_sessions_events_are_crossed(serve: Serve, watch: Watch) -> None:
    """The Python SDK keys streams by JSON-RPC id alone: sessions that use one id get each other's events."""
    watched = await watch(await serve("py1-uuid"))
    async with Session.open(watched.url) as mine, Session.open(watched.url) as theirs:
        stream = await mine.call(7, "count", n=2, tag="mine", ms=1500)
        cursor = (await stream.until_text("mine0"))[-1].id
        assert cursor is not None
        stream.drop()
        leak = await theirs.call(7, "count", n=2, tag="theirs", ms=50)
        await leak.until_text("done theirs 2")
        await asyncio.sleep(RETRY_S)
        resumed = await mine.resume(cursor)
        await resumed.until_text("done theirs 2")
        resumed.drop()
    assert await watched.verdicts() == {("crossed", "other_session", "proven"): 1}


async def _next_message(stream: Stream) -> str:
    """The id of the first message frame that comes."""
    while (frame := await stream.next()) is not None:
        if frame.payload is not None and frame.id is not None:
            return frame.id
    raise AssertionError("the stream ended before a message")
