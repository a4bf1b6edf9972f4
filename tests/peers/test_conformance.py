"""The official conformance suite sees no difference: each check ends the same with forkwatch in between.

Four servers, one on each generation of the official SDKs, hold what the suite calls (servers/suite.json). The suite
runs against each of them directly and through a real process in each mode, every time against a new server process,
and what is compared is every single check. The suite's URL names localhost: one of its scenarios sends a foreign Host
and Origin and wants the server to refuse them, which it can only if the proxy leaves both alone.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.forkwatch_process import ALARMS, Counters, Forkwatch, Verdicts
from tests.peers.processes import MODULES, NODE, Server

SUITE = [NODE[0], str(MODULES / "@modelcontextprotocol/conformance/dist/index.js"), "server"]
SUITE_TIMEOUT_S = 120.0
MODES = ["observe", "annotate", "enforce"]

Check = tuple[str, str, str]
"""A scenario, the id of one of its checks, and the status it ended with."""


@dataclass(frozen=True)
class Result:
    """What one run of the suite said; `checks` says how often each check came."""

    checks: Counter[Check]
    took_s: float

    def ended(self, status: str) -> int:
        """How many checks ended so."""
        return sum(often for check, often in self.checks.items() if check[2] == status)

    @property
    def scores(self) -> tuple[int, int, int]:
        """The scenarios that ran, and the checks that passed and failed."""
        return len({check[0] for check in self.checks}), self.ended("SUCCESS"), self.ended("FAILURE")


@dataclass(frozen=True)
class Case:
    """One server and one revision of the protocol, with what the suite says of that server itself."""

    server: str
    revision: str
    scenarios: int
    passed: int
    failed: int
    resumes: int

    @property
    def id(self) -> str:
        """Its name in a test report."""
        return f"{self.server}-{self.revision}"


# Of 2026-07-28 all scenarios pass that count; those that do not are about tasks and custom headers, which are
# optional and which these servers do not have. In that revision there is nothing to resume.
CASES = [
    Case("suite-py1", "2025-11-25", scenarios=33, passed=84, failed=0, resumes=1),
    Case("suite-py2", "2025-11-25", scenarios=33, passed=84, failed=0, resumes=1),
    Case("suite-ts1", "2025-11-25", scenarios=33, passed=84, failed=0, resumes=1),
    Case("suite-ts2", "2025-11-25", scenarios=33, passed=84, failed=0, resumes=1),
    Case("suite-py2", "2026-07-28", scenarios=50, passed=149, failed=35, resumes=0),
    Case("suite-ts2", "2026-07-28", scenarios=50, passed=153, failed=35, resumes=0),
]


async def run_suite(port: int, revision: str, directory: Path) -> Result:
    """Run all that the suite has for a revision against a port of localhost; AssertionError if it runs nothing."""
    started = time.monotonic()
    options = ["--url", f"http://localhost:{port}/mcp", "--requirements", revision, "-o", str(directory)]
    with (directory / "suite.txt").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*SUITE, *options, stdout=log, stderr=log)
        try:
            await asyncio.wait_for(process.wait(), SUITE_TIMEOUT_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    checks = read_checks(directory)
    assert checks, (directory / "suite.txt").read_text()[-1200:]
    return Result(checks, time.monotonic() - started)


def read_checks(directory: Path) -> Counter[Check]:
    """The checks that the suite wrote down, one file for each scenario."""
    checks: Counter[Check] = Counter()
    for file in directory.glob("server-*/checks.json"):
        found = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z", file.parent.name)
        assert found is not None, file.parent.name
        checks.update((found[1], each["id"], each["status"]) for each in json.loads(file.read_text()))
    return checks


@asynccontextmanager
async def serving(name: str, directory: Path) -> AsyncIterator[Server]:
    """A new process of this server, ended with the block."""
    server = Server(name, directory)
    await server.start()
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def watching(server: Server, mode: str, directory: Path) -> AsyncIterator[Forkwatch]:
    """Forkwatch with its defaults in front of the server, ended with the block."""
    proxy = Forkwatch([{"name": server.name, "url": server.url, "mode": mode}], directory).start()
    try:
        yield proxy
    finally:
        proxy.stop()


async def directly(case: Case, directory: Path) -> Result:
    """The suite's result without a proxy."""
    directory.mkdir()
    async with serving(case.server, directory) as server:
        return await run_suite(server.port, case.revision, directory)


async def proxied(case: Case, mode: str, directory: Path) -> tuple[Result, Verdicts]:
    """The suite's result with forkwatch in between, and the verdicts it gave, none of them an alarm."""
    directory.mkdir()
    async with serving(case.server, directory) as server, watching(server, mode, directory) as proxy:
        counters = await Counters.since_now(proxy)
        result = await run_suite(proxy.port, case.revision, directory)
        verdicts = await counters.settled()
        assert {verdict for verdict, _, _ in verdicts} & ALARMS == set(), f"{mode}: {verdicts}"
        assert await counters.grown("fail_open_total") == 0, mode
        assert await counters.grown("http_requests_total") > case.scenarios, "the suite went past the proxy"
        return result, verdicts


def row(case: Case, variant: str, result: Result, differing: int) -> str:
    """A line of the table that every run prints."""
    ran, passed, failed = result.scores
    counts = f"{ran:>3} scenarios  {passed:>3} passed  {failed:>3} failed  {differing:>2} differ"
    return f"{case.server}  {case.revision}  {variant:<8}  {counts}  {result.took_s:5.1f} s"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_each_check_ends_as_without_the_proxy(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through every mode each check of each scenario has the status it has directly, and no alarm is raised."""
    direct = await directly(case, tmp_path / "direct")
    rows = ["", row(case, "direct", direct, 0)]
    differing: dict[str, tuple[Counter[Check], Counter[Check]]] = {}
    resumes: dict[str, int] = {}
    for mode in MODES:
        result, verdicts = await proxied(case, mode, tmp_path / mode)
        only_direct, only_proxied = direct.checks - result.checks, result.checks - direct.checks
        rows.append(row(case, mode, result, max(only_direct.total(), only_proxied.total())))
        differing[mode] = only_direct, only_proxied
        resumes[mode] = sum(verdicts.values())
    with capsys.disabled():
        print("\n".join(rows))
    assert differing == dict.fromkeys(MODES, (Counter(), Counter())), "\n".join(rows)
    assert resumes == dict.fromkeys(MODES, case.resumes)
    assert direct.scores == (case.scenarios, case.passed, case.failed)
