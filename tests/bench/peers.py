"""What one MCP call costs: forkwatch against nginx and the MCP proxies of Python, in front of a real SDK server.

Each stands alone between four sessions at once and a server on the official Python SDK that gives its events ids;
client and server share one core, the proxy has the other. Compare within one run only: numbers are the best of
the repetitions. `--record` keeps them for the next run to show beside its own. The peers are installed under
.bench/ first, once; what cannot be is left out, and so is what does not carry a call.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench import interpreter, relay
from tests.bench.mcp_client import FAILURES, CallFailed, opened, run_load

PEERS = relay.HERE.parent / "peers"
REQUIREMENTS = relay.HERE / "requirements-peers.txt"
INSTALLED = relay.ROOT / ".bench"
START_S = 30.0
SESSIONS = 4
WARM_S = 0.5
CALLS = 5000  # of one session in one measurement, at most
PROXIES = ("direct", "nginx", "forkwatch", "fastmcp", "mcp-proxy", "mitmproxy")
SERVER = "mcp"  # its package
WORKLOADS = {"echo": 0, "100 notifications": 100}  # how much progress a call reports before its answer
CONSTRAINTS = {"mcp": "mcp1", "mcp-proxy": "mcp1", "fastmcp": "mcp2"}
FASTMCP = """
import sys
from fastmcp.server import create_proxy
settings = {"transport": "http", "host": "127.0.0.1", "show_banner": False, "log_level": "ERROR"}
create_proxy(sys.argv[1]).run(port=int(sys.argv[2]), **settings)
"""
MITMPROXY = "def responseheaders(flow): flow.response.stream = True\n"


class Figures(NamedTuple):
    """One proxy under one workload; times for each call. `proxy_ms` is 0 without a proxy."""

    calls_s: float
    p50_ms: float
    proxy_ms: float
    server_ms: float
    notified: float
    errors: int


Results = dict[str, dict[str, Figures]]  # by workload, then by proxy


class LeftOut(Exception):
    """A proxy cannot be measured here; the words say why."""


def say(words: str) -> None:
    """Tell the person who waits, in one line."""
    print("bench:", *words.split(), file=sys.stderr, flush=True)


def install(package: str, wanted: str) -> None:
    """Make the package's environment, unless it is there in this version; LeftOut with pip's words if it fails."""
    constraints = PEERS / f"requirements-{CONSTRAINTS[package]}.txt" if package in CONSTRAINTS else None
    try:
        interpreter.install(Path(sys.executable), INSTALLED / package, [wanted], constraints)
    except RuntimeError as error:
        raise LeftOut(str(error)) from error


def prepared(names: list[str]) -> list[str]:
    """The proxies among `names` that are here, installed where needed; says which are left out."""
    lines = [line.partition("#")[0].strip() for line in REQUIREMENTS.read_text().splitlines()]
    wanted = {line.partition("==")[0]: line for line in lines if line}
    present = []
    for name in names:
        try:
            if name == "nginx" and shutil.which("nginx") is None:
                raise LeftOut("it is not on the PATH (Debian: apt install nginx-light)")
            if name in wanted:
                install(name, wanted[name])
            present.append(name)
        except LeftOut as why:
            say(f"without {name}: {why}")
    return present


def command(name: str, directory: Path, port: int, upstream: int) -> list[str]:
    """How `name` is started as a proxy from `port` to `upstream`; the peers log nothing, forkwatch as by default."""
    programs, url = INSTALLED / name / "bin", f"http://127.0.0.1:{upstream}/mcp"
    if name == "fastmcp":
        return [str(programs / "python"), "-c", FASTMCP, url, str(port)]
    if name == "mcp-proxy":  # it joins HTTP to stdio, either way round: two of them make a proxy
        program = [str(programs / "mcp-proxy"), "--log-level", "ERROR"]
        inner = [*program, "--transport", "streamablehttp", url]
        return [*program, "--host", "127.0.0.1", "--port", str(port), "--", *inner]
    if name == "mitmproxy":
        script = directory / "stream.py"
        script.write_text(MITMPROXY)
        mode = ["--mode", f"reverse:http://127.0.0.1:{upstream}", "--listen-host", "127.0.0.1"]
        settings = ["--quiet", "--set", f"confdir={directory}", "--scripts", str(script)]
        return [str(programs / "mitmdump"), *mode, "--listen-port", str(port), *settings]
    argv = relay.command(name, directory, port, upstream, "observe")
    if name == "nginx":  # the SDK refuses a Host that it does not know
        file, version = directory / "nginx.conf", "proxy_http_version 1.1;"
        file.write_text(file.read_text().replace(version, f"{version} proxy_set_header Host $http_host;"))
    return argv


def process_tree(pid: int) -> list[int]:
    """A process and all it started, in this order."""
    found = [pid]
    with contextlib.suppress(OSError):  # it ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += process_tree(int(child))
    return found


def cpu_ms(pid: int | None) -> float:
    """The CPU time of a process and all it started, with every thread they ever had; 0 of none."""
    total, libc = 0.0, ctypes.CDLL(None)
    for each in process_tree(pid) if pid else []:
        clock = ctypes.c_int()  # finer than the ticks in /proc, and it forgets no thread
        if libc.clock_getcpuclockid(each, ctypes.byref(clock)) == 0:
            total += time.clock_gettime(clock.value) * 1e3
    return total


@contextlib.contextmanager
def running(argv: list[str], directory: Path, port: int, cpu: int) -> Iterator[int]:
    """A process once it listens, on this core; its process id. LeftOut with its last words if it never does."""
    log, pin = directory / "log", relay.pinned(cpu)
    env = {**os.environ, "RUNTIME_DIRECTORY": str(directory), "NO_PROXY": "127.0.0.1"}
    nothing = subprocess.DEVNULL
    with log.open("wb") as out:
        process = subprocess.Popen(
            argv, stdin=nothing, stdout=out, stderr=out, cwd=relay.ROOT, preexec_fn=pin, env=env
        )
    try:
        deadline = time.monotonic() + START_S
        while not listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise LeftOut(f"it did not start: {log.read_text()[-300:]}")
            time.sleep(0.05)
        yield process.pid
    finally:
        for pid in process_tree(process.pid) if process.poll() is None else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(5)


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def measure(name: str, directory: Path, seconds: float) -> dict[str, Figures]:
    """Every workload through one proxy, to a server of its own; LeftOut if it carries no call."""
    upstream, port = relay.free_port(), relay.free_port()
    places = [Path(tempfile.mkdtemp(dir=directory)) for _ in range(2)]
    argv = [str(INSTALLED / SERVER / "bin/python"), str(PEERS / "servers/py1.py"), str(upstream), "uuid"]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(running(argv, places[0], upstream, relay.LOAD_CPU))
        proxy = None
        if name != "direct":
            argv = command(name, places[1], port, upstream)
            proxy = stack.enter_context(running(argv, places[1], port, relay.PROXY_CPU))
        stack.callback(os.sched_setaffinity, 0, os.sched_getaffinity(0))
        relay.pinned(relay.LOAD_CPU)()
        url = f"http://127.0.0.1:{port if proxy else upstream}/mcp"
        try:
            return asyncio.run(measure_calls(url, proxy, server, seconds))
        except FAILURES as error:
            raise LeftOut(f"no call through it: {type(error).__name__} {error}") from error


async def measure_calls(url: str, proxy: int | None, server: int, seconds: float) -> dict[str, Figures]:
    """Every workload at `url`, with the CPU time of these processes; CallFailed if no call succeeds."""
    found = {}
    async with opened(url, SESSIONS) as sessions:
        for workload, notifications in WORKLOADS.items():
            await run_load(sessions, notifications, WARM_S, CALLS)
            before = cpu_ms(proxy), cpu_ms(server)
            load = await run_load(sessions, notifications, seconds, CALLS)
            spent = cpu_ms(proxy) - before[0], cpu_ms(server) - before[1]
            if load.errors:
                say(load.errors[0])
            if not load.calls_s:
                raise CallFailed("none succeeded")
            calls = len(load.calls_s)
            found[workload] = Figures(
                calls_s=round(calls / load.took_s, 1),
                p50_ms=round(statistics.median(load.calls_s) * 1e3, 1),
                proxy_ms=round(spent[0] / calls, 3),
                server_ms=round(spent[1] / calls, 3),
                notified=round(load.notified / calls, 1),
                errors=len(load.errors),
            )
    return found


def best(runs: list[Figures]) -> Figures:
    """The best of each, but the fewest notifications and every error."""
    calls_s, p50_ms, proxy_ms, server_ms, notified, errors = zip(*runs, strict=True)
    return Figures(max(calls_s), min(p50_ms), min(proxy_ms), min(server_ms), min(notified), sum(errors))


def run(names: list[str], reps: int, seconds: float) -> Results:
    """Every proxy in turn, as often as asked; one that fails is left out from there on and says why."""
    runs: dict[str, dict[str, list[Figures]]] = {workload: {} for workload in WORKLOADS}
    failed = set()
    with tempfile.TemporaryDirectory() as directory:
        for turn, name in itertools.product(range(1, reps + 1), names):
            if name in failed:
                continue
            say(f"{name}, {turn} of {reps}")
            try:
                for workload, found in measure(name, Path(directory), seconds).items():
                    runs[workload].setdefault(name, []).append(found)
            except LeftOut as why:
                failed.add(name)
                say(f"without {name}: {why}")
    return {workload: {name: best(each) for name, each in of.items()} for workload, of in runs.items()}


def compared(name: str, among: dict[str, Figures]) -> list[str]:
    """What is shown of one proxy for this run and the recorded one; "-" for what there is not."""
    if (found := among.get(name)) is None:
        return ["-"] * 4
    cells, nginx = [f"{found.calls_s:.1f}", f"{found.p50_ms:.1f}"], among.get("nginx")
    if name == "direct":
        return [*cells, "-", "-"]
    return [*cells, f"{found.proxy_ms:.2f}", f"{found.proxy_ms / nginx.proxy_ms:.1f}" if nginx else "-"]


def table(results: Results, last: dict[str, Any]) -> str:
    """The results as text, the last record on the right; ratios are of the proxy's CPU time to nginx's."""
    heads = ["calls/s", "p50 ms", "proxy ms", "x nginx"]
    lines = [f"{'CPU time in ms for each call, 4 sessions at once':90}recorded {last.get('on', 'never')}"]
    for workload, now in results.items():
        before = {name: Figures(**kept) for name, kept in last.get(workload, {}).items()}
        rows = [(workload, [*heads, "server ms", "notified", "errors", *heads])]
        for name, found in now.items():
            own = [f"{found.server_ms:.2f}", f"{found.notified:.1f}", str(found.errors)]
            rows.append((name, [*compared(name, now), *own, *compared(name, before)]))
        lines += [f"{name:20}" + "".join(f"{cell:>10}" for cell in cells) for name, cells in rows]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Install, measure and print. 2 without the server."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench peers", description=__doc__)
    parser.add_argument("--reps", type=int, default=2)
    parser.add_argument("--time", type=float, default=4.0, help="seconds for each measurement")
    parser.add_argument("--record", action="store_true", help=f"keep the figures in {relay.RECORD.name}")
    parser.add_argument("--proxies", nargs="+", choices=PROXIES, default=list(PROXIES))
    options = parser.parse_args(argv)
    if not prepared([SERVER]):
        return 2
    results = run(prepared(options.proxies), options.reps, options.time)
    last = relay.recorded().get("calls", {})
    print(table(results, last))
    if options.record:
        kept = {load: {name: each._asdict() for name, each in now.items()} for load, now in results.items()}
        relay.keep({"calls": {**relay.stamp(), **kept}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
