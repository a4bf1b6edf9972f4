"""What a terminal shows of the admin interface's values: escaped, in columns, in colour where it helps.

Values in, text out, but for `screen` and `show`, which look at standard output and write to it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from io import TextIOWrapper
from typing import NamedTuple

ALARMS = ("fork", "crossed", "gap", "rewound")
"""The verdicts that mean harm, the worst first."""

_DEFAULT_WIDTH = 100
_WIDTHS = (60, 200)
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_VERDICT_STYLES = {"fork": "red", "crossed": "red", "gap": "red", "rewound": "yellow", "resumed": "green"}
_STATE_STYLES = {"quarantined": "red", "ready": "green", "draining": "yellow", "drained": "yellow"}


class Screen(NamedTuple):
    """What the output can show."""

    width: int = _DEFAULT_WIDTH
    colour: bool = False
    unicode: bool = True

    def paint(self, text: str, style: str | None) -> str:
        """`text` in a style, where there is colour."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self.colour and style and text.strip() else text


def screen() -> Screen:
    """The process's standard output."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):  # not a terminal
        width = _DEFAULT_WIDTH
    return Screen(min(max(width, _WIDTHS[0]), _WIDTHS[1]), colour, unicode)


def show(lines: Iterable[str]) -> None:
    """Write lines to standard output; what it cannot encode is escaped."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    for line in lines:
        sys.stdout.write(f"{line}\n")


def show_json(value: object) -> None:
    """Write a value of the interface as JSON that is safe on any terminal."""
    show([json.dumps(value, indent=2)])


def escaped(text: str, most: int = 40) -> str:
    """`text` of a peer's choosing: nothing in it moves a cursor, and it becomes at most `most` characters."""
    pieces = [each if each.isprintable() else ascii(each)[1:-1] for each in text[: most + 1]]
    if sum(map(len, pieces)) <= most:
        return "".join(pieces)
    while sum(map(len, pieces)) > most - 3:
        pieces.pop()
    return "".join(pieces) + "..."


def value_text(value: object, most: int = 40) -> str:
    """A value of the interface, `-` for one that is unknown."""
    return "-" if value is None else escaped(str(value), most)


def clock(at: float | None) -> str:
    """The local time of day, `-` if unknown."""
    return "-" if at is None else time.strftime("%H:%M:%S", time.localtime(at))


def duration(seconds: float) -> str:
    """How long, to two digits or so: `0.4 s`, `12 s`, `3 min`, `2 h 5 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def ago(at: float | None, now: float) -> str:
    """How long before `now`, `-` if unknown."""
    if at is None:
        return "-"
    return f"{max(now - at, 0.0):.0f} s ago" if now - at < 10 else f"{duration(now - at)} ago"


def counted(count: int, one: str, many: str = "") -> str:
    """`1 event`, `2 events`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def verdict_style(verdict: str | None) -> str | None:
    """How a verdict looks."""
    return _VERDICT_STYLES.get(verdict or "")


def state_style(state: str | None) -> str | None:
    """How the state of a session or of the process looks."""
    return _STATE_STYLES.get(state or "")


def verdict_text(judged: Mapping[str, object] | None) -> str:
    """`fork/log_restarted proven`, with what was done if something was; `-` without a verdict."""
    if judged is None:
        return "-"
    text = f"{judged['verdict']}/{judged['reason']} {judged['certainty']}"
    return escaped(text if judged["action"] == "pass" else f"{text}, {judged['action']}", 80)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], on: Screen, styles: Sequence[str | None] = ()
) -> list[str]:
    """Aligned columns. A column whose values are all numbers is aligned right; `styles` are of rows."""
    widths = [max(len(row[at]) for row in (head, *rows)) for at in range(len(head))]
    numbers = [bool(rows) and all(row[at].isdecimal() for row in rows) for at in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, widths, numbers, strict=True)
        )
        return "  ".join(aligned).rstrip()

    shown = [on.paint(line(head), "bold")]
    for at, row in enumerate(rows):
        shown.append(on.paint(line(row), styles[at] if styles else None))
    return shown
