"""`forkwatch quarantine`: refuses a session's requests until its client starts anew, or lets it go on."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from proxy.cli.client import connect, session_path
from proxy.cli.tables import clock, counted, escaped


def run(args: argparse.Namespace) -> int:
    """Quarantine or release one session. Raises CommandFailed, also if it is in that state already."""
    admin = connect(args)
    path, query = f"{session_path(args.id)}/quarantine", {"upstream": args.upstream}
    answer = admin.ask("DELETE" if args.release else "POST", path, query).body
    return admin.tell(answer, _released if args.release else _quarantined, as_json=args.json)


def _released(answer: Mapping[str, Any]) -> list[str]:
    return [f"{_named(answer)} is released: its requests go upstream again"]


def _quarantined(answer: Mapping[str, Any]) -> list[str]:
    ended = counted(answer["ended_exchanges"], "exchange")
    return [f"{_named(answer)} is quarantined until {clock(answer['until_at'])}; {ended} ended"]


def _named(answer: Mapping[str, Any]) -> str:
    return f"{escaped(answer['session'])} of {escaped(answer['upstream'], 64)}"
