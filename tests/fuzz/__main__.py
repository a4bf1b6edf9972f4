"""`make fuzz`: `python -m tests.fuzz NAME --seconds 60 --seed 1` runs one fuzzer, without a name all of them.

`--replay FILE` gives one input to a fuzzer and lets its error out. Exits 1 on a finding, whose input is kept under
`.fuzz/`; 2 where atheris is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from tests.fuzz.campaign import load, reduced, run

NAMES = ("sse", "ids", "jsonrpc", "configuration", "exchanges", "requests", "answers")
WORK = Path(__file__).parents[2] / ".fuzz"


def main(argv: list[str]) -> int:
    """Run what is named; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("name", nargs="?", choices=NAMES, help="one fuzzer; all without")
    parser.add_argument("--seconds", type=int, default=60, help="how long each runs")
    parser.add_argument("--seed", type=int, default=1, help="0 is another one each time")
    parser.add_argument("--work", type=Path, default=WORK, help="where inputs are kept")
    parser.add_argument("--replay", type=Path, help="one input, given to the named fuzzer")
    options = parser.parse_args(argv)
    if options.replay is not None:
        load(options.name or parser.error("--replay needs a name")).check(options.replay.read_bytes())
        return 0
    if importlib.util.find_spec("atheris") is None:
        print("fuzzing needs atheris; `make fuzz` sets up an environment that has it", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    return max(_one(name, options) for name in ([options.name] if options.name else NAMES))


def _one(name: str, options: argparse.Namespace) -> int:
    outcome = run(name, options.seconds, options.seed, options.work)
    print(outcome.line(), flush=True)
    if outcome.input is None:
        return 0
    if outcome.input.is_file():
        small = outcome.input.with_name(f"{outcome.input.name}.reduced")
        small.write_bytes(reduced(load(name).check, outcome.input.read_bytes()))
        print(f"{name}: reduced to {small} ({small.stat().st_size} bytes)", flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
