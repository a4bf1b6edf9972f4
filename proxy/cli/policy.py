"""`forkwatch policy`: switches what a running proxy does about a fork, for a time."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from proxy.cli import CommandFailed
from proxy.cli.client import connect
from proxy.cli.tables import clock, counted, escaped


def run(args: argparse.Namespace) -> int:
    """Switch, and print what changed. Raises CommandFailed."""
    if args.ttl is not None and args.mode == "configured":
        raise CommandFailed("configured ends a switch and takes no --ttl; leave it out")
    admin = connect(args)
    asked = {"mode": args.mode, "upstream": args.upstream, "ttl": args.ttl}
    answer = admin.ask("POST", "policy", body=asked).body
    return admin.tell(
        answer,
        lambda body: [_line(each) for each in body["changed"]] or ["nothing changed"],
        as_json=args.json,
    )


def _line(change: Mapping[str, Any]) -> str:
    name, mode, before = (escaped(change[key], 64) for key in ("upstream", "mode", "previous_mode"))
    text = f"{name}: {mode}" if mode == before else f"{name}: {mode}, was {before}"
    until = change["until_at"]
    text += ", as configured" if until is None else f", until {clock(until)} or forkwatch policy configured"
    if change["released"]:
        text += f"; {counted(change['released'], 'quarantined session')} released"
    return text
