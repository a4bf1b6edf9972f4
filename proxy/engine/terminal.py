"""The bytes the proxy adds of its own: annotations, errors that end a call, refusals.

Chosen from what eight real clients do with each: an error event carries the exact id of its request
and neither `id:` nor `retry:`, which would move the client's cursor or clock; a comment has no blank
line of its own, which some parsers take for an event; a refusal has a null id, since an error with a
request's id is taken for that call alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from urllib.parse import quote_from_bytes

import orjson

from proxy.engine.findings import Judgement
from proxy.engine.jsonrpc import RequestId
from proxy.engine.privacy import hash_session

VALUE_CHARS = 80
"""Servers and clients choose ids; an annotation shows no more of one than this."""

TERMINATED = -32600
NOT_FOUND = -32001
"""Clients look for this code, and this status (404), to start a new session."""

VOID = b"event: forkwatch-discard\n\n"
"""Ends a frame of which the client holds a part, as one of a type that nobody listens to."""


_BY_OPERATOR = "an operator ended this session"
"""What is said in place of a verdict, where there is none: `judgement` is None then."""


def verdict_header(judgement: Judgement | None) -> bytes:
    """The value of `Forkwatch-Verdict` on a head that the proxy makes itself."""
    if judgement is None:
        return b"none; reason=operator"
    return f"{judgement.verdict}; reason={judgement.reason}; certainty={judgement.certainty}".encode()


def comment(judgement: Judgement, cursor: bytes) -> bytes:
    """The annotation: one comment line, with its line end and without a blank line."""
    return (
        f": forkwatch verdict={judgement.verdict} reason={judgement.reason} certainty={judgement.certainty}"
        f" cursor={_shown(cursor)} got={_shown(judgement.got or b'')} lost={judgement.lost}\n"
    ).encode()


def notification(judgement: Judgement, cursor: bytes, session: bytes) -> bytes:
    """The annotation for people: an id-less log notification as one frame."""
    message: dict[str, object] = {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {
            "level": "critical",
            "logger": "forkwatch",
            "data": {"message": _sentence(judgement), **evidence(judgement, cursor, session)},
        },
    }
    return _event(message)


def error_events(
    ids: Iterable[RequestId], judgement: Judgement | None, cursor: bytes, session: bytes
) -> bytes:
    """One frame for each pending request: an error with exactly its id."""
    return b"".join(_event(_error(request_id, judgement, cursor, session)) for request_id in ids)


def error_body(
    ids: tuple[RequestId, ...], *, batch: bool, judgement: Judgement | None, cursor: bytes, session: bytes
) -> bytes:
    """The JSON answer to a POST that was not answered yet: an error for each of its requests."""
    errors = [_error(request_id, judgement, cursor, session) for request_id in ids]
    return _dump(errors if batch else errors[0])


def not_found_body(judgement: Judgement | None, cursor: bytes, session: bytes) -> bytes:
    """The body of the 404 that any later request of a quarantined session gets."""
    why = "operator" if judgement is None else f"{judgement.verdict}/{judgement.reason}"
    message = f"Session not found: forkwatch terminated it ({why}); start a new session"
    return orjson.dumps(
        {
            "jsonrpc": "2.0",
            "id": None,
            "error": {"code": NOT_FOUND, "message": message, "data": evidence(judgement, cursor, session)},
        }
    )


def evidence(judgement: Judgement | None, cursor: bytes, session: bytes) -> dict[str, object]:
    """What an error or notification carries in `data`; the session as its hash, as in the log."""
    if judgement is None:
        nothing = dict.fromkeys(("verdict", "reason", "certainty", "cursor", "got", "lost"))
        return {"forkwatch": {**nothing, "reason": "operator", "session": hash_session(session)}}
    return {
        "forkwatch": {
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "certainty": judgement.certainty,
            "cursor": _text(cursor),
            "got": None if judgement.got is None else _text(judgement.got),
            "lost": judgement.lost,
            "session": hash_session(session),
        }
    }


def _error(
    request_id: RequestId, judgement: Judgement | None, cursor: bytes, session: bytes
) -> dict[str, object]:
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {
            "code": TERMINATED,
            "message": f"Session terminated: {_sentence(judgement)}; start a new session",
            "data": evidence(judgement, cursor, session),
        },
    }


def _sentence(judgement: Judgement | None) -> str:
    if judgement is None:
        return _BY_OPERATOR
    return f"the resumed stream does not continue its log ({judgement.verdict}/{judgement.reason})"


def _event(message: dict[str, object]) -> bytes:
    return b"event: message\ndata: " + _dump(message) + b"\n\n"


def _dump(value: object) -> bytes:
    """JSON in one line. A client may have chosen an id that only the standard library writes again."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _shown(value: bytes) -> str:
    """Percent-encoded, so that nothing in it can end the comment, and capped between two of its bytes."""
    shown = quote_from_bytes(value[:VALUE_CHARS], safe=":;,.+-_/=#@")[:VALUE_CHARS]
    torn = shown.rfind("%", max(len(shown) - 2, 0))
    return shown if torn < 0 else shown[:torn]


def _text(value: bytes) -> str:
    return value[:VALUE_CHARS].decode("utf-8", "backslashreplace")
