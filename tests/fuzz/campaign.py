"""One run of one fuzzer: libFuzzer, by way of atheris, in a process of its own, and what is made of its words.

atheris is only needed here: it is installed into an environment of its own by `make fuzz`, and replaying the
kept corpus does without it.
"""

from __future__ import annotations

import importlib
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.target import CORPUS, Target

HANG_S = 20
"""An input that takes longer is a finding, whatever it does."""
MEMORY_MB = 2048
REDUCE_S = 20.0
_SLACK_S = 120.0
"""How much longer than asked a run may take before it is ended: it has a last input to finish."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did. `coverage` is that of the corpus and what was added to it, in edges."""

    name: str
    executions: int
    seconds: float
    coverage: tuple[int, int]
    kept: int
    input: Path | None
    complaint: str

    def line(self) -> str:
        """One line for a person."""
        first, last = self.coverage
        found = f"FINDING {self.input}: {self.complaint}" if self.input else "no finding"
        return (
            f"{self.name}: {self.executions} executions in {self.seconds:.0f} s, "
            f"coverage {first} + {last - first} edges, {self.kept} inputs kept, {found}"
        )


def run(name: str, seconds: int, seed: int, work: Path) -> Outcome:
    """Fuzz for so long; what was learnt stays in `work` for the next run."""
    grown = work / "grown" / name
    grown.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.fuzz.campaign", name, str(grown), str(CORPUS / name),
               f"-max_total_time={seconds}", f"-seed={seed}", f"-artifact_prefix={work}/{name}-",
               f"-timeout={HANG_S}", f"-rss_limit_mb={MEMORY_MB}", "-print_final_stats=1", "-verbosity=1"]  # fmt: skip
    (CORPUS / name).mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, capture_output=True, timeout=seconds + _SLACK_S, check=False)
    said = done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace")
    return _outcome(name, said, done.returncode, time.monotonic() - began)


def _outcome(name: str, said: str, status: int, took_s: float) -> Outcome:
    edges = [int(n) for n in re.findall(r"\bcov: (\d+)", said)] or [0]
    artifact = re.search(r"Test unit written to (\S+)", said)
    complaint = ""
    if status:
        raised = re.findall(
            r"^(?:[\w.]+\.)?(\w*(?:Finding|Error|Exception|Interrupt)\b.*)$", said, re.MULTILINE
        )
        complaint = (raised or [said.strip().splitlines()[-1] if said.strip() else "it died"])[0][:600]
    return Outcome(
        name=name,
        executions=_stat(said, "number_of_executed_units"),
        seconds=took_s,
        coverage=(edges[0], edges[-1]),
        kept=_stat(said, "new_units_added"),
        input=Path(artifact[1]) if artifact else (Path("none") if status else None),
        complaint=complaint,
    )


def _stat(said: str, name: str) -> int:
    found = re.search(rf"stat::{name}:\s+(\d+)", said) or re.search(r"#(\d+)\b(?!.*#\d)", said, re.DOTALL)
    return int(found[1]) if found else 0


def complaint_of(check: Callable[[bytes], None], data: bytes) -> str | None:
    """The kind of error that an input raises; None if it passes."""
    try:
        check(data)
    except Exception as error:
        return f"{type(error).__name__} {str(error).partition(':')[0][:40]}"
    return None


def reduced(check: Callable[[bytes], None], data: bytes) -> bytes:
    """A smaller input that raises the same kind of error: parts are left out as long as time allows."""
    wanted, until = complaint_of(check, data), time.monotonic() + REDUCE_S
    if wanted is None:
        return data
    size = max(1, len(data) // 2)
    while size and time.monotonic() < until:
        at = 0
        while at < len(data) and time.monotonic() < until:
            shorter = data[:at] + data[at + size :]
            if complaint_of(check, shorter) == wanted:
                data = shorter
            else:
                at += size
        size //= 2
    return data


def load(name: str) -> Target:
    """The fuzzer of this name."""
    found: Target = importlib.import_module(f"tests.fuzz.targets.{name}").TARGET
    return found


def _spliced(atheris: Any, words: Sequence[bytes]) -> Callable[[bytes, int, int], bytes]:
    """A mutator that now and then puts a word into the input, whole: libFuzzer's dictionary is cut to 64 bytes."""

    def mutated(data: bytes, most: int, seed: int) -> bytes:
        draw = random.Random(seed)
        if draw.random() < 0.4:
            return bytes(atheris.Mutate(data, most))  # looked up here: `Fuzz` puts another one in its place
        for _ in range(draw.randint(1, 3)):
            at = draw.randint(0, len(data))
            data = data[:at] + draw.choice(words) + data[at + draw.choice((0, 0, 1, 8)) :]
        return data[:most]

    return mutated


def main(arguments: Sequence[str]) -> None:
    """The process: NAME and libFuzzer's own arguments. Never returns."""
    name, *rest = arguments
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["proxy"]):
        target = load(name)
    atheris.Setup(
        [name, *rest, f"-max_len={target.largest}"],
        target.check,
        custom_mutator=_spliced(atheris, target.words),
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
