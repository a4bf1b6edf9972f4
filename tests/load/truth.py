"""What each resume really was, what the rules may say of it, and what the proxy said.

The truth comes from whoever plays the server, never from the proxy's code; what may be said of it is read off
the rules: a verdict is right if it is one of those the expectation allows.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proxy.engine.privacy import hash_session

ALARMS = frozenset({"fork", "gap", "crossed", "rewound"})
CUT_WHEN_PROVEN = frozenset({"fork", "gap", "crossed"})
VERDICT_PATIENCE_S = 30.0
PROVEN, SUSPECTED, ANY = "proven", "suspected", ""

_FAULT_ECHO_S = 5.0
"""For so long a resume may owe its verdict to the upstream's death."""
_SHOWN = 12
"""Violations of one kind that are told in full."""


class Truth(StrEnum):
    """What a resume was."""

    HEALTHY = "healthy"
    # the same log, whole: no alarm
    REWOUND = "rewound"
    # the same log from too early on: duplicates
    PROVEN = "proven fork"
    # another log, or a loss, and the evidence suffices
    SUSPECT = "suspected fork"
    # the same, where the rules may only suspect
    UNKNOWABLE = "unknowable"
    # nothing on the wire tells


@dataclass(frozen=True)
class Expectation:
    """What the rules allow to be said of one resume."""

    play: str
    truth: Truth
    allowed: frozenset[tuple[str, str, str]]
    """(verdict, reason, certainty); an empty certainty allows both."""
    outstanding: int | None = None
    """How many relayed events the cursor left outstanding; None: not known for sure."""

    def allows(self, verdict: str, reason: str, certainty: str) -> bool:
        """Whether this verdict is right."""
        return (verdict, reason, certainty) in self.allowed or (verdict, reason, ANY) in self.allowed


@dataclass(frozen=True)
class Known:
    """A fault of the proxy's that is known: counted for itself until it is mended, never left out."""

    upstream: str
    play: str
    cell: tuple[str, str, str]
    why: str


KNOWN: tuple[Known, ...] = ()


def expect(play: str, truth: Truth, *allowed: str, outstanding: int | None = None) -> Expectation:
    """An expectation from texts such as `fork/log_restarted|id_regressed proven`."""
    cells = set()
    for text in allowed:
        name, _, certainty = text.partition(" ")
        verdict, _, reasons = name.partition("/")
        cells |= {(verdict, reason, certainty) for reason in reasons.split("|")}
    return Expectation(play, truth, frozenset(cells), outstanding)


def known(upstream: str, play: str, cell: tuple[str, str, str] | None = None) -> Known | None:
    """The known fault that makes this verdict (None: any verdict) of such a resume, if there is one."""
    found = (k for k in KNOWN if (k.upstream, k.play) == (upstream, play) and cell in (None, k.cell))
    return next(found, None)


@dataclass(eq=False)
class Pending:
    """A resume whose verdict is to come."""

    expected: Expectation
    detail: str
    line: dict[str, Any] | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    blurred: bool = False
    """A fault has hit it: any verdict that accuses nobody is right as well."""

    async def verdict(self) -> dict[str, Any]:
        """The log line of the verdict; TimeoutError if none comes."""
        async with asyncio.timeout(VERDICT_PATIENCE_S):
            await self.answered.wait()
        assert self.line is not None
        return self.line


class Violations:
    """What must not happen, counted by kind; the first of each kind in full."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.told: dict[str, list[str]] = defaultdict(list)

    def add(self, kind: str, detail: str) -> None:
        """One more."""
        self.counts[kind] += 1
        if len(self.told[kind]) < _SHOWN:
            self.told[kind].append(detail)


class Judge:
    """Holds every verdict of the proxy against the truth of its resume."""

    def __init__(self, mode: str, violations: Violations, *, lenient: bool = False) -> None:
        """`lenient`: the detector fails now and then, so that verdicts may be missing or milder."""
        self.mode = mode
        self.lenient = lenient
        self._accusable: set[str] = set()
        """Sessions in which something has happened that may be called a fork."""
        self.violations = violations
        self.given: Counter[tuple[str, str, str]] = Counter()
        """Verdicts by (verdict, reason, certainty)."""
        self.by_play: dict[tuple[Truth, str], Counter[str]] = defaultdict(Counter)
        self.known: Counter[str] = Counter()
        """Known faults that were met."""
        self.judged = 0
        self.blurred = 0
        self.fault_at = -_FAULT_ECHO_S
        """When the upstream was last killed; monotonic."""
        self._pending: dict[str, deque[Pending]] = defaultdict(deque)
        self._early: dict[str, deque[dict[str, Any]]] = defaultdict(deque)

    def expecting(self, session: str, expected: Expectation, detail: str) -> Pending:
        """A resume of this session is under way; verdicts of one session come in the order of these calls."""
        session, pending = hash_session(session), Pending(expected, detail)
        if self.lenient:
            if expected.truth is not Truth.HEALTHY:
                self._accusable.add(session)
            pending.line = {"action": "pass"}
            pending.answered.set()
        elif early := self._early.get(session):
            self._settle(pending, early.popleft())
            if not early:
                del self._early[session]
        else:
            self._pending[session].append(pending)
        return pending

    def heard(self, line: Mapping[str, Any]) -> None:
        """A line of the proxy's log."""
        if line["event"] != "resume.judged":
            return
        session = line["session"]
        if self.lenient:
            self.judged += 1
            if line["verdict"] in ALARMS and line["certainty"] == PROVEN and session not in self._accusable:
                self.violations.add("false alarm", str(dict(line)))
        elif waiting := self._pending.get(session):
            self._settle(waiting.popleft(), dict(line))
            if not waiting:
                del self._pending[session]
        else:
            self._early[session].append(dict(line))

    def _settle(self, pending: Pending, line: dict[str, Any]) -> None:
        key = (line["verdict"], line["reason"], line["certainty"])
        self.judged += 1 + line.get("repeated", 0)
        self.given[key] += 1 + line.get("repeated", 0)
        pending.line = line
        pending.answered.set()
        expected = pending.expected
        self.by_play[expected.truth, expected.play]["/".join(key[:2]) + " " + key[2]] += 1
        kind = self._wrong(pending, key, line)
        if kind and (fault := known(line["upstream"], expected.play, key)) is not None:
            self.known[f"{fault.upstream}, {fault.play}, {'/'.join(key)}: {fault.why}"] += 1
        elif kind:
            allowed = sorted("/".join(cell[:2]) + " " + cell[2] for cell in expected.allowed)
            self.violations.add(kind, f"{expected.play}: {'/'.join(key)}, allowed {allowed}; "
                                      f"{pending.detail}; {line}")  # fmt: skip

    def _wrong(self, pending: Pending, key: tuple[str, str, str], line: dict[str, Any]) -> str:
        """What kind of violation this verdict is, empty if it is right."""
        expected, alarm = pending.expected, key[0] in ALARMS
        if line["action"] != self.action(*key):
            return "wrong action"
        if pending.blurred or time.monotonic() - self.fault_at < _FAULT_ECHO_S:
            self.blurred += 1
            if not alarm or expected.allows(*key):
                return ""
            return "" if key[2] == SUSPECTED and expected.truth is not Truth.HEALTHY else "false alarm"
        if expected.allows(*key):
            # Where ids are new at every replay, what was sent again counts once, and so do repeats.
            told = key[0] not in ("refused", "unverifiable") and line["upstream"] != "encrypted"
            if told and expected.outstanding not in (None, line["outstanding"]):
                return "wrong outstanding"
            return ""
        if expected.truth is Truth.PROVEN:
            return "wrong reason" if alarm and key[2] == PROVEN else "missed fork"
        if alarm:
            return "false alarm"
        return "missed suspicion" if expected.truth is Truth.SUSPECT else "wrong verdict"

    def action(self, verdict: str, reason: str, certainty: str) -> str:
        """What the default policy does about a verdict."""
        if self.mode == "observe" or verdict not in ALARMS:
            return "pass"
        if self.mode == "enforce" and certainty == PROVEN and verdict in CUT_WHEN_PROVEN:
            return "cut"
        return "annotate"

    def finish(self) -> None:
        """No more verdicts will come: those that nobody asked for, or that never came."""
        for session, lines in self._early.items():
            for line in lines:
                self.violations.add("verdict for nothing", f"{session}: {line}")
        for session, waiting in self._pending.items():
            for pending in waiting:
                kind = "missed fork" if pending.expected.truth is Truth.PROVEN else "no verdict"
                self.violations.add(kind, f"{session}: {pending.expected.play}: {pending.detail}")


@dataclass
class Totals:
    """What the load did."""

    started: float = field(default_factory=time.monotonic)
    events: int = 0
    """Sent by the upstream on event streams."""
    resumes: int = 0
    sessions: int = 0
    calls: int = 0
    streams: int = 0
    """Open now."""
    blurred_streams: int = 0
    """Ended by an injected fault."""
    undeleted: int = 0
    """Sessions that a fault kept from being deleted."""
