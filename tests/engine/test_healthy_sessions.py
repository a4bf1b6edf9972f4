"""A healthy server under any client: several streams, breaks, half-open connections, resumes in any order.

The server here keeps one log per stream, replays exactly what follows the cursor and moves the stream to the
newest connection. Whatever happens around it, nobody is to be accused.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.drive import Connection, Drive, Seen, event, priming

CLOCK_MS = 1_795_973_200_000
GET = 0
"""The standalone stream; the others are calls, by their request."""

FORMS: dict[str, tuple[bool, Callable[[int, int], str]]] = {
    "integer, one counter": (True, lambda stream, n: str(n)),
    "integer, a counter a stream": (False, lambda stream, n: str(n)),
    "swift": (True, lambda stream, n: f"{stream or '_GET_stream'}_{n}"),
    "go": (False, lambda stream, n: f"{'ABCDEFGHIJKLMNOPQRSTUVWXY' + 'ZABC'[stream] if stream else ''}_{n}"),
    "rmcp": (False, lambda stream, n: f"{n - 1}/{stream}" if stream else str(n - 1)),
    "csharp": (False, lambda stream, n: f"czE=:{f'N{stream}==' if stream else 'X19nZXRfXw=='}:{n}"),
    "uuid": (True, lambda stream, n: str(uuid.uuid5(uuid.NAMESPACE_URL, str(n)))),
    "typescript": (True, lambda stream, n: f"{stream or '_GET_stream'}_{CLOCK_MS + n}_{n:04x}"),
    "unknown": (True, lambda stream, n: f"event {n}"),
}  # fmt: skip
"""Whether one counter numbers all streams, and the id of the n-th event.

Not here: one counter for all streams under ids that look exactly like those of a server that counts per stream.
A number that another stream took, never relayed, then looks lost: nothing on the wire tells.
"""


@dataclass
class Stream:
    """One stream as server and client see it."""

    log: list[tuple[str, str]] = field(default_factory=list)
    relayed: int = 0
    """How many of its events have been sent to anybody."""
    consumed: int = 0
    """How many of them the client has processed."""
    connection: Connection | None = None


class Session:
    """A healthy server, its client and the proxy between them."""

    def __init__(self, form: str, constant: bool) -> None:
        self.shared, self.make = FORMS[form]
        self.inclusive = form == "rmcp"
        self.constant = constant
        self.count = 0
        self.streams: dict[int, Stream] = {}
        self.drive = Drive()
        self.drive.initialize()
        self.replaced = False
        """A plain GET has come while the former standalone connection was open here."""

    def emit(self, name: int, heard: bool) -> None:
        """An event; if its stream is connected it is sent, and perhaps `heard`."""
        stream = self.streams.setdefault(name, Stream())
        self.count += 1
        text = "changed" if self.constant else f"event {self.count}"
        number = self.count if self.shared else len(stream.log) + 1
        stream.log.append((self.make(name, number), text))
        if stream.connection is not None:
            self._send(stream, stream.connection, len(stream.log) - 1)
            if heard:
                stream.consumed = len(stream.log)

    def _send(self, stream: Stream, connection: Connection, at: int) -> None:
        id, text = stream.log[at]
        connection.send(event(id, text))
        stream.relayed = max(stream.relayed, at + 1)

    def open(self, name: int) -> None:
        """A plain GET or a call: live from here on. A call is made once."""
        stream = self.streams.setdefault(name, Stream())
        if name != GET and (stream.connection is not None or stream.relayed):
            return
        if stream.connection is not None:
            self.replaced = True
        stream.connection = self.drive.get() if name == GET else self.drive.call(name)
        if self.inclusive:
            stream.connection.send(priming(f"0/{name}" if name else 0, 3000))
        stream.relayed, stream.consumed = len(stream.log), 0

    def lose(self, name: int, half_open: bool) -> None:
        """The client is gone; here its connection may look alive."""
        stream = self.streams.get(name)
        if stream is not None and stream.connection is not None and not half_open:
            stream.connection.drop()
            stream.connection = None

    def resume(self, name: int, count: int) -> None:
        """The client comes back with its cursor, gets everything after it, and processes `count` of it."""
        stream = self.streams.get(name)
        if stream is None or not stream.consumed:
            return
        former, at = stream.connection, stream.consumed
        connection = stream.connection = self.drive.get(stream.log[at - 1][0])
        for place in range(at - self.inclusive, len(stream.log)):
            self._send(stream, connection, place)
        stream.consumed = min(len(stream.log), at + count)
        if former is not None and count % 2:
            former.drop()

    def alarms(self) -> list[Seen]:
        """Every accusation."""
        return [seen for seen in self.drive.verdicts if seen.verdict in ("fork", "gap", "crossed", "rewound")]


WHAT = ["emit", "emit", "emit", "open", "lose", "resume", "resume"]
STEPS = st.lists(st.tuples(st.sampled_from(WHAT), st.integers(0, 3), st.integers(0, 4)), max_size=60)


@settings(max_examples=400, deadline=None)
@given(form=st.sampled_from(sorted(FORMS)), constant=st.booleans(), steps=STEPS)
def test_a_healthy_server_is_never_accused(
    form: str, constant: bool, steps: list[tuple[str, int, int]]
) -> None:
    """Several streams, broken and resumed in any order: no alarm.

    One thing may be suspected, never proven: a plain GET that took the place of a half-open connection.
    """
    session = Session(form, constant)
    session.open(GET)
    for what, name, more in steps:
        if what == "emit":
            session.emit(name, more > 1)
        elif what == "open":
            session.open(name)
        elif what == "lose":
            session.lose(name, more > 2)
        else:
            session.resume(name, more)
    assert [seen for seen in session.alarms() if seen.certainty == "proven"] == []
    if not session.replaced:
        assert session.alarms() == []


def test_priming_may_come_anywhere() -> None:
    """A primer before, within and after a replay, and a replay of primers: none is an alarm."""
    drive = Drive()
    drive.initialize()
    drive.show(priming("7_1"), event("7_2"), priming("7_3"), event("7_4"), priming("7_5"))
    for cursor, expected in (("7_1", 2), ("7_2", 1), ("7_3", 1), ("7_4", 0), ("7_5", 0)):
        connection = drive.get(cursor)
        backlog = [event("7_2"), priming("7_3"), event("7_4"), priming("7_5")]
        after = int(cursor[2:])
        connection.send(*backlog[after - 1 :], priming(f"7_{after + 5}")).drop()
        assert drive.judged[-1].outstanding == expected
    assert [seen.verdict for seen in drive.verdicts] == ["resumed"] * 5
