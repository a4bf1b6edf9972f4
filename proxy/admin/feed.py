"""The live tail: log lines as server-sent events, with the recent verdicts for whoever comes later.

Its ids name this process and count its lines, so that a reader who comes back gets what it missed, or
plainly another process's: forkwatch keeps to the rule it watches over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping

import orjson

VERDICT = "resume.judged"
RECENT = 200
READERS = 32
"""Who may read at once."""
QUEUED = 512
"""Lines kept for a reader that is slow; then it has missed some, and is told how many."""

Line = tuple[int, dict[str, object]]


class Reader:
    """One reader: the lines it is still to get."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        """`wanted`: keys of a line and the value each must have; empty for all lines."""
        self._wanted = dict(wanted)
        self._lines: deque[Line] = deque()
        self.missed = 0
        self.more = asyncio.Event()

    def offer(self, line: Line) -> None:
        """Queue a line, if it is wanted and there is room."""
        if any(line[1].get(key) != value for key, value in self._wanted.items()):
            return
        if len(self._lines) >= QUEUED:
            self.missed += 1
            return
        self._lines.append(line)
        self.more.set()

    def take(self) -> list[Line]:
        """Everything queued."""
        lines = list(self._lines)
        self._lines.clear()
        self.more.clear()
        return lines


class Feed:
    """Every line of the log, for those who read along."""

    def __init__(self, boot: str) -> None:
        """`boot` names this process: the first part of every id."""
        self._boot = boot
        self._count = 0
        self._recent: deque[Line] = deque(maxlen=RECENT)
        self._readers: set[Reader] = set()
        self.closed = False
        """Nothing more will come."""

    def publish(self, fields: Mapping[str, object]) -> None:
        """A line was logged: its fields in order."""
        verdict = fields["event"] == VERDICT
        if not verdict and not self._readers:
            return
        self._count += 1
        line = (self._count, dict(fields))
        if verdict:
            self._recent.append(line)
        for reader in self._readers:
            reader.offer(line)

    def join(self, wanted: Mapping[str, str], last_event_id: str | None) -> Reader | None:
        """A reader, with the recent verdicts after its last id queued; None if there are too many."""
        if len(self._readers) >= READERS:
            return None
        reader = Reader(wanted)
        boot, _, number = (last_event_id or "").rpartition("-")
        after = int(number[:18]) if boot == self._boot and number.isdecimal() else 0
        for line in self._recent:
            if line[0] > after:
                reader.offer(line)
        self._readers.add(reader)
        return reader

    def leave(self, reader: Reader) -> None:
        """The reader is gone."""
        self._readers.discard(reader)

    def close(self) -> None:
        """Let every reader end with what it has."""
        self.closed = True
        for reader in self._readers:
            reader.more.set()

    def frames(self, reader: Reader) -> Iterator[bytes]:
        """What is queued for a reader, as events."""
        if reader.missed:
            missed, reader.missed = reader.missed, 0
            yield f": {missed} lines were dropped, this reader is too slow\n".encode()
        for number, fields in reader.take():
            head = f"id: {self._boot}-{number}\nevent: {fields['event']}\ndata: "
            yield head.encode() + orjson.dumps(fields, default=str) + b"\n\n"
