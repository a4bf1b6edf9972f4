"""The checks a client can make by itself on the first event of a resumed stream, by their published names.

`validate_resumption` asks whether the session's log goes on, `validate_resumed_cursor` whether it goes on
without a gap. They see two ids and no history, so they are stricter than the proxy, which forgives what is
proven harmless: a replay that begins with the cursor or before it, and holes where a server's ids have holes.
Ids may be integers or text. Text is read in the dialects of `proxy.engine.ids` and never compared as text:
what cannot be ordered is refused only where it is the very id that was consumed.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from proxy.engine.ids import INTEGER, Dialect, EventId, IdClass, compare, guess, skipped

Id = int | str


class StreamForkDetected(RuntimeError):
    """Raised when a resumed MCP SSE stream is not a continuation of the session log."""


class StreamEpochDesyncError(RuntimeError):
    """Raised when a resumed SSE cursor violates the session's epoch/monotonicity contract."""


class ResumedEvent(Protocol):
    """The first event of a resumed stream."""

    @property
    def event_id(self) -> Id | None:
        """Its id, None if it has none."""


Event = TypeVar("Event", bound=ResumedEvent)
EventOut = TypeVar("EventOut", bound=ResumedEvent, covariant=True)
EventIn = TypeVar("EventIn", bound=ResumedEvent, contravariant=True)


class EventSource(Protocol[EventOut]):
    """A resumed stream."""

    def next_event(self) -> EventOut:
        """Its next event."""


class ConsumingSession(Protocol[EventIn]):
    """A client's session: what it has processed, and where it takes what comes next."""

    @property
    def last_consumed_id(self) -> Id | None:
        """The newest id it has processed, None if none."""

    def ingest(self, event: EventIn) -> None:
        """Process an event."""


def validate_resumption(first_event_id: Id | None, last_consumed_id: Id | None) -> bool:
    """Return True if the first event after a reconnect may continue the log of the last one processed.

    Raises `StreamForkDetected` if it has no id, if its id does not come after `last_consumed_id`, or if
    the two name different sessions, streams or epochs. None for `last_consumed_id`: nothing to continue.
    """
    if first_event_id is None:
        raise StreamForkDetected(
            "resumed stream emitted an event without an id; cannot verify session-log continuity"
        )
    if last_consumed_id is None:
        return True
    dialect, last, first = _read(last_consumed_id, first_event_id)
    if _tagged_apart(last, first):
        raise StreamForkDetected(
            f"event id of another log: first={first_event_id}, last_consumed={last_consumed_id}"
        )
    if _not_after(dialect, last, first, last_consumed_id, first_event_id):
        raise StreamForkDetected(
            f"event id regressed: first={first_event_id} <= last_consumed={last_consumed_id}; "
            "server opened a fresh event log under the same Mcp-Session-Id"
        )
    return True


def attach_resumed_stream(
    session: ConsumingSession[Event], sse: EventSource[Event]
) -> ConsumingSession[Event]:
    """Hand the first event of a reconnected stream to the session, only if it continues the log.

    Returns the session. Raises `StreamForkDetected`, with nothing ingested, if it does not.
    """
    first = sse.next_event()
    validate_resumption(first.event_id, session.last_consumed_id)
    session.ingest(first)
    return session


def validate_resumed_cursor(last_seen_id: Id, first_replayed_id: Id, same_epoch: bool) -> None:
    """Raise `StreamEpochDesyncError` unless the first replayed id is the successor of the last one seen.

    For a client that holds its server to `last + 1` within one epoch. Epoch tags inside the ids are
    compared whatever `same_epoch` says. Where ids are times or cannot be ordered no successor is known.
    """
    dialect, last, first = _read(last_seen_id, first_replayed_id)
    if not same_epoch or _tagged_apart(last, first):
        raise StreamEpochDesyncError(
            f"resumed into a different stream epoch: last_seen={last_seen_id}, "
            f"first_replayed={first_replayed_id}; buffer was reset or session recycled"
        )
    if _not_after(dialect, last, first, last_seen_id, first_replayed_id):
        raise StreamEpochDesyncError(
            f"cursor regression: last_seen={last_seen_id}, first_replayed={first_replayed_id}; "
            "server buffer wrapped or counter restarted"
        )
    if last is None or first is None or dialect.cls is IdClass.TIMED or not skipped(last, first):
        return
    expected, got = last.seq[0] + 1, first.seq[0]
    raise StreamEpochDesyncError(
        f"event gap across reconnect: expected {expected}, got {got}; events {expected}..{got - 1} lost"
    )


def _read(last: Id, first: Id) -> tuple[Dialect, EventId | None, EventId | None]:
    """The dialect of the id that was consumed, and both ids in it; None for what it cannot read."""
    dialect = INTEGER if isinstance(last, int) else guess(last.encode())
    return dialect, _parse(dialect, last), _parse(dialect, first)


def _parse(dialect: Dialect, id: Id) -> EventId | None:
    if isinstance(id, str):
        return dialect.parse(id.encode())
    return EventId(None, None, None, (id,)) if dialect is INTEGER else None


def _tagged_apart(last: EventId | None, first: EventId | None) -> bool:
    """Whether the ids name different sessions, streams or epochs."""
    return last is not None and first is not None and last[:3] != first[:3]


def _not_after(dialect: Dialect, last: EventId | None, first: EventId | None, consumed: Id, got: Id) -> bool:
    """Whether `got` does not come after `consumed`: by order, or by being the same id."""
    order = compare(first, last, dialect)
    if order is None or (order == 0 and dialect.cls is IdClass.TIMED):
        return got == consumed
    return order <= 0
