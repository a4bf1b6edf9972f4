"""One request on its way to the upstream and its answer on the way back.

A `Forward` is the upstream leg's sink: `received` is called once per upstream read, asks the engine
what to think of the bytes, and writes them to the client's transport in one call. There is no
future, task or timer per chunk. If the engine raises, the bytes flow on unjudged (fail open).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from aiohttp import web

from proxy.engine.commands import Command, Report
from proxy.engine.exchange import Answer, Exchange, Request
from proxy.engine.findings import AttachmentKind, CloseCause, Ending, FailedOpen
from proxy.engine.headers import Forwarding, RequestHead, request_head, response_fields
from proxy.engine.ledger import Upstream
from proxy.engine.sessions import Ledger
from proxy.errors import ProxyError, UpstreamIdle
from proxy.logs import Log
from proxy.metrics import UpstreamCounters
from proxy.problem import problem_response
from proxy.reporting import Reporter
from proxy.settings import UpstreamSettings
from proxy.upstream import Call, Origin, ResponseHead

if TYPE_CHECKING:
    from proxy.server import ClientConnection

_JSON_INSPECT_BYTES = 64 * 1024
"""Of a JSON answer: enough for an error object, which is all that is looked for."""


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


@dataclass(frozen=True, slots=True)
class Services:
    """What every exchange shares."""

    ledger: Ledger
    reporter: Reporter
    log: Log
    request_inspect_bytes: int
    clock: Callable[[], float]


class Done:
    """What aiohttp's server wants back from a handler: the answer is out, may the connection live on?"""

    __slots__ = ("keep_alive",)

    def __init__(self, keep_alive: bool) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing to prepare: the head has been written."""

    async def write_eof(self) -> None:
        """Nothing to end: the end has been written."""


KEEP = Done(True)
CLOSE = Done(False)


class Phase(Enum):
    """How far the answer has come."""

    WAITING = "waiting"
    """No head has come from the upstream."""
    STREAMING = "streaming"
    """The head has been written, the end has not."""
    OVER = "over"
    """The end has been written, the client was cut off, or it left."""


class Forward:
    """One exchange between a client's connection and an upstream."""

    __slots__ = ("_answer_body", "_call", "_chunked", "_connection", "_done", "_events", "_exchange", "_keep_alive",
                 "_loop", "_paused", "_phase", "_request", "_resumed", "_route", "_services", "_started",
                 "_timer", "_transport")  # fmt: skip

    def __init__(
        self, services: Services, route: Route, connection: ClientConnection, request: web.BaseRequest
    ) -> None:
        assert connection.transport is not None
        self._services = services
        self._route = route
        self._connection = connection
        self._transport = connection.transport
        self._request = request
        self._loop = connection.loop
        self._phase = Phase.WAITING
        self._exchange: Exchange | None = None
        self._call: Call | None = None
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._chunked = False
        self._keep_alive = request.keep_alive
        self._answer_body: bytearray | None = None
        self._events = 0
        self._paused = False
        self._resumed: asyncio.Event | None = None
        self._started = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # ---- the request

    async def run(self) -> Done:
        """Carry the exchange to its end. Cancelled when the client's connection is lost."""
        request, route = self._request, self._route
        head = request_head(list(request.raw_headers), self._connection.peer, route.forwarding)
        now = self._started = self._services.clock()
        exchange = self._exchange = Exchange(
            self._services.ledger,
            route.state,
            Request(request.method, head.session, head.cursor, head.protocol),
            now,
            deadline_s=route.settings.replay_deadline_s,
        )
        self._ask(exchange.began, now)
        route.counters.http_requests_in_flight += 1
        upload: asyncio.Task[None] | None = None
        try:
            upload = self._send(head, now)
            await self._done
        finally:
            route.counters.http_requests_in_flight -= 1
            if upload is not None:
                upload.cancel()
            self._leave_if_open()
        return KEEP if self._keep_alive else CLOSE

    def _send(self, head: RequestHead, now: float) -> asyncio.Task[None] | None:
        """Send the request; returns the task that uploads the rest of its body, if there is a rest."""
        request = self._request
        content = request.content
        method = request.method.encode("ascii")
        complete = content.is_eof()
        body = content.read_nowait() if complete else b""
        exchange = self._exchange
        if complete and exchange is not None and len(body) <= self._services.request_inspect_bytes:
            self._ask(exchange.uploaded, body, now)
        self._call = self._route.origin.request(
            method, self._target(), head.fields, self, body=body, streaming=not complete
        )
        return None if complete else self._loop.create_task(self._upload(self._call))

    def _target(self) -> bytes:
        target = self._request.raw_path.encode("utf-8", "surrogateescape")
        prefix = self._route.prefix
        if prefix and target.startswith(prefix):
            rest = target[len(prefix) :]
            return rest if rest.startswith(b"/") else b"/" + rest
        return target

    async def _upload(self, call: Call) -> None:
        """Send the body as it comes, reading it on the way up to the inspection limit."""
        content, limit = self._request.content, self._services.request_inspect_bytes
        seen: bytearray | None = bytearray()
        while not content.at_eof():
            chunk = await content.readany()
            if not chunk:
                continue
            call.send(chunk)
            if seen is not None:
                seen = seen + chunk if len(seen) + len(chunk) <= limit else None
            if self._paused:
                self._resumed = asyncio.Event()
                await self._resumed.wait()
        if seen is not None and self._exchange is not None:
            self._ask(self._exchange.uploaded, bytes(seen), self._services.clock())
        call.finish()

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
        if self._phase is Phase.WAITING and self._request.version >= (1, 1):
            lines = [b"HTTP/1.1 %d %b" % (head.status, head.reason)]
            lines += [b"%b: %b" % field for field in head.headers]
            self._write(b"\r\n".join(lines) + b"\r\n\r\n")

    def received(self, head: ResponseHead | None, body: bytes, ended: bool) -> None:
        """What one read of the upstream brought: it leaves in one write."""
        if self._phase is Phase.OVER:
            return
        if head is None and not ended:
            self._write(self._body(body))
            return
        out = [] if head is None else [self._begin(head)]
        if body:
            out.append(self._body(body))
        if ended and self._chunked:
            out.append(b"0\r\n\r\n")
        self._write(out[0] if len(out) == 1 else b"".join(out))
        if ended:
            self._over(Ending.CLEAN)

    def failed(self, error: ProxyError) -> None:
        """The upstream could not be reached, or broke off: the client learns it in kind."""
        if self._phase is Phase.OVER:
            return
        began = self._phase is Phase.STREAMING
        self._route.counters.count_error(error.reason)
        self._log_error(error)
        self._keep_alive = False
        if not began:
            self._write(problem_response(error, head_only=self._request.method == "HEAD"))
            self._route.counters.count_request(self._request.method, error.status)
        self._over(Ending.UPSTREAM_FAILED, CloseCause.UPSTREAM_IDLE if isinstance(error, UpstreamIdle) else None)
        if began:
            self._break_off()

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
        if self._phase is not Phase.OVER:
            if self._call is not None:
                self._call.cancel()
            self._over(Ending.CLIENT_LEFT)

    def drain(self, *, clean: bool) -> None:
        """The proxy stops: end the answer, cleanly or not, and give up the upstream's."""
        if self._phase is Phase.OVER:
            return
        if self._call is not None:
            self._call.cancel()
        clean = clean and self._chunked
        if clean:
            self._write(b"0\r\n\r\n")
        self._keep_alive = False
        self._over(Ending.CLIENT_LEFT, CloseCause.PROXY_DRAIN)
        if not clean:
            self._break_off()

    @property
    def began(self) -> bool:
        """Whether a part of the answer has been written."""
        return self._phase is not Phase.WAITING

    @property
    def standalone(self) -> bool:
        """Whether this is an open event stream that answers a GET."""
        return self._phase is Phase.STREAMING and self._request.method == "GET" and self._chunked

    # ---- the answer

    def _begin(self, head: ResponseHead) -> bytes:
        """The head as it goes to the client, and what the engine makes of it."""
        route, request = self._route, self._request
        now = self._services.clock()
        self._phase = Phase.STREAMING
        found = response_fields(head.headers, route.replica_header)
        route.counters.count_request(request.method, head.status)
        route.counters.observe_headers(request.method, now - self._started)
        replica = found.replica or (self._call.peer if self._call is not None else None)
        if self._exchange is not None:
            is_stream = found.is_stream and not head.bodiless
            answer = Answer(head.status, is_stream, found.encoded, found.session, replica)
            self._ask(self._exchange.responded, answer, now)
        if found.is_json and not head.bodiless and not found.encoded and 200 <= head.status < 300:
            self._answer_body = bytearray()
        old = request.version < (1, 1)
        unbounded = not head.bodiless and (head.chunked or head.content_length is None)
        self._chunked = unbounded and not old
        if unbounded and old:
            self._keep_alive = False
        lines = [b"HTTP/1.%d %d %b" % (0 if old else 1, head.status, head.reason)]
        lines += [b"%b: %b" % field for field in found.fields]
        if self._chunked:
            lines.append(b"Transfer-Encoding: chunked")
        if not self._keep_alive:
            lines.append(b"Connection: close")
        elif old:
            lines.append(b"Connection: keep-alive")
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _body(self, body: bytes) -> bytes:
        """A part of the body as it goes to the client, after the engine has looked at it."""
        exchange = self._exchange
        if exchange is not None:
            relay = exchange.relay
            if relay is not None:
                self._route.counters.stream_bytes += len(body)
                try:
                    commands = relay.receive(body, self._services.clock())
                    if commands:
                        self._perform(commands)
                    if relay.events != self._events:
                        self._count_events(relay.kind, relay.events - self._events)
                        self._events = relay.events
                except Exception as error:
                    self._fail_open(error)
            elif self._answer_body is not None:
                self._inspect(self._answer_body, body)
        return b"%x\r\n%b\r\n" % (len(body), body) if self._chunked else body

    def _count_events(self, kind: AttachmentKind, n: int) -> None:
        counters = self._route.counters
        if kind is AttachmentKind.POST:
            counters.events_relayed_post += n
        elif kind is AttachmentKind.GET:
            counters.events_relayed_get += n
        else:
            counters.events_relayed_resume += n

    def _inspect(self, seen: bytearray, body: bytes) -> None:
        """Keep a JSON answer that is small enough, to be read at its end."""
        if len(seen) + len(body) > _JSON_INSPECT_BYTES:
            self._answer_body = None
        else:
            seen += body

    def _over(self, how: Ending, cause: CloseCause | None = None) -> None:
        """The exchange has ended: tell the engine and let the handler go."""
        self._phase = Phase.OVER
        if self._timer is not None:
            self._timer.cancel()
        exchange, answer = self._exchange, self._answer_body
        if exchange is not None:
            if answer and how is Ending.CLEAN:
                self._ask(exchange.answered, bytes(answer))
            self._ask(exchange.ended, how, self._services.clock(), cause)
        if not self._done.done():
            self._done.set_result(None)

    def _leave_if_open(self) -> None:
        """The handler ends before the answer did: it was cancelled."""
        self.client_left()

    def _write(self, data: bytes) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _break_off(self) -> None:
        """End the connection without the end its framing promised, after what was written before."""
        if self._chunked or self._request.version >= (1, 1):
            self._connection.force_close()
        else:
            self._transport.abort()  # a body that ends with the connection: only a reset tells

    # ---- the engine's side

    def _ask(self, method: Callable[..., Sequence[Command]], *arguments: object) -> None:
        """Give the engine an input and perform what it wants; if it raises, go on without it."""
        try:
            commands = method(*arguments)
            if commands:
                self._perform(commands)
        except Exception as error:
            self._fail_open(error)

    def _perform(self, commands: Sequence[Command]) -> None:
        services, name = self._services, self._route.settings.name
        now = services.clock()
        for command in commands:
            if isinstance(command, Report):
                services.reporter.report(name, command.item, now)
            else:
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = self._loop.call_later(command.seconds, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._phase is Phase.STREAMING and self._exchange is not None:
            self._ask(self._exchange.wake, self._services.clock())

    def _fail_open(self, error: Exception) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abandon()
            failed = FailedOpen("detector", f"{type(error).__name__}: {error}")
            self._services.reporter.report(self._route.settings.name, failed, self._services.clock())

    def _log_error(self, error: ProxyError) -> None:
        self._services.log.event(
            "upstream.error",
            level="warning",
            upstream=self._route.settings.name,
            reason=error.reason,
            error=str(error),
            method=self._request.method,
            status=error.status,
        )
