"""What an event id says, if anything: every recognised dialect in one table.

SSE ids are opaque strings (WHATWG HTML, server-sent events) and MCP only asks that they be unique
within a session (spec 2025-11-25, transports, "Resumability and Redelivery"). Ids are therefore
never compared as text. A *dialect* is a form that a known server emits, together with what its
parts mean; what no dialect recognises stays opaque. `Evidence` holds what one session's own ids
have shown about the dialect guessed for them: a guess convicts nobody until it has agreed with
enough of them.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

TRUST_AFTER = 4
"""Ids of one session that must agree with a guessed dialect before its tags and order convict."""

LOOKS_CONTIGUOUS_AFTER = 16
"""Consecutive +1 steps after which bare integers look contiguous (and a jump is suspected)."""


class IdClass(Enum):
    """What may be concluded from two ids of one dialect."""

    CONTIGUOUS = "contiguous"
    """Order, and the successor of n is n+1 on each stream: loss is visible from the cursor alone."""
    ORDERED = "ordered"
    """Order only; holes are normal."""
    TIMED = "timed"
    """Order of wall-clock milliseconds: only ever suspected, since clocks step."""
    OPAQUE = "opaque"
    """Membership and observed order only."""


class EventId(NamedTuple):
    """One id taken apart. Tags are None where the dialect has none; `seq` orders within equal tags."""

    session: bytes | None
    stream: bytes | None
    epoch: bytes | None
    seq: tuple[int, ...]


_OPAQUE, _CONTIGUOUS = IdClass.OPAQUE, IdClass.CONTIGUOUS
_MOST_DIGITS = 18
_BARE = r"(?P<seq>\d{1,18})"
"""Bare integers: read without the pattern, which costs three times as much."""
_made = tuple.__new__
"""Makes a named tuple in half the time of its own constructor."""


class Dialect:
    """One form of ids: its pattern, its class and the habits of the server that emits it.

    The pattern's named groups are the parts: `session`, `stream`, `epoch` (tags), `seq` (decimal),
    `hex` (hexadecimal sequence), `ms` with optional `n` (decimal) or `n36` (base 36) counter.
    """

    __slots__ = ("_bare", "_epoch_at", "_groups", "_seq_at", "_session_at", "_stream_at", "base64_tags", "claimed",
                 "cls", "first", "inclusive", "live_first", "match", "name", "never_repeats", "per_stream",
                 "unique")  # fmt: skip

    def __init__(
        self,
        name: str,
        cls: IdClass,
        pattern: str,
        *,
        first: int | None = None,
        inclusive: bool = False,
        live_first: bool = False,
        unique: bool = False,
        per_stream: bool = False,
        never_repeats: bool = False,
        base64_tags: bool = False,
    ) -> None:
        compiled = re.compile(pattern.encode())
        self.name = name
        self.cls = cls
        self.match = compiled.fullmatch
        self.first = first
        """The sequence a new log begins with; None if the dialect does not say."""
        self.inclusive = inclusive
        """The server replays the cursor's own event, healthily."""
        self.live_first = live_first
        """Live events may come before the backlog."""
        self.unique = unique
        """Ids are random enough to have one owner in the whole upstream."""
        self.per_stream = per_stream
        """Each stream counts for itself, so order means nothing across streams."""
        self.never_repeats = never_repeats
        """The same event has another id each time it is sent."""
        self.base64_tags = base64_tags
        self._bare = pattern == _BARE
        self.claimed = unique or self._bare
        """Which session has shown an id is remembered across the upstream."""
        groups = self._groups = compiled.groupindex
        # Where each part stands in a match, 0 for nowhere.
        self._session_at, self._stream_at = groups.get("session", 0), groups.get("stream", 0)
        self._epoch_at, self._seq_at = groups.get("epoch", 0), groups.get("seq", 0)

    def parse(self, raw: bytes) -> EventId | None:
        """The parts of `raw`, or None if it is not of this dialect or the dialect is opaque."""
        if self.cls is _OPAQUE:
            return None
        if self._bare:  # integers, the commonest form
            whole = raw.isdigit() and len(raw) <= _MOST_DIGITS
            return _made(EventId, (None, None, None, (int(raw),))) if whole else None
        found = self.match(raw)
        if found is None:
            return None
        session = found[self._session_at] if self._session_at else None
        stream = found[self._stream_at] if self._stream_at else None
        if self.base64_tags:
            session = _unbase64(session)
        epoch = found[self._epoch_at] if self._epoch_at else None
        seq = (int(found[self._seq_at]),) if self._seq_at else self._sequence(found)
        return _made(EventId, (session, stream, epoch, seq))

    def _sequence(self, found: re.Match[bytes]) -> tuple[int, ...]:
        groups = self._groups
        if "hex" in groups:
            return (int(found["hex"], 16),)
        if "n36" in groups:
            return (int(found["ms"]), int(found["n36"], 36))
        if "n" in groups:
            return (int(found["ms"]), int(found["n"]))
        return (int(found["ms"]),)

    def recognises(self, raw: bytes) -> bool:
        """Whether `raw` has this dialect's form."""
        return self.match(raw) is not None

    def __repr__(self) -> str:
        return f"<Dialect {self.name}>"


def _unbase64(text: bytes | None) -> bytes | None:
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except binascii.Error:
        return None


_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"

OPAQUE = Dialect("opaque", IdClass.OPAQUE, r"[\s\S]*")
"""What nothing recognises."""

INTEGER = Dialect("integer", IdClass.ORDERED, _BARE, first=1)
"""Bare integers: mcp-go, tower-mcp, turul, the Python SDK's example store. Holes are normal."""

RMCP = Dialect(
    "rmcp",
    IdClass.CONTIGUOUS,
    r"(?P<seq>\d{1,18})(?:/(?P<stream>\d{1,18}))?",
    first=0,
    inclusive=True,
    per_stream=True,
)
"""rust-sdk: `<n>` on the common stream, `<n>/<request>` on a POST's; replays the cursor itself."""

DIALECTS: tuple[Dialect, ...] = (
    Dialect("java-pair", IdClass.OPAQUE, f"{_UUID}_{_UUID}", unique=True),
    Dialect("uuid", IdClass.OPAQUE, rf"{_UUID}|[0-9a-fA-F]{{32}}", unique=True),
    Dialect("kotlin", IdClass.TIMED, rf"(?P<stream>.+)::(?P<ms>\d{{13}})_{_UUID}", unique=True),
    Dialect(
        "mcp-proxy",
        IdClass.TIMED,
        r"(?P<stream>.+)_(?P<ms>\d{13})_(?P<n36>[0-9a-z]{4})_[0-9a-z]{0,3}",
        unique=True,
    ),
    Dialect("typescript", IdClass.TIMED, r"(?P<stream>.+)_(?P<ms>\d{13})_[0-9a-z]{0,8}", unique=True),
    Dialect("redis", IdClass.TIMED, r"(?:(?P<stream>.+):)?(?:b')?(?P<ms>\d{13})-(?P<n>\d{1,18})'?"),
    Dialect(
        "csharp",
        IdClass.CONTIGUOUS,
        r"(?P<session>[A-Za-z0-9+/]+={0,2}):(?P<stream>[A-Za-z0-9+/]+={0,2}):(?P<seq>\d{1,18})",
        first=1,
        per_stream=True,
        base64_tags=True,
    ),
    Dialect(
        "cloudflare",
        IdClass.CONTIGUOUS,
        r"(?P<stream>[^:]+):(?P<hex>[0-9a-f]{16})",
        first=1,
        per_stream=True,
        live_first=True,
    ),
    Dialect(
        "logiscape",
        IdClass.CONTIGUOUS,
        r"(?P<stream>[A-Za-z0-9_-]{11}):(?P<seq>\d{1,18})",
        first=0,
        per_stream=True,
    ),
    Dialect(
        "mcp-lite",
        IdClass.CONTIGUOUS,
        r"(?P<seq>\d{1,18})#(?P<stream>.+)",
        first=1,
        per_stream=True,
        live_first=True,
    ),
    Dialect(
        "go-sdk",
        IdClass.CONTIGUOUS,
        r"(?P<stream>(?:[A-Z2-7]{26})?)_(?P<seq>\d{1,12})",
        first=0,
        per_stream=True,
    ),
    INTEGER,
    RMCP,
    Dialect("swift", IdClass.ORDERED, r"(?P<stream>.+)_(?P<seq>\d{1,12})", first=1),
    Dialect("instance", IdClass.ORDERED, r"(?P<epoch>.+)-(?P<seq>\d{1,18})", first=1),
    Dialect(
        "encrypted",
        IdClass.OPAQUE,
        r"[A-Za-z0-9+/_-]{40,}={0,2}|[^:,]+:[A-Za-z0-9+/]+={0,2}(?:,[^:,]+:[A-Za-z0-9+/]+={0,2})+",
        never_repeats=True,
    ),
    OPAQUE,
)
"""Tried in this order for a session's first id; forms that contain another stand before it."""

_BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
_WORDS = ("session", "stream", "epoch", "seq")


def known(text: str) -> bool:
    """Whether `text` may stand under `ids:` in the configuration."""
    return text == "auto" or text in _BY_NAME or _pattern(text) is not None


def forced(text: str) -> Dialect | None:
    """The dialect configured by `ids:`; None for `auto`. Raises ValueError for an unknown text."""
    if text == "auto":
        return None
    dialect = _BY_NAME.get(text) or _pattern(text)
    if dialect is None:
        raise ValueError(f"{text!r} is no id dialect; use auto, a name or a pattern such as epoch:seq")
    return dialect


def _pattern(text: str) -> Dialect | None:
    """A dialect from words joined by separators, such as `epoch:seq` or `session/stream/seq`."""
    parts = re.findall(r"[a-z]+|[^a-z]+", text)
    words = parts[::2]
    if "seq" not in words or len(set(words)) != len(words) or not set(words) <= set(_WORDS):
        return None
    groups = []
    for place, part in enumerate(parts):
        if place % 2:
            groups.append(re.escape(part))
        elif part == "seq":
            groups.append(r"(?P<seq>[0-9]{1,18})")
        else:
            groups.append(f"(?P<{part}>{_tag(parts, place)})")
    return Dialect(text, IdClass.ORDERED, "".join(groups), first=1, per_stream="stream" in words)


def _tag(parts: list[str], place: int) -> str:
    """The pattern of one tag: only the first holds separators as it likes, so that reading takes linear time."""
    before, after = parts[place - 1 : place], parts[place + 1 : place + 2]
    first = all(part == "seq" for part in parts[:place:2])
    apart = before if not first else []
    if apart and parts[place - 2] == "seq":
        apart = before + after if after else []
    return f"(?:(?!{'|'.join(map(re.escape, apart))}).)+" if apart else ".+"


def guess(raw: bytes) -> Dialect:
    """The dialect a session's first id suggests."""
    return next(dialect for dialect in DIALECTS if dialect.recognises(raw))


def compare(a: EventId | None, b: EventId | None, dialect: Dialect) -> int | None:
    """-1, 0 or 1 as `a` comes before, at or after `b`; None where the dialect cannot tell."""
    if a is None or b is None or a.session != b.session or a.epoch != b.epoch:
        return None
    if dialect.per_stream and a.stream != b.stream:
        return None
    return (a.seq > b.seq) - (a.seq < b.seq)


def skipped(earlier: EventId, later: EventId) -> int:
    """How many numbers lie between two ids of one stream; negative if `later` is not later."""
    return later.seq[0] - earlier.seq[0] - 1


class Evidence:
    """What one session's ids have shown about their dialect.

    `dialect` is guessed from the first id unless `ids:` forces it; it becomes opaque as soon as an
    id of the session does not fit (bare integers may still turn out to be rmcp's common stream).
    """

    __slots__ = ("agreed", "dialect", "disordered", "forced", "holes", "tags_broken")

    def __init__(self, forced: Dialect | None = None) -> None:
        self.dialect: Dialect | None = forced
        self.forced = forced is not None
        self.agreed = 0
        """Ids that fitted, in order and with the same tags, beside another one of their stream."""
        self.tags_broken = False
        """Two ids of one stream carried different tags: the tags are not what we took them for."""
        self.disordered = False
        """An id came out of order inside one connection: order says little here."""
        self.holes = False
        """A contiguous dialect skipped a number inside one connection: it is only ordered."""

    def read(self, raw: bytes) -> EventId | None:
        """The parts of `raw` in the session's dialect; None if opaque. May revise the dialect."""
        dialect = self.dialect
        if dialect is None:
            dialect = self.dialect = guess(raw)
        parsed = dialect.parse(raw)
        if parsed is None and dialect.cls is not IdClass.OPAQUE and not self.forced:
            if dialect is INTEGER and RMCP.recognises(raw):
                self.dialect = RMCP
                return RMCP.parse(raw)
            self.dialect = OPAQUE
        return parsed

    def peek(self, raw: bytes) -> EventId | None:
        """As `read`, without drawing conclusions: for ids of a stream still to be judged."""
        dialect = self.dialect if self.dialect is not None else guess(raw)
        parsed = dialect.parse(raw)
        if parsed is None and dialect is INTEGER and not self.forced:
            return RMCP.parse(raw)
        return parsed

    def observe(self, previous: EventId | None, current: EventId | None, session: bytes) -> None:
        """Weigh `current`, which followed `previous` on one stream inside one connection."""
        if current is None or self.dialect is None:
            return
        if current.session is not None and current.session == session:
            self.agreed = max(self.agreed, TRUST_AFTER)  # nobody embeds this session's id by chance
        if previous is None:
            return
        if self.dialect.inclusive and previous.stream is None and previous.seq[0] == self.dialect.first:
            return  # rmcp before 2.0 primes every stream with the first id of the common one
        if previous.stream != current.stream or previous.session != current.session or (
            previous.epoch != current.epoch and not self.forced
        ):  # fmt: skip
            self.tags_broken = True
            return
        if previous.epoch != current.epoch:
            return
        if current.seq < previous.seq:
            self.disordered = True
            return
        if current.seq == previous.seq and self.dialect.cls is not IdClass.TIMED:
            return  # rmcp primes a stream with the id of its first message
        self.agreed += 1 if self.agreed else 2  # the first agreement vouches for both ids
        if self.dialect.cls is IdClass.CONTIGUOUS and skipped(previous, current):
            self.holes = True

    @property
    def learns(self) -> bool:
        """Whether an id in order, with the tags of the one before, still says something new."""
        return self.agreed < TRUST_AFTER or (self.dialect is not None and self.dialect.cls is _CONTIGUOUS)

    @property
    def convicts(self) -> bool:
        """Whether tags and order of this dialect prove something rather than only suspect it."""
        dialect = self.dialect
        if dialect is None or dialect.cls is IdClass.TIMED or self.disordered or self.tags_broken:
            return False
        return self.forced or dialect is INTEGER or self.agreed >= TRUST_AFTER

    @property
    def tags_convict(self) -> bool:
        """Whether a foreign tag proves something: `convicts`, for timed dialects too."""
        return not self.tags_broken and (self.forced or self.agreed >= TRUST_AFTER)

    @property
    def contiguous(self) -> bool:
        """Whether the successor of n must be n+1."""
        dialect = self.dialect
        return dialect is not None and dialect.cls is IdClass.CONTIGUOUS and not (
            self.holes or self.disordered or self.tags_broken
        )  # fmt: skip


def names() -> Iterable[str]:
    """Every dialect's name, for messages."""
    return _BY_NAME.keys()
