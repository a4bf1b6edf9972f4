"""What a service manager receives, on real datagram sockets."""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxy.notify import Notifier

ROOT = Path(__file__).parent.parent
PID = str(os.getpid())


LINUX_ALONE = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")


@pytest.fixture(params=["path", pytest.param("abstract", marks=LINUX_ALONE)])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A service manager's socket under both kinds of names: what NOTIFY_SOCKET says, and the socket."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@forkwatch-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1))
        receiver.settimeout(5)
        yield name, receiver


@pytest.fixture
def notifier() -> Iterator[Callable[..., Notifier]]:
    """Makes notifiers from an environment and closes them."""
    made: list[Notifier] = []

    def make(**env: str) -> Notifier:
        made.append(Notifier(env))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize(
    ("tell", "notice"),
    [
        (Notifier.ready, b"READY=1"),
        (Notifier.stopping, b"STOPPING=1"),
        (Notifier.watchdog, b"WATCHDOG=1"),
        (lambda each: each.status("4 streams, 1 fork: é"), "STATUS=4 streams, 1 fork: é".encode()),
        (lambda each: each.status("one\nREADY=1\r\ntwo"), b"STATUS=one READY=1 two"),
        (lambda each: each.status("\udc80"), b"STATUS=?"),
    ],
    ids=["ready", "stopping", "watchdog", "status", "status of several lines", "status that is no text"],
)  # fmt: skip
def test_a_notice_is_one_datagram(
    manager: tuple[str, socket.socket],
    notifier: Callable[..., Notifier],
    tell: Callable[[Notifier], None],
    notice: bytes,
) -> None:
    """Its assignments, exactly, and nothing after them."""
    name, receiver = manager
    tell(notifier(NOTIFY_SOCKET=name))
    assert receiver.recv(4096) == notice
    receiver.setblocking(False)
    with pytest.raises(BlockingIOError):
        receiver.recv(4096)


def test_a_reload_says_when_it_began(
    manager: tuple[str, socket.socket], notifier: Callable[..., Notifier]
) -> None:
    """In microseconds of the monotonic clock, which is what Type=notify-reload compares."""
    name, receiver = manager
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier(NOTIFY_SOCKET=name).reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    found = re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=(\d+)", receiver.recv(4096))
    assert found is not None
    assert before <= int(found[1]) <= after


@pytest.mark.parametrize(
    ("env", "interval_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "500000", "WATCHDOG_PID": PID}, 0.25),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": ""}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "²"}, None),
        ({"WATCHDOG_USEC": ""}, None),
        ({"WATCHDOG_PID": PID}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_watchdog_is_fed_twice_in_its_patience(
    notifier: Callable[..., Notifier], env: dict[str, str], interval_s: float | None
) -> None:
    """Half of WATCHDOG_USEC if the manager means this process; None when it asks for nothing sensible."""
    assert notifier(NOTIFY_SOCKET="/run/systemd/notify", **env).watchdog_interval_s == interval_s


@pytest.mark.parametrize("name", ["", "vsock:2:1234", "relative/path"])
def test_without_a_socket_there_is_nobody_to_tell(notifier: Callable[..., Notifier], name: str) -> None:
    """No watchdog either, and no descriptor is held."""
    before = len(os.listdir("/dev/fd"))
    silent = notifier(NOTIFY_SOCKET=name, WATCHDOG_USEC="30000000")
    silent.ready()
    silent.reloading()
    assert silent.watchdog_interval_s is None
    assert len(os.listdir("/dev/fd")) == before


def test_a_manager_that_is_gone_hurts_nobody(notifier: Callable[..., Notifier], tmp_path: Path) -> None:
    """Neither a missing socket nor a name that cannot be one raises."""
    notifier(NOTIFY_SOCKET=str(tmp_path / "nobody")).ready()
    notifier(NOTIFY_SOCKET="/" + "x" * 200).ready()


def test_a_manager_that_does_not_read_stops_nobody(
    manager: tuple[str, socket.socket], notifier: Callable[..., Notifier]
) -> None:
    """Far more notices than its queue holds return at once; those that fitted are there."""
    name, receiver = manager
    full = notifier(NOTIFY_SOCKET=name)
    began = time.monotonic()
    for _ in range(5000):
        full.watchdog()
    assert time.monotonic() - began < 5
    assert receiver.recv(4096) == b"WATCHDOG=1"


def test_a_manager_that_comes_back_is_told_again(notifier: Callable[..., Notifier], tmp_path: Path) -> None:
    """A notice after the socket was made anew arrives there: nothing is connected."""
    name = str(tmp_path / "notify")
    again = notifier(NOTIFY_SOCKET=name)
    for _ in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(name)
            receiver.settimeout(5)
            again.ready()
            assert receiver.recv(4096) == b"READY=1"
        os.unlink(name)


def test_nothing_is_sent_after_close(
    manager: tuple[str, socket.socket], notifier: Callable[..., Notifier]
) -> None:
    """And a second close is none."""
    name, receiver = manager
    closed = notifier(NOTIFY_SOCKET=name)
    closed.close()
    closed.close()
    closed.ready()
    receiver.setblocking(False)
    with pytest.raises(BlockingIOError):
        receiver.recv(4096)


def test_the_process_environment_is_the_default(manager: tuple[str, socket.socket]) -> None:
    """A process that a manager started tells it, with no argument."""
    name, receiver = manager
    script = "from proxy.notify import Notifier; n = Notifier(); n.ready(); print(n.watchdog_interval_s); n.close()"
    env = {**os.environ, "NOTIFY_SOCKET": name, "WATCHDOG_USEC": "4000000"}
    env.pop("WATCHDOG_PID", None)
    ran = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert ran.stdout == "2.0\n"
    assert receiver.recv(4096) == b"READY=1"
