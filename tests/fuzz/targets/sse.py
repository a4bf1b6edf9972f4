"""The SSE scanner against the standard's own parser: the same blocks for any bytes, however they are cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from proxy.engine.sse import EVENT_SIZE, HEAD_SIZE, RETRY_DIGITS, TAIL_SIZE, Frame, Scanner
from tests.fuzz.target import Target, bounded, cuttings, must, pieces, same
from tests.fuzz.whatwg import BOM, Block, read

SMALL = (40, 8)
"""Bounds that generated streams outgrow: of the payload and of the id."""
USUAL = (65536, 1024)
SLACK = HEAD_SIZE + TAIL_SIZE + 1024
"""What a scanner may hold beside a payload and two id lines."""

Found = tuple[list[Block], Block | None]


class Shown(NamedTuple):
    """Every field of a frame."""

    start: int
    blank: int
    end: int
    id: bytes | None
    event: bytes
    has_data: bool
    empty: bool
    payload: bytes | None
    id_overlong: bool
    retry_ms: int | None
    head: bytes
    tail: bytes


def shown(frame: Frame) -> Shown:
    """A frame as a value."""
    return Shown(*(getattr(frame, name) for name in Shown._fields))


def wanted(block: Block, max_payload: int, max_id: int, cuts: frozenset[int]) -> Shown | None:
    """The frame that a block must be, with the scanner's documented bounds; None if it shows nothing."""
    id: bytes | None = None
    overlong = False
    for value in block.all(b"id"):
        if len(value) > max_id:
            id, overlong = None, True
        elif b"\0" not in value:
            id, overlong = value.strip(b" \t"), False
    times = [v for v in block.all(b"retry") if v and len(v) <= RETRY_DIGITS and not v.strip(b"0123456789")]
    if block.data is None and id is None and not times and not overlong:
        return None
    names = block.all(b"event")
    data = block.data or b""
    large = len(data) > max_payload
    cut_crlf = block.end - block.blank == 2 and block.blank + 1 in cuts
    return Shown(
        start=block.start,
        blank=block.blank,
        end=block.end - cut_crlf,
        id=id,
        event=(names[-1][:EVENT_SIZE] if names else b"") or b"message",
        has_data=block.data is not None,
        empty=block.data is not None and not large and not data.strip(),
        payload=None if large else data,
        id_overlong=overlong,
        retry_ms=int(times[-1]) if times else None,
        head=data[: min(HEAD_SIZE, max_payload)] if large else b"",
        tail=data[-TAIL_SIZE:] if large else b"",
    )


def scan(stream: bytes, found: Found, cuts: Sequence[int], max_payload: int, max_id: int) -> None:
    """Compare one way of cutting the stream with what the standard's parser found."""
    blocks, unfinished = found
    scanner = Scanner(max_payload, max_id)
    frames: list[Frame] = []
    for piece in pieces(stream, cuts):
        frames += scanner.feed(piece)
        bound = max_payload + 2 * max_id + SLACK
        must(scanner.held <= bound, "what a scanner holds is bounded", scanner.held, bound)
    places = frozenset(cuts)
    expected = [wanted(block, max_payload, max_id, places) for block in blocks]
    same("frames", [shown(frame) for frame in frames], [frame for frame in expected if frame is not None])
    all_blocks = blocks if unfinished is None else [*blocks, unfinished]
    ids = [value for block in all_blocks for value in block.all(b"id")]
    same("malformed", scanner.malformed, sum(len(id) > max_id or b"\0" in id for id in ids))
    same("offset", scanner.offset, len(stream))
    if stream and not BOM.startswith(stream):
        same("begun", scanner.begun, None if unfinished is None else unfinished.start)
        same("partial line", scanner.partial_line, stream[-1:] not in b"\r\n" and stream != BOM)


def by_frames(blocks: list[Block]) -> list[list[int]]:
    """Cuts as servers write: a chunk for each frame, for every two, and the first alone before the rest."""
    ends = [block.end for block in blocks]
    return [ends, ends[::2], ends[:1]]


def check(stream: bytes) -> None:
    """Every cutting, with bounds that are outgrown and with the usual ones; the frames rebuild the stream."""
    with bounded("scanning"):
        Scanner().feed(stream)
    found = read(stream)
    for bounds in (SMALL, USUAL):
        for cuts in (*cuttings(stream, single_bytes=256), *by_frames(found[0])):
            scan(stream, found, cuts, *bounds)
    at = 0
    for frame in Scanner().feed(stream):
        must(at <= frame.start < frame.blank < frame.end <= len(stream), "offsets ascend", shown(frame))
        at = frame.end
        if stream.startswith(BOM, frame.start):
            continue  # a BOM there is a part of the frame, at the start of a stream it would not be
        again = Scanner().feed(stream[frame.start : frame.end])
        moved = frame.start
        same(
            "a frame on its own",
            [(one.start + moved, one.blank + moved, one.end + moved, one.id, one.payload) for one in again],
            [(frame.start, frame.blank, frame.end, frame.id, frame.payload)],
        )


TARGET = Target(
    check,
    [
        b"id: 1\ndata: {}\n\n",
        b"event: message\n",
        b"data: {",
        b"data:",
        b"id:",
        b"id",
        b"data",
        b"retry: 3000\n",
        b"retry:",
        b"event:",
        b": keep-alive\n\n",
        b"\r\n\r\n",
        b"\r\n",
        b"\n\n",
        b"\r\r",
        b"\n\r",
        b"\r",
        BOM,
        b"\xef\xbb",
        b"\0",
        b" ",
        b"\t",
        b"\xe2\x80\xa8",
        b"\xc2\x85",
        b"id: abcdefghi\n",
        b"id: 7\r\ndata: {}\r\n\r\n",
        b'data: {"a":1}\n\n',
        b"event: x\nid: 2\n",
        b"\x0b",
        b"\x0c",
        b"\x1c",
    ],
    largest=1024,
)
