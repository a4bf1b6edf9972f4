"""The load in small: what is healthy is never accused, what is forked is never missed, and it can tell."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.load.report import table
from tests.load.soak import Options, Outcome, Soak

SECONDS = 7.0
RUNS = {
    "observe": Options(SECONDS, 100, seed=11, rate=40, deadline_s=1, defect="uncollected"),
    "enforce": Options(SECONDS, 100, seed=12, rate=40, deadline_s=1, mode="enforce", defect="uncollected"),
    "blind": Options(SECONDS / 2, 20, seed=13, rate=10, deadline_s=1, defect="blind"),
    "happy": Options(SECONDS / 2, 20, seed=14, rate=10, deadline_s=1, defect="happy"),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """All runs, side by side in one loop, each with a proxy of its own."""

    async def run() -> list[Outcome]:
        soaks = [Soak(options, tmp_path_factory.mktemp(name)) for name, options in RUNS.items()]
        return await asyncio.gather(*(soak.run() for soak in soaks))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return dict(zip(RUNS, runner.run(run()), strict=True))


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_every_verdict_is_true_and_every_byte_is_the_upstreams(
    outcomes: dict[str, Outcome], mode: str
) -> None:
    """No fork is missed, nothing healthy is accused or cut, no event is altered, nothing is left over.

    Not even for a garbage collector: there is none.
    """
    out = outcomes[mode]
    assert dict(out.violations.counts) == {}, table(out)
    assert out.totals.resumes == out.judge.judged > 100
    assert out.totals.events > 1000


def test_a_detector_that_sees_nothing_is_found_out(outcomes: dict[str, Outcome]) -> None:
    """Forks are missed, and the load says so."""
    assert outcomes["blind"].violations.counts["missed fork"] > 0, table(outcomes["blind"])


def test_a_rule_that_accuses_everybody_is_found_out(outcomes: dict[str, Outcome]) -> None:
    """Healthy resumes are called forks, and the load says so."""
    assert outcomes["happy"].violations.counts["false alarm"] > 0, table(outcomes["happy"])
