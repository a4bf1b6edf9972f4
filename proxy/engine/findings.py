"""The closed vocabulary of what the engine can say, and the values it says it with.

Every word here is at once a metric label, a log value, a key of the configuration and a term of
the README; a word is added here or nowhere. Nothing in this module decides anything. What comes with each stream or
resume is a NamedTuple: it is made in a quarter of the time that a frozen dataclass takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """What one resume turned out to be. Exactly one per resume."""

    RESUMED = "resumed"
    REWOUND = "rewound"
    FORK = "fork"
    GAP = "gap"
    CROSSED = "crossed"
    REFUSED = "refused"
    UNVERIFIABLE = "unverifiable"
    INCONCLUSIVE = "inconclusive"


class Reason(StrEnum):
    """Why a verdict was given. Each belongs to one verdict, see `REASONS`."""

    REPLAYED = "replayed"
    CONTINUED = "continued"
    IDLE = "idle"
    INCLUSIVE = "inclusive"
    CURSOR_IGNORED = "cursor_ignored"
    ID_REGRESSED = "id_regressed"
    LOG_RESTARTED = "log_restarted"
    CONTENT_DIVERGED = "content_diverged"
    ID_MISSING = "id_missing"
    EPOCH_CHANGED = "epoch_changed"
    SESSION_RECYCLED = "session_recycled"
    SUCCESSORS_SKIPPED = "successors_skipped"
    FORWARD_JUMP = "forward_jump"
    NOTHING_REPLAYED = "nothing_replayed"
    OTHER_STREAM = "other_stream"
    OTHER_SESSION = "other_session"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    CONFLICT = "conflict"
    UNSUPPORTED = "unsupported"
    UNAUTHORIZED = "unauthorized"
    THROTTLED = "throttled"
    UPSTREAM_ERROR = "upstream_error"
    NOT_A_STREAM = "not_a_stream"
    OTHER = "other"
    NO_BASELINE = "no_baseline"
    OPAQUE_IDS = "opaque_ids"
    IDS_ABSENT = "ids_absent"
    IDS_AMBIGUOUS = "ids_ambiguous"
    ENCODED = "encoded"
    STATE_LOST = "state_lost"
    CLIENT_LEFT = "client_left"
    UPSTREAM_CLOSED = "upstream_closed"
    UPSTREAM_FAILED = "upstream_failed"


class Certainty(StrEnum):
    """How much the evidence bears. A rule that guesses may only suspect."""

    PROVEN = "proven"
    SUSPECTED = "suspected"


_BOTH = (Certainty.PROVEN, Certainty.SUSPECTED)
_PROVEN = (Certainty.PROVEN,)
_SUSPECTED = (Certainty.SUSPECTED,)

REASONS: dict[Verdict, dict[Reason, tuple[Certainty, ...]]] = {
    Verdict.RESUMED: {Reason.REPLAYED: _BOTH, Reason.CONTINUED: _BOTH, Reason.IDLE: _BOTH},
    Verdict.REWOUND: {Reason.INCLUSIVE: _BOTH, Reason.CURSOR_IGNORED: _BOTH},
    Verdict.FORK: {
        Reason.ID_REGRESSED: _BOTH,
        Reason.LOG_RESTARTED: _BOTH,
        Reason.CONTENT_DIVERGED: _PROVEN,
        Reason.ID_MISSING: _BOTH,
        Reason.EPOCH_CHANGED: _BOTH,
        Reason.SESSION_RECYCLED: _PROVEN,
    },
    Verdict.GAP: {
        Reason.SUCCESSORS_SKIPPED: _BOTH,
        Reason.FORWARD_JUMP: _BOTH,
        Reason.NOTHING_REPLAYED: _BOTH,
    },
    Verdict.CROSSED: {Reason.OTHER_STREAM: _BOTH, Reason.OTHER_SESSION: _BOTH},
    Verdict.REFUSED: {
        Reason.NOT_FOUND: _PROVEN,
        Reason.REJECTED: _PROVEN,
        Reason.CONFLICT: _PROVEN,
        Reason.UNSUPPORTED: _PROVEN,
        Reason.UNAUTHORIZED: _PROVEN,
        Reason.THROTTLED: _PROVEN,
        Reason.UPSTREAM_ERROR: _PROVEN,
        Reason.NOT_A_STREAM: _PROVEN,
        Reason.OTHER: _PROVEN,
    },
    Verdict.UNVERIFIABLE: {
        Reason.NO_BASELINE: _SUSPECTED,
        Reason.OPAQUE_IDS: _SUSPECTED,
        Reason.IDS_ABSENT: _SUSPECTED,
        Reason.IDS_AMBIGUOUS: _SUSPECTED,
        Reason.ENCODED: _SUSPECTED,
        Reason.STATE_LOST: _SUSPECTED,
    },
    Verdict.INCONCLUSIVE: {
        Reason.CLIENT_LEFT: _SUSPECTED,
        Reason.UPSTREAM_CLOSED: _SUSPECTED,
        Reason.UPSTREAM_FAILED: _SUSPECTED,
    },
}
"""Every judgement the engine can give: verdict, then reason, then the certainties it may carry."""

PRODUCIBLE: tuple[tuple[Verdict, Reason, Certainty], ...] = tuple(
    (verdict, reason, certainty)
    for verdict, reasons in REASONS.items()
    for reason, certainties in reasons.items()
    for certainty in certainties
)
"""`REASONS` as flat rows, for whoever needs one counter per judgement from the start."""


class Finding(StrEnum):
    """What is noticed outside a verdict: counted and logged, never a reason to cut."""

    REPLAY_OVERDUE = "replay_overdue"
    ID_REUSED = "id_reused"
    RESPONSE_MISSING = "response_missing"
    RECONNECT_LOOP = "reconnect_loop"
    SESSION_REISSUED = "session_reissued"
    SESSION_FLAPPING = "session_flapping"
    STALE_SESSION_USE = "stale_session_use"
    ERROR_IN_SUCCESS = "error_in_success"
    RECONNECT_WITHOUT_CURSOR = "reconnect_without_cursor"
    CURSOR_NOT_VALIDATED = "cursor_not_validated"
    CURSOR_UNREPRESENTABLE = "cursor_unrepresentable"
    FRAME_TRUNCATED = "frame_truncated"


class AttachmentKind(StrEnum):
    """What one SSE connection serves: a POST's stream, the standalone GET, or a resume of either."""

    POST = "post"
    GET = "get"
    RESUME = "resume"


class Action(StrEnum):
    """What policy did about a judgement. `would_cut` is what `enforce` would have done."""

    PASS = "pass"
    ANNOTATE = "annotate"
    CUT = "cut"
    WOULD_CUT = "would_cut"


class Ending(StrEnum):
    """How one exchange's response ended, as the shell saw it."""

    CLEAN = "clean"
    """The upstream ended the body as its framing promised."""
    UPSTREAM_FAILED = "upstream_failed"
    """The upstream reset, truncated or timed out."""
    CLIENT_LEFT = "client_left"
    """The client closed its connection first."""


class CloseCause(StrEnum):
    """Why an SSE stream ended: the label of `streams_closed_total` and of the canonical log line."""

    COMPLETED = "completed"
    """A POST's stream that carried every response it owed."""
    CLIENT_CLOSED = "client_closed"
    UPSTREAM_EOF = "upstream_eof"
    """A clean end where nothing was owed: a standalone GET, or a stream that can be resumed."""
    EOF_INCOMPLETE = "eof_incomplete"
    """A clean end of a POST's stream with a response still owed."""
    UPSTREAM_RESET = "upstream_reset"
    UPSTREAM_IDLE = "upstream_idle"
    PROXY_CUT = "proxy_cut"
    PROXY_DRAIN = "proxy_drain"
    PROXY_ERROR = "proxy_error"


class QuarantineEnd(StrEnum):
    """Why a quarantine was lifted: the label of `quarantines_ended_total`."""

    REINITIALIZED = "reinitialized"
    """An `initialize` was answered with that very session id."""
    TTL = "ttl"
    """No request has carried the session for `quarantine_ttl`."""
    ADMIN = "admin"
    """An operator let it go, or took the upstream out of `enforce`."""


class SessionCloseReason(StrEnum):
    """Why a session left the ledger: the label of `sessions_closed_total`."""

    DELETED = "deleted"
    EXPIRED = "expired"
    EVICTED = "evicted"
    REISSUED = "reissued"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the rules of continuity concluded from one resume.

    `got` is the id of the frame that decided, None when no frame did. `lost` is a lower bound: ids
    relayed before that the client will not get. `duplicated` counts messages it got twice.
    """

    verdict: Verdict
    reason: Reason
    certainty: Certainty = Certainty.PROVEN
    got: bytes | None = None
    lost: int = 0
    duplicated: int = 0


class Judged(NamedTuple):
    """One resume is judged, with the circumstances an on-call engineer asks for.

    `high` is the newest id relayed on the stream before this resume, None without a baseline.
    `outstanding` counts the known part of the gap. `away_s` is the time since the stream's
    former attachment ended, None if unknown. `took_s` runs from the first body byte of the
    resumed stream (its head, if none came) to the judgement.
    """

    session: str
    stream: str
    judgement: Judgement
    cursor: bytes
    high: bytes | None
    first_id: bytes | None
    outstanding: int
    epoch: int
    in_flight: int
    away_s: float | None
    took_s: float
    replica: str | None
    previous_replica: str | None
    lost_anew: int = 0
    """Of the judgement's `lost`, what no earlier resume of this cursor was already said to have lost."""
    action: Action = Action.PASS
    would_cut: bool = False
    """`enforce` would have cut, and is not in force."""
    dialect: str | None = None
    """The dialect of the session's ids; None before any was seen."""


@dataclass(frozen=True, slots=True)
class Raised:
    """A finding outside a verdict, with the session and stream it concerns ('' when there is none)."""

    finding: Finding
    session: str = ""
    stream: str = ""
    detail: str = ""


class ResumeAttempted(NamedTuple):
    """A GET with a cursor reached the proxy; its verdict follows."""

    session: str
    cursor: bytes


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A 2xx answer made a session known. `protocol` is a known revision or 'other'."""

    session: str
    protocol: str
    followed: bool
    """Whether its `initialize` was seen here, so that everything it showed is known."""


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A session left the ledger."""

    session: str
    reason: SessionCloseReason


@dataclass(frozen=True, slots=True)
class SessionQuarantined:
    """The session was cut: its requests are refused until the client starts a new one."""

    session: str
    judgement: Judgement | None
    """None if it was an operator's wish."""
    ttl_s: float


@dataclass(frozen=True, slots=True)
class QuarantineRejected:
    """A request of a quarantined session was answered by the proxy."""

    session: str
    method: str
    status: int


@dataclass(frozen=True, slots=True)
class QuarantineEnded:
    """A session is no longer quarantined."""

    session: str
    cause: QuarantineEnd


@dataclass(frozen=True, slots=True)
class Gated:
    """How long the frames of a resumed stream were held back in all, in `enforce`, until its verdict."""

    held_s: float


class StreamClosed(NamedTuple):
    """The canonical summary of one SSE connection."""

    session: str
    stream: str
    kind: AttachmentKind
    cause: CloseCause
    events: int
    last_id: bytes | None
    bytes: int
    duration_s: float
    ttfb_s: float | None
    """Seconds from the response head to the first body byte; None if no byte came."""


class StreamOpened(NamedTuple):
    """A response head began an event stream."""

    session: str
    stream: str
    kind: AttachmentKind


@dataclass(frozen=True, slots=True)
class Malformed:
    """The scanner met a line it could not make sense of (an id with a NUL, an over-long id)."""

    session: str
    stream: str
    detail: str


@dataclass(frozen=True, slots=True)
class FailedOpen:
    """A part of the detector raised; the bytes flow on unjudged."""

    component: str
    error: str


Reportable = (
    Judged
    | Raised
    | ResumeAttempted
    | SessionOpened
    | SessionClosed
    | SessionQuarantined
    | QuarantineRejected
    | QuarantineEnded
    | Gated
    | StreamOpened
    | StreamClosed
    | Malformed
    | FailedOpen
)
"""Everything the engine hands the shell to count and log."""
