"""A shell without sockets: performs what the engine asks for, and keeps what each client gets.

It does what the proxy's own shell does, in the same order and re-entrantly: a `Finish` ends the exchange
before the next command is performed, an `Elsewhere` is performed in the same turn. What no shell may be asked
for fails at once: bytes before a head or after an end, a second answer, an end of what has ended.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import Enum
from typing import Any

from proxy.engine.commands import Abort, Command, Elsewhere, Finish, Respond, Send, Withdraw
from proxy.engine.exchange import Exchange
from proxy.engine.findings import CloseCause, Ending, Gated, QuarantineEnded, QuarantineRejected
from proxy.engine.heads import Answer, Request
from proxy.engine.ledger import Bounds
from proxy.engine.policy import Mode, Policy
from tests.engine.drive import DEADLINE_S, Connection, Cut, Drive, dump, whole

STREAM = Answer(200, True)
JSON = Answer(200, False)
ACCEPTED = Answer(202, False)


class Phase(Enum):
    """How far an answer has come, as its client sees it."""

    WAITING = "waiting"
    STREAMING = "streaming"
    ANSWERED = "answered"
    """Whole, by the proxy itself."""
    ENDED = "ended"
    """Cleanly."""
    ABORTED = "aborted"
    LEFT = "left"
    """By the client."""


OPEN = (Phase.WAITING, Phase.STREAMING)


class Client(Connection):
    """One request and what its client gets."""

    def __init__(self, shell: Shell, request: Request) -> None:
        self.shell = shell
        self.request = request
        self.phase = Phase.WAITING
        self.body = bytearray()
        self.sent = bytearray()
        """What the upstream sent."""
        self.response: Respond | None = None
        self.withdrawn = False
        self.upstream_answered = False
        self.held_back = False
        """Nothing of it goes upstream before its body is known."""
        self.told = 0
        """How often the engine was told that it is over."""
        exchange = Exchange(
            shell.ledger,
            shell.upstream,
            request,
            shell.now,
            deadline_s=DEADLINE_S,
            gate_bytes=shell.gate_bytes,
            handle=self,
        )
        super().__init__(shell, exchange)

    # ---- what happens

    def began(self) -> Client:
        """The request's head has come."""
        self.held_back = self.exchange.needs_upload
        self.shell.perform(self, self.exchange.began(self.shell.now))
        return self

    def uploaded(self, body: bytes | None) -> Client:
        """The request's body has come, None if it is too large."""
        self.shell.perform(self, self.exchange.uploaded(body))
        return self

    def responded(self, answer: Answer) -> Client:
        """The upstream's head has come."""
        assert self.phase is Phase.WAITING
        assert not self.withdrawn
        commands = self.exchange.responded(answer, self.shell.now)
        self.upstream_answered = True
        if not any(isinstance(command, Respond | Withdraw) for command in commands):
            self.phase = Phase.STREAMING
        self.shell.perform(self, commands)
        return self

    def send(self, *frames: bytes, cut: Cut = whole) -> Client:
        """The upstream sends these bytes, cut into chunks; what comes after an end goes nowhere."""
        for chunk in cut(b"".join(frames)):
            if chunk and self.phase is Phase.STREAMING:
                self._receive(chunk)
        return self

    def _receive(self, chunk: bytes) -> None:
        self.sent += chunk
        if self.exchange.relay is None:
            self.body += chunk
            return
        if not self.exchange.relay.rewrites:
            self.body += chunk
        self.shell.perform(self, self.exchange.receive(chunk, self.shell.now))

    def end(self, how: Ending = Ending.CLEAN) -> None:
        """The upstream ends its answer."""
        if self.phase in OPEN:
            self._tell(how)
            if self.phase in OPEN:
                self.phase = Phase.ENDED if how is Ending.CLEAN else Phase.ABORTED

    def leave(self, cause: CloseCause | None = None) -> None:
        """The client closes its connection."""
        if self.phase in OPEN:
            self.phase = Phase.LEFT
            self._tell(Ending.CLIENT_LEFT, cause)

    def drain(self) -> None:
        """The proxy stops: this answer is ended cleanly."""
        if self.phase in OPEN:
            self._tell(Ending.CLIENT_LEFT, CloseCause.PROXY_DRAIN)
            if self.phase in OPEN:
                self.phase = Phase.ENDED

    def wake(self) -> None:
        """The time it asked for has come."""
        self.wake_at = None
        if self.phase is Phase.STREAMING:
            self.shell.perform(self, self.exchange.wake(self.shell.now))

    def _tell(self, how: Ending, cause: CloseCause | None = None) -> None:
        self.told += 1
        if self.told == 1:
            self.shell.perform(self, self.exchange.ended(how, self.shell.now, cause))

    # ---- what the engine wants

    def deliver(self, data: bytes) -> None:
        """`Send`."""
        assert self.phase in (Phase.STREAMING, Phase.LEFT), self.phase
        if self.phase is Phase.STREAMING:
            self.body += data

    def finish(self) -> None:
        """`Finish`."""
        assert self.phase is Phase.STREAMING, self.phase
        self.phase = Phase.ENDED
        self._tell(Ending.CLIENT_LEFT, CloseCause.PROXY_CUT)

    def abort(self) -> None:
        """`Abort`."""
        assert self.phase is Phase.STREAMING, self.phase
        self.phase = Phase.ABORTED
        self._tell(Ending.CLIENT_LEFT, CloseCause.PROXY_CUT)

    def answer(self, response: Respond) -> None:
        """`Respond`."""
        assert self.phase is Phase.WAITING, self.phase
        self.response = response
        self.phase = Phase.ANSWERED
        self._tell(Ending.CLIENT_LEFT)

    # ---- what the client has

    @property
    def open(self) -> bool:
        """Whether its answer is still to come or under way."""
        return self.phase in OPEN

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The JSON-RPC errors that the proxy made for this client, in order."""
        if self.response is None:
            text = bytes(self.body)
        elif self.response.media_type == "application/json":
            value = json.loads(self.response.body)
            return value if isinstance(value, list) else [value]
        else:
            text = self.response.body
        found = [json.loads(data) for data in messages(text)]
        return [one for one in found if "forkwatch" in one.get("error", {}).get("data", {})]

    @property
    def error_ids(self) -> list[Any]:
        """The ids of those errors."""
        return [error["id"] for error in self.errors]


def messages(stream: bytes) -> list[bytes]:
    """The data of every `message` event that a client dispatches from these bytes (WHATWG HTML, 9.2.6)."""
    found: list[bytes] = []
    data: list[bytes] = []
    event = b""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in text.split(b"\n")[:-1]:
        name, _, value = line.partition(b":")
        if not line:
            if data and event in (b"", b"message"):
                found.append(b"\n".join(data))
            data, event = [], b""
        elif name == b"data":
            data.append(value.removeprefix(b" "))
        elif name == b"event":
            event = value.removeprefix(b" ")
    return found


class Shell(Drive):
    """One proxy in front of one upstream, with a policy in force; it enforces unless told otherwise."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        ids: str = "auto",
        bounds: Bounds | None = None,
        gate_bytes: int = 1 << 20,
    ) -> None:
        super().__init__(ids=ids, bounds=bounds)
        self.upstream.policy = policy or Policy(mode=Mode.ENFORCE)
        self.gate_bytes = gate_bytes
        self.clients: list[Client] = []

    def perform(self, connection: Connection, commands: Sequence[Command]) -> None:
        """Do what the engine asks for, on this exchange and on others."""
        assert isinstance(connection, Client)
        for command in commands:
            match command:
                case Send():
                    connection.deliver(command.data)
                case Finish():
                    connection.finish()
                case Abort():
                    connection.abort()
                case Withdraw():
                    assert connection.phase is Phase.WAITING
                    connection.withdrawn = True
                case Respond():
                    connection.answer(command)
                case Elsewhere():
                    other = command.party.handle
                    assert isinstance(other, Client)
                    assert other is not connection
                    self.perform(other, command.commands)
                case _:
                    super().perform(connection, [command])

    # ---- requests

    def begin(
        self, method: str, *, session: str | None = "s1", cursor: object = None, protocol: str = "2025-06-18"
    ) -> Client:
        """A request's head has come; of another method than POST that is all of it."""
        head = Request(
            method,
            None if session is None else session.encode(),
            None if cursor is None else str(cursor).encode(),
            protocol,
        )
        client = Client(self, head)
        self.clients.append(client)
        self.connections.append(client)
        client.began()
        if method != "POST" and client.open:
            client.uploaded(b"")
        return client

    def post(self, *requests: int | str, method: str = "tools/call", session: str | None = "s1") -> Client:
        """A POST of one request, or a batch of several, not answered yet."""
        return self.begin("POST", session=session).uploaded(body_of(*requests, method=method))

    def stream(self, *requests: int | str, session: str = "s1") -> Client:
        """The same, answered with an event stream."""
        return self.post(*requests, session=session).responded(STREAM)

    def open_get(self, cursor: object = None, *, session: str = "s1", answer: Answer = STREAM) -> Client:
        """A GET that is answered, unless the proxy does it itself; with a cursor it is a resume."""
        client = self.begin("GET", session=session, cursor=cursor)
        return client.responded(answer) if client.open else client

    def open_session(self, session: str = "s1", *, carry: str | None = None) -> Client:
        """A client initializes; `carry` is a session header that it still sends."""
        client = self.begin("POST", session=carry).uploaded(body_of(0, method="initialize"))
        client.responded(Answer(200, False, session=session.encode())).end()
        return client

    def end_session(self, answer: Answer = ACCEPTED, *, session: str = "s1") -> Client:
        """A DELETE, answered so."""
        return self.begin("DELETE", session=session).responded(answer)

    def shown(self, *frames: bytes, session: str = "s1") -> None:
        """The standalone stream shows these frames and loses its connection."""
        self.open_get(session=session).send(*frames).end(Ending.UPSTREAM_FAILED)

    def owing(self, request: int | str, *frames: bytes, session: str = "s1") -> None:
        """A call's stream shows these frames and loses its connection: the answer is still owed."""
        self.stream(request, session=session).send(*frames).end(Ending.UPSTREAM_FAILED)

    # ---- what was reported

    @property
    def gated(self) -> list[float]:
        """For how long each gate held frames back."""
        return [item.held_s for item in self.reports if isinstance(item, Gated)]

    @property
    def rejected(self) -> list[tuple[str, int]]:
        """What the proxy answered in quarantine: methods and statuses."""
        return [(item.method, item.status) for item in self.reports if isinstance(item, QuarantineRejected)]

    @property
    def lifted(self) -> list[str]:
        """Why quarantines ended."""
        return [item.cause.value for item in self.reports if isinstance(item, QuarantineEnded)]

    @property
    def quarantined(self) -> list[bytes]:
        """The sessions in quarantine."""
        return list(self.upstream.quarantined)


def body_of(*requests: int | str, method: str = "tools/call") -> bytes:
    """The body of a POST: one request, a batch of several, or a notification where there is none."""
    if not requests:
        return dump({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})
    calls: list[dict[str, object]] = [
        {"jsonrpc": "2.0", "id": one, "method": method, "params": {}} for one in requests
    ]
    return dump(calls[0] if len(calls) == 1 else calls)
