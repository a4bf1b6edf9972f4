"""The answer path: any bytes from the upstream. The client has a well-formed answer, or one that visibly breaks off.

The first byte of an input chooses the request and how the upstream ends; the rest is what it sends, cut at places that
follow from it. A session that has shown ids 1 to 3 stands behind every request.
"""

from __future__ import annotations

from proxy.upstream.wire import MAX_INTERIM
from tests.fuzz.http1 import Message, Stand, request, response
from tests.fuzz.listener import MODES, Party, Stage, stage
from tests.fuzz.target import Target, chance, must, pieces, same

SESSION = b"Mcp-Session-Id: s1\r\n"
CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}'
SHOWN = b"".join(b'id: %d\ndata: {"method":"note","params":{"n":%d}}\n\n' % (n, n) for n in (1, 2, 3))
ENDINGS = ("close", "reset", "stay")


def head(method: bytes, mode: str, fields: bytes = SESSION, version: bytes = b"1.1") -> bytes:
    """A request's head."""
    return b"%b /%b/mcp HTTP/%b\r\nHost: a\r\n%b\r\n" % (method, mode.encode(), version, fields)


def asked(kind: int, mode: str) -> bytes:
    """The request."""
    match kind:
        case 0:
            return head(b"GET", mode, SESSION + b"Last-Event-ID: 2\r\n")
        case 1:
            return head(b"POST", mode, SESSION + b"Content-Length: %d\r\n" % len(CALL)) + CALL
        case 2:
            return head(b"HEAD", mode)
        case 3:
            return head(b"GET", mode, b"")
        case 4:
            return head(b"GET", mode, SESSION + b"Last-Event-ID: 2\r\n", b"1.0")
        case 5:
            return head(b"DELETE", mode)
        case _:
            return head(b"GET", mode)


class Scripted:
    """An upstream that answers the first whole request of a connection with these bytes, then does what it is told."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.party: Party | None = None

    def __call__(self, party: Party) -> None:
        """The request is whole: send."""
        if self.party is None and request(party.raw).stand is Stand.WHOLE:
            party.raw = b""
            self.party = party
            party.send(self.answer)


def final(raw: bytes, *, to_head: bool) -> tuple[Message, bytes]:
    """The first response that is no interim one, and what comes after it."""
    for _ in range(MAX_INTERIM + 1):
        found = response(raw, to_head=to_head)
        if found.line[1] == b"101":
            return Message(Stand.WRONG, why="nobody asked for another protocol"), b""
        if found.stand is not Stand.WHOLE or not found.line[1].startswith(b"1"):
            return found, raw[found.size :] if found.stand is Stand.WHOLE else b""
        raw = raw[found.size :]
    return Message(Stand.WRONG, why="too many interim responses"), b""


async def shown(on: Stage, mode: str) -> None:
    """A session whose standalone stream has shown three ids."""
    body = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'
    opened = b"HTTP/1.1 200 OK\r\nMcp-Session-Id: s1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (
        len(SHOWN),
        SHOWN,
    )
    for sent, answer in (
        (head(b"POST", mode, b"Content-Length: %d\r\n" % len(body)) + body, opened),
        (head(b"GET", mode), stream),
    ):
        on.forget_connections(Scripted(answer))
        client = await on.client()
        client.send(sent)
        await on.until(lambda at=client: response(at.raw).stand is Stand.WHOLE, lambda at=client: at.raw)  # type: ignore[misc]
        client.hang_up()


async def played(on: Stage, choice: int, data: bytes) -> None:
    """One request, and this answer."""
    mode, kind, ending = MODES[choice % 3], choice // 3 % 7, ENDINGS[choice // 21 % 3]
    on.forget(lambda _: None)
    await shown(on, mode)
    draw = chance(data)
    cuts = sorted(draw.randint(0, len(data)) for _ in range(draw.choice((0, 0, 1, 4))))
    first, *rest = pieces(data, cuts)
    upstream = Scripted(first)
    on.forget_connections(upstream)
    client = await on.client()
    client.send(asked(kind, mode))
    await on.until(lambda: upstream.party is not None or client.closed, lambda: "the request does not arrive")
    party = upstream.party
    assert party is not None
    for piece in rest:
        await on.settle()
        party.send(piece)
    await on.settle()
    if ending != "stay":
        party.hang_up(reset=ending == "reset")
        await on.settle()
    to_head = kind == 2
    truth, _ = final(data, to_head=to_head)
    if ending != "stay" or truth.stand is not Stand.PART:
        await on.until(lambda: client.closed or whole(client, to_head), lambda: ("no end", data, client.raw))
    await on.settle()
    judged(client, truth, mode, ending, to_head=to_head)
    client.hang_up()
    party.hang_up()
    await on.settle()
    await on.sound()


def whole(client: Party, to_head: bool) -> bool:
    """Whether the client has all of an answer."""
    return final(client.raw, to_head=to_head)[0].stand is Stand.WHOLE


def judged(client: Party, truth: Message, mode: str, ending: str, *, to_head: bool) -> None:
    """What the client has, against what a strict reader takes the upstream's bytes for."""
    got, after = final(client.raw, to_head=to_head)
    must(got.stand is not Stand.WRONG, "a well-formed answer", got.why, client.raw)
    same("what follows the answer", after, b"")
    ended = got.stand is Stand.WHOLE or (got.until_close and client.closed and not client.reset)
    problem = got.all(b"content-type") == [b"application/problem+json"]
    own = problem or bool(got.all(b"forkwatch-verdict"))
    if truth.stand is Stand.WRONG:
        must(client.closed or ended, "a broken answer ends", client.raw)
    elif truth.stand is Stand.WHOLE or (truth.until_close and ending == "close"):
        must(ended, "a whole answer is whole", client.raw)
        must(not problem, "a sound answer is passed on", client.raw)
    elif ending != "stay":
        cut = mode == "enforce" and ended  # by a verdict, before it broke off
        must(client.closed or cut, "what breaks off is broken off", client.raw)
        must(not ended or own or mode == "enforce", "what breaks off is not whole", client.raw)
    if truth.stand is Stand.WRONG or own or not got.has_head:
        return
    same("status", got.line[1], truth.line[1])
    if mode == "observe":
        exact = ending != "reset"
        must(truth.body.startswith(got.body), "a prefix of the body", got.body, truth.body)
        must(not exact or truth.body == got.body, "the body", got.body, truth.body)


def check(data: bytes) -> None:
    """Play it on the one listener of this process."""
    on = stage()
    on.run(played(on, data[0] if data else 0, data[1:]))


SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
TARGET = Target(
    check,
    [
        SSE,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + SHOWN,
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b'30\r\nid: 3\ndata: {"method":"note","params":{"n":3}}\n\n\r\n',
        b"0\r\n\r\n",
        b"5\r\nid: 1\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early\r\nLink: a\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
        b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
        b"Content-Length: 3\r\n",
        b"Content-Length: 99\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Content-Encoding: gzip\r\n",
        b"X: \x00\r\n",
        b"Connection: close\r\n",
        b"Connection: X-Y, Content-Length\r\n",
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
        b"id: 9\ndata: {}\n\n",
        b"\r\n",
        b"\n",
        b" x\r\n",
        b"HTTP/1.1 999 \r\n\r\n",
        b"HTTP/1.1 1 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 \xff\r\nContent-Length: 0\r\n\r\n",
        b"Mcp-Session-Id: s2\r\n",
        b"ETag: a\r\n",
        b"Trailer: a\r\n",
        b"0\r\na: b\r\n\r\n",
        b"-1\r\n",
        b"fffffffffffffffff\r\n",
        b"Access-Control-Allow-Origin: *\r\n",
    ],
    largest=2048,
)
