"""What every alert carries, and that each has its unit test and its runbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.engine.findings import Verdict
from proxy.logs import BOUND, EVENTS
from tests.dashboards.files import RUNBOOKS, alerts, recordings, rule_tests, thresholds

NUMBER = re.compile(r"(?<![\w.:])\d+(?:\.\d+)?(?![\w.:])")
BROKEN = ("rewound", "fork", "gap", "crossed")
each_alert = pytest.mark.parametrize("name", alerts())
each_runbook = pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)


def commands(path: Path) -> list[str]:
    """The commands of a runbook, in order."""
    blocks: list[str] = re.findall(r"^```sh\n(.*?)^```$", path.read_text(), re.M | re.S)
    assert len(blocks) == 1
    return blocks[0].splitlines()


@each_alert
def test_an_alert_says_how_bad_it_is_and_where_help_is(name: str) -> None:
    """It has a severity, one line that says what happened, a description, and the address of its runbook."""
    rule = alerts()[name]
    assert re.fullmatch(r"Forkwatch[A-Z]\w+", name)
    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    assert {*rule["annotations"]} == {"summary", "description", "runbook_url"}
    assert "\n" not in rule["annotations"]["summary"]
    assert rule["annotations"]["runbook_url"] == f"{{{{ $externalURL }}}}/user/{name}.md"


@each_alert
def test_an_alert_holds_no_number_of_its_own(name: str) -> None:
    """Only 0 and 1 stand in an expression: everything else is a threshold."""
    bare = re.sub(r'"[^"]*"|\[[^\]]*\]', "", alerts()[name]["expr"])
    assert {*NUMBER.findall(bare)} <= {"0", "1"}


@each_alert
def test_an_alert_is_unit_tested_in_both_directions(name: str) -> None:
    """A unit test sees it fire, and one sees it silent."""
    checks = [
        check
        for document in rule_tests().values()
        for test in document["tests"]
        for check in test.get("alert_rule_test", [])
        if check["alertname"] == name
    ]
    assert {bool(check["exp_alerts"]) for check in checks} == {True, False}


@pytest.mark.parametrize("name", recordings())
def test_a_recorded_series_is_unit_tested(name: str) -> None:
    """A unit test expects values of it."""
    expected = [
        check
        for document in rule_tests().values()
        for test in document["tests"]
        for check in test.get("promql_expr_test", [])
        if re.search(rf"(?<![\w:]){re.escape(name)}(?![\w:])", check["expr"]) and check["exp_samples"]
    ]
    assert expected


@pytest.mark.parametrize("verdict", BROKEN)
def test_a_broken_verdict_has_a_burn_test_of_its_own(verdict: str) -> None:
    """A test with this verdict as the only broken one sees the page."""
    pages = []
    for test in rule_tests()["budget.yml"]["tests"]:
        shown = {
            found for row in test["input_series"] for found in re.findall(r'verdict="(\w+)"', row["series"])
        }
        fired = [check for check in test["alert_rule_test"] if check["exp_alerts"]]
        if shown & {*BROKEN} == {verdict} and fired:
            pages += [check for check in fired if check["alertname"] == "ForkwatchResumeBudgetBurnFast"]
    assert pages


def test_every_verdict_is_on_one_side_of_the_objective() -> None:
    """Judged, refused or unjudged: a new verdict must be put somewhere."""
    judged = re.findall(r'verdict=~"([^"]+)"', recordings()["upstream:forkwatch_resume_judged:increase1h"])
    unjudged = re.findall(
        r'verdict=~"([^"]+)"', recordings()["upstream:forkwatch_resume_unjudged:increase1h"]
    )
    sides = [*judged[0].split("|"), *unjudged[0].split("|"), "refused"]
    assert sorted(sides) == sorted(Verdict)


def test_runbooks_are_those_of_the_alerts() -> None:
    """One each, and none that nothing leads to."""
    assert {path.stem for path in RUNBOOKS.iterdir()} == {*alerts()}


@each_runbook
def test_a_runbook_says_what_it_means_and_what_to_do(path: Path) -> None:
    """It has its three parts, its alert's severity, and exactly three commands."""
    text = path.read_text()
    heads = re.findall(r"^#+ (.*)$", text, re.M)
    assert heads == [path.stem, "What it means", "First three commands", "What to do"]
    assert f"Severity: {alerts()[path.stem]['labels']['severity']}." in text
    assert len(commands(path)) == 3
    assert set(re.findall(r"\bForkwatch[A-Z]\w+", text)) <= {*alerts()}


@each_runbook
def test_a_runbooks_commands_exist(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands are forkwatch's, or read the log, the metrics and the status page."""
    for command in commands(path):
        program, *words = command.split()
        match program:
            case "forkwatch":
                assert_can_be_typed(words, capsys)
            case "jq":
                assert_reads_the_log(command)
            case "curl":
                assert re.fullmatch(r"curl -sS \$STATUS/(livez|readyz|metrics)", command)
            case "promtool":
                assert re.fullmatch(
                    r"promtool (query instant \$PROMETHEUS '[^']+'|check (rules|config) .+)", command
                )
            case _:
                pytest.fail(f"unknown: {command}")


@pytest.mark.parametrize(
    "path", [*sorted(RUNBOOKS.glob("*.md")), RUNBOOKS.parent / "README.md"], ids=lambda p: p.stem
)
def test_commands_within_a_text_exist(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is told in passing can be typed as well."""
    for command in re.findall(r"`forkwatch ([^`]+)`", path.read_text()):
        assert_can_be_typed(command.split(), capsys)


def assert_can_be_typed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command line takes these words: a command, arguments it accepts, and options that its help names."""
    assert main([*words, "--help"]) == 0, words
    help = capsys.readouterr().out
    assert f"forkwatch {words[0]} " in help
    for option in words[1:]:
        if option.startswith("-"):
            assert re.search(rf"(?<![\w-]){option}\b", help), words


def assert_reads_the_log(command: str) -> None:
    """The events that a jq command selects and the fields it shows are of the log's catalogue."""
    events = re.findall(r'\.event=="([^"]+)"', command)
    assert {*events} <= {*EVENTS}
    fields = {field for event in events or EVENTS for field in EVENTS[event]}
    program = re.sub(r'"[^"]*"', "", command)
    named = {*re.findall(r"\.(\w+)", program)} | {
        name.strip() for shown in re.findall(r"\{([^}]*)\}", program) for name in shown.split(",")
    }
    assert named <= fields | {"ts", "level", "event", *BOUND}


def test_thresholds_are_positive_and_named_once() -> None:
    """A threshold that stands twice would make scalar() of nothing, and the alert silent."""
    names = [value for value in thresholds().values() if value > 0]
    assert len(names) == len(thresholds()) == 20
