"""The catalogue of log events is closed: what the code says, what it lists and what the README tells are one."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.logs import BOUND, EVENTS

ROOT = Path(__file__).parents[1]
NAME = re.compile(r"[a-z]+\.[a-z_]+")
SAYS = {"event": 0, "_thinned": 2}
"""The methods that log, and which of their arguments names the event."""
THINNED = frozenset({"repeated"})
BESIDE = {"log.dropped": {"count"}, "resume.judged": {"hint", "repeated"}, "admin.request": {"repeated"}}
"""What is said otherwise than by keywords of such a call."""


def calls() -> Iterator[tuple[str, ast.Call, bool]]:
    """Every call in the package that logs: the event, the call, whether repeats of it are thinned."""
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            place = SAYS.get(node.func.attr)
            if place is None or len(node.args) <= place:
                continue
            for constant in ast.walk(node.args[place]):
                if isinstance(constant, ast.Constant) and NAME.fullmatch(str(constant.value)):
                    yield str(constant.value), node, node.func.attr == "_thinned"


def said() -> dict[str, set[str]]:
    """Each event that the code logs, with the keys it ever gives it beyond the bound ones."""
    keys: dict[str, set[str]] = defaultdict(set)
    for event, call, thinned in calls():
        given = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        keys[event] |= given - {"level"} - set(BOUND) | (THINNED if thinned else set())
    for event, beside in BESIDE.items():
        keys[event] |= beside
    return keys


def test_every_event_of_the_catalogue_is_logged_somewhere_and_no_other() -> None:
    """An entry that nothing says is a promise nobody keeps."""
    assert set(said()) == set(EVENTS)


@pytest.mark.parametrize("event", sorted(EVENTS))
def test_an_event_has_the_keys_that_the_catalogue_lists(event: str) -> None:
    """Each key is given somewhere, and none that is not listed."""
    assert said()[event] == EVENTS[event]


def test_the_readme_documents_every_event_and_no_other() -> None:
    """In its table of events, by name."""
    table = (ROOT / "README.md").read_text().split("| event | when |")[1].split("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("|")]
    assert sorted(re.findall(r"`([a-z.]+_?[a-z_]*)`", " ".join(first_cells))) == sorted(EVENTS)
