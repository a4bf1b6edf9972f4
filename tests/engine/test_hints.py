"""Hints: every alarm has one, the row that asks for most wins, and docs/hints.md is the catalogue."""

from __future__ import annotations

import re
from itertools import groupby, product
from pathlib import Path

import pytest

from proxy.engine.findings import PRODUCIBLE, REASONS, Certainty, Reason, Verdict
from proxy.engine.hints import CATALOGUE, LONGEST, Row, hint
from proxy.engine.ids import names
from tests.engine.drive import Drive
from tests.engine.test_servers import ALARMS, ROWS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hints.md"
PROVEN, SUSPECTED = Certainty.PROVEN, Certainty.SUSPECTED

Circumstances = tuple[Verdict, Reason, Certainty, str | None, bool | None]
CIRCUMSTANCES: list[Circumstances] = [
    (verdict, reason, certainty, dialect, moved)
    for (verdict, reason, certainty), dialect, moved in product(
        PRODUCIBLE, (None, *names(), "epoch:seq"), (None, False, True)
    )
]
ANOTHER = {None: "", True: "another", False: "the same"}


def said(
    verdict: Verdict, reason: Reason, certainty: Certainty, dialect: str | None, moved: bool | None
) -> str | None:
    """The hint, by position."""
    return hint(verdict=verdict, reason=reason, certainty=certainty, dialect=dialect, moved=moved)


def chosen(
    verdict: Verdict, reason: Reason, certainty: Certainty, dialect: str | None, moved: bool | None
) -> Row:
    """The row whose text is the hint."""
    text = said(verdict, reason, certainty, dialect, moved)
    return next(row for row in CATALOGUE if row.text == text)


def render() -> str:
    """The catalogue as the tables of docs/hints.md."""
    tables = []
    for verdict, rows in groupby(CATALOGUE, key=lambda row: row.verdict):
        lines = [f"## {verdict}\n", "| reason | ids | replica | certainty | hint |", "|---|---|---|---|---|"]
        for row in rows:
            asked = (
                " ".join(f"`{reason}`" for reason in row.reasons),
                " ".join(f"`{dialect}`" for dialect in row.dialects),
                ANOTHER[row.moved],
                row.certainty or "",
            )
            lines.append(
                f"| {' | '.join((*asked, row.text))} |".replace("|  |", "| |").replace("|  |", "| |")
            )
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def prose() -> str:
    """What stands before the tables of docs/hints.md, written by hand."""
    return PAGE.read_text(encoding="utf-8").partition("\n## ")[0].rstrip() + "\n\n"


def rewrite() -> None:
    """Make the page what it should be."""
    PAGE.write_text(prose() + render(), encoding="utf-8")


def test_the_page_is_the_catalogue() -> None:
    """docs/hints.md shows every row, in order, in the words of the log line."""
    assert PAGE.read_text(encoding="utf-8") == prose() + render(), (
        "docs/hints.md is not the catalogue; this rewrites its tables:\n"
        '.venv/bin/python -c "from tests.engine.test_hints import rewrite; rewrite()"'
    )


def test_every_judgement_but_a_good_resume_has_a_hint() -> None:
    """Whatever the dialect and the replica; `resumed` has none."""
    assert {each[0] for each in CIRCUMSTANCES if said(*each) is None} == {Verdict.RESUMED}
    assert {said(*each) for each in CIRCUMSTANCES if each[0] is Verdict.RESUMED} == {None}


def test_a_reason_of_another_verdict_has_no_hint() -> None:
    """The catalogue knows only judgements that exist."""
    assert said(Verdict.FORK, Reason.FORWARD_JUMP, PROVEN, None, None) is None


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row.text[:40])
def test_a_hint_is_one_or_two_sentences_of_a_log_line(row: Row) -> None:
    """At most 240 characters, no line break, nothing that Markdown would swallow."""
    assert len(row.text) <= LONGEST == 240
    assert re.fullmatch(r"[^\n|<]+\.", row.text)
    assert len(re.findall(r"[.!?](?= [A-Z]|$)", row.text)) <= 2


@pytest.mark.parametrize("row", CATALOGUE, ids=lambda row: row.text[:40])
def test_a_row_asks_for_what_can_be(row: Row) -> None:
    """Its reasons are of its verdict, its certainty is theirs, its dialects have these names."""
    assert row.reasons
    for reason in row.reasons:
        certainties = REASONS[row.verdict][reason]
        assert row.certainty is None or row.certainty in certainties
    assert set(row.dialects) <= set(names())


def test_every_row_is_said_some_time() -> None:
    """No row is hidden behind others, and no two say the same."""
    texts = [row.text for row in CATALOGUE]
    assert len(set(texts)) == len(texts)
    assert set(texts) == {said(*each) for each in CIRCUMSTANCES} - {None}


def test_no_two_rows_are_equally_good() -> None:
    """One row at most stands for each weight in any circumstances, so that the order of the table is free."""
    ties = [
        (verdict, reason, weight)
        for verdict, reason, certainty, dialect, moved in CIRCUMSTANCES
        for weight, rows in groupby(
            sorted(
                row.weight
                for row in CATALOGUE
                if row.verdict is verdict and reason in row.reasons and row.fits(certainty, dialect, moved)
            )
        )
        if len(list(rows)) > 1
    ]
    assert ties == []


def test_a_changed_replica_is_said_and_only_then() -> None:
    """Every alarm of another replica than before begins with that; no other hint claims it."""
    alarms = [each for each in CIRCUMSTANCES if each[0] in ALARMS]
    claimed = {each for each in CIRCUMSTANCES if "replicas differ" in (said(*each) or "").lower()}
    assert {each for each in alarms if each[-1] is True} - claimed == set()
    assert {each[-1] for each in claimed} == {True}


@pytest.mark.parametrize("reason", [*REASONS[Verdict.FORK], *REASONS[Verdict.GAP]])
def test_an_alarm_of_an_unknown_replica_says_where_to_look(reason: Reason) -> None:
    """Without a dialect, and with nothing known of replicas, the hint still points at them or at the store."""
    verdict = Verdict.FORK if reason in REASONS[Verdict.FORK] else Verdict.GAP
    for certainty in REASONS[verdict][reason]:
        assert re.search(r"replica|event store|DELETE", said(verdict, reason, certainty, None, None) or "")


REBORN = (Verdict.FORK, Reason.LOG_RESTARTED)
NOTHING = (Verdict.GAP, Reason.NOTHING_REPLAYED)


@pytest.mark.parametrize(
    ("verdict", "reason", "certainty", "dialect", "moved", "dialects", "asked_moved", "asked_certainty"),
    [
        pytest.param(*REBORN, PROVEN, None, None, (), None, None, id="nothing known: the general row"),
        pytest.param(*REBORN, PROVEN, "epoch:seq", None, (), None, None, id="a pattern is no known server"),
        pytest.param(*REBORN, PROVEN, "swift", False, (), False, None, id="the same replica, no row for swift"),
        pytest.param(*REBORN, PROVEN, "rmcp", None, ("rmcp",), None, None, id="the server"),
        pytest.param(*REBORN, PROVEN, "rmcp", False, ("rmcp",), None, None, id="the server before the same replica"),
        pytest.param(*REBORN, PROVEN, "rmcp", True, ("rmcp",), True, None, id="the server and another replica"),
        pytest.param(*REBORN, PROVEN, "integer", True, (), True, None, id="another replica before the server"),
        pytest.param(*NOTHING, PROVEN, None, None, (), None, PROVEN, id="an empty stream"),
        pytest.param(*NOTHING, SUSPECTED, None, None, (), None, SUSPECTED, id="a silent stream"),
        pytest.param(*NOTHING, SUSPECTED, None, False, (), False, None, id="the same replica before the certainty"),
        pytest.param(*NOTHING, PROVEN, "uuid", False, ("uuid",), None, PROVEN, id="the server and the certainty"),
    ],
)  # fmt: skip
def test_the_row_that_asks_for_most_wins(
    verdict: Verdict,
    reason: Reason,
    certainty: Certainty,
    dialect: str | None,
    moved: bool | None,
    dialects: tuple[str, ...],
    asked_moved: bool | None,
    asked_certainty: Certainty | None,
) -> None:
    """A changed replica, then the server's dialect, then an unchanged replica, then the certainty."""
    row = chosen(verdict, reason, certainty, dialect, moved)
    assert (row.dialects, row.moved, row.certainty) == (dialects, asked_moved, asked_certainty)


SPELLED = {
    "typescript": "TypeScript SDK",
    "mcp": "Python SDK",
    "fastmcp": "FastMCP",
    "csharp-sdk": "C# SDK",
    "java-sdk": "Java SDK",
    "envoy": "Envoy AI gateway",
    "context-forge": "ContextForge",
    "redis": "Redis",
}
"""Servers of tests/engine/test_servers.py whose name in a hint is another."""

UNNAMED = {
    "mcp-proxy 6.7.19: the clock steps back",  # of every server whose ids carry the clock
    "turul DynamoDB: all events have expired: the next id is 1",  # a restart is likelier
    "kotlin-sdk 0.14.0: another stream's event",  # made up, no such server is known
    "swift-sdk 0.12: a call's event on the standalone stream",  # made up likewise
}
"""Alarms whose hint names no server."""


def test_the_hint_for_a_servers_known_failure_names_that_server() -> None:
    """Every server that raises an alarm in the engine's own table, with the dialect the engine saw."""
    unnamed = set()
    for row in ROWS:
        drive = Drive()
        drive.initialize()
        row.script(drive)
        name = row.server.split()[0]
        for judged in drive.judged:
            found = judged.judgement
            if found.verdict not in ALARMS:
                continue
            text = said(found.verdict, found.reason, found.certainty, judged.dialect, None)
            if SPELLED.get(name, name) not in (text or ""):
                unnamed.add(f"{row.server}: {row.what}")
    assert unnamed == UNNAMED
