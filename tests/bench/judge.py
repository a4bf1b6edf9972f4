"""What it costs to judge one resume of a stream with 1,024 ids in its window, from its head to its end."""

from __future__ import annotations

import sys
import time

from proxy.engine.commands import Report
from proxy.engine.findings import Ending, Judged
from tests.bench.memory import KINDS, Engine, frames, session_key

IDS = 1024
ROUNDS = 200
REPLAYED = (0, 16, 512)
LIMIT_US = 200


def median(values: list[float]) -> float:
    """The middle one."""
    return sorted(values)[len(values) // 2]


def resume(engine: Engine, cursor: bytes, replay: list[bytes]) -> tuple[float, float]:
    """Seconds spent on the resume but for its replayed frames, and on those; checks that it was judged."""
    began = time.perf_counter()
    exchange = engine.open_stream(session_key(0), cursor)
    opened = time.perf_counter()
    reports = [command for frame in replay for command in exchange.receive(frame, 2.0)]
    replayed = time.perf_counter()
    reports += exchange.ended(Ending.CLIENT_LEFT, 3.0)
    ended = time.perf_counter()
    if replay:
        items = [command.item for command in reports if isinstance(command, Report)]
        assert [item.judgement.verdict.value for item in items if isinstance(item, Judged)] == ["resumed"]
    return (opened - began) + (ended - replayed), replayed - opened


def main() -> int:
    """Measure every kind of id and print."""
    print(f"one resume, {IDS} ids in the window, µs: at most {LIMIT_US}")
    print(f"{'ids':12}{'replayed':>10}{'resume':>10}{'per frame':>12}")
    for kind, name in KINDS.items():
        engine = Engine(IDS)
        engine.fill_one(kind, 0, IDS).ended(Ending.CLIENT_LEFT, 1.5)
        every = [frame + b"\n\n" for frame in frames(kind, 0, IDS).split(b"\n\n")[:-1]]
        for count in REPLAYED:
            cursor = name(0, IDS - 1 - count).encode()
            replay = every[IDS - count :]
            taken = [resume(engine, cursor, replay) for _ in range(ROUNDS)]
            each = median([frames_s for _, frames_s in taken]) / count * 1e6 if count else 0.0
            print(f"{kind:12}{count:10}{median([s for s, _ in taken]) * 1e6:10.1f}{each:12.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
