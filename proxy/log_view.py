"""Log lines as people read them: bytes of a log in, one aligned line for each line of ours out.

The proxy's lines are JSON objects that start with `ts`, `level` and `event` (`proxy.logs`). On their
way to a person something often wraps them: a prefix of kubectl, Docker Compose or the container
runtime, or Docker's `{"log": "…"}`. Whatever is not ours passes unchanged. Every value may be chosen by
a peer, or the whole file be forged, so nothing that could steer a terminal is rendered as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from proxy.engine.privacy import hash_session

LEVELS = ("debug", "info", "warning", "error")
"""From the least to the greatest."""

MAX_LINE_BYTES = 1 << 20
"""A longer line is not ours: it is passed on in pieces, so that memory stays bounded."""

_COLUMNS = {"prefix": 0, "upstream": 8, "session": 14, "stream": 7, "event": 19}
"""Each column and its width to begin with: names as they mostly are, the hash of a session."""

_NAMES = tuple(_COLUMNS)[1:]

_WIDEST = 64
"""No column grows beyond this, since a forged name may be a mebibyte long."""

_TAGS = {
    "debug": ("DEBU", "2"),
    "info": ("INFO", "32"),
    "warning": ("WARN", "33"),
    "error": ("ERRO", "1;31"),
}
"""By level: its four letters, and the colour of a terminal."""

_PLACED = frozenset({"ts", "level", "event", "upstream", "session", "stream"})
"""Keys that have a column."""

_TIME = re.compile(r"\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)
_EVENT = re.compile(r"[a-z_]+\.[a-z_]+")
_OBJECT = re.compile(rb'\{\s*"')
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\S+( (stdout|stderr) F)?$", re.ASCII)
"""What the container runtime or `kubectl --timestamps` writes before a line; the line has its own."""
_PREFIX_BYTES = 1024
"""Nothing that wraps a line writes more in front of it."""
_BARE = re.compile(r'[^\s"]+')


class Lines:
    """Splits what is read into lines, each with its newline, whatever the sizes of the reads."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._open = bytearray()
        self._overlong = False

    def feed(self, data: bytes) -> list[tuple[bytes, bool]]:
        """The lines that `data` completes, and whether each is whole; pieces of an overlong one are not."""
        *ended, rest = data.split(b"\n")
        lines = [self._ended(text) for text in ended]
        self._open += rest
        if len(self._open) > self._limit:
            lines.append((self._taken(), False))
            self._overlong = True
        return lines

    def end(self) -> list[tuple[bytes, bool]]:
        """The last line, if it has no newline."""
        return [(self._taken(), not self._overlong)] if self._open else []

    def _ended(self, text: bytes) -> tuple[bytes, bool]:
        line = self._taken() + text
        whole = not self._overlong and len(line) <= self._limit
        self._overlong = False
        return line + b"\n", whole

    def _taken(self) -> bytes:
        taken = bytes(self._open)
        self._open.clear()
        return taken


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the proxy's log."""

    level: str
    event: str
    time: str
    """Of the day, in UTC as the log has it: `HH:MM:SS.mmm`."""
    fields: dict[str, object]
    """All of them, in the order of the line."""
    prefix: str = ""
    """What kubectl or Docker Compose wrote before the line: which pod or container it comes from."""


def read(line: bytes) -> Record | None:
    """The record in one line of a log, or None if it is not one of ours."""
    found = _OBJECT.search(line, 0, _PREFIX_BYTES)
    if found is None:
        return None
    before = line[: found.start()].decode("utf-8", "backslashreplace").strip()
    fields = _object(line[found.start() :])
    if isinstance(inner := fields.get("log"), str) and "event" not in fields:
        fields = _object(inner)
    level, event, ts = (fields.get(key) for key in ("level", "event", "ts"))
    if not (isinstance(level, str) and isinstance(event, str) and isinstance(ts, str)):
        return None
    time = _TIME.fullmatch(ts)
    if time is None or level not in LEVELS or _EVENT.fullmatch(event) is None:
        return None
    clock = f"{time[1]}.{(time[2] or '')[:3]:0<3}"
    return Record(level, event, clock, fields, _STAMP.sub("", before).rstrip())


def _object(text: bytes | str) -> dict[str, object]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which lines to keep: those of which everything that is set holds. Unset is empty."""

    session: str = ""
    """Raw or hashed; it finds either in a log that shows either."""
    verdicts: frozenset[str] = frozenset()
    upstream: str = ""
    level: str = ""
    """The least one."""
    event: str = ""
    """A name or the start of one."""

    def keeps(self, record: Record | None) -> bool:
        """Whether to show this line; one that is not ours (None) only if nothing at all is asked for."""
        if record is None:
            return self == _EVERYTHING
        fields = record.fields
        return (
            (not self.session or self._is_of(fields.get("session")))
            and (not self.verdicts or str(fields.get("verdict", "")) in self.verdicts)
            and self.upstream in ("", fields.get("upstream"))
            and (not self.level or LEVELS.index(record.level) >= LEVELS.index(self.level))
            and record.event.startswith(self.event)
        )

    def _is_of(self, session: object) -> bool:
        return isinstance(session, str) and (
            session in (self.session, hash_session(self.session)) or hash_session(session) == self.session
        )


_EVERYTHING = Filter()


class Layout:
    """Renders records in columns, which grow with what they hold; `colours` paints by level."""

    def __init__(self, *, colours: bool = False) -> None:
        self._colours = colours
        self._widths = dict(_COLUMNS)

    def render(self, record: Record) -> str:
        """One line without its end: time, level, upstream, session, stream, event, then the details."""
        prefix = self._column("prefix", escaped(record.prefix))
        columns = (self._column(key, _shown(record.fields.get(key) or "", "")) for key in _NAMES)
        cells = [
            *([prefix] if prefix else []),
            record.time,
            self._coloured(_TAGS[record.level][0], record.level),
            *columns,
            "",
            *self._details(record),
        ]
        return " ".join(cells).rstrip()

    def _column(self, key: str, text: str) -> str:
        width = self._widths[key]
        if len(text) > width:
            self._widths[key] = width = min(len(text), _WIDEST)
        return text.ljust(width)

    def _details(self, record: Record) -> Iterator[str]:
        """The judgement first, then the rest in its order; what is null says nothing and is left out."""
        fields = {key: value for key, value in record.fields.items() if key not in _PLACED}
        if (verdict := fields.pop("verdict", None)) is not None:
            reason, certainty = fields.pop("reason", None), fields.pop("certainty", None)
            judged = "/".join(_shown(word) for word in (verdict, reason) if word is not None)
            judged = judged if certainty is None else f"{judged} {_shown(certainty)}"
            yield self._coloured(judged, record.level) + " "
        was = fields.pop("previous_replica", None) if "replica" in fields else None
        for key, value in fields.items():
            if key == "replica" and was is not None:
                now = "?" if value is None else _shown(value)
                yield f"replica={now} {'(same)' if value == was else f'(was {_shown(was)})'}"
            elif value is not None:
                yield f"{_shown(key)}={_shown(value)}"

    def _coloured(self, text: str, level: str) -> str:
        return f"\x1b[{_TAGS[level][1]}m{text}\x1b[0m" if self._colours else text


class View:
    """Bytes of a log in, bytes to show out. On a terminal no line can steer it, not even a foreign one."""

    def __init__(self, kept: Filter, layout: Layout, *, terminal: bool, encoding: str = "utf-8") -> None:
        self._kept = kept
        self._layout = layout
        self._terminal = terminal
        self._encoding = encoding
        self._lines = Lines()

    def feed(self, data: bytes) -> bytes:
        """What to show for the lines that `data` completes."""
        return b"".join(self._shown(line, whole) for line, whole in self._lines.feed(data))

    def end(self) -> bytes:
        """What to show for a last line without its newline."""
        return b"".join(self._shown(line, whole) for line, whole in self._lines.end())

    def _shown(self, line: bytes, whole: bool) -> bytes:
        record = read(line) if whole else None
        if not self._kept.keeps(record):
            return b""
        if record is not None:
            return self._encoded(self._layout.render(record) + "\n")
        if not self._terminal:
            return line
        ending = "\n" if line.endswith(b"\n") else ""
        text = line.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
        return self._encoded(escaped(text, but="\t") + ending)

    def _encoded(self, text: str) -> bytes:
        return text.encode(self._encoding, "backslashreplace")


def _shown(value: object, empty: str = '""') -> str:
    """A value as one word of a line, in quotes where it would be several; `empty` stands for ''."""
    if isinstance(value, str):
        text = escaped(value)
        if not text:
            return empty
        return text if _BARE.fullmatch(text) else '"' + text.replace('"', '\\"') + '"'
    try:
        return escaped(orjson.dumps(value).decode())
    except orjson.JSONEncodeError:  # it reads deeper nesting than it writes
        return "…"


def escaped(text: str, but: str = "") -> str:
    """`text` with all that is not printable written out, such as `\\x1b`; `but` names what may stay."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in but else ascii(c)[1:-1] for c in text)
