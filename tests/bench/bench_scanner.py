"""What the scanner and the digest cost: `python -m tests.bench.bench_scanner`, one line a case, in a second.

Each figure is the least of many short runs, in turn, so that a busy machine disturbs it little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from proxy.engine.digest import digest, read
from proxy.engine.sse import Scanner

ROUNDS = 60
RUN_S = 0.001  # of one case in one round

PAYLOAD = (
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"abc","progress":17,'
    b'"total":100,"message":"' + b"x" * 80 + b'"}}'
)
LARGE = 1 << 20


class Case(NamedTuple):
    """Pieces fed to `call` one after another; together they are `events` events."""

    name: str
    call: Callable[[bytes], object]
    pieces: Sequence[bytes]
    events: int = 1


def frame(*lines: bytes, end: bytes = b"\n") -> bytes:
    """Return one frame of these lines and the payload."""
    return end.join([*lines, b"data: " + PAYLOAD, b"", b""])


def in_pieces(stream: bytes, size: int) -> list[bytes]:
    """Return the stream in pieces of this size."""
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def cases() -> list[Case]:
    """Return what is measured."""
    usual = frame(b"event: message", b"id: 1234")
    large = b"id: 1\ndata: " + b"a" * LARGE + b"\n\n"
    return [
        Case("one event a chunk: event, id, data", Scanner().feed, [usual]),
        Case(
            "one event a chunk: event, id with a dash, data",
            Scanner().feed,
            [frame(b"event: message", b"id: 12-34")],
        ),
        Case(
            "one event a chunk: id, event, data, CRLF",
            Scanner().feed,
            [frame(b"id: 1", b"event: message", end=b"\r\n")],
        ),
        Case("one event a chunk: id, data", Scanner().feed, [frame(b"id: 1234")]),
        Case("one event a chunk: event, data", Scanner().feed, [frame(b"event: message")]),
        Case("one event a chunk: data", Scanner().feed, [frame()]),
        Case("two shapes in turn", Scanner().feed, [usual, frame(b"event: message")], 2),
        Case("ten events a chunk", Scanner().feed, [usual * 10], 10),
        Case("ten events a chunk, CRLF", Scanner().feed, [frame(b"id: 1", end=b"\r\n") * 10], 10),
        Case("events cut every 150 bytes", Scanner().feed, in_pieces(usual * 15, 150), 15),
        Case("1 MiB event in reads of 64 KiB", Scanner().feed, in_pieces(large, 65536)),
        Case(
            "1 MiB event in reads of 64 KiB, CRLF",
            Scanner().feed,
            in_pieces(large.replace(b"\n", b"\r\n"), 65536),
        ),
        Case("4 MiB without any line end, 64 KiB each", Scanner().feed, [b"z" * 65536] * 64),
        Case("digest of the payload", digest, [PAYLOAD]),
        Case("digest and JSON-RPC facts of the payload", read, [PAYLOAD]),
    ]


def run_once(case: Case) -> float:
    """Return the seconds that one pass over the pieces took, on the average of a short run."""
    call, pieces = case.call, case.pieces
    passes = 0
    began = time.perf_counter()
    while True:
        for _ in range(10):
            for piece in pieces:
                call(piece)
        passes += 10
        took = time.perf_counter() - began
        if took >= RUN_S:
            return took / passes


def main() -> None:
    """Measure every case in turn and print the least of each."""
    measured = cases()
    best = [float("inf")] * len(measured)
    for _ in range(ROUNDS):
        for place, case in enumerate(measured):
            best[place] = min(best[place], run_once(case))
    for case, seconds in zip(measured, best, strict=True):
        print(f"{seconds / case.events * 1e6:9.2f} µs  {case.name}")


if __name__ == "__main__":
    main()
