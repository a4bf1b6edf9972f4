"""An admin interface for the command line to ask: a real HTTP server that answers from a table, and what it says."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple

import pytest

from proxy.cli import locate

NOW = 1764425000.0
"""14:03:20 UTC."""
SESSION = "s_5b2f0c9e41aa"
PROBLEM = {"type": "not-found", "title": "Not Found", "status": 404, "detail": "there is no such thing"}

STATUS: dict[str, Any] = {
    "version": "0.1.0",
    "python": "3.13.1",
    "pid": 17,
    "started_at": NOW - 6000,
    "now": NOW,
    "state": "draining",
    "reasons": ["draining"],
    "listen": "http://127.0.0.1:8080",
    "status": "http://127.0.0.1:9464",
    "admin": "unix:/run/forkwatch/forkwatch-8080.sock",
    "config": {
        "path": "/etc/f.yaml",
        "last_reload_ok": False,
        "last_reload_at": NOW - 6000,
        "errors": ["f.yaml:3: x"],
    },
    "upstreams": [
        {
            "upstream": "tools",
            "url": "http://127.0.0.1:9000",
            "mode": "observe",
            "configured_mode": "enforce",
            "until_at": NOW + 600,
            "sessions": {"active": 3, "quarantined": 1},
            "requests_in_flight": 1,
            "streams_open": {"post": 1, "get": 2, "resume": 1},
            "resume_attempts": 12,
            "verdicts": {"resumed": 10, "fork": 1, "gap": 0, "crossed": 0, "rewound": 0, "refused": 1},
            "would_cut": 1,
            "cut": 0,
            "events_lost": 9,
            "events_duplicated": 0,
            "requests_unanswered": 2,
            "fail_open": 1,
            "upstream_errors": 3,
        }
    ],
    "ledger_bytes": 3 * 1024 * 1024,
    "log_messages_dropped": 1,
    "open_exchanges": 4,
    "limits": {"sessions_per_upstream": 20000, "ledger_bytes": 256 * 1024 * 1024},
}
FORK = {"verdict": "fork", "reason": "log_restarted", "certainty": "proven", "at": NOW - 12, "action": "pass"}
SUMMARY: dict[str, Any] = {
    "session": SESSION,
    "upstream": "tools",
    "state": "active",
    "opened_at": NOW - 20,
    "used_at": NOW - 12,
    "protocol": "2025-06-18",
    "dialect": "integer",
    "epoch": 2,
    "streams": 1,
    "events": 10,
    "in_flight": 1,
    "open": 1,
    "verdict": FORK,
}
JUDGED: dict[str, Any] = {
    **FORK,
    "cursor": "5",
    "high": "7",
    "first_id": "1",
    "got": "1",
    "outstanding": 2,
    "lost": 2,
    "duplicated": 0,
    "in_flight": 1,
    "away_s": 1.003,
    "replica": "pod-b",
    "previous_replica": "pod-a",
    "would_cut": True,
    "took_ms": 0.4,
    "cursor_position": 5,
    "high_position": 7,
    "got_position": 1,
    "hint": "The replicas differ: route by Mcp-Session-Id.",
}
BEFORE: dict[str, Any] = {
    "stream": "get-1",
    "kind": "get",
    "opened_at": NOW - 20,
    "closed_at": NOW - 13,
    "cause": "upstream_reset",
    "events": 7,
    "epoch": 1,
    "replica": "pod-a",
    "points": [[NOW - 20 + n, n] for n in range(1, 8)],
    "judged": None,
}
AFTER: dict[str, Any] = {
    **BEFORE,
    "kind": "resume",
    "opened_at": NOW - 12,
    "closed_at": None,
    "cause": None,
    "events": 3,
    "epoch": 2,
    "replica": "pod-b",
    "points": [[NOW - 12 + n, n + 1] for n in range(3)],
    "judged": JUDGED,
}
LOG = {
    "stream": "get-1", "kind": "get", "high": "3", "events": 10, "epoch": 2, "open": 1, "in_flight": 1, "replica": None
}  # fmt: skip
DETAIL: dict[str, Any] = {
    **SUMMARY,
    "quarantine": None,
    "logs": [LOG],
    "timeline": {"now": NOW, "forgotten": 2, "connections": [BEFORE, AFTER]},
}


class Asked(NamedTuple):
    """One request a fixture server got."""

    method: str
    target: str
    headers: dict[str, str]
    body: str


Reply = tuple[int, Any] | Callable[[], tuple[int, Any]]


class Interface(socketserver.ThreadingUnixStreamServer):
    """Answers requests from a table, by `METHOD target`; what is not in it is a 404 problem."""

    daemon_threads = True

    def __init__(self, path: str) -> None:
        super().__init__(path, _Handler)
        self.path = path
        self.replies: dict[str, Reply] = {}
        self.asked: list[Asked] = []

    @property
    def flags(self) -> list[str]:
        """How to get here."""
        return ["--admin", f"unix:{self.path}"]


class _Handler(BaseHTTPRequestHandler):
    server: Interface

    def do_GET(self) -> None:
        """Answer from the table: a JSON value, or bytes that are none."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.server.asked.append(Asked(self.command, self.path, dict(self.headers.items()), body))
        reply = self.server.replies.get(f"{self.command} {self.path}", (404, PROBLEM))
        status, value = reply() if callable(reply) else reply
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        kind = "application/problem+json" if status >= 400 else "application/json"
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(value, bytes) else kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""


@contextmanager
def isolated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No setting and no proxy of whoever runs the tests; local times are UTC."""
    for name in [name for name in os.environ if name.startswith("FORKWATCH")]:
        monkeypatch.delenv(name)
    for name in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(locate, "SERVICE_DIRECTORY", "/nonexistent")
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@contextmanager
def serving(path: str) -> Iterator[Interface]:
    """An interface at a path."""
    with Interface(path) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def raw_listener(path: str, answer: bytes | None) -> Iterator[None]:
    """A listener that is no HTTP server: sends `answer` and closes, or for None says nothing at all."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def serve() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.recv(65536)
                accepted.sendall(answer or b"")

        if answer is None:
            yield
            return
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def lines(text: str) -> list[str]:
    """The lines of a block in a test."""
    return text.strip("\n").splitlines()
