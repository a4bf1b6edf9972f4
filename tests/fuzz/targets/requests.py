"""The request path: any bytes to a real listener. What a strict reader takes for one request is one to the upstream.

An input is what a client sends, cut at places that follow from it. The upstream answers every request with its
number, so an answer that goes to the wrong request shows.
"""

from __future__ import annotations

from tests.fuzz.http1 import Message, Stand, request, requests, response
from tests.fuzz.listener import Party, Stage, stage
from tests.fuzz.target import Target, chance, must, pieces, same

PROBLEM = b"application/problem+json"


class Counting:
    """An upstream that reads strictly, and answers each whole request with its number."""

    def __init__(self) -> None:
        self.seen: list[Message] = []
        self.wrong: list[str] = []

    def __call__(self, party: Party) -> None:
        """Answer what is whole."""
        while party.raw:
            found = request(party.raw)
            if found.stand is Stand.WRONG:
                self.wrong.append(f"{found.why} in {party.raw[:400]!r}")
                party.hang_up()
                return
            if found.stand is Stand.PART:
                return
            party.raw = party.raw[found.size :]
            head = b"HTTP/1.1 200 OK\r\nX-Nth: %d\r\nContent-Length: 3\r\n\r\n" % len(self.seen)
            party.send(head + (b"" if found.line[0] == b"HEAD" else b"abc"))
            self.seen.append(found)


def answers(raw: bytes, methods: list[bytes]) -> tuple[list[Message], bytes]:
    """The responses a client has, each to its request's method, and the bytes after the last whole one."""
    found: list[Message] = []
    while raw:
        method = methods[len(found)] if len(found) < len(methods) else b"GET"
        one = response(raw, to_head=method == b"HEAD")
        if (b"Connection", b"close") in one.fields and one.all(b"content-type") == [PROBLEM]:
            one = response(raw, to_head=method == b"HEAD" and one.size == len(raw))  # of what is no request
        must(one.stand is not Stand.WRONG, "a well-formed answer", one.why, raw[:600])
        if one.stand is Stand.PART and one.all(b"content-type") == [PROBLEM] and raw.endswith(b"\r\n\r\n"):
            one.stand, one.size = Stand.WHOLE, len(raw)  # to HEAD, in a request that is none
        if one.stand is Stand.PART:
            break
        raw = raw[one.size :]
        if one.line[1] != b"100":
            found.append(one)
    return found, raw


async def played(on: Stage, data: bytes) -> None:
    """One client's connection."""
    upstream = Counting()
    on.forget(upstream)
    draw = chance(data)
    wanted = requests(data)
    whole = [one for one in wanted if one.stand is Stand.WHOLE]
    methods = [one.line[0] for one in wanted]
    client = await on.client()
    for piece in pieces(data, sorted(draw.randint(0, len(data)) for _ in range(draw.choice((0, 0, 1, 4))))):
        client.send(piece)
        await on.settle()
    await on.until(
        lambda: client.closed or len(answers(client.raw, methods)[0]) >= len(whole),
        lambda: ("no answer", data, client.raw),
    )
    await on.settle()
    must(not upstream.wrong, "what goes upstream is strict HTTP", upstream.wrong, data)
    got, rest = answers(client.raw, methods)
    must(not rest, "whole answers only", rest, client.raw)
    real = [one for one in got if one.all(b"x-nth")]
    same("answers in order", [one.all(b"x-nth") for one in real], [[b"%d" % n] for n in range(len(real))])
    must(len(got) - len(real) <= 1, "one refusal at most, the last", [one.line for one in got])
    client.hang_up()
    await on.settle()
    compared(data, wanted, upstream.seen)
    await on.sound()


def compared(data: bytes, wanted: list[Message], seen: list[Message]) -> None:
    """The upstream's requests are the first of the client's, each with its body."""
    whole = [one for one in wanted if one.stand is Stand.WHOLE]
    must(
        len(seen) <= len(whole),
        "no request that a strict reader does not see",
        data,
        [one.line for one in seen],
    )
    for found, sent in zip(seen, whole, strict=False):
        same("method and target", found.line[:2], sent.line[:2])
        same("body", found.body, sent.body)


def check(data: bytes) -> None:
    """Play it on the one listener of this process."""
    on = stage()
    on.run(played(on, data))


GET = b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n"
TARGET = Target(
    check,
    [
        GET,
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        b"GET /a HTTP/1.0\r\n\r\n",
        b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"Content-Length: 0\r\n",
        b"Content-Length: 30\r\n",
        b"Content-Length: +3\r\n",
        b"Content-Length: 3, 3\r\n",
        b"Content-Length : 3\r\n",
        b"\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding:\tchunked\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"transfer_encoding: chunked\r\n",
        b"\r\n ",
        b"\n",
        b"\r",
        b"Connection: close\r\n",
        b"Connection: Content-Length\r\n",
        b"Connection: transfer-encoding\r\n",
        b"Connection: Host\r\n",
        b"Expect: 100-continue\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
        b"Upgrade: h2c\r\n",
        b"0\r\n\r\n",
        b"0\n\n",
        b"0;a=b\r\n\r\n",
        b"3;ext\r\nabc\r\n",
        b"00000003\r\nabc\r\n",
        b"ffffffffffffffff\r\n",
        b"-1\r\n",
        b"0x3\r\nabc\r\n",
        b"3 \r\nabc\r\n",
        b"Host: b\r\n",
        b"Host: a b\r\n",
        b"X: \x00\r\n",
        b"X: \xff\r\n",
        b": x\r\n",
        b"X\r\n",
        b"GET http://b/x HTTP/1.1\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n",
        b"OPTIONS * HTTP/1.1\r\n",
        b"DELETE /mcp HTTP/1.1\r\n",
        b" HTTP/1.1\r\n",
        b"HTTP/1.2",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"Mcp-Session-Id: s\r\n",
        b"Last-Event-ID: 3\r\n",
        b"Accept: text/event-stream\r\n",
        b"Trailer: X\r\n",
        b"0\r\nContent-Length: 9\r\n\r\n",
    ],
    largest=2048,
)
