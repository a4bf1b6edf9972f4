"""`forkwatch config`: the settings a running proxy has in force, and where each comes from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from proxy.cli.client import connect
from proxy.cli.tables import Screen, escaped, screen, table, value_text


def run(args: argparse.Namespace) -> int:
    """Print every setting. Raises CommandFailed."""
    admin = connect(args)
    answer = admin.ask("GET", "config").body
    return admin.tell(answer, lambda body: config_lines(body, screen()), as_json=args.json)


def config_lines(answer: Mapping[str, Any], on: Screen) -> list[str]:
    """The file, and a line for each setting; what is a default is dim."""
    where = "flags and environment" if answer["path"] is None else escaped(answer["path"], 200)
    rows = [
        [value_text(each["key"], 120), value_text(each["value"], 200), value_text(each["source"])]
        for each in answer["settings"]
    ]
    styles = ["dim" if each["source"] == "default" else None for each in answer["settings"]]
    return [where, *table(("KEY", "VALUE", "SOURCE"), rows, on, styles)]
