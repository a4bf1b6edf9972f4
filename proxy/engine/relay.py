"""One SSE response on its way through: frames are judged, then recorded, and their answers ticked off.

A frame is judged before it is recorded, since a recorded id would make every fork look known. The
shell sends each chunk as it came, and then shows it to `receive`. Only a resume in `annotate` or
`enforce` rewrites: until its verdict, nothing leaves but what `receive` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from proxy.engine import quarantine, terminal
from proxy.engine.attachment import Attachment
from proxy.engine.commands import PASS, Abort, Command, Finish, Report, Send, WakeAfter
from proxy.engine.continuity import FrameKind, Resume, Shown
from proxy.engine.digest import LARGE, UNKNOWN, digest_asking, id_word, oversized_answers, read
from proxy.engine.findings import (
    Action,
    AttachmentKind,
    Certainty,
    CloseCause,
    Ending,
    FailedOpen,
    Finding,
    Gated,
    Judged,
    Judgement,
    Malformed,
    Raised,
    Reason,
    Reportable,
    StreamClosed,
    StreamOpened,
    Verdict,
)
from proxy.engine.ids import RMCP
from proxy.engine.ledger import Baseline, Member, Session, Stream
from proxy.engine.outlet import Outlet, void
from proxy.engine.policy import Decision, Mode, Policy, decide, milder
from proxy.engine.sessions import Ledger, missing_responses
from proxy.engine.sse import Frame, Scanner
from proxy.engine.timeline import Connection

_MESSAGE = b"message"
_SPOKEN = (b'"jsonrpc"', b'"method"', b'"result"', b'"error"')
"""A payload with none of these members is no JSON-RPC message: some servers send such as heartbeats."""
_NEVER = float("inf")
_RMCP_RETRY_MS = 3000
"""rmcp primes with `id: 0` and this `retry:` before any id tells it from other integers."""


INTERRUPTED = Judgement(Verdict.INCONCLUSIVE, Reason.CLIENT_LEFT, Certainty.SUSPECTED)
"""The verdict of a resume that its client cannot follow any more: another one has ended the session."""


class State(Enum):
    """What is done with the bytes that come."""

    LIVE = "live"
    """Frames are recorded; there is nothing to judge (any more)."""
    JUDGING = "judging"
    """A resume whose verdict is not final."""
    UNREADABLE = "unreadable"
    """A content coding hides the frames: bytes are counted, nothing is known."""
    CUT = "cut"
    """The response was ended by a verdict; nothing more of it leaves."""
    ENDED = "ended"
    ABANDONED = "abandoned"
    """The detector failed on it: it is over for the engine, while its bytes flow on."""


# On Python 3.11 an enum's member costs as much as a call each time it is looked up on its class.
LIVE, JUDGING, UNREADABLE = State.LIVE, State.JUDGING, State.UNREADABLE
CUT, ENDED, ABANDONED = State.CUT, State.ENDED, State.ABANDONED


class Resumption(NamedTuple):
    """What only a resumed connection has: its judging, and how things stood when it opened."""

    resume: Resume
    policy: Policy
    deadline_s: float
    gate_bytes: int
    member: Member
    cursor: bytes
    high: bytes | None
    away_s: float | None
    replica: str | None
    previous_replica: str | None


class Relay:
    """One event stream between its response head and its end.

    `session` is None for traffic without a session; then frames are counted and answers ticked off,
    and nothing is remembered. Inputs are `opened`, `receive`, `wake`, `cut` and `ended`, each
    returning commands; `now` is monotonic seconds.
    """

    __slots__ = ("_attachment", "_due", "_first_byte_at", "_first_id", "_judged_early", "_last_id", "_ledger",
                 "_malformed", "_nth", "_opened_at", "_out", "_outlet", "_progress", "_progress_at",
                 "_reported_overdue", "_resumption", "_scanner", "_sealed", "_state", "_trace", "bytes", "events",
                 "kind", "session", "stream")  # fmt: skip

    def __init__(
        self,
        ledger: Ledger,
        kind: AttachmentKind,
        session: Session | None,
        stream: Stream,
        *,
        now: float,
        readable: bool,
        whole: bool = False,
        resumption: Resumption | None = None,
    ) -> None:
        """`whole`: the response's head promised its length, so nothing can be added to it."""
        self._ledger = ledger
        self.kind = kind
        self.session = session
        self.stream = stream
        self._attachment = None if session is None else Attachment(session, stream, kind)
        self._resumption = resumption
        self._scanner = Scanner(shape=None if session is None else session.upstream.shape)
        self._state = LIVE if readable else UNREADABLE
        self._outlet: Outlet | None = None
        """What leaves, where that is not simply what came: a resume in `annotate` or `enforce`."""
        if readable and resumption is not None:
            self._state = JUDGING
            if resumption.policy.mode is not Mode.OBSERVE:
                hold = resumption.policy.mode is Mode.ENFORCE
                self._outlet = Outlet(self._scanner, hold=hold, gate_bytes=resumption.gate_bytes)
        self._sealed = self._outlet is None and (whole or not readable)
        """Nothing can be added: its length is promised, or a coding hides where."""
        self._judged_early = False
        """The unfinished frame was too large for the gate and is judged already."""
        self._opened_at = now
        self._first_byte_at: float | None = None
        self._first_id: bytes | None = None
        self._last_id: bytes | None = None
        self._malformed = 0
        self._nth = 0
        """Which of its stream's connections this is."""
        self._progress = 0
        self._progress_at = now
        self._reported_overdue = False
        self._out: list[Command] = []
        self._trace: Connection | None = None
        """What the picture of the session shows of this connection; None without a session."""
        self._due = _NEVER
        """When its next sample is wanted; never without one."""
        self.bytes = 0
        self.events = 0
        """Frames with data that have passed."""

    @property
    def judging(self) -> bool:
        """Whether a verdict is still to come."""
        return self._state is JUDGING

    @property
    def rewrites(self) -> bool:
        """Whether other bytes than the upstream's may leave: then no length can be promised, and `receive`
        says what leaves."""
        return self._outlet is not None

    # ---- inputs

    def opened(self, now: float) -> Sequence[Command]:
        """The response head is out. A resume may be decided by what is known already."""
        session, resumption = self.session, self._resumption
        self._report(StreamOpened(self._session_name(), self.stream.label, self.kind))
        self.stream.attachments += 1
        self.stream.connections += 1
        self._nth = self.stream.connections
        if session is not None:
            self._trace = session.connect(self.stream, self.kind, now, self.stream.replica)
            self._due = now
            if self._state is UNREADABLE:
                session.overlook()
        if resumption is not None:
            judgement = resumption.resume.opened(encoded=self._state is UNREADABLE)
            if judgement is not None:
                self._judge(judgement, None, now)
            elif resumption.resume.waiting():
                self._out.append(WakeAfter(resumption.deadline_s))
        return self._take()

    def receive(self, chunk: bytes, now: float) -> Sequence[Command]:
        """Bytes of the body, cut anywhere; they have been sent as they are, unless this `rewrites`."""
        if self._first_byte_at is None:
            self._first_byte_at = now
        self.bytes += len(chunk)
        if self._state is UNREADABLE:
            return PASS
        if self._outlet is not None:
            self._receive_through(self._outlet, chunk, now)
            return self._take()
        for frame in self._scanner.feed(chunk):
            if self._state is not LIVE or not self._pass(frame):
                self._frame(frame, now)
        if now >= self._due and self._last_id is not None and not self.judging:
            self._mark_newest(self._last_id, now)
        if self._scanner.malformed != self._malformed:
            self._report_malformed()
        return self._take() if self._out else PASS

    def wake(self, now: float) -> Sequence[Command]:
        """Time has passed, as asked by `WakeAfter`: silence on a resume is judged."""
        resumption = self._resumption
        if self._state is not JUDGING or resumption is None:
            return PASS
        deadlines = int((now - self._progress_at) / resumption.deadline_s + 1e-6)
        if deadlines >= 1:
            self._overdue(resumption, deadlines, now)
        if self.judging and resumption.resume.waiting():
            due = self._progress_at + (deadlines + 1) * resumption.deadline_s
            self._out.append(WakeAfter(max(due - now, 0.001)))
        return self._take()

    def cut(self, now: float) -> Sequence[Command]:
        """The session was quarantined by another exchange: the calls pending here fail, the stream ends."""
        if self._state in (CUT, ENDED, ABANDONED) or self.session is None:
            return PASS
        if self.judging:
            self._report_judged(INTERRUPTED, Decision(Action.PASS, False), now)
            self._report_gate(now)
        self._state = CUT
        self._out += self._closing(self._void())
        return self._take()

    def ended(self, how: Ending, now: float, cause: CloseCause | None = None) -> Sequence[Command]:
        """The stream is over. `cause` is given where the shell knows better than `how` says.

        The commands are to be performed before the response is ended.
        """
        if self._state is ENDED:
            return PASS
        if self.judging and self._resumption is not None:
            overdue = now - self._progress_at >= self._resumption.deadline_s
            superseded = self.stream.attachments > 1 or self.stream.connections > self._nth
            judgement = self._resumption.resume.ended(how, overdue=overdue, superseded=superseded)
            self._judge(judgement, None, now, gone=how is Ending.CLIENT_LEFT)
        if self._state is CUT:
            how, cause = Ending.CLIENT_LEFT, CloseCause.PROXY_CUT
        elif self._outlet is not None:
            self._send(self._outlet.release_rest(now))
        if self._scanner.mid_frame and how is not Ending.CLIENT_LEFT:
            self._raise(Finding.FRAME_TRUNCATED)
        if cause is None:
            cause = self._cause(how)
        readable = self._state is not UNREADABLE
        self._state = ENDED
        if self.session is not None:
            self.session.upstream.shape = self._scanner.shape
        self._detach(how, now, readable=readable)
        if self._trace is not None:
            if self._last_id is not None:
                self._mark_newest(self._last_id, now)
            self._trace.finish(now, cause, self.events)
        self._report(self._closed(cause, now))
        self._let_go()
        return self._take()

    def abandon(self) -> bytes:
        """The engine failed on this stream: let go of it without a word; returns what was held back."""
        if self._state in (ENDED, ABANDONED):
            return b""
        self._state = ABANDONED
        self.stream.attachments -= 1
        if self._trace is not None:
            self._trace.finish(self._opened_at, CloseCause.PROXY_ERROR, self.events)
        self._settle(self.stream.owed)
        self._let_go()
        outlet, self._outlet = self._outlet, None
        return b"" if outlet is None else outlet.release_rest(0.0)

    def abandoned(self, now: float) -> StreamClosed | None:
        """What is to be counted for a stream that `abandon` let go of; None if it was over before."""
        return self._closed(CloseCause.PROXY_ERROR, now) if self._state is ABANDONED else None

    # ---- a resume in annotate or enforce

    def _receive_through(self, outlet: Outlet, chunk: bytes, now: float) -> None:
        """Judge each frame before it leaves: hold it back in `enforce`, mark it in `annotate`."""
        outlet.take(chunk)
        for frame in self._scanner.feed(chunk):
            outlet.completed(frame)
            self._frame(frame, now)
            if self._state is CUT:
                return
        if self._scanner.malformed != self._malformed:
            self._report_malformed()
        if self.judging:
            self._send(outlet.release(outlet.deliverable(), now))
            if outlet.overflows():
                self._overflow(outlet, now)
            return
        self._send(outlet.release(self._scanner.offset, now))
        if outlet.idle:
            self._outlet = None  # judged: a raw copy from here on

    def _overflow(self, outlet: Outlet, now: float) -> None:
        """A frame is larger than the gate: judge it by what is known of it, then let it go."""
        self._report(FailedOpen("gate", f"a frame is larger than gate_bytes ({outlet.gate_bytes})"))
        raw = self._scanner.unfinished_id
        if raw:
            self._judge_frame(Shown(FrameKind.MESSAGE, raw, id_word(raw), UNKNOWN), None, now)
        if self._state is not CUT:
            self._send(outlet.release(self._scanner.offset, now))

    def _mark(self, judgement: Judgement, frame: Frame | None, now: float, *, annotate: bool) -> None:
        """Let go of the stream, annotated or not. `frame` is the one that decided, None if none did."""
        outlet, session, resumption = self._outlet, self.session, self._resumption
        if outlet is None:
            return
        assert session is not None
        assert resumption is not None
        if frame is None:
            self._send(outlet.release(self._scanner.offset, now))
        if not annotate:
            return
        comment = terminal.comment(judgement, resumption.cursor)
        notice = b""
        if resumption.policy.notify:
            notice = terminal.notification(judgement, resumption.cursor, session.key)
        if frame is None:
            self._send(outlet.annotate_silence(comment, notice))
        else:
            outlet.annotate(frame, comment, notice)

    def _cut_session(self, judgement: Judgement, frame: Frame | None, now: float, *, gone: bool) -> None:
        """Quarantine, then this stream, then the others: all in this turn of the loop.

        `gone`: the client has left this connection, so the calls pending on it fail at its next.
        """
        session, resumption = self.session, self._resumption
        assert session is not None
        assert resumption is not None
        self._state = CUT
        self._out += quarantine.begin(session, judgement, resumption.cursor, now)
        if not gone:
            self._out += self._closing(self._cut_point(frame, now))
        self._out += quarantine.cut_others(session, resumption.member, now)

    def _cut_point(self, frame: Frame | None, now: float) -> bytes:
        """Let go of what came before the frame that decided; what makes void a part of it that has left."""
        outlet = self._outlet
        if outlet is None or frame is None:
            return self._void()
        if prefix := outlet.void_completed(frame):
            return prefix
        self._send(outlet.release(frame.start, now))
        return b""

    def _closing(self, prefix: bytes) -> list[Command]:
        """The end of a stream that is cut: its pending calls fail, each by its own id.

        Where nothing can be said it breaks off, and they fail when their client resumes them.
        """
        if self._sealed:
            return [Abort()]
        assert self.session is not None
        assert self.session.quarantine is not None
        events = quarantine.error_events(self.session, self.session.quarantine, self.stream)
        return [Send(prefix + events), Finish()] if events else [Finish()]

    # ---- one frame

    def _pass(self, frame: Frame) -> bool:
        """The common frame of a live stream, a message with a new id that answers nothing: record it.

        False, and nothing done, if the frame is any other.
        """
        attachment, raw, payload = self._attachment, frame.id, frame.payload
        if attachment is None or not raw or type(frame) is not Frame:
            return False
        if payload is None or len(payload) > LARGE:
            return False
        word = digest_asking(payload)
        if word == UNKNOWN or not attachment.follow(raw, id_word(raw), word):
            return False
        self._last_id = raw
        self.events += 1
        return True

    def _frame(self, frame: Frame, now: float) -> None:
        if frame.retry_ms is not None:
            self.stream.retry_ms = frame.retry_ms
        raw = frame.id or None
        if raw is not None and self._first_id is None:
            self._first_id = raw
        kind = self._kind(frame, raw)
        word = UNKNOWN
        answers: Sequence[str] = ()
        if kind is FrameKind.MESSAGE:
            payload = frame.payload
            if payload is None:
                answers = self._oversized(frame)
            elif raw is not None or _may_answer(payload):
                message = read(payload)
                if message is not None:
                    word, answers = message.word, message.answers
                    if message.session_error:
                        self._raise(Finding.ERROR_IN_SUCCESS)
                    if message.is_ping and raw is None:
                        kind = FrameKind.NOTHING
                    elif message.trivial:  # what some servers replay a priming frame as
                        kind = FrameKind.PRIMING
        judging, live = self._state is JUDGING, self._state is LIVE
        attachment = self._attachment
        if attachment is not None:
            of_id = 0 if raw is None else id_word(raw)
            plain = live and kind is FrameKind.MESSAGE and word != UNKNOWN
            if raw is None or not plain or not attachment.follow(raw, of_id, word):
                self._judge_frame(Shown(kind, raw, of_id, word), frame, now)
        if self._state is CUT:
            return  # not delivered
        if raw is not None:
            self._last_id = raw
            if judging:
                self._mark_position(raw, now)
        if frame.has_data and not frame.empty:
            self.events += 1
        if answers:
            self._settle(answers)

    def _kind(self, frame: Frame, raw: bytes | None) -> FrameKind:
        if frame.id_overlong:
            if self.session is not None:
                self.session.complete = False
            return FrameKind.NOTHING
        if frame.event != _MESSAGE:
            return FrameKind.NOTHING
        if frame.empty or not frame.has_data:
            return FrameKind.NOTHING if raw is None else FrameKind.PRIMING
        payload = frame.payload
        spoken = raw is not None or payload is None or any(member in payload for member in _SPOKEN)
        return FrameKind.MESSAGE if spoken else FrameKind.NOTHING

    def _judge_frame(self, shown: Shown, frame: Frame | None, now: float) -> None:
        """Judge the frame, if there is a resume to judge, then record it; None: it is not whole yet."""
        attachment, session, resumption = self._attachment, self.session, self._resumption
        assert attachment is not None
        assert session is not None
        evidence = session.evidence
        untold = evidence.dialect is None and self.stream.retry_ms == _RMCP_RETRY_MS
        if untold and shown.kind is FrameKind.PRIMING and shown.id == b"0":
            evidence.dialect = RMCP
        if self._state is JUDGING and resumption is not None:
            judged_early, self._judged_early = self._judged_early, frame is None
            judgement = None if judged_early else self._ask(resumption, shown, now)
            if judgement is not None:
                self._judge(judgement, frame, now)
                if judgement.verdict is Verdict.CROSSED:
                    session.complete = False
                    return
        if frame is None or self._state is CUT:
            return
        raised = attachment.record(shown)
        if raised is not None:
            self._report(raised)

    def _ask(self, resumption: Resumption, shown: Shown, now: float) -> Judgement | None:
        """What the rules say of this frame; they may also begin to wait here."""
        resume = resumption.resume
        waited = resume.waiting()
        judgement = resume.frame(shown)
        if resume.struck != self._progress:
            self._progress, self._progress_at = resume.struck, now
        if judgement is None and resume.waiting() and not waited:
            self._progress_at = now
            self._out.append(WakeAfter(resumption.deadline_s))
        return judgement

    # ---- the verdict

    def _judge(self, judgement: Judgement, frame: Frame | None, now: float, *, gone: bool = False) -> None:
        """The verdict is final: report it, let a proven new log begin its epoch, act on it."""
        session, resumption = self.session, self._resumption
        assert session is not None
        assert resumption is not None
        if self._state is JUDGING:
            self._state = LIVE
        policy = milder(resumption.policy, session.upstream.policy)
        decision = decide(policy, judgement, bool(session.in_flight))
        if judgement.verdict is Verdict.FORK and judgement.certainty is Certainty.PROVEN:
            self._new_log(session)
        self._report_judged(judgement, decision, now)
        if decision.action is Action.CUT:
            self._cut_session(judgement, frame, now, gone=gone)
        else:
            self._mark(judgement, frame, now, annotate=decision.action is Action.ANNOTATE)
        self._report_gate(now)

    def _report_judged(self, judgement: Judgement, decision: Decision, now: float) -> None:
        session, resumption = self.session, self._resumption
        assert session is not None
        assert resumption is not None
        since = self._opened_at if self._first_byte_at is None else self._first_byte_at
        dialect = session.evidence.dialect
        judged = Judged(
            session=session.name,
            stream=self.stream.label,
            judgement=judgement,
            cursor=resumption.cursor,
            high=resumption.high,
            first_id=self._first_id,
            outstanding=resumption.resume.outstanding,
            epoch=session.epoch,
            in_flight=len(session.in_flight),
            away_s=resumption.away_s,
            took_s=now - since,
            replica=resumption.replica,
            previous_replica=resumption.previous_replica,
            lost_anew=self.stream.lose(resumption.cursor, judgement.lost),
            action=decision.action,
            would_cut=decision.would_cut,
            dialect=None if dialect is None else dialect.name,
        )
        assert self._trace is not None
        found = resumption.resume.baseline
        log = found.log if isinstance(found, Baseline) else self.stream.log
        session.timeline.judge(self._trace, judged, session.positions(judged, log), now)
        self._report(judged)

    def _mark_newest(self, raw: bytes, now: float) -> None:
        """A sample for the picture: where the newest id of this connection stands."""
        trace, attachment = self._trace, self._attachment
        assert trace is not None
        assert attachment is not None
        trace.events = self.events
        position = attachment.position
        if position is None:
            self._mark_position(raw, now)
        else:
            self._due = trace.mark(position, now)

    def _mark_position(self, raw: bytes, now: float) -> None:
        """A sample for the picture that explains the verdict: where this id stands, replayed or new."""
        trace, session = self._trace, self.session
        assert trace is not None
        assert session is not None
        self._due = trace.mark(session.position(self.stream.log, raw, id_word(raw)), now)

    def _report_gate(self, now: float) -> None:
        if self._outlet is not None and self._outlet.hold:
            self._report(Gated(self._outlet.held_s(now)))

    def _new_log(self, session: Session) -> None:
        """What comes from here on is another log: the session's next epoch."""
        if session.ended:
            for item in self._ledger.revive(session):
                self._report(item)
            return
        assert self._attachment is not None
        self._attachment.begin_epoch()

    def _overdue(self, resumption: Resumption, deadlines: int, now: float) -> None:
        resume = resumption.resume
        if resume.missing and not self._reported_overdue:
            self._reported_overdue = True
            self._raise(Finding.REPLAY_OVERDUE, f"{resume.missing} events outstanding")
        judgement = resume.overdue(deadlines)
        if judgement is None and (silence := resume.given_up()) is not None and self._would_cut(silence):
            judgement = silence  # so that a call no longer hangs
        if judgement is not None:
            self._judge(judgement, None, now)

    def _would_cut(self, judgement: Judgement) -> bool:
        session, resumption = self.session, self._resumption
        assert session is not None
        assert resumption is not None
        policy = milder(resumption.policy, session.upstream.policy)
        return decide(policy, judgement, bool(session.in_flight)).action is Action.CUT

    # ---- answers

    def _settle(self, keys: Sequence[str]) -> None:
        for key in keys:
            if self.session is not None:
                self.session.settle(key)
            else:
                self.stream.owed = tuple(owed for owed in self.stream.owed if owed != key)

    def _oversized(self, frame: Frame) -> Sequence[str]:
        """What a message too large to read answers: all its stream owes, where its id does not show."""
        answers = oversized_answers(frame.head, frame.tail)
        return self.stream.owed if answers is None else answers

    # ---- the end

    def _cause(self, how: Ending) -> CloseCause:
        if how is Ending.CLIENT_LEFT:
            return CloseCause.CLIENT_CLOSED
        if how is Ending.UPSTREAM_FAILED:
            return CloseCause.UPSTREAM_RESET
        if self._state is UNREADABLE or self.stream.kind is not AttachmentKind.POST:
            return CloseCause.UPSTREAM_EOF
        return CloseCause.EOF_INCOMPLETE if self.stream.owed else CloseCause.COMPLETED

    def _detach(self, how: Ending, now: float, *, readable: bool) -> None:
        """The connection is gone; what its stream owes may still come by a resume, or never."""
        session, stream = self.session, self.stream
        stream.attachments -= 1
        if stream.attachments:
            return
        stream.detached_at = now
        stream.left_by_client = how is Ending.CLIENT_LEFT
        if not stream.owed:
            return
        if session is not None and len(stream.log) and stream.serial in session.streams:
            self._ledger.await_resume(session, stream, now)
        elif how is Ending.CLIENT_LEFT or not readable:
            self._settle(stream.owed)  # the client gave up, or what came could not be read
        else:
            for item in missing_responses(session, stream):
                self._report(item)

    def _closed(self, cause: CloseCause, now: float) -> StreamClosed:
        first = self._first_byte_at
        return StreamClosed(
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

    def _void(self) -> bytes:
        """What ends a frame of which the client holds a part, so that ours is one of its own."""
        if self._outlet is not None:
            return self._outlet.void()
        return void(in_line=self._scanner.partial_line) if self._scanner.mid_frame else b""

    # ---- small steps

    def _session_name(self) -> str:
        return "" if self.session is None else self.session.name

    def _raise(self, finding: Finding, detail: str = "") -> None:
        self._report(Raised(finding, self._session_name(), self.stream.label, detail))

    def _report_malformed(self) -> None:
        self._malformed = self._scanner.malformed
        self._report(Malformed(self._session_name(), self.stream.label, "an id that cannot be an id"))

    def _let_go(self) -> None:
        """Part from the exchange, which refers here: nothing of either may wait for the garbage collector."""
        self._resumption = None

    def _report(self, item: Reportable) -> None:
        self._out.append(Report(item))

    def _send(self, data: bytes) -> None:
        if data:
            self._out.append(Send(data))

    def _take(self) -> Sequence[Command]:
        out, self._out = self._out, []
        return out


def _may_answer(payload: bytes) -> bool:
    """Whether an id-less message may be a response, an error or a ping: the only ones worth reading."""
    return b'"result"' in payload or b'"error"' in payload or b'"ping"' in payload
