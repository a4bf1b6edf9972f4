"""How a session's ids went over time: its last connections, each with thinned samples and its verdict.

This is for people: it draws the picture of a fork, and no rule reads it. Invariants: a session keeps
`CONNECTIONS` of them and each `POINTS` samples, whatever peers send; a connection with an alarm, and
its stream's others, are forgotten last.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

from proxy.engine.findings import AttachmentKind, CloseCause, Judged, Verdict

CONNECTIONS = 12
POINTS = 32
CONNECTION_BYTES = 800
"""What one counts for in the ledger: with all its samples, and a verdict."""
_CALL_EVERY_S = 0.02
"""Between two samples of a call's own stream, beside its last: most calls are over by then."""
_SHOWN_BYTES = 128
"""Of an event id."""

ALARMS = (Verdict.FORK, Verdict.CROSSED, Verdict.GAP, Verdict.REWOUND)
"""The worst first."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Where the ids of a judgement stand on the axis of their stream; None for one that has no place."""

    cursor: int | None = None
    high: int | None = None
    got: int | None = None


_NOWHERE = Positions()


class Connection:
    """One connection of a stream. Times are monotonic seconds; a *position* is an id's number, or its
    ordinal in the stream where ids are opaque."""

    __slots__ = (
        "_every",
        "cause",
        "closed_at",
        "epoch",
        "events",
        "judged",
        "judged_at",
        "kind",
        "opened_at",
        "places",
        "positions",
        "replica",
        "stream",
        "times",
    )  # fmt: skip

    def __init__(
        self, kind: AttachmentKind, stream: str, epoch: int, now: float, replica: str | None
    ) -> None:
        self.kind = kind
        self.stream = stream
        self.epoch = epoch
        self.replica = replica
        self.opened_at = now
        self.closed_at: float | None = None
        """None while it is open."""
        self.cause: CloseCause | None = None
        """None while it is open, and of a resume that got no stream."""
        self.events = 0
        """Events relayed, as of the newest sample while it is open."""
        self.judged: Judged | None = None
        self.judged_at = 0.0
        self.places = _NOWHERE
        self.times = array("d")
        self.positions = array("d")
        self._every = _CALL_EVERY_S if kind is AttachmentKind.POST else 0.0

    def mark(self, position: int, now: float) -> float:
        """The newest id stands at `position`; returns when the next sample is wanted.

        Thinned by half when there are too many samples. Those that explain a verdict may come sooner.
        """
        times, positions = self.times, self.positions
        if positions and positions[-1] == position:
            return now
        times.append(now)
        positions.append(position)
        if len(times) >= POINTS:
            # The first stays; the last does too, being at an odd place.
            self.times, self.positions = times[:1] + times[1::2], positions[:1] + positions[1::2]
            self._every = max(2 * self._every, (now - times[0]) / POINTS)
        return now + self._every

    def finish(self, now: float, cause: CloseCause | None, events: int) -> None:
        """The connection is over."""
        self.closed_at = now
        self.cause = cause
        self.events = events

    def judge(self, judged: Judged, places: Positions, now: float) -> None:
        """Its resume was judged."""
        ids = (judged.cursor, judged.high, judged.first_id, judged.judgement.got)
        long = any(each is not None and len(each) > _SHOWN_BYTES for each in ids)
        self.judged = _shortened(judged) if long else judged
        self.judged_at = now
        self.places = places

    @property
    def alarm(self) -> bool:
        """Whether something is wrong here."""
        return self.judged is not None and self.judged.judgement.verdict in ALARMS


class Timeline:
    """The last connections of one session, oldest first, and which verdicts it has ever had."""

    __slots__ = ("connections", "forgotten", "verdicts")

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.forgotten = 0
        """Connections there is nothing left of."""
        self.verdicts: set[Verdict] = set()

    def add(self, connection: Connection) -> bool:
        """Another connection has begun; returns whether the timeline grew (False: one was forgotten)."""
        connections = self.connections
        connections.append(connection)
        if len(connections) <= CONNECTIONS:
            return True
        self.forgotten += 1
        del connections[self._least()]
        return False

    def judge(self, connection: Connection, judged: Judged, places: Positions, now: float) -> None:
        """The resume of one of the connections was judged."""
        connection.judge(judged, places, now)
        self.verdicts.add(judged.judgement.verdict)

    def _least(self) -> int:
        """The place of the oldest that is over and tells nothing of an alarm; else of the oldest that is over."""
        connections = self.connections
        first = 0
        if connections[0].closed_at is None:
            first = next((i for i, c in enumerate(connections) if c.closed_at is not None), 0)
        if self.verdicts.isdisjoint(ALARMS):
            return first  # the common case: a session of many short calls
        alarmed = {c.stream for c in connections if c.alarm}
        quiet = (i for i, c in enumerate(connections) if c.closed_at is not None and c.stream not in alarmed)
        return next(quiet, first)

    def worst(self) -> Connection | None:
        """The connection whose verdict people should see: the newest of the worst alarm, else the newest."""
        judged = [c for c in self.connections if c.judged is not None]
        alarms = [c for c in judged if c.alarm]
        if alarms:
            return min(reversed(alarms), key=_severity)
        return judged[-1] if judged else None


def _shortened(judged: Judged) -> Judged:
    """The same, with ids cut to what is shown: they may be as long as a head."""
    high, first_id, got = (
        None if each is None else each[:_SHOWN_BYTES]
        for each in (judged.high, judged.first_id, judged.judgement.got)
    )
    judgement, cursor = replace(judged.judgement, got=got), judged.cursor[:_SHOWN_BYTES]
    return judged._replace(judgement=judgement, cursor=cursor, high=high, first_id=first_id)


def _severity(connection: Connection) -> int:
    assert connection.judged is not None
    return ALARMS.index(connection.judged.judgement.verdict)
