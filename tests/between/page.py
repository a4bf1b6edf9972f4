"""docs/proxies.md as the tests read it: its tables and its snippets."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "proxies.md"
SNIPPET = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)

Table = dict[str, dict[str, str]]
"""By row and column."""


def section(heading: str) -> str:
    """The text below a heading of the page."""
    _, _, rest = PAGE.read_text().partition(f"\n## {heading}\n")
    return rest.partition("\n## ")[0]


def table(heading: str) -> Table:
    """The table below a heading."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    (_, *titles), _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: dict(zip(titles, cells, strict=True)) for name, *cells in rows}


def snippets() -> list[str]:
    """The blocks of code of the page, in order."""
    return SNIPPET.findall(PAGE.read_text())
