"""Drives the engine without sockets or a clock: scripted exchanges at a virtual time, and frames as bytes.

A `Drive` is one proxy with one upstream; a `Connection` is one exchange of it. Whatever the engine reports is
kept in `Drive.reports`, in order. Time passes only in `Drive.pass_time`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from proxy.engine.commands import Command, Report, WakeAfter
from proxy.engine.exchange import Exchange
from proxy.engine.findings import Ending, Judged, Judgement, Raised, Reportable
from proxy.engine.heads import Answer, Request
from proxy.engine.ids import forced
from proxy.engine.ledger import Bounds, Session, Upstream
from proxy.engine.sessions import Ledger

DEADLINE_S = 5.0
KEEP_ALIVE = b": keep-alive\n\n"

Cut = Callable[[bytes], Iterable[bytes]]
"""How a stream is cut into chunks."""


# ---- frames


def dump(value: object) -> bytes:
    """A JSON text as servers send it live."""
    return json.dumps(value, separators=(",", ":")).encode()


def frame(id: object, data: bytes) -> bytes:
    """One event; `id` None for one without an id."""
    head = b"" if id is None else f"id: {id}\n".encode()
    return head + b"data: " + data + b"\n\n"


def event(id: object, text: object = None) -> bytes:
    """A notification under `id`; without a text its payload is told by its id alone."""
    said = f"about {id}" if text is None else str(text)
    return frame(id, dump({"method": "note", "params": {"data": said}}))


def result(id: object, request: int | str, text: str = "done") -> bytes:
    """The response to `request`."""
    return frame(id, dump({"jsonrpc": "2.0", "id": request, "result": {"text": text}}))


def priming(id: object, retry_ms: int | None = None) -> bytes:
    """An id with empty data."""
    retry = "" if retry_ms is None else f"retry: {retry_ms}\n"
    return f"id: {id}\n{retry}data:\n\n".encode()


def crlf(frames: bytes) -> bytes:
    """The same frames with the line ends of the Python SDK."""
    return frames.replace(b"\n", b"\r\n")


def reserialised(frames: bytes) -> bytes:
    """The same messages as another serialiser writes them: key order, white space, an explicit null."""
    lines = [
        b"data: " + _rewritten(json.loads(line[6:])) if line.startswith(b"data: {") else line
        for line in frames.split(b"\n")
    ]
    return b"\n".join(lines)


def _rewritten(message: dict[str, Any]) -> bytes:
    turned = dict(reversed(message.items())) | {"extra": None}
    return json.dumps(turned, separators=(" , ", " : ")).encode()


# ---- chunks


def whole(stream: bytes) -> Iterable[bytes]:
    """One chunk."""
    return (stream,)


def single_bytes(stream: bytes) -> Iterable[bytes]:
    """A chunk for each byte."""
    return (stream[at : at + 1] for at in range(len(stream)))


def cut_at(at: int) -> Cut:
    """Two chunks, the first of `at` bytes."""
    return lambda stream: (stream[:at], stream[at:])


# ---- what was judged


class Seen(NamedTuple):
    """One judgement as a table row."""

    verdict: str
    reason: str
    certainty: str
    lost: int = 0
    duplicated: int = 0


def seen(judgement: Judgement) -> Seen:
    """A judgement without the id that decided it."""
    return Seen(
        judgement.verdict.value,
        judgement.reason.value,
        judgement.certainty.value,
        judgement.lost,
        judgement.duplicated,
    )


# ---- the proxy


class Connection:
    """One exchange under way."""

    def __init__(self, drive: Drive, exchange: Exchange) -> None:
        self._drive = drive
        self.exchange = exchange
        self.wake_at: float | None = None

    def send(self, *frames: bytes, cut: Cut = whole) -> Connection:
        """The upstream sends these frames."""
        for chunk in cut(b"".join(frames)):
            if chunk:
                self._drive.perform(self, self.exchange.receive(chunk, self._drive.now))
        return self

    def end(self, how: Ending = Ending.CLEAN) -> None:
        """The response is over."""
        self._drive.perform(self, self.exchange.ended(how, self._drive.now))
        self._drive.connections.remove(self)

    def drop(self) -> None:
        """The upstream's connection breaks."""
        self.end(Ending.UPSTREAM_FAILED)

    def wake(self) -> None:
        """The time it asked for has come."""
        self.wake_at = None
        self._drive.perform(self, self.exchange.wake(self._drive.now))


class Drive:
    """One proxy in front of one upstream, named `tools`."""

    def __init__(self, *, ids: str = "auto", bounds: Bounds | None = None) -> None:
        self.ledger = Ledger(bounds or Bounds(), {"tools": forced(ids)})
        self.upstream: Upstream = self.ledger.upstreams["tools"]
        self.now = 1000.0
        self.reports: list[Reportable] = []
        self.connections: list[Connection] = []

    def perform(self, connection: Connection, commands: Sequence[Command]) -> None:
        """Take note of what the engine asks for."""
        for command in commands:
            if isinstance(command, Report):
                self.reports.append(command.item)
            elif isinstance(command, WakeAfter):
                connection.wake_at = self.now + command.seconds

    def request(
        self,
        method: str,
        *,
        session: str | None = "s1",
        cursor: object = None,
        body: bytes = b"",
        answer: Answer | None,
        protocol: str = "2025-06-18",
    ) -> Connection:
        """A request of the client, up to the head of its answer; None if none has come."""
        head = Request(
            method,
            None if session is None else session.encode(),
            None if cursor is None else str(cursor).encode(),
            protocol,
        )
        exchange = Exchange(self.ledger, self.upstream, head, self.now, deadline_s=DEADLINE_S)
        connection = Connection(self, exchange)
        self.connections.append(connection)
        self.perform(connection, exchange.began(self.now))
        self.perform(connection, exchange.uploaded(body))
        if answer is not None:
            self.perform(connection, exchange.responded(answer, self.now))
        return connection

    def initialize(self, session: str = "s1", *, carry: str | None = None) -> None:
        """A client opens `session`, answered in JSON; `carry` is a session header it still sends."""
        body = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
        answer = Answer(200, False, session=session.encode())
        self.request("POST", session=carry, body=dump(body), answer=answer).end()

    def get(self, cursor: object = None, *, session: str = "s1", replica: str | None = None) -> Connection:
        """A GET that is answered with an event stream; with a cursor it is a resume."""
        return self.request("GET", session=session, cursor=cursor, answer=Answer(200, True, replica=replica))

    def call(self, request: int | str, *, session: str = "s1") -> Connection:
        """A tool call that is answered with an event stream."""
        body = dump({"jsonrpc": "2.0", "id": request, "method": "tools/call"})
        return self.request("POST", session=session, body=body, answer=Answer(200, True))

    def refuse(self, cursor: object, status: int, *, session: str = "s1") -> None:
        """A resume that is answered with this status and JSON."""
        self.request("GET", session=session, cursor=cursor, answer=Answer(status, False)).end()

    def delete(self, *, session: str = "s1") -> None:
        """The client ends the session and the server says yes."""
        self.request("DELETE", session=session, answer=Answer(204, False)).end()

    def show(self, *frames: bytes, session: str = "s1") -> None:
        """The standalone stream shows these frames and loses its connection."""
        self.get(session=session).send(*frames).drop()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, waking whoever asked for it."""
        until = self.now + seconds
        while due := [c for c in self.connections if c.wake_at is not None and c.wake_at <= until]:
            first = min(due, key=lambda c: c.wake_at or 0.0)
            self.now = max(self.now, first.wake_at or 0.0)
            first.wake()
        self.now = until

    def session(self, key: str = "s1") -> Session:
        """A known session."""
        return self.upstream.sessions[key.encode()]

    @property
    def judged(self) -> list[Judged]:
        """Every judgement so far, with its circumstances."""
        return [item for item in self.reports if isinstance(item, Judged)]

    @property
    def verdicts(self) -> list[Seen]:
        """Every judgement so far."""
        return [seen(item.judgement) for item in self.judged]

    @property
    def findings(self) -> list[str]:
        """Every finding so far."""
        return [item.finding.value for item in self.reports if isinstance(item, Raised)]


def session_of(key: str = "s1", *, upstream: Upstream | None = None, bounds: Bounds | None = None) -> Session:
    """A session that was followed from its beginning."""
    if upstream is None:
        upstream = Upstream("tools", bounds or Bounds())
    upstream.next_number += 1
    session = Session(upstream, key.encode(), upstream.next_number, 0.0, followed=True)
    upstream.sessions[session.key] = session
    upstream.numbered[session.number] = session
    upstream.bytes += session.bytes
    return session
