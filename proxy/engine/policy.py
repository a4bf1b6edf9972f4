"""What to do about a judgement: a total table over mode, verdict and certainty.

`observe` changes no byte. `annotate` says it on the stream. `enforce` cuts what is proven (seed 000:
"abort the stream, do not process frames"), and says the rest. What `enforce` would have cut is known
in every mode: it is the way from observing to enforcing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import product

from proxy.engine.findings import Action, Certainty, Judgement, Reason, Verdict


class Mode(StrEnum):
    """How far the proxy goes."""

    OBSERVE = "observe"
    ANNOTATE = "annotate"
    ENFORCE = "enforce"


ALARMS = frozenset({Verdict.FORK, Verdict.GAP, Verdict.CROSSED, Verdict.REWOUND})
"""The verdicts that anything can be done about. What cannot be known, or was refused out loud, passes."""

_CUT_WHEN_PROVEN = frozenset({Verdict.FORK, Verdict.GAP, Verdict.CROSSED})


def _default(mode: Mode, verdict: Verdict, certainty: Certainty) -> Action:
    if mode is Mode.OBSERVE or verdict not in ALARMS:
        return Action.PASS
    if mode is Mode.ENFORCE and certainty is Certainty.PROVEN and verdict in _CUT_WHEN_PROVEN:
        return Action.CUT
    return Action.ANNOTATE


TABLE: Mapping[tuple[Mode, Verdict, Certainty], Action] = {
    cell: _default(*cell) for cell in product(Mode, Verdict, Certainty)
}
"""The defaults, every cell of them."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One upstream's policy, as configured.

    `actions` overrides cells by `verdict` or, stronger, `verdict/reason`; it says what `enforce` does
    and never makes a milder mode harsher than it is, nor cuts on suspicion unless `cut_on_suspected`.
    """

    mode: Mode = Mode.OBSERVE
    cut_on_suspected: bool = False
    only_in_flight: bool = False
    """Seed 004's decision boundary: cut only while the session has a request in flight."""
    notify: bool = False
    """`annotate` also sends the client a log notification."""
    quarantine_ttl_s: float = 600.0
    actions: Mapping[str, Action] = field(default_factory=dict)


_FARTHER = {mode: place for place, mode in enumerate(Mode)}


def milder(opened: Policy, now: Policy) -> Policy:
    """The policy for a resume that opened under `opened`: that, unless the one in force now goes less far.

    An operator's switch to a milder mode takes effect at once; a harsher one waits for the next resume,
    since this one's frames may have left already.
    """
    return now if _FARTHER[now.mode] < _FARTHER[opened.mode] else opened


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done, and whether `enforce` would have cut where it is not in force."""

    action: Action
    would_cut: bool


def decide(policy: Policy, judgement: Judgement, in_flight: bool) -> Decision:
    """The action for one final judgement; `in_flight`: the session has a request in flight."""
    harshest = _enforced(policy, judgement, in_flight)
    if policy.mode is Mode.ENFORCE:
        return Decision(harshest, False)
    would_cut = harshest is Action.CUT
    if policy.mode is Mode.OBSERVE or harshest is Action.PASS:
        return Decision(Action.PASS, would_cut)
    return Decision(Action.ANNOTATE, would_cut)


def _enforced(policy: Policy, judgement: Judgement, in_flight: bool) -> Action:
    """What `enforce` does about it."""
    verdict, certainty = judgement.verdict, judgement.certainty
    if verdict not in ALARMS:
        return Action.PASS
    action = _configured(policy, verdict, judgement.reason)
    if action is None:
        suspected = certainty is Certainty.SUSPECTED and policy.cut_on_suspected
        action = TABLE[Mode.ENFORCE, verdict, Certainty.PROVEN if suspected else certainty]
    elif action is Action.CUT and certainty is Certainty.SUSPECTED and not policy.cut_on_suspected:
        action = Action.ANNOTATE
    if action is Action.CUT and policy.only_in_flight and not in_flight:
        return Action.ANNOTATE
    return action


def _configured(policy: Policy, verdict: Verdict, reason: Reason) -> Action | None:
    exact = policy.actions.get(f"{verdict}/{reason}")
    return exact if exact is not None else policy.actions.get(verdict)
