"""One SSE response on its way through: frames are judged, then recorded, and their answers ticked off.

The bytes themselves are not here: in `observe` the shell sends each chunk as it came. A frame is
judged before it is recorded, since a recorded id would make every fork look known. `receive`
returns the shared `PASS` unless something is to be reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from proxy.engine.attachment import Attachment
from proxy.engine.commands import PASS, Command, Report, WakeAfter
from proxy.engine.continuity import FrameKind, Resume, Shown
from proxy.engine.digest import PRIMING, UNKNOWN, id_word, oversized_answers, read
from proxy.engine.findings import (
    AttachmentKind,
    Certainty,
    CloseCause,
    Ending,
    Finding,
    Judged,
    Judgement,
    Malformed,
    Raised,
    Reportable,
    StreamClosed,
    StreamOpened,
    Verdict,
)
from proxy.engine.ids import RMCP
from proxy.engine.ledger import Known, Session, Stream, known
from proxy.engine.sessions import Ledger, missing_responses
from proxy.engine.sse import Frame, Scanner

_MESSAGE = b"message"
_EMPTY_PAYLOADS = (b"{}", b"null")
"""What some servers replay a priming frame as."""
_RMCP_RETRY_MS = 3000
"""rmcp primes with `id: 0` and this `retry:` before any id tells it from other integers."""


class State(Enum):
    """What is done with the bytes that come."""

    LIVE = "live"
    """Frames are recorded; there is nothing to judge (any more)."""
    JUDGING = "judging"
    """A resume whose verdict is not final."""
    UNREADABLE = "unreadable"
    """A content coding hides the frames: bytes are counted, nothing is known."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a judgement is reported with, as it stood when the resumed connection opened."""

    cursor: bytes
    high: bytes | None
    away_s: float | None
    replica: str | None
    previous_replica: str | None


class Relay:
    """One event stream between its response head and its end.

    `session` is None for traffic without a session; then frames are counted and answers ticked off,
    and nothing is remembered. Inputs are `opened`, `receive`, `wake` and `ended`, each returning
    commands; `now` is monotonic seconds.
    """

    __slots__ = ("_attachment", "_circumstances", "_deadline_s", "_first_byte_at", "_first_id", "_last_id",
                 "_ledger", "_malformed", "_opened_at", "_out", "_progress", "_progress_at", "_reported_overdue",
                 "_resume", "_scanner", "_state", "bytes", "events", "kind", "session", "stream")  # fmt: skip

    def __init__(
        self,
        ledger: Ledger,
        kind: AttachmentKind,
        session: Session | None,
        stream: Stream,
        *,
        now: float,
        readable: bool,
        resume: Resume | None = None,
        circumstances: Circumstances | None = None,
        deadline_s: float = 5.0,
    ) -> None:
        self._ledger = ledger
        self.kind = kind
        self.session = session
        self.stream = stream
        self._attachment = None if session is None else Attachment(session, stream, kind)
        self._resume = resume
        self._circumstances = circumstances
        self._deadline_s = deadline_s
        self._scanner = Scanner()
        self._state = State.LIVE if readable else State.UNREADABLE
        if readable and resume is not None:
            self._state = State.JUDGING
        self._opened_at = now
        self._first_byte_at: float | None = None
        self._first_id: bytes | None = None
        self._last_id: bytes | None = None
        self._malformed = 0
        self._progress = 0
        self._progress_at = now
        self._reported_overdue = False
        self._out: list[Command] = []
        self.bytes = 0
        self.events = 0
        """Frames with data that have passed."""

    @property
    def judging(self) -> bool:
        """Whether a verdict is still to come."""
        return self._state is State.JUDGING

    # ---- inputs

    def opened(self, now: float) -> Sequence[Command]:
        """The response head is out. A resume may be decided by what is known already."""
        session, resume = self.session, self._resume
        self._report(StreamOpened("" if session is None else session.name, self.stream.label, self.kind))
        self.stream.attachments += 1
        if session is not None and self._state is State.UNREADABLE:
            session.complete = False
        if resume is not None:
            judgement = resume.opened(encoded=self._state is State.UNREADABLE)
            if judgement is not None:
                self._judge(judgement, now)
            elif resume.waiting():
                self._out.append(WakeAfter(self._deadline_s))
        return self._take()

    def receive(self, chunk: bytes, now: float) -> Sequence[Command]:
        """Bytes of the body, cut anywhere, about to be sent as they are."""
        if self._first_byte_at is None:
            self._first_byte_at = now
        self.bytes += len(chunk)
        if self._state is State.UNREADABLE:
            return PASS
        for frame in self._scanner.feed(chunk):
            self._frame(frame, now)
        if self._scanner.malformed != self._malformed:
            self._malformed = self._scanner.malformed
            self._report(Malformed(self._session_name(), self.stream.label, "an id that cannot be an id"))
        return self._take() if self._out else PASS

    def wake(self, now: float) -> Sequence[Command]:
        """Time has passed, as asked by `WakeAfter`: silence on a resume is judged."""
        resume = self._resume
        if self._state is not State.JUDGING or resume is None:
            return PASS
        deadlines = int((now - self._progress_at) / self._deadline_s + 1e-6)
        if deadlines >= 1:
            self._overdue(resume, deadlines, now)
        if self.judging and resume.waiting():
            due = self._progress_at + (deadlines + 1) * self._deadline_s
            self._out.append(WakeAfter(max(due - now, 0.001)))
        return self._take()

    def ended(self, how: Ending, now: float, cause: CloseCause | None = None) -> Sequence[Command]:
        """The stream is over. `cause` is given where the shell knows better than `how` says."""
        if self._state is State.ENDED:
            return PASS
        if self.judging and self._resume is not None:
            overdue = now - self._progress_at >= self._deadline_s
            self._judge(self._resume.ended(how, overdue=overdue), now)
        truncated = self._scanner.mid_frame and how is not Ending.CLIENT_LEFT
        if truncated:
            self._raise(Finding.FRAME_TRUNCATED)
        if cause is None:
            cause = self._cause(how)
        readable = self._state is not State.UNREADABLE
        self._state = State.ENDED
        self._detach(how, now, readable=readable)
        first = self._first_byte_at
        self._report(
            StreamClosed(
                session=self._session_name(),
                stream=self.stream.label,
                kind=self.kind,
                cause=cause,
                events=self.events,
                last_id=self._last_id,
                bytes=self.bytes,
                duration_s=now - self._opened_at,
                ttfb_s=None if first is None else first - self._opened_at,
            )
        )
        return self._take()

    def abandon(self) -> None:
        """The engine failed on this stream: let go of it without a word."""
        if self._state is not State.ENDED:
            self._state = State.ENDED
            self.stream.attachments -= 1
            self.stream.owed = ()

    # ---- one frame

    def _frame(self, frame: Frame, now: float) -> None:
        if frame.retry_ms is not None:
            self.stream.retry_ms = frame.retry_ms
        if frame.has_data and not frame.empty:
            self.events += 1
        raw = frame.id or None
        payload = frame.payload
        kind = FrameKind.MESSAGE
        if frame.id_overlong:
            if self.session is not None:
                self.session.complete = False
            kind = FrameKind.NOTHING
        elif frame.event != _MESSAGE:
            kind = FrameKind.NOTHING
        elif frame.empty or not frame.has_data:
            kind = FrameKind.PRIMING if raw is not None else FrameKind.NOTHING
        word = UNKNOWN
        if kind is FrameKind.MESSAGE:
            if payload is None:
                self._settle_oversized(frame)
            elif raw is not None or _may_answer(payload):
                message = read(payload)
                if message is not None:
                    word = message.word
                    self._settle(message.answers)
                    if message.session_error:
                        self._raise(Finding.ERROR_IN_SUCCESS)
                    if message.is_ping and raw is None:
                        kind = FrameKind.NOTHING
        if raw is not None:
            self._last_id = raw
            if self._first_id is None:
                self._first_id = raw
        if self._attachment is not None:
            self._show(frame, Shown(kind, raw, 0 if raw is None else id_word(raw), word), now)

    def _show(self, frame: Frame, shown: Shown, now: float) -> None:
        """Judge the frame, if there is a resume to judge, then record it."""
        attachment, session = self._attachment, self.session
        assert attachment is not None
        assert session is not None
        if shown.kind is FrameKind.PRIMING and session.evidence.dialect is None:
            if shown.id == b"0" and frame.retry_ms == _RMCP_RETRY_MS:
                session.evidence.dialect = RMCP
        elif (
            shown.kind is FrameKind.MESSAGE
            and frame.payload in _EMPTY_PAYLOADS
            and known(self.stream.log, shown.id_word, PRIMING)[0] is Known.PRIMED
        ):
            shown.kind = FrameKind.PRIMING
        if self._state is State.JUDGING and self._resume is not None:
            judgement = self._resume.frame(shown)
            if self._resume.struck != self._progress:
                self._progress, self._progress_at = self._resume.struck, now
            if judgement is not None:
                self._judge(judgement, now)
                if judgement.verdict is Verdict.CROSSED:
                    session.complete = False
                    return
        raised = attachment.record(shown)
        if raised is not None:
            self._report(raised)

    def _judge(self, judgement: Judgement, now: float) -> None:
        """The verdict is final: report it, and let a proven new log begin its epoch."""
        session, resume, seen = self.session, self._resume, self._circumstances
        assert session is not None
        assert resume is not None
        assert seen is not None
        if self._state is State.JUDGING:
            self._state = State.LIVE
        if judgement.verdict is Verdict.FORK and judgement.certainty is Certainty.PROVEN:
            if session.ended:
                for item in self._ledger.revive(session):
                    self._report(item)
            elif self._attachment is not None:
                self._attachment.begin_epoch()
        since = self._opened_at if self._first_byte_at is None else self._first_byte_at
        self._report(
            Judged(
                session=session.name,
                stream=self.stream.label,
                judgement=judgement,
                cursor=seen.cursor,
                high=seen.high,
                first_id=self._first_id,
                outstanding=resume.outstanding,
                epoch=session.epoch,
                in_flight=len(session.in_flight),
                away_s=seen.away_s,
                took_s=now - since,
                replica=seen.replica,
                previous_replica=seen.previous_replica,
            )
        )

    def _overdue(self, resume: Resume, deadlines: int, now: float) -> None:
        if resume.missing and not self._reported_overdue:
            self._reported_overdue = True
            self._raise(Finding.REPLAY_OVERDUE, f"{resume.missing} events outstanding")
        judgement = resume.overdue(deadlines)
        if judgement is not None:
            self._judge(judgement, now)

    # ---- answers

    def _settle(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self.session is not None:
                self.session.settle(key)
            else:
                self.stream.owed = tuple(owed for owed in self.stream.owed if owed != key)

    def _settle_oversized(self, frame: Frame) -> None:
        """A message too large to read whole: where its id does not show, it may answer all it owes."""
        answers = oversized_answers(frame.head, frame.tail)
        self._settle(self.stream.owed if answers is None else answers)

    # ---- the end

    def _cause(self, how: Ending) -> CloseCause:
        if how is Ending.CLIENT_LEFT:
            return CloseCause.CLIENT_CLOSED
        if how is Ending.UPSTREAM_FAILED:
            return CloseCause.UPSTREAM_RESET
        if self._state is State.UNREADABLE or self.stream.kind is not AttachmentKind.POST:
            return CloseCause.UPSTREAM_EOF
        return CloseCause.EOF_INCOMPLETE if self.stream.owed else CloseCause.COMPLETED

    def _detach(self, how: Ending, now: float, *, readable: bool) -> None:
        """The connection is gone; what its stream owes may still come by a resume, or never."""
        session, stream = self.session, self.stream
        stream.attachments -= 1
        if stream.attachments:
            return
        stream.detached_at = now
        if not stream.owed:
            return
        if session is not None and len(stream.log):
            self._ledger.await_resume(session, stream, now)
        elif how is Ending.CLIENT_LEFT or not readable:
            self._settle(stream.owed)  # the client gave up, or what came could not be read
        else:
            for item in missing_responses(session, stream):
                self._report(item)

    # ---- small steps

    def _session_name(self) -> str:
        return "" if self.session is None else self.session.name

    def _raise(self, finding: Finding, detail: str = "") -> None:
        self._report(Raised(finding, self._session_name(), self.stream.label, detail))

    def _report(self, item: Reportable) -> None:
        self._out.append(Report(item))

    def _take(self) -> Sequence[Command]:
        out, self._out = self._out, []
        return out


def _may_answer(payload: bytes) -> bool:
    """Whether an id-less message may be a response, an error or a ping: the only ones worth reading."""
    return b'"result"' in payload or b'"error"' in payload or b'"ping"' in payload

