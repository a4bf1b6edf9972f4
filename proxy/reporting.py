"""One report of the engine becomes counters and at most one log line.

Counters always count. Lines that a reconnect loop or a hostile peer could repeat without end are
thinned by `Repeats`. Nothing here decides anything, and no bytes of a peer make it raise.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Hashable

from proxy.engine import hints
from proxy.engine.findings import (
    Action,
    AttachmentKind,
    Certainty,
    CloseCause,
    FailedOpen,
    Finding,
    Gated,
    Judged,
    Malformed,
    QuarantineEnded,
    QuarantineRejected,
    Raised,
    Reason,
    Reportable,
    ResumeAttempted,
    SessionClosed,
    SessionCloseReason,
    SessionOpened,
    SessionQuarantined,
    StreamClosed,
    StreamOpened,
    Verdict,
)
from proxy.engine.privacy import cached_if_short, hash_session
from proxy.errors import ProxyError
from proxy.logs import Level, Log, Repeats
from proxy.metrics import Metrics, UpstreamCounters

LEVELS: dict[Verdict, Level] = {
    Verdict.RESUMED: "info",
    Verdict.REFUSED: "info",
    Verdict.INCONCLUSIVE: "info",
    Verdict.UNVERIFIABLE: "info",
    Verdict.REWOUND: "warning",
    Verdict.GAP: "warning",
    Verdict.FORK: "error",
    Verdict.CROSSED: "error",
}
"""How loud `resume.judged` is. Total over the verdicts."""

ABNORMAL = frozenset(
    {
        CloseCause.EOF_INCOMPLETE,
        CloseCause.UPSTREAM_RESET,
        CloseCause.UPSTREAM_IDLE,
        CloseCause.PROXY_ERROR,
    }
)
"""Ends of a stream that its log line warns of."""


_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9.]+):\d+|unix:.*")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_SECRET_CHARS = 8
"""A shorter session id is no secret, and could stand anywhere by chance."""


class Reporter:
    """Counts and logs what the engine hands the shell, for every upstream of one process."""

    def __init__(self, metrics: Metrics, log: Log) -> None:
        self._metrics = metrics
        self._log = log
        self._repeats = Repeats()

    def report(
        self,
        upstream_name: str,
        item: Reportable,
        now: float,
    ) -> None:
        """Count `item` and log it. `now` is monotonic seconds.

        Raises KeyError for an upstream that is not configured.
        """
        counters = self._metrics.upstream(upstream_name)
        match item:
            case StreamOpened():
                self._stream_opened(counters, item)
            case StreamClosed():
                self._stream_closed(counters, item, now)
            case Judged():
                self._judged(counters, item, now)
            case Raised():
                self._raised(counters, item, now)
            case ResumeAttempted():
                counters.resume_attempts += 1
                self._thinned(
                    (counters.name, item.session, item.cursor),
                    now,
                    "resume.attempted",
                    upstream=counters.name,
                    session=item.session,
                    cursor=without_session(item.cursor, item.session),
                )
            case SessionOpened() | SessionClosed():
                self._session(counters, item)
            case SessionQuarantined() | QuarantineRejected() | QuarantineEnded():
                self._quarantine(counters, item, now)
            case Gated():
                counters.gate_seconds.observe(item.held_s)
            case Malformed():
                counters.sse_parse_errors += 1
                self._thinned(
                    (counters.name, item.session, item.stream),
                    now,
                    "sse.malformed",
                    level="warning",
                    upstream=counters.name,
                    session=item.session,
                    stream=item.stream,
                    detail=item.detail,
                )
            case FailedOpen():
                counters.count_fail_open(item.component)
                self._log.event(
                    "check.failed_open",
                    level="warning",
                    upstream=counters.name,
                    component=item.component,
                    error=item.error,
                )

    def failed(self, upstream_name: str, error: ProxyError, method: str, now: float) -> None:
        """An exchange with the upstream failed."""
        self._metrics.upstream(upstream_name).count_error(error.reason)
        self._say_error(error, now, upstream=upstream_name, method=method)

    def refused(self, error: ProxyError, method: str | None, now: float) -> None:
        """A request was refused before it had an upstream, or before it could be read (None: its method)."""
        self._metrics.count_refused(error.type)
        self._say_error(error, now, method=method)

    def _say_error(self, error: ProxyError, now: float, *, method: str | None, upstream: str = "") -> None:
        self._thinned(
            (upstream, error.type, error.reason),
            now,
            "upstream.error",
            level="warning",
            upstream=upstream,
            reason=error.reason,
            error=str(error),
            method=method,
            status=error.status,
        )

    def _judged(self, counters: UpstreamCounters, item: Judged, now: float) -> None:
        j = item.judgement
        self._count_judged(counters, item, (j.verdict, j.reason, j.certainty))
        counters.policy_actions[item.action] += 1
        if item.would_cut:
            counters.policy_actions[Action.WOULD_CUT] += 1
        key = (counters.name, item.session, item.cursor, j.verdict)
        if (repeated := self._repeated("resume.judged", key, now)) is not None:
            self._say_judged(counters, item, repeated)
        acted = Action.WOULD_CUT if item.would_cut else item.action
        if acted is not Action.PASS:
            self._thinned(
                key,
                now,
                "policy.action",
                level="warning",
                upstream=counters.name,
                session=item.session,
                stream=item.stream,
                mode=counters.mode,
                action=acted,
                verdict=j.verdict,
                reason=j.reason,
                certainty=j.certainty,
            )

    def _say_judged(self, counters: UpstreamCounters, item: Judged, repeated: dict[str, int]) -> None:
        j = item.judgement
        hint = hint_of(item)
        hinted = {} if hint is None else {"hint": hint}
        self._log.event(
            "resume.judged",
            level=LEVELS[j.verdict],
            upstream=counters.name,
            session=item.session,
            stream=item.stream,
            verdict=j.verdict,
            reason=j.reason,
            certainty=j.certainty,
            cursor=without_session(item.cursor, item.session),
            high=without_session(item.high, item.session),
            outstanding=item.outstanding,
            first_id=without_session(item.first_id, item.session),
            lost=j.lost,
            duplicated=j.duplicated,
            epoch=item.epoch,
            in_flight=item.in_flight,
            away_s=None if item.away_s is None else round(item.away_s, 3),
            replica=item.replica,
            previous_replica=item.previous_replica,
            action=item.action,
            took_ms=round(item.took_s * 1000, 3),
            **hinted,
            **repeated,
        )

    def _count_judged(
        self, counters: UpstreamCounters, item: Judged, key: tuple[Verdict, Reason, Certainty]
    ) -> None:
        counters.resume_verdicts[key] += 1
        if self._metrics.exemplars:
            counters.verdict_exemplars[key] = hash_session(item.session)
        counters.events_lost += item.lost_anew
        counters.events_duplicated += item.judgement.duplicated
        counters.resume_gap_events.observe(item.outstanding)
        counters.detection_seconds.observe(item.took_s)
        if item.away_s is not None:
            counters.resume_gap_seconds.observe(item.away_s)

    def _raised(self, counters: UpstreamCounters, item: Raised, now: float) -> None:
        counters.findings[item.finding] += 1
        if item.finding is Finding.RESPONSE_MISSING:
            counters.requests_unanswered += 1
        self._thinned(
            (counters.name, item.session, item.stream, item.finding),
            now,
            "finding.raised",
            level="warning",
            upstream=counters.name,
            session=item.session,
            stream=item.stream,
            finding=item.finding,
            detail=item.detail,
        )

    def _session(self, counters: UpstreamCounters, item: SessionOpened | SessionClosed) -> None:
        match item:
            case SessionOpened():
                counters.count_session(item.protocol)
                self._log.event(
                    "session.opened",
                    upstream=counters.name,
                    session=item.session,
                    protocol=item.protocol,
                    followed=item.followed,
                )
            case SessionClosed():
                counters.sessions_closed[item.reason] += 1
                # What an evicted session showed is forgotten: its next resume cannot be verified.
                evicted = item.reason is SessionCloseReason.EVICTED
                self._log.event(
                    "session.evicted" if evicted else "session.closed",
                    level="warning" if evicted else "info",
                    upstream=counters.name,
                    session=item.session,
                    reason=item.reason,
                )

    def _quarantine(
        self,
        counters: UpstreamCounters,
        item: SessionQuarantined | QuarantineRejected | QuarantineEnded,
        now: float,
    ) -> None:
        match item:
            case SessionQuarantined():
                counters.quarantines += 1
                j = item.judgement
                self._log.event(
                    "session.quarantined",
                    level="error",
                    upstream=counters.name,
                    session=item.session,
                    verdict=None if j is None else j.verdict,
                    reason="operator" if j is None else j.reason,
                    certainty=None if j is None else j.certainty,
                    ttl_s=item.ttl_s,
                )
            case QuarantineRejected():
                counters.quarantine_rejected_requests += 1
                self._thinned(
                    (counters.name, item.session, item.method),
                    now,
                    "quarantine.rejected",
                    upstream=counters.name,
                    session=item.session,
                    method=item.method,
                    status=item.status,
                )
            case QuarantineEnded():
                counters.quarantines_ended[item.cause] += 1
                self._log.event(
                    "quarantine.ended", upstream=counters.name, session=item.session, cause=item.cause
                )

    def _stream_opened(self, counters: UpstreamCounters, item: StreamOpened) -> None:
        counters.streams_open[item.kind] += 1
        if not self._log.writes("debug"):
            return  # there is one for each call
        self._log.event(
            "stream.opened",
            level="debug",
            upstream=counters.name,
            session=item.session,
            stream=item.stream,
            kind=item.kind,
        )

    def _stream_closed(self, counters: UpstreamCounters, item: StreamClosed, now: float) -> None:
        counters.streams_open[item.kind] -= 1
        counters.streams_closed[item.kind, item.cause] += 1
        # A call's own stream in a session ends once: it is nobody's repetition, and would only crowd those out.
        once = item.kind is AttachmentKind.POST and item.session
        self._thinned(
            None if once else (counters.name, item.session, item.stream, item.cause),
            now,
            "stream.closed",
            level="warning" if item.cause in ABNORMAL else "info",
            upstream=counters.name,
            session=item.session,
            stream=item.stream,
            kind=item.kind,
            cause=item.cause,
            events=item.events,
            last_id=without_session(item.last_id, item.session),
            bytes=item.bytes,
            duration_s=round(item.duration_s, 3),
            ttfb_ms=None if item.ttfb_s is None else round(item.ttfb_s * 1000, 3),
        )

    def _thinned(
        self, key: Hashable | None, now: float, event: str, *, level: Level = "info", **fields: object
    ) -> None:
        """Log `event` unless the same was said often enough; `key` says what is the same, None that nothing is."""
        if (repeated := self._repeated(event, key, now)) is not None:
            fields.update(repeated)
            self._log.write(event, level, fields)

    def _repeated(self, event: str, key: Hashable | None, now: float) -> dict[str, int] | None:
        """The field of `event` that says how many like it went unsaid, if any did; None if this one does, too."""
        if key is None:
            return {}
        unsaid = self._repeats.admit((event, key), now)
        return None if unsaid is None else {"repeated": unsaid} if unsaid else {}


def hint_of(judged: Judged) -> str | None:
    """What to look at after this verdict, None if nothing is known that helps."""
    moved, replica = None, judged.replica
    if replica is not None and judged.previous_replica is not None:
        moved = replica != judged.previous_replica
        if not moved and _ADDRESS.fullmatch(replica):
            moved = None  # a balancer's address is that of all the replicas behind it
    j = judged.judgement
    return hints.hint(
        verdict=j.verdict, reason=j.reason, certainty=j.certainty, dialect=judged.dialect, moved=moved
    )


def without_session(event_id: bytes | None, session: str) -> bytes | None:
    """An event id as it may be logged: some servers put the session's own id into it, plain or in base64."""
    if event_id is None or len(session) < _SECRET_CHARS or len(event_id) < len(session):
        return event_id  # too short for any of the forms
    hashed = hash_session(session).encode()
    for form in _forms(session):
        if form in event_id:
            event_id = event_id.replace(form, hashed)
    return event_id


@cached_if_short(1024)
def _forms(session: str) -> tuple[bytes, ...]:
    """How the session's id may stand in an event id: plain, in base64, or inside a longer text in base64."""
    raw = session.encode("utf-8", "surrogateescape")
    forms = [raw, b64encode(raw)]
    for offset, first in enumerate((0, 2, 3)):
        # of the text's own bytes alone: the characters at its ends also hold bits of what stands beside it
        core = b64encode(bytes(offset) + raw)[first : (offset + len(raw)) * 8 // 6]
        forms += [core, core.translate(_URL_SAFE)]
    return tuple(forms)
