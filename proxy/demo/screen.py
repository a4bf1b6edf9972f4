"""How the demo looks: lines of at most 80 columns, one small picture an act, colour where it helps."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from textwrap import wrap
from typing import TextIO

from proxy.demo.acts import Resume
from proxy.demo.stage import VERDICTS

WIDTH = 80
FIELDS = ("cursor", "high", "outstanding", "first_id", "lost", "in_flight", "action")
"""Of `resume.judged`, what explains the verdict."""
MEANING = {
    "resumed/replayed": ": all that was lost came again, in order",
    "fork/content_diverged": ": event {first_id} was relayed before, and said something else",
}
"""The verdicts of the demo in words; any other stands for itself."""
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


class Screen:
    """Writes the story to standard output, and what is being waited for to standard error."""

    def __init__(self, *, plain: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        """`plain` is no colour and no progress, as are `NO_COLOR` and an output that is no terminal."""
        self._out, self._err = out or sys.stdout, err or sys.stderr
        dull = plain or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._colour = not dull and self._out.isatty()
        self._live = not plain and self._err.isatty()
        self._waiting = False
        if isinstance(self._out, TextIOWrapper):  # a terminal that cannot show a line shows a question mark
            self._out.reconfigure(errors="replace")

    def progress(self, text: str) -> None:
        """Say what is being waited for, in place of what was said before; '' wipes it."""
        if self._live and (text or self._waiting):
            self._waiting = bool(text)
            self._err.write(f"\r\x1b[2K{text}")
            self._err.flush()

    def line(self, text: str = "", *styles: str) -> None:
        """One line."""
        self.progress("")
        try:
            self._out.write(f"{self._styled(text, *styles)}\n")
            self._out.flush()
        except BrokenPipeError:  # as in `forkwatch demo | head`: go on, unseen
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), self._out.fileno())

    def title(self) -> None:
        """What the demo is, and who is in it."""
        self.line("forkwatch demo: one session, two replicas, a careless balancer", "bold")
        self.line()
        self.line("   client ── forkwatch ── balancer ─┬─ replica A   one MCP server, twice,")
        self.line("                                    └─ replica B   an event store each")

    def act(self, number: int, title: str, text: str) -> None:
        """The beginning of an act."""
        self.line()
        self.line(f"{number}  {title}", "bold")
        for line in _wrapped(text, WIDTH - 3):
            self.line(f"   {line}")

    def picture(self, resume: Resume) -> None:
        """The event ids of one call in order: what the client had, what it lost, what came instead."""
        came = [event for attachment in resume.resumed for event in attachment.arrived]
        # An event without an id is of no server's log: the proxy made it.
        origin = f"came from {resume.replica.name}" if all(event.id for event in came) else "came instead"
        came_style = "red" if resume.verdict[0] == "fork" else "green"
        rows = [
            ("client had", resume.call.arrived, ""),
            ("lost on the way", resume.call.lost, "dim"),
            (origin, came, came_style),
        ]
        ids = sorted({int(event.id) for _, events, _ in rows for event in events if event.id})
        cells = [{int(e.id): e.text or "·" for e in events if e.id} for _, events, _ in rows]
        widths = {id: 2 + max(len(row.get(id, "")) for row in (*cells, {id: str(id)})) for id in ids}
        self.line()
        self._row("event id", "".join(str(id).ljust(widths[id]) for id in ids), "dim")
        for (label, events, style), row in zip(rows, cells, strict=True):
            text = "".join(row.get(id, "").ljust(widths[id]) for id in ids).rstrip()
            made = "an error of forkwatch's: the call is over" if any(not e.id for e in events) else ""
            self._row(label, f"{text}  {made}".strip() if made else text, style)
        self.line()

    def _row(self, label: str, text: str, style: str) -> None:
        self.line(f"      {label:<18}{self._styled(text.rstrip(), style)}")

    def client(self, text: str, *, good: bool) -> None:
        """What the client believes."""
        self._fact("client", text, "green" if good else "red")

    def wire(self, comments: list[str]) -> None:
        """What the proxy wrote into the stream."""
        for comment in comments:
            self._fact("wire", f": {comment}", "yellow")

    def judged(self, resume: Resume) -> None:
        """What the proxy saw: the main fields of `resume.judged`, and the counter that moved."""
        verdict, reason, certainty = resume.verdict
        style = "green" if verdict == "resumed" else "red"
        why = MEANING.get(f"{verdict}/{reason}", "").format_map(resume.judged)
        self._fact("forkwatch", f"{verdict}/{reason}, {certainty}{why}", style)
        fields = " ".join(f"{name}={resume.judged[name]}" for name in FIELDS if name in resume.judged)
        self._fact("", f"log      resume.judged {fields}", "dim", hang=9)
        after = resume.before + resume.counted.get(resume.verdict, 0)
        counter = f'{VERDICTS}{{verdict="{verdict}"}}'
        self._fact("", f"metrics  {counter} {resume.before} → {after}", "dim")

    def paragraph(self, text: str, *styles: str) -> None:
        """Some lines of text after an empty one."""
        self.line()
        self.line("\n".join(_wrapped(text, WIDTH)), *styles)

    def commands(self, text: str, commands: list[tuple[str, str]]) -> None:
        """Commands to copy, each under what it answers; they are never broken into lines."""
        self.paragraph(text, "bold")
        for command, answers in commands:
            self.line()
            self.line(f"   {answers}", "dim")
            self.line(f"   {command}")

    def _fact(self, who: str, text: str, style: str, *, hang: int = 0) -> None:
        lines = _wrapped(text, WIDTH - 14, hang)
        for left, line in zip([who, *[""] * len(lines)], lines, strict=False):
            self.line(f"   {left:<11}{self._styled(line, style)}")

    def _styled(self, text: str, *styles: str) -> str:
        codes = ";".join(_STYLES[style] for style in styles if style)
        return f"\x1b[{codes}m{text}\x1b[0m" if self._colour and codes and text else text


def _wrapped(text: str, width: int, hang: int = 0) -> list[str]:
    """Lines of whole words, all but the first indented by `hang`."""
    return wrap(text, width, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)
