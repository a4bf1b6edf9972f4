"""The dashboard compiles against Grafana's own types of a dashboard, and a misspelt one does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dashboards.files import dashboard
from tests.dashboards.tools import ran

pytestmark = pytest.mark.ops

HERE = Path(__file__).parent / "grafana"
COMPILER = HERE / "node_modules/typescript/bin/tsc"
OPTIONS = ["--noEmit", "--strict", "--skipLibCheck", "--module", "preserve", "--moduleResolution", "bundler"]


def compiled(made: dict[str, Any], directory: Path) -> str:
    """What the compiler says of a dashboard, nothing if it fits; skips where the types are not installed."""
    if not COMPILER.exists():
        pytest.skip("Grafana's types are not installed: npm ci in tests/dashboards/grafana, or make ops")
    for note in made["annotations"]["list"]:
        for key in (
            "expr",
            "titleFormat",
            "textFormat",
        ):  # the data source's own, of which the schema knows nothing
            note.pop(key, None)
    lines = [(HERE / "types.ts").read_text(), f"export const dashboard: Checked = {json.dumps(made)};"]
    for panel in made["panels"]:
        if panel["type"] != "row":
            number, defaults = panel["id"], panel["fieldConfig"]["defaults"]
            options = f"CheckedOptions['{panel['type']}']"
            lines.append(f"export const options{number}: {options} = {json.dumps(panel['options'])};")
            lines.append(f"export const targets{number}: CheckedTarget[] = {json.dumps(panel['targets'])};")
            custom = json.dumps(defaults.get("custom", {}))
            lines.append(f"export const custom{number}: CheckedCustom = {custom};")
    (directory / "node_modules").symlink_to(HERE / "node_modules")
    source = directory / "dashboard.ts"
    source.write_text("\n".join(lines))
    return ran("node", COMPILER, *OPTIONS, source).stdout


def test_the_dashboard_is_one_for_grafana(tmp_path: Path) -> None:
    """No key, word or type in it is unknown to Grafana."""
    assert compiled(dashboard(), tmp_path) == ""


def misspelt_legend(made: dict[str, Any]) -> None:
    """A target's key."""
    target = made["panels"][1]["targets"][0]
    target["legendFromat"] = target.pop("legendFormat")


def unknown_mode(made: dict[str, Any]) -> None:
    """A word of an enumeration, deep in a panel."""
    made["panels"][1]["fieldConfig"]["defaults"]["thresholds"]["mode"] = "absolut"


def unknown_option(made: dict[str, Any]) -> None:
    """A word of an option that one kind of panel has."""
    made["panels"][1]["options"]["colorMode"] = "backgruond"


def wrong_type(made: dict[str, Any]) -> None:
    """A text where a number belongs."""
    made["panels"][1]["gridPos"]["w"] = "4"


@pytest.mark.parametrize("spoil", [misspelt_legend, unknown_mode, unknown_option, wrong_type])
def test_a_spoilt_dashboard_is_none(spoil: Callable[[dict[str, Any]], None], tmp_path: Path) -> None:
    """The check sees what it is there to see."""
    made = dashboard()
    spoil(made)
    assert "error TS" in compiled(made, tmp_path)
