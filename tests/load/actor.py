"""One client and its server: the steps of which plays are made. Every step waits until it has had its effect."""

from __future__ import annotations

import asyncio
import json
import time
from random import Random
from typing import Any

from tests.load.dialects import Dialect
from tests.load.exchange import Disrupted, End, Exchange
from tests.load.model import NOISE, Counter, Event, Session, Stream
from tests.load.stage import Load
from tests.load.truth import ALARMS, Expectation, Pending, known

PROTOCOL = "2025-11-25"
JSON = {"Content-Type": "application/json"}
BURST = 8
"""Events that a stream begins with: more than the four ids after which a guess of the dialect may convict."""


class Actor:
    """A client of one server, with one session at a time."""

    def __init__(self, load: Load, dialect: Dialect, rng: Random) -> None:
        self.load = load
        self.dialect = dialect
        self.rng = rng
        self.target = f"/{dialect.name}/mcp"
        self.session: Session
        self.alive: list[Session] = []
        """Sessions of which something may be left after a fault."""
        self.pending: Pending | None = None
        """The last resume's verdict."""
        self.disturbed = 0
        """Faults that this actor has injected itself."""
        self.faults = 0
        """Faults that there had been, of any kind, when the last play began."""
        self.harmless = True
        """The play that is on is one of a healthy server's."""
        self._last: Exchange | None = None

    # ---- requests

    def _fields(self, session: Session | None, accept: str) -> dict[str, str]:
        fields = {"Accept": accept}
        if session is not None:
            fields |= {"Mcp-Session-Id": session.key, "MCP-Protocol-Version": PROTOCOL}
        return fields

    async def post(self, session: Session | None, message: dict[str, Any], *, keep: bool = False) -> Exchange:
        """A JSON-RPC message; returns once the upstream has it."""
        fields = {**JSON, **self._fields(session, "application/json, text/event-stream")}
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        exchange = await self.load.wire.request("POST", self.target, fields, body, keep=keep)
        return await exchange.arrived()

    async def begin(self) -> Session:
        """`initialize`, answered with a new session."""
        shared = self.load.shared.setdefault(self.dialect.name, Counter())
        session = Session(f"{self.rng.getrandbits(128):032x}", self.dialect, shared, self.rng)
        params = {
            "protocolVersion": PROTOCOL,
            "capabilities": {},
            "clientInfo": {"name": "l", "version": "1"},
        }
        self.alive.append(session)
        exchange = await self.post(None, {"id": 0, "method": "initialize", "params": params})
        result = {**params, "serverInfo": {"name": "load", "version": "1"}}
        body = json.dumps({"jsonrpc": "2.0", "id": 0, "result": result}).encode()
        exchange.respond(200, {**JSON, "Mcp-Session-Id": session.key}, body)
        await self.answered(exchange, 200)
        noted = await self.post(session, {"method": "notifications/initialized"})
        noted.respond(202, {})
        await self.answered(noted, 202)
        self.session = session
        self.load.totals.sessions += 1
        return session

    async def answered(self, exchange: Exchange, status: int) -> None:
        """The answer has come as it was sent, whole and with its status."""
        if await exchange.over() is not End.CLEAN:
            raise Disrupted(exchange.state())
        self.check(exchange)
        if exchange.status != status:
            self.load.violations.add("wrong answer", f"{status} became {exchange.state()}")

    async def delete(self, session: Session) -> None:
        """The client ends its session; the upstream grants it."""
        exchange = await self.load.wire.request("DELETE", self.target, self._fields(session, "*/*"))
        await exchange.arrived()
        exchange.respond(204, {})
        await self.answered(exchange, 204)

    async def finish(self) -> None:
        """Every stream of the session is left, and the session is deleted."""
        for stream in self.session.streams:
            if stream.at is not None and stream.at.end is None:
                await self.drop(stream, "leave")
        if not self.session.dead:
            await self.delete(self.session)
        self.session.dead = True

    # ---- streams

    async def open(self, request: bool) -> Stream:
        """A call, or the standalone stream, with its first events."""
        session = self.session
        number = session.next_request() if request else None
        stream = session.open(number)
        await self.attach(stream)
        if session.primes and (request or self.dialect.inclusive):
            self.say(stream, session.prime(stream, 3000))
        for _ in range(BURST):
            self.say(stream, session.emit(stream))
        await self.heard(stream)
        return stream

    async def attach(self, stream: Stream) -> None:
        """A POST, or a GET without a cursor, answered by a stream."""
        if stream.request is None:
            fields = self._fields(self.session, "text/event-stream")
            exchange = await (await self.load.wire.request("GET", self.target, fields)).arrived()
        else:
            call = {"id": stream.request, "method": "tools/call", "params": {"name": "work", "arguments": {}}}
            exchange = await self.post(self.session, call)
        exchange.open_stream()
        await exchange.head()
        stream.at = exchange
        self.load.totals.streams += 1

    def say(self, stream: Stream, event: Event, frame: bytes | None = None) -> None:
        """The server sends the next event of the stream's log that was not relayed."""
        at = stream.at
        assert at is not None
        if at.end is not None or at.gone:
            raise Disrupted(at.state())
        if self._last is not None and self._last is not at and self._last.received < self._last.sent:
            self.session.grew = False  # which of the two the proxy reads first is not known
        self._last = at
        frame = event.frame if frame is None else frame
        at.send(frame, self.rng.randrange(len(frame)) if self.rng.random() < 0.2 else 0)
        self.session.show(stream, event)
        stream.marks.append((at.sent, stream.shown))
        self.load.totals.events += 1

    def noise(self, stream: Stream) -> None:
        """Perhaps something that is no message."""
        if self.rng.random() < 0.3 and stream.at is not None:
            stream.at.send(self.rng.choice(NOISE))

    async def heard(self, stream: Stream) -> None:
        """The client has everything."""
        assert stream.at is not None
        await stream.at.delivered()
        self.check(stream.at)
        stream.sure = stream.shown
        stream.marks.clear()

    def check(self, exchange: Exchange) -> None:
        """What came is what was sent."""
        if exchange.altered:
            self.load.violations.add("events altered", f"{self.session.key}: {exchange.altered}")
            exchange.altered = ""

    async def live(self, stream: Stream, seconds: float) -> None:
        """Events now and then."""
        until = time.monotonic() + seconds
        while not self.load.over.is_set():
            pause = self.rng.uniform(0.5, 1.5) * self.load.event_every_s
            if time.monotonic() + pause >= until:
                break
            await self.rest(pause)
            self.say(stream, self.session.emit(stream))
            self.noise(stream)
        await self.rest(until - time.monotonic())

    async def rest(self, seconds: float) -> None:
        """Nothing happens for a while, unless the load is over."""
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self.load.over.wait()
        except TimeoutError:
            pass

    async def wait(self, seconds: float) -> None:
        """The silence is the point: also at the end of the load."""
        await asyncio.sleep(seconds)

    # ---- losing a connection

    async def drop(self, stream: Stream, how: str) -> None:
        """The stream loses its connection, and both ends know; what was pending on it gets its verdict."""
        at = stream.at
        assert at is not None
        await self.heard(stream)
        if how == "torn" and not (self.pending is None or self.pending.answered.is_set()):
            how = "abort"  # a gate that still judges holds back a part of a frame
        match how:
            case "leave":
                at.leave()
                await at.unheard()
            case "close":
                at.finish()
                await self._ends(at, End.CLEAN)
            case "torn":
                frame = self.session.emit(stream).frame
                at.send(frame[: self.rng.randrange(1, len(frame) - 1)])
                await at.delivered()
                at.reset()
                await self._ends(at, End.ABORT)
            case _:
                at.reset()
                await self._ends(at, End.ABORT)
        self.detached(stream)
        if self.pending is not None:
            line = await self.pending.verdict()
            self.pending = None
            if line["action"] == "cut":
                self.session.dead = True

    async def _ends(self, at: Exchange, how: End) -> None:
        if await at.over() is not how:
            raise Disrupted(f"wanted {how}: {at.state()}")
        if at.body is not None:
            at.compare()
        self.check(at)

    def detached(self, stream: Stream) -> None:
        """Its connection is over."""
        if stream.at is not None:
            stream.at = None
            self.load.totals.streams -= 1

    # ---- resuming

    async def resume(
        self,
        stream: Stream,
        place: int,
        expected: Expectation,
        *,
        cursor: str | None = None,
        answer: bool = True,
    ) -> Exchange:
        """A GET with the cursor of the event at `place`; unless told not to, an event stream begins."""
        wanted = stream.log[place].id if cursor is None else cursor
        may_alarm = any(cell[0] in ALARMS for cell in expected.allowed)
        may_alarm = may_alarm or known(self.dialect.name, expected.play) is not None
        fields = {**self._fields(self.session, "text/event-stream"), "Last-Event-ID": wanted}
        detail = f"{self.dialect.name} {self.session.key} after {wanted}"
        self.pending = self.load.judge.expecting(self.session.key, expected, detail)
        self.load.totals.resumes += 1
        keep = self.load.mode != "observe" and may_alarm
        exchange = await self.load.wire.request("GET", self.target, fields, keep=keep)
        stream.at = exchange
        self.load.totals.streams += 1
        await exchange.arrived()
        if exchange.request.get(b"last-event-id") != wanted.encode():
            self.load.violations.add("cursor altered", f"{wanted} became {exchange.request}")
        if answer:
            exchange.open_stream()
            await exchange.head()
        return exchange

    async def judged(self, stream: Stream, decisive: bytes | None = None) -> dict[str, Any]:
        """The verdict has come, and all that was sent, or all before the cut.

        `decisive`: what of the stream may leave before a cut; None: everything.
        """
        at, pending = stream.at, self.pending
        assert at is not None
        assert pending is not None
        line = await pending.verdict()
        self.pending = None
        if line["action"] == "cut":
            await self._cut(stream, at, bytes(at.owed) if decisive is None else decisive)
        else:
            await self.heard(stream)
            at.compare()
            self.check(at)
        return line

    async def _cut(self, stream: Stream, at: Exchange, before: bytes) -> None:
        """The stream was cut: it ends as it should, and the session is refused."""
        how, violations = await at.over(), self.load.violations
        self.detached(stream)
        body = bytes(at.body or b"")
        rest = body[len(before) :]
        wanted = [] if stream.request is None else [stream.request]
        if how is not End.CLEAN or not body.startswith(before) or _error_ids(rest) != wanted:
            violations.add("wrong cut", f"{self.dialect.name}: {how}, wanted {before[-80:]!r} and an error "
                                        f"for {wanted}, got {body[-300:]!r}")  # fmt: skip
        fields = self._fields(self.session, "text/event-stream")
        refused = await self.load.wire.request("GET", self.target, fields, keep=True)
        if await refused.over() is not End.CLEAN or refused.status != 404 or refused.upstream is not None:
            violations.add("wrong refusal", refused.state())
        self.load.wire.exchanges.pop(refused.number, None)
        await self.delete(self.session)
        for other in self.session.streams:
            if other.at is not None:
                if await other.at.over() is not End.CLEAN:
                    violations.add("wrong cut", f"another stream: {other.at.state()}")
                self.detached(other)
        self.session.dead = True


def _error_ids(rest: bytes) -> list[Any]:
    """The ids of the errors that are all of `rest`; a text that tells if there is anything else."""
    ids = []
    for frame in rest.split(b"\n\n")[:-1]:
        kind, _, data = frame.partition(b"\ndata: ")
        if kind != b"event: message":
            return [f"{frame!r}"]
        error = json.loads(data)
        ids.append(error["id"] if error.get("error", {}).get("code") == -32600 else error)
    return ids if rest.endswith(b"\n\n") or not rest else [f"{rest!r}"]
