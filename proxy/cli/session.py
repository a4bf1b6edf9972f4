"""`forkwatch session`: what a running proxy knows of one session, with a picture of what its resumes were."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from proxy.cli.client import connect, session_path
from proxy.cli.picture import Resume, picture
from proxy.cli.sentences import sentence
from proxy.cli.tables import (
    ALARMS,
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
    verdict_style,
    verdict_text,
)


def run(args: argparse.Namespace) -> int:
    """Print the session. Raises CommandFailed, also if it is unknown there."""
    admin = connect(args)
    detail = admin.ask("GET", session_path(args.id), {"upstream": args.upstream}).body
    return admin.tell(detail, lambda body: session_lines(body, screen()), as_json=args.json)


def session_lines(detail: Mapping[str, Any], on: Screen) -> list[str]:
    """All there is to show of one session."""
    timeline = detail["timeline"]
    lines = _facts(detail, timeline["now"], on)
    if detail["logs"]:
        lines += ["", *_logs(detail["logs"], on)]
    lines += ["", *_connections(timeline, on)]
    judged = resumes(timeline["connections"])
    if not judged:
        return [*lines, "", "no resume yet: nothing to judge"]
    for resume in judged:
        lines += ["", *_resume(resume, on)]
    return lines


def resumes(connections: Sequence[Mapping[str, Any]]) -> list[Resume]:
    """Of each stream the latest alarm, else the latest judged resume; those with an alarm come first."""
    latest: dict[str, Resume] = {}
    for at, connection in enumerate(connections):
        if connection["judged"] is None:
            continue
        stream = connection["stream"]
        if _alarms(connection) or stream not in latest or not _alarms(latest[stream].after):
            latest[stream] = Resume(_former(connections[:at], stream), connection)
    order = sorted(latest.values(), key=lambda each: (_alarms(each.after), each.judged["at"]))
    return order[::-1]


def _alarms(connection: Mapping[str, Any]) -> bool:
    return connection["judged"]["verdict"] in ALARMS


def _former(connections: Sequence[Mapping[str, Any]], stream: str) -> Mapping[str, Any] | None:
    """The last connection of the stream that showed an event."""
    shown = (each for each in reversed(connections) if each["stream"] == stream and each["points"])
    return next(shown, None)


def _facts(detail: Mapping[str, Any], now: float, on: Screen) -> list[str]:
    state = on.paint(escaped(detail["state"]), state_style(detail["state"]))
    lines = [
        f"{on.paint(escaped(detail['session']), 'bold')}  {escaped(detail['upstream'], 64)}  {state}",
        f"opened {clock(detail['opened_at'])} ({ago(detail['opened_at'], now)}), "
        f"used {ago(detail['used_at'], now)}",
        f"protocol {value_text(detail['protocol'])}, ids {value_text(detail['dialect'])}, epoch {detail['epoch']}",
        f"{counted(detail['events'], 'event')} in {counted(detail['streams'], 'stream')}, "
        f"{detail['open']} open, {counted(detail['in_flight'], 'request')} in flight",
    ]
    quarantine = detail["quarantine"]
    if quarantine is not None:
        why = f"{quarantine['verdict']}/{quarantine['reason']}" if quarantine["verdict"] else "by hand"
        left = duration(quarantine["until_at"] - now)
        lines.append(
            on.paint(
                f"quarantined since {clock(quarantine['since_at'])} ({escaped(why)}), {left} left", "red"
            )
        )
    return lines


def _logs(logs: Sequence[Mapping[str, Any]], on: Screen) -> list[str]:
    head = ("STREAM", "KIND", "NEWEST ID", "IDS", "EPOCH", "OPEN", "IN FLIGHT", "REPLICA")
    keys = ("stream", "kind", "high", "events", "epoch", "open", "in_flight", "replica")
    return table(head, [[value_text(log[key]) for key in keys] for log in logs], on)


def _connections(timeline: Mapping[str, Any], on: Screen) -> list[str]:
    """One line each, the oldest first."""
    rows, styles = [], []
    for each in timeline["connections"]:
        closed = each["closed_at"]
        cells = (
            each["stream"],
            each["kind"],
            clock(each["opened_at"]),
            duration((timeline["now"] if closed is None else closed) - each["opened_at"]),
            each["events"],
            each["replica"],
            each["cause"] or ("open" if closed is None else None),
        )
        rows.append([*(value_text(cell) for cell in cells), verdict_text(each["judged"])])
        styles.append(verdict_style((each["judged"] or {}).get("verdict")))
    head = ("CONNECTION", "KIND", "OPENED", "FOR", "EVENTS", "REPLICA", "ENDED", "VERDICT")
    lines = table(head, rows, on, styles)
    if timeline["forgotten"]:
        lines.append(f"({counted(timeline['forgotten'], 'older connection')} forgotten)")
    return lines


def _resume(resume: Resume, on: Screen) -> list[str]:
    judged = resume.judged
    former = (resume.before or {}).get("replica")
    meaning = wrap(sentence(judged, judged["previous_replica"] or former, judged["replica"]), on.width)
    title = f"{escaped(resume.after['stream'])}, resumed {clock(resume.after['opened_at'])}"
    lines = [on.paint(title, "bold"), *picture(resume, on)]
    lines += [on.paint(line, verdict_style(judged["verdict"])) for line in meaning]
    if judged["hint"]:
        lines += wrap(f"Hint: {escaped(judged['hint'], 600)}", on.width)
    return lines
