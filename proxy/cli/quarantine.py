"""`forkwatch quarantine`: refuses a session's requests until its client starts anew, or lets it go on."""

from __future__ import annotations

import argparse

from proxy.cli.client import connect, session_path
from proxy.cli.tables import clock, counted, escaped, show, show_json


def run(args: argparse.Namespace) -> int:
    """Quarantine or release one session. Raises CommandFailed, also if it is in that state already."""
    admin = connect(args)
    path, query = f"{session_path(args.id)}/quarantine", {"upstream": args.upstream}
    answer = admin.ask("DELETE" if args.release else "POST", path, query).body
    if args.json:
        show_json(answer)
        return 0
    with admin.understood():
        session = f"{escaped(answer['session'])} of {escaped(answer['upstream'], 64)}"
        if args.release:
            line = f"{session} is released: its requests go upstream again"
        else:
            ended = counted(answer["ended_exchanges"], "exchange")
            line = f"{session} is quarantined until {clock(answer['until_at'])}; {ended} ended"
    show([line])
    return 0
