"""Where the admin interface listens: its socket and its file, the places of `auto`, and what is refused."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.admin.listener import place_of
from proxy.cli import main
from proxy.endpoint import Endpoint
from proxy.side_listener import MAX_CONNECTIONS
from tests.forkwatch_process import POLL_S, ROOT
from tests.scripted_upstream import PATIENCE_S

LISTEN = Endpoint("127.0.0.1", 8080)
DIRECTORIES = ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR")
NAMED = Path("/run/forkwatch/forkwatch-8080.sock")


@dataclass(slots=True)
class Running:
    """A process that is ready, and its log up to there."""

    process: subprocess.Popen[str]
    log: list[dict[str, Any]]

    def logged(self, event: str) -> dict[str, Any]:
        """The one such line."""
        [found] = [line for line in self.log if line["event"] == event]
        return found

    @property
    def warnings(self) -> list[str]:
        """What the start has to say about the interface."""
        found: list[str] = self.logged("config.loaded")["warnings"]
        return [warning for warning in found if warning.startswith("admin")]

    def stop(self) -> int:
        """End it in good order; returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_S)


def command(directory: Path, name: str = "run", **top: Any) -> list[str]:
    """The command line for a configuration with these keys, on free ports."""
    file = directory / "forkwatch.yaml"
    settings = {
        "listen": "127.0.0.1:0",
        "status": "127.0.0.1:0",
        "upstreams": [{"name": "a", "url": "http://127.0.0.1:9"}],
        "log": {"format": "json"},
        "shutdown": {"delay": "0s", "spread": "0s", "deadline": "1s"},
        **top,
    }
    file.write_text(json.dumps(settings))
    return [sys.executable, "-m", "proxy", name, "--config", str(file)]


def environment(**variables: str) -> dict[str, str]:
    """This process's, where only these say something about directories at run time."""
    return {**{key: value for key, value in os.environ.items() if key not in DIRECTORIES}, **variables}


def ended(args: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """A process that is to end by itself."""
    return subprocess.run(
        args, capture_output=True, text=True, timeout=30, cwd=ROOT, check=False, env=environment(**variables)
    )


@contextmanager
def running(directory: Path, *, umask: int | None = None, **top: Any) -> Iterator[Running]:
    """A process that has said it is ready. Variables are the keys in capitals."""
    variables = {key: value for key, value in top.items() if key.isupper()}
    settings = {key: value for key, value in top.items() if not key.isupper()}
    process = subprocess.Popen(
        command(directory, **settings), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env=environment(**variables), umask=-1 if umask is None else umask,
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            log = []
            for line in process.stdout:
                log.append(json.loads(line))
                if log[-1]["event"] == "proxy.ready":
                    break
            else:
                raise AssertionError(f"it ended: {process.stderr and process.stderr.read()}")
            yield Running(process, log)
        finally:
            process.kill()


def status_over(path: Path) -> bytes:
    """The first line of the answer to a request for the status."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(str(path))
        sock.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return sock.makefile("rb").readline()


def bound(path: Path) -> socket.socket:
    """A socket that listens at `path`."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


# The socket and its file.


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_only_its_owner_may_open_the_socket(tmp_path: Path, umask: int) -> None:
    """Mode 0600 whatever the umask is; it serves; the file goes with the process."""
    path = tmp_path / "admin.sock"
    with running(tmp_path, admin=f"unix:{path}", umask=umask) as found:
        mode = path.lstat().st_mode
        assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        assert found.logged("proxy.ready")["admin"] == f"unix:{path}"
        assert found.warnings == []
        assert status_over(path) == b"HTTP/1.1 200 OK\r\n"
        assert found.stop() == 0
        assert not path.exists()


@pytest.mark.parametrize("admin", ["explicit", "auto"])
def test_a_stale_socket_is_replaced(tmp_path: Path, admin: str) -> None:
    """What a process left behind that was killed is no obstacle."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = tmp_path / f"forkwatch-{port}.sock"
    bound(path).close()
    assert path.exists()
    place = "auto" if admin == "auto" else f"unix:{path}"
    with running(tmp_path, admin=place, listen=f"127.0.0.1:{port}", XDG_RUNTIME_DIR=str(tmp_path)):
        assert status_over(path) == b"HTTP/1.1 200 OK\r\n"


def test_a_socket_in_use_is_not_replaced(tmp_path: Path) -> None:
    """Another process answers there: exit 2 with one line, and the other's socket is as it was."""
    path = tmp_path / "admin.sock"
    with bound(path):
        before = path.lstat()
        done = ended(command(tmp_path, admin=f"unix:{path}"))
        assert done.returncode == 2
        [line] = done.stderr.splitlines()
        assert str(path) in line
        assert "another process listens there" in line
        after = path.lstat()
        assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)


def test_auto_goes_without_where_a_socket_is_in_use(tmp_path: Path) -> None:
    """Nobody asked for exactly that place: a warning, no interface, and clients are served."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = tmp_path / f"forkwatch-{port}.sock"
    with (
        bound(path),
        running(tmp_path, admin="auto", listen=f"127.0.0.1:{port}", RUNTIME_DIRECTORY=str(tmp_path)) as found,
    ):
        [warning] = found.warnings
        assert warning.startswith(f"admin: auto cannot use unix:{path}: another process listens there")
        assert found.logged("proxy.ready")["admin"] is None
        assert found.stop() == 0
        assert path.exists()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_is_kept(tmp_path: Path, kind: str) -> None:
    """A file, a directory or a link that stands at the place is not taken away: exit 2."""
    path, target = tmp_path / "admin.sock", tmp_path / "precious"
    target.write_text("precious")
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(target)
    done = ended(command(tmp_path, admin=f"unix:{path}"))
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert path.is_dir() if kind == "directory" else path.read_text() == "precious"


def test_a_directory_that_is_missing(tmp_path: Path) -> None:
    """Exit 2 for an explicit place, a warning for `auto`."""
    done = ended(command(tmp_path, admin=f"unix:{tmp_path}/nowhere/admin.sock"))
    assert done.returncode == 2
    assert "(admin)" in done.stderr or "admin:" in done.stderr
    assert "Traceback" not in done.stderr
    with running(tmp_path, admin="auto", RUNTIME_DIRECTORY=f"{tmp_path}/nowhere") as found:
        [warning] = found.warnings
        assert warning.startswith(f"admin: auto cannot use unix:{tmp_path}/nowhere/forkwatch-")
        assert found.logged("proxy.ready")["admin"] is None


# The places of `auto`.


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RUNTIME_DIRECTORY": "/run/forkwatch"}, NAMED),
        ({"RUNTIME_DIRECTORY": "/run/forkwatch:/run/other"}, NAMED),
        ({"RUNTIME_DIRECTORY": "/run/forkwatch", "XDG_RUNTIME_DIR": "/run/user/0"}, NAMED),
        ({"RUNTIME_DIRECTORY": "", "XDG_RUNTIME_DIR": "/run/forkwatch"}, NAMED),
        ({"XDG_RUNTIME_DIR": "/run/forkwatch"}, NAMED),
        ({"XDG_RUNTIME_DIR": ""}, None),
        ({}, None),
    ],
    ids=str,
)
def test_places_of_auto(variables: dict[str, str], expected: Path | None) -> None:
    """The service manager's directory first, then the user's, with the port that clients connect to."""
    assert place_of("auto", LISTEN, variables) == (None if expected is None else f"unix:{expected}")


@pytest.mark.parametrize("setting", ["unix:/a", "127.0.0.1:1"])
def test_an_explicit_place_is_its_own(setting: str) -> None:
    """The environment has no say."""
    assert place_of(setting, LISTEN, {"RUNTIME_DIRECTORY": "/run"}) == setting


def test_auto_in_a_process(tmp_path: Path) -> None:
    """The first directory of the list, with the port that was chosen where it was to be a free one."""
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    top: dict[str, Any] = {"RUNTIME_DIRECTORY": f"{first}:{second}", "XDG_RUNTIME_DIR": str(second)}
    with running(tmp_path, **top) as found:
        port = found.logged("proxy.ready")["listen"].rpartition(":")[2]
        path = first / f"forkwatch-{port}.sock"
        assert (list(first.iterdir()), list(second.iterdir())) == ([path], [])
        assert found.logged("proxy.ready")["admin"] == f"unix:{path}"
        assert status_over(path) == b"HTTP/1.1 200 OK\r\n"


def test_auto_without_a_place(tmp_path: Path) -> None:
    """Neither variable is set: a warning that says what to do, and no interface."""
    with running(tmp_path) as found:
        [warning] = found.warnings
        assert warning.startswith("admin: auto finds no place: neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR")
        assert found.logged("proxy.ready")["admin"] is None


def test_no_interface_is_no_warning(tmp_path: Path) -> None:
    """`admin: null` says that none is wanted."""
    with running(tmp_path, admin=None, XDG_RUNTIME_DIR=str(tmp_path)) as found:
        assert found.warnings == []
        assert list(tmp_path.glob("*.sock")) == []


# What is refused.


NO_TOKEN = "admin: can be reached from other machines without a token; set admin_token_file"


@pytest.mark.parametrize("admin", ["0.0.0.0:0", "10.0.0.1:9465", "[::]:9465", "proxy.example:9465"])
def test_an_address_that_others_reach_needs_a_token(
    tmp_path: Path, admin: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` refuses it with the line of the file and the remedy."""
    assert main(command(tmp_path, "check", admin=admin)[3:]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith(f"{tmp_path}/forkwatch.yaml:1: {NO_TOKEN}")


def test_nothing_listens_without_a_token(tmp_path: Path) -> None:
    """So does `run`, before anything listens: exit 2."""
    done = ended(command(tmp_path, admin="0.0.0.0:0"))
    assert (done.returncode, done.stdout) == (2, "")
    assert NO_TOKEN in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds no token"),
        (b" \n", "holds no token"),
        (b"fifteen-chars-x\n", "holds no token"),
        (b"two words of it, and long enough", "holds no token"),
        (b"two-lines-of-it\nand-long-enough", "holds no token"),
        ("fünfzehn-zeichen-und-mehr".encode(), "holds no token"),
        (b"\xff" * 20, "holds no token"),
        (b"x" * 5000, "is larger than 4096 bytes"),
        (None, "the file cannot be read: No such file or directory"),
    ],
    ids=["empty", "blank", "short", "words", "lines", "umlaut", "bytes", "large", "missing"],
)
def test_a_token_file_that_holds_none(
    tmp_path: Path, content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` refuses it, and repeats nothing of it."""
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    top = {"admin": "0.0.0.0:0", "admin_token_file": str(file)}
    assert main(command(tmp_path, "check", **top)[3:]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert f"admin_token_file: {said}" in line
    assert not [
        word for word in ("chars", "words", "zeichen", "xxxx") if word in line.replace("characters", "")
    ]


def test_a_token_opens_an_address_that_others_reach(tmp_path: Path) -> None:
    """With a token of sixteen characters `check` is content, and the interface listens there."""
    file = tmp_path / "token"
    file.write_text("sixteen-chars-xx\n")
    top: dict[str, Any] = {"admin": "0.0.0.0:0", "admin_token_file": str(file)}
    assert main(command(tmp_path, "check", **top)[3:]) == 0
    with running(tmp_path, **top) as found:
        place = found.logged("proxy.ready")["admin"]
        assert place.startswith("http://0.0.0.0:")
        with socket.create_connection(("127.0.0.1", int(place.rpartition(":")[2])), PATIENCE_S) as sock:
            sock.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            assert sock.makefile("rb").readline() == b"HTTP/1.1 401 Unauthorized\r\n"


def test_a_taken_port(tmp_path: Path) -> None:
    """An explicit address that is in use is exit 2 and one line that says so."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = ended(command(tmp_path, admin=address))
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert f"cannot listen on {address}" in line
    assert "Traceback" not in done.stdout


def test_the_oldest_connection_gives_way(tmp_path: Path) -> None:
    """Whoever holds connections open does not keep the command line out, and holds no more than the limit."""
    path = tmp_path / "admin.sock"
    with running(tmp_path, admin=f"unix:{path}"):
        held = []
        for _ in range(MAX_CONNECTIONS + 1):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].settimeout(PATIENCE_S)
            held[-1].connect(str(path))
        assert held[0].recv(1) == b""
        assert status_over(path).startswith(b"HTTP/1.1 200")
        for sock in held:
            sock.close()


def test_an_open_tail_does_not_keep_the_process(tmp_path: Path) -> None:
    """Whoever reads the live tail does not hold up the end, and the socket's file is taken away."""
    path = tmp_path / "admin.sock"
    with running(tmp_path, admin=f"unix:{path}") as found, socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(PATIENCE_S)
        sock.connect(str(path))
        sock.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert sock.recv(12) == b"HTTP/1.1 200"
        began = time.monotonic()
        assert found.stop() == 0
        assert time.monotonic() - began < 1.0
        while sock.recv(65536):
            time.sleep(POLL_S)
        assert not path.exists()
        assert found.process.stderr is not None
        assert "Traceback" not in found.process.stderr.read()
