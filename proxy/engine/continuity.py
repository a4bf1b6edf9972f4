"""The rules: does a resumed connection continue the log of its cursor? One judgement per resume.

The order of the rules is the order of this module: what the response head says, what each frame
says (a frame is judged before it is recorded and before it is delivered), what the end says, what
silence says. Seed 000: the first ids after a reconnect must lie in the gap `(L, H]`. Seed 004: a
lower id, a jump, or no replay at all are the signatures of another log. A `Resume` only reads the
ledger; it never records.
"""

from __future__ import annotations

from enum import Enum

from proxy.engine.digest import PRIMING, same
from proxy.engine.findings import Certainty, Ending, Judgement, Reason, Verdict
from proxy.engine.ids import (
    INTEGER,
    LOOKS_CONTIGUOUS_AFTER,
    Dialect,
    EventId,
    IdClass,
    compare,
    guess,
    skipped,
)
from proxy.engine.ledger import Ambiguous, Baseline, Session
from proxy.engine.log import Known, known

_REFUSALS = {
    404: Reason.NOT_FOUND,
    400: Reason.REJECTED,
    410: Reason.REJECTED,
    412: Reason.REJECTED,
    416: Reason.REJECTED,
    422: Reason.REJECTED,
    409: Reason.CONFLICT,
    405: Reason.UNSUPPORTED,
    501: Reason.UNSUPPORTED,
    401: Reason.UNAUTHORIZED,
    403: Reason.UNAUTHORIZED,
    429: Reason.THROTTLED,
}

OVERDUE_DEADLINES = 10
"""Replay deadlines of silence after which a resume is given up as `nothing_replayed`."""


class FrameKind(Enum):
    """What a frame can prove."""

    NOTHING = "nothing"
    """A comment, a `retry:`, another event type, an id-less ping."""
    PRIMING = "priming"
    """An id without a message: it moves the cursor only."""
    MESSAGE = "message"


class Shown:
    """One frame as the rules see it: its kind, its id (None if it has none) and its two words."""

    __slots__ = ("id", "id_word", "kind", "word")

    def __init__(self, kind: FrameKind, id: bytes | None, id_word: int, word: int) -> None:
        self.kind = kind
        self.id = id
        self.id_word = id_word
        self.word = word


def refusal(status: int, is_stream: bool) -> Judgement | None:
    """Rule 1: the status and content type of the answer; None if it is a 2xx event stream."""
    if 200 <= status < 300:
        return None if is_stream else Judgement(Verdict.REFUSED, Reason.NOT_A_STREAM)
    if status >= 500 and status not in _REFUSALS:
        return Judgement(Verdict.REFUSED, Reason.UPSTREAM_ERROR)
    return Judgement(Verdict.REFUSED, _REFUSALS.get(status, Reason.OTHER))


def _suspect(verdict: Verdict, reason: Reason, **facts: object) -> Judgement:
    return Judgement(verdict, reason, Certainty.SUSPECTED, **facts)  # type: ignore[arg-type]


class Resume:
    """The judging of one resumed connection whose head was a 2xx event stream.

    Each input method returns the judgement once it is final, else None; after that the resume is
    over and must not be asked again. `lost` and `duplicated` of a judgement are lower bounds.
    """

    __slots__ = ("_attached", "_certain", "_current", "_deferred", "_high", "_hole", "_last", "_read_as",
                 "_recycled", "_rewind", "_rewind_unique", "_rewind_unsure", "_skipped", "_todo", "_unnumbered",
                 "baseline", "cursor", "duplicated", "outstanding", "parsed", "session", "struck")  # fmt: skip

    def __init__(
        self,
        session: Session,
        cursor: bytes,
        found: Baseline | Ambiguous | None,
        *,
        attached: bool,
        recycled: bool = False,
    ) -> None:
        """Begin when the response head has come. `found` is the cursor's place in the ledger.

        `attached`: the server may still take an earlier connection of the same stream for open.
        `recycled`: the session had been ended when the resume was sent, and is ended still.
        """
        self.session = session
        self._recycled = recycled
        self._current = isinstance(found, Baseline) and found.log.epoch == session.epoch
        """The cursor was of the newest epoch when the resume opened."""
        self.cursor = cursor
        self.baseline = found
        self._read_as = session.evidence.dialect or guess(cursor)
        self.parsed = self._read_as.parse(cursor)
        self._last: EventId | None = self.parsed
        """The newest id on this connection, beginning with the cursor."""
        self._attached = attached
        todo: list[tuple[int, int]] = []
        self._high: EventId | None = None
        """The newest id relayed on the stream before this resume, in the cursor's epoch."""
        if isinstance(found, Baseline):
            todo = found.outstanding()
            if self._read_as.never_repeats:  # a replay was recorded as further events: each is owed once
                todo = list({word: (id_word, word) for id_word, word in reversed(todo)}.values())[::-1]
            if found.log.epoch == session.epoch:
                self._high = found.stream.last
        self._todo = todo
        self.outstanding = len(todo)
        self.struck = 0
        """Outstanding events that came: the progress that a deadline measures."""
        self._skipped: list[tuple[int, int]] = []
        """Outstanding events passed over where order is loose; they may still come."""
        self._certain = Certainty.PROVEN
        """Falls to suspected once a payload could not be compared."""
        self._rewind: Reason | None = None
        self._rewind_unique = False
        self._rewind_unsure = False
        self.duplicated = 0
        self._deferred = False
        """Something new came before the backlog, where that may be healthy: the deadline decides."""
        self._hole = 0
        """Numbers that such events jumped over and that have not come."""
        self._unnumbered = False

    # ---- the head

    def opened(self, *, encoded: bool) -> Judgement | None:
        """Rules 2 and 3, and what cannot be read: known before any frame."""
        if self._recycled:
            return Judgement(Verdict.FORK, Reason.SESSION_RECYCLED, lost=self.outstanding)
        if encoded:
            return _suspect(Verdict.UNVERIFIABLE, Reason.ENCODED)
        if self.baseline is Ambiguous.AMBIGUOUS:
            return _suspect(Verdict.UNVERIFIABLE, Reason.IDS_AMBIGUOUS)
        return None

    # ---- each frame

    def frame(self, shown: Shown) -> Judgement | None:
        """Rule 4: judge one frame, before it is recorded and before it is delivered."""
        if shown.kind is FrameKind.NOTHING:
            return None
        if shown.id is None:
            return self._without_id(shown)
        if self._dialect() is not self._read_as:  # the session's ids have told meanwhile
            self._read_as = self._dialect()
            self._last = self.parsed = self._read_as.parse(self.cursor)
        baseline = self.baseline
        if not isinstance(baseline, Baseline):
            return self._without_baseline(shown)
        if self._comes_next(shown):
            return self._strike(shown, 0)
        how, place = known(baseline.log, shown.id_word, shown.word)
        if shown.kind is FrameKind.PRIMING:
            return self._priming(shown, how)
        if how in (Known.SAME, Known.UNSURE):
            return self._known(shown, how, place)
        if how is Known.DIFFERENT:
            return self._diverged(shown, place)
        if how is Known.AMBIGUOUS:
            return None
        if how is Known.PRIMED and place == baseline.place:
            return None
        return self._elsewhere(shown) or self._unknown(shown)

    def _without_id(self, shown: Shown) -> Judgement | None:
        """Seed 000: no id on a resumed stream, where its messages carried ids, is a fork."""
        baseline = self.baseline
        if not isinstance(baseline, Baseline):
            return _suspect(Verdict.FORK, Reason.ID_MISSING)
        stream = baseline.stream
        if stream.unnumbered or all(word == PRIMING for word in baseline.log.words):
            self._unnumbered = True
            return None
        return Judgement(Verdict.FORK, Reason.ID_MISSING, lost=len(self._todo))

    def _without_baseline(self, shown: Shown) -> Judgement | None:
        """The cursor was never relayed here: tags and order against its text, always suspected."""
        if shown.id == self.cursor:
            if shown.kind is FrameKind.PRIMING or self._dialect().inclusive:
                return None
            return _suspect(Verdict.REWOUND, Reason.INCLUSIVE, got=shown.id, duplicated=1)
        parsed = self._parse(shown)
        priming = shown.kind is FrameKind.PRIMING
        if priming and self._primes_anew(parsed):
            return None
        judgement = self._tags(shown, parsed) or self._order(shown, parsed)
        if judgement is not None:
            return _suspect(judgement.verdict, judgement.reason, got=shown.id)
        if priming:
            return None
        return _suspect(Verdict.UNVERIFIABLE, Reason.NO_BASELINE, got=shown.id)

    def _priming(self, shown: Shown, how: Known) -> Judgement | None:
        """A priming frame moves the cursor: only its tags and order can tell, if it is new."""
        parsed = self._parse(shown)
        if how is not Known.NO:
            self._advance(parsed)
            return None
        if self._primes_anew(parsed):
            return None
        judgement = self._tags(shown, parsed) or self._order(shown, parsed)
        if judgement is None:
            self._advance(parsed)
        return judgement

    def _primes_anew(self, parsed: EventId | None) -> bool:
        """Whether this is how rmcp primes every connection: with the first number."""
        dialect = self._dialect()
        return dialect.inclusive and parsed is not None and parsed.seq[0] == dialect.first

    # ---- an id the stream of the cursor has shown

    def _known(self, shown: Shown, how: Known, place: int) -> Judgement | None:
        if how is Known.UNSURE:
            self._certain = Certainty.SUSPECTED
        entry = next((i for i, (id_word, _) in enumerate(self._todo) if id_word == shown.id_word), -1)
        if entry >= 0:
            return self._strike(shown, entry)
        if any(id_word == shown.id_word for id_word, _ in self._skipped):
            self._skipped = [e for e in self._skipped if e[0] != shown.id_word]
            self.struck += 1
            return self._passed(shown) or self._replayed(shown)
        assert isinstance(self.baseline, Baseline)
        after = compare(self._parse(shown), self.parsed, self._dialect()) == 1
        if place <= self.baseline.place and not after:  # relayed before the cursor, yet after it by number
            self._rewound(shown, how, place)
        return None  # else relayed here meanwhile by another connection of the stream

    def _comes_next(self, shown: Shown) -> bool:
        """Whether this is the next outstanding event, unchanged: all that a healthy replay brings."""
        if not self._todo or shown.kind is not FrameKind.MESSAGE:
            return False
        id_word, word = self._todo[0]
        return id_word == shown.id_word and same(word, shown.word) is True

    def _strike(self, shown: Shown, entry: int) -> Judgement | None:
        """An outstanding event came: the `entry`-th of those still to come."""
        passed_over = self._todo[:entry]
        del self._todo[: entry + 1]
        self.struck += 1
        self._advance(self._parse(shown))
        if rewound := self._passed(shown):
            return rewound
        if passed_over:
            if self._order_is_loose():
                self._skipped += passed_over
                return None
            return self._lost(shown, len(passed_over))
        return self._replayed(shown)

    def _replayed(self, shown: Shown) -> Judgement | None:
        if self._todo or self._skipped:
            return None
        return Judgement(Verdict.RESUMED, Reason.REPLAYED, self._certain, got=shown.id)

    def _rewound(self, shown: Shown, how: Known, place: int) -> None:
        """An event from the cursor or before it came again: note it, the verdict comes later."""
        assert isinstance(self.baseline, Baseline)
        inclusive = place == self.baseline.place
        if inclusive and self._dialect().inclusive:
            return
        self.duplicated += 1
        if not inclusive or self._rewind is None:
            self._rewind = Reason.INCLUSIVE if inclusive else Reason.CURSOR_IGNORED
        if how is Known.UNSURE:
            self._rewind_unsure = True
        elif self.baseline.log.payload_count(shown.word) == 1:
            self._rewind_unique = True

    def _passed(self, shown: Shown | None) -> Judgement | None:
        """The replay passed the cursor, or ended: what it brought from before decides now."""
        if self._rewind is None:
            return None
        got = shown.id if shown is not None else None
        if self._rewind_unique and not self._may_be_rmcp():
            return Judgement(Verdict.REWOUND, self._rewind, got=got, duplicated=self.duplicated)
        if self._rewind_unsure or self._rewind_unique:
            return _suspect(Verdict.REWOUND, self._rewind, got=got, duplicated=self.duplicated)
        # Equal ids with payloads that stand everywhere in the log: a reborn log looks the same.
        return _suspect(Verdict.FORK, Reason.LOG_RESTARTED, got=got, lost=len(self._todo))

    def _may_be_rmcp(self) -> bool:
        """Whether the server may be one that replays the cursor's own event and means no harm.

        Its numbers are told from others by how its streams begin, which nobody may have read here.
        """
        evidence = self.session.evidence
        inclusive = self._rewind is Reason.INCLUSIVE
        return inclusive and self.session.unread and not evidence.forced and self._dialect() is INTEGER

    def _diverged(self, shown: Shown, place: int) -> Judgement:
        """A known id carries another payload: a counter was reborn, however well the numbers fit."""
        assert isinstance(self.baseline, Baseline)
        before = place <= self.baseline.place
        reason = Reason.LOG_RESTARTED if before else Reason.CONTENT_DIVERGED
        return Judgement(Verdict.FORK, reason, got=shown.id, lost=len(self._todo) + len(self._skipped))

    # ---- an id some other stream or session has shown

    def _elsewhere(self, shown: Shown) -> Judgement | None:
        assert isinstance(self.baseline, Baseline)
        parsed = self._parse(shown)
        where = self.session.elsewhere(parsed, shown.id_word, shown.word, self.baseline.stream)
        if where is None:
            return None
        reason, how = where
        certainty = Certainty.PROVEN if how is Known.SAME else Certainty.SUSPECTED
        return Judgement(Verdict.CROSSED, reason, certainty, got=shown.id)

    # ---- an id nobody has shown

    def _unknown(self, shown: Shown) -> Judgement | None:
        assert isinstance(self.baseline, Baseline)
        parsed = self._parse(shown)
        if crossed := self._tags(shown, parsed):
            return crossed
        order = compare(parsed, self.parsed, self._dialect())
        if order == 0 and self._dialect().cls is not IdClass.TIMED:
            return None  # the cursor's own place in other words
        if order == -1 and self._rewind is Reason.CURSOR_IGNORED:
            return self._passed(shown)  # of the past that is being replayed, though it never came by here
        if judgement := self._order(shown, parsed) or self._passed(shown):
            return judgement
        if self._todo or self._skipped:
            return self._past_outstanding(shown, parsed)
        if self._deferred:
            return self._filled(shown, parsed)
        if not self._current:
            return Judgement(Verdict.FORK, Reason.EPOCH_CHANGED, got=shown.id)
        if (jump := self._jump(shown, parsed)) is not None:
            if self._decides_now():
                return jump
            self._hole = jump.lost
            self._advance(parsed)
            return None
        if parsed is None or compare(self.parsed, parsed, self._dialect()) is None:
            return _suspect(Verdict.UNVERIFIABLE, Reason.OPAQUE_IDS, got=shown.id)
        timed = self._dialect().cls is IdClass.TIMED
        certainty = Certainty.SUSPECTED if timed else self._certain
        return Judgement(Verdict.RESUMED, Reason.CONTINUED, certainty, got=shown.id)

    def _tags(self, shown: Shown, parsed: EventId | None) -> Judgement | None:
        """A tag unlike the cursor's: another stream, another session, another epoch."""
        cursor, evidence = self.parsed, self.session.evidence
        if parsed is None or cursor is None or evidence.tags_broken:
            return None
        if parsed.session is not None and cursor.session == self.session.key != parsed.session:
            return Judgement(Verdict.CROSSED, Reason.OTHER_SESSION, got=shown.id)
        certainty = Certainty.PROVEN if evidence.tags_convict else Certainty.SUSPECTED
        lost = len(self._todo)
        if parsed.session != cursor.session:
            return Judgement(Verdict.CROSSED, Reason.OTHER_SESSION, certainty, got=shown.id)
        if parsed.stream != cursor.stream:
            return Judgement(Verdict.CROSSED, Reason.OTHER_STREAM, certainty, got=shown.id)
        if parsed.epoch != cursor.epoch:
            return Judgement(Verdict.FORK, Reason.EPOCH_CHANGED, certainty, got=shown.id, lost=lost)
        return None

    def _order(self, shown: Shown, parsed: EventId | None) -> Judgement | None:
        """A new id that does not come after the cursor: the counter began anew (seeds 000, 004)."""
        dialect, evidence = self._dialect(), self.session.evidence
        if parsed is None or compare(parsed, self.parsed, dialect) != -1:
            return None
        if evidence.disordered and not self._below_everything(parsed):
            return None
        reborn = dialect.first is not None and parsed.seq[-1] <= dialect.first
        reason = Reason.LOG_RESTARTED if reborn else Reason.ID_REGRESSED
        certainty = Certainty.PROVEN if evidence.convicts else Certainty.SUSPECTED
        return Judgement(Verdict.FORK, reason, certainty, got=shown.id, lost=len(self._todo))

    def _below_everything(self, parsed: EventId) -> bool:
        """Where ids come out of order within one connection, only a new beginning is suspect."""
        first = self._dialect().first
        return first is not None and parsed.seq[-1] <= first

    def _past_outstanding(self, shown: Shown, parsed: EventId | None) -> Judgement | None:
        """Something new came while relayed events are still outstanding."""
        dialect = self._dialect()
        if dialect.cls is IdClass.OPAQUE and not dialect.unique and self._strike_by_payload(shown):
            self._certain = Certainty.SUSPECTED
            return self._replayed(shown)
        if compare(parsed, self._high, dialect) == -1:
            self._advance(parsed)  # within the gap: never relayed here, yet no proof that more is lost
            return None
        if not self._decides_now():
            return None
        return self._lost(shown, len(self._todo) + len(self._skipped))

    def _strike_by_payload(self, shown: Shown) -> bool:
        """Where an event has a new id each time it is sent, its payload stands for it."""
        if self._todo and same(self._todo[0][1], shown.word) is not False:
            del self._todo[0]
            self.struck += 1
            return True
        return False

    def _decides_now(self) -> bool:
        """Where live events may come before the backlog, a jump is left to the deadline."""
        self._deferred = self._dialect().live_first
        return not self._deferred

    def _lost(self, shown: Shown, lost: int) -> Judgement:
        dialect, evidence = self._dialect(), self.session.evidence
        doubtful = dialect.cls is IdClass.TIMED or dialect.never_repeats or evidence.disordered
        certainty = Certainty.SUSPECTED if doubtful else self._certain
        return Judgement(Verdict.GAP, Reason.SUCCESSORS_SKIPPED, certainty, got=shown.id, lost=lost)

    def _jump(self, shown: Shown, parsed: EventId | None) -> Judgement | None:
        """Seed 004 (b): the first new id is not the successor of the last one."""
        last, evidence = self._reached(), self.session.evidence
        if parsed is None or last is None or parsed.stream != last.stream:
            return None
        lost = skipped(last, parsed)
        if lost <= 0:
            return None
        assert isinstance(self.baseline, Baseline)
        stream, run = self.baseline.stream, self.baseline.log.run
        if evidence.contiguous:
            if self.session.grew and self.session.counted_past(stream, last.seq[0] + 1):
                return None  # one counter for all streams, whatever the form of the ids says
            certainty = Certainty.PROVEN if evidence.convicts else Certainty.SUSPECTED
            return Judgement(Verdict.GAP, Reason.FORWARD_JUMP, certainty, got=shown.id, lost=lost)
        if self._dialect().name != "integer" or run < LOOKS_CONTIGUOUS_AFTER:
            return None
        if self.session.upstream.counted_elsewhere(self.session, stream, last.seq[0] - run):
            return None
        return _suspect(Verdict.GAP, Reason.FORWARD_JUMP, got=shown.id, lost=lost)

    def _reached(self) -> EventId | None:
        """How far this connection has come, or another one of the same stream meanwhile."""
        assert isinstance(self.baseline, Baseline)
        last, newest = self._last, self.baseline.stream.last
        if last is None or newest is None or newest.stream != last.stream:
            return last
        return max(last, newest, key=lambda each: each.seq)

    def _filled(self, shown: Shown, parsed: EventId | None) -> Judgement | None:
        """A live event came before the backlog; this is of the backlog, or live and further on."""
        last = self._last
        if parsed is None or last is None:
            return None
        if parsed.seq > last.seq:
            self._hole += skipped(last, parsed)
            self._advance(parsed)
        else:
            self._hole -= 1
        if self._hole > 0:
            return None
        return Judgement(Verdict.RESUMED, Reason.CONTINUED, self._certain, got=shown.id)

    # ---- the end, and silence

    def ended(self, how: Ending, *, overdue: bool = False, superseded: bool = False) -> Judgement:
        """Rule 5: the connection ended without a decision. `overdue`: the deadline had passed.

        `superseded`: another connection of the stream is open, so the server may have ended this one for it.
        """
        if rewound := self._passed(None):
            return rewound
        missing = self.missing
        if not isinstance(self.baseline, Baseline):
            return _suspect(Verdict.UNVERIFIABLE, Reason.NO_BASELINE)
        if not missing and not self._hole:
            if self._unnumbered:
                return _suspect(Verdict.UNVERIFIABLE, Reason.IDS_ABSENT)
            # A dead stream is as quiet as an idle one: while it owes a response, nothing is sure.
            certainty = Certainty.SUSPECTED if self.baseline.stream.owed else Certainty.PROVEN
            return Judgement(Verdict.RESUMED, Reason.IDLE, certainty)
        if how is Ending.UPSTREAM_FAILED:
            return _suspect(Verdict.INCONCLUSIVE, Reason.UPSTREAM_FAILED)
        if how is Ending.CLIENT_LEFT:
            if overdue and not self.struck:
                return _suspect(Verdict.GAP, Reason.NOTHING_REPLAYED, lost=missing)
            return _suspect(Verdict.INCONCLUSIVE, Reason.CLIENT_LEFT)
        if not missing:
            return _suspect(Verdict.GAP, Reason.FORWARD_JUMP, lost=self._hole)
        if self.struck:
            return _suspect(Verdict.INCONCLUSIVE, Reason.UPSTREAM_CLOSED)
        certainty = Certainty.SUSPECTED if self._attached or superseded else Certainty.PROVEN
        return Judgement(Verdict.GAP, Reason.NOTHING_REPLAYED, certainty, lost=missing)

    @property
    def missing(self) -> int:
        """Outstanding events that have not come."""
        return len(self._todo) + len(self._skipped)

    def waiting(self) -> bool:
        """Whether relayed events are outstanding, or a decision was put off, so that silence tells."""
        return bool(self._todo or self._skipped or self._deferred)

    def overdue(self, deadlines: int) -> Judgement | None:
        """Rule 6: `deadlines` replay deadlines have passed without progress."""
        missing = self.missing
        if self._deferred:
            if missing:
                return _suspect(Verdict.GAP, Reason.SUCCESSORS_SKIPPED, lost=missing)
            return _suspect(Verdict.GAP, Reason.FORWARD_JUMP, lost=self._hole)
        return self.given_up() if deadlines >= OVERDUE_DEADLINES else None

    def given_up(self) -> Judgement | None:
        """Silence is taken for the answer: what is outstanding will not come. None if nothing is."""
        if not self.missing:
            return None
        return _suspect(Verdict.GAP, Reason.NOTHING_REPLAYED, lost=self.missing)

    # ---- small questions

    def _dialect(self) -> Dialect:
        return self.session.evidence.dialect or self._read_as

    def _parse(self, shown: Shown) -> EventId | None:
        assert shown.id is not None
        return self._dialect().parse(shown.id)

    def _advance(self, parsed: EventId | None) -> None:
        """An id was seen on this connection: the successor is counted from it."""
        if parsed is not None and (self._last is None or parsed.seq > self._last.seq):
            self._last = parsed

    def _order_is_loose(self) -> bool:
        """Whether a correct replay may bring the outstanding events in another order."""
        dialect = self._dialect()
        return dialect.live_first or dialect.cls is IdClass.TIMED
