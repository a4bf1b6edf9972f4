"""HTTP/1.1 messages by the letter of RFC 9112, as strict as it allows.

What two readers could read in two ways is wrong.
Both sides of a proxy are held against it: what it writes to an upstream, and what it writes to a client.
"""

from __future__ import annotations

import string
from dataclasses import dataclass, field
from enum import Enum

_TOKEN = frozenset(b"!#$%&'*+-.^_`|~" + string.ascii_letters.encode() + string.digits.encode())
_DIGITS = frozenset(string.digits.encode())
_HEX = frozenset(string.hexdigits.encode())
_BODILESS = (204, 304)


class Stand(Enum):
    """How far a message has come."""

    WHOLE = "whole"
    PART = "part"
    """More of it may come."""
    WRONG = "wrong"
    """It is no HTTP/1.1 message, whatever comes."""


@dataclass(slots=True)
class Message:
    """One request or response. `body` is decoded, as far as it came; `line` are the three parts of the first line."""

    stand: Stand
    size: int = 0
    """How many bytes it took, if whole."""
    line: tuple[bytes, bytes, bytes] = (b"", b"", b"")
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    until_close: bool = False
    """Its body ends with the connection."""
    why: str = ""

    def all(self, name: bytes) -> list[bytes]:
        """The values of a field, in order."""
        return [value for found, value in self.fields if found.lower() == name]

    @property
    def has_head(self) -> bool:
        """Whether the head is complete."""
        return bool(self.line[0])


class Wrong(ValueError):
    """Not HTTP/1.1."""


def _token(text: bytes) -> bool:
    return bool(text) and _TOKEN.issuperset(text)


def _number(text: bytes) -> int:
    if not text or not _DIGITS.issuperset(text) or len(text) > 18:
        raise Wrong(f"a length of {text!r}")
    return int(text)


def _head(raw: bytes) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """The first line's words and the fields of a head without its blank line."""
    first, *rest = raw.split(b"\r\n")
    for line in (first, *rest):
        if any((byte < 32 and byte != 9) or byte == 127 for byte in line):
            raise Wrong(f"a control character in {line[:80]!r}")
    fields = []
    for line in rest:
        name, colon, value = line.partition(b":")
        if not colon or not _token(name):
            raise Wrong(f"a field line {line[:80]!r}")
        fields.append((name, value.strip(b" \t")))
    return first.split(b" ", 2), fields


def _chunked(raw: bytes, at: int) -> tuple[bytes, int | None]:
    """The decoded body from `at`, and where it ends; None if it goes on."""
    body = b""
    while True:
        end = raw.find(b"\r\n", at)
        if end < 0:
            size_part = raw[at:].partition(b";")[0]
            if b"\n" in raw[at:] or (size_part and not _HEX.issuperset(size_part.rstrip(b"\r \t"))):
                raise Wrong(f"a chunk size {raw[at : at + 40]!r}")
            return body, None
        size_text, _, extension = raw[at:end].partition(b";")
        if not size_text or not _HEX.issuperset(size_text) or int(size_text, 16) >> 64 or b"\n" in extension:
            raise Wrong(f"a chunk size {raw[at : at + 40]!r}")
        size, at = int(size_text, 16), end + 2
        if size == 0:
            return body, _trailers(raw, at)
        body += raw[at : at + size]
        at += size
        if len(raw) < at + 2:
            if not b"\r\n".startswith(raw[at:]):
                raise Wrong("a chunk that does not end")
            return body, None
        if raw[at : at + 2] != b"\r\n":
            raise Wrong("a chunk that does not end")
        at += 2


def _trailers(raw: bytes, at: int) -> int | None:
    while True:
        end = raw.find(b"\r\n", at)
        if end < 0:
            return None
        if end == at:
            return at + 2
        name, colon, _ = raw[at:end].partition(b":")
        if not colon or not _token(name) or b"\n" in raw[at:end]:
            raise Wrong(f"a trailer {raw[at:end]!r}")
        at = end + 2


def _framed(raw: bytes, at: int, message: Message, *, response: bool, bodiless: bool) -> Message:
    """Read the body that begins at `at`."""
    lengths, codings = message.all(b"content-length"), message.all(b"transfer-encoding")
    if codings and (lengths or [coding.lower() for coding in codings] != [b"chunked"]):
        raise Wrong("transfer codings that leave the length open")
    if len(lengths) > 1:
        raise Wrong("two lengths")
    size = _number(lengths[0]) if lengths else 0
    if bodiless:
        message.size = at
    elif codings:
        message.body, end = _chunked(raw, at)
        message.stand, message.size = (Stand.PART, 0) if end is None else (Stand.WHOLE, end)
        return message
    elif response and not lengths:
        message.until_close, message.body = True, raw[at:]
        message.stand = Stand.PART
        return message
    else:
        message.body = raw[at : at + size]
        message.size = at + size
        if len(raw) < message.size:
            message.stand, message.size = Stand.PART, 0
            return message
    message.stand = Stand.WHOLE
    return message


def _read(raw: bytes, *, response: bool, bodiless: bool = False, spaces: bool = False) -> Message:
    message = Message(Stand.PART)
    end = raw.find(b"\r\n\r\n")
    try:
        if end < 0:
            _head(raw.rpartition(b"\r\n")[0])
            return message
        words, message.fields = _head(raw[:end])
        if spaces:
            words = b" ".join(words).split()
        if len(words) < (2 if response else 3):
            raise Wrong(f"a first line {raw[:80]!r}")
        a, b, c = (*words, b"")[:3]
        message.line = (a, b, c)
        if response:
            status = _number(b)
            if a not in (b"HTTP/1.1", b"HTTP/1.0") or not 100 <= status <= 999:
                raise Wrong(f"a status line {raw[:80]!r}")
            bodiless = bodiless or status < 200 or status in _BODILESS
        elif not _token(a) or not b or c not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise Wrong(f"a request line {raw[:80]!r}")
        elif len(message.all(b"host")) > 1:
            raise Wrong("more than one Host")  # none at all is the server's to refuse
        return _framed(raw, end + 4, message, response=response, bodiless=bodiless)
    except Wrong as error:
        if end >= 0 or not _may_grow(raw):
            message.stand, message.why = Stand.WRONG, str(error)
        return message


def _may_grow(raw: bytes) -> bool:
    """Whether an unfinished head holds no whole line yet: its only fault may be that it is cut."""
    return b"\r\n" not in raw and b"\n" not in raw


def request(raw: bytes) -> Message:
    """The request that `raw` begins with."""
    return _read(raw, response=False)


def response(raw: bytes, *, to_head: bool = False) -> Message:
    """The response that `raw` begins with; `to_head`: it answers HEAD."""
    return _read(raw, response=True, bodiless=to_head)


def requests(raw: bytes) -> list[Message]:
    """The requests of a connection, the last of which may be partial or wrong.

    As a reader may, it skips line ends before a request (RFC 9112, 2.2), and takes any spaces between the words of
    its line for one (3).
    """
    found = []
    while raw := raw.lstrip(b"\r\n"):
        found.append(_read(raw, response=False, spaces=True))
        if found[-1].stand is not Stand.WHOLE:
            break
        raw = raw[found[-1].size :]
    return found
