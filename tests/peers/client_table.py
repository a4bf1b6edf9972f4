"""What was measured of each client, printed as a table when the tests are over."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import pytest

from tests.peers.driver import HANG, Outcome

MODES = ("observe", "enforce")
_NAME = "forkwatch-client-table"


@dataclass
class ClientTable:
    """Cells by case, client and mode; a plugin of pytest, so that it is asked at the end."""

    versions: dict[str, str] = field(default_factory=dict)
    cells: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, config: pytest.Config) -> ClientTable:
        """The one table of this test run."""
        table = config.pluginmanager.get_plugin(_NAME)
        if table is None:
            table = cls()
            config.pluginmanager.register(table, _NAME)
        assert isinstance(table, cls)
        return table

    def put(self, case: str, client: str, mode: str, text: str) -> None:
        """What this client did in this case and mode."""
        self.cells.setdefault((case, client), {})[mode] = text

    def lines(self) -> list[str]:
        """The table in Markdown."""
        today = datetime.datetime.now(tz=datetime.UTC).date()
        versions = ", ".join(self.versions.values())
        lines = [f"Measured {today} with {versions}.", ""]
        lines += ["| case | client | " + " | ".join(MODES) + " |", "|---|---|" + "---|" * len(MODES)]
        for (case, client), by_mode in self.cells.items():
            lines.append(f"| {case} | {client} | " + " | ".join(by_mode.get(m, "") for m in MODES) + " |")
        return lines

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print it."""
        terminalreporter.section("what the clients did (docs/clients.md)")
        for line in self.lines():
            terminalreporter.line(line)


def words(outcome: Outcome, took_s: float, wrong: tuple[str, ...]) -> str:
    """A cell: how a call ended; `wrong` are the answers of another log."""
    if outcome == HANG:
        return "hangs"
    if outcome.kind == "result":
        return "accepts the wrong answer" if outcome.text in wrong else "is answered"
    return f"error {outcome.code} after {took_s * 1000:.0f} ms"
