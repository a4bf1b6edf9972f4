"""Finding the admin interface of a running proxy, and what is said when it cannot be asked."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy import __version__
from proxy.cli import CommandFailed, client, locate, main
from proxy.cli.locate import find
from tests.admin_interface import PROBLEM, SESSION, Interface, isolated, lines, raw_listener, serving

ROOT = Path(__file__).parent.parent
Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing comes from whoever runs the tests."""
    with isolated(monkeypatch):
        yield


@pytest.fixture
def directory() -> Iterator[str]:
    """A directory with a name short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="fw-") as path:
        yield path


@pytest.fixture
def interface(directory: str) -> Iterator[Interface]:
    """An interface where one of a proxy at port 8080 would be."""
    with serving(f"{directory}/forkwatch-8080.sock") as server:
        yield server


REFUSALS: dict[str, tuple[tuple[int, Any], str]] = {
    "unauthorized": ((401, PROBLEM), "ADMIN wants the admin token; give --token-file FILE"),
    "forbidden": ((403, PROBLEM | {"detail": "use\x1b localhost"}), "use\\x1b localhost"),
    "unknown session": (
        (404, PROBLEM),
        f"no session {SESSION} here: it expired, was evicted or is another proxy's; see forkwatch sessions",
    ),
    "ambiguous": (
        (409, PROBLEM | {"detail": "several upstreams know it (a, b): add ?upstream=NAME"}),
        "several upstreams know it (a, b): add --upstream NAME",
    ),
    "no detail": ((500, {"type": "x", "title": "Oh"}), "ADMIN answered 500 Oh"),
    "the clients' port": (
        (404, PROBLEM | {"type": "forkwatch:no-upstream"}),
        "ADMIN answers 404, but is not the admin interface of a forkwatch; its ready line says where that is",
    ),
    "the status port": (
        (404, {"error": "no such path"}),
        "ADMIN answers 404, but is not the admin interface of a forkwatch; its ready line says where that is",
    ),
    "another server": (
        (200, b"<html>"),
        "ADMIN answers 200, but is not the admin interface of a forkwatch; its ready line says where that is",
    ),
    "another version": (
        (200, {"state": "active"}),
        f"ADMIN answers otherwise than this forkwatch {__version__} expects; use the version that runs there",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name: str, interface: Interface, capsys: Printed) -> None:
    """Each is one line that says what is wrong and what to do, and exit status 1."""
    interface.replies[f"GET /api/v1/sessions/{SESSION}"], expected = REFUSALS[name]
    assert main(["session", SESSION, *interface.flags]) == 1
    expected = expected.replace("ADMIN", f"unix:{interface.path}")
    assert capsys.readouterr() == ("", f"forkwatch: {expected}\n")


def test_the_token(
    interface: Interface, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """It is read from the file of the flag, else of the variable, and no error repeats it."""
    good, other, bad = tmp_path / "good", tmp_path / "other", tmp_path / "bad"
    good.write_text("0123456789abcdef\n")
    other.write_text("fedcba9876543210")
    bad.write_text("two words\n")
    interface.replies["GET /api/v1/status"] = (401, PROBLEM)
    monkeypatch.setenv("FORKWATCH__ADMIN_TOKEN_FILE", str(other))
    assert main(["status", *interface.flags, "--token-file", str(good)]) == 1
    assert main(["status", *interface.flags]) == 1
    sent = [each.headers["Authorization"] for each in interface.asked]
    assert sent == ["Bearer 0123456789abcdef", "Bearer fedcba9876543210"]
    assert main(["status", *interface.flags, "--token-file", str(bad)]) == 1
    monkeypatch.setenv("FORKWATCH__ADMIN_TOKEN_FILE", str(tmp_path / "none"))
    assert main(["status", *interface.flags]) == 1
    refused = (
        f"forkwatch: unix:{interface.path} does not accept this token; give --token-file the proxy's own"
    )
    assert lines(capsys.readouterr().err) == [
        refused,
        refused,
        "forkwatch: --token-file: the file holds no token; it is one line of ASCII without spaces",
        "forkwatch: FORKWATCH__ADMIN_TOKEN_FILE: the token cannot be read: No such file or directory; "
        "name a file you may read",
    ]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"SSH-2.0-x\r\n", "gave no HTTP answer; it is not the admin interface"),
        (b"", "closed the connection; does the proxy run, and is this the admin interface?"),
        (None, "did not answer within 0.2 s; the proxy hangs or is stopped"),
    ],
)
def test_what_does_not_answer(
    answer: bytes | None, expected: str, directory: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """A listener that speaks no HTTP, or nothing at all, is not waited for for long."""
    monkeypatch.setattr(client, "DEADLINE_S", 0.2)
    with raw_listener(f"{directory}/s", answer):
        assert main(["status", "--admin", f"unix:{directory}/s"]) == 1
    assert capsys.readouterr() == ("", f"forkwatch: unix:{directory}/s {expected}\n")


def test_nobody_listens(directory: str, capsys: Printed) -> None:
    """A missing socket, one that a process left behind, a closed port and an impossible path."""
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(f"{directory}/old")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        places = [f"unix:{directory}/none", f"unix:{directory}/old", address]
        assert [main(["status", "--admin", place]) for place in places] == [1, 1, 1]
    assert main(["status", "--admin", f"unix:/{'x' * 108}"]) == 1
    nobody = "start the proxy, or see its ready line for the address"
    *refused, too_long = lines(capsys.readouterr().err)
    assert refused == [f"forkwatch: nobody listens at {place}; {nobody}" for place in places]
    assert (
        too_long
        == f"forkwatch: unix:/{'x' * 108} cannot be reached: AF_UNIX path too long; check the address"
    )


def test_a_socket_of_somebody_else(interface: Interface, directory: str) -> None:
    """Permission denied says whose socket it is, also where the socket was found and not given."""
    os.chmod(interface.path, 0)
    os.chmod(directory, 0o755)
    script = (
        "import os, sys\nfrom proxy.cli import _parser, client, main, status\n_parser()\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "sys.exit(main(['status']))"
    )
    env = {**os.environ, "RUNTIME_DIRECTORY": directory}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, cwd=ROOT, check=False
    )
    owner = pwd.getpwuid(os.geteuid()).pw_name
    place = f"unix:{directory}/forkwatch-8080.sock"
    hint = f"belongs to {owner}; run this as {owner}, such as with sudo -u {owner}"
    expected = f"forkwatch: permission denied: {place} {hint}\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


def test_a_tcp_address(capsys: Printed) -> None:
    """The interface may be an address; the Host header is that address."""

    class Tcp(Interface):
        address_family = socket.AF_INET

    with Tcp(("127.0.0.1", 0)) as server:  # type: ignore[arg-type]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        address = f"127.0.0.1:{server.socket.getsockname()[1]}"
        server.replies["GET /api/v1/config"] = (200, {"path": None, "settings": []})
        assert main(["config", "--admin", address]) == 0
        server.shutdown()
        thread.join()
    assert lines(capsys.readouterr().out) == ["flags and environment", "KEY  VALUE  SOURCE"]
    assert server.asked[0].headers["Host"] == address


@pytest.mark.parametrize(
    ("admin", "listen", "environ", "expected"),
    [
        ("unix:/a", None, {"FORKWATCH__ADMIN": "unix:/b"}, "unix:/a"),
        (None, None, {"FORKWATCH__ADMIN": "unix:/b"}, "unix:/b"),
        (None, None, {"FORKWATCH__ADMIN": "[::1]:9465"}, "[::1]:9465"),
        ("auto", None, {"FORKWATCH__ADMIN": "unix:/b"}, "unix:HERE/forkwatch-8080.sock"),
        (None, None, {"RUNTIME_DIRECTORY": "HERE:/other"}, "unix:HERE/forkwatch-8080.sock"),
        (
            None,
            None,
            {"XDG_RUNTIME_DIR": "HERE", "FORKWATCH__ADMIN": "auto"},
            "unix:HERE/forkwatch-8080.sock",
        ),
        (None, "127.0.0.1:8080", {"XDG_RUNTIME_DIR": "HERE"}, "unix:HERE/forkwatch-8080.sock"),
        (
            None,
            None,
            {"XDG_RUNTIME_DIR": "HERE", "FORKWATCH__LISTEN": "[::]:0"},
            "unix:HERE/forkwatch-8080.sock",
        ),
        (None, None, {}, "unix:HERE/forkwatch-8080.sock"),
        (
            None,
            "127.0.0.1:1",
            {"XDG_RUNTIME_DIR": "HERE"},
            "no proxy answers at HERE/forkwatch-1.sock or HERE/forkwatch-1.sock; ",
        ),
        (None, None, {"RUNTIME_DIRECTORY": "/none"}, "no proxy answers at /none/forkwatch-*.sock; "),
        (
            None,
            None,
            {"XDG_RUNTIME_DIR": "HERE", "FORKWATCH__LISTEN": "x"},
            "FORKWATCH__LISTEN is not an address; ",
        ),
        (None, "x", {"XDG_RUNTIME_DIR": "HERE"}, "--listen is not an address; "),
        (None, None, {"FORKWATCH__ADMIN": ""}, "FORKWATCH__ADMIN says that there is no admin interface; "),
        (None, None, {"FORKWATCH__ADMIN": "http://h"}, "FORKWATCH__ADMIN is not an admin address; "),
        ("unix:", None, {}, "--admin is not an admin address; "),
    ],
)
def test_where_it_is(
    admin: str | None,
    listen: str | None,
    environ: dict[str, str],
    expected: str,
    interface: Interface,
    directory: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The flag, the variable, the port of the clients, the only socket that answers; else what to do."""
    monkeypatch.setattr(locate, "SERVICE_DIRECTORY", directory)
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(f"{directory}/forkwatch-7070.sock")
    given = {name: value.replace("HERE", directory) for name, value in environ.items()}
    try:
        found = str(find(admin, listen, given))
    except CommandFailed as error:
        (found,) = error.lines
        expected += found[len(expected.replace("HERE", directory)) :]
    assert found == expected.replace("HERE", directory)


def test_several_proxies(
    interface: Interface, directory: str, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    """Each is named so that it can be copied; a port tells them apart."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
    with serving(f"{directory}/forkwatch-8081.sock") as other:
        other.replies["DELETE /api/v1/drain"] = (200, {"state": "ready"})
        assert main(["status"]) == 1
        assert main(["drain", "--undo", "--listen", "127.0.0.1:8081"]) == 0
    expected = f"""
forkwatch: several proxies run here; say which:
  --admin unix:{directory}/forkwatch-8080.sock
  --admin unix:{directory}/forkwatch-8081.sock
"""
    out, err = capsys.readouterr()
    assert (out, lines(err)) == ("ready\n", lines(expected))
