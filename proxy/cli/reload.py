"""`forkwatch reload`: has a running proxy read its configuration again; errors keep the one in force."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from proxy.cli import CommandFailed
from proxy.cli.client import connect
from proxy.cli.tables import escaped, show, show_json

_REJECTED = 422
_MOST = 400


def run(args: argparse.Namespace) -> int:
    """Reload, or only try to, and print what changed. Raises CommandFailed, with every error there is."""
    admin = connect(args)
    answer = admin.ask("POST", "reload", {"dry_run": 1 if args.dry_run else None}, also=(_REJECTED,))
    if args.json:
        show_json(answer.body)
        return 1 if answer.status == _REJECTED else 0
    with admin.understood():
        if answer.status == _REJECTED:
            errors = (escaped(error, _MOST) for error in answer.body["errors"])
            raise CommandFailed("the configuration has errors, and the one in force stays; correct:", *errors)
        lines = _lines(answer.body)
    show(lines)
    return 0


def _lines(body: Mapping[str, Any]) -> list[str]:
    head = "would be reloaded" if body["dry_run"] else "reloaded"
    return [
        head if body["changed"] or body["restart_needed"] else f"{head}, nothing changed",
        *(f"changed: {escaped(key, _MOST)}" for key in body["changed"]),
        *(f"needs a restart: {escaped(key, _MOST)}" for key in body["restart_needed"]),
        *(f"warning: {escaped(warning, _MOST)}" for warning in body["warnings"]),
    ]
