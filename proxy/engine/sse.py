"""The SSE scanner: bytes of an event stream in, frames out; it only listens and never changes a byte.

Invariants: any bytes are accepted; frames do not depend on how the bytes were cut; the work is linear in
the bytes fed; what is held never outgrows `max_payload`, two id lines and a few small bounds.
Grammar: WHATWG HTML, section 9.2.5 "Parsing an event stream" and 9.2.6 "Interpreting an event stream".
Everything stays `bytes`: U+2028 and U+0085 are no line ends, and nothing needs to be valid UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from itertools import repeat
from typing import NamedTuple

HEAD_SIZE = 4096  # of a payload too large to keep: where a JSON-RPC id most often stands
TAIL_SIZE = 256  # the other place where it may stand: directly before the closing brace
EVENT_SIZE = 64  # no event type of MCP is longer; the rest says nothing
RETRY_DIGITS = 15  # a longer reconnection time is no time anyone waits

_BOM = b"\xef\xbb\xbf"
_NUL, _LF, _CR, _BRACE = 0x00, 0x0A, 0x0D, 0x7B
_NOT_BEGUN = -1  # the start of a frame of which no byte came yet
_NAME_SIZE = len(b"event:")  # so many bytes tell the field of a line, and the leading space of data
_SINGLE_SIZE = 8192  # a larger chunk gains nothing by `Scanner._single`
_LONG_TEXT, _LONG_LINE = 4096, 512  # from where on `_split` gains by searching
_MAX_LESSONS = 16  # a stream that changes its shape more often is not worth learning
_VISIBLE = bytes(range(0x21, 0x7F))  # what an id may hold without being trimmed or refused


class Frame:
    """One dispatched event, or a block that only moved the cursor or set `retry:`.

    Offsets count the bytes of the stream: the frame is `start <= byte < end`, its blank line is at `blank`.
    `end` lies past the CRLF where one ended the frame. Where a CR came as the last byte of a chunk the frame
    completed at once: `end` lies past that CR, and an LF that follows it belongs to no frame.
    `id` is what this frame itself showed, blanks trimmed: None without an id line, never inherited.
    `payload` is the data joined with LF: `b""` without a data line, None if larger than `max_payload`.
    """

    __slots__ = ("blank", "end", "id", "payload", "start")

    # What holds for a plain message frame, and costs it nothing; where it does not hold: `RareFrame`.
    event: bytes = b"message"
    has_data: bool = True
    empty: bool = False
    id_overlong: bool = False
    retry_ms: int | None = None
    head: bytes = b""
    tail: bytes = b""

    def __init__(self, start: int, blank: int, end: int, id: bytes | None, payload: bytes | None) -> None:
        """Take the fields that every frame has of its own."""
        self.start = start
        self.blank = blank
        self.end = end
        self.id = id
        self.payload = payload

    def __repr__(self) -> str:
        """Show every field."""
        names = (*Frame.__slots__, *RareFrame.__slots__)
        return f"Frame({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


class RareFrame(Frame):
    """A frame that is no plain message: here every field is its own.

    `event` is cut to `EVENT_SIZE` bytes. `has_data`: it has a data line; `empty`: all of its data is blank.
    `id_overlong`: its id was longer than `max_id`; `id` is None then. Of a payload too large to keep, `head`
    holds the first `HEAD_SIZE` bytes and `tail` the last `TAIL_SIZE`.
    """

    __slots__ = ("empty", "event", "has_data", "head", "id_overlong", "retry_ms", "tail")

    def __init__(self) -> None:
        """Begin as a frame of which nothing rare is known yet."""
        super().__init__(0, 0, 0, None, b"")
        self.event = b"message"
        self.has_data = self.empty = self.id_overlong = False
        self.retry_ms = None
        self.head = self.tail = b""


_NONE: tuple[Frame, ...] = ()  # shared: most chunks of a long event complete nothing


class _Line(Enum):
    """How far the line that is being fed is known."""

    START = auto()  # no byte of it came yet
    NAME = auto()  # its first bytes are held; they do not tell the field yet
    HELD = auto()  # an id, event or retry line; held up to its bound
    DATA = auto()  # a data line; its value has gone to the payload so far
    SKIP = auto()  # a comment, an unknown field, or part of a BOM; nothing is held


class Shape(NamedTuple):
    """A plain message frame as a stream writes it, but for its id and its payload."""

    prefix: bytes  # up to the id; empty where the frames carry none
    mid: bytes  # between id and payload
    newline: bytes  # the first byte of the line end after the payload
    rest: bytes  # what follows that byte to the end of the frame
    foreign: int  # the other byte that would end a line inside the payload
    blank: int  # the length of the blank line


_SHAPE = re.compile(
    rb"(?:(?P<prefix>(?:event:[^\r\n]{0,64}\r?\n)?id: ?)[!-~]+(?P<first>\r?\n))?"
    rb"(?P<mid>(?:event:[^\r\n]{0,64}\r?\n)?data: ?)\{"
)


class Scanner:
    """Reads one event stream; feed it every byte, in order.

    `offset` counts the bytes fed; `malformed` the id lines that could not be used: those with a NUL, which
    the standard ignores, and those longer than `max_id` bytes, after which the id of the frame is unknown.
    """

    __slots__ = ("_after_cr", "_bom", "_data", "_held", "_id", "_lessons", "_line", "_line_bound", "_rare",
                 "_single_bound", "_start", "malformed", "max_id", "max_payload", "offset", "shape")  # fmt: skip

    def __init__(self, max_payload: int = 65536, max_id: int = 1024, shape: Shape | None = None) -> None:
        """Keep at most `max_payload` bytes of a frame's data, and at most `max_id` of its id.

        `shape` is how frames are expected to be written, as another stream's scanner has learnt it: it
        saves time where it fits and changes nothing where it does not.
        """
        self.max_payload = max_payload
        self.max_id = max_id
        self.offset = 0
        self.malformed = 0
        self._bom = 0  # bytes of it seen; len(_BOM) once the question is settled
        self._after_cr = False
        self._line = _Line.START
        self._held = b""  # of the line being fed, in NAME and HELD
        # Past this a line that is no data line tells no more: its value is too long whatever follows.
        self._line_bound = _NAME_SIZE + 2 + max(max_id, EVENT_SIZE, RETRY_DIGITS)
        self.shape = shape
        self._lessons = 0
        self._single_bound = min(_SINGLE_SIZE, max_payload)
        # The frame being fed.
        self._start = _NOT_BEGUN
        self._id: bytes | None = None
        self._data: bytes | bytearray | None = None  # None: no data line yet
        self._rare: RareFrame | None = None  # made for the first thing that is rare; holds those alone

    @property
    def mid_frame(self) -> bool:
        """Whether something other than blank lines came since the last frame ended."""
        return self._start != _NOT_BEGUN

    @property
    def begun(self) -> int | None:
        """The offset of the first byte of the unfinished frame, None between frames."""
        return None if self._start == _NOT_BEGUN else self._start

    @property
    def unfinished_id(self) -> bytes | None:
        """The id that the unfinished frame has shown so far in a whole line, None if none or no message's."""
        return self._id if self._rare is None or self._rare.event == b"message" else None

    @property
    def partial_line(self) -> bool:
        """Whether the last byte fed was part of a line, not its end."""
        return self._line is not _Line.START

    @property
    def after_cr(self) -> bool:
        """Whether the last byte fed was a CR: an LF that follows belongs to it, nothing may come between."""
        return self._after_cr

    @property
    def held(self) -> int:
        """Bytes of the stream kept right now."""
        kept = [self._held, self._id, self._data, *(self.shape or ())[:2]]
        if self._rare is not None:
            kept += self._rare.event, self._rare.head, self._rare.tail
        return sum(len(part) for part in kept if part)

    def feed(self, chunk: bytes) -> Sequence[Frame]:
        """Return the frames that these bytes complete, in order. Never raises, whatever the bytes are."""
        base = self.offset
        size = len(chunk)
        self.offset = end = base + size
        if self._start != _NOT_BEGUN:
            return self._walk(chunk, base)
        if self.shape is not None and size <= self._single_bound:
            frame = self._single(chunk, base, end, self.shape)
            if frame is not None:
                return (frame,)
            if chunk.startswith(self.shape.prefix or self.shape.mid):
                alike = self._alike(chunk, base, self.shape)
                if alike:
                    return [*alike, *self._walk(chunk[alike[-1].end - base :], alike[-1].end)]
        frames = self._walk(chunk, base)
        if frames and frames[0].start == base and self._lessons < _MAX_LESSONS:
            self._learn(chunk, frames[0])
        return frames

    def _single(self, chunk: bytes, base: int, end: int, shape: Shape) -> Frame | None:
        """Return the one frame that the chunk is, or None where only `_walk` can tell.

        Most chunks are one whole frame, written as the one before. Sound because everything but id and
        payload is compared byte by byte, and neither may hold a line end or a byte that needs care.
        """
        prefix, mid, newline, rest, foreign, blank = shape
        before, _, after = chunk.partition(mid)
        payload, _, tail = after.partition(newline)
        if tail != rest or foreign in payload or not payload or payload[0] != _BRACE:
            return None
        if not prefix:
            if before:
                return None
            self._after_cr, self._bom = False, len(_BOM)
            return Frame(base, end - blank, end, None, payload)
        odd, _, ident = before.partition(prefix)
        if odd or not (ident.isalnum() or (ident and not ident.translate(None, _VISIBLE))):
            return None
        if end - base > self.max_id and len(ident) > self.max_id:
            return None
        self._after_cr, self._bom = False, len(_BOM)
        return Frame(base, end - blank, end, ident, payload)

    def _alike(self, chunk: bytes, base: int, shape: Shape) -> list[Frame]:
        """Return the frames a chunk begins with, as far as each is written as the one before."""
        finish = shape.newline + shape.rest
        frames: list[Frame] = []
        for part in chunk.split(finish)[:-1]:
            frame = self._single(part + finish, base, base + len(part) + len(finish), shape)
            if frame is None:
                break
            frames.append(frame)
            base = frame.end
        return frames

    def _learn(self, chunk: bytes, frame: Frame) -> None:
        """Remember how the first frame of a chunk was written, if its likes can be read by `_single`."""
        found = _SHAPE.match(chunk)
        if found is None or type(frame) is not Frame:
            return
        self._lessons += 1
        crlf = frame.end - frame.blank == 2
        self.shape = Shape(
            prefix=found["prefix"] or b"",
            mid=(found["first"] or b"") + found["mid"],
            newline=b"\r" if crlf else b"\n",
            rest=b"\n\r\n" if crlf else b"\n",
            foreign=_LF if crlf else _CR,
            blank=2 if crlf else 1,
        )

    def _walk(self, chunk: bytes, at: int) -> Sequence[Frame]:
        """Feed a chunk that begins at offset `at` line by line."""
        if self._after_cr or self._bom < len(_BOM):
            skipped = self._skip(chunk)
            at += skipped
            chunk = chunk[skipped:]
        frames: list[Frame] = []
        lines, rest = self._cut(chunk)
        for line, width in lines:
            if self._line is not _Line.START:
                self._finish(line)
            elif line:
                if self._start == _NOT_BEGUN:
                    self._start = at
                self._take(line)
            elif self._start != _NOT_BEGUN:
                frame = self._dispatch(at + len(line), at + width)
                if frame is not None:
                    frames.append(frame)
            at += len(line) + width
        if rest:
            if self._start == _NOT_BEGUN:
                self._start = at
            self._feed_part(rest)
        return frames or _NONE

    def _skip(self, chunk: bytes) -> int:
        """Return how many bytes to skip: the LF of a CRLF cut in two, or the BOM a stream may begin with."""
        if self._after_cr:
            self._after_cr = not chunk
            return 1 if chunk[:1] == b"\n" else 0
        size = min(len(_BOM) - self._bom, len(chunk))
        if chunk[:size] != _BOM[self._bom : self._bom + size]:
            # No BOM after all. A beginning of one that came before begins an unknown field: still SKIP.
            self._bom = len(_BOM)
            return 0
        self._bom += size
        if self._bom == len(_BOM):
            self._line, self._start = _Line.START, _NOT_BEGUN
        elif self._bom:
            self._line, self._start = _Line.SKIP, self.offset - self._bom
        return size

    def _cut(self, chunk: bytes) -> tuple[Iterable[tuple[bytes, int]], bytes]:
        """Cut a chunk into its lines, each with the length of its line end, and the rest without one."""
        rows = _split(chunk, b"\n")
        rest = rows.pop()
        if _CR not in chunk:
            return zip(rows, repeat(1)), rest
        mixed: list[tuple[bytes, int]] = []
        for row in rows:
            line, cr, after = row.partition(b"\r")
            if not after:
                mixed.append((line, 2 if cr else 1))
                continue
            *ended, line = _split(row, b"\r")
            mixed.extend((part, 1) for part in ended)
            if line:
                mixed.append((line, 1))
            else:
                mixed[-1] = (ended[-1], 2)
        *ended, rest = _split(rest, b"\r")
        mixed.extend((part, 1) for part in ended)
        self._after_cr = bool(ended) and not rest
        return mixed, rest

    def _finish(self, rest: bytes) -> None:
        """Take the rest of a line of which a part came before."""
        self._feed_part(rest)
        if self._held:
            self._take(self._held)
            self._held = b""
        self._line = _Line.START

    def _feed_part(self, part: bytes) -> None:
        """Take a part of a line of which more may come."""
        if self._line is _Line.START:
            self._line = _Line.NAME
        if self._line is _Line.NAME:
            missing = _NAME_SIZE - len(self._held)
            self._held += part[:missing]
            part = part[missing:]
            if len(self._held) == _NAME_SIZE:
                self._name_line()
        if self._line is _Line.DATA:
            self._add(part)
        elif self._line is _Line.HELD:
            self._held += part[: self._line_bound - len(self._held)]

    def _name_line(self) -> None:
        """Settle what the line being fed is, now that enough of it is held."""
        held = self._held
        if held.startswith((b"id:", b"event:", b"retry:")):
            self._line = _Line.HELD
            return
        self._held = b""
        if held.startswith(b"data:"):
            self._line = _Line.DATA
            self._take(b"data")
            self._add(held[5:].removeprefix(b" "))
        else:
            self._line = _Line.SKIP

    def _take(self, line: bytes) -> None:
        """Interpret a line that is not blank; of one too long to be of use, its first bytes suffice."""
        if line[:6] == b"data: " and self._data is None and len(line) <= self.max_payload:
            self._data = line[6:]  # the common lines first: what follows reads them as well, but slower
            return
        if line == b"event: message" and self._rare is None:
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id":
            self._take_id(value)
        elif name == b"data":
            if self._data is None:
                self._data = b""
            else:
                self._add(b"\n")
            self._add(value)
        elif name == b"event":
            self._oddities().event = value[:EVENT_SIZE] or b"message"
        elif name == b"retry" and value.isdigit() and len(value) <= RETRY_DIGITS:
            self._oddities().retry_ms = int(value)

    def _take_id(self, value: bytes) -> None:
        if len(value) > self.max_id:
            self.malformed += 1
            self._id = None
            self._oddities().id_overlong = True
        elif _NUL in value:
            self.malformed += 1
        else:
            self._id = value.strip(b" \t")
            if self._rare is not None:
                self._rare.id_overlong = False

    def _oddities(self) -> RareFrame:
        """Return where to note what is rare about the frame being fed."""
        if self._rare is None:
            self._rare = RareFrame()
        return self._rare

    def _add(self, part: bytes) -> None:
        """Add to the payload, or to what is kept of one that is too large."""
        data = self._data or b""
        if self._rare is not None and self._rare.payload is None:
            self._rare.tail = (self._rare.tail + part[-TAIL_SIZE:])[-TAIL_SIZE:]
        elif len(data) + len(part) > self.max_payload:
            rare = self._oddities()
            rare.payload = None
            # All of it is at hand here, however it was cut: neither end depends on the cuts.
            size = min(HEAD_SIZE, self.max_payload)
            rare.head = bytes(data[:size] + part[:size])[:size]
            rare.tail = bytes(data[-TAIL_SIZE:] + part[-TAIL_SIZE:])[-TAIL_SIZE:]
            self._data = b""
        elif isinstance(data, bytearray):
            data += part
        else:
            self._data = bytearray(data + part) if data else part  # grows in place from the second part on

    def _dispatch(self, blank: int, end: int) -> Frame | None:
        """End the frame at a blank line; return it unless the block showed nothing."""
        start, ident, data, rare = self._start, self._id, self._data, self._rare
        self._start, self._id, self._data, self._rare = _NOT_BEGUN, None, None, None
        if rare is None and data and not data[:1].isspace():
            return Frame(start, blank, end, ident, bytes(data))
        rare = rare or RareFrame()
        if data is None and ident is None and rare.retry_ms is None and not rare.id_overlong:
            return None
        rare.start, rare.blank, rare.end, rare.id = start, blank, end, ident
        rare.has_data = data is not None
        if rare.payload is not None and data is not None:
            rare.payload = bytes(data)
            rare.empty = not data.strip()
        return rare


def _split(text: bytes, end: bytes) -> list[bytes]:
    """As `text.split(end)`, which looks at every byte, but by `find` (memchr) while the lines are long."""
    parts: list[bytes] = []
    at = 0
    while len(text) - at > _LONG_TEXT and len(parts) <= at // _LONG_LINE:
        stop = text.find(end, at)
        if stop < 0:
            return [*parts, text[at:]]
        parts.append(text[at:stop])
        at = stop + 1
    return parts + text[at:].split(end)
