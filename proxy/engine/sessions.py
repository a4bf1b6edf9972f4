"""Which sessions are known: made by 2xx answers, touched by use, evicted and expired within bounds.

The least recently used session goes first, inside the upstream that holds more than its share, and
never a quarantined one: where no other is left, a newcomer is not kept. Sessions that still relay
streams count as used. What leaves is reported, so that a lost baseline is never a surprise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from proxy.engine.findings import (
    Finding,
    QuarantineEnd,
    QuarantineEnded,
    Raised,
    Reportable,
    SessionClosed,
    SessionCloseReason,
    SessionOpened,
)
from proxy.engine.ids import Dialect
from proxy.engine.ledger import Bounds, Session, Stream, Upstream
from proxy.engine.owners import Owners

PROTOCOLS = frozenset({"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"})
"""The MCP revisions that have a name in metrics; any other is `other`."""

_AWAITING = 1 << 16
"""Streams remembered while they may still be resumed; beyond it the oldest is forgotten."""


_OWNERS_SHARE = 4
"""One part in so many of `ledger_bytes` is for the tables of owners."""


class Ledger:
    """All sessions of all upstreams, within the configured bounds."""

    def __init__(self, bounds: Bounds, upstreams: Mapping[str, Dialect | None]) -> None:
        """`upstreams`: the configured names, each with the dialect that `ids:` forces or None."""
        self.bounds = bounds
        self.upstreams = {name: Upstream(name, bounds, forced) for name, forced in upstreams.items()}
        self._share_owners()

    def configure(self, bounds: Bounds, upstreams: Mapping[str, Dialect | None]) -> None:
        """New bounds and dialects, for what begins from now on. An upstream left out keeps its sessions."""
        self.bounds = bounds
        for name, forced in upstreams.items():
            upstream = self.upstreams.setdefault(name, Upstream(name, bounds, forced))
            upstream.bounds, upstream.forced = bounds, forced
        self._share_owners()

    def _share_owners(self) -> None:
        """The tables of owners take a share of the ledger between them: else many would leave no room for sessions."""
        for upstream in self.upstreams.values():
            upstream.owners.fit(self.bounds.ledger_bytes // _OWNERS_SHARE // len(self.upstreams))

    @property
    def held_bytes(self) -> int:
        """Memory accounted for in all upstreams."""
        return sum(upstream.held_bytes for upstream in self.upstreams.values())

    def find(self, upstream: Upstream, key: bytes, now: float) -> Session | None:
        """The session of this id, touched; None if it is not known."""
        session = upstream.sessions.get(key)
        if session is not None:
            session.used_at = now
            upstream.sessions.move_to_end(key)
        return session

    def overlook(self, upstream: Upstream, key: bytes) -> None:
        """An exchange of the session of this id, if it is known, passes unread."""
        session = upstream.sessions.get(key)
        if session is not None:
            session.overlook()

    def open(
        self, upstream: Upstream, key: bytes, now: float, *, initialized: bool, protocol: str | None
    ) -> tuple[Session, list[Reportable]]:
        """The session that a 2xx answer shows to exist, made if it is not known.

        `initialized`: the answer was to an `initialize`, so a known id is issued anew and its logs
        begin another epoch. `protocol` is the revision the request named, None if it named none.
        """
        reports: list[Reportable] = []
        session = self.find(upstream, key, now)
        if session is not None and not initialized:
            return session, reports
        opened = SessionOpened(_text(key), protocol if protocol in PROTOCOLS else "other", initialized)
        if session is not None:
            self._reissue(session, reports)
        else:
            session = self._make(upstream, key, now, initialized)
        session.protocol = opened.protocol
        reports.append(opened)
        reports += self._evict(upstream, session)
        return session, reports

    def _make(self, upstream: Upstream, key: bytes, now: float, initialized: bool) -> Session:
        upstream.next_number = (upstream.next_number + 1) % Owners.NUMBERS
        session = Session(upstream, key, upstream.next_number, now, followed=initialized)
        upstream.sessions[key] = session
        upstream.numbered[session.number] = session
        upstream.bytes += session.bytes
        upstream.sessions_active += 1
        return session

    def _reissue(self, session: Session, reports: list[Reportable]) -> None:
        reports.append(Raised(Finding.SESSION_REISSUED, session.name))
        if session.quarantine is not None:
            reports.append(self.release(session, QuarantineEnd.REINITIALIZED))
            reports.append(SessionClosed(session.name, SessionCloseReason.REISSUED))
        elif session.ended:
            session.upstream.sessions_active += 1
            session.ended = False
        else:
            reports.append(SessionClosed(session.name, SessionCloseReason.REISSUED))
        session.abandon_requests()
        session.next_epoch()

    def release(self, session: Session, cause: QuarantineEnd) -> Reportable:
        """A quarantined session may be used again."""
        lifted = self._lift(session, cause)
        session.upstream.sessions_active += 1
        return lifted

    def _lift(self, session: Session, cause: QuarantineEnd) -> Reportable:
        upstream = session.upstream
        session.quarantine = None
        del upstream.quarantined[session.key]
        upstream.sessions_quarantined -= 1
        return QuarantineEnded(session.name, cause)

    def end(self, session: Session) -> list[Reportable]:
        """A 2xx to DELETE: the session is over, and stays known so that its return is noticed."""
        if session.ended:
            return []
        session.ended = True
        session.upstream.sessions_active -= 1
        session.abandon_requests()
        return [SessionClosed(session.name, SessionCloseReason.DELETED)]

    def revive(self, session: Session) -> list[Reportable]:
        """An ended session is served again: what it shows from here on is another epoch.

        Of one that was forgotten meanwhile nothing is reported.
        """
        session.ended = False
        session.upstream.sessions_active += 1
        session.next_epoch()
        known = session.key in session.upstream.sessions
        return [SessionOpened(session.name, "other", False)] if known else []

    # ---- bounds

    def _evict(self, upstream: Upstream, newcomer: Session) -> list[Reportable]:
        """Make room for `newcomer` in its upstream; others that hold too much wait for `expire`."""
        reports: list[Reportable] = []
        sessions = upstream.sessions
        while len(sessions) > self.bounds.sessions_per_upstream or (
            len(sessions) > 1 and upstream is self._over_share()
        ):
            reports += self._evict_one(upstream, newcomer)
            if newcomer.ended:
                newcomer.strand()  # the exchange that made it joins it all the same
                break
        return reports

    def _over_share(self) -> Upstream | None:
        """The upstream that holds the most, while all together hold more than they may; else None.

        One whose sessions are all quarantined has nothing to give.
        """
        if self.held_bytes <= self.bounds.ledger_bytes:
            return None
        giving = (u for u in self.upstreams.values() if len(u.sessions) > len(u.quarantined))
        return max(giving, key=lambda u: u.bytes, default=None)

    def _evict_one(self, upstream: Upstream, spared: Session | None) -> list[Reportable]:
        """Drop the session used least; `spared` only where every other one is quarantined."""
        sessions = upstream.sessions
        for _ in range(len(sessions)):
            key, session = next(iter(sessions.items()))
            if session is not spared and session.quarantine is None and session.touched == session.shown:
                break
            session.touched = session.shown  # it has relayed since: give it a second chance
            sessions.move_to_end(key)
        else:
            free = [s for s in sessions.values() if s.quarantine is None]
            session = next((s for s in free if s is not spared), free[0])
        return self._drop(upstream, session, SessionCloseReason.EVICTED)

    def _drop(self, upstream: Upstream, session: Session, reason: SessionCloseReason) -> list[Reportable]:
        del upstream.sessions[session.key]
        upstream.numbered.pop(session.number, None)
        session.abandon_requests()
        reports: list[Reportable] = []
        if session.quarantine is not None:
            reports.append(self._lift(session, QuarantineEnd.TTL))
        elif not session.ended:
            upstream.sessions_active -= 1
        if not session.ended:
            reports.append(SessionClosed(session.name, reason))
        session.ended = True
        session.release()
        return reports

    # ---- time

    def await_resume(self, session: Session, stream: Stream, now: float) -> None:
        """A stream ended owing responses and can be resumed: `expire` says if nobody does."""
        waiting = session.upstream.awaiting
        if len(waiting) >= _AWAITING:
            waiting.popleft()
        waiting.append((now, session.number, stream.serial))

    def expire(self, now: float) -> list[tuple[str, Reportable]]:
        """What `session_idle` has run out for, by upstream: unanswered streams, then whole sessions.

        Then what does not fit into `ledger_bytes`, in which all may have grown since the last call.
        """
        found: list[tuple[str, Reportable]] = []
        before = now - self.bounds.session_idle_s
        for upstream in self.upstreams.values():
            reports = _unresumed(upstream, before)
            for session in [s for s in upstream.quarantined.values() if _served(s, now)]:
                reports += self._drop(upstream, session, SessionCloseReason.EXPIRED)
            for session in list(_idle(upstream.sessions.values(), before)):
                if session.quarantine is not None or session.exchanges:
                    session.used_at = now
                    upstream.sessions.move_to_end(session.key)
                else:
                    reports += self._drop(upstream, session, SessionCloseReason.EXPIRED)
            found += [(upstream.name, item) for item in reports]
        while (crowded := self._over_share()) is not None:
            found += [(crowded.name, item) for item in self._evict_one(crowded, None)]
        return found


def _served(session: Session, now: float) -> bool:
    return session.quarantine is not None and session.quarantine.until <= now


def _idle(sessions: Iterable[Session], before: float) -> Iterable[Session]:
    """The sessions not used since `before`; they stand first, being least recently used."""
    for session in sessions:
        if session.used_at > before:
            return
        yield session


def _unresumed(upstream: Upstream, before: float) -> list[Reportable]:
    reports: list[Reportable] = []
    waiting = upstream.awaiting
    while waiting and waiting[0][0] <= before:
        since, number, serial = waiting.popleft()
        session = upstream.numbered.get(number)
        stream = None if session is None else session.streams.get(serial)
        if stream is not None and not stream.attachments and stream.detached_at == since:
            reports += missing_responses(session, stream)
    return reports


def missing_responses(session: Session | None, stream: Stream) -> list[Reportable]:
    """The stream ended for good: every response it owes will never come."""
    name = "" if session is None else session.name
    raised: list[Reportable] = [
        Raised(Finding.RESPONSE_MISSING, name, stream.label, key) for key in stream.owed
    ]
    if session is not None:
        for key in stream.owed:
            session.settle(key)
    stream.owed = ()
    return raised


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
