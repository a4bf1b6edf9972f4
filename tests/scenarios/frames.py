"""SSE frames as servers write them. Equal arguments give equal bytes; texts stand for payloads."""

from __future__ import annotations

import json
from typing import Any

LF, CRLF = "\n", "\r\n"
KEEP_ALIVE = b": keep-alive\n\n"


def _frame(end: str, **fields: object) -> bytes:
    lines = [f"{name}: {value}" for name, value in fields.items() if value is not None]
    return "".join(line + end for line in [*lines, ""]).encode()


def _json(value: dict[str, Any]) -> str:
    return json.dumps({"jsonrpc": "2.0", **value}, separators=(",", ":"))


def event(event_id: object, text: str | None = None, end: str = LF) -> bytes:
    """A notification under an id, or without one for None. Its text is made of the id unless given."""
    data = f"e1-{event_id}" if text is None else text
    payload = {"method": "notifications/message", "params": {"level": "info", "data": data}}
    return _frame(end, id=event_id, data=_json(payload))


def priming(event_id: object, retry_ms: int | None = None, end: str = LF) -> bytes:
    """An id with empty data: it gives the client a cursor before there is anything to say."""
    return _frame(end, id=event_id, retry=retry_ms, data="")


def result(event_id: object, request: object, text: str = "ok", end: str = LF) -> bytes:
    """The response to a JSON-RPC request."""
    payload = {"id": request, "result": {"content": [{"type": "text", "text": text}]}}
    return _frame(end, id=event_id, data=_json(payload))
