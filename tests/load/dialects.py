"""How the servers of the load number their events, and what the rules may conclude from it.

Each is an upstream of its own in the proxy, as each would be a server of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

from tests.scenarios.dialects import (
    CLOCK_MS,
    base36,
    csharp,
    digest,
    encrypted,
    go_stream,
    logiscape_stream,
    mcp_proxy,
    stream_uuid,
    typescript,
)

GET = "_GET_stream"
"""The name of the standalone stream; the others are named after their request."""

Make = Callable[[str, str, int, int], str]
"""session, stream, incarnation, n → id"""


@dataclass(frozen=True)
class Dialect:
    """One way to number events."""

    name: str
    cls: str
    """`contiguous`, `ordered`, `timed` or `opaque`: what may be concluded."""
    make: Make
    scope: str = "session"
    """What has one counter: the `session`, each `stream`, or the whole `upstream`."""
    first: int = 1
    tagged: bool = False
    """The id names its stream."""
    inclusive: bool = False
    """A healthy replay begins with the cursor itself."""
    live_first: bool = False
    """Live events may come before the replayed ones."""
    unique: bool = False
    """An id has one owner in the whole upstream."""
    repeats: bool = True
    """An event comes under the same id when it is replayed."""
    epochs: bool = False
    """The id names the incarnation of the server."""
    ids: str = "auto"
    """What the configuration says."""

    @property
    def numbered(self) -> bool:
        """Whether order convicts."""
        return self.cls in ("contiguous", "ordered")

    @property
    def bare(self) -> bool:
        """Whether the ids are nothing but integers."""
        return self.name in ("integer", "shared", "counted")

    @property
    def owns(self) -> bool:
        """Whether an id has one owner among the streams of a session."""
        return self.repeats and self.name != "counted"


def _seeded(session: str, stream: str, incarnation: int, n: int) -> uuid.UUID:
    return uuid.UUID(bytes=digest(session, stream, incarnation, n)[:16], version=4)


def _go(session: str, stream: str, incarnation: int, n: int) -> str:
    return f"{'' if stream == GET else go_stream(session, stream)}_{n}"


def _rmcp(session: str, stream: str, incarnation: int, n: int) -> str:
    return str(n) if stream == GET else f"{n}/{stream}"


def _kotlin(session: str, stream: str, incarnation: int, n: int) -> str:
    return f"{stream}::{CLOCK_MS + 7 * n}_{_seeded(session, stream, incarnation, n)}"


def _java(session: str, stream: str, incarnation: int, n: int) -> str:
    return f"{stream_uuid(session, stream)}_{_seeded(session, stream, incarnation, n)}"


DIALECTS: tuple[Dialect, ...] = (
    Dialect("integer", "ordered", lambda s, t, i, n: str(n)),
    Dialect("shared", "ordered", lambda s, t, i, n: str(n), scope="upstream", unique=True),
    Dialect("counted", "ordered", lambda s, t, i, n: str(n), scope="stream"),
    Dialect("swift", "ordered", lambda s, t, i, n: f"{t}_{n}", tagged=True),
    Dialect("instance", "ordered", lambda s, t, i, n: f"{base36(digest(s, i), 12)}-{n}", epochs=True),
    Dialect("epoch", "ordered", lambda s, t, i, n: f"{7 + i}:{n}", epochs=True, ids="epoch:seq"),
    Dialect("go", "contiguous", _go, scope="stream", first=0, tagged=True),
    Dialect("csharp", "contiguous", lambda s, t, i, n: csharp(s, t, n), scope="stream", tagged=True),
    Dialect(
        "cloudflare",
        "contiguous",
        lambda s, t, i, n: f"{stream_uuid(s, t)}:{n:016x}",
        scope="stream",
        tagged=True,
        live_first=True,
    ),
    Dialect(
        "logiscape",
        "contiguous",
        lambda s, t, i, n: f"{logiscape_stream(s, t)}:{n}",
        scope="stream",
        first=0,
        tagged=True,
    ),
    Dialect(
        "mcp-lite",
        "contiguous",
        lambda s, t, i, n: f"{n}#{t}",
        scope="stream",
        tagged=True,
        live_first=True,
    ),
    Dialect("rmcp", "contiguous", _rmcp, scope="stream", first=0, tagged=True, inclusive=True),
    Dialect("typescript", "timed", lambda s, t, i, n: typescript(s, t, n), tagged=True, unique=True),
    Dialect("mcp-proxy", "timed", lambda s, t, i, n: mcp_proxy(s, t, n), tagged=True, unique=True),
    Dialect("kotlin", "timed", _kotlin, tagged=True, unique=True),
    Dialect("redis", "timed", lambda s, t, i, n: f"{CLOCK_MS + 7 * (n // 2)}-{n % 2}"),
    Dialect("uuid", "opaque", lambda s, t, i, n: str(_seeded(s, t, i, n)), unique=True),
    Dialect("java", "opaque", _java, unique=True),
    Dialect("unknown", "opaque", lambda s, t, i, n: f"event {i} of {n}"),
    Dialect("encrypted", "opaque", lambda s, t, i, n: encrypted(s, t, n), repeats=False),
)
