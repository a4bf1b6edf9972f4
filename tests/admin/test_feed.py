"""The live tail: what arrives, what a reader who comes back gets, and what becomes of one who is slow."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.controls import Controls
from proxy.admin.feed import QUEUED, READERS, RECENT, Feed
from proxy.engine.privacy import hash_session
from tests.admin.operator import Operator, desk, entry
from tests.admin.parts import BOOT, controls, serving
from tests.scenarios.frames import event, result

VERDICT: dict[str, Any] = {"event": "resume.judged", "upstream": "tools", "session": "s_1", "verdict": "fork"}


def judged(of: Controls, session: str = "a", verdict: str = "fork", upstream: str = "tools") -> None:
    """A verdict is logged."""
    of.log.event("resume.judged", upstream=upstream, session=session, verdict=verdict)


def replayed(feed: Feed, last_event_id: str | None, **wanted: str) -> list[str]:
    """The ids that a reader gets as it joins."""
    reader = feed.join(wanted, last_event_id)
    assert reader is not None
    feed.leave(reader)
    frames = b"".join(feed.frames(reader)).decode()
    return [line.removeprefix("id: ") for line in frames.split("\n") if line.startswith("id: ")]


# The feed alone.


def test_a_frame() -> None:
    """An event under an id that names the process, with the line as it was logged."""
    feed = Feed(BOOT)
    feed.publish(VERDICT)
    reader = feed.join({}, None)
    assert reader is not None
    [frame] = feed.frames(reader)
    data = b'{"event":"resume.judged","upstream":"tools","session":"s_1","verdict":"fork"}'
    assert frame == b"id: b00t-1\nevent: resume.judged\ndata: " + data + b"\n\n"


def test_recent_verdicts() -> None:
    """Whoever comes later gets the last verdicts, so many and no more, and no other lines."""
    feed = Feed(BOOT)
    for _ in range(RECENT + 5):
        feed.publish(VERDICT)
        feed.publish({"event": "session.opened"})
    assert replayed(feed, None) == [f"{BOOT}-{n}" for n in range(6, RECENT + 6)]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, [1, 2, 3]),
        ("", [1, 2, 3]),
        (f"{BOOT}-0", [1, 2, 3]),
        (f"{BOOT}-1", [2, 3]),
        (f"{BOOT}-3", []),
        (f"{BOOT}-99", []),
        ("0ther-2", [1, 2, 3]),
        ("2", [1, 2, 3]),
        (f"{BOOT}-", [1, 2, 3]),
        (f"{BOOT}--2", [1, 2, 3]),
        (f"{BOOT}-x", [1, 2, 3]),
    ],
)
def test_what_follows_an_id(last: str | None, expected: list[int]) -> None:
    """Only what came after it, nothing twice; the id of another process, or of nobody, is none."""
    feed = Feed(BOOT)
    for _ in range(3):
        feed.publish(VERDICT)
    assert replayed(feed, last) == [f"{BOOT}-{n}" for n in expected]


def test_what_follows_an_id_is_filtered() -> None:
    """A filter holds for what is replayed."""
    feed = Feed(BOOT)
    for verdict in ("fork", "gap", "fork", "gap"):
        feed.publish({**VERDICT, "verdict": verdict})
    assert replayed(feed, f"{BOOT}-1", verdict="fork") == [f"{BOOT}-3"]
    assert replayed(feed, None, verdict="gap", upstream="tools") == [f"{BOOT}-2", f"{BOOT}-4"]
    assert replayed(feed, None, upstream="other") == []


def test_a_line_is_kept_as_it_was() -> None:
    """The renderer may empty the fields afterwards."""
    feed = Feed(BOOT)
    reader = feed.join({}, None)
    assert reader is not None
    fields = dict(VERDICT)
    feed.publish(fields)
    fields.clear()
    [(_, line)] = reader.take()
    assert line == VERDICT


# Over the wire.


async def test_events_arrive_as_they_are_logged(tmp_path: Path) -> None:
    """Every line, in order, once to each reader."""
    of = controls(tmp_path, "tools")
    async with serving(of, tmp_path) as operator:
        tails = [await operator.tail(), await operator.tail()]
        for number in range(3):
            of.log.event("session.opened", upstream="tools", session=f"{number}", protocol="other")
        judged(of, "a")
        for tail in tails:
            got = [await tail.event() for _ in range(4)]
            assert [each.id for each in got] == [f"{BOOT}-{n}" for n in (1, 2, 3, 4)]
            assert [each.event for each in got] == [*["session.opened"] * 3, "resume.judged"]
            assert got[3].data["session"] == hash_session("a")
            assert {"ts", "level", "event", "upstream", "session", "protocol"} == got[0].data.keys()


async def test_filters(tmp_path: Path) -> None:
    """Each of the four alone, and all of them together."""
    of = controls(tmp_path, "tools")
    async with serving(of, tmp_path) as operator:
        a = hash_session("a")
        queries = {
            "?event=session.opened": [1],
            "?upstream=other": [4],
            f"?session={a}": [1, 2, 4],
            "?verdict=gap": [3],
            f"?event=resume.judged&session={a}&verdict=fork&upstream=tools": [2],
        }
        tails = {query: await operator.tail(query) for query in queries}
        of.log.event("session.opened", upstream="tools", session="a", protocol="other")
        judged(of, "a", "fork")
        judged(of, "b", "gap")
        judged(of, "a", "fork", upstream="other")
        for session in ("a", "b"):  # a last one that each of them wants
            of.log.event("session.opened", upstream="other", session=session, protocol="other")
            judged(of, session, "gap")
        judged(of, "a", "fork")
        for query, numbers in queries.items():
            ids = [(await tails[query].event()).id for _ in numbers]
            assert ids == [f"{BOOT}-{n}" for n in numbers], query
            assert int((await tails[query].event()).id.rpartition("-")[2]) > 4


async def test_a_reader_comes_back(tmp_path: Path) -> None:
    """With the last id it saw it gets each verdict that it missed, once, and then the live ones."""
    of = controls(tmp_path, "tools")
    async with serving(of, tmp_path) as operator:
        tail = await operator.tail()
        for _ in range(3):
            judged(of)
        seen = [(await tail.event()).id for _ in range(2)]
        operator.leave()
        for _ in range(2):
            judged(of)
        tail = await operator.tail("", f"Last-Event-ID: {seen[-1]}")
        judged(of)
        seen += [(await tail.event()).id for _ in range(4)]
        assert seen == [f"{BOOT}-{n}" for n in range(1, 7)]


async def test_a_slow_reader(tmp_path: Path) -> None:
    """What does not fit is not kept, and the reader is told how many; what it gets is in order."""
    of = controls(tmp_path, "tools")
    async with serving(of, tmp_path) as operator:
        tail = await operator.tail()
        assert await tail.block() == b": the live tail"
        published = QUEUED + 700
        for _ in range(published):
            judged(of)
        first = (await tail.block()).split(b"\n")
        assert first[0] == b": 700 lines were dropped, this reader is too slow"
        assert first[1] == f"id: {BOOT}-1".encode()
        rest = [(await tail.event()).id for _ in range(QUEUED - 1)]
        assert rest == [f"{BOOT}-{n}" for n in range(2, QUEUED + 1)]
        judged(of)
        assert (await tail.event()).id == f"{BOOT}-{published + 1}"


async def test_a_reader_that_does_not_read(tmp_path: Path) -> None:
    """It holds up neither the log nor other readers, and what is kept for it is bounded."""
    of = controls(tmp_path, "tools")
    async with serving(of, tmp_path) as operator:
        stuck, quick = await operator.tail(), await operator.tail()
        stuck.client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(60):  # several megabytes
            for _ in range(QUEUED // 4):
                of.log.event("upstream.error", upstream="tools", reason="r", error="x" * 500)
            got = [await quick.event() for _ in range(QUEUED // 4)]
            assert got[-1].id == f"{BOOT}-{(number + 1) * (QUEUED // 4)}"
        stuck.client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        blocks = [await stuck.block()]
        while f"id: {BOOT}-{60 * (QUEUED // 4)}\n".encode() not in blocks[-1] + b"\n":
            blocks.append(await stuck.block())
            if b"lines were dropped" in blocks[-1]:
                break
        assert b"lines were dropped" in blocks[-1]


async def test_too_many_readers(tmp_path: Path) -> None:
    """One more than so many is 503; a place is free again as soon as a reader has left."""
    of = controls(tmp_path, "tools")
    async with serving(of, tmp_path) as operator:
        tails = [await operator.tail() for _ in range(READERS)]
        answer = await operator.ask("GET /api/v1/events")
        assert (answer.status, answer.value["type"]) == (503, "forkwatch:too-many-readers")
        tails[0].client.writer.transport.abort()
        async with asyncio.timeout(5):
            while await _refused(operator):
                await asyncio.sleep(0)
        judged(of)
        assert (await tails[1].event()).id == f"{BOOT}-1"


async def _refused(operator: Operator) -> bool:
    """Whether one more reader is told that there are too many."""
    client = await operator.connect()
    operator.tails.append(client)
    client.request("GET /api/v1/events", host="localhost")
    return (await client.head()).status == 503


async def test_heartbeats(tmp_path: Path) -> None:
    """While nothing is logged a comment says that the tail is alive, and it is no event."""
    of = controls(tmp_path, "tools")
    async with serving(of, tmp_path, heartbeat_s=0.01) as operator:
        tail = await operator.tail()
        assert [await tail.block() for _ in range(3)] == [
            b": the live tail",
            b": still here",
            b": still here",
        ]
        judged(of)
        assert (await tail.event()).id == f"{BOOT}-1"


async def test_the_tail_of_a_process(tmp_path: Path) -> None:
    """A fork that happens to a real session arrives as its log line; whoever comes later gets it as well."""
    log = {"format": "json"}
    async with desk(tmp_path, lambda port: [entry("mcp", port)], log=log) as made, made.lab() as lab:
        tail = await made.admin.tail()
        await lab.initialize()
        await lab.relay(event(1), event(2), request=10)
        await lab.resume("2", event(1, "e2-1"), result(2, 10))
        got = await tail.until(lambda each: each.event == "resume.judged")
        assert [each.event for each in got] == [
            "session.opened",
            "upstream.error",
            "stream.closed",
            "resume.attempted",
            "resume.judged",
        ]
        [line] = await made.logged("resume.judged", 1)
        assert got[-1].data == line
        assert line["session"] == hash_session(lab.session)
        boot = got[0].id.rpartition("-")[0]
        assert [each.id for each in got] == [f"{boot}-{n}" for n in (1, 2, 3, 4, 5)]
        assert await (await made.admin.tail("?verdict=fork")).event() == got[-1]
