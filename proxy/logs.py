"""The log: a closed catalogue of events, one line each, and what a line may show.

JSON lines are for machines and the default; a terminal gets the same fields rendered for people.
Keys come in one order: `ts`, `level`, `event`, `upstream`, `session`, `stream`, then the event's own.
Peers choose many of the values, so each is capped and what could steer a terminal is escaped; session
ids are credentials and are hashed unless configured otherwise. Exceptions are one line of text, never
a traceback. Writing happens in a thread (`proxy.line_writer`), so logging never waits for a reader.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from typing import BinaryIO, Literal, Protocol

import orjson
import structlog
from structlog.typing import EventDict, Processor

from proxy.engine.privacy import hash_session
from proxy.line_writer import LineWriter
from proxy.log_view import LEVELS

Level = Literal["debug", "info", "warning", "error"]

BOUND = ("upstream", "session", "stream")
"""Keys any event may carry; left out when empty."""

EVENTS: dict[str, frozenset[str]] = {
    name: frozenset(keys.split())
    for name, keys in {
        "proxy.started": "version python pid config upstreams mode",
        "proxy.ready": "listen status admin",
        "proxy.stopping": "reason",
        "proxy.stopped": "took_s streams_cut",
        "config.loaded": "path upstreams warnings",
        "config.reloaded": "path changed restart_needed warnings",
        "config.rejected": "path errors",
        "policy.changed": "mode previous_mode by ttl_s released",
        "session.opened": "protocol followed",
        "session.closed": "reason",
        "session.evicted": "reason",
        "session.quarantined": "verdict reason certainty ttl_s",
        "quarantine.rejected": "method status repeated",
        "quarantine.ended": "cause",
        "stream.opened": "kind",
        "stream.closed": "kind cause events last_id bytes duration_s ttfb_ms repeated",
        "resume.attempted": "cursor repeated",
        "resume.judged": "verdict reason certainty cursor high outstanding first_id lost duplicated epoch"
        " in_flight away_s replica previous_replica action took_ms hint repeated",
        "finding.raised": "finding detail repeated",
        "policy.action": "mode action verdict reason certainty repeated",
        "upstream.error": "reason error method status repeated",
        "check.failed_open": "component error",
        "sse.malformed": "detail repeated",
        "drain.started": "delay_s spread_s deadline_s open_streams",
        "drain.finished": "took_s streams_cut undone",
        "loop.stalled": "lag_s",
        "log.dropped": "count",
        "admin.request": "method path peer status repeated",
    }.items()
}
"""Every event and the keys it may carry beyond `BOUND`. Adding is compatible, renaming is not."""

_KEYS = {name: keys | set(BOUND) for name, keys in EVENTS.items()}

EVENT_ID_KEYS = frozenset({"cursor", "high", "first_id", "last_id", "got"})
EVENT_ID_CHARS = 128
TEXT_CHARS = 512

# JSON escapes the C0 controls by itself. DEL, the C1 controls and the separators that some readers
# take for a line end are legal JSON but not safe to print; lone surrogates are not even UTF-8.
_UNSAFE = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, *range(0xD800, 0xE000))
}


_THOUSANDTHS = [f".{n:03d}Z" for n in range(1000)]
"""How a timestamp ends."""

QUIET = logging.getLogger("forkwatch.http")
"""For aiohttp's servers: it would write tracebacks, with what clients sent, to stderr."""
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class LogSettings(Protocol):
    """The `log` section of the configuration."""

    @property
    def format(self) -> str:
        """`json`, `console`, or `auto`: console on a terminal."""

    @property
    def level(self) -> str:
        """The least level written: debug, info, warning or error."""

    @property
    def session_ids(self) -> str:
        """`hash` or `raw`."""

    @property
    def event_ids(self) -> str:
        """`raw` or `hash`."""


class Log:
    """Writes the catalogue's events. Made by `open_log`; `close` it, or the last lines are lost."""

    def __init__(
        self,
        settings: LogSettings,
        stream: BinaryIO,
        env: Mapping[str, str],
        clock: Callable[[], float],
    ) -> None:
        self._stream = stream
        self._env = env
        self._clock = clock
        self.tap: Callable[[EventDict], None] | None = None
        """Sees each line that is written, as its fields in order; must neither change them nor raise."""
        self._shape, self._render = self._lines(settings)
        self._writer = LineWriter(stream, notice=self._dropped_line)
        self.apply(settings)

    def apply(self, settings: LogSettings) -> None:
        """Write by these settings from now on."""
        self._shape, self._render = self._lines(settings)
        self._written = frozenset(LEVELS[LEVELS.index(settings.level) :])

    def _lines(self, settings: LogSettings) -> tuple[_Shape, Processor]:
        terminal = self._stream.isatty()
        console = settings.format == "console" or (settings.format == "auto" and terminal)
        shape = _Shape(settings, self._clock, printable=console)
        if not console:
            return shape, structlog.processors.JSONRenderer(orjson.dumps)
        colors = terminal and not self._env.get("NO_COLOR")
        return shape, structlog.dev.ConsoleRenderer(colors=colors, sort_keys=False, timestamp_key="ts")

    def _dropped_line(self, count: int) -> bytes:
        fields = self._shape(None, "warning", {"event": "log.dropped", "count": count})
        return _line(self._render(None, "warning", fields))

    @property
    def dropped(self) -> int:
        """Lines dropped so far because nobody read them in time."""
        return self._writer.dropped

    def event(self, name: str, /, level: Level = "info", **fields: object) -> None:
        """Write one event of the catalogue at `level`; never blocks.

        An unknown event or key is a mistake of ours and fails an assertion; no value raises.
        """
        self.write(name, level, fields)

    def write(self, name: str, level: Level, fields: dict[str, object]) -> None:
        """As `event`, of fields that are already put together; they are used up."""
        assert name in _KEYS, f"{name} is not in the catalogue of events"
        assert fields.keys() <= _KEYS[name], f"{name} has no keys {sorted(fields.keys() - _KEYS[name])}"
        if not self.writes(level):
            return
        # structlog's processors, called in turn: its logger around them costs as much as they do, and
        # there is a line for each stream.
        fields["event"] = name
        shaped = self._shape(None, level, fields)
        if self.tap is not None:
            self.tap(shaped)
        self._writer.msg(_line(self._render(None, level, shaped)))

    def writes(self, level: Level) -> bool:
        """Whether lines of `level` are written: what only they tell need not be put together otherwise."""
        return level in self._written

    def close(self) -> bool:
        """Write what is queued, for a second at most. Whether all of it was written. Idempotent."""
        return self._writer.close()


def open_log(
    settings: LogSettings,
    *,
    stream: BinaryIO | None = None,
    env: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.time,
) -> Log:
    """A log on `stream` (None is stdout), with colour only on a terminal without `NO_COLOR`.

    `clock` gives Unix seconds.
    """
    if stream is None:
        # Python has no stdout where the shell has closed it: then the log goes nowhere.
        stream = open(os.devnull, "wb") if sys.stdout is None else sys.stdout.buffer  # noqa: SIM115
    return Log(settings, stream, env, clock)


class Repeats:
    """Which repetitions of one thing deserve a line: `burst` in `window_s`, then one a window.

    Remembers the `capacity` keys used last, by their hash alone, since peers choose how long they are.
    """

    def __init__(self, *, burst: int = 5, window_s: float = 10.0, capacity: int = 4096) -> None:
        self._burst = burst
        self._window_s = window_s
        self._capacity = capacity
        self._seen: OrderedDict[int, tuple[float, int, int]] = OrderedDict()
        """By key: the start of its window, lines left in it, and how many went unsaid."""

    def admit(self, key: Hashable, now: float) -> int | None:
        """How many went unsaid since the last line, or None if this one is not to be said either.

        `now` is monotonic seconds.
        """
        slot = hash(key)
        start, left, unsaid = self._seen.pop(slot, (now, self._burst, 0))
        age = now - start
        if age >= self._window_s:
            # Still repeating as the window ended: one line a window, until one passes in silence.
            throttled = unsaid > 0 and age < 2 * self._window_s
            start, left = now, 1 if throttled else self._burst
        said = left > 0
        self._seen[slot] = (start, left - 1, 0) if said else (start, 0, unsaid + 1)
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)
        return unsaid if said else None


class _Shape:
    """A structlog processor: the order of the keys, and each value as it may be shown."""

    def __init__(self, settings: LogSettings, clock: Callable[[], float], *, printable: bool) -> None:
        self._clock = clock
        self._printable = printable
        self._hash_sessions = settings.session_ids != "raw"
        self._hash_event_ids = settings.event_ids == "hash"
        self._second = -1
        self._second_text = ""

    def __call__(self, _logger: object, level: str, fields: EventDict) -> EventDict:
        shaped: EventDict = {
            "ts": self._timestamp(self._clock()),
            "level": level,
            "event": fields.pop("event"),
        }
        for key in BOUND:
            if value := fields.pop(key, None):
                shaped[key] = self._session(value) if key == "session" else self._value(value)
        for key, value in fields.items():
            if value is None or type(value) is float:
                shaped[key] = value
            elif key in EVENT_ID_KEYS:
                shaped[key] = self._event_id(value)
            else:
                shaped[key] = self._value(value)
        return shaped

    def _timestamp(self, now: float) -> str:
        """RFC 3339 in UTC with milliseconds. Lines come many to a second: its text is made once."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._second_text = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
        return self._second_text + _THOUSANDTHS[int((now - second) * 1000)]

    def _session(self, value: object) -> str:
        if not self._hash_sessions:
            return self._text(value)
        raw = value if isinstance(value, bytes) else str(value)
        try:
            return hash_session(raw)
        except UnicodeEncodeError:  # text that never came off a wire
            return hash_session(str(value).encode("utf-8", "backslashreplace"))

    def _event_id(self, value: object) -> str:
        return hash_event_id(value) if self._hash_event_ids else self._text(value, EVENT_ID_CHARS)

    def _value(self, value: object) -> object:
        # In the order of how often they come; a match statement costs twice as much.
        if isinstance(value, str):
            text = value if type(value) is str else str.__str__(value)  # a member of an enum
            return text if len(text) <= TEXT_CHARS and text.isprintable() else self._text(text)
        if isinstance(value, int):  # a bool is one, too
            # JSON as our serialiser writes it ends at 64 bits.
            return value if value.bit_length() < 64 else str(value)
        if value is None or isinstance(value, float):
            return value
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        if isinstance(value, BaseException):
            return self._text(f"{type(value).__name__}: {value}")
        return self._text(value)

    def _text(self, value: object, cap: int = TEXT_CHARS) -> str:
        text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
        if len(text) > cap:
            text = text[:cap]
        if text.isprintable():
            return text
        if self._printable:
            return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
        return text.translate(_UNSAFE)


def safe(text: str) -> str:
    """`text` as JSON may carry it to people: without what steers a terminal or ends a line."""
    return text if text.isprintable() else text.translate(_UNSAFE)


def hash_event_id(value: object) -> str:
    """An event id as it is shown under `log.event_ids: hash`."""
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "backslashreplace")
    return f"e_{blake2b(raw, digest_size=6).hexdigest()}"


def _line(rendered: object) -> bytes:
    """What the renderer made, as the bytes of one line."""
    return (rendered if isinstance(rendered, bytes) else str(rendered).encode()) + b"\n"
