"""What was measured of each client, printed as a table when the tests are over."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

import pytest

from tests.peers.driver import HANG, Outcome

_NAME = "forkwatch-client-table"


@dataclass
class ClientTable:
    """A table for each mode: cases by clients. It is a plugin of pytest, so that it is asked at the end."""

    versions: dict[str, str] = field(default_factory=dict)
    modes: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, config: pytest.Config) -> ClientTable:
        """The tables of this test run."""
        table = config.pluginmanager.get_plugin(_NAME)
        if table is None:
            table = cls()
            config.pluginmanager.register(table, _NAME)
        assert isinstance(table, cls)
        return table

    def put(self, mode: str, case: str, client: str, text: str) -> None:
        """What this client did in this case and mode."""
        self.modes.setdefault(mode, {}).setdefault(case, {})[client] = text

    def lines(self) -> list[str]:
        """The tables in Markdown."""
        lines = [f"Measured {datetime.datetime.now(tz=datetime.UTC).date()}."]
        for mode, cases in self.modes.items():
            lines += ["", f"**{mode}**", "", "| case | " + " | ".join(self.versions.values()) + " |"]
            lines.append("|---|" + "---|" * len(self.versions))
            for case, cells in cases.items():
                row = " | ".join(cells.get(client, "") for client in self.versions)
                lines.append(f"| {case} | {row} |")
        return lines

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print it."""
        terminalreporter.section("what the clients did (docs/clients.md)")
        for line in self.lines():
            terminalreporter.line(line)


def words(outcome: Outcome, took_s: float, wrong: tuple[str, ...]) -> str:
    """A cell: how a call ended, and after how long; `wrong` are the answers of another log."""
    if outcome == HANG:
        return "hangs"
    if outcome.kind == "result":
        return "takes the wrong answer" if outcome.text in wrong else "is answered"
    return f"error {outcome.code}, {took_s * 1000:.0f} ms"
