"""JSON-RPC 2.0 as MCP carries it: which requests a body makes, and which requests a message answers.

Any bytes are accepted and nothing here raises on them, but `parse` as it says. A single message and a batch
(MCP 2025-03-26) read alike. Ids are compared as keys, which keep the type: `1` is not `"1"`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import orjson

RequestId = int | str | float

# Codes servers use for a session they do not know: the SDKs' -32001, and -32005 of tower-mcp.
_SESSION_CODES = frozenset({-32001, -32005})
# A message that could not be read is answered without an id for that reason alone.
_UNREAD_CODES = frozenset({-32700, -32600})
_SPECIAL = frozenset({"initialize", "notifications/cancelled"})  # methods that say more than who asks
_SESSION_WORDS = re.compile(
    r"session.{0,80}(?:not found|terminated|expired|invalid)"
    r"|(?:unknown|expired|invalid|no valid).{0,40}session",
    re.IGNORECASE | re.DOTALL,
)
_MESSAGE_SIZE = 256  # of a message that is searched for them: no peer sets the cost
_TIMEOUT_WORDS = re.compile(r"time[d -]*out", re.IGNORECASE)  # the SDKs' own -32001 is a request timeout


class Message:
    """What a message is; of a batch, what its members are together. Slotted and mutable: made for each frame.

    `answers` are the keys of the requests it answers, with a result or an error. `method` is that of a
    single request or notification. `is_request`: it, or a member of it, asks for an answer; `is_ping`: only
    for a sign of life. `session_error`: an error says that the session is gone. `trivial`: it is `{}` or
    `null`, as some servers replay a priming frame. `word` is its digest where `digest.read` made it, else 0.
    """

    __slots__ = ("answers", "is_ping", "is_request", "method", "session_error", "trivial", "word")

    def __init__(self, answers: tuple[str, ...] = (), method: str | None = None) -> None:
        """Begin with what holds for a notification, or for what is no message at all."""
        self.answers = answers
        self.method = method
        self.is_request = False
        self.is_ping = False
        self.session_error = False
        self.trivial = False
        self.word = 0


MAX_BATCH = 1024
"""Messages of a batch that are told apart; a larger one has no known ids, as if it were too long to be read."""


@dataclass(slots=True)
class RequestBody:
    """What a client's POST asks for. `request_keys` and `request_ids` run parallel, in the body's order."""

    request_keys: tuple[str, ...]
    request_ids: tuple[RequestId, ...]  # exactly as sent: an error for one must carry it unchanged
    is_initialize: bool
    protocol_version: str | None  # what `initialize` asks for
    cancelled: tuple[str, ...]  # keys of the requests that `notifications/cancelled` names
    batch: bool


def parse(text: bytes) -> Any:
    """Return the value of a JSON text; raise ValueError if it is none, or nested beyond reason.

    Lone surrogates are accepted, as most parsers do. Integers beyond 64 bits may come as floats.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return parse_exactly(text)


def parse_exactly(text: bytes) -> Any:
    """As `parse`, ten times slower, with every integer as it was written."""
    try:
        return json.loads(text.decode("utf-8", "surrogatepass"), parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def request_key(value: object) -> str | None:
    """Return the key an id is compared by, as `i:1`, `s:1`, `f:1.5`; None for what is no JSON-RPC id.

    `1.0` and `1` are one number, and some servers answer the one with the other.
    """
    kind = type(value)
    if kind is str:
        return f"s:{value}"
    if kind is int and -(2**63) <= value < 2**64:  # type: ignore[operator]
        return f"i:{value}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        try:
            value = float(value)  # what `parse` makes of it
        except OverflowError:
            return f"i:{value:x}"
    return f"i:{int(value)}" if value.is_integer() else f"f:{value!r}"


def message(value: object) -> Message:
    """Return what a parsed JSON value is as a message."""
    if isinstance(value, dict):
        return _one(value)
    whole = Message()
    if isinstance(value, list):
        members = [_one(member) for member in value if isinstance(member, dict)]
        whole.answers = tuple(key for member in members for key in member.answers)
        whole.is_request = any(member.is_request for member in members)
        whole.is_ping = bool(members) and all(member.is_ping for member in members)
        whole.session_error = any(member.session_error for member in members)
    whole.trivial = value is None
    return whole


def _one(value: dict[str, Any]) -> Message:
    method = value.get("method")
    if isinstance(method, str):
        asked = Message((), method)
        if "id" in value and request_key(value["id"]) is not None:
            asked.is_request = True
            asked.is_ping = method == "ping"
        return asked
    error = value.get("error")
    if error is None and "result" not in value:
        nothing = Message()
        nothing.trivial = not value
        return nothing
    key = request_key(value.get("id"))
    answer = Message(() if key is None else (key,))
    if error is not None:
        answer.session_error = _is_session_error(error, key)
    return answer


def _is_session_error(error: object, key: str | None) -> bool:
    """Whether the `error` member of an answer says that the session is gone."""
    if isinstance(error, str):
        return _SESSION_WORDS.search(error[:_MESSAGE_SIZE]) is not None
    if not isinstance(error, dict):
        return False
    message = error.get("message")
    code = error.get("code")
    message = message[:_MESSAGE_SIZE] if isinstance(message, str) else ""
    if not isinstance(code, int):
        code = None
    if _SESSION_WORDS.search(message):
        return True
    if code in _SESSION_CODES:
        return _TIMEOUT_WORDS.search(message) is None
    return key is None and code not in _UNREAD_CODES


def requests(body: bytes) -> RequestBody | None:
    """Return what the body of a POST asks for; None if it holds no JSON-RPC message, or too many."""
    try:
        value = parse(body)
    except ValueError:
        return None
    if type(value) is dict and (plain := _plain_request(value)) is not None:
        return plain
    members = _members(value)
    if not members or len(members) > MAX_BATCH:
        return None
    asking = [one for one in members if isinstance(one.get("method"), str)]
    wanted = _ids(asking)
    starts = [_params(one) for one in asking if one["method"] == "initialize"]
    version = starts[0].get("protocolVersion") if starts else None
    cancels = [_params(one).get("requestId") for one in asking if one["method"] == "notifications/cancelled"]
    return RequestBody(
        request_keys=_keys(wanted),
        request_ids=_ids_as_sent(body, wanted),
        is_initialize=bool(starts),
        protocol_version=version if isinstance(version, str) else None,
        cancelled=_keys(cancels),
        batch=isinstance(value, list),
    )


def _plain_request(value: dict[str, Any]) -> RequestBody | None:
    """Read the commonest body, one request that is about nothing but itself; None if it is another."""
    method, request_id = value.get("method"), value.get("id")
    if type(method) is not str or method in _SPECIAL or type(request_id) is float:
        return None
    key = request_key(request_id)
    if key is None:
        return None
    return RequestBody((key,), (request_id,), False, None, (), False)  # type: ignore[arg-type]


def _members(value: object) -> list[dict[str, Any]]:
    """Return the JSON-RPC messages of a parsed body."""
    every = value if isinstance(value, list) else [value]
    return [
        one
        for one in every
        if isinstance(one, dict) and (isinstance(one.get("method"), str) or "result" in one or "error" in one)
    ]


def _params(message: dict[str, Any]) -> dict[str, Any]:
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def _keys(values: Iterable[object]) -> tuple[str, ...]:
    return tuple(key for key in map(request_key, values) if key is not None)


def _ids(asking: Iterable[dict[str, Any]]) -> tuple[RequestId, ...]:
    return tuple(one["id"] for one in asking if request_key(one.get("id")) is not None)


def _ids_as_sent(body: bytes, read: tuple[RequestId, ...]) -> tuple[RequestId, ...]:
    """Return the ids in `read` without the loss `parse` may cause: a float may have been an integer."""
    if not any(isinstance(one, float) for one in read):
        return read
    try:
        exact = _ids(one for one in _members(parse_exactly(body)) if isinstance(one.get("method"), str))
    except ValueError:  # nested more deeply than only `parse` can follow
        return read
    return exact


def session_error_in_body(body: bytes) -> bool:
    """Whether a JSON answer says that the session is gone, whatever its HTTP status says."""
    try:
        return message(parse(body)).session_error
    except ValueError:
        return False
