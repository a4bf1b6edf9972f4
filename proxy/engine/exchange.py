"""One request and its answer: which session they belong to, and what the answer's head makes of it.

State is made only by 2xx answers: a rejected request leaves nothing behind. The session is that of
the *request's* `Mcp-Session-Id`, since several SDKs send it back on `initialize` only; an answered
`initialize` opens the session that its answer names.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.engine import loops, quarantine
from proxy.engine.commands import PASS, Command, Report, Withdraw
from proxy.engine.continuity import Resume, refusal
from proxy.engine.digest import id_word
from proxy.engine.findings import (
    AttachmentKind,
    Certainty,
    CloseCause,
    Ending,
    Finding,
    Judged,
    Judgement,
    Raised,
    Reason,
    Reportable,
    ResumeAttempted,
    Verdict,
)
from proxy.engine.heads import Answer, Request, representable
from proxy.engine.ids import guess
from proxy.engine.jsonrpc import RequestBody, requests, session_error_in_body
from proxy.engine.ledger import Baseline, Pending, Quarantine, Session, Stream, Upstream
from proxy.engine.relay import INTERRUPTED, Relay, Resumption
from proxy.engine.sessions import Ledger


class Exchange:
    """One request from its head to the end of its answer.

    Inputs in order: `began`, `uploaded` (once the body is known, or known to be too large), then
    `responded`, `receive` and `wake` while it streams, `answered` for a body that is no stream,
    `ended`. `cut` may come at any time. Each returns commands.
    """

    __slots__ = ("_body", "_deadline_s", "_gate_bytes", "_ledger", "_out", "_pending", "_replied",
                 "_request", "_stream", "_upload_known", "_upstream", "_was_ended", "_withdrawn", "drops_session",
                 "handle", "relay", "session")  # fmt: skip

    def __init__(
        self,
        ledger: Ledger,
        upstream: Upstream,
        request: Request,
        now: float,
        *,
        deadline_s: float,
        gate_bytes: int = 1 << 20,
        handle: object = None,
    ) -> None:
        """`deadline_s` is the upstream's `replay_deadline`; `handle` is the shell's, for `Elsewhere`."""
        self._ledger = ledger
        self._upstream = upstream
        self._request = request
        self._deadline_s = deadline_s
        self._gate_bytes = gate_bytes
        self._body: RequestBody | None = None
        self._upload_known = request.method != "POST"
        self._withdrawn: Quarantine | None = None
        """Why it was cut while its body was coming: it is answered once its ids are known."""
        self._pending: dict[str, Pending] = {}
        """What it has in flight in `session`, by key."""
        self._stream: Stream | None = None
        self._replied = False
        self._out: list[Command] = []
        self.handle = handle
        self.drops_session = False
        """The request goes upstream without its session: an `initialize` that carries a dead one."""
        self.relay: Relay | None = None
        self.session: Session | None = None
        if request.session is not None:
            self._join(ledger.find(upstream, request.session, now))
        self._was_ended = self.session is not None and self.session.ended

    def _join(self, session: Session | None) -> None:
        """The exchange belongs to this session, and is cut with it."""
        if self.session is not None:
            self.session.exchanges.pop(self, None)
        self.session = session
        if session is not None:
            session.exchanges[self] = None

    @property
    def needs_upload(self) -> bool:
        """Whether nothing may go upstream before the body is known: it may be an `initialize`."""
        return (
            self._request.method == "POST"
            and self.session is not None
            and self.session.quarantine is not None
        )

    # ---- the request

    def began(self, now: float) -> Sequence[Command]:
        """The request's head is known and about to be sent upstream, unless this says `Respond`."""
        request, session = self._request, self.session
        if session is not None and session.quarantine is not None:
            session.quarantine.touch(now)
            if request.method not in ("POST", "DELETE"):
                self._replied = True
                stream = self._resumed_stream(session)
                return quarantine.answer_get(session, session.quarantine, stream, request.method)
            return PASS
        if session is not None and session.ended and request.method not in ("DELETE", "OPTIONS", "HEAD"):
            self._report(Raised(Finding.STALE_SESSION_USE, session.name))
        if request.resumes:
            assert request.cursor is not None
            assert request.session is not None
            name = request.session.decode("utf-8", "backslashreplace")
            self._report(ResumeAttempted(name, request.cursor))
            if not representable(request.cursor):
                self._report(Raised(Finding.CURSOR_UNREPRESENTABLE, name))
            if session is not None:
                self._out += loops.resumed(session, request.cursor, now)
        return self._take()

    def _resumed_stream(self, session: Session) -> Stream | None:
        """The stream that this request resumes, None if it resumes none or an unknown one."""
        cursor = self._request.cursor if self._request.method == "GET" else None
        found = None if cursor is None else session.locate(id_word(cursor))
        return found.stream if isinstance(found, Baseline) else None

    def uploaded(self, body: bytes | None) -> Sequence[Command]:
        """The whole request body; None if it is too large to be inspected."""
        if self._request.method != "POST":
            return PASS
        self._upload_known = True
        self._body = requests(body) if body else None
        session = self.session
        if session is None or (self._replied and session.quarantine is not None):
            return PASS
        if self._withdrawn is not None:
            self._replied = True
            return quarantine.answer_post(session, self._withdrawn, self._body)
        if session.quarantine is not None:
            return self._uploaded_to_quarantined(session, session.quarantine)
        if self._stream is not None or self._body is None or not self._body.is_initialize:
            self._expect(session)  # an `initialize` is none of a session that it still carries
        return PASS

    def _uploaded_to_quarantined(self, session: Session, why: Quarantine) -> Sequence[Command]:
        """An `initialize` passes without the dead session; the rest is refused."""
        if self._body is not None and self._body.is_initialize:
            self.drops_session = True
            self._join(None)
            return PASS
        self._replied = True
        return quarantine.refuse(session, why, "POST")

    def _expect(self, session: Session) -> None:
        """The requests of the body are in flight in `session`; its cancellations end theirs."""
        body = self._body
        if body is None or session.ended:
            return
        for key in body.cancelled:
            session.settle(key)
        if self._replied and self._stream is None:
            return  # answered before the upload was read: nothing is in flight any more
        for key, request_id in zip(body.request_keys, body.request_ids, strict=True):
            pending = self._pending[key] = Pending(request_id, self._stream)
            session.expect(key, pending)
        if self._stream is not None:
            self._stream.owed = tuple(self._pending)

    # ---- the head of the answer

    def responded(self, answer: Answer, now: float) -> Sequence[Command]:
        """The head of the answer has come; `relay` is set if its body is an event stream."""
        request = self._request
        self._replied = True
        session = self.session
        if session is not None and session.quarantine is not None and request.method == "DELETE":
            return PASS if answer.succeeded else quarantine.deleted(session, session.quarantine)
        if request.method == "DELETE":
            self._deleted(answer)
        elif answer.succeeded:
            self._adopt(answer, now)
            if self.session is not None and self.session.quarantine is not None:
                self._replied = False
                return [*self._take(), *self.cut(now)]
            if answer.is_stream and request.method in ("GET", "POST"):
                self._begin_stream(answer, now)
                return self._take()
        elif self.session is not None and answer.status == 404:
            self.session.missed = True
        if request.resumes and (judgement := refusal(answer.status, answer.is_stream)) is not None:
            self._judge_without_stream(judgement, now, answer.replica)
        self._requests_are_over()
        return self._take()

    def _adopt(self, answer: Answer, now: float) -> None:
        """A 2xx shows that the session exists."""
        request, body = self._request, self._body
        initialized = body is not None and body.is_initialize
        key = answer.session if initialized else request.session
        if key is None:
            return
        protocol = body.protocol_version if body is not None and initialized else request.protocol
        session, reports = self._ledger.open(
            self._upstream, key, now, initialized=initialized, protocol=protocol
        )
        for item in reports:
            self._report(item)
        if session is not self.session:
            self._requests_are_over()
            self._join(session)
        if session.missed:
            session.missed = False
            self._report(Raised(Finding.SESSION_FLAPPING, session.name))

    def _deleted(self, answer: Answer) -> None:
        if self.session is not None and answer.succeeded:
            for item in self._ledger.end(self.session):
                self._report(item)

    def _requests_are_over(self) -> None:
        """No stream will answer: a JSON answer or a refusal is the end of what was asked."""
        for key in self._still_pending():
            assert self.session is not None
            self.session.settle(key)
        self._pending = {}

    def _still_pending(self) -> tuple[str, ...]:
        """The keys of this exchange's own requests that are in flight yet."""
        in_flight = {} if self.session is None else self.session.in_flight
        return tuple([key for key, pending in self._pending.items() if in_flight.get(key) is pending])

    def _judge_without_stream(self, judgement: Judgement, now: float, replica: str | None) -> None:
        """A resume that got no event stream: refused out loud, or not answered at all."""
        request, session = self._request, self.session
        assert request.session is not None
        assert request.cursor is not None
        found = None if session is None else session.locate(id_word(request.cursor))
        baseline = found if isinstance(found, Baseline) else None
        stream = None if baseline is None else baseline.stream
        known = None if session is None else session.evidence.dialect
        dialect = guess(request.cursor) if known is None else known
        judged = Judged(
            session=request.session.decode("utf-8", "backslashreplace"),
            stream="" if stream is None else stream.label,
            judgement=judgement,
            cursor=request.cursor,
            high=None if stream is None else stream.high,
            first_id=None,
            outstanding=0 if baseline is None else len(baseline.outstanding()),
            epoch=0 if session is None else session.epoch,
            in_flight=0 if session is None else len(session.in_flight),
            away_s=_away(stream, now),
            took_s=0.0,
            replica=replica,
            previous_replica=None if stream is None else stream.replica,
            dialect=dialect.name,
        )
        if session is not None and baseline is not None:
            trace = session.connect(baseline.stream, AttachmentKind.RESUME, now, replica)
            session.timeline.judge(trace, judged, session.positions(judged, baseline.log), now)
            trace.finish(now, None, 0)
        self._report(judged)

    # ---- an event stream

    def _begin_stream(self, answer: Answer, now: float) -> None:
        request, session = self._request, self.session
        resumption: Resumption | None = None
        if session is None:
            kind = AttachmentKind.POST if request.method == "POST" else AttachmentKind.GET
            stream = Stream(0, kind, 0)
        elif request.resumes:
            kind = AttachmentKind.RESUME
            stream, resumption = self._resume(session, answer, now)
        elif request.method == "POST":
            kind = AttachmentKind.POST
            stream = session.open_stream(kind)
        else:
            kind = AttachmentKind.GET
            stream = self._standalone(session, now)
        if request.method == "POST":
            self._owe(stream)
        stream.replica = answer.replica
        self.relay = Relay(
            self._ledger,
            kind,
            session,
            stream,
            now=now,
            readable=not answer.encoded,
            whole=answer.whole,
            resumption=resumption,
        )
        self._out += self.relay.opened(now)

    def _owe(self, stream: Stream) -> None:
        """The stream owes the responses to the requests that opened it."""
        self._stream = stream
        if self._body is None:
            return
        if self.session is None:
            stream.owed = self._body.request_keys
        elif self._pending:
            stream.owed = self._still_pending()  # less what was cancelled meanwhile
            for pending in self._pending.values():
                pending.stream = stream
        else:
            self._expect(self.session)

    def _standalone(self, session: Session, now: float) -> Stream:
        """A plain GET continues the standalone stream, unless that is open: then it begins its own."""
        stream = session.standalone
        if stream is None or stream.attachments:
            stream = session.standalone = session.open_stream(AttachmentKind.GET)
        elif stream.shown:
            self._report(Raised(Finding.RECONNECT_WITHOUT_CURSOR, session.name, stream.label))
        return stream

    def _resume(self, session: Session, answer: Answer, now: float) -> tuple[Stream, Resumption]:
        cursor = self._request.cursor
        assert cursor is not None
        found = session.locate(id_word(cursor))
        if isinstance(found, Baseline):
            stream = found.stream
            if stream.attachments:
                self._out += loops.taken_over(session, stream, now)
        else:
            stream = session.open_stream(AttachmentKind.GET)
            if found is None and session.complete:
                self._report(Raised(Finding.CURSOR_NOT_VALIDATED, session.name))
        return stream, Resumption(
            resume=Resume(
                session,
                cursor,
                found,
                attached=self._may_seem_attached(stream, now),
                recycled=session.ended and self._was_ended,
            ),
            policy=self._upstream.policy,
            deadline_s=self._deadline_s,
            gate_bytes=self._gate_bytes,
            member=self,
            cursor=cursor,
            high=stream.high,
            away_s=_away(stream, now),
            replica=answer.replica,
            previous_replica=stream.replica,
        )

    def _may_seem_attached(self, stream: Stream, now: float) -> bool:
        """Whether the server may still hold an earlier connection of the stream for open.

        It is open here, or its client went a moment ago: the Python SDK then answers a resume with
        an empty stream until it notices.
        """
        if stream.attachments:
            return True
        return stream.left_by_client and (_away(stream, now) or 0.0) < self._deadline_s

    # ---- the rest of the answer

    def receive(self, chunk: bytes, now: float) -> Sequence[Command]:
        """Bytes of an event stream; only while `relay` is set."""
        assert self.relay is not None
        return self.relay.receive(chunk, now)

    def wake(self, now: float) -> Sequence[Command]:
        """The time asked for by `WakeAfter` has come."""
        return PASS if self.relay is None else self.relay.wake(now)

    def answered(self, body: bytes) -> Sequence[Command]:
        """The whole body of a JSON answer, if it was small enough to be inspected."""
        if b'"error"' in body and session_error_in_body(body):
            name = "" if self.session is None else self.session.name
            return [Report(Raised(Finding.ERROR_IN_SUCCESS, name))]
        return PASS

    def ended(self, how: Ending, now: float, cause: CloseCause | None = None) -> Sequence[Command]:
        """The exchange is over; `cause` is given where the shell knows better than `how` says.

        The commands are to be performed before the response is ended.
        """
        if self.relay is not None:
            self._out += self.relay.ended(how, now, cause)
            if self.session is not None:
                self._ledger.find(self._upstream, self.session.key, now)  # used until now, not since it began
        self._leave()
        if self.relay is None and not self._replied:
            self._replied = True
            session, left = self.session, how is Ending.CLIENT_LEFT
            why = None if session is None or left else session.quarantine
            if session is not None and why is not None and self._request.method == "DELETE":
                return quarantine.deleted(session, why)
            self._requests_are_over()
            if self._request.resumes:
                reason = Reason.CLIENT_LEFT if left else Reason.UPSTREAM_FAILED
                judgement = Judgement(Verdict.INCONCLUSIVE, reason, Certainty.SUSPECTED)
                self._judge_without_stream(judgement, now, None)
        return self._take()

    def abandon(self) -> bytes:
        """The engine failed on this exchange: let go of it, and claim nothing more about its session.

        Returns the bytes of its stream that were held back.
        """
        if self.session is not None:
            self.session.overlook()
        self._leave()
        if self.relay is not None:
            return self.relay.abandon()
        self._requests_are_over()
        return b""

    def _leave(self) -> None:
        session = self.session
        if session is None:
            return
        session.exchanges.pop(self, None)
        if session.quarantine is not None:
            session.shed()

    # ---- the cut

    def cut(self, now: float) -> Sequence[Command]:
        """The session was quarantined by another exchange: end this one, each kind as clients need it."""
        session, method = self.session, self._request.method
        why = None if session is None else session.quarantine
        initializes = self._body is not None and self._body.is_initialize
        if session is None or why is None or method == "DELETE" or initializes:
            return PASS
        if self.relay is not None:
            return self.relay.cut(now)
        if self._replied:
            return PASS  # an answer that is under way is let through
        if not self._upload_known:
            self._withdrawn = why
            return [Withdraw()]
        self._replied = True
        if method == "POST":
            over = self._pending.keys() - self._still_pending()
            self._requests_are_over()
            return quarantine.answer_post(session, why, self._body, over)
        if self._request.resumes:
            self._judge_without_stream(INTERRUPTED, now, None)
        self._out += quarantine.answer_get(session, why, self._resumed_stream(session), method)
        return self._take()

    # ---- small steps

    def _report(self, item: Reportable) -> None:
        self._out.append(Report(item))

    def _take(self) -> Sequence[Command]:
        if not self._out:
            return PASS
        out, self._out = self._out, []
        return out


def _away(stream: Stream | None, now: float) -> float | None:
    """Seconds since the stream's last connection ended; None if one is open or none was."""
    if stream is None or stream.attachments or stream.detached_at is None:
        return None
    return now - stream.detached_at
