"""The admin API's answers about the timelines: the session's row and detail, the feed's line, the status."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from tests.page.timelines import T0, Json

WORST = ("fork", "crossed", "gap", "rewound", "refused", "unverifiable", "inconclusive", "resumed")


def session_id(name: str) -> str:
    """The hashed id of the session of that name."""
    return f"s_{hashlib.blake2b(name.encode(), digest_size=6).hexdigest()}"


def summary(name: str, connections: list[Json]) -> Json:
    """A session's row."""
    verdicts = [each["judged"] for each in connections if each["judged"]]
    worst = min(verdicts, key=lambda each: WORST.index(each["verdict"]), default=None)
    cut = worst is not None and worst["action"] == "cut"
    return {
        "session": session_id(name),
        "upstream": "tools",
        "state": "quarantined" if cut else "active",
        "opened_at": T0,
        "used_at": T0 + 10,
        "protocol": "2025-11-25",
        "dialect": None if name == "opaque" else "integer",
        "epoch": max((each["epoch"] for each in connections), default=1),
        "streams": len({each["stream"] for each in connections}),
        "events": sum(each["events"] for each in connections),
        "in_flight": 0,
        "open": sum(each["closed_at"] is None for each in connections),
        "verdict": worst and {key: worst[key] for key in ("verdict", "reason", "certainty", "at", "action")},
    }


def detail(name: str, connections: list[Json]) -> Json:
    """A session with its logs and its timeline."""
    row = summary(name, connections)
    streams = sorted({each["stream"] for each in connections})
    quarantine = {"since_at": T0 + 4.1, "until_at": T0 + 604.1, **(row["verdict"] or {})}
    return row | {
        "quarantine": quarantine if row["state"] == "quarantined" else None,
        "logs": [
            {"stream": stream, "kind": stream.split("-")[0], "high": "7", "events": 7, "epoch": 1, "open": 0,
             "in_flight": 0, "replica": "pod-a"}
            for stream in streams
        ],
        "timeline": {"now": T0 + 12, "forgotten": 0, "connections": connections},
    }  # fmt: skip


def line(verdict: Json, session: str, **more: Any) -> Json:
    """The log line of a judgement, as the feed carries it."""
    keys = ("verdict", "reason", "certainty", "cursor", "high", "outstanding", "first_id", "lost", "duplicated",
            "in_flight", "away_s", "replica", "previous_replica", "action", "took_ms")  # fmt: skip
    ts = datetime.fromtimestamp(verdict["at"], UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    bound = {"ts": ts, "level": "info", "event": "resume.judged", "upstream": "tools", "session": session}
    return bound | {"stream": "get-1"} | {key: verdict[key] for key in keys} | more


def status(sessions: int) -> Json:
    """The status of a proxy with two upstreams, one of them switched to observe for a while."""
    verdicts = dict.fromkeys(WORST, 0)
    quiet = {
        "upstream": "search",
        "url": "http://127.0.0.1:9001",
        "mode": "annotate",
        "configured_mode": "annotate",
        "until_at": None,
        "sessions": {"active": 0, "quarantined": 0},
        "requests_in_flight": 0,
        "streams_open": {"post": 0, "get": 0, "resume": 0},
        "resume_attempts": 0,
        "verdicts": verdicts,
        "would_cut": 0,
        "cut": 0,
        "events_lost": 0,
        "events_duplicated": 0,
        "requests_unanswered": 0,
        "fail_open": 0,
        "upstream_errors": 0,
    }
    tools = quiet | {
        "upstream": "tools",
        "url": "http://127.0.0.1:9000",
        "mode": "observe",
        "configured_mode": "enforce",
        "until_at": T0 + 3600,
        "sessions": {"active": 14 + sessions, "quarantined": 1},
        "requests_in_flight": 1,
        "resume_attempts": 22,
        "verdicts": verdicts | {"resumed": 12, "fork": 5, "gap": 3, "crossed": 1, "rewound": 1, "refused": 1},
        "would_cut": 4,
        "cut": 1,
        "events_lost": 19,
    }
    return {
        "version": "0.1.0",
        "python": "3.13.1",
        "pid": 1,
        "started_at": T0 - 60,
        "now": T0 + 12,
        "state": "ready",
        "reasons": [],
        "listen": "http://127.0.0.1:8080",
        "status": "http://127.0.0.1:9464",
        "admin": "http://127.0.0.1:9465",
        "config": {"path": None, "last_reload_ok": True, "last_reload_at": T0 - 60, "errors": []},
        "upstreams": [tools, quiet],
        "ledger_bytes": 123456,
        "log_messages_dropped": 0,
        "open_exchanges": 4,
        "limits": {"sessions_per_upstream": 20000},
    }
