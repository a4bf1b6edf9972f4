"""Answers that a verdict makes in the upstream's place, as bytes; and the CORS fields they need.

A browser shows a script nothing of an answer without CORS fields, so an answer of ours carries those
of the last real answer to the same `Origin`.
"""

from __future__ import annotations

from collections import OrderedDict
from http import HTTPStatus

from proxy.engine.commands import Respond
from proxy.engine.headers import Fields
from proxy.engine.terminal import verdict_header

_ORIGINS = 64
_MOST_BYTES = 4096
"""Of one origin's CORS fields; an upstream that sends more of them is not remembered."""
_EXPOSE = b"access-control-expose-headers"


class CorsMemory:
    """The CORS fields of the newest answer to each of the origins seen last."""

    __slots__ = ("_by_origin",)

    def __init__(self) -> None:
        self._by_origin: OrderedDict[bytes, Fields] = OrderedDict()

    def remember(self, origin: bytes | None, fields: Fields) -> None:
        """An upstream has answered a request from `origin` (None: not from a browser)."""
        if origin is None:
            return
        cors = [field for field in fields if field[0].lower().startswith(b"access-control-")]
        if cors and sum(len(name) + len(value) for name, value in cors) + len(origin) <= _MOST_BYTES:
            self._by_origin[origin] = cors
            self._by_origin.move_to_end(origin)
            if len(self._by_origin) > _ORIGINS:
                self._by_origin.popitem(last=False)

    def fields(self, origin: bytes | None) -> Fields:
        """What an answer of ours to `origin` carries; empty if nothing is known of it."""
        known = None if origin is None else self._by_origin.get(origin)
        if known is None:
            return []
        exposed = [value for name, value in known if name.lower() == _EXPOSE]
        rest = [field for field in known if field[0].lower() != _EXPOSE]
        value = b", ".join([*exposed, b"Forkwatch-Verdict"])
        return [*rest, (b"Access-Control-Expose-Headers", value), (b"Vary", b"Origin")]


def response_bytes(
    answer: Respond, cors: Fields, *, old: bool, keep_alive: bool, head_only: bool = False
) -> bytes:
    """The whole response. `old`: the client speaks HTTP/1.0. `head_only`: it asked by HEAD."""
    status = HTTPStatus(answer.status)
    lines = [b"HTTP/1.%d %d %b" % (0 if old else 1, status, status.phrase.encode())]
    if answer.media_type is not None:
        lines.append(b"Content-Type: " + answer.media_type.encode())
    lines += [
        b"Content-Length: %d" % len(answer.body),
        b"Cache-Control: no-store",
        b"Forkwatch-Verdict: " + verdict_header(answer.judgement),
    ]
    lines += [b"%b: %b" % field for field in cors]
    if not keep_alive:
        lines.append(b"Connection: close")
    elif old:
        lines.append(b"Connection: keep-alive")
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    return head if head_only else head + answer.body
