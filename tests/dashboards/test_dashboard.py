"""The dashboard's shape: what Grafana needs in order to show it, and a reader in order to use it."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest

from tests.dashboards.files import dashboard, panels, thresholds

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UNITS = {"short", "none", "ops", "reqps", "s", "bytes", "percentunit"}
QUESTIONS = [
    "1. Is it broken now, and for whom?",
    "2. What kind of failure is it?",
    "3. Why do clients reconnect?",
    "4. What did the proxy do about it?",
    "5. Is it the proxy itself?",
]
LINES = {
    "Broken resumes, by upstream and proxy": "error_budget",
    "Event loop lag": "loop_lag_seconds",
    "Share of the limits": "full_share",
    "Time spent on a read": "overhead_seconds",
}
"""The threshold that a panel's dashed line copies."""
each_panel = pytest.mark.parametrize("panel", panels(), ids=[panel["title"] for panel in panels()])


def test_the_rows_are_the_questions_in_order() -> None:
    """From top to bottom, the rows are what an on-call asks, one after another."""
    rows = [panel for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert [row["title"] for row in sorted(rows, key=lambda row: row["gridPos"]["y"])] == QUESTIONS
    assert not any(row["collapsed"] or row["panels"] for row in rows)


def test_the_dashboard_can_be_loaded_and_is_found_again() -> None:
    """A fixed uid, no id of one installation, a schema that Grafana 11 reads, and no edits that get lost."""
    made = dashboard()
    assert (made["uid"], made["schemaVersion"], made["editable"]) == ("forkwatch-incident", 39, False)
    assert "id" not in made


def test_panels_have_ids_and_places_of_their_own() -> None:
    """No id stands twice, no panel lies on another or beyond the 24 columns, none floats over a hole."""
    shown = dashboard()["panels"]
    assert len({panel["id"] for panel in shown}) == len(shown)
    places = [panel["gridPos"] for panel in shown]
    assert all(place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["h"] > 0 for place in places)
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
    filled = {y for place in places for y in range(place["y"], place["y"] + place["h"])}
    assert filled == set(range(max(filled) + 1))


@each_panel
def test_a_panel_explains_itself(panel: dict[str, Any]) -> None:
    """A title, a sentence, a unit, and the data source that the reader chose."""
    assert panel["type"] in {"stat", "timeseries", "table"}
    assert panel["title"]
    assert panel["description"].endswith((".", "?"))
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert panel["datasource"] == SOURCE


@each_panel
def test_a_panels_targets_are_complete(panel: dict[str, Any]) -> None:
    """Each has an expression, a legend, the chosen data source, and a letter of its own."""
    targets = panel["targets"]
    assert targets
    assert len({target["refId"] for target in targets}) == len(targets)
    for target in targets:
        assert target["expr"]
        assert target["legendFormat"]
        assert target["datasource"] == SOURCE
        assert target["instant"] is not target["range"]
        assert target["instant"] is (panel["type"] != "timeseries")


@each_panel
def test_a_panel_obeys_the_variables(panel: dict[str, Any]) -> None:
    """Every selector is limited to the chosen jobs and proxies, and to the upstreams where there are some."""
    for target in panel["targets"]:
        for selector in re.findall(r"\{([^}]*)\}", target["expr"]):
            if "alertname" in selector:  # an alert may have lost the labels of its proxy
                continue
            assert 'job=~"$job",instance=~"$instance"' in selector
        for series in re.findall(
            r"forkwatch_(?:resume|events|streams|sessions|findings)\w*\{([^}]*)\}", target["expr"]
        ):
            assert 'upstream=~"$upstream"' in series


@each_panel
def test_a_rate_looks_as_far_back_as_grafana_says(panel: dict[str, Any]) -> None:
    """A fixed window is right only where the title names it: an hour."""
    for target in panel["targets"]:
        windows = set(re.findall(r"\[([^\]]+)\]", target["expr"]))
        assert windows <= ({"1h"} if "1 h" in panel["title"] else {"$__rate_interval"})


def test_the_variables_are_what_the_queries_use() -> None:
    """One for each `$name`, in the order in which each narrows the next."""
    variables = dashboard()["templating"]["list"]
    assert [variable["name"] for variable in variables] == ["datasource", "job", "instance", "upstream"]
    for variable in variables[1:]:
        assert (variable["multi"], variable["allValue"], variable["refresh"]) == (True, ".+", 2)


def test_dashed_lines_are_copies_of_the_thresholds() -> None:
    """A line shows where the alert is, and a changed threshold must move it."""
    lines = {
        panel["title"]: panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1]["value"]
        for panel in panels()
        if "thresholdsStyle" in panel["fieldConfig"]["defaults"].get("custom", {})
    }
    assert lines == {title: thresholds()[name] for title, name in LINES.items()}
    (goal,) = [panel for panel in panels() if panel["title"] == "Resumes that went on, 1 h"]
    assert (
        goal["fieldConfig"]["defaults"]["thresholds"]["steps"][-1]["value"]
        == 1 - thresholds()["error_budget"]
    )
