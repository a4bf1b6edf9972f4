"""`forkwatch status`: what a running proxy is, what each upstream's sessions met, and what needs a look."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.cli.client import connect
from proxy.cli.tables import (
    Screen,
    ago,
    clock,
    counted,
    duration,
    escaped,
    screen,
    state_style,
    table,
    value_text,
)

_COLUMNS = ("fork", "crossed", "gap", "rewound", "refused")
_MIB = 1024 * 1024


def run(args: argparse.Namespace) -> int:
    """Print the status. Raises CommandFailed."""
    admin = connect(args)
    status = admin.ask("GET", "status").body
    return admin.tell(status, lambda body: status_lines(body, screen()), as_json=args.json)


def status_lines(status: Mapping[str, Any], on: Screen) -> list[str]:
    """The process, a table of its upstreams, and what is out of order."""
    now = status["now"]
    state = on.paint(escaped(status["state"]), state_style(status["state"]))
    if status["reasons"]:
        state += f" ({', '.join(escaped(reason, 80) for reason in status['reasons'])})"
    limit = status["limits"].get("ledger_bytes")
    lines = [
        f"forkwatch {value_text(status['version'])}  {state}  up {duration(now - status['started_at'])}  "
        f"pid {status['pid']}  python {value_text(status['python'])}",
        f"listen   {value_text(status['listen'], 200)}",
        f"status   {value_text(status['status'], 200)}",
        f"admin    {value_text(status['admin'], 200)}",
        f"config   {_config(status['config'], now, on)}",
        *(on.paint(f"         {escaped(error, 400)}", "red") for error in status["config"]["errors"]),
        f"ledger   {status['ledger_bytes'] / _MIB:.1f} MiB"
        + (f" of {limit / _MIB:.0f} MiB" if limit else ""),
        f"open     {counted(status['open_exchanges'], 'exchange')}",
        "",
        *_upstreams(status, on),
    ]
    notes = [note for upstream in status["upstreams"] for note in _notes(upstream)]
    if status["log_messages_dropped"]:
        notes.append(
            f"{counted(status['log_messages_dropped'], 'log line')} dropped: the log's reader stalls"
        )
    return [*lines, *([""] if notes else []), *(on.paint(note, "yellow") for note in notes)]


def _config(config: Mapping[str, Any], now: float, on: Screen) -> str:
    where = "flags and environment" if config["path"] is None else escaped(config["path"], 200)
    when = f"{clock(config['last_reload_at'])} ({ago(config['last_reload_at'], now)})"
    if config["last_reload_ok"]:
        return f"{where}, loaded {when}"
    return f"{where}, {on.paint('the last reload failed', 'red')}; in force is that of {when}"


def _upstreams(status: Mapping[str, Any], on: Screen) -> list[str]:
    head = ("UPSTREAM", "MODE", "SESSIONS", "QUARANTINED", "STREAMS", "IN FLIGHT", "RESUMES", *_COLUMNS)
    rows, styles = [], []
    for each in status["upstreams"]:
        verdicts = each["verdicts"]
        cells = (
            each["upstream"],
            each["mode"] + ("*" if each["until_at"] is not None else ""),
            each["sessions"]["active"],
            each["sessions"]["quarantined"],
            sum(each["streams_open"].values()),
            each["requests_in_flight"],
            each["resume_attempts"],
            *(verdicts.get(name, 0) for name in _COLUMNS),
        )
        rows.append([value_text(cell, 64) for cell in cells])
        harm = any(verdicts.get(name) for name in ("fork", "crossed", "gap"))
        styles.append("red" if harm else None)
    return table([name.upper() for name in head], rows, on, styles)


def _notes(upstream: Mapping[str, Any]) -> Iterator[str]:
    """What is out of order in an upstream, a line each."""
    name = escaped(upstream["upstream"], 64)
    if upstream["until_at"] is not None:
        configured = value_text(upstream["configured_mode"])
        yield f"* {name}: switched until {clock(upstream['until_at'])}, then {configured} again"
    lost, twice = upstream["events_lost"], upstream["events_duplicated"]
    if lost or twice:
        yield f"{name}: {counted(lost, 'event')} lost at least, {twice} came twice"
    if unanswered := upstream["requests_unanswered"]:
        yield f"{name}: {counted(unanswered, 'request')} never got an answer"
    if cut := upstream["cut"]:
        yield f"{name}: {counted(cut, 'session')} cut"
    if would_cut := upstream["would_cut"]:
        yield f"{name}: {counted(would_cut, 'resume')} would have been cut in enforce"
    if fail_open := upstream["fail_open"]:
        yield f"{name}: the detector gave up {counted(fail_open, 'time')}; see check.failed_open in the log"
    if errors := upstream["upstream_errors"]:
        yield f"{name}: {counted(errors, 'upstream error')}; see upstream.error in the log"
