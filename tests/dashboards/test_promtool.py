"""Prometheus' own tools find nothing wrong with the rules, and the unit tests find whatever is made wrong."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.dashboards import mutants
from tests.dashboards.files import DASHBOARDS, RULES, alerts, document, recordings, rule_tests
from tests.dashboards.mutants import Mutant
from tests.dashboards.tools import ran

pytestmark = pytest.mark.ops

ALERTMANAGER = DASHBOARDS / "alertmanager.yml"


@pytest.mark.parametrize("name", rule_tests())
def test_the_rules_unit_tests_hold(name: str) -> None:
    """promtool test rules finds what each unit test expects."""
    done = ran("promtool", "test", "rules", RULES / "tests" / name)
    assert done.returncode == 0, done.stderr


def test_the_rules_are_sound() -> None:
    """promtool check rules has no error and no lint."""
    done = ran("promtool", "check", "rules", "--lint-fatal", *sorted(RULES.glob("*.yml")))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_configurations_are_sound() -> None:
    """Prometheus and Alertmanager would start with theirs."""
    checks = [
        ("promtool", "check", "config", DASHBOARDS / "prometheus.yml"),
        ("amtool", "check-config", ALERTMANAGER),
    ]
    for check in checks:
        done = ran(*check)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("severity", "receiver"), [("critical", "page"), ("warning", "ticket"), ("info", "shown")]
)
def test_a_severity_reaches_its_receiver(severity: str, receiver: str) -> None:
    """amtool routes an alert of each severity to who should hear it."""
    routed = ran(
        "amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}",
        f"--verify.receivers={receiver}", f"severity={severity}", "alertname=ForkwatchX",
    )  # fmt: skip
    assert routed.returncode == 0, routed.stdout + routed.stderr


def rounds(found: dict[str, list[Mutant]]) -> list[dict[str, Mutant]]:
    """Mutants in as few rounds as possible, one for each rule: those changed together do not read each other."""
    columns = itertools.zip_longest(*found.values())
    return [{name: one for name, one in zip(found, column, strict=True) if one} for column in columns]


ALERT_ROUNDS = rounds({name: mutants.of_alert(rule) for name, rule in alerts().items()})
RATIOS = [name for name in recordings() if "ratio" in name]
RECORDING_ROUNDS = [
    *rounds(
        {
            name: mutants.of_recording({"record": name, "expr": expression})
            for name, expression in recordings().items()
            if name not in RATIOS
        }
    ),
    *rounds({name: mutants.of_recording({"record": name, "expr": recordings()[name]}) for name in RATIOS}),
]


@pytest.mark.parametrize("changed", ALERT_ROUNDS, ids=lambda changed: f"{len(changed)} alerts")
def test_a_wrong_alert_fails_its_unit_test(changed: dict[str, Mutant], tmp_path: Path) -> None:
    """Each alert is got wrong in one way; promtool names every one of them."""
    output = outcome("alerts", changed, tmp_path)
    survived = {name: one.what for name, one in changed.items() if f"alertname: {name}," not in output}
    assert not survived


@pytest.mark.parametrize("changed", RECORDING_ROUNDS, ids=lambda changed: f"{len(changed)} series")
def test_a_wrong_recorded_series_fails_its_unit_test(changed: dict[str, Mutant], tmp_path: Path) -> None:
    """Each recorded series is got wrong in one way; promtool names every one of them."""
    output = outcome("recording", changed, tmp_path)
    survived = {
        name: one.what
        for name, one in changed.items()
        if not re.search(rf"expr: .*(?<![\w:]){re.escape(name)}(?![\w:])", output)
    }
    assert not survived


def outcome(kind: str, changed: dict[str, Mutant], directory: Path) -> str:
    """What promtool says of the unit tests about the rules that were changed in a copy of one file."""
    key = {"alerts": "alert", "recording": "record"}[kind]
    for path in RULES.glob("*.yml"):
        (directory / path.name).write_text(path.read_text())
    copy = document(RULES / f"{kind}.yml")
    for group in copy["groups"]:
        group["rules"] = [
            changed[rule[key]].rule if rule[key] in changed else rule
            for rule in group["rules"]
            if kind == "recording" or rule[key] in changed
        ]
    if kind == "recording":  # whose unit tests read no alert: it only takes time
        (directory / "alerts.yml").write_text("groups: []")
    (directory / f"{kind}.yml").write_text(yaml.safe_dump(copy))
    tests = directory / "tests"
    tests.mkdir()
    for name, found in rule_tests().items():
        if concerned := [test for test in found["tests"] if concerns(test, kind, changed)]:
            (tests / name).write_text(yaml.safe_dump({**found, "tests": concerned}))
    done = ran("promtool", "test", "rules", *sorted(tests.iterdir()))
    return done.stdout + done.stderr


def concerns(test: dict[str, Any], kind: str, changed: dict[str, Mutant]) -> bool:
    """Whether a unit test looks at a rule that was changed."""
    if kind == "alerts":
        return any(check["alertname"] in changed for check in test.get("alert_rule_test", []))
    return any(name in check["expr"] for check in test.get("promql_expr_test", []) for name in changed)
