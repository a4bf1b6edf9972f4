"""`forkwatch sessions`: the sessions a running proxy knows, as a table, the newest first."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.cli.client import Admin, connect
from proxy.cli.tables import (
    Screen,
    ago,
    clock,
    screen,
    show,
    show_json,
    state_style,
    table,
    value_text,
    verdict_style,
    verdict_text,
)

_PAGE = 500
"""The most the interface gives at once."""


def run(args: argparse.Namespace) -> int:
    """Print up to `args.limit` sessions, all for 0. Raises CommandFailed."""
    admin = connect(args)
    with admin.understood():
        sessions, after = collect(admin, args)
        if args.json:
            lines = []
            show_json({"sessions": sessions, "next": after})
        else:
            lines = sessions_lines(sessions, time.time(), screen(), more=after is not None)
    show(lines)
    return 0


def collect(admin: Admin, args: argparse.Namespace) -> tuple[list[dict[str, Any]], str | None]:
    """The sessions asked for, from as many pages as that takes; and where the next page begins, if any."""
    sessions: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = min(args.limit - len(sessions), _PAGE) if args.limit else _PAGE
        query = {
            "state": args.state,
            "upstream": args.upstream,
            "verdict": args.verdict,
            "limit": page,
            "after": after,
        }
        body = admin.ask("GET", "sessions", query).body
        got, after = body["sessions"], body["next"]
        sessions += got
        if after is None or not got or len(sessions) == args.limit:
            return sessions, after


def sessions_lines(
    sessions: Sequence[Mapping[str, Any]], now: float, on: Screen, *, more: bool = False
) -> list[str]:
    """One line a session; `more` says that there are others."""
    if not sessions:
        return [
            "no session matches: one appears when a client has initialized through the proxy; clients of the"
            " 2026-07-28 revision, and stateless servers, open none"
        ]
    head = (
        "SESSION",
        "UPSTREAM",
        "STATE",
        "OPENED",
        "USED",
        "EVENTS",
        "OPEN",
        "IN FLIGHT",
        "VERDICT",
    )
    rows, styles = [], []
    for each in sessions:
        cells = (
            each["session"],
            each["upstream"],
            each["state"],
            clock(each["opened_at"]),
            ago(each["used_at"], now),
            each["events"],
            each["open"],
            each["in_flight"],
        )
        rows.append([*(value_text(cell, 64) for cell in cells), verdict_text(each["verdict"])])
        verdict = (each["verdict"] or {}).get("verdict")
        alarm = verdict_style(verdict) if verdict != "resumed" else None
        styles.append(state_style(each["state"]) or alarm)
    lines = table(head, rows, on, styles)
    return [*lines, f"(the newest {len(sessions)}; --limit 0 shows all)"] if more else lines
