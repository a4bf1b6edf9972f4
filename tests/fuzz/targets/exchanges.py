"""The engine as a whole: any inputs of exchanges in any order, with any bytes in their streams.

An input is read as a script by `Steps`: each step takes a few bytes. The shell of the engine's tests performs what
the engine asks for, and refuses what no shell could do. Laws: nothing raises; in `observe` no byte changes; in
`annotate` a client dispatches the same events; in `enforce` it dispatches the first of them, then errors of ours;
memory stays within its bounds; when all is over nothing is left open.
"""

from __future__ import annotations

from proxy.engine.findings import CloseCause, Ending, Judged, ResumeAttempted
from proxy.engine.heads import Answer
from proxy.engine.ledger import Bounds
from proxy.engine.policy import Mode, Policy
from tests.engine.drive import event, frame, priming, result
from tests.engine.shell import Client, Shell, body_of
from tests.fuzz.target import Target, bounded, must, pieces, same
from tests.fuzz.whatwg import events

BOUNDS = Bounds(
    sessions_per_upstream=3, streams_per_session=3, ids_per_stream=8, ledger_bytes=9_000, session_idle_s=60.0
)
GATE = 4096
DIALECTS = ("auto", "auto", "auto", "integer", "epoch:seq", "rmcp")
SESSIONS = ("s1", "s2", "s3", "s4", None)
FRAMES = [
    *(event(n) for n in range(1, 8)),
    *(event(n, "other") for n in range(1, 6)),
    *(event(f"{n}/3") for n in range(3)),
    *(event(f"1:{n}") for n in range(1, 4)),
    event("2:1"),
    *(event(f"{n}#s") for n in range(1, 4)),
    event("_1"),
    event("_2"),
    event("f" * 32),
    event("s_1795973200386_aa"),
    event("czE=:Nw==:5"),
    priming(0, 3000),
    priming("0/3"),
    priming(4),
    result(3, 1),
    result(4, 2),
    result(None, 1),
    result(None, "a"),
    event(None, "bare"),
    b": keep-alive\n\n",
    b"\xef\xbb\xbf",
    frame(5, b"{no json"),
    frame(6, b"null"),
    frame(1, b"{}"),
    frame(9, b'"' + b"x" * 5000 + b'"'),
    b"id: \0\ndata: {}\n\n",
    b"id: 4\r\ndata: {}\r\n\r\n",
    b"id: 9\ndata: {",
    b"\n\n",
    b"\r",
    b"\n",
    b"data",
    b"id: " + b"a" * 1100 + b"\ndata: {}\n\n",
    frame(2, b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Session not found"}}'),
    b"retry: 5\n\n",
]
CURSORS = [
    "0",
    "1",
    "2",
    "3",
    "5",
    "9",
    "1:1",
    "1:2",
    "1#s",
    "2#s",
    "0/3",
    "_1",
    "f" * 32,
    "czE=:Nw==:5",
    "\u00e9",
    "a" * 1100,
]
ANSWERS = [
    Answer(200, True),
    Answer(200, True, replica="b"),
    Answer(200, True, whole=True),
    Answer(200, True, encoded=True),
    Answer(200, False),
    Answer(202, False),
    Answer(404, False),
    Answer(409, False),
    Answer(500, True),
]
BODIES = [
    body_of(1),
    body_of(2),
    body_of("a"),
    body_of(1, 2, 3),
    body_of(0, method="initialize"),
    body_of(),
    b"{",
    b"",
    None,
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
]
WAITS_S = (0.0, 0.5, 5.0, 11.0, 70.0, 700.0)


class Steps:
    """The bytes of an input, taken as choices."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self, below: int) -> int:
        """The next byte as a number below this; 0 at the end."""
        if self.at >= len(self.data):
            return 0
        self.at += 1
        return self.data[self.at - 1] % below

    def rest(self, size: int) -> bytes:
        """So many bytes as they are."""
        self.at += size
        return self.data[self.at - size : self.at]

    @property
    def more(self) -> bool:
        """Whether any are left."""
        return self.at < len(self.data)


class Script:
    """One proxy and what happens to it."""

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
        kind = steps.number(8)
        self.mode = (Mode.OBSERVE, Mode.ANNOTATE, Mode.ENFORCE)[kind % 3]
        policy = Policy(
            mode=self.mode,
            cut_on_suspected=bool(kind & 4),
            only_in_flight=kind == 7,
            quarantine_ttl_s=30.0,
        )
        ids = DIALECTS[steps.number(len(DIALECTS))]
        self.shell = Shell(policy, ids=ids, bounds=BOUNDS, gate_bytes=GATE)
        self.shell.open_session("s1")

    def client(self) -> Client | None:
        """One of the exchanges that are open."""
        found = [client for client in self.shell.clients if client.open]
        return found[self.steps.number(len(found))] if found else None

    def step(self) -> None:
        """One thing happens."""
        steps = self.steps
        match steps.number(10):
            case 0 | 1 | 2 | 3 if (client := self.client()) is not None:
                self.send(client)
            case 4 | 5:
                self.begin()
            case 6 if (client := self.client()) is not None:
                client.end(list(Ending)[steps.number(3)])
            case 7 if (client := self.client()) is not None:
                client.leave(None if steps.number(2) else CloseCause.CLIENT_CLOSED)
            case 8:
                self.shell.pass_time(WAITS_S[steps.number(len(WAITS_S))])
                self.shell.reports += [item for _, item in self.shell.ledger.expire(self.shell.now)]
                self.expired()
            case 9 if (client := self.client()) is not None:
                self.proceed(client)

    def expired(self) -> None:
        """What an expiry leaves fits, but for what is quarantined or is all there is."""
        upstream = self.shell.upstream
        fits = self.shell.ledger.held_bytes <= BOUNDS.ledger_bytes
        must(fits or len(upstream.sessions) - len(upstream.quarantined) <= 1, "bounded bytes", upstream.bytes)

    def begin(self) -> None:
        """A request begins, and goes on as far as a choice says."""
        steps = self.steps
        method = ("GET", "GET", "POST", "POST", "DELETE", "HEAD", "OPTIONS")[steps.number(7)]
        session = SESSIONS[steps.number(len(SESSIONS))]
        cursor = CURSORS[steps.number(len(CURSORS))] if method == "GET" and steps.number(3) else None
        client = self.shell.begin(method, session=session, cursor=cursor)
        for _ in range(steps.number(3)):
            self.proceed(client)

    def proceed(self, client: Client) -> None:
        """The next thing of a request's own: its body, then its answer's head."""
        if not client.open:
            return
        if client.request.method == "POST" and not getattr(client, "body_came", False):
            client.body_came = True  # type: ignore[attr-defined]
            client.uploaded(BODIES[self.steps.number(len(BODIES))])
        elif not client.upstream_answered and not client.withdrawn:
            answer = ANSWERS[self.steps.number(len(ANSWERS))]
            named = (SESSIONS[self.steps.number(len(SESSIONS))] or "").encode() or None
            client.responded(
                Answer(answer.status, answer.is_stream, answer.encoded, named, answer.replica, answer.whole)
            )

    def send(self, client: Client) -> None:
        """Bytes of an answer: whole frames, or anything; whole or cut."""
        steps = self.steps
        if not client.upstream_answered:
            self.proceed(client)
            return
        kind = steps.number(8)
        data = steps.rest(steps.number(32)) if kind == 7 else b"".join(
            FRAMES[steps.number(len(FRAMES))] for _ in range(1 + kind % 4)
        )  # fmt: skip
        cuts = sorted({steps.number(256) % (len(data) + 1) for _ in range(steps.number(4))})
        client.send(data, cut=lambda stream: pieces(stream, cuts))
        self.faithful(client)

    def faithful(self, client: Client) -> None:
        """What the client has of what the upstream sent, as its mode allows."""
        if self.mode is Mode.OBSERVE:
            same("bytes in observe", bytes(client.body), bytes(client.sent))
        if client.exchange.relay is None and client.response is None:
            same("bytes of what is no stream", bytes(client.body), bytes(client.sent))

    def over(self) -> None:
        """Everything ends; what must hold of it all."""
        for client in self.shell.clients:
            client.end(list(Ending)[self.steps.number(3)])
            self.faithful(client)
            got, came = events(bytes(client.body)), events(bytes(client.sent))
            if self.mode is Mode.ANNOTATE and client.request.method == "GET":
                same("events in annotate", got, came)
            theirs = [one for one in got if b'"forkwatch"' not in one[1] and one[0] != b"forkwatch-discard"]
            same(
                "events are the first ones that came",
                [e[:2] for e in theirs],
                [e[:2] for e in came[: len(theirs)]],
            )
        attempts = sum(isinstance(item, ResumeAttempted) for item in self.shell.reports)
        judged = sum(isinstance(item, Judged) for item in self.shell.reports)
        same("one verdict a resume", judged, attempts)
        for session in self.shell.upstream.sessions.values():
            same("exchanges left", len(session.exchanges), 0)
            same("attachments left", [s.attachments for s in session.streams.values() if s.attachments], [])

    def bounds(self) -> None:
        """Memory stays within its bounds."""
        upstream = self.shell.upstream
        live = [key for key in upstream.sessions if key not in upstream.quarantined]
        must(len(live) <= BOUNDS.sessions_per_upstream, "bounded sessions", live)
        same(
            "bytes are those of the sessions",
            upstream.bytes,
            sum(s.bytes for s in upstream.sessions.values()),
        )
        for session in upstream.sessions.values():
            open_streams = sum(bool(stream.attachments) for stream in session.streams.values())
            most = max(BOUNDS.streams_per_session, open_streams)
            must(len(session.streams) <= most, "bounded streams", len(session.streams), open_streams)
            for stream in session.streams.values():
                must(len(stream.log) <= BOUNDS.ids_per_stream, "bounded ids", len(stream.log))


def check(data: bytes) -> None:
    """Play the script."""
    steps = Steps(data)
    with bounded("a script", 3.0):
        script = Script(steps)
        while steps.more:
            script.step()
            script.bounds()
        script.over()


TARGET = Target(
    check,
    [bytes([0, n]) for n in range(0, 40, 4)]
    + [bytes([4, 0, 0, n, 1, 2, 0, 0]) for n in range(16)]
    + [bytes([4, 2, 0, 1, n, 0, 0]) for n in range(6)]
    + [b"\x06\0\0", b"\x07\0\0", b"\x08\x02", b"\x09\0\0"],
    largest=512,
)
