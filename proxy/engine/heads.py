"""What the engine needs of a request's head and of a response's, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Request:
    """What the engine needs of a request's head. `session` and `cursor` are None if absent or empty."""

    method: str
    session: bytes | None = None
    cursor: bytes | None = None
    protocol: str | None = None

    @property
    def resumes(self) -> bool:
        """Whether this is a GET with a cursor in a session: the only thing that is judged."""
        return self.method == "GET" and self.session is not None and self.cursor is not None


@dataclass(slots=True)
class Answer:
    """What the engine needs of a response's head."""

    status: int
    is_stream: bool
    """Its content type is `text/event-stream`."""
    encoded: bool = False
    """A content coding other than identity."""
    session: bytes | None = None
    replica: str | None = None
    whole: bool = False
    """Its head promises its length."""

    @property
    def succeeded(self) -> bool:
        """Whether it is a 2xx."""
        return 200 <= self.status < 300


def representable(cursor: bytes) -> bool:
    """Whether an HTTP field carries these bytes whole: no controls, and UTF-8 for clients that decode."""
    try:
        text = cursor.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return text.isprintable()
