"""Laws of the engine over arbitrary streams: it never raises, accuses no innocent and overlooks no loss.

A log is a random list of events in one dialect. A resume replays it from a random cursor, cut anywhere, by
another serialiser; or another log answers under the same ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.findings import Ending
from tests.engine.drive import (
    DEADLINE_S,
    KEEP_ALIVE,
    Connection,
    Drive,
    Seen,
    crlf,
    event,
    frame,
    priming,
    reserialised,
    result,
)
from tests.scenarios.dialects import DIALECTS, Dialect

ALARMS = ("fork", "gap", "crossed", "rewound")
LAWS = settings(max_examples=150, deadline=None)
REPEATING = [dialect for dialect in DIALECTS if dialect.repeats]


# ---- no input raises

PIECES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(
        [
            KEEP_ALIVE,
            priming(0, 3000),
            priming("0/3"),
            event(1),
            event(2),
            event(2, "other"),
            event("_1"),
            event("7_3"),
            event("4/3"),
            event("a" * 2000),
            event("3#s"),
            event("9#s"),
            event("f" * 32),
            event("s_1795973200386_aa"),
            event("czE=:Nw==:5"),
            event("czI=:Nw==:6"),
            event(None, "no id"),
            result(7, 1),
            result(None, 1),
            frame(5, b"{no json"),
            frame(6, b"null"),
            frame(1, b"{}"),
            frame(8, b'"' + b"x" * 70_000 + b'"'),
            b"event: prime\nid: 3\ndata:\n\n",
            b"id: \x00\ndata: {}\n\n",
            b"id: 4\r\ndata: {}\r\n\r",
            b"id: 9\ndata: {",
        ]
    ),
)
CURSORS = ["1", "2", "9#s", "_1", "0", "\u00e9", "czE=:Nw==:5"]
OTHERS = ["get", "call", "delete", "initialize", "wait", "refuse"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 5), PIECES),
        st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from(list(Ending))),
        st.tuples(st.just("resume"), st.sampled_from(CURSORS), st.booleans()),
        st.tuples(st.sampled_from(OTHERS), st.integers(1, 3), st.booleans()),
    ),
    max_size=40,
)


def perform(drive: Drive, step: tuple[object, object, object]) -> None:
    """One step of an arbitrary script, in one of two sessions."""
    what, which, more = step
    session = "s2" if more is True else "s1"
    open_streams = [c for c in drive.connections if c.exchange.relay is not None]
    at: Connection | None = None
    if isinstance(which, int) and what in ("send", "end") and which < len(open_streams):
        at = open_streams[which]
    match what:
        case "send" if at is not None and isinstance(more, bytes):
            at.send(more)
        case "end" if at is not None and isinstance(more, Ending):
            at.end(more)
        case "resume":
            drive.get(which, session=session)
        case "get":
            drive.get(session=session)
        case "call" if isinstance(which, int):
            drive.call(which, session=session)
        case "delete":
            drive.delete(session=session)
        case "initialize":
            drive.initialize(session)
        case "refuse":
            drive.refuse(1, 404, session=session)
        case "wait" if isinstance(which, int):
            drive.pass_time(which * DEADLINE_S)
            drive.ledger.expire(drive.now)


@LAWS
@given(steps=STEPS)
def test_no_input_raises_and_every_resume_is_judged_once(steps: list[tuple[object, object, object]]) -> None:
    """Whatever comes in whatever order; when all connections have ended each resume has one verdict."""
    drive = Drive()
    drive.initialize()
    resumes = 0
    for step in steps:
        perform(drive, step)
        resumes += step[0] in ("resume", "refuse")
    for connection in list(drive.connections):
        connection.end(Ending.CLIENT_LEFT)
    assert len(drive.verdicts) == resumes
    for session in drive.upstream.sessions.values():
        assert all(stream.attachments == 0 for stream in session.streams.values())


# ---- histories


@dataclass
class History:
    """A log in one dialect, how much of it the client has consumed, and how its resume is cut."""

    dialect: Dialect
    texts: list[str]
    consumed: int
    cuts: list[int]
    line_end: bool
    rewritten: bool
    keep_alives: bool

    def ids(self) -> list[str]:
        """The ids of the log's events."""
        return [self.dialect.make("s1", self.dialect.streams[0], n + 1) for n in range(len(self.texts))]

    def frames(self, texts: list[str] | None = None) -> list[bytes]:
        """The events, or others under the same ids."""
        return [event(id, text) for id, text in zip(self.ids(), texts or self.texts, strict=True)]

    def written(self, frames: list[bytes]) -> list[bytes]:
        """The frames as this server writes them on a replay, cut into chunks."""
        chosen = [reserialised(each) for each in frames] if self.rewritten else frames
        if self.keep_alives:
            chosen = [part for each in chosen for part in (KEEP_ALIVE, each)]
        stream = b"".join(crlf(each) if self.line_end else each for each in chosen)
        places = sorted({at % (len(stream) + 1) for at in self.cuts})
        return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]

    def shown(self, upto: int) -> tuple[Drive, str]:
        """A drive whose stream has shown the first `upto` events, and the cursor of the last one consumed."""
        drive = Drive(ids=self.dialect.name if ":" in self.dialect.name else "auto")
        drive.initialize()
        connection = drive.call(10) if self.dialect.over_post else drive.get()
        connection.send(*self.frames()[:upto]).drop()
        return drive, self.ids()[self.consumed - 1]

    def resumed(self, drive: Drive, cursor: str, frames: list[bytes]) -> Connection:
        """The resume of `cursor` brings these frames."""
        connection = drive.get(cursor)
        for chunk in self.written(frames):
            if chunk:
                connection.send(chunk)
        return connection


@st.composite
def histories(draw: st.DrawFn, dialects: list[Dialect] = DIALECTS) -> History:  # type: ignore[assignment]
    """A random history with at least two events."""
    constant = draw(st.booleans())
    count = draw(st.integers(2, 24))
    texts = ["changed"] * count if constant else [f"message {n}" for n in range(count)]
    return History(
        dialect=draw(st.sampled_from(list(dialects))),
        texts=texts,
        consumed=draw(st.integers(1, count)),
        cuts=draw(st.lists(st.integers(0, 5000), max_size=6)),
        line_end=draw(st.booleans()),
        rewritten=draw(st.booleans()),
        keep_alives=draw(st.booleans()),
    )


def alarms(drive: Drive) -> list[Seen]:
    """The verdicts that accuse somebody."""
    return [seen for seen in drive.verdicts if seen.verdict in ALARMS]


@LAWS
@given(history=histories(), relayed=st.integers(0, 24), end=st.sampled_from(list(Ending)))
def test_a_healthy_replay_is_no_alarm(history: History, relayed: int, end: Ending) -> None:
    """All outstanding events and then some, whatever the dialect, the chunks and the serialiser."""
    upto = max(history.consumed, min(relayed, len(history.texts)))
    drive, cursor = history.shown(upto)
    first = history.consumed - history.dialect.replays_cursor
    history.resumed(drive, cursor, history.frames()[first:]).end(end)
    assert alarms(drive) == []
    assert len(drive.verdicts) == 1
    assert drive.verdicts[0].verdict in ("resumed", "unverifiable")


@LAWS
@given(history=histories(), breaks=st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_a_healthy_stream_may_break_anywhere_any_number_of_times(history: History, breaks: list[int]) -> None:
    """Each resume brings a few events and breaks; what the client has consumed grows with each."""
    drive, cursor = history.shown(len(history.texts))
    frames, ids, consumed = history.frames(), history.ids(), history.consumed
    for count in breaks:
        first = consumed - history.dialect.replays_cursor
        consumed = min(consumed + count, len(frames))
        history.resumed(drive, cursor, frames[first:consumed]).drop()
        cursor = ids[consumed - 1]
    assert alarms(drive) == []


@LAWS
@given(history=histories(REPEATING), again=st.integers(1, 24))
def test_a_replay_from_before_the_cursor_is_never_a_fork_for_certain(history: History, again: int) -> None:
    """Duplicates are no other log; where all payloads are alike it can only be suspected to be one."""
    drive, cursor = history.shown(len(history.texts))
    first = max(0, history.consumed - again)
    history.resumed(drive, cursor, history.frames()[first:]).end()
    told_apart = len(set(history.texts)) > 1
    assert [seen for seen in alarms(drive) if seen.certainty == "proven" and seen.verdict != "rewound"] == []
    if told_apart:
        assert [seen for seen in alarms(drive) if seen.verdict != "rewound"] == []


@LAWS
@given(history=histories(REPEATING), start=st.integers(0, 24), data=st.data())
def test_another_log_is_never_taken_for_this_one(history: History, start: int, data: st.DataObject) -> None:
    """The same ids with other payloads, from anywhere, while events were outstanding: it is named."""
    if history.consumed == len(history.texts):
        history.consumed -= 1
    drive, cursor = history.shown(len(history.texts))
    others = history.frames([f"other {n}" for n in range(len(history.texts))])
    first = min(start, len(others) - 1)
    count = data.draw(st.integers(1, len(others) - first))
    history.resumed(drive, cursor, others[first : first + count]).end()
    assert len(drive.verdicts) == 1
    assert drive.verdicts[0].verdict in ("fork", "gap", "crossed")


@LAWS
@given(history=histories(REPEATING), skip=st.integers(1, 8))
def test_a_loss_is_never_overlooked(history: History, skip: int) -> None:
    """Outstanding events are passed over, and a new one comes: a gap, of at least so many."""
    count = len(history.texts)
    if history.consumed == count:
        history.consumed -= 1
    drive, cursor = history.shown(count)
    first = min(history.consumed + skip, count)
    new = event(history.dialect.make("s1", history.dialect.streams[0], count + 1), "new")
    connection = history.resumed(drive, cursor, [*history.frames()[first:], new])
    drive.pass_time(DEADLINE_S)
    connection.end()
    assert [(seen.verdict, seen.lost) for seen in drive.verdicts] == [("gap", first - history.consumed)]


@LAWS
@given(history=histories(), start=st.integers(0, 24), kept=st.integers(0, 24), reborn=st.booleans())
def test_less_memory_never_says_more(history: History, start: int, kept: int, reborn: bool) -> None:
    """With a part of what was shown forgotten the engine proves no more, and accuses no healthy replay."""
    frames = history.frames([f"other {n}" for n in range(len(history.texts))] if reborn else None)
    first = min(start, len(frames) - 1) if reborn else history.consumed - history.dialect.replays_cursor
    whole, cursor = history.shown(len(history.texts))
    history.resumed(whole, cursor, frames[first:]).end()
    partial = Drive(ids=history.dialect.name if ":" in history.dialect.name else "auto")
    shown = history.frames()[max(0, len(frames) - kept) :]
    connection = partial.call(10) if history.dialect.over_post else partial.get()
    connection.send(*shown).drop()
    history.resumed(partial, cursor, frames[first:]).end()
    if not reborn:
        assert alarms(partial) == []
    proven = [seen.verdict for seen in alarms(partial) if seen.certainty == "proven"]
    assert proven == [] or [seen.verdict in ALARMS for seen in whole.verdicts] == [True]
