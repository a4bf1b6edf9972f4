"""Where the admin interface of a running proxy is: said, or found among the sockets of this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from proxy.cli import CommandFailed
from proxy.cli.tables import escaped
from proxy.endpoint import Endpoint

SERVICE_DIRECTORY = "/run/forkwatch"
"""Where the proxy's socket is when it runs as a service, whoever asks."""
OFF = ("", "~", "null", "Null", "NULL")
"""What a variable says that turns a setting off."""

_PROBE_S = 1.0
_FORMS = "write unix:PATH or HOST:PORT"


class Place(NamedTuple):
    """An admin interface: the path of a Unix socket, or an address."""

    path: str | None
    endpoint: Endpoint | None = None

    @classmethod
    def parse(cls, text: str) -> Place:
        """`unix:PATH` or `HOST:PORT`. Raises ValueError."""
        if text.startswith("unix:") and len(text) > len("unix:"):
            return cls(text.removeprefix("unix:"))
        return cls(None, Endpoint.parse(text))

    def __str__(self) -> str:
        """As `--admin` takes it."""
        return f"unix:{self.path}" if self.path is not None else str(self.endpoint)


def find(admin: str | None, listen: str | None, environ: Mapping[str, str]) -> Place:
    """Where the admin interface is. Raises CommandFailed if that is not clear.

    `admin`, else FORKWATCH__ADMIN, else `auto`: the socket of the proxy that listens at `listen` or
    FORKWATCH__LISTEN, else of the only one that runs.
    """
    name, text = "--admin", admin
    if text is None:
        name, text = "FORKWATCH__ADMIN", environ.get("FORKWATCH__ADMIN", "auto").strip()
    if text in OFF:
        raise CommandFailed(f"{name} says that there is no admin interface; {_FORMS}")
    if text == "auto":
        return _automatic(_directories(environ), _port(listen, environ))
    try:
        return Place.parse(text)
    except ValueError as error:
        raise CommandFailed(f"{name} is not an admin address; {_FORMS}") from error


def _directories(environ: Mapping[str, str]) -> list[str]:
    own = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if own:
        return [own]
    user = environ.get("XDG_RUNTIME_DIR", "")
    return [user, SERVICE_DIRECTORY] if user else [SERVICE_DIRECTORY]


def _port(listen: str | None, environ: Mapping[str, str]) -> int | None:
    """The port clients connect to, None if it is not known before the proxy runs."""
    name, text = "--listen", listen
    if text is None:
        name, text = "FORKWATCH__LISTEN", environ.get("FORKWATCH__LISTEN", "").strip()
    if not text:
        return None
    try:
        return Endpoint.parse(text).port or None
    except ValueError as error:
        raise CommandFailed(f"{name} is {error}") from error


def _automatic(directories: list[str], port: int | None) -> Place:
    pattern = f"forkwatch-{'*' if port is None else port}.sock"
    paths = [path for each in directories for path in sorted(Path(each).glob(pattern))]
    states = {str(path): _state(str(path)) for path in paths}
    found = [path for path, state in states.items() if state == "answers"]
    found = found or [path for path, state in states.items() if state == "denied"]
    if len(found) == 1:
        return Place(found[0])
    if found:
        lines = [f"  --admin {escaped(str(Place(path)), 200)}" for path in found]
        raise CommandFailed("several proxies run here; say which:", *lines)
    wanted = " or ".join(escaped(f"{directory}/{pattern}", 200) for directory in directories)
    closed = [each for each in directories if Path(each).is_dir() and not os.access(each, os.R_OK | os.X_OK)]
    if closed:
        raise CommandFailed(
            f"{escaped(closed[0], 200)} may not be read; run this as the proxy's user, or with sudo"
        )
    raise CommandFailed(f"no proxy answers at {wanted}; start one, or give --admin unix:PATH or HOST:PORT")


def _state(path: str) -> str:
    """Whether somebody listens on this socket: `answers`, `denied` or `silent`."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(path)
        except PermissionError:
            return "denied"
        except (BlockingIOError, TimeoutError):  # it listens, and its queue is full: asking it will say so
            return "answers"
        except OSError:
            return "silent"
    return "answers"
