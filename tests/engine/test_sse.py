"""The SSE scanner against the event-stream grammar: tables of streams, and laws over arbitrary bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.engine.sse import EVENT_SIZE, HEAD_SIZE, TAIL_SIZE, Frame, Scanner

MAX_PAYLOAD = 40  # small, so that generated streams outgrow it
MAX_ID = 8


class Seen(NamedTuple):
    """Every field of a frame, to be compared as one value."""

    start: int
    blank: int
    end: int
    id: bytes | None = None
    event: bytes = b"message"
    has_data: bool = True
    empty: bool = False
    payload: bytes | None = b""
    id_overlong: bool = False
    retry_ms: int | None = None
    head: bytes = b""
    tail: bytes = b""


def seen(frame: Frame, stream: bytes | None = None) -> Seen:
    """Return the frame as a value; with `stream`, `end` is that of an uncut stream (past a whole CRLF)."""
    value = Seen(*(getattr(frame, name) for name in Seen._fields))
    if stream is not None and stream[value.end - 1 : value.end + 1] == b"\r\n":
        return value._replace(end=value.end + 1)
    return value


def scan(pieces: Iterable[bytes], max_payload: int = 65536, max_id: int = 1024) -> list[Frame]:
    """Return the frames of a stream fed in these pieces."""
    scanner = Scanner(max_payload, max_id)
    return [frame for piece in pieces for frame in scanner.feed(piece)]


def cuts(stream: bytes) -> Iterable[Sequence[bytes]]:
    """Yield the stream whole, byte by byte, and cut at every byte."""
    yield [stream]
    yield [stream[at : at + 1] for at in range(len(stream))]
    for at in range(1, len(stream)):
        yield stream[:at], stream[at:]


class Block:
    """One block of lines, read by the letter of the standard and without any bound on memory."""

    def __init__(self, start: int) -> None:
        """Begin at this offset."""
        self.start = start
        self.id: bytes | None = None
        self.event = b""
        self.data: list[bytes] = []
        self.retry: int | None = None
        self.overlong = False

    def line(self, line: bytes, max_id: int) -> bool:
        """Interpret a line; return whether it is malformed."""
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            self.data.append(value)
        elif name == b"event":
            self.event = value[:EVENT_SIZE]
        elif name == b"retry" and re.fullmatch(rb"[0-9]{1,15}", value):
            self.retry = int(value)
        elif name == b"id" and len(value) > max_id:
            self.id, self.overlong = None, True
            return True
        elif name == b"id" and b"\0" in value:
            return True
        elif name == b"id":
            self.id, self.overlong = value.strip(b" \t"), False
        return False

    def frame(self, blank: int, end: int, max_payload: int) -> Seen | None:
        """Return the frame this block is, if it showed anything."""
        if not (self.data or self.id is not None or self.retry is not None or self.overlong):
            return None
        data = b"\n".join(self.data)
        large = len(data) > max_payload
        return Seen(
            self.start,
            blank,
            end,
            id=self.id,
            event=self.event or b"message",
            has_data=bool(self.data),
            empty=bool(self.data) and not large and not data.strip(),
            payload=None if large else data,
            id_overlong=self.overlong,
            retry_ms=self.retry,
            head=data[: min(HEAD_SIZE, max_payload)] if large else b"",
            tail=data[-TAIL_SIZE:] if large else b"",
        )


def reference(stream: bytes, max_payload: int = 65536, max_id: int = 1024) -> tuple[list[Seen], int]:
    """Return the frames of a whole stream and how many lines were malformed: slow and simple."""
    frames, malformed = [], 0
    at = 3 if stream.startswith(b"\xef\xbb\xbf") else 0
    block: Block | None = None
    for line in re.finditer(rb"([^\r\n]*)(\r\n|\r|\n)", stream[at:]):
        if line[1]:
            block = block or Block(at + line.start())
            malformed += block.line(line[1], max_id)
        elif block is not None:
            frame = block.frame(at + line.start(), at + line.end(), max_payload)
            frames += [frame] if frame else []
            block = None
    return frames, malformed


STREAMS: dict[str, tuple[bytes, list[dict[str, Any]]]] = {
    "nothing": (b"", []),
    "blank lines only": (b"\n\r\n\r\r\n\n", []),
    "one event": (b"id: 1\ndata: {}\n\n", [{"id": b"1", "payload": b"{}"}]),
    "event first": (b"event: message\nid: 1\ndata: {}\n\n", [{"id": b"1", "payload": b"{}"}]),
    "event between": (b"id: 1\nevent: message\ndata: {}\n\n", [{"id": b"1", "payload": b"{}"}]),
    "another event type": (b"event: endpoint\ndata: /m\n\n", [{"event": b"endpoint", "payload": b"/m"}]),
    "empty event type": (b"event:\ndata: a\n\n", [{"payload": b"a"}]),
    "last event type wins": (b"event: a\nevent: message\ndata: a\n\n", [{"payload": b"a"}]),
    "long event type is cut": (
        b"event:" + b"e" * 99 + b"\ndata:a\n\n",
        [{"event": b"e" * 64, "payload": b"a"}],
    ),
    "event type alone": (b"event: ping\n\n", []),
    "crlf": (
        b"id: 1\r\ndata: a\r\n\r\nid: 2\r\ndata: b\r\n\r\n",
        [{"id": b"1", "payload": b"a"}, {"id": b"2", "payload": b"b"}],
    ),
    "cr": (
        b"id: 1\rdata: a\r\rid: 2\rdata: b\r\r",
        [{"id": b"1", "payload": b"a"}, {"id": b"2", "payload": b"b"}],
    ),
    "mixed line ends": (
        b"id: 1\rdata: a\r\n\ndata: b\n\rdata: c\r\r\n",
        [{"id": b"1", "payload": b"a"}, {"payload": b"b"}, {"payload": b"c"}],
    ),
    "cr inside crlf lines": (b"id: 1\rdata: a\r\ndata: b\r\n\r\n", [{"id": b"1", "payload": b"a\nb"}]),
    "cr, then crlf": (b"data: a\r\r\r\n: c\r\n\r\n", [{"payload": b"a"}]),
    "bom": (b"\xef\xbb\xbfid: 1\ndata: a\n\n", [{"id": b"1", "payload": b"a"}]),
    "bom and a blank line": (b"\xef\xbb\xbf\n\ndata: a\n\n", [{"payload": b"a"}]),
    "two boms": (b"\xef\xbb\xbf\xef\xbb\xbfid: 1\ndata: a\n\n", [{"payload": b"a"}]),
    "bom later on": (b"data: a\n\n\xef\xbb\xbfid: 1\ndata: b\n\n", [{"payload": b"a"}, {"payload": b"b"}]),
    "half a bom": (b"\xef\xbbid: 1\ndata: a\n\n", [{"payload": b"a"}]),
    "half a bom ends a line": (b"\xef\xbb\nid: 1\ndata: a\n\n", [{"id": b"1", "payload": b"a"}]),
    "comment": (b": hello\n\n", []),
    "comment in an event": (b"id: 1\n: hi\ndata: a\n\n", [{"id": b"1", "payload": b"a"}]),
    "comment of a field": (b":id: 1\ndata: a\n\n", [{"payload": b"a"}]),
    "no space after the colon": (b"id:1\ndata:a\n\n", [{"id": b"1", "payload": b"a"}]),
    "one space is stripped from data": (b"data:  a \n\n", [{"payload": b" a "}]),
    "blanks are trimmed from ids": (b"id: \t 7 \t\ndata: a\n\n", [{"id": b"7", "payload": b"a"}]),
    "inner blanks of ids stay": (b"id: a b\ndata: a\n\n", [{"id": b"a b", "payload": b"a"}]),
    "empty id": (b"id:\ndata: a\n\n", [{"id": b"", "payload": b"a"}]),
    "id without colon": (b"id\ndata: a\n\n", [{"id": b"", "payload": b"a"}]),
    "data without colon": (b"data\ndata: a\n\n", [{"payload": b"\na"}]),
    "data without colon, twice": (b"data\ndata\n\n", [{"payload": b"\n", "empty": True}]),
    "last id wins": (b"id: 1\nid: 2\ndata: a\n\n", [{"id": b"2", "payload": b"a"}]),
    "ids are not inherited": (
        b"id: 1\ndata: a\n\ndata: b\n\n",
        [{"id": b"1", "payload": b"a"}, {"payload": b"b"}],
    ),
    "id with NUL is ignored": (b"id: 1\nid: x\0y\ndata: a\n\n", [{"id": b"1", "payload": b"a"}]),
    "field names are case-sensitive": (b"ID: 9\nDATA: x\ndata: a\n\n", [{"payload": b"a"}]),
    "a space before the colon": (b"id : 9\ndata: a\n\n", [{"payload": b"a"}]),
    "longer and shorter names": (
        b"ids: 9\ndat: x\ndatas: x\nevents: x\nretry2: 1\ndata: a\n\n",
        [{"payload": b"a"}],
    ),
    "unknown fields only": (b"foo: bar\nbaz\n\n", []),
    "id only": (b"id: 7\n\n", [{"id": b"7", "has_data": False}]),
    "id and empty data": (b"id: 7\ndata:\n\n", [{"id": b"7", "empty": True}]),
    "id and blank data": (b"id: 7\ndata:   \n\n", [{"id": b"7", "empty": True, "payload": b"  "}]),
    "data after a blank first line": (b"data:\ndata: a\n\n", [{"payload": b"\na"}]),
    "data begins with a blank": (b"data:  a\n\n", [{"payload": b" a"}]),
    "retry only": (b"retry: 700\n\n", [{"retry_ms": 700, "has_data": False}]),
    "retry with an event": (b"retry: 0\nid: 1\ndata: a\n\n", [{"retry_ms": 0, "id": b"1", "payload": b"a"}]),
    "retry of no number": (b"retry: 5s\nretry:\nretry: -1\nretry: +1\nretry\n\n", []),
    "retry in other digits": ("retry: \u0665\n\n".encode(), []),
    "retry beyond use": (b"retry: " + b"9" * 5000 + b"\n\n", []),
    "many data lines": (b"data: a\ndata\ndata:b\ndata: c\n\n", [{"payload": b"a\n\nb\nc"}]),
    "unicode line ends are text": (
        b"id: \xc2\x85\ndata: \xe2\x80\xa8\x0b\x0c\x1c\n\n",
        [{"id": b"\xc2\x85", "payload": b"\xe2\x80\xa8\x0b\x0c\x1c"}],
    ),
    "bytes that are no UTF-8": (b"id: \xff\ndata: \xe6\x97\n\n", [{"id": b"\xff", "payload": b"\xe6\x97"}]),
    "no blank line at the end": (b"data: a\n\nid: 9\ndata: {\n", [{"payload": b"a"}]),
    "no line end at the end": (b"data: a\n\nid: 9", [{"payload": b"a"}]),
    "blank lines between": (b"\n\ndata: a\n\n\n\r\n\r\rdata: b\n\n", [{"payload": b"a"}, {"payload": b"b"}]),
}


@pytest.mark.parametrize(("stream", "expected"), STREAMS.values(), ids=STREAMS)
def test_frames_of_a_stream(stream: bytes, expected: list[dict[str, Any]]) -> None:
    """A stream has the frames the standard says, with their offsets, however it is cut."""
    frames, malformed = reference(stream)
    fields = [frame._asdict() for frame in frames]
    assert expected == [
        {name: value[name] for name in want} for want, value in zip(expected, fields, strict=True)
    ]
    for pieces in cuts(stream):
        scanner = Scanner()
        found = [seen(frame, stream) for piece in pieces for frame in scanner.feed(piece)]
        assert (frames, malformed, len(stream)) == (found, scanner.malformed, scanner.offset)


@pytest.mark.parametrize("extra", [b"data: {", b"\n", b"\r\n", b": c\n\n", b"\xef\xbb\xbf"], ids=repr)
@pytest.mark.parametrize("stream", [stream for stream, _ in STREAMS.values()], ids=STREAMS)
def test_trailing_data_changes_nothing_before_it(stream: bytes, extra: bytes) -> None:
    """What follows a frame does not change the frame."""
    whole = stream + extra
    expected = reference(whole)[0]
    assert expected == [seen(frame, whole) for frame in scan([whole])]
    assert expected == [seen(frame, whole) for frame in scan([stream, extra])]


ALPHABET = [
    *(
        b"\n",
        b"\r\n",
        b"\r",
        b"\n\n",
        b"\r\n\r\n",
        b"\r\r",
        b"\0",
        b" ",
        b"\t",
        b":",
        b"x",
        b"\xef\xbb\xbf",
        b"\xef",
        b"{",
    ),
    *(
        b"id: 1",
        b"id:2",
        b"id: 3-4",
        b"id:  5 ",
        b"id",
        b"id: 123456789",
        b"ide: 1",
        b"data: {}",
        b"data:{}",
        b"data",
        b"data: ",
    ),
    *(
        b"data: {" + b"x" * 50 + b"}",
        b"event: message\n",
        b"event:other\r\n",
        b"event",
        b"retry: 10",
        b"retry: x",
        b": ping",
    ),
    *(
        b"id: 6\ndata: {1}\n\n",
        b"id: 7\r\ndata: {2}\r\n\r\n",
        b"data: {3}\n\n",
        b"event: message\nid: a\ndata: {4}\n\n",
    ),
    *(
        b"id: 8\nevent: message\ndata: {5}\n\n",
        b"event: message\ndata: {6}\n\n",
        b"id:9\ndata:{7}\n\n",
        b"id: \ndata: {8}\n\n",
    ),
    *(
        b"id: a:b\ndata: {9}\n\n",
        b"id: a b\ndata: {}\n\n",
        b"id: 123456789\ndata: {}\n\n",
        b"foo\ndata: {10}\n\n",
    ),
    *(
        b"id: 1\ndata: {1}\n\nid: 2\ndata: {2}\n\n",
        b"data: {}\r\n\r\ndata: {}\r\n\r\nid: 3\r\n",
        b"event: e\nid: 1\ndata: {11}\n\n",
        b"id: 1\ndata: {\r}\n\n",
        b"id: 1\r\ndata: {\n}\r\n\r\n",
        b"id: 1\ndata: [12]\n\n",
    ),
]
PIECES = st.lists(st.sampled_from(ALPHABET), max_size=14)


@given(PIECES, st.data())
@settings(max_examples=400)
def test_frames_do_not_depend_on_the_cuts(pieces: list[bytes], data: st.DataObject) -> None:
    """Any stream, cut anywhere, has the frames that the standard gives the whole of it, whatever was expected."""
    stream = b"".join(pieces)
    at = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    random = [stream[a:b] for a, b in zip([0, *at], [*at, len(stream)], strict=True)]
    expected, malformed = reference(stream, MAX_PAYLOAD, MAX_ID)
    other = Scanner(MAX_PAYLOAD, MAX_ID)
    other.feed(data.draw(st.sampled_from(ALPHABET)))
    shape = other.shape
    for cut in ([stream], pieces, random, [stream[at : at + 1] for at in range(len(stream))]):
        scanner = Scanner(MAX_PAYLOAD, MAX_ID, shape)
        found = [seen(frame, stream) for piece in cut for frame in scanner.feed(piece)]
        assert (expected, malformed, len(stream)) == (found, scanner.malformed, scanner.offset)


@given(st.lists(st.binary(max_size=40), max_size=20))
@example([b"\xef", b"", b"\xbb", b"\xbf", b"\r", b"", b"\n"])
def test_no_bytes_raise(pieces: list[bytes]) -> None:
    """Whatever the bytes are, the scanner takes them and agrees with the standard."""
    stream = b"".join(pieces)
    expected, malformed = reference(stream)
    scanner = Scanner()
    assert expected == [seen(frame, stream) for piece in pieces for frame in scanner.feed(piece)]
    assert malformed == scanner.malformed


@given(PIECES, st.integers(1, 200))
def test_what_is_held_is_bounded(pieces: list[bytes], times: int) -> None:
    """The scanner holds at most the payload's bound, two id lines, and its small bounds."""
    scanner = Scanner(MAX_PAYLOAD, MAX_ID)
    bound = MAX_PAYLOAD + 2 * MAX_ID + 3 * EVENT_SIZE + min(HEAD_SIZE, MAX_PAYLOAD) + TAIL_SIZE + 100
    for piece in pieces * times:
        scanner.feed(piece)
        assert scanner.held <= bound


@pytest.mark.parametrize(
    "name", [b"", b"data: ", b"id: ", b"event: ", b"retry: ", b": ", b"foo: ", b"data: a\ndata: "]
)
@pytest.mark.parametrize("size", [1, 100, 65536])
def test_a_line_without_end_is_not_held(name: bytes, size: int) -> None:
    """A line of 2 MiB, fed in pieces of any size, is held up to the bounds alone."""
    scanner = Scanner()
    scanner.feed(name)
    most = 0
    for _ in range(min(20_000, 2**21 // size)):
        scanner.feed(b"z" * size)
        most = max(most, scanner.held)
    assert most <= 65536
    assert scanner.feed(b"\n\ndata: {}\n\n")[-1].payload == b"{}"
    assert scanner.held == 0


POSITIONS: dict[str, tuple[bytes, bool, bool, bool]] = {
    "nothing": (b"", False, False, False),
    "a blank line": (b"\n", False, False, False),
    "a whole frame": (b"data: a\n\n", False, False, False),
    "a line": (b"data: a\n", True, False, False),
    "part of a data line": (b"data: a", True, True, False),
    "part of a name": (b"i", True, True, False),
    "part of an id": (b"id: 1234", True, True, False),
    "part of a comment": (b": hello", True, True, False),
    "a comment": (b": hello\n", True, False, False),
    "a comment and its blank line": (b": hello\n\n", False, False, False),
    "a CR": (b"data: a\r", True, False, True),
    "a CRLF": (b"data: a\r\n", True, False, False),
    "a frame ended by CR": (b"data: a\r\r", False, False, True),
    "part of a BOM": (b"\xef\xbb", True, True, False),
    "a BOM": (b"\xef\xbb\xbf", False, False, False),
    "part of a BOM, then not": (b"\xefx", True, True, False),
}


@pytest.mark.parametrize(
    ("stream", "mid_frame", "partial_line", "after_cr"), POSITIONS.values(), ids=POSITIONS
)
@pytest.mark.parametrize("before", [b"", b"data: {}\n\n"], ids=["at first", "later"])
def test_where_the_stream_stands(
    before: bytes, stream: bytes, mid_frame: bool, partial_line: bool, after_cr: bool
) -> None:
    """The scanner knows whether it stands inside a frame, a line or a CRLF: where bytes may be put."""
    if before and stream.startswith(b"\xef"):
        mid_frame = partial_line = True  # a BOM begins a stream only
    for pieces in cuts(stream):
        scanner = Scanner()
        for piece in [before, before, *pieces, b""]:
            scanner.feed(piece)
        assert (mid_frame, partial_line, after_cr) == (
            scanner.mid_frame,
            scanner.partial_line,
            scanner.after_cr,
        )


def test_a_cr_at_the_end_of_a_chunk_completes_the_frame_at_once() -> None:
    """The frame does not wait for the LF that may follow; the LF, when it comes, belongs to no frame."""
    scanner = Scanner()
    (first,) = scanner.feed(b"data: a\r\n\r")
    (second,) = scanner.feed(b"\ndata: b\n\n")
    assert (first.blank, first.end, second.start) == (9, 10, 11)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=repr)
def test_offsets_cut_a_stream_into_its_frames(end: bytes) -> None:
    """`stream[start:end]` is the frame, and `stream[blank:end]` its blank line."""
    frames = [end.join([b"id: %d" % n, b"data: {}", b"", b""]) for n in range(3)]
    stream = b"".join(frames)
    found = scan([stream])
    assert frames == [stream[frame.start : frame.end] for frame in found]
    assert [end] * 3 == [stream[frame.blank : frame.end] for frame in found]


@pytest.mark.parametrize("size", [MAX_PAYLOAD, MAX_PAYLOAD + 1], ids=["largest kept", "smallest not kept"])
@pytest.mark.parametrize("lines", [1, 2, 7])
def test_the_bound_of_a_payload(size: int, lines: int) -> None:
    """A payload is kept up to the bound, and above it not at all, however many lines and pieces it has."""
    data = (b"{" * (size - lines + 1)).ljust(size, b"\n")
    stream = b"".join(b"data: %b\n" % line for line in data.split(b"\n")) + b"\n"
    expected = data if size <= MAX_PAYLOAD else None
    for pieces in cuts(stream):
        (frame,) = scan(pieces, max_payload=MAX_PAYLOAD)
        assert expected == frame.payload


@pytest.mark.parametrize("step", [1, 7, 300, 4096, 65536, 10**9])
def test_the_ends_of_a_large_payload(step: int) -> None:
    """Of a payload too large to keep the first and last bytes are shown, whatever the pieces were."""
    data = b"".join(b"%07d." % n for n in range(9000))
    stream = b"id: 5\ndata: " + data[:20_000] + b"\ndata: " + data[20_000:] + b"\n\ndata: {}\n\n"
    joined = data[:20_000] + b"\n" + data[20_000:]
    large, small = scan(stream[at : at + step] for at in range(0, len(stream), step))
    expected = Seen(0, len(stream) - 11, len(stream) - 10, id=b"5", payload=None)
    assert expected._replace(head=joined[:HEAD_SIZE], tail=joined[-TAIL_SIZE:]) == seen(large)
    assert (small.payload, small.head, small.tail) == (b"{}", b"", b"")


@pytest.mark.parametrize("lead", [b"", b"event: message\n"], ids=["id first", "event first"])
@pytest.mark.parametrize("colon", [b":", b": "], ids=repr)
def test_an_id_too_long_is_unknown(lead: bytes, colon: bytes) -> None:
    """An id of the longest length is kept; a longer one is no id, and is counted."""
    pieces = [
        lead + b"id" + colon + b"i" * size + b"\ndata: {}\n\n" for size in (1, MAX_ID, MAX_ID + 1, 5000, 1)
    ]
    for cut in (pieces, [b"".join(pieces)], [bytes([byte]) for byte in b"".join(pieces)]):
        scanner = Scanner(max_id=MAX_ID)
        found = [(frame.id, frame.id_overlong) for piece in cut for frame in scanner.feed(piece)]
        known = [(b"i", False), (b"i" * MAX_ID, False)]
        assert [*known, (None, True), (None, True), (b"i", False)] == found
        assert scanner.malformed == 2


def test_an_overlong_id_gives_way_to_a_later_one() -> None:
    """The last id line counts, in either order."""
    long, short = b"id: " + b"i" * 99 + b"\n", b"id: 1\n"
    after, before = scan([long + short + b"\n", short + long + b"\n"], max_id=MAX_ID)
    assert ((after.id, after.id_overlong), (before.id, before.id_overlong)) == ((b"1", False), (None, True))


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=repr)
@pytest.mark.parametrize(
    "odd",
    [
        b"id: 2",
        b"data: {\n}\n\n",
        b"data: {}\r\r",
        b"id: 2\n\n",
        b"retry: 5\nid: 2\ndata: {}\n\n",
        b"id:  2 \ndata: {}\n\n",
        b"id: 2\0\ndata: {}\n\n",
        b"id: \ndata: {}\n\n",
        b"id: 2\rdata: {}\ndata: {}\n\n",
        b"id: 2\ndata: {\r}\n\n",
        b"id: 2\r\ndata: {\n}\r\n\r\n",
        b"x\ndata: {}\n\n",
        b"id: 2\ndata: {}\n\nid: 3\ndata: {}\n\n",
        b"id: 2\ndata:  {}\n\n",
        b"id: 2\ndata: \n\n",
        b"\nid: 2\ndata: {}\n\n",
        b"event: e\nid: 2\ndata: {}\n\n",
    ],
    ids=repr,
)
def test_one_odd_chunk_after_a_habit(end: bytes, odd: bytes) -> None:
    """A stream that wrote every frame alike is read right when a chunk differs, and afterwards."""
    habit = end.join([b"id: 1", b"data: {}", b"", b""])
    pieces = [habit, habit, odd, habit, habit, b"data: {}\n\n", b"data: {}\n\n", odd, b"\n\n"]
    stream = b"".join(pieces)
    assert reference(stream)[0] == [seen(frame, stream) for frame in scan(pieces)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=repr)
@pytest.mark.parametrize(
    "lines", [[b"id: %d"], [b"event: message", b"id: %d"], []], ids=["id", "event, id", "no id"]
)
@pytest.mark.parametrize("rest", [b"", b"id", b"\r", b"id: x\r\rdata: y\r\rid: 5\ndata: {}\n\n"], ids=repr)
def test_many_frames_alike_in_one_chunk(end: bytes, lines: list[bytes], rest: bytes) -> None:
    """A chunk of many frames, written as those before, has them all, and what stands behind them."""
    frames = [end.join([*lines, b"data: {}", b"", b""]).replace(b"%d", b"%d" % n) for n in range(12)]
    pieces = [*frames[:2], b"".join(frames[2:]) + rest, frames[0]]
    stream = b"".join(pieces)
    assert [seen(frame, stream) for frame in scan(pieces)] == reference(stream)[0]


def test_what_another_stream_has_taught_is_no_reason_to_skip_a_bom_later() -> None:
    """A BOM stands at the very start of a stream or is a part of a field's name."""
    taught = Scanner()
    taught.feed(b"id: 1\ndata: {}\n\n")
    scanner = Scanner(shape=taught.shape)
    assert [frame.id for frame in scanner.feed(b"id: 2\ndata: {}\n\n")] == [b"2"]
    (frame,) = scanner.feed(b"\xef\xbb\xbfid: 3\ndata: {}\n\n")
    assert frame.id is None


def test_a_stream_without_habits_is_read_right() -> None:
    """A stream that never writes two frames alike costs a bounded number of lessons, and no frame."""
    shapes = [b"event: e%d\ndata: {}\n\n" % n + b"event: message\ndata: {}\n\n" for n in range(9)]
    pieces = [*shapes, *(b"id%b{}\n\n" % (b": 1\ndata:" + b" " * (n % 2)) for n in range(40))]
    stream = b"".join(pieces)
    assert reference(stream)[0] == [seen(frame, stream) for frame in scan(pieces)]


def test_many_lines_in_one_large_chunk() -> None:
    """A large chunk of long lines, short lines and long lines again is cut at every line end."""
    lines = [b"a" * 3000] * 5 + [b"", b"b"] * 3000 + [b"c" * 9000]
    for end in (b"\n", b"\r\n", b"\r"):
        stream = end.join(b"data: " + line for line in lines) + end + end
        (frame,) = scan([stream], max_payload=10**6)
        assert b"\n".join(lines) == frame.payload


@pytest.mark.parametrize(
    ("stream", "shown"), [(b"id: 1\ndata: {}\n\n", "id=b'1'"), (b"retry: 5\n\n", "retry_ms=5")]
)
def test_a_frame_shows_its_fields(stream: bytes, shown: str) -> None:
    """The repr of a frame names what a failing test needs to see."""
    assert shown in repr(scan([stream])[0])
