"""`forkwatch demo` as a user runs it: what it shows, how it exits, and that it leaves no process behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import pytest

from proxy.cli import main
from proxy.demo.balancer import Balancer

ROOT = Path(__file__).parent.parent
MARK = "DEMO_TEST_MARK"
TIMEOUT_S = 60
needs_sdk = pytest.mark.skipif(
    find_spec("mcp") is None, reason="the demo needs the official MCP SDK: pip install '.[demo]'"
)


def marked(mark: str) -> dict[int, str]:
    """The command lines of the living processes that were started with this mark in their environment."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and f"{MARK}={mark}".encode() in (process / "environ").read_bytes():
                found[int(process.name)] = (
                    (process / "cmdline").read_bytes().decode().replace("\0", " ").strip()
                )
        except OSError:  # gone, or not ours
            continue
    return found


@contextmanager
def demo(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command and its mark; whatever carries the mark in the end is killed."""
    mark = uuid4().hex
    command = [sys.executable, "-m", "proxy", "demo", *arguments]
    env = {**os.environ, MARK: mark, "FORKWATCH__UPSTREAMS__0__MODE": "nonsense of another proxy"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        env=env,
    )
    try:
        yield process, mark
    finally:
        for pid in marked(mark):
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)


def in_the_first_act(process: subprocess.Popen[str]) -> None:
    """Return once the story has begun, with all its processes running."""
    assert process.stdout is not None
    assert any(line.startswith("1  ") for line in process.stdout)


CLIENT_SAW = {
    "observe": '   client     "bob has 9400": a success, no warning, and wrong\n',
    "annotate": '   client     "bob has 9400": a success, no warning, and wrong\n'
    "   wire       : forkwatch verdict=fork reason=content_diverged certainty=proven\n",
    "enforce": '   client     the call failed at once: "Session terminated: ',
}
CAME = {
    "observe": r"came from B +bob 10/11  bob 11/11  bob has 9400\n",
    "annotate": r"came from B +bob 10/11  bob 11/11  bob has 9400\n",
    "enforce": r"came instead +an error of forkwatch's: the call is over\n",
}
ACTION = {"observe": "pass", "annotate": "annotate", "enforce": "cut"}


@needs_sdk
@pytest.mark.parametrize("mode", ["observe", "annotate", "enforce"])
def test_a_fork_is_caught(mode: str) -> None:
    """A healthy resume is `resumed`, the other replica's log is a `fork`, and nothing is left running."""
    with demo("--plain", *([] if mode == "observe" else ["--mode", mode])) as (process, mark):
        out, err = process.communicate(timeout=TIMEOUT_S)
        left = marked(mark)
    assert (process.returncode, err, left) == (0, "", {})
    healthy, forked = out.split("\n1  ")[1].split("\n2  ")
    assert '   client     "ana has 120", the right answer\n' in healthy
    assert "   forkwatch  resumed/replayed, proven: " in healthy
    assert 'forkwatch_resume_verdicts_total{verdict="resumed"} 0 → 1\n' in healthy
    assert re.search(r"came from A +ana 2/3  ana 3/3  ana has 120\n", healthy)
    assert CLIENT_SAW[mode] in forked
    assert "   forkwatch  fork/content_diverged, proven: " in forked
    assert 'forkwatch_resume_verdicts_total{verdict="fork"} 0 → 1\n' in forked
    assert f"lost=1 in_flight=1 action={ACTION[mode]}\n" in forked
    assert re.search(CAME[mode], forked)
    assert "\nCaught. " in forked
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def commands(process: subprocess.Popen[str]) -> list[str]:
    """What a kept demo offers to run, and the address of the page last."""
    assert process.stdout is not None
    offered: list[str] = []
    for line in process.stdout:
        if re.match(r"   (\S*forkwatch [a-z]|\S+ -m proxy [a-z]|curl |http://)", line):
            offered.append(line.strip())
        if line.startswith("   http://"):
            break
    return offered


@needs_sdk
def test_a_kept_demo_is_an_incident_to_look_into() -> None:
    """Every command that it offers works, from the alert to the picture; Ctrl-C ends all of it."""
    with demo("--plain", "--keep") as (process, mark):
        curl, *offered, page = commands(process)
        assert curl.startswith("curl -s http://127.0.0.1:")
        metrics = urlopen(curl.split()[2], timeout=5).read().decode()
        (fork,) = [line for line in metrics.splitlines() if 'reason="content_diverged"' in line]
        assert 'verdict="fork"' in fork
        assert fork.endswith("} 1.0")
        said = {}
        for command in offered:
            words = command.split("forkwatch ", 1)[-1].split(" -m proxy ", 1)[-1].split()
            ran = subprocess.run(
                [sys.executable, "-m", "proxy", *words],
                capture_output=True, text=True, encoding="utf-8", cwd=ROOT, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            assert (ran.returncode, ran.stderr) == (0, ""), command
            said[words[0]] = ran.stdout
        assert list(said) == ["status", "sessions", "session", "tail", "policy"]
        assert "bank      observe" in said["status"]
        assert "fork/content_diverged proven" in said["sessions"]
        assert "FORK: the client asked for what follows" in said["session"]
        assert "replica-B (was replica-A)" in said["tail"]
        assert "bank: enforce, was observe" in said["policy"]
        assert b"<!doctype html>" in urlopen(page, timeout=5).read()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
        left = marked(mark)
    assert (process.returncode, err, left) == (128 + signal.SIGINT, "", {})


@needs_sdk
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_ends_what_it_started(number: signal.Signals) -> None:
    """Ctrl-C and SIGTERM in the middle leave no process, and no traceback."""
    with demo("--plain") as (process, mark):
        in_the_first_act(process)
        assert len(marked(mark)) == 4
        process.send_signal(number)
        _, err = process.communicate(timeout=TIMEOUT_S)
        left = marked(mark)
    assert (process.returncode, err, left) == (128 + number, "", {})


@needs_sdk
@pytest.mark.parametrize("victim", [" A", "forkwatch.yaml"])
def test_a_demo_that_goes_wrong_says_so(victim: str) -> None:
    """When a replica or the proxy dies, the demo exits 1 with what happened instead, and cleans up."""
    with demo("--plain") as (process, mark):
        in_the_first_act(process)
        (pid,) = [pid for pid, command in marked(mark).items() if command.endswith(victim)]
        os.kill(pid, signal.SIGKILL)
        out, err = process.communicate(timeout=TIMEOUT_S)
        left = marked(mark)
    assert (process.returncode, left) == (1, {})
    assert err.startswith("forkwatch: not caught: ")
    assert "Traceback" not in err
    assert "Caught" not in out


@pytest.mark.parametrize(
    ("installed", "says"),
    [
        (None, "the demo needs the official MCP SDK"),
        ("1.30.0", "the demo needs mcp 2.x, and 1.30.0 is installed"),
    ],
    ids=["none", "old"],
)
def test_without_the_sdk(
    installed: str | None, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line with the command that installs what is missing, and exit 2."""

    def version(name: str) -> str:
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(metadata, "version", version)
    assert main(["demo"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"forkwatch: {says}")
    assert err.endswith("; install it with: pip install '.[demo]' in a checkout (make demo does it)\n")
    assert err.count("\n") == 1


class Terminal(StringIO):
    """A terminal that keeps what was written to it."""

    def isatty(self) -> bool:
        """Say that it is one."""
        return True


@needs_sdk
@pytest.mark.parametrize(
    ("plain", "no_color", "coloured", "live"),
    [(False, "", True, True), (True, "", False, False), (False, "1", False, True)],
    ids=["terminal", "plain", "no_color"],
)
def test_colour_and_progress(
    plain: bool, no_color: str, coloured: bool, live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Colour follows the terminal, `NO_COLOR` and `--plain`; progress follows the terminal and `--plain`."""
    from proxy.demo.screen import Screen

    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    out, err = Terminal(), Terminal()
    screen = Screen(plain=plain, out=out, err=err)
    screen.progress("waiting")
    screen.line("text", "bold")
    assert out.getvalue() == ("\x1b[1mtext\x1b[0m\n" if coloured else "text\n")
    assert err.getvalue() == ("\r\x1b[2Kwaiting\r\x1b[2K" if live else "")


async def echo_server(name: bytes) -> asyncio.Server:
    """A server on a port of its own that says its name to whoever connects."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(name)
        writer.close()
        await writer.wait_closed()

    return await asyncio.start_server(greet, "127.0.0.1", 0)


async def test_balancer_sends_each_connection_where_it_points() -> None:
    """A connection goes where the balancer points when it is let through, those on hold included."""
    servers = [await echo_server(name) for name in (b"a", b"b")]
    a, b = (server.sockets[0].getsockname()[1] for server in servers)
    balancer = Balancer()
    port = await balancer.start()

    async def who() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            return await asyncio.wait_for(reader.read(), 5)
        finally:
            writer.close()

    balancer.point_at(a)
    assert await who() == b"a"
    balancer.hold()
    held = asyncio.create_task(who())
    balancer.point_at(b)
    assert (await held, await who()) == (b"b", b"b")
    await balancer.stop()
    for server in servers:
        server.close()
