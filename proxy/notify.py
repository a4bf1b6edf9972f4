"""What the service manager is told about this process: systemd's notification protocol, sd_notify(3).

One datagram a notice, to the socket that `NOTIFY_SOCKET` names. Who runs without a service manager
pays nothing. A notice that cannot be delivered is dropped: a proxy does not stop for its supervisor.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping


class Notifier:
    """The way to the service manager that `env` names; every notice does nothing where it names none.

    No method raises or blocks. The socket is opened once, so that a process out of file descriptors
    still feeds its watchdog.
    """

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._address = _address(env.get("NOTIFY_SOCKET", ""))
        self._socket = _datagram_socket() if self._address else None
        self.watchdog_interval_s = _watchdog_interval_s(env) if self._socket else None
        """How often `watchdog` is due, in seconds: twice in the manager's patience. None: never."""

    def ready(self) -> None:
        """Start-up is over, or a reload is."""
        self._send("READY=1")

    def reloading(self) -> None:
        """A reload begins; `ready` ends it. The time tells the manager which of two it was."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The process begins to end."""
        self._send("STOPPING=1")

    def watchdog(self) -> None:
        """The process is alive; due every `watchdog_interval_s`."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for people who ask the manager; line ends in `text` become spaces."""
        self._send("STATUS=" + " ".join(text.splitlines()))

    def close(self) -> None:
        """No notice goes out from here on. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, notice: str) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(notice.encode("utf-8", "replace"), self._address)


def _address(name: str) -> str:
    """The address of an AF_UNIX socket: a path, or `@name` in the abstract namespace; empty for others."""
    if name.startswith("@"):
        return "\0" + name[1:]
    return name if name.startswith("/") else ""


def _datagram_socket() -> socket.socket | None:
    try:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError:
        return None
    made.setblocking(False)
    return made


def _watchdog_interval_s(env: Mapping[str, str]) -> float | None:
    """Half of `WATCHDOG_USEC`, unless `WATCHDOG_PID` means another process."""
    patience, pid = env.get("WATCHDOG_USEC", ""), env.get("WATCHDOG_PID", str(os.getpid()))
    if pid != str(os.getpid()) or not (patience.isascii() and patience.isdecimal()):
        return None
    return int(patience) / 2_000_000 or None
