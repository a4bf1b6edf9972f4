"""The proxy's own answers: a JSON problem (in the style of RFC 9457) as the bytes of a whole response."""

from __future__ import annotations

from http import HTTPStatus

import orjson

from proxy.errors import ProxyError


def problem_response(error: ProxyError, *, head_only: bool = False, close: bool = True) -> bytes:
    """The response for `error`; `head_only` for an answer to HEAD, `close` if the connection ends with it.

    Its detail is the error's message, which holds nothing secret.
    """
    status = HTTPStatus(error.status)
    body = orjson.dumps(
        {
            "type": f"forkwatch:{error.type}",
            "title": status.phrase,
            "status": int(status),
            "detail": str(error),
        }
    )
    head = (
        f"HTTP/1.1 {int(status)} {status.phrase}\r\n"
        "Content-Type: application/problem+json\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        f"{'Connection: close' + chr(13) + chr(10) if close else ''}\r\n"
    ).encode("ascii")
    return head if head_only else head + body
