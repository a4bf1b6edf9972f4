"""How the auditing tool's report is read: only a whole answer is a pass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.supply import audit
from tests.supply.audit import Audit, Outcome, read
from tests.supply.runtime import OLDEST, runtime

ASKED = ["aiohttp", "orjson"]
CLEAN = {"name": "aiohttp", "version": "3.14.5", "vulns": []}
SKIPPED = {
    "name": "orjson",
    "skip_reason": "Dependency not found on PyPI and could not be audited: orjson (3.13.0)",
}
BUG = {"id": "PYSEC-2026-1", "fix_versions": ["3.14.1"], "aliases": ["CVE-2026-1"], "description": "…"}
BAD = {"name": "orjson", "version": "3.13.0", "vulns": [BUG, {**BUG, "fix_versions": [], "aliases": []}]}


def report(*packages: Mapping[str, object]) -> str:
    """What the tool prints."""
    return json.dumps({"dependencies": packages, "fixes": []})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            report(CLEAN, {**CLEAN, "name": "orjson"}),
            Audit(Outcome.CLEAN, ("2 packages were looked up, nothing is known of any",)),
        ),
        (report(CLEAN, SKIPPED), Audit(Outcome.NOT_AUDITED, ("1 of 2 packages were not looked up: orjson",))),
        (report(CLEAN), Audit(Outcome.NOT_AUDITED, ("1 of 2 packages were not looked up: orjson",))),
        (report(), Audit(Outcome.NOT_AUDITED, ("2 of 2 packages were not looked up: aiohttp, orjson",))),
        (
            report(BAD),
            Audit(
                Outcome.VULNERABLE,
                (
                    "orjson 3.13.0: PYSEC-2026-1, CVE-2026-1 (fixed in 3.14.1)",
                    "orjson 3.13.0: PYSEC-2026-1 (fixed in no version yet)",
                ),
            ),
        ),
        ("", Audit(Outcome.NOT_AUDITED, ("there was no report",))),
        ("No known vulnerabilities found", Audit(Outcome.NOT_AUDITED, ("there was no report",))),
        ("[]", Audit(Outcome.NOT_AUDITED, ("there was no report",))),
        ('{"dependencies": [{}]}', Audit(Outcome.NOT_AUDITED, ("there was no report",))),
    ],
    ids=["clean", "skipped", "left-out", "nothing", "vulnerable", "no-output", "no-json", "a-list", "odd"],
)
def test_a_report(text: str, expected: Audit) -> None:
    """A package that was skipped or left out makes it no pass; a vulnerability counts, whatever else is missing."""
    assert read(text, ASKED) == expected


@pytest.mark.parametrize(
    ("script", "required", "status", "said"),
    [
        ("echo 'no route' >&2; exit 1", False, 0, "audit: NOT AUDITED: "),
        ("echo 'no route' >&2; exit 1", True, 3, "audit: NOT AUDITED: "),
        (f"echo '{report(SKIPPED)}'", False, 0, "audit: NOT AUDITED: "),
        (f"echo '{report(BAD)}'; exit 1", False, 1, "audit: VULNERABLE\n"),
    ],
    ids=["unreachable", "unreachable-but-required", "all-skipped", "vulnerable"],
)
def test_a_run(
    script: str,
    required: bool,
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit status follows the outcome; what is printed last also stands in the file, for who comes later."""
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setattr(audit, "TOOL", tool)
    monkeypatch.setattr(audit, "WRITTEN", tmp_path / "build" / "audit.txt")
    assert audit.main(["--required"] if required else []) == status
    assert (tmp_path / "build" / "audit.txt").read_text().startswith(said)
    printed = capsys.readouterr().out
    assert said in printed
    assert ("!" * 100 in printed) is True
    if "no route" in script:
        assert "audit: pypi: no route\n" in printed
        assert "audit: osv: no route\n" in printed


def test_a_clean_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where every package was looked up it is one calm line."""
    packages = [{"name": name, "version": "1", "vulns": []} for name in runtime(OLDEST)]
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\necho '{report(*packages)}'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(audit, "TOOL", tool)
    monkeypatch.setattr(audit, "WRITTEN", tmp_path / "audit.txt")
    assert audit.main(["--required"]) == 0
    looked_up = f"audit: {len(packages)} packages were looked up, nothing is known of any\n"
    assert capsys.readouterr().out == looked_up + "audit: clean\n"
