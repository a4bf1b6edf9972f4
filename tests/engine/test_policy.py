"""Policy: the table is total, overrides only ever soften a milder mode, and `would_cut` tells the truth."""

from __future__ import annotations

from itertools import product

import pytest

from proxy.engine.findings import PRODUCIBLE, Action, Certainty, Judgement, Reason, Verdict
from proxy.engine.policy import ALARMS, TABLE, Decision, Mode, Policy, decide

PASS, ANNOTATE, CUT = Action.PASS, Action.ANNOTATE, Action.CUT
PROVEN, SUSPECTED = Certainty.PROVEN, Certainty.SUSPECTED
EVERY_JUDGEMENT = [Judgement(verdict, reason, certainty) for verdict, reason, certainty in PRODUCIBLE]
HARMLESS = [judgement for judgement in EVERY_JUDGEMENT if judgement.verdict not in ALARMS]

OVERRIDES: dict[str, dict[str, Action]] = {
    "none": {},
    "cut_verdicts": {verdict.value: CUT for verdict in Verdict},
    "cut_reasons": {f"{verdict}/{reason}": CUT for verdict, reason, _ in PRODUCIBLE},
    "annotate_all": {verdict.value: ANNOTATE for verdict in Verdict},
    "pass_all": {verdict.value: PASS for verdict in Verdict},
    "reason_over_verdict": {"fork": CUT, "fork/id_missing": PASS, "gap": PASS, "gap/forward_jump": CUT},
}
FLAGS = (False, True)
POLICIES = [
    pytest.param(
        suspected, only_in_flight, actions, id=f"{name}-suspected={suspected}-flight={only_in_flight}"
    )
    for suspected, only_in_flight, (name, actions) in product(FLAGS, FLAGS, OVERRIDES.items())
]


def _policy(mode: Mode, suspected: bool, only_in_flight: bool, actions: dict[str, Action]) -> Policy:
    return Policy(mode=mode, cut_on_suspected=suspected, only_in_flight=only_in_flight, actions=actions)


def test_the_table_is_total() -> None:
    """Every cell of mode × verdict × certainty has a default, and there are no others."""
    assert set(TABLE) == set(product(Mode, Verdict, Certainty))


def test_the_table_says_what_the_readme_says() -> None:
    """Cut what is proven but a rewind, annotate every other alarm, and in `observe` nothing at all."""
    acted_on = {cell: action for cell, action in TABLE.items() if action is not PASS}
    proven = {
        (Mode.ENFORCE, verdict, PROVEN): CUT for verdict in (Verdict.FORK, Verdict.GAP, Verdict.CROSSED)
    }
    suspected = {(Mode.ENFORCE, verdict, SUSPECTED): ANNOTATE for verdict in ALARMS}
    said = {(Mode.ANNOTATE, verdict, certainty): ANNOTATE for verdict in ALARMS for certainty in Certainty}
    assert acted_on == proven | suspected | said | {(Mode.ENFORCE, Verdict.REWOUND, PROVEN): ANNOTATE}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("judgement", EVERY_JUDGEMENT, ids=lambda j: f"{j.verdict}-{j.reason}-{j.certainty}")
def test_without_overrides_the_table_decides(mode: Mode, judgement: Judgement) -> None:
    """The plain policy is the table's cell."""
    decision = decide(Policy(mode=mode), judgement, in_flight=False)
    assert decision.action is TABLE[mode, judgement.verdict, judgement.certainty]


@pytest.mark.parametrize(("suspected", "only_in_flight", "actions"), POLICIES)
def test_observe_never_acts(suspected: bool, only_in_flight: bool, actions: dict[str, Action]) -> None:
    """Whatever is configured, no byte changes in `observe`."""
    policy = _policy(Mode.OBSERVE, suspected, only_in_flight, actions)
    taken = {decide(policy, j, flight).action for j, flight in product(EVERY_JUDGEMENT, FLAGS)}
    assert taken == {PASS}


@pytest.mark.parametrize(("suspected", "only_in_flight", "actions"), POLICIES)
def test_annotate_never_cuts(suspected: bool, only_in_flight: bool, actions: dict[str, Action]) -> None:
    """An override never makes a milder mode harsher than it is; it may silence it."""
    policy = _policy(Mode.ANNOTATE, suspected, only_in_flight, actions)
    for judgement, flight in product(EVERY_JUDGEMENT, FLAGS):
        action = decide(policy, judgement, flight).action
        enforced = decide(_policy(Mode.ENFORCE, suspected, only_in_flight, actions), judgement, flight).action
        assert action is (PASS if enforced is PASS else ANNOTATE)


@pytest.mark.parametrize(("suspected", "only_in_flight", "actions"), POLICIES)
def test_would_cut_is_what_enforce_does(
    suspected: bool, only_in_flight: bool, actions: dict[str, Action]
) -> None:
    """In the milder modes it is exactly `enforce`'s cut; in `enforce`, which does cut, it is never set."""
    enforce = _policy(Mode.ENFORCE, suspected, only_in_flight, actions)
    for judgement, flight in product(EVERY_JUDGEMENT, FLAGS):
        enforced = decide(enforce, judgement, flight)
        assert not enforced.would_cut
        for mode in (Mode.OBSERVE, Mode.ANNOTATE):
            milder = decide(_policy(mode, suspected, only_in_flight, actions), judgement, flight)
            assert milder.would_cut is (enforced.action is CUT)


@pytest.mark.parametrize(("suspected", "only_in_flight", "actions"), POLICIES)
def test_what_is_no_alarm_is_never_touched(
    suspected: bool, only_in_flight: bool, actions: dict[str, Action]
) -> None:
    """`resumed`, `refused`, `unverifiable` and `inconclusive` pass whatever the overrides say."""
    for mode, judgement, flight in product(Mode, HARMLESS, FLAGS):
        policy = _policy(mode, suspected, only_in_flight, actions)
        assert decide(policy, judgement, flight) == Decision(PASS, False)


@pytest.mark.parametrize(("suspected", "only_in_flight", "actions"), POLICIES)
def test_suspicion_alone_never_cuts(
    suspected: bool, only_in_flight: bool, actions: dict[str, Action]
) -> None:
    """Without `cut_on: suspected` no override makes a guess end a session."""
    policy = _policy(Mode.ENFORCE, suspected, only_in_flight, actions)
    cut = {
        judgement.certainty
        for judgement, flight in product(EVERY_JUDGEMENT, FLAGS)
        if decide(policy, judgement, flight).action is CUT
    }
    assert SUSPECTED not in cut or suspected


@pytest.mark.parametrize(("suspected", "only_in_flight", "actions"), POLICIES)
def test_in_flight_only_softens_the_cut(
    suspected: bool, only_in_flight: bool, actions: dict[str, Action]
) -> None:
    """With `when: in_flight` an idle session is annotated where it would be cut, and nothing else changes."""
    always = _policy(Mode.ENFORCE, suspected, False, actions)
    bounded = _policy(Mode.ENFORCE, suspected, True, actions)
    for judgement, flight in product(EVERY_JUDGEMENT, FLAGS):
        harsh, soft = decide(always, judgement, flight).action, decide(bounded, judgement, flight).action
        assert soft is (ANNOTATE if harsh is CUT and not flight else harsh)


FORK, GAP, REWOUND = Verdict.FORK, Verdict.GAP, Verdict.REWOUND
CASES = [
    pytest.param({}, False, FORK, Reason.ID_REGRESSED, PROVEN, CUT, id="a proven fork"),
    pytest.param({}, False, FORK, Reason.ID_REGRESSED, SUSPECTED, ANNOTATE, id="a suspected fork"),
    pytest.param({}, True, FORK, Reason.ID_REGRESSED, SUSPECTED, CUT, id="cut_on suspected"),
    pytest.param({}, True, REWOUND, Reason.INCLUSIVE, SUSPECTED, ANNOTATE, id="cut_on spares a rewind"),
    pytest.param(
        {"rewound": CUT}, False, REWOUND, Reason.INCLUSIVE, PROVEN, CUT, id="the seeds' literal rule"
    ),
    pytest.param(
        {"rewound": CUT}, False, REWOUND, Reason.INCLUSIVE, SUSPECTED, ANNOTATE, id="not on a guess"
    ),
    pytest.param({"rewound": CUT}, True, REWOUND, Reason.INCLUSIVE, SUSPECTED, CUT, id="both"),
    pytest.param({"gap/forward_jump": PASS}, False, GAP, Reason.FORWARD_JUMP, PROVEN, PASS, id="one reason"),
    pytest.param(
        {"gap/forward_jump": PASS}, False, GAP, Reason.NOTHING_REPLAYED, PROVEN, CUT, id="not others"
    ),
    pytest.param(
        {"gap": CUT, "gap/forward_jump": ANNOTATE},
        False,
        GAP,
        Reason.FORWARD_JUMP,
        PROVEN,
        ANNOTATE,
        id="reason wins",
    ),
    pytest.param(
        {"fork": ANNOTATE}, True, FORK, Reason.LOG_RESTARTED, SUSPECTED, ANNOTATE, id="override wins"
    ),
]


@pytest.mark.parametrize(("actions", "suspected", "verdict", "reason", "certainty", "action"), CASES)
def test_the_overrides_of_the_configuration(
    actions: dict[str, Action],
    suspected: bool,
    verdict: Verdict,
    reason: Reason,
    certainty: Certainty,
    action: Action,
) -> None:
    """`verdict` and, stronger, `verdict/reason` say what `enforce` does."""
    policy = _policy(Mode.ENFORCE, suspected, False, actions)
    assert decide(policy, Judgement(verdict, reason, certainty), in_flight=False).action is action
