"""`forkwatch drain`: ends the streams of a running proxy in good order, so that it can then be stopped."""

from __future__ import annotations

import argparse
import sys
import time

from proxy.cli.client import Admin, Answer, ProxyGone, connect
from proxy.cli.tables import counted, escaped, show, show_json

_POLL_S = 0.2
_ENDING = 409


def run(args: argparse.Namespace) -> int:
    """0 once asked for, with `--wait` once nothing is open; 1 if time ran out. Raises CommandFailed."""
    admin = connect(args)
    if args.undo:
        answer = admin.ask("DELETE", "drain")
    elif args.wait is None:
        answer = admin.ask("POST", "drain")
    else:
        return _drain(admin, time.monotonic() + args.wait, as_json=args.json)
    if args.json:
        show_json(answer.body)
        return 0
    with admin.understood():
        line = escaped(answer.body["state"])
        if not args.undo:
            line += f": {_open(answer.body)}"
    show([line])
    return 0


def _drain(admin: Admin, deadline: float, *, as_json: bool) -> int:
    """Begin, and ask until it is done. A process that is ending already drains on its own."""
    admin.ask("POST", "drain", also=(_ENDING,))
    answer: Answer | None = None
    undone = False
    try:
        while True:
            answer = admin.ask("GET", "status")
            with admin.understood():
                state, count = answer.body["state"], answer.body["open_exchanges"]
                line = f"{escaped(state)}: {_open(answer.body)}"
            _progress(line)
            done = state == "drained" or (state == "draining" and count == 0)
            undone = state not in ("draining", "drained")
            if done or undone or time.monotonic() >= deadline:
                break
            time.sleep(min(_POLL_S, max(deadline - time.monotonic(), 0.0)))
    except ProxyGone:  # it has ended, and with it everything it carried
        done, line = True, "drained: the proxy has ended"
    _progress("")
    if as_json and answer is not None:
        show_json(answer.body)
    elif done:
        show([line])
    if not done:
        why = "somebody undid the drain" if undone else "time ran out"
        print(f"forkwatch: {why}; {line}", file=sys.stderr)
    return 0 if done else 1


def _open(body: dict[str, int]) -> str:
    return f"{counted(body['open_exchanges'], 'exchange')} open"


def _progress(line: str) -> None:
    """What is being waited for, in place of what was said before, if somebody looks."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{line}")
        sys.stderr.flush()
