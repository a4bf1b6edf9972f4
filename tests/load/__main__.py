"""`python -m tests.load`: servers and clients that know the truth, through a real forkwatch process.

Exit status 1 on any violation. The seed that is printed repeats the choices, not the timing.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop

from tests.load.report import table
from tests.load.soak import Options, Outcome, Soak

FAULTS = {
    "full disk": ("full", ""),
    "reader gone": ("gone", ""),
    "raising": ("file", "raising"),
    "clock": ("file", "stepping"),
}
"""Faults that take a process of their own: where its log goes, a detector that raises, a clock that steps."""


def soak(options: Options) -> Outcome:
    """One run, in a directory and a loop of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="load-") as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        return runner.run(Soak(options, Path(directory)).run())


def main(argv: list[str] | None = None) -> int:
    """Run, and print a table for each run."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=50, help="resumes a second, about")
    parser.add_argument("--mode", choices=("observe", "enforce"), default="observe")
    parser.add_argument(
        "--faults",
        action="store_true",
        help="kills, resets, broken logs, a detector that raises, a clock that steps",
    )
    parser.add_argument(
        "--defect", choices=("blind", "happy", "raising", "stepping", "uncollected"), default=""
    )
    asked = parser.parse_args(argv)
    options = Options(
        asked.seconds, asked.streams, asked.seed, asked.rate, asked.mode, asked.faults, asked.defect
    )
    runs = [options]
    if asked.faults:
        short = replace(
            options, seconds=max(8.0, asked.seconds / 6), streams=min(200, asked.streams), faults=False
        )
        runs = [
            replace(options, name="killed"),
            *(replace(short, name=name, log=log, defect=bad) for name, (log, bad) in FAULTS.items()),
        ]
    sound = True
    for run in runs:
        out = soak(run)
        print(("\n" if sys.stderr.isatty() else "") + table(out), flush=True)
        sound = sound and out.sound
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
