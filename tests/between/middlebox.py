"""nginx, HAProxy and Caddy as real processes on loopback, with the configurations of this folder.

A configuration names the addresses of an example; a test puts its own in their place and changes nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.forkwatch_process import POLL_S

HERE = Path(__file__).parent
START_TIMEOUT_S = 20.0

IN_FRONT, BEHIND, FORKWATCH, REPLICA_A, REPLICA_B = 8000, 8001, 8080, 9001, 9002
"""The ports of the example: two where the middlebox listens, three where it connects to."""

HASTY = "500ms"
"""What stands for the recommended limit of one hour where a test waits for its end."""

NGINX = """daemon off; master_process off; pid nginx.pid; error_log stderr;
events {{ }}
http {{
  access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
{}}}
"""
HAPROXY = "global\n  maxconn 1000\n{}"
CADDY = "{{\n\tadmin off\n\tauto_https off\n\tdefault_bind 127.0.0.1\n}}\n{}"
CADDYS_FOLDERS = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")


@dataclass(frozen=True, slots=True)
class Program:
    """A program, its Debian package, and how it is started on a configuration."""

    name: str
    package: str
    recommended: str
    """The file with the settings of docs/proxies.md."""
    defaults: str
    """The file with nothing but addresses, and what the program does not start without."""
    whole: str
    """What stands around them in a whole configuration."""
    arguments: tuple[str, ...]
    check: tuple[str, ...]
    """The arguments with which it only reads the configuration."""


PROGRAMS = (
    Program(
        "nginx",
        "nginx-light",
        "nginx.conf",
        "nginx-defaults.conf",
        NGINX,
        ("-p", "{directory}", "-e", "stderr", "-c", "{config}"),
        ("-t", "-p", "{directory}", "-e", "stderr", "-c", "{config}"),
    ),
    Program(
        "haproxy",
        "haproxy",
        "haproxy.cfg",
        "haproxy-defaults.cfg",
        HAPROXY,
        ("-db", "-f", "{config}"),
        ("-c", "-f", "{config}"),
    ),
    Program(
        "caddy",
        "caddy",
        "Caddyfile",
        "Caddyfile-defaults",
        CADDY,
        ("run", "--adapter", "caddyfile", "--config", "{config}"),
        ("validate", "--adapter", "caddyfile", "--config", "{config}"),
    ),
)


def reserved(stack: contextlib.ExitStack | contextlib.AsyncExitStack) -> int:
    """A loopback port that no other process gets until the stack is unwound: it is bound, for a server to share."""
    holder = stack.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    port: int = holder.getsockname()[1]
    return port


def installed(program: Program) -> bool:
    """Whether it can be started here."""
    return shutil.which(program.name) is not None


def addressed(text: str, ports: dict[int, int]) -> str:
    """A configuration with other ports, each of which stands in it once."""

    def replaced(found: re.Match[str]) -> str:
        return f":{ports[int(found[1])]}"

    changed, count = re.subn(r":(\d{4})\b", replaced, text)
    assert count == len(ports), f"{count} addresses in {text}"
    return changed


@dataclass(slots=True)
class Middlebox:
    """One process that stands in front of forkwatch on one port, and behind it on another."""

    program: Program
    configuration: str
    forkwatch_port: int
    replica_ports: tuple[int, int]
    directory: Path
    in_front: int
    behind: int
    process: subprocess.Popen[bytes] = field(init=False)

    def configure(self) -> None:
        """Write the configuration file."""
        ports = dict(zip((REPLICA_A, REPLICA_B), self.replica_ports, strict=True))
        ports |= {IN_FRONT: self.in_front, BEHIND: self.behind, FORKWATCH: self.forkwatch_port}
        self.directory.mkdir(exist_ok=True)
        text = self.program.whole.format(addressed(self.configuration, ports))
        (self.directory / "config").write_text(text)

    def start(self, arguments: tuple[str, ...] | None = None) -> None:
        """Start the process, to serve unless told otherwise; `said` is what it says."""
        names = {"directory": str(self.directory), "config": str(self.directory / "config")}
        arguments = arguments or self.program.arguments
        with (self.directory / "said.txt").open("wb") as said:
            self.process = subprocess.Popen(
                [self.program.name, *(each.format(**names) for each in arguments)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.directory,
                env={**os.environ, **dict.fromkeys(CADDYS_FOLDERS, str(self.directory))},
            )

    @property
    def said(self) -> str:
        """What the process has said."""
        return (self.directory / "said.txt").read_text()

    def ready(self) -> None:
        """Return once it listens; AssertionError with its last words if it never does."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(map(_listens, (self.in_front, self.behind))):
            alive = self.process.poll() is None and time.monotonic() < deadline
            assert alive, self.said[-1500:]
            time.sleep(POLL_S)

    def restart(self) -> None:
        """The same process anew, without what it remembers of its servers."""
        self.stop()
        self.start()
        self.ready()

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait(5)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
