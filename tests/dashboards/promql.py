"""What a PromQL expression names: its series, and the labels it selects or groups by.

No parser: it knows what the expressions here use, and real servers judge the syntax (`test_promtool`, `test_live`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
SELECTOR = re.compile(r"([A-Za-z_:][\w:]*)?\s*\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
NAME = re.compile(r"(?<![\w:$.])([A-Za-z_:][\w:]*)(?!\s*\(|[\w:])")
RANGE = re.compile(r"\[[^\]]*\]")
WORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring"}


class Matcher(NamedTuple):
    """One condition of a selector."""

    series: str
    label: str
    operator: str
    value: str


def series(expression: str) -> set[str]:
    """The names of all series that an expression reads."""
    bare = re.sub(r"\{[^}]*\}", " ", expression)
    bare = RANGE.sub(" ", GROUPING.sub(" ", bare))
    return {name for name in NAME.findall(bare) if name not in WORDS}


def matchers(expression: str) -> list[Matcher]:
    """All conditions of its selectors, in order."""
    return [
        Matcher(found[1] or "", *condition)
        for found in SELECTOR.finditer(expression)
        for condition in MATCHER.findall(found[2])
    ]


def grouping_labels(expression: str) -> set[str]:
    """The labels it groups or joins by."""
    return {label.strip() for found in GROUPING.findall(expression) for label in found.split(",")} - {""}
