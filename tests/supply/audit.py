"""Asks whether a runtime package has a known vulnerability. What could not be asked is said, and is no pass.

    make audit                                   an unreachable database is said loudly, and is no failure
    make audit ARGS=--required                   it is one
    make audit ARGS="--osv-url URL"              asks an OSV service of your own

The tool calls a package that its database does not know *skipped*, and a run that skipped all of them *no known
vulnerabilities*, with exit status 0: so its report is read here, package by package. The last line that is
printed also stands in build/audit.txt.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.supply.runtime import OLDEST, ROOT, pins, runtime

TOOL = ROOT / ".venv" / "supply" / "bin" / "pip-audit"
WRITTEN = ROOT / "build" / "audit.txt"
DEADLINE_S = 120.0
_WIDTH = 100


class Outcome(Enum):
    """What is known after asking."""

    CLEAN = "clean"
    """Every package was looked up, and nothing is known of any."""
    VULNERABLE = "vulnerable"
    """Something is known of at least one."""
    NOT_AUDITED = "not audited"
    """At least one was not looked up: nothing is known."""


@dataclass(frozen=True, slots=True)
class Audit:
    """The outcome, and the lines that explain it."""

    outcome: Outcome
    lines: tuple[str, ...]


def read(report: str, asked: Collection[str]) -> Audit:
    """What the tool's JSON report says of the packages asked for; anything else than a whole answer is none."""
    try:
        found = {one["name"]: one for one in json.loads(report)["dependencies"]}
        known = [
            f"{name} {one['version']}: {', '.join([bug['id'], *bug['aliases']])}"
            f" (fixed in {', '.join(bug['fix_versions']) or 'no version yet'})"
            for name, one in found.items()
            for bug in one.get("vulns", [])
        ]
    except (ValueError, LookupError, TypeError):
        return Audit(Outcome.NOT_AUDITED, ("there was no report",))
    if known:
        return Audit(Outcome.VULNERABLE, tuple(known))
    missed = [name for name in asked if "vulns" not in found.get(name, {})]
    if missed:
        said = f"{len(missed)} of {len(asked)} packages were not looked up: {', '.join(missed)}"
        return Audit(Outcome.NOT_AUDITED, (said,))
    return Audit(Outcome.CLEAN, (f"{len(asked)} packages were looked up, nothing is known of any",))


def main(argv: Sequence[str] | None = None) -> int:
    """Ask one service after the other until one answers; 1 if it knows anything."""
    parser = argparse.ArgumentParser(prog="make audit", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--required", action="store_true", help="fail if no service answers for every package"
    )
    parser.add_argument("--osv-url", metavar="URL", help="an OSV service of your own, asked alone")
    args = parser.parse_args(argv)
    own = ["-s", "osv", "--osv-url", args.osv_url]
    services = [own] if args.osv_url else [["-s", "pypi"], ["-s", "osv"]]
    audit = _ask(services)
    _say(audit)
    if audit.outcome is Outcome.NOT_AUDITED:
        return 3 if args.required else 0
    return 1 if audit.outcome is Outcome.VULNERABLE else 0


def _ask(services: list[list[str]]) -> Audit:
    versions = pins()
    asked = {name: versions[name] for name in runtime(OLDEST)}
    unknown: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "wanted.txt"
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in asked.items()))
        for service in services:
            audit, why = _run(service, wanted, asked)
            if audit.outcome is not Outcome.NOT_AUDITED:
                return audit
            unknown += tuple(f"{service[1]}: {line}" for line in (*audit.lines, *why))
    return Audit(Outcome.NOT_AUDITED, unknown)


def _run(service: list[str], wanted: Path, asked: Collection[str]) -> tuple[Audit, list[str]]:
    """What a service says; and the tool's last words where it made no report."""
    command = [str(TOOL), *service, "--no-deps", "--disable-pip", "-r", str(wanted), "-f", "json"]
    command += ["--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Audit(Outcome.NOT_AUDITED, (f"no answer within {DEADLINE_S:.0f} s",)), []
    last = done.stderr.strip().splitlines()[-1:] if not done.stdout.strip() else []
    return read(done.stdout, asked), [line[:200] for line in last]


def _say(audit: Audit) -> None:
    for line in audit.lines:
        print(f"audit: {line}")
    loud = audit.outcome is not Outcome.CLEAN
    said = f"audit: {audit.outcome.value.upper() if loud else audit.outcome.value}"
    if audit.outcome is Outcome.NOT_AUDITED:
        said += ": no vulnerability database answered for all packages. THIS IS NO PASS: run `make audit` where one can"
    print("\n".join(["!" * _WIDTH, said, "!" * _WIDTH]) if loud else said, flush=True)
    WRITTEN.parent.mkdir(exist_ok=True)
    WRITTEN.write_text(f"{said}\n")


if __name__ == "__main__":
    sys.exit(main())
