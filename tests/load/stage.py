"""What all actors share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from tests.load.model import Counter
from tests.load.truth import Judge, Totals, Violations
from tests.load.wire import Wire


@dataclass
class Load:
    """The wire, the judge, and how the time is kept."""

    wire: Wire
    judge: Judge
    violations: Violations
    totals: Totals
    mode: str
    deadline_s: float
    """The `replay_deadline` of every upstream."""
    cycle_s: float
    """How long an actor takes from one play to the next."""
    event_every_s: float
    faults: bool
    over: asyncio.Event = field(default_factory=asyncio.Event)
    up: asyncio.Event = field(default_factory=asyncio.Event)
    """The upstream listens."""
    shared: dict[str, Counter] = field(default_factory=dict)
