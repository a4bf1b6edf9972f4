"""What relaying costs: forkwatch against nginx and HAProxy, in turn on one core, every byte verified.

The load (`load.c`) plays upstream and clients on the other core. All proxies run at once and are measured one
after the other, again and again, since machines are noisy: numbers are medians, and a ratio is the median of the
ratios to the nginx of the same minute. `--record` keeps the ratios for the next run to show beside its own.
Needs gcc, and nginx or haproxy on the PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tests.bench import interpreter

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RECORD = HERE / "record.json"
LOAD_CPU, PROXY_CPU = 0, 1
START_S = 10.0
CASE_S = 100.0
FILES = 20_000
PROXIES = ("nginx", "haproxy", "forkwatch")


class Case(NamedTuple):
    """One measurement: what the load does, the number of its result that counts, and the most it may be.

    `limit` is a ratio to nginx, or a plain number if `absolute`.
    """

    name: str
    flags: str
    field: str
    unit: str
    limit: float
    absolute: bool = False


CASES = [
    Case("idle stream", "--mode idle -c 1000 --hold 2", "rss_kb_per_stream", "KiB", 20.0, absolute=True),
    Case("opening a stream", "--mode idle -c 1000 --hold 2", "open_cpu_us_per_stream", "µs", 6.0),
    Case("event, 1 stream", "--mode sse -c 1 --size 200 --window 1", "cpu_us", "µs", 2.3),
    Case("event, 50 streams", "--mode sse -c 50 --size 200 --window 1", "cpu_us", "µs", 2.3),
    Case("event, 500 streams", "--mode sse -c 500 --size 200 --window 1", "cpu_us", "µs", 2.3),
    Case("event, 2000 streams", "--mode sse -c 2000 --size 200 --window 1", "cpu_us", "µs", 2.3),
    Case("event of 64 KiB", "--mode sse -c 4 --size 65536 --window 4", "cpu_us", "µs", 1.0),
    Case("POST answered by JSON", "--mode post -c 64", "cpu_us", "µs", 7.5),
    Case("POST answered by 3 events", "--mode postsse -c 64", "cpu_us", "µs", 7.0),
    Case("p50 at 1000 events/s", "--mode sse -c 50 --size 200 --rate 1000", "p50_us", "µs", 1.15),
]
Results = dict[tuple[str, str], list[float]]
"""By proxy and case: one number for each repetition, those of one place being of the same seconds."""


def free_port() -> int:
    """A loopback port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def pinned(cpu: int) -> Callable[[], None]:
    """What a child does before it becomes another program: stay on one core, with enough files."""

    def prepare() -> None:
        if len(os.sched_getaffinity(0)) > 1:
            os.sched_setaffinity(0, {cpu})
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))

    return prepare


def command(
    name: str, directory: Path, port: int, upstream: int, mode: str, python: str = sys.executable
) -> list[str]:
    """How `name` is started as a proxy from `port` to `upstream`."""
    if name == "forkwatch":
        address = f"127.0.0.1:{port}"
        flags = ["--listen", address, "--status", "127.0.0.1:0", "--upstream", f"http://127.0.0.1:{upstream}"]
        return [python, "-m", "proxy", "run", *flags, "--mode", mode, "--log-format", "json"]
    template = HERE / ("nginx.conf" if name == "nginx" else "haproxy.cfg")
    text = template.read_text()
    for word, value in (("DIR", str(directory)), ("UP", str(upstream)), ("PORT", str(port))):
        text = text.replace(word, value)
    file = directory / template.name
    file.write_text(text)
    if name == "nginx":
        return ["nginx", "-p", str(directory), "-c", str(file)]
    return ["haproxy", "-db", "-f", str(file)]


@contextmanager
def running(argv: list[str], directory: Path, port: int) -> Iterator[int]:
    """The proxy as a process, once it listens; its process id. RuntimeError if it does not."""
    log = directory / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out, cwd=ROOT, preexec_fn=pinned(PROXY_CPU))
    try:
        deadline = time.monotonic() + START_S
        while process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"{argv[0]} did not start: {log.read_text()[-500:]}")
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(1)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


class Bench:
    """One run: which proxies, for how long, where."""

    def __init__(self, directory: Path, options: argparse.Namespace) -> None:
        self._directory = directory
        self._options = options
        self._load = directory / "load"
        compiler = ["gcc", "-O2", "-msse4.2", "-o", str(self._load), str(HERE / "load.c")]
        subprocess.run(compiler, check=True)

    def run(self) -> Results:
        """Every proxy in every case, in turn."""
        options = self._options
        wanted = [case for case in CASES if options.only in case.name]
        results: Results = {}
        with ExitStack() as stack:
            proxies = {name: self._start(name, stack) for name in options.proxies}
            for flags in dict.fromkeys(case.flags for case in wanted):
                timed = "" if "idle" in flags else f" --warm 0.2 --time {options.time}"
                cases = [case for case in wanted if case.flags == flags]
                print(f"bench: {', '.join(case.name for case in cases)}", file=sys.stderr, flush=True)
                for _ in range(options.reps):
                    for name, proxy in proxies.items():
                        found = self._one(*proxy, flags + timed)
                        for case in cases:
                            results.setdefault((name, case.name), []).append(found[case.field])
        return results

    def _start(self, name: str, stack: ExitStack) -> tuple[int, int, int]:
        """Start a proxy and warm it up: its process id, its port, and its upstream's."""
        port, upstream = free_port(), free_port()
        directory = self._directory / name
        directory.mkdir()
        argv = command(name, directory, port, upstream, self._options.mode, self._options.python)
        pid = stack.enter_context(running(argv, directory, port))
        self._one(pid, port, upstream, "--mode post -c 4 --warm 0.1 --time 0.3")
        return pid, port, upstream

    def _one(self, pid: int, port: int, upstream: int, flags: str) -> dict[str, float]:
        argv = [str(self._load), "--up-port", str(upstream), "--target", str(port), "--pid", str(pid)]
        done = subprocess.run(
            [*argv, *flags.split()],
            stdout=subprocess.PIPE,
            timeout=CASE_S,
            check=True,
            text=True,
            preexec_fn=pinned(LOAD_CPU),
        )
        result: dict[str, float] = json.loads(done.stdout)
        if result["errors"] or result.get("mismatch"):
            raise RuntimeError(f"bytes were lost or changed: {done.stdout}")
        return result


def number(case: Case, values: list[float]) -> float:
    """What the repetitions come to; of memory the most: what one leaves behind, the next one uses again."""
    return max(values) if case.absolute else median(values)


def ratio(case: Case, results: Results) -> float | None:
    """What is compared with the limit: forkwatch's ratio to nginx, or its own number; None if unknown."""
    ours, base = results.get(("forkwatch", case.name)), results.get(("nginx", case.name))
    if ours is None or (base is None and not case.absolute):
        return None
    if case.absolute or base is None:
        return round(number(case, ours), 2)
    return round(median(mine / theirs for mine, theirs in zip(ours, base, strict=True)), 2)


def ratios(results: Results) -> dict[str, float]:
    """What is compared from run to run, by case."""
    return {case.name: found for case in CASES if (found := ratio(case, results)) is not None}


def table(results: Results, proxies: list[str], last: dict[str, float]) -> str:
    """The results as text: numbers, and what is compared: now, as recorded, and the limit."""
    head = "".join(f"{name:>12}" for name in proxies)
    lines = [f"{'':29}{head}{'now':>10}{'recorded':>11}{'at most':>11}"]
    for case in CASES:
        values = [results.get((name, case.name)) for name in proxies]
        if all(value is None for value in values):
            continue
        cells = "".join(f"{'-':>12}" if value is None else f"{number(case, value):12.1f}" for value in values)
        unit = f" {case.unit}" if case.absolute else "x"
        compared = (ratio(case, results), last.get(case.name), case.limit)
        told = ("-" if value is None else f"{value:.2f}{unit}" for value in compared)
        lines.append(f"{case.name + ', ' + case.unit:29}{cells}" + "".join(f"{text:>11}" for text in told))
    return "\n".join(lines)


def recorded() -> dict[str, Any]:
    """What earlier runs kept, empty before the first."""
    record: dict[str, Any] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return record


def keep(part: dict[str, Any]) -> None:
    """Keep `part` in the record, beside the keys of other measurements."""
    RECORD.write_text(json.dumps({**recorded(), **part}, indent=1) + "\n")


def stamp(python: str = sys.executable) -> dict[str, Any]:
    """When and on what machine this is measured, and by which Python."""
    machine = {"python": interpreter.described(python), "cores": os.cpu_count(), "kernel": platform.release()}
    return {"on": time.strftime("%Y-%m-%d"), "machine": machine}


def main(argv: list[str] | None = None) -> int:
    """Measure and print. 2 without the tools it takes."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.relay", description=__doc__)
    parser.add_argument("--reps", type=int, default=15)
    parser.add_argument("--time", type=float, default=1.0, help="seconds for each measurement")
    parser.add_argument("--mode", default="observe", choices=("observe", "annotate", "enforce"))
    parser.add_argument("--only", default="", help="the cases whose name holds this")
    parser.add_argument("--record", action="store_true", help=f"keep the ratios in {RECORD.name}")
    parser.add_argument("--python", help="what runs forkwatch (default: /usr/bin/python3, if new enough)")
    parser.add_argument("--proxies", nargs="+", choices=PROXIES, default=list(PROXIES))
    options = parser.parse_args(argv)
    if shutil.which("gcc") is None:
        print("bench: gcc compiles the load; it is not here (Debian: apt install gcc)", file=sys.stderr)
        return 2
    missing = [name for name in options.proxies if name != "forkwatch" and shutil.which(name) is None]
    if missing:
        packages = " ".join("nginx-light" if name == "nginx" else name for name in missing)
        print(f"bench: without {', '.join(missing)} (Debian: apt install {packages})", file=sys.stderr)
        options.proxies = [name for name in options.proxies if name not in missing]
    try:
        options.python = interpreter.chosen(options.python)
    except RuntimeError as error:
        print(f"bench: cannot use {options.python}: {error}", file=sys.stderr)
        return 2
    print("forkwatch runs on", interpreter.described(options.python))
    with tempfile.TemporaryDirectory() as directory:
        results = Bench(Path(directory), options).run()
    last = recorded().get("ratios", {})
    print(table(results, options.proxies, last))
    if options.record:
        keep({**stamp(options.python), "ratios": {**last, **ratios(results)}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
