"""One request on its way to the upstream and its answer on the way back.

A `Forward` is the upstream leg's sink: `received` is called once per upstream read, writes
the bytes to the client's transport in one call and shows them to the engine. There is no future,
task or timer per chunk. If the engine raises, the bytes flow on unjudged (fail open).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum

from proxy.config.settings import UpstreamSettings
from proxy.downstream import ClientConnection, Request
from proxy.engine.commands import (
    PASS,
    Abort,
    Command,
    Elsewhere,
    Finish,
    Report,
    Respond,
    Send,
    WakeAfter,
    Withdraw,
)
from proxy.engine.exchange import Exchange
from proxy.engine.findings import AttachmentKind, CloseCause, Ending, Reportable
from proxy.engine.headers import Fields, Forwarding, RequestHead, request_head, response_fields
from proxy.engine.heads import Answer
from proxy.engine.heads import Request as EngineRequest
from proxy.engine.ledger import Upstream
from proxy.engine.sessions import Ledger
from proxy.errors import Draining, ProxyError, UpstreamIdle
from proxy.logs import Log
from proxy.metrics import UpstreamCounters
from proxy.problem import problem_response
from proxy.reporting import Reporter
from proxy.synthetic import CorsMemory, response_bytes
from proxy.upstream import Call, Origin, ResponseHead

_JSON_INSPECT_BYTES = 64 * 1024
"""Of a JSON answer: enough for an error object, which is all that is looked for."""


_LAST_CHUNK = b"0\r\n\r\n"
_INSTEAD = frozenset({Respond, Withdraw})
"""Commands that an answer of ours comes of, in the upstream's place."""
_PROMISES = frozenset(
    {b"content-length", b"etag", b"digest", b"content-digest", b"repr-digest", b"content-md5"}
)
"""What a head says of the exact bytes of its body."""


@dataclass(slots=True)
class Route:
    """One configured upstream with everything a request to it needs."""

    settings: UpstreamSettings
    origin: Origin
    state: Upstream
    counters: UpstreamCounters
    forwarding: Forwarding
    replica_header: bytes | None
    prefix: bytes
    """What `strip_prefix` takes off the target; b"" for nothing."""
    cors: CorsMemory


@dataclass(frozen=True, slots=True)
class Services:
    """What every exchange shares."""

    ledger: Ledger
    reporter: Reporter
    log: Log
    request_inspect_bytes: int
    gate_bytes: int
    clock: Callable[[], float]


_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets. Neither event loop's `abort` does by itself."""


class Phase(Enum):
    """How far the answer has come."""

    WAITING = "waiting"
    """No head has come from the upstream."""
    STREAMING = "streaming"
    """The head has been written, the end has not."""
    OVER = "over"
    """The end has been written, the client was cut off, or it left."""


# On Python 3.11 an enum's member costs as much as a call each time it is looked up on its class.
_WAITING, _STREAMING, _OVER = Phase.WAITING, Phase.STREAMING, Phase.OVER
_POST, _GET = AttachmentKind.POST, AttachmentKind.GET


class Forward:
    """One exchange between a client's connection and an upstream."""

    __slots__ = ("_answer_body", "_batch", "_call", "_chunked", "_connection", "_events", "_exchange",
                 "_loop", "_origin_header", "_paused", "_phase", "_request", "_resumed", "_route",
                 "_services", "_started", "_timer", "_transport", "_unbounded", "_uploading", "keep_alive")  # fmt: skip

    def __init__(
        self, services: Services, route: Route, connection: ClientConnection, request: Request
    ) -> None:
        assert connection.transport is not None
        self._services = services
        self._route = route
        self._connection = connection
        self._transport = connection.transport
        self._request = request
        self._loop = connection.loop
        self._phase = _WAITING
        self._exchange: Exchange | None = None
        self._call: Call | None = None
        self._chunked = False
        self._unbounded = False
        """Nothing promised where the answer ends: it can be ended anywhere between two events."""
        self.keep_alive = request.keep_alive
        """Whether the client's connection may live on after the answer."""
        self._origin_header: bytes | None = None
        self._answer_body: bytearray | None = None
        self._events = 0
        self._paused = False
        self._resumed: asyncio.Event | None = None
        self._uploading: asyncio.Task[None] | None = None
        """Sends what had not come of the body as its head came."""
        self._batch: list[bytes] | None = None
        """What is written while one read of the upstream is worked on: it leaves in one write."""
        self._started = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # ---- the request

    def start(self) -> None:
        """Carry the exchange to its end; the connection is told when it is `answered`."""
        self._route.counters.http_requests_in_flight += 1
        try:
            self._start()
        except Exception as error:
            self._broke(error)

    def _start(self) -> None:
        request, route = self._request, self._route
        head = request_head(request.headers, request.names, self._connection.peer, route.forwarding)
        self._origin_header = head.origin
        now = self._started = self._services.clock()
        try:
            self._exchange = Exchange(
                self._services.ledger,
                route.state,
                EngineRequest(request.method, head.session, head.cursor, head.protocol),
                now,
                deadline_s=route.settings.replay_deadline_s,
                gate_bytes=self._services.gate_bytes,
                handle=self,
            )
        except Exception as error:
            self._fail_open(error)
            if head.session is not None:
                self._services.ledger.overlook(route.state, head.session)
        if self._exchange is not None:
            self._ask(self._exchange.began, now)
        if self._phase is _OVER:
            return
        body = request.body
        if self._exchange is not None and self._exchange.needs_upload and not body.complete:
            self._in_background(self._read_ahead(head))
        else:
            self._send(head, body.take(), complete=body.complete)

    def _send(self, head: RequestHead, body: bytes, *, complete: bool) -> None:
        """Send the request, with what is known of its body; the rest follows as it comes."""
        exchange = self._exchange
        if complete and exchange is not None:
            small = len(body) <= self._services.request_inspect_bytes
            self._ask(exchange.uploaded, body if small else None)
        elif exchange is not None and exchange.needs_upload:
            self._ask(exchange.uploaded, None)
        if self._phase is _OVER:
            return
        fields = head.fields
        if exchange is not None and exchange.drops_session:
            fields = [field for field in fields if field[0].lower() != b"mcp-session-id"]
        self._call = self._route.origin.request(
            self._request.method.encode("ascii"),
            self._target(),
            fields,
            self,
            body=body,
            streaming=not complete,
        )
        if not complete:
            self._in_background(self._upload(self._call, body))

    def _in_background(self, sending: Coroutine[None, None, None]) -> None:
        """Send the rest of the body as it comes."""

        async def run() -> None:
            try:
                await sending
            except Exception as error:
                self._broke(error)

        self._uploading = self._loop.create_task(run())

    async def _read_ahead(self, head: RequestHead) -> None:
        """Read the body as far as it may be inspected, then send the request: it may be an `initialize`."""
        if any(value.lower() == b"100-continue" for value in self._request.values(b"expect")):
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")  # the upstream is not asked: nobody else would
        content, limit = self._request.body, self._services.request_inspect_bytes
        seen = bytearray()
        while len(seen) <= limit and not content.at_end:
            seen += await content.read()
        self._send(head, bytes(seen), complete=content.at_end)

    def _target(self) -> bytes:
        target = self._request.target
        prefix = self._route.prefix
        if prefix and target.startswith(prefix):
            rest = target[len(prefix) :]
            return rest if rest.startswith(b"/") else b"/" + rest
        return target

    async def _upload(self, call: Call, sent: bytes) -> None:
        """Send the body as it comes, reading it on the way up to the inspection limit."""
        content, limit = self._request.body, self._services.request_inspect_bytes
        seen: bytearray | None = bytearray(sent) if len(sent) <= limit else None
        while not content.at_end:
            chunk = await content.read()
            if not chunk:
                continue
            call.send(chunk)
            if seen is not None:
                seen += chunk
                if len(seen) > limit:
                    seen = None
                    self._uploaded(None)
            if self._paused:
                self._resumed = asyncio.Event()
                await self._resumed.wait()
        if seen is not None:
            self._uploaded(bytes(seen))
        call.finish()

    def _uploaded(self, body: bytes | None) -> None:
        if self._exchange is not None:
            self._ask(self._exchange.uploaded, body)

    # ---- the upstream's side (upstream.Sink)

    def pause_upload(self) -> None:
        """The upstream reads slower than the client sends."""
        self._paused = True

    def resume_upload(self) -> None:
        """The upstream has caught up."""
        self._paused = False
        if self._resumed is not None:
            self._resumed.set()

    def informational(self, head: ResponseHead) -> None:
        """A 1xx: passed on to clients that know them."""
        if self._phase is _WAITING and not self._request.old:
            lines = [b"HTTP/1.1 %d %b" % (head.status, head.reason)]
            lines += [b"%b: %b" % field for field in head.headers]
            self._write(b"\r\n".join(lines) + b"\r\n\r\n")

    def received(self, head: ResponseHead | None, body: bytes, ended: bool) -> None:
        """What one read of the upstream brought: it leaves in one write. One in so many is timed."""
        if self._phase is _OVER:
            return
        counters = self._route.counters
        counters.reads_to_sample -= 1
        began = 0.0 if counters.reads_to_sample > 0 else time.perf_counter()
        if head is None and not ended:
            self._body(body)
        else:
            self._begin_or_end(head, body, ended)
        if began:
            counters.sample_overhead(time.perf_counter() - began)

    def _begin_or_end(self, head: ResponseHead | None, body: bytes, ended: bool) -> None:
        """A read with the head, the end, or both, and perhaps a part of the body."""
        batch = self._batch = []
        if head is not None:
            self._begin(head)
        if body and self._phase is _STREAMING:
            self._body(body)
        if ended and self._phase is _STREAMING:
            self._end()
        self._batch = None
        if batch:
            self._write(batch[0] if len(batch) == 1 else b"".join(batch))

    def failed(self, error: ProxyError) -> None:
        """The upstream could not be reached, or broke off: the client learns it in kind."""
        if self._phase is _OVER:
            return
        began = self.began
        services = self._services
        services.reporter.failed(self._route.settings.name, error, self._request.method, services.clock())
        cause = CloseCause.UPSTREAM_IDLE if isinstance(error, UpstreamIdle) else None
        self._ask_ended(Ending.UPSTREAM_FAILED, cause)
        if self._over_already:
            return  # answered by the engine: a DELETE in quarantine
        self.keep_alive = False
        if began:
            self._break_off()
        else:
            self._problem(error)
        self._over()

    def _problem(self, error: ProxyError) -> None:
        self._write(problem_response(error, head_only=self._request.method == "HEAD"))
        self._route.counters.count_request(self._request.method, error.status)

    # ---- the client's side

    def pause(self) -> None:
        """The client reads slower than the upstream sends."""
        if self._call is not None:
            self._call.pause_reading()

    def resume(self) -> None:
        """The client has caught up."""
        if self._call is not None:
            self._call.resume_reading()

    def client_left(self) -> None:
        """The client's connection is gone: so is the upstream's, at once."""
        if self._phase is not _OVER:
            self._over()
            self._ask_ended(Ending.CLIENT_LEFT)

    def drain(self, *, clean: bool) -> None:
        """The proxy stops: end the answer, cleanly or not, and give up the upstream's."""
        if self._phase is not _OVER:
            self._stop(CloseCause.PROXY_DRAIN, Draining("the proxy is stopping"), clean=clean)

    def _broke(self, error: Exception) -> None:
        """Carrying the exchange itself failed: the client sees that its answer is not whole."""
        self._failed_open("relay", error)
        if self._phase is not _OVER:
            self._stop(CloseCause.PROXY_ERROR, ProxyError("the proxy failed on this request"), clean=False)

    def _stop(self, cause: CloseCause, error: ProxyError, *, clean: bool) -> None:
        """End the answer for a reason of the proxy's own; `error` is the answer if none has begun."""
        began = self.began
        self.keep_alive = False
        self._ask_ended(Ending.CLIENT_LEFT, cause)
        if self._over_already:
            return  # ended by the engine
        if not began:
            self._problem(error)
        elif clean and self._unbounded:  # without chunks it ends with the connection
            self._write(_LAST_CHUNK if self._chunked else b"")
        else:
            self._break_off()
        self._over()

    def close_after(self) -> None:
        """Let this be the last answer on its connection, and say so if its head is not out."""
        self.keep_alive = False

    @property
    def began(self) -> bool:
        """Whether a part of the answer has been written."""
        return self._phase is not _WAITING

    @property
    def standalone(self) -> bool:
        """Whether this is an open event stream that answers a GET."""
        return self._phase is _STREAMING and self._request.method == "GET" and self._unbounded

    # ---- the answer

    def _begin(self, head: ResponseHead) -> None:
        """Send the head on, after the engine has looked at it; or an answer of the engine's instead."""
        route, request = self._route, self._request
        now = self._services.clock()
        found = response_fields(head.headers, route.replica_header)
        route.counters.observe_headers(request.method, now - self._started)
        route.cors.remember(self._origin_header, found.fields)
        commands: Sequence[Command] = PASS
        relay = None
        if self._exchange is not None:
            answer = Answer(
                status=head.status,
                is_stream=found.is_stream and not head.bodiless,
                encoded=found.encoded,
                session=found.session,
                replica=found.replica or (self._call.peer if self._call is not None else None),
                whole=head.content_length is not None,
            )
            commands = self._commands(self._exchange.responded, answer, now)
            relay = self._exchange.relay if self._exchange is not None else None
        if not _INSTEAD.isdisjoint(map(type, commands)):
            self._perform(commands)
            return
        self._phase = _STREAMING
        route.counters.count_request(request.method, head.status)
        if found.is_json and not head.bodiless and not found.encoded and 200 <= head.status < 300:
            self._answer_body = bytearray()
        self._write_head(head, found.fields, rewrites=relay is not None and relay.rewrites)
        self._perform(commands)

    def _write_head(self, head: ResponseHead, fields: Fields, *, rewrites: bool) -> None:
        """`rewrites`: the body may not be the upstream's byte for byte, so nothing is promised of it."""
        old = self._request.old
        if rewrites:
            fields = [field for field in fields if field[0].lower() not in _PROMISES]
        unbounded = not head.bodiless and (rewrites or head.chunked or head.content_length is None)
        self._unbounded = unbounded
        self._chunked = unbounded and not old
        if unbounded and old:
            self.keep_alive = False
        lines = [b"HTTP/1.%d %d %b" % (0 if old else 1, head.status, head.reason)]
        lines += map(b": ".join, fields)
        if self._chunked:
            lines.append(b"Transfer-Encoding: chunked")
        if not self.keep_alive:
            lines.append(b"Connection: close")
        elif old:
            lines.append(b"Connection: keep-alive")
        lines += (b"", b"")
        self._write(b"\r\n".join(lines))

    def _body(self, body: bytes) -> None:
        """Send a part of the body on; the engine looks at it before that only where it may rewrite it."""
        relay = None if self._exchange is None else self._exchange.relay
        if relay is None:
            if self._answer_body is not None:
                self._inspect(self._answer_body, body)
            self._write(self._framed(body))
            return
        counters = self._route.counters
        counters.stream_bytes += len(body)
        if not relay.rewrites:
            self._write(self._framed(body))
        try:
            commands = relay.receive(body, self._services.clock())
        except Exception as error:
            self._write(self._framed(self._fail_open(error)))
            return
        if commands:
            self._perform(commands)
        if relay.events != self._events:
            self._count_events(relay.kind, relay.events - self._events)
            self._events = relay.events

    def _framed(self, body: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(body), body) if self._chunked and body else body

    def _count_events(self, kind: AttachmentKind, n: int) -> None:
        counters = self._route.counters
        if kind is _POST:
            counters.events_relayed_post += n
        elif kind is _GET:
            counters.events_relayed_get += n
        else:
            counters.events_relayed_resume += n

    def _inspect(self, seen: bytearray, body: bytes) -> None:
        """Keep a JSON answer that is small enough, to be read at its end."""
        if len(seen) + len(body) > _JSON_INSPECT_BYTES:
            self._answer_body = None
        else:
            seen += body

    def _end(self) -> None:
        """The upstream's body is complete: the engine has the last word, then it ends here too."""
        if self._answer_body and self._exchange is not None:
            self._ask(self._exchange.answered, bytes(self._answer_body))
        self._ask_ended(Ending.CLEAN)
        if self._phase is _STREAMING:
            if self._chunked:
                self._write(_LAST_CHUNK)
            self._over()

    @property
    def _over_already(self) -> bool:
        """Whether the engine has ended the answer itself, when asked."""
        return self._phase is _OVER

    def _over(self) -> None:
        """Nothing more is written; the upstream's part is given up if it goes on; the connection goes on."""
        if self._phase is _OVER:
            return
        self._phase = _OVER
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Let go of what refers back here: nothing of an exchange may wait for the garbage collector.
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
        uploading, self._uploading = self._uploading, None
        if uploading is not None and uploading is not asyncio.current_task():
            uploading.cancel()
        self._route.counters.http_requests_in_flight -= 1
        # Not at once: what is written in this turn is still to leave, and before the next answer.
        self._loop.call_soon(self._connection.answered, self)

    def _write(self, data: bytes) -> None:
        if self._batch is not None:
            self._batch.append(data)
        elif data and not self._transport.is_closing():
            self._transport.write(data)

    def _break_off(self) -> None:
        """End the connection without the end its framing promised, after what was written before."""
        self._flush()
        if self._chunked or not self._request.old:
            self._connection.force_close()
        else:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()  # a body that ends with the connection: only a reset tells

    def _flush(self) -> None:
        batch, self._batch = self._batch, None
        if batch:
            self._write(b"".join(batch))

    # ---- the engine's side

    def _ask(self, method: Callable[..., Sequence[Command]], *arguments: object) -> None:
        """Give the engine an input and perform what it wants."""
        self._perform(self._commands(method, *arguments))

    def _commands(self, method: Callable[..., Sequence[Command]], *arguments: object) -> Sequence[Command]:
        """What the engine wants; if it raises, go on without it."""
        try:
            return method(*arguments)
        except Exception as error:
            self._write(self._framed(self._fail_open(error)))
            return PASS

    def _ask_ended(self, how: Ending, cause: CloseCause | None = None) -> None:
        """Tell the engine that the exchange is over, once."""
        if self._exchange is not None:
            ended = self._exchange.ended
            commands = self._commands(ended, how, self._services.clock(), cause)
            self._exchange = None
            self._perform(commands)

    def perform(self, commands: Sequence[Command]) -> None:
        """Do what another exchange's verdict wants of this one."""
        self._perform(commands)

    def _perform(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Report():
                    self._report(command.item)
                case Send():
                    if self._phase is _STREAMING:
                        self._write(self._framed(command.data))
                case WakeAfter():
                    if self._timer is not None:
                        self._timer.cancel()
                    self._timer = self._loop.call_later(command.seconds, self._wake)
                case Finish():
                    self._finish()
                case Abort():
                    self.keep_alive = False
                    self._break_off()
                    self._over()
                    self._ask_ended(Ending.CLIENT_LEFT, CloseCause.PROXY_CUT)
                case Withdraw():
                    if self._call is not None:
                        self._call.cancel()
                    self.resume_upload()  # nobody else would: the rest of the body is read for its ids
                case Respond():
                    self._respond(command)
                case Elsewhere():
                    other = command.party.handle
                    assert isinstance(other, Forward)
                    other.perform(command.commands)

    def _finish(self) -> None:
        """A verdict ends this answer cleanly."""
        if self._phase is not _STREAMING:
            return
        if self._chunked:
            self._write(_LAST_CHUNK)
        else:
            self.keep_alive = False
        self._over()
        self._ask_ended(Ending.CLIENT_LEFT, CloseCause.PROXY_CUT)

    def _respond(self, answer: Respond) -> None:
        """Answer in the upstream's place."""
        if self._phase is not _WAITING:
            return
        old = self._request.old
        cors = self._route.cors.fields(self._origin_header)
        head_only = self._request.method == "HEAD"
        self._write(response_bytes(answer, cors, old=old, keep_alive=self.keep_alive, head_only=head_only))
        self._route.counters.count_request(self._request.method, answer.status)
        self._over()
        self._ask_ended(Ending.CLIENT_LEFT)

    def _report(self, item: Reportable) -> None:
        """Count and log; an error there must not reach the stream."""
        services = self._services
        try:
            services.reporter.report(self._route.settings.name, item, services.clock())
        except Exception as error:
            self._failed_open("report", error)

    def _failed_open(self, component: str, error: Exception) -> None:
        self._route.counters.count_fail_open(component)
        self._services.log.event(
            "check.failed_open",
            level="warning",
            upstream=self._route.settings.name,
            component=component,
            error=f"{type(error).__name__}: {error}",
        )

    def _wake(self) -> None:
        self._timer = None
        if self._phase is _STREAMING and self._exchange is not None:
            self._ask(self._exchange.wake, self._services.clock())

    def _fail_open(self, error: Exception) -> bytes:
        """The engine raised: go on without it. Returns what it held back."""
        exchange, self._exchange = self._exchange, None
        self._failed_open("detector", error)
        if exchange is None:
            return b""
        held = exchange.abandon()
        if (
            exchange.relay is not None
            and (closed := exchange.relay.abandoned(self._services.clock())) is not None
        ):
            self._report(closed)
        return held
