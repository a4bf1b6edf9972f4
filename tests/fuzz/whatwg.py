"""The event stream parser of WHATWG HTML, 9.2.5 and 9.2.6, by the letter: slow, simple, without bounds.

It walks byte by byte and shares nothing with the scanner. What a field means is left to the reader; a block
keeps its fields as they came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

BOM = b"\xef\xbb\xbf"
CR, LF = 13, 10


@dataclass(slots=True)
class Line:
    """A line at `start`, and the length of its end: 0 if it is unfinished."""

    start: int
    text: bytes
    end_size: int


@dataclass(slots=True)
class Block:
    """The lines between two blank ones: from `start` to `blank`, and `end` behind the blank line."""

    start: int
    blank: int = -1
    end: int = -1
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)

    def all(self, name: bytes) -> list[bytes]:
        """The values of a field, in order."""
        return [value for found, value in self.fields if found == name]

    @property
    def data(self) -> bytes | None:
        """The event's data; None if no event is dispatched."""
        lines = self.all(b"data")
        return b"\n".join(lines) if lines else None


def lines(stream: bytes) -> Iterator[Line]:
    """Every line, the unfinished last one too unless it is empty."""
    at = start = len(BOM) if stream.startswith(BOM) else 0
    while at < len(stream):
        if stream[at] not in (CR, LF):
            at += 1
            continue
        size = 2 if stream[at] == CR and at + 1 < len(stream) and stream[at + 1] == LF else 1
        yield Line(start, stream[start:at], size)
        at = start = at + size
    if start < len(stream):
        yield Line(start, stream[start:], 0)


def field_of(text: bytes) -> tuple[bytes, bytes]:
    """The name and value of a line; the name of a comment is empty."""
    if b":" not in text:
        return text, b""
    name, value = text.split(b":", 1)
    return name, value[1:] if value[:1] == b" " else value


def read(stream: bytes) -> tuple[list[Block], Block | None]:
    """The finished blocks, and the one that a line begins and no blank line ends."""
    finished: list[Block] = []
    block: Block | None = None
    for line in lines(stream):
        if line.text:
            block = block or Block(line.start)
            if line.end_size:
                block.fields.append(field_of(line.text))
        elif block is not None:
            block.blank, block.end = line.start, line.start + line.end_size
            finished.append(block)
            block = None
    return finished, block


def events(stream: bytes) -> list[tuple[bytes, bytes, bytes]]:
    """What a client dispatches: type, data and last event id of each event."""
    dispatched = []
    last_id = b""
    for block in read(stream)[0]:
        last_id = next((id for id in reversed(block.all(b"id")) if b"\0" not in id), last_id)
        if block.data is not None:
            names = block.all(b"event")
            dispatched.append((names[-1] if names and names[-1] else b"message", block.data, last_id))
    return dispatched
