"""Start the proxy with one defect in its detector: `python -m tests.load.launcher DEFECT run --config FILE`.

A load that cannot fail shows nothing: with these, it must. The proxy itself knows nothing of defects.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from proxy.cli import main
from proxy.engine.continuity import FrameKind, Resume, Shown
from proxy.engine.exchange import Exchange
from proxy.engine.findings import Judgement, Reason, Verdict
from proxy.engine.relay import Relay

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


def spoil(defect: str) -> None:
    """Put one defect in: `blind`, `happy` or `raising`."""
    match defect:
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
