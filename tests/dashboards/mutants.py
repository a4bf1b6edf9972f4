"""Broken copies of the rules: every way that is known here to get one alert or one recorded series wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.dashboards import promql

THRESHOLD = re.compile(r'scalar\(forkwatch:threshold\{name="(\w+)"\}\)')
FLIPPED = {
    "== 0": "== 1",
    "== 1": "== 0",
    "> 0": "> 3",
    " and\n": " or\n",
    " unless ": " and ",
    "absent(": "count(",
}
LONGER = {"[5m]": "[1h]", "[10m]": "[1h]", "[30m]": "[6h]", "[1h]": "[3h]", "[6h]": "[1d]", "[3d]": "[1d]"}


class Mutant(NamedTuple):
    """One rule got wrong: `what` says how, `rule` replaces the right one."""

    what: str
    rule: dict[str, Any]


def of_alert(rule: dict[str, Any]) -> list[Mutant]:
    """An alert with each threshold doubled and halved, and every label, word, window and wait changed."""
    right = rule["expr"]
    expressions = _thresholds(right) | dict(_expressions(right)) | dict(_other_windows(right))
    found = [Mutant(what, {**rule, "expr": expression}) for what, expression in expressions.items()]
    if "for" in rule:
        found.append(Mutant("does not wait", {key: value for key, value in rule.items() if key != "for"}))
    other = "info" if rule["labels"]["severity"] == "critical" else "critical"
    found.append(Mutant(f"severity {other}", {**rule, "labels": {"severity": other}}))
    return found


def of_recording(rule: dict[str, Any]) -> list[Mutant]:
    """A recorded series with every label, window and operation changed once."""
    expression = rule["expr"]
    changed = dict(_expressions(expression))
    for verdict in re.findall(r'verdict=~"([^"]+)"', expression)[:1]:
        for one in verdict.split("|"):
            rest = "|".join(each for each in verdict.split("|") if each != one)
            changed[f"forgets {one}"] = expression.replace(f'"{verdict}"', f'"{rest}"')
    swaps = {
        "sum without": "max without",
        " / (": " * (",
        "0.99": "0.5",
        "rate(": "delta(",
        "increase(": "rate(",
    }
    for right, wrong in swaps.items():
        if right in expression:
            changed[f"{right} is {wrong}"] = expression.replace(right, wrong, 1)
    return [Mutant(what, {**rule, "expr": wrong}) for what, wrong in changed.items()]


def _thresholds(expression: str) -> dict[str, str]:
    found = {}
    for name in dict.fromkeys(THRESHOLD.findall(expression)):
        right = f'scalar(forkwatch:threshold{{name="{name}"}})'
        for factor in ("2", "0.5"):
            found[f"{factor} times {name}"] = expression.replace(right, f"({factor} * {right})")
    return found


def _expressions(expression: str) -> Iterator[tuple[str, str]]:
    for matcher in dict.fromkeys(promql.matchers(expression)):
        if matcher.series != "forkwatch:threshold":
            right = f'{matcher.label}{matcher.operator}"{matcher.value}"'
            yield f"{right} is another", expression.replace(right, f'{matcher.label}="another"')
    for words in (FLIPPED, LONGER):
        for right, wrong in words.items():
            if right in expression:
                yield f"{right.strip()} is {wrong.strip()}", expression.replace(right, wrong)


def _other_windows(expression: str) -> Iterator[tuple[str, str]]:
    """Of the two windows of a burn, each put in the other's place: what is left has one window only."""
    named = dict.fromkeys(re.findall(r"ratio_increase(\w+)", expression))
    for one in named:
        for other in named:
            if one != other:
                wrong = expression.replace(f"ratio_increase{one}", f"ratio_increase{other}")
                yield f"{one} is {other}", wrong
