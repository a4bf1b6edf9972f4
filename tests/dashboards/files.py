"""The files of dashboards/ as the tests read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import yaml

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
RULES = DASHBOARDS / "rules"
RUNBOOKS = DASHBOARDS / "runbooks"
SCOPE = {"$__rate_interval": "2m", "$__interval": "10s", "$job": ".+", "$instance": ".+", "$upstream": ".+"}
"""What Grafana would put in for its variables when everything is selected."""


class Query(NamedTuple):
    """One query of a panel, as it is sent."""

    panel: str
    expression: str


def document(path: Path) -> Any:
    """The one YAML document of a file."""
    return yaml.safe_load(path.read_text())


def rules(name: str) -> list[dict[str, Any]]:
    """The rules of dashboards/rules/NAME.yml, in order."""
    return [rule for group in document(RULES / f"{name}.yml")["groups"] for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    """The alerts by name."""
    return {rule["alert"]: rule for rule in rules("alerts")}


def recordings() -> dict[str, str]:
    """The expressions of the recorded series by name, thresholds apart."""
    return {rule["record"]: rule["expr"] for rule in rules("recording")}


def thresholds() -> dict[str, float]:
    """The thresholds by name."""
    return {
        rule["labels"]["name"]: float(rule["expr"].removeprefix("vector(").removesuffix(")"))
        for rule in rules("thresholds")
    }


def rule_tests() -> dict[str, Any]:
    """The promtool test files by name."""
    return {path.name: document(path) for path in sorted((RULES / "tests").glob("*.yml"))}


def dashboard() -> dict[str, Any]:
    """The incident dashboard."""
    made: dict[str, Any] = json.loads((DASHBOARDS / "forkwatch-incident.json").read_text())
    return made


def panels() -> list[dict[str, Any]]:
    """Its panels without the rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries() -> list[Query]:
    """Every query of every panel, and of the annotations, with everything selected."""
    found = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    found += [(note["name"], note["expr"]) for note in dashboard()["annotations"]["list"]]
    return [Query(title, filled_in(expression)) for title, expression in found]


def filled_in(text: str) -> str:
    """A query with Grafana's variables replaced."""
    for variable, value in SCOPE.items():
        text = text.replace(variable, value)
    return text
