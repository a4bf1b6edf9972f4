"""The kinds of values in the configuration: how each is read from the text written, and shown again.

A duration is numbers with units, the largest unit first: `300ms`, `1.5s`, `1m30s`, `2h`; a size is a whole
number of `B`, `KiB`, `MiB` or `GiB`. Neither may be a bare number. An error says what is wrong and what to
write; it repeats a short value only where no secret belongs, and none that looks like a URL with one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import yaml

from proxy.config.document import Scalar, Source
from proxy.config.settings import GIB, KIB, MIB

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_SIZES = {"GiB": GIB, "MiB": MIB, "KiB": KIB, "B": 1}
_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_DURATION = re.compile("".join(f"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNITS_MS))
_BARE_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SIZE = re.compile(r"(?P<count>[0-9]{1,15})(?P<unit>[A-Za-z]*)")
_COUNT = re.compile(r"[0-9](?:_?[0-9]){0,14}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_UPSTREAM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")

_LONGEST_S = 365 * 86_400.0
_LARGEST_BYTES = 1024 * GIB
_LARGEST_COUNT = 1_000_000_000

_RESOLVER = yaml.resolver.Resolver()
_OTHER_TYPES = {
    "tag:yaml.org,2002:bool": "a truth value",
    "tag:yaml.org,2002:int": "a number",
    "tag:yaml.org,2002:float": "a number",
    "tag:yaml.org,2002:timestamp": "a date",
}


class Rejected(ValueError):
    """A text is no value of its kind. `remedy` says what to write, '' when the message does."""

    def __init__(self, message: str, remedy: str = "") -> None:
        """Both are parts of one sentence, without a full stop."""
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value. `read` raises Rejected; what `write` gives, `read` would read again.

    `nullable` says whether null may stand there, for None; `read` is never asked about null.
    """

    read: Callable[[Scalar], Any]
    write: Callable[[Any], str] = str
    nullable: bool = False


def optional(kind: Kind) -> Kind:
    """`kind`, or null."""
    return replace(kind, nullable=True)


def shown(text: str) -> str:
    """`text` for an error message: quoted, escaped and short, or not at all if it may hold a password."""
    if "@" in text or "://" in text:
        return "this value"
    return f"{text[:40]!r}" if len(text) <= 40 else f"{text[:40]!r}..."


def plain(scalar: Scalar) -> str:
    """The text of a key that wants text. Rejects a number, truth value or date without quotes.

    Only a file can quote; the text of a variable or flag is taken as it is.
    """
    if not scalar.quoted and scalar.place.source is Source.FILE:
        tag = _RESOLVER.resolve(yaml.ScalarNode, scalar.text, (True, False))  # type: ignore[no-untyped-call]
        if tag in _OTHER_TYPES:
            raise Rejected(f"is {_OTHER_TYPES[tag]}, not a text", "put it in quotes")
    return scalar.text


def choice(what: str, *values: str) -> Kind:
    """One of `values`; `what` names the kind with its article, for the message."""
    remedy = f"use {', '.join(values[:-1])} or {values[-1]}"

    def read(scalar: Scalar) -> str:
        if scalar.text in values:
            return scalar.text
        raise Rejected(f"{shown(scalar.text)} is not {what}", remedy)

    return Kind(read)


def _read_bool(scalar: Scalar) -> bool:
    if scalar.quoted:
        raise Rejected("is a text", "write true or false without quotes")
    if scalar.text.lower() not in ("true", "false"):
        raise Rejected(f"{shown(scalar.text)} is not a truth value", "write true or false")
    return scalar.text.lower() == "true"


def _read_count(scalar: Scalar) -> int:
    if scalar.quoted:
        raise Rejected("is a text, not a number", "write it without quotes")
    if not _COUNT.fullmatch(scalar.text):
        raise Rejected(f"{shown(scalar.text)} is not a whole number")
    count = int(scalar.text)
    if not 1 <= count <= _LARGEST_COUNT:
        raise Rejected(f"must be from 1 to {_LARGEST_COUNT}")
    return count


def duration_s(text: str) -> float:
    """Seconds of a duration such as `1m30s`. Raises Rejected."""
    if _BARE_NUMBER.fullmatch(text):
        raise Rejected(f"{shown(text)} has no unit", f"write {text[:15]}s")
    found = _DURATION.fullmatch(text)
    if not text or found is None:
        raise Rejected(f"{shown(text)} is not a duration", "write 300ms, 5s, 1m30s or 2h")
    parts = ((found[unit], ms) for unit, ms in _UNITS_MS.items())
    seconds = sum(float(number) * ms for number, ms in parts if number) / 1000
    if seconds > _LONGEST_S:
        raise Rejected("is longer than a year")
    return seconds


def duration_text(seconds: float) -> str:
    """A duration in the largest single unit that leaves a whole number; at the least milliseconds."""
    ms = seconds * 1000
    if ms == 0:
        return "0s"
    for unit in ("h", "m", "s"):
        if ms % _UNITS_MS[unit] == 0:
            return f"{int(ms // _UNITS_MS[unit])}{unit}"
    return f"{ms:.12g}ms"


def _read_positive_duration(scalar: Scalar) -> float:
    seconds = duration_s(scalar.text)
    if seconds == 0:
        raise Rejected("must be longer than 0s")
    return seconds


def _read_size(scalar: Scalar) -> int:
    text = scalar.text
    found = _SIZE.fullmatch(text)
    if found is None:
        raise Rejected(f"{shown(text)} is not a size", "write 4096B, 512KiB, 1MiB or 2GiB")
    count, unit = found["count"], found["unit"]
    if not unit:
        raise Rejected(f"{shown(text)} has no unit", f"write {count}B, or use KiB, MiB or GiB")
    if unit not in _SIZES:
        meant = next((name for name in _SIZES if name[0] == unit[0].upper()), "")
        remedy = f"write {count}{meant}" if meant else "use B, KiB, MiB or GiB"
        raise Rejected(f"{shown(unit)} is not a unit of size", remedy)
    size = int(count) * _SIZES[unit]
    if not 1 <= size <= _LARGEST_BYTES:
        raise Rejected("must be from 1B to 1024GiB")
    return size


def size_text(size: int) -> str:
    """A size in the largest unit that leaves a whole number."""
    return next(f"{size // unit}{name}" for name, unit in _SIZES.items() if size % unit == 0)


def _read_header_name(scalar: Scalar) -> str:
    text = plain(scalar)
    if not _HEADER_NAME.fullmatch(text):
        raise Rejected(f"{shown(text)} is not the name of a header")
    return text


def _read_upstream_name(scalar: Scalar) -> str:
    text = plain(scalar)
    if not _UPSTREAM_NAME.fullmatch(text):
        remedy = "use up to 63 letters, digits, - _ and . and begin with a letter or digit"
        raise Rejected(f"{shown(text)} cannot be a metric label here", remedy)
    return text


def _bool_text(value: object) -> str:
    return "true" if value else "false"


BOOL = Kind(_read_bool, _bool_text)
COUNT = Kind(_read_count)
DURATION = Kind(_read_positive_duration, duration_text)
DURATION_OR_ZERO = Kind(lambda scalar: duration_s(scalar.text), duration_text)
SIZE = Kind(_read_size, size_text)
HEADER_NAME = Kind(_read_header_name)
UPSTREAM_NAME = Kind(_read_upstream_name)
