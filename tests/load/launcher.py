"""Start the proxy with one defect in its detector: `python -m tests.load.launcher DEFECT run --config FILE`.

A load that cannot fail shows nothing: with these, it must. The proxy itself knows nothing of defects.
"""

from __future__ import annotations

import atexit
import gc
import itertools
import sys
from collections import Counter
from typing import Any

from proxy.cli import main
from proxy.downstream import ClientConnection
from proxy.engine.continuity import FrameKind, Resume, Shown
from proxy.engine.exchange import Exchange
from proxy.engine.findings import Judgement, Reason, Verdict
from proxy.engine.relay import Relay
from proxy.forward import Forward
from proxy.upstream.call import Call
from proxy.upstream.connection import Connection

LEFT = "left for the garbage collector:"
"""What a process without one says at its end, if exchanges were not let go of by themselves."""
EVERY = 97
"""Which call raises; a prime, so that every step is hit in the end."""

_frame = Resume.frame


def _blind(self: Resume, shown: Shown) -> Judgement | None:
    if shown.kind is not FrameKind.MESSAGE:
        return None
    return Judgement(Verdict.RESUMED, Reason.CONTINUED, got=shown.id)


def _happy(self: Resume, shown: Shown) -> Judgement | None:
    judgement = _frame(self, shown)
    if judgement is not None and judgement.verdict is Verdict.RESUMED:
        return Judgement(Verdict.FORK, Reason.ID_REGRESSED, got=shown.id)
    return judgement


def _break(owner: type, name: str, calls: itertools.count[int]) -> None:
    method = getattr(owner, name)

    def step(self: Any, *arguments: Any, **settings: Any) -> Any:
        if next(calls) % EVERY == 0:
            raise RuntimeError(f"a defect in {name}")
        return method(self, *arguments, **settings)

    setattr(owner, name, step)


def _raising() -> None:
    calls = itertools.count(1)
    for owner, name in ((Relay, "receive"), (Resume, "frame"), (Exchange, "responded"), (Relay, "ended")):
        _break(owner, name, calls)


def _tell_what_is_left() -> None:
    kinds = (Forward, Exchange, Relay, Call, ClientConnection, Connection)
    left = Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds))
    if left:
        print(f"{LEFT} {dict(left)}", file=sys.stderr, flush=True)


def spoil(defect: str) -> None:
    """Put one defect in: `blind`, `happy` or `raising`; or no garbage collector, `uncollected`."""
    match defect:
        case "uncollected":
            gc.disable()
            atexit.register(_tell_what_is_left)
        case "blind":
            setattr(Resume, "frame", _blind)  # noqa: B010  (mypy refuses the assignment)
        case "happy":
            setattr(Resume, "frame", _happy)  # noqa: B010
        case "raising":
            _raising()
        case _:
            raise SystemExit(f"no such defect: {defect}")


if __name__ == "__main__":
    spoil(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
