"""The command line: exit statuses, what is printed where, and how fast the health check starts."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path

import pytest

from proxy import __version__
from proxy.cli import main
from proxy.cli.loading import load_from
from proxy.config.overrides import FLAGS
from proxy.engine.privacy import hash_session

ROOT = Path(__file__).parent.parent
EXAMPLE = str(ROOT / "config" / "forkwatch.yaml")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting comes from whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("FORKWATCH")]:
        monkeypatch.delenv(name)


def module(*argv: str) -> subprocess.CompletedProcess[str]:
    """`python -m proxy` with `argv`, as a process of its own."""
    command = [sys.executable, "-m", "proxy", *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT, check=False)


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`forkwatch` alone says what there is, and fails."""
    assert main([]) == 2
    err = capsys.readouterr().err
    assert err.startswith("usage: forkwatch")
    for command in ("run", "check", "demo", "healthcheck", "hash", "version"):
        assert re.search(rf"^    {command}\s", err, re.MULTILINE)


@pytest.mark.parametrize(
    "argv",
    [
        ["nope"],
        ["check", "--nope"],
        ["check", "--conf", EXAMPLE],
        ["run", "--mode", "x"],
        ["hash"],
        ["hash", "a", "b"],
    ],
)
def test_wrong_arguments(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown commands and flags, abbreviations and missing arguments exit 2 with the usage."""
    assert main(argv) == 2
    assert "usage: forkwatch" in capsys.readouterr().err


def test_runs_as_a_module() -> None:
    """`python -m proxy` is the command."""
    done = module("version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"forkwatch {__version__}\n", "")


@pytest.mark.parametrize("argv", [["--version"], ["version"]])
def test_version(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The version, as a command and as a flag."""
    assert main(argv) == 0
    assert capsys.readouterr().out == f"forkwatch {__version__}\n"


def test_hash_is_what_logs_show(capsys: pytest.CaptureFixture[str]) -> None:
    """`s_` and 12 hex digits of BLAKE2b, for text and bytes, short and long."""
    assert main(["hash", "abc"]) == 0
    expected = f"s_{blake2b(b'abc', digest_size=6).hexdigest()}"
    assert capsys.readouterr().out == f"{expected}\n"
    assert hash_session("abc") == hash_session(b"abc") == expected
    long = "x" * 10_000
    assert hash_session(long) == f"s_{blake2b(long.encode(), digest_size=6).hexdigest()}"
    assert hash_session("\udcff") == hash_session(b"\xff")


def test_check_says_what_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A good configuration is summed up, with what may surprise."""
    assert main(["check", "--config", EXAMPLE, "--mode", "enforce"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[:6] == [
        f"OK: {EXAMPLE}",
        "listen    127.0.0.1:8080",
        "status    127.0.0.1:9464",
        "admin     auto",
        "state     memory://",
        "upstream  default: / -> http://127.0.0.1:9000, enforce, ids auto",
    ]
    assert [line.partition(": memory://")[0] for line in lines[6:]] == ["warning: state"]
    assert err == ""


def test_check_explains_every_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--explain` prints each key, its value and its source."""
    monkeypatch.setenv("FORKWATCH__LIMITS__SESSION_IDLE", "90s")
    assert main(["check", "--upstream", "http://h:1", "--explain"]) == 0
    rows = {tuple(line.split()) for line in capsys.readouterr().out.splitlines()}
    assert {
        ("upstreams[0].url", "http://h:1", "(flag)"),
        ("upstreams[0].name", "default", "(default)"),
        ("limits.session_idle", "90s", "(env)"),
        ("upstreams[0].actions", "{}", "(default)"),
    } <= rows


def test_check_reports_every_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A bad configuration exits 2 with one line for each problem, and no other word."""
    file = tmp_path / "bad.yaml"
    file.write_text("upstreams:\n  - url: http://h:1\n    mode: enforced\nlisten: 1\n")
    assert main(["check", "--config", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"{file}:3: upstreams[0].mode: 'enforced' is not a mode; use observe, annotate or enforce",
        f"{file}:4: listen: is not an address; write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080",
    ]


def test_check_without_anything_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a file or an upstream, the flags that give one are named."""
    assert main(["check"]) == 2
    assert capsys.readouterr().err == "no upstream is configured; give --config FILE or --upstream URL\n"


def test_flags_reach_the_settings() -> None:
    """Every flag of the configuration is an argument, and arrives."""
    args = argparse.Namespace(
        config=None,
        upstream="http://h:1",
        listen="127.0.0.1:0",
        status="127.0.0.1:1",
        mode="annotate",
        state="memory://",
        log_format="json",
    )
    assert set(vars(args)) == {"config", *FLAGS}
    settings = load_from(args).settings
    assert (settings.listen.port, settings.status.port) == (0, 1)
    assert (settings.upstreams[0].mode, settings.log.format) == ("annotate", "json")


@asynccontextmanager
async def status_listener(answer: bytes) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A listener that answers each connection with `answer`: its address, and the requests it got."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}", requests


@pytest.mark.parametrize(
    ("answer", "status", "line"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, "ready: ADDRESS"),
        (b"HTTP/1.1 503 X\r\n\r\n", 1, "not ready: ADDRESS: /readyz answered 503"),
        (b"SSH-2.0-x\r\n", 1, "not ready: ADDRESS: the answer is not HTTP"),
        (b"", 1, "not ready: ADDRESS: the answer is not HTTP"),
        (b"x" * 1000, 1, "not ready: ADDRESS: the answer is not HTTP"),
    ],
)
async def test_healthcheck_asks_readyz(
    answer: bytes, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is the readiness, with one line that says which address was asked."""
    async with status_listener(answer) as (address, requests):
        assert await asyncio.to_thread(main, ["healthcheck", "--status", address]) == status
    assert requests == [f"GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode()]
    out, err = capsys.readouterr()
    assert (out or err) == line.replace("ADDRESS", address) + "\n"


async def test_healthcheck_takes_its_address_from_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable that moves the listener moves the question; every address becomes this host."""
    async with status_listener(b"HTTP/1.1 200 OK\r\n\r\n") as (address, _):
        port = address.rpartition(":")[2]
        monkeypatch.setenv("FORKWATCH__STATUS", f"0.0.0.0:{port}")
        assert await asyncio.to_thread(main, ["healthcheck"]) == 0
    assert capsys.readouterr().out == f"ready: 127.0.0.1:{port}\n"


def test_healthcheck_of_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """A refused connection is not ready; an address that is none is a mistake."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        assert main(["healthcheck", "--status", address]) == 1
    assert capsys.readouterr().err.startswith(f"not ready: {address}: ")
    assert main(["healthcheck", "--status", "nowhere"]) == 2
    assert "the status address is not an address" in capsys.readouterr().err


def test_healthcheck_imports_the_standard_library_only() -> None:
    """What a container asks every few seconds starts without the proxy's dependencies."""
    code = (
        "import sys; from proxy.cli import main; main(['healthcheck', '--status', '127.0.0.1:1']); "
        "print(*{m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names - {'proxy', '__main__'})"
    )
    command = [sys.executable, "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT, check=True)
    assert done.stdout.split() == []


def test_healthcheck_starts_fast() -> None:
    """A health check takes less than 100 ms of processor time, the interpreter's start included."""

    def cpu_s() -> float:
        before = os.times()
        command = [sys.executable, "-m", "proxy", "healthcheck", "--status", "127.0.0.1:1"]
        subprocess.run(command, capture_output=True, timeout=30, cwd=ROOT, check=False)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(cpu_s() for _ in range(5)) < 0.1


async def test_healthcheck_gives_up() -> None:
    """A listener that accepts and never answers is not ready, within the deadline."""
    released = asyncio.Event()

    async def stall(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    server = await asyncio.start_server(stall, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started = time.monotonic()
        assert await asyncio.to_thread(main, ["healthcheck", "--status", address]) == 1
        assert time.monotonic() - started < 6.0
        released.set()
