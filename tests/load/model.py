"""What the servers of the load are: sessions with streams, each a log of events, and how they write a frame.

The model also keeps what the proxy has been shown, since the truth about a resume is made of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from tests.load.dialects import GET, Dialect
from tests.load.exchange import Exchange

LARGE_BYTES = 70_000
"""Larger than what the proxy takes a digest of."""
NOISE = (
    b": keep-alive\n\n",
    b"retry: 500\n\n",
    b"event: ping\ndata: 2026-11-29\n\n",
    b'data: {"jsonrpc":"2.0","id":"srv-1","method":"ping"}\n\n',
    b'data: {"type":"heartbeat"}\n\n',
)
"""What is no message and no priming frame, and proves nothing."""


@dataclass(frozen=True, slots=True)
class Style:
    """How one server writes its frames."""

    end: str = "\n"
    typed: bool = False
    data_first: bool = False

    def frame(self, event_id: str | None, data: str) -> bytes:
        """One frame."""
        lines = ["event: message"] if self.typed else []
        pair = [f"data: {data}"] if event_id is None else [f"id: {event_id}", f"data: {data}"]
        lines += reversed(pair) if self.data_first else pair
        return "".join(line + self.end for line in [*lines, ""]).encode()


STYLES = tuple(
    Style(end, typed, data_first)
    for end in ("\n", "\r\n")
    for typed in (False, True)
    for data_first in (False, True)
)


@dataclass(slots=True)
class Event:
    """One event of a log."""

    n: int
    id: str
    text: str
    frame: bytes
    priming: bool = False


@dataclass(eq=False)
class Stream:
    """One logical stream."""

    name: str
    request: int | None
    log: list[Event] = field(default_factory=list)
    shown: int = 0
    """How many events of the log have been relayed."""
    floor: int = 0
    """Cursors before this place are not used any more: what they name is another log, or unsure."""
    at: Exchange | None = None
    """The connection that serves it now."""
    sure: int = 0
    """How many events the client surely has."""
    marks: list[tuple[int, int]] = field(default_factory=list)
    """On this connection, since `sure`: so many bytes sent, so many events relayed."""
    n: int | None = None
    """The number of the last event, where each stream counts for itself."""

    @property
    def newest(self) -> Event:
        """The last event that was relayed."""
        return self.log[self.shown - 1]

    def todo(self, place: int) -> list[Event]:
        """The messages relayed after the event at `place`."""
        return [event for event in self.log[place + 1 : self.shown] if not event.priming]

    def after(self, place: int) -> list[Event]:
        """What a healthy server replays: the messages after the event at `place`, relayed or not."""
        return [event for event in self.log[place + 1 :] if not event.priming]


class Counter:
    """A counter that all sessions of an upstream share."""

    def __init__(self) -> None:
        self.n = 0

    def next(self) -> int:
        """The next number."""
        self.n += 1
        return self.n


class Session:
    """One session as its server knows it."""

    def __init__(self, key: str, dialect: Dialect, shared: Counter, rng: Random) -> None:
        self.key = key
        self.dialect = dialect
        self.rng = rng
        self.style = rng.choice(STYLES)
        self.constant = rng.random() < 0.08
        """All its notifications say the same."""
        self.primes = dialect.inclusive or rng.random() < 0.4
        """Streams of calls, and a rmcp server's standalone one, begin with a priming frame."""
        self.incarnation = 0
        self.streams: list[Stream] = []
        self.requests = 100
        self.burned = shared.next()
        """A number that nobody is ever shown."""
        self.start = dialect.first if dialect.inclusive else dialect.first + rng.choice((0, 0, 100))
        """The number of its first event: a session may have a history that was never relayed."""
        self.shared = shared
        self.counter = self.start - 1
        self.shown_ids: dict[str, set[str]] = {}
        """Messages shown in this incarnation, by id: the streams that showed them."""
        self.grew = True
        """Numbers were shown in ascending order over all streams, for sure."""
        self.highest = -1
        self.forked = False
        """Another log was proven: the proxy takes the streams of bare integers for streams that count apart, if
        their numbers ever came out of order, and then an old number may seem to have two owners."""
        self.dead = False
        """Nothing more is to be done in it."""

    # ---- numbers and frames

    def _number(self, stream: Stream) -> int:
        if self.dialect.scope == "upstream":
            return self.shared.next()
        if self.dialect.scope == "stream":
            stream.n = self.start if stream.n is None else stream.n + 1
            return stream.n
        self.counter += 1
        return self.counter

    def skip_number(self, stream: Stream, by: int) -> None:
        """Numbers that nobody is shown."""
        for _ in range(by):
            self._number(stream)

    def id_of(self, stream: str, n: int) -> str:
        """The id of the n-th event in this incarnation."""
        return self.dialect.make(self.key, stream, self.incarnation, n)

    def notification(self, text: str) -> str:
        """A message of the server's."""
        params = {"level": "info", "data": "changed" if self.constant else text}
        message = {"jsonrpc": "2.0", "method": "notifications/message", "params": params}
        return json.dumps(message, separators=(",", ":"))

    def emit(self, stream: Stream, *, result: bool = False) -> Event:
        """A new event in the log of the stream; it is not sent yet."""
        n = self._number(stream)
        text = f"{self.key[:8]} {stream.name} {self.incarnation}.{n}"
        if self.rng.random() < 0.002 and not (
            self.incarnation or self.constant
        ):  # another log must be known by its payloads
            text += "x" * LARGE_BYTES
        data = self.notification(text)
        if result:
            answer = {"content": [{"type": "text", "text": text}]}
            data = json.dumps({"jsonrpc": "2.0", "id": stream.request, "result": answer})
        event_id = self.id_of(stream.name, n)
        event = Event(n, event_id, text, self.style.frame(event_id, data))
        stream.log.append(event)
        return event

    def prime(self, stream: Stream, retry_ms: int) -> Event:
        """A priming frame: an id without a message."""
        n = self._number(stream)
        event_id = self.id_of(stream.name, n)
        event = Event(
            n, event_id, "", f"id: {event_id}\nretry: {retry_ms}\ndata: \n\n".encode(), priming=True
        )
        stream.log.append(event)
        return event

    def rewritten(self, stream: Stream, event: Event) -> bytes:
        """The same message, serialised anew: white space, the order of members, an explicit null."""
        _, _, data = event.frame.decode().partition("data: ")
        value = json.loads(data.splitlines()[0])
        if "params" in value:
            value["params"] = {"_meta": None, **dict(reversed(value["params"].items()))}
        text = json.dumps(dict(reversed(value.items())))
        return self.again(event, text)

    def again(self, event: Event, data: str) -> bytes:
        """Another frame for an event; where ids never repeat, under a new one."""
        event_id = event.id if self.dialect.repeats else self.id_of("again", event.n)
        return self.style.frame(event_id, data)

    def replayed(self, event: Event) -> bytes:
        """The frame of an event as it comes again."""
        if self.dialect.repeats:
            return event.frame
        data = event.frame.decode().partition("data: ")[2].splitlines()[0]
        return self.again(event, data)

    # ---- what was shown

    def show(self, stream: Stream, event: Event) -> None:
        """The event, the next of its stream that was not, has been relayed."""
        stream.shown += 1
        if not event.priming:
            self.shown_ids.setdefault(event.id, set()).add(stream.name)
        if event.n <= self.highest:
            self.grew = False
        self.highest = max(self.highest, event.n)

    def large(self, cursor: Event, todo: Iterable[Event]) -> bool:
        """Whether a replay of these has a payload that cannot be compared."""
        again = [cursor, *todo] if self.dialect.inclusive else todo
        return any(len(event.text) >= LARGE_BYTES for event in again)

    def ambiguous(self, event: Event) -> bool:
        """Whether two streams have shown this id."""
        return len(self.shown_ids.get(event.id, ())) > 1

    # ---- streams

    def open(self, request: int | None = None) -> Stream:
        """A new stream."""
        stream = Stream(GET if request is None else str(request), request)
        self.streams.append(stream)
        return stream

    def next_request(self) -> int:
        """The id of a new call."""
        self.requests += 1
        return self.requests

    def reborn(self, stream: Stream) -> None:
        """The server has lost its memory and goes on: the stream has another log, the others none."""
        self.incarnation += 1
        self.counter = self.dialect.first - 1
        self.start = self.dialect.first
        self.shown_ids = {}
        self.highest = -1
        self.grew = True
        stream.log, stream.shown, stream.floor, stream.n = [], 0, 0, None
