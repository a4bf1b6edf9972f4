"""How servers number events: for each dialect its class, and the id of the n-th event of a stream.

The class says what may be concluded from ids. `contiguous`: order, and that nothing is missing. `ordered`:
order alone. `timed`: order by a clock, so only a suspicion. `opaque`: whether an id was seen before, no more.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import uuid
from collections.abc import Callable
from dataclasses import dataclass

CLOCK_MS = 1_795_973_200_000
_nonces = itertools.count()


@dataclass(frozen=True)
class Dialect:
    """One way to make event ids, with what the proxy may conclude from it."""

    name: str
    kind: str
    make: Callable[[str, str, int], str]
    """session, stream, n → id"""
    streams: tuple[str, str] = ("_GET_stream", "7")
    """Two names of streams, the standalone one or that of a request first."""
    tagged: bool = False
    """Whether the id names its stream."""
    over_post: bool = False
    """Whether such ids stand on the stream of a request."""
    path: str = "/mcp"
    """The entry of the configuration that such a server is behind."""
    replays_cursor: bool = False
    """Whether a healthy replay begins with the cursor itself."""
    repeats: bool = True
    """Whether an event comes under the same id when it is replayed."""
    late_backlog: bool = False
    """Whether live events may come before the replayed ones."""

    def __str__(self) -> str:
        return self.name


def digest(*parts: object) -> bytes:
    """Bytes that look random and are the same each time."""
    return hashlib.sha256(":".join(map(str, parts)).encode()).digest()


def stream_uuid(session: str, stream: str) -> str:
    """The random name that a server gives a stream."""
    return str(uuid.UUID(bytes=digest(session, stream)[:16], version=4))


def base36(raw: bytes, length: int) -> str:
    """That many letters and digits."""
    return base64.b32encode(raw).decode().lower()[:length]


def typescript(session: str, stream: str, n: int) -> str:
    """Stream, milliseconds, eight random letters."""
    return f"{stream_uuid(session, stream)}_{CLOCK_MS + 7 * n}_{base36(digest(session, stream, n), 8)}"


def mcp_proxy(session: str, stream: str, n: int) -> str:
    """Stream, milliseconds, a counter within one of them, three random letters."""
    tail = base36(digest(session, stream, n), 3)
    return f"{stream_uuid(session, stream)}_{CLOCK_MS + 7 * (n // 2)}_{n % 2:04}_{tail}"


def csharp(session: str, stream: str, n: int) -> str:
    """Session and stream in base64, then the number."""
    return f"{base64.b64encode(session.encode()).decode()}:{base64.b64encode(stream.encode()).decode()}:{n}"


def encrypted(session: str, stream: str, n: int) -> str:
    """A sealed cursor: another text each time."""
    sealed = digest(session, stream, n, next(_nonces)) + digest(session, stream, next(_nonces))
    return base64.b64encode(sealed).decode()


def logiscape_stream(session: str, stream: str) -> str:
    """Eleven letters of base64url."""
    return base64.urlsafe_b64encode(digest(session, stream)[:8]).decode().rstrip("=")


def go_stream(session: str, stream: str) -> str:
    """Twenty-six letters of base32."""
    return base64.b32encode(digest(session, stream)).decode()[:26]


DIALECTS = (
    Dialect("integer", "ordered", lambda session, stream, n: str(n)),
    Dialect(
        "uuid", "opaque", lambda session, stream, n: str(uuid.uuid5(uuid.NAMESPACE_URL, f"{session}/{n}"))
    ),
    Dialect("typescript", "timed", typescript, tagged=True),
    Dialect("mcp-proxy", "timed", mcp_proxy, tagged=True),
    Dialect("csharp", "contiguous", csharp, streams=("__get__", "7"), tagged=True),
    Dialect(
        "cloudflare",
        "contiguous",
        lambda session, stream, n: f"{stream_uuid(session, stream)}:{n:016x}",
        tagged=True,
        late_backlog=True,
    ),
    Dialect(
        "logiscape",
        "contiguous",
        lambda session, stream, n: f"{logiscape_stream(session, stream)}:{n}",
        tagged=True,
    ),
    Dialect(
        "mcp-lite", "contiguous", lambda session, stream, n: f"{n}#{stream}", tagged=True, late_backlog=True
    ),
    Dialect(
        "go-standalone", "contiguous", lambda session, stream, n: f"{stream}_{n}", streams=("", "A" * 26)
    ),
    Dialect(
        "go-request",
        "contiguous",
        lambda session, stream, n: f"{go_stream(session, stream)}_{n}",
        streams=("7", "8"),
        tagged=True,
        over_post=True,
    ),
    Dialect(
        "rmcp",
        "contiguous",
        lambda session, stream, n: f"{n}/{stream}",
        streams=("3", "4"),
        tagged=True,
        over_post=True,
        replays_cursor=True,
    ),
    Dialect("swift", "ordered", lambda session, stream, n: f"{stream}_{n}", tagged=True),
    Dialect("instance", "ordered", lambda session, stream, n: f"{base36(digest(session), 12)}-{n}"),
    Dialect("redis", "timed", lambda session, stream, n: f"{CLOCK_MS + 7 * (n // 2)}-{n % 2}"),
    Dialect("encrypted", "opaque", encrypted, repeats=False),
    Dialect("epoch:seq", "ordered", lambda session, stream, n: f"7:{n}", path="/epoch"),
)
