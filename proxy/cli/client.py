"""The admin interface of a running proxy: one question over HTTP.

The standard library only. Nothing that a peer or a wrong listener answers raises anything but
`CommandFailed`, which says what is wrong and what to do; no message repeats a token.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from proxy import __version__
from proxy.cli import CommandFailed
from proxy.cli.locate import OFF, Place, find
from proxy.cli.tables import escaped, show, show_json
from proxy.engine.privacy import hash_session

DEADLINE_S = 10.0
"""How long the proxy may take to answer. It does so in milliseconds, unless its process hangs."""
_MOST_BYTES = 64 * 1024 * 1024
_HASHED = re.compile("s_[0-9a-f]{12}")
_SHORTENED = re.compile(r"s_[0-9a-f]{1,11}")
_TOKEN = re.compile(r"[\x21-\x7e]+")


class Answer(NamedTuple):
    """What came back: a status, and a JSON object."""

    status: int
    body: dict[str, Any]


class ProxyGone(CommandFailed):
    """Nobody listens at the admin interface, or the process ended before it answered."""


class Admin:
    """The admin interface of one running proxy."""

    def __init__(self, place: Place, token: str | None = None) -> None:
        self.place = place
        self._token = token

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        *,
        also: Sequence[int] = (),
    ) -> Answer:
        """The answer, if its status is 2xx or one of `also`. Raises CommandFailed.

        `path` is below `/api/v1/`. What is None in `query` is left out.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"/api/v1/{path}" + (f"?{urlencode(given)}" if given else "")
        status, kind, data = self._exchange(method, target, body)
        try:
            value = json.loads(data) if "json" in kind else None
        except ValueError:
            value = None
        if isinstance(value, dict) and (200 <= status < 300 or status in also):
            return Answer(status, value)
        raise self._failure(status, value if isinstance(value, dict) else None, path)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Around the reading of an answer: one of another shape than expected raises CommandFailed."""
        try:
            yield
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise CommandFailed(
                f"{escaped(str(self.place), 200)} answers otherwise than this forkwatch {__version__} expects; "
                "use the version that runs there"
            ) from error

    def tell(self, answer: Mapping[str, Any], lines: Callable[[Any], Sequence[str]], *, as_json: bool) -> int:
        """Print an answer, as it is or as the `lines` made of it; the exit status. Raises as `understood`."""
        if as_json:
            show_json(answer)
            return 0
        with self.understood():
            made = lines(answer)
        show(made)
        return 0

    def _exchange(
        self, method: str, target: str, body: Mapping[str, object] | None
    ) -> tuple[int, str, bytes]:
        headers = {"Accept": "application/json", "Connection": "close"}
        if method != "GET":
            headers["X-Forkwatch-Admin"] = "1"
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        sent = json.dumps(body or {}) if method == "POST" else None
        connection = _Connection(self.place)
        try:
            connection.request(method, target, sent, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers.get_content_type(), answer.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(self.place, error) from error
        finally:
            connection.close()

    def _failure(self, status: int, problem: dict[str, Any] | None, path: str) -> CommandFailed:
        """What to say about an answer that is none of those wanted."""
        where = escaped(str(self.place), 200)
        detail = escaped(str((problem or {}).get("detail") or ""), 400).replace("?upstream=", "--upstream ")
        if status == 401:
            if self._token is None:
                return CommandFailed(f"{where} wants the admin token; give --token-file FILE")
            return CommandFailed(f"{where} does not accept this token; give --token-file the proxy's own")
        if problem is None or str(problem.get("type", "no-upstream")).endswith("no-upstream"):
            return CommandFailed(
                f"{where} answers {status}, but is not the admin interface of a forkwatch; "
                "its ready line says where that is"
            )
        if status == 404 and path.startswith("sessions/"):
            return CommandFailed(
                f"no session {path.split('/')[1]} here: it expired, was evicted or is another proxy's; "
                "see forkwatch sessions"
            )
        return CommandFailed(detail or f"{where} answered {status} {escaped(str(problem.get('title')), 80)}")


def connect(args: argparse.Namespace) -> Admin:
    """The admin interface the arguments and the environment say. Raises CommandFailed."""
    return Admin(find(args.admin, args.listen, os.environ), _token(args.token_file, os.environ))


def session_path(given: str) -> str:
    """The path of a session. A raw id is hashed here: it is a credential, and travels no further."""
    return f"sessions/{session_id(given)}"


def session_id(given: str) -> str:
    """The id as the logs show it, of a raw one or one that is as the logs show it already.

    Raises CommandFailed for a part of the latter.
    """
    if _SHORTENED.fullmatch(given):
        raise CommandFailed(f"{given} is only a part of an id: s_ and 12 digits, as the logs show it")
    return given if _HASHED.fullmatch(given) else hash_session(given)


def _token(file: str | None, environ: Mapping[str, str]) -> str | None:
    name, path = "--token-file", file
    if path is None:
        name, path = "FORKWATCH__ADMIN_TOKEN_FILE", environ.get("FORKWATCH__ADMIN_TOKEN_FILE", "").strip()
        if path in OFF:
            return None
    try:
        text = Path(path).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a text"
        raise CommandFailed(
            f"{name}: the token cannot be read: {reason}; name a file you may read"
        ) from error
    if not _TOKEN.fullmatch(text):
        raise CommandFailed(f"{name}: the file holds no token; it is one line of ASCII without spaces")
    return text


class _Connection(http.client.HTTPConnection):
    """HTTP to a place, also over a Unix socket."""

    def __init__(self, place: Place) -> None:
        host, port = place.endpoint or ("localhost", None)
        super().__init__(host, port, timeout=DEADLINE_S)
        self._path = place.path

    def connect(self) -> None:
        """Open the connection."""
        if self._path is None:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self._path)


def _unreachable(place: Place, error: Exception) -> CommandFailed:
    """What to say when no answer came."""
    where = escaped(str(place), 200)
    match error:
        case TimeoutError() | BlockingIOError():
            return CommandFailed(
                f"{where} did not answer within {DEADLINE_S:g} s; the proxy hangs or is stopped"
            )
        case PermissionError():
            return CommandFailed(f"permission denied: {where}{_owner(place)}")
        case FileNotFoundError() | ConnectionRefusedError():
            return ProxyGone(
                f"nobody listens at {where}; start the proxy, or see its ready line for the address"
            )
        case ConnectionError():
            return ProxyGone(
                f"{where} closed the connection; does the proxy run, and is this the admin interface?"
            )
        case http.client.HTTPException():
            return CommandFailed(f"{where} gave no HTTP answer; it is not the admin interface")
        case _:
            reason = escaped(getattr(error, "strerror", None) or str(error), 200)
            return CommandFailed(f"{where} cannot be reached: {reason}; check the address")


def _owner(place: Place) -> str:
    """Who may use the socket, as far as that can be seen."""
    try:
        import pwd

        name = pwd.getpwuid(os.stat(place.path or "").st_uid).pw_name
    except (OSError, KeyError):
        return "; run this as the proxy's user, or with sudo"
    return f" belongs to {name}; run this as {name}, such as with sudo -u {name}"
