"""The cut: one verdict ends everything a session has under way, in one turn, and refuses what follows.

Three parts, each of which some real client needs: the pending call on the resumed stream fails at
once with its own id; so does every other request in flight; every later request gets 404, which
clients take for the end of the session. A resume of another pending call gets that call's error
instead, once, since most clients hang on a 404 there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proxy.engine import terminal
from proxy.engine.commands import Command, Elsewhere, Report, Respond
from proxy.engine.findings import Judgement, QuarantineRejected, SessionQuarantined
from proxy.engine.jsonrpc import RequestBody
from proxy.engine.ledger import Member, Quarantine, Session, Stream

EVENT_STREAM = "text/event-stream"
JSON = "application/json"
_SHOWN_BYTES = 256
"""Of the cursor: an error shows less."""


def begin(session: Session, judgement: Judgement | None, cursor: bytes, now: float) -> list[Command]:
    """Quarantine the session; what to report. `judgement` is None for an operator's wish."""
    upstream = session.upstream
    ttl_s = upstream.policy.quarantine_ttl_s
    session.quarantine = Quarantine(judgement, cursor[:_SHOWN_BYTES], ttl_s, now + ttl_s, now)
    upstream.quarantined[session.key] = session
    upstream.sessions_quarantined += 1
    upstream.sessions_active -= 1
    return [Report(SessionQuarantined(session.name, judgement, ttl_s))]


def ordered(session: Session, now: float) -> list[Command]:
    """An operator cuts the session: as a verdict would, but nothing is said of a verdict.

    The session must be neither quarantined nor ended.
    """
    return [*begin(session, None, b"", now), *cut_others(session, None, now)]


def cut_others(session: Session, but: Member | None, now: float) -> list[Command]:
    """End every other exchange of the session.

    The newest first: of several connections of one stream it is the one its client listens to.
    """
    return [
        Elsewhere(member, done)
        for member in reversed(list(session.exchanges))
        if member is not but and (done := member.cut(now))
    ]


def error_events(session: Session, quarantine: Quarantine, stream: Stream) -> bytes:
    """The frames that end the calls pending on `stream`, which are over then; b"" if there are none."""
    ids = session.owed_ids(stream)
    for key in stream.owed:
        session.settle(key)
    return terminal.error_events(ids, quarantine.judgement, quarantine.cursor, session.key)


def answer_post(
    session: Session, quarantine: Quarantine, body: RequestBody | None, over: Collection[str] = ()
) -> list[Command]:
    """The answer to a POST that was under way: an error for each request in flight; a 404 if none is.

    `over`: the keys of its requests that have been answered or cancelled meanwhile.
    """
    if body is None:
        return refuse(session, quarantine, "POST")
    asked = zip(body.request_keys, body.request_ids, strict=True)
    ids = tuple(request_id for key, request_id in asked if key not in over)
    if not ids:
        return refuse(session, quarantine, "POST")
    content = terminal.error_body(
        ids,
        batch=body.batch,
        judgement=quarantine.judgement,
        cursor=quarantine.cursor,
        session=session.key,
    )
    return [Respond(200, JSON, content, quarantine.judgement)]


def answer_get(session: Session, quarantine: Quarantine, stream: Stream | None, method: str) -> list[Command]:
    """The answer to a GET: the errors of the calls pending on the stream it resumes, once; else a 404."""
    if stream is None or not (events := error_events(session, quarantine, stream)):
        return refuse(session, quarantine, method)
    return [
        Report(QuarantineRejected(session.name, "GET", 200)),
        Respond(200, EVENT_STREAM, events, quarantine.judgement),
    ]


def refuse(session: Session, quarantine: Quarantine, method: str) -> list[Command]:
    """A 404 with a null id: the session is not found, start a new one."""
    body = terminal.not_found_body(quarantine.judgement, quarantine.cursor, session.key)
    return [
        Report(QuarantineRejected(session.name, method, 404)),
        Respond(404, JSON, body, quarantine.judgement),
    ]


def deleted(session: Session, quarantine: Quarantine) -> Sequence[Command]:
    """A DELETE that the upstream did not grant: clients only want it over with."""
    return [
        Report(QuarantineRejected(session.name, "DELETE", 200)),
        Respond(200, None, b"", quarantine.judgement),
    ]
