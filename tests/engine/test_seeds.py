"""The two-id checks under their published names: their own messages, and where the engine is milder."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from proxy.engine.seeds import (
    StreamEpochDesyncError,
    StreamForkDetected,
    attach_resumed_stream,
    validate_resumed_cursor,
    validate_resumption,
)
from tests.engine.drive import Drive, event

Id = int | str
LAST = 7
MS = 1795973200386


@dataclass(frozen=True)
class Row:
    """One first event after a resume, as two ids see it and as the engine does.

    `fork` and `desync`: whether `validate_resumption` and `validate_resumed_cursor` refuse it. `verdict`: the
    engine's, when the stream had shown `shown` (by default numbers up to `last`, each with its own payload).
    """

    name: str
    last: Id
    first: Id | None
    fork: bool
    desync: bool
    verdict: str
    text: str = "new"
    shown: tuple[Id, ...] = (5, 6, 7)
    ids: str = "auto"


AGREE = [
    Row("the successor", 7, 8, False, False, "resumed/continued"),
    Row("a lower number", 7, 1, True, True, "fork/log_restarted"),
    Row("the seeds' own: 8412, then 17", 8412, 17, True, True, "fork/id_regressed", shown=(8411, 8412)),
    Row("another event under the cursor's number", 7, 7, True, True, "fork/log_restarted"),
    Row("no id", 7, None, True, True, "fork/id_missing"),
    Row("text that is a number", "9", "10", False, False, "resumed/continued", shown=("8", "9")),
    Row("text that sorts higher and is lower", "10", "9", True, True, "fork/id_regressed", shown=("8", "10")),
    Row("mixed", 9, "10", False, False, "resumed/continued", shown=(8, 9)),
    Row(
        "a hole where there are none",
        "_7",
        "_10",
        False,
        True,
        "gap/forward_jump",
        shown=("_4", "_5", "_6", "_7"),
    ),
    Row(
        "another stream", "a_7", "b_8", True, True, "crossed/other_stream", shown=("a_4", "a_5", "a_6", "a_7")
    ),
    Row("another epoch", "one-7", "two-8", True, True, "fork/epoch_changed", shown=("one-6", "one-7")),
    Row("opaque and another", "abc", "abd", False, False, "unverifiable/opaque_ids", shown=("abb", "abc")),
    Row(
        "the same millisecond",
        f"s_{MS}_a",
        f"s_{MS}_b",
        False,
        False,
        "resumed/continued",
        shown=(f"s_{MS}_a",),
    ),
    Row(
        "a later millisecond",
        f"s_{MS}_a",
        f"s_{MS + 5}_b",
        False,
        False,
        "resumed/continued",
        shown=(f"s_{MS}_a",),
    ),
]
"""Where two ids tell as much as the engine knows."""

MILDER = [
    Row("the cursor again, equal", 7, 7, True, True, "rewound/inclusive", text="7"),
    Row("the whole log again, equal", 7, 5, True, True, "rewound/cursor_ignored", text="5"),
    Row("the cursor again, by habit", "7/3", "7/3", True, True, "", text="7/3", shown=("6/3", "7/3")),
    Row("a hole where holes are normal", 7, 12, False, True, "resumed/continued"),
    Row(
        "a hole in a counter of all streams",
        "a_7",
        "a_12",
        False,
        True,
        "resumed/continued",
        shown=("a_6", "a_7"),
    ),
]
"""Where the engine knows better: what was shown before proves a replay, or the dialect explains a hole."""

ROWS = [*AGREE, *MILDER]


def engine_says(row: Row) -> str:
    """The engine's verdict on the same event, once the replay is over."""
    drive = Drive(ids=row.ids)
    drive.initialize()
    drive.show(*(event(each, str(each)) for each in row.shown))
    connection = drive.get(row.last).send(event(row.first, row.text))
    if row.text != "new" and drive.verdicts == [] and "/" not in str(row.last):
        connection.end()
    return "".join(f"{seen.verdict}/{seen.reason}" for seen in drive.verdicts)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_against_the_engine(row: Row) -> None:
    """What each check says of one event, and what the engine says of it."""
    if row.fork:
        with pytest.raises(StreamForkDetected):
            validate_resumption(row.first, row.last)
    else:
        assert validate_resumption(row.first, row.last) is True
    if row.first is not None:
        if row.desync:
            with pytest.raises(StreamEpochDesyncError):
                validate_resumed_cursor(row.last, row.first, True)
        else:
            validate_resumed_cursor(row.last, row.first, True)
    assert engine_says(row) == row.verdict


def test_the_engine_is_never_stricter() -> None:
    """What both checks accept the engine accepts, and what it calls a fault one of them refuses."""
    faults = ("fork", "gap", "crossed", "rewound")
    assert [row.name for row in ROWS if row.verdict.startswith(faults) and not (row.fork or row.desync)] == []


def test_the_engine_is_milder_where_it_is_listed() -> None:
    """Every row of `MILDER` is refused by a check and no fork, gap or crossing for the engine."""
    assert all(row.fork or row.desync for row in MILDER)
    assert not any(row.verdict.startswith(("fork", "gap", "crossed")) for row in MILDER)
    accused = [row for row in AGREE if row.fork or row.desync]
    assert all(row.verdict.startswith(("fork", "gap", "crossed")) for row in accused)


FORKS = [
    (None, 5, "resumed stream emitted an event without an id; cannot verify session-log continuity"),
    (None, None, "resumed stream emitted an event without an id; cannot verify session-log continuity"),
    (
        1,
        4821,
        "event id regressed: first=1 <= last_consumed=4821; "
        "server opened a fresh event log under the same Mcp-Session-Id",
    ),
    (
        "abc",
        "abc",
        "event id regressed: first=abc <= last_consumed=abc; "
        "server opened a fresh event log under the same Mcp-Session-Id",
    ),
    ("b_2", "a_1", "event id of another log: first=b_2, last_consumed=a_1"),
    (
        -5,
        -5,
        "event id regressed: first=-5 <= last_consumed=-5; "
        "server opened a fresh event log under the same Mcp-Session-Id",
    ),
]


@pytest.mark.parametrize(("first", "last", "message"), FORKS)
def test_forks(first: Id | None, last: Id | None, message: str) -> None:
    """The published messages."""
    with pytest.raises(StreamForkDetected) as caught:
        validate_resumption(first, last)
    assert str(caught.value) == message


CONTINUATIONS = [
    (1, None),
    ("x", None),
    (2, 1),
    (-4, -5),
    (10**30, 10**29),
    (6, "abc"),
    (6, "a_5"),
    ("a_6", "5"),
    ("abc", 5),
]


@pytest.mark.parametrize(("first", "last"), CONTINUATIONS)
def test_continuations(first: Id, last: Id | None) -> None:
    """Nothing was consumed yet, a later id, or one that cannot be compared with it."""
    assert validate_resumption(first, last) is True


DESYNCS = [
    (
        8412,
        8413,
        False,
        "resumed into a different stream epoch: last_seen=8412, first_replayed=8413; "
        "buffer was reset or session recycled",
    ),
    (
        "7:1",
        "8:2",
        False,
        "resumed into a different stream epoch: last_seen=7:1, first_replayed=8:2; "
        "buffer was reset or session recycled",
    ),
    (
        8412,
        17,
        True,
        "cursor regression: last_seen=8412, first_replayed=17; server buffer wrapped or counter restarted",
    ),
    (
        5,
        9,
        True,
        "event gap across reconnect: expected 6, got 9; events 6..8 lost",
    ),
    (
        "_5",
        "_9",
        True,
        "event gap across reconnect: expected 6, got 9; events 6..8 lost",
    ),
]


@pytest.mark.parametrize(("last", "first", "same_epoch", "message"), DESYNCS)
def test_desyncs(last: Id, first: Id, same_epoch: bool, message: str) -> None:
    """The published messages, with the numbers of text ids where it has some."""
    with pytest.raises(StreamEpochDesyncError) as caught:
        validate_resumed_cursor(last, first, same_epoch)
    assert str(caught.value) == message


# ---- attaching


@dataclass
class Event:
    """A client's event."""

    event_id: Id | None


@dataclass
class Stream:
    """A client's stream of events."""

    events: list[Event]

    def next_event(self) -> Event:
        """The next one."""
        return self.events.pop(0)


@dataclass
class Session:
    """A client's session."""

    last_consumed_id: Id | None
    ingested: list[Event] = field(default_factory=list)

    def ingest(self, event: Event) -> None:
        """Process an event."""
        self.ingested.append(event)


def test_a_true_continuation_is_ingested() -> None:
    """The first event goes to the session, the rest stays on the stream, the session comes back."""
    session, stream = Session(4821), Stream([Event(4822), Event(4823)])
    assert attach_resumed_stream(session, stream) is session
    assert (session.ingested, stream.events) == ([Event(4822)], [Event(4823)])


@pytest.mark.parametrize("first", [1, 4821, None])
def test_a_fork_is_not_ingested(first: Id | None) -> None:
    """Nothing is processed of a stream that is another log."""
    session = Session(4821)
    with pytest.raises(StreamForkDetected):
        attach_resumed_stream(session, Stream([Event(first)]))
    assert session.ingested == []
