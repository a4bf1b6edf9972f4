"""What is known of sessions, as values for JSON. Reads the engine's state, and changes nothing.

Times are Unix seconds. Session ids are credentials and are always hashed; event ids are shown as in
the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.engine.findings import Action, Judged, Verdict
from proxy.engine.ledger import Session, Stream
from proxy.engine.privacy import hash_session
from proxy.engine.timeline import Connection
from proxy.logs import EVENT_ID_CHARS, TEXT_CHARS, hash_event_id, safe
from proxy.reporting import hint_of, without_session

View = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Lens:
    """How things are shown: `unix` adds to monotonic seconds, `hash_event_ids` as in the log."""

    unix: float
    hash_event_ids: bool

    def at(self, monotonic: float) -> float:
        """A moment in Unix seconds, to the millisecond."""
        return round(self.unix + monotonic, 3)

    def event_id(self, raw: bytes | None, session: str) -> str | None:
        """An event id, without the session's own id in it."""
        shown = without_session(raw, session)
        if shown is None:
            return None
        if self.hash_event_ids:
            return hash_event_id(shown)
        return safe(shown.decode("utf-8", "backslashreplace")[:EVENT_ID_CHARS])


def state_of(session: Session) -> str:
    """`active`, `quarantined` or `ended`."""
    if session.quarantine is not None:
        return "quarantined"
    return "ended" if session.ended else "active"


def summary(session: Session, lens: Lens) -> View:
    """One row of the list of sessions."""
    dialect = session.evidence.dialect
    worst = session.timeline.worst()
    return {
        "session": hash_session(session.key),
        "upstream": session.upstream.name,
        "state": state_of(session),
        "opened_at": lens.at(session.opened_at),
        "used_at": lens.at(session.used_at),
        "protocol": session.protocol or None,
        "dialect": None if dialect is None else dialect.name,
        "epoch": session.epoch,
        "streams": len(session.streams),
        "events": session.shown,
        "in_flight": len(session.in_flight),
        "open": sum(stream.attachments for stream in session.streams.values()),
        "verdict": None if worst is None else _verdict(worst, lens),
    }


def whole(session: Session, lens: Lens, now: float) -> View:
    """Everything known of one session."""
    quarantine = session.quarantine
    judgement = None if quarantine is None else quarantine.judgement
    return {
        **summary(session, lens),
        "quarantine": quarantine
        and {
            "since_at": lens.at(quarantine.since),
            "until_at": lens.at(quarantine.until),
            "verdict": judgement and judgement.verdict,
            "reason": judgement.reason if judgement else "operator",
            "certainty": judgement and judgement.certainty,
        },
        "logs": [_log(stream, session, lens) for stream in session.streams.values()],
        "timeline": {
            "now": lens.at(now),
            "forgotten": session.timeline.forgotten,
            "connections": [_connection(c, session, lens) for c in session.timeline.connections],
        },
    }


def _verdict(connection: Connection, lens: Lens) -> View:
    judged = connection.judged
    assert judged is not None
    j = judged.judgement
    return {
        "verdict": j.verdict,
        "reason": j.reason,
        "certainty": j.certainty,
        "at": lens.at(connection.judged_at),
        "action": _action(judged),
    }


def _action(judged: Judged) -> Action:
    return Action.WOULD_CUT if judged.would_cut else judged.action


def _log(stream: Stream, session: Session, lens: Lens) -> View:
    return {
        "stream": stream.label,
        "kind": stream.kind,
        "high": lens.event_id(stream.high, session.name),
        "events": stream.shown,
        "epoch": stream.log.epoch,
        "open": stream.attachments,
        "in_flight": len(stream.owed),
        "replica": _replica(stream.replica),
    }


def _connection(connection: Connection, session: Session, lens: Lens) -> View:
    closed_at = connection.closed_at
    samples = zip(connection.times, connection.positions, strict=True)
    return {
        "stream": connection.stream,
        "kind": connection.kind,
        "opened_at": lens.at(connection.opened_at),
        "closed_at": None if closed_at is None else lens.at(closed_at),
        "cause": connection.cause,
        "events": connection.events,
        "epoch": connection.epoch,
        "replica": _replica(connection.replica),
        "points": [[lens.at(at), int(position)] for at, position in samples],
        "judged": None
        if connection.judged is None
        else _judged(connection, connection.judged, session, lens),
    }


def _judged(connection: Connection, judged: Judged, session: Session, lens: Lens) -> View:
    j, places = judged.judgement, connection.places
    shown: Callable[[bytes | None], str | None] = lambda raw: lens.event_id(raw, session.name)  # noqa: E731
    return {
        **_verdict(connection, lens),
        "action": judged.action,
        "would_cut": judged.would_cut,
        "cursor": shown(judged.cursor),
        "high": shown(judged.high),
        "first_id": shown(judged.first_id),
        "got": shown(j.got),
        "outstanding": judged.outstanding,
        "lost": j.lost,
        "duplicated": j.duplicated,
        "in_flight": judged.in_flight,
        "away_s": None if judged.away_s is None else round(judged.away_s, 3),
        "replica": _replica(judged.replica),
        "previous_replica": _replica(judged.previous_replica),
        "took_ms": round(judged.took_s * 1000, 3),
        "cursor_position": places.cursor,
        "high_position": places.high,
        "got_position": places.got,
        "hint": hint_of(judged),
    }


def _replica(name: str | None) -> str | None:
    return None if name is None else safe(name[:TEXT_CHARS])


def counts(verdicts: dict[tuple[Verdict, Any, Any], int]) -> dict[str, int]:
    """How many resumes got each verdict."""
    totals = dict.fromkeys((verdict.value for verdict in Verdict), 0)
    for (verdict, _, _), count in verdicts.items():
        totals[verdict] += count
    return totals
