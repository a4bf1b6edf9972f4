"""How the demo looks: lines of at most 80 columns, one small picture an act, colour where it helps."""

from __future__ import annotations

import os
import sys
from textwrap import fill
from typing import TextIO

from proxy.demo.acts import Resume
from proxy.demo.network import Event
from proxy.demo.stage import VERDICTS

WIDTH = 80
FIELDS = ("cursor", "high", "outstanding", "first_id", "lost", "in_flight", "action")
"""Of `resume.judged`, what explains the verdict."""
MEANING = {
    "resumed/replayed": ": all that was lost came again, in order",
    "fork/content_diverged": ": event {first_id} was relayed before, and said something else",
}
"""The verdicts of the demo in words; any other stands for itself."""
_LABEL = 18
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


class Screen:
    """Writes the story to standard output, and what is being waited for to standard error."""

    def __init__(self, *, plain: bool, out: TextIO | None = None, err: TextIO | None = None) -> None:
        """`plain` is no colour and no progress, as are `NO_COLOR` and an output that is no terminal."""
        self._out, self._err = out or sys.stdout, err or sys.stderr
        dull = plain or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        self._colour = not dull and self._out.isatty()
        self._live = not plain and self._err.isatty()

    def progress(self, text: str) -> None:
        """Say what is being waited for, in place of what was said before; '' wipes it."""
        if self._live:
            self._err.write(f"\r\x1b[2K{text}")
            self._err.flush()

    def line(self, text: str = "", *styles: str) -> None:
        """One line."""
        self.progress("")
        self._out.write(f"{self._styled(text, *styles)}\n")
        self._out.flush()

    def title(self) -> None:
        """What the demo is, and who is in it."""
        self.line("forkwatch demo: one session, two replicas, a careless balancer", "bold")
        self.line()
        self.line("   client ── forkwatch ── balancer ─┬─ replica A   an MCP server on the official")
        self.line("                                    └─ replica B   SDK, each with its own event store")

    def act(self, number: int, title: str, text: str) -> None:
        """The beginning of an act."""
        self.line()
        self.line(f"{number}  {title}", "bold")
        self.line(fill(text, WIDTH, initial_indent="   ", subsequent_indent="   "))

    def picture(self, resume: Resume) -> None:
        """The event ids of one call in order: what the client had, what it lost, what came instead."""
        came = [event for attachment in resume.resumed for event in attachment.arrived]
        rows = [
            ("client had", resume.call.arrived, ""),
            ("lost on the way", resume.call.lost, "dim"),
            (f"came from {resume.replica.name}", came, "red" if resume.verdict[0] == "fork" else "green"),
        ]
        ids = sorted({int(e.id) for _, events, _ in rows for e in events if e.id is not None})
        texts = {label: _cells(events) for label, events, _ in rows}
        widths = [
            max(len(str(id)), *(len(cells.get(id, "")) for cells in texts.values())) + 2 for id in ids
        ]
        self.line()
        head = "".join(str(id).ljust(width) for id, width in zip(ids, widths, strict=True))
        self.line(f"      {'event id':<{_LABEL}}{head}".rstrip(), "dim")
        for label, events, style in rows:
            row = "".join(
                texts[label].get(id, "").ljust(width) for id, width in zip(ids, widths, strict=True)
            )
            unnumbered = "  ".join(e.text for e in events if e.id is None)
            self.line(f"      {label:<{_LABEL}}{self._styled((row + unnumbered).rstrip(), style)}")
        self.line()

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
        self._fact("", f"log      resume.judged {fields}", "dim")
        counted = resume.counted.get(resume.verdict, 0)
        self._fact(
            "", f'metrics  {VERDICTS}{{verdict="{verdict}"}} {resume.before} → {resume.before + counted}', "dim"
        )

    def paragraph(self, text: str, *styles: str) -> None:
        """Some lines of text after an empty one."""
        self.line()
        self.line(fill(text, WIDTH, break_on_hyphens=False), *styles)

    def _fact(self, who: str, text: str, style: str) -> None:
        lines = fill(text, WIDTH - 14, break_long_words=False, break_on_hyphens=False).split("\n")
        self.line(f"   {who:<11}{self._styled(lines[0], style)}")
        for line in lines[1:]:
            self.line(f"{'':<14}{self._styled(line, style)}")

    def _styled(self, text: str, *styles: str) -> str:
        codes = ";".join(_STYLES[style] for style in styles if style)
        return f"\x1b[{codes}m{text}\x1b[0m" if self._colour and codes and text else text


def _cells(events: list[Event]) -> dict[int, str]:
    return {int(event.id): event.text or "·" for event in events if event.id is not None}
