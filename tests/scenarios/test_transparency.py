"""What a proxy must not do: change a byte, soften an ending, ask twice."""

from __future__ import annotations

from tests.scenarios.exchange import one
from tests.scenarios.lab import Lab

TORTURE = (
    b"\xef",  # a BOM in two pieces
    b"\xbb\xbfid: 1\r",
    b"\ndata: \xe6\x97",  # a character in two pieces
    b"\xa5\r\n\r",
    b"\n",
    b"id:2\ndata:{}\n\n",
    b"id: 3\rdata: a\r\r",
    b": c\n\n",
    b"retry: 700\n\n",
    b"id: 4\n\n",
    b"id: x\0y\ndata: z\n\n",
    b"ID: 99\ndata: q\n\n",
    b"id: 5\ndata: " + b"a" * 2_200_000 + b"\n\n",
    'data: {"u":"\u2028"}\n\n'.encode(),
    b'id: 9\ndata: {"trunc',
)


async def test_every_byte_is_what_the_upstream_sent(lab: Lab) -> None:
    """Odd line ends, a BOM, split characters, NUL, a line of 2.2 MB, an abort inside a frame."""
    await lab.initialize()
    headers = [
        ("Accept", "text/event-stream"),
        ("Mcp-Session-Id", lab.session),
        ("X-Big", "b" * 12000),
        ("X-Dup", "one"),
        ("X-Dup", "two"),
    ]
    stream = await lab.request("GET", headers, target="/mcp%2Fa%3Ab?x=%2B")
    assert stream.upstream.request == "GET /mcp%2Fa%3Ab?x=%2B HTTP/1.1"
    arrived = stream.upstream.headers
    assert [value for name, value in arrived if name.lower() == "x-dup"] == ["one", "two"]
    assert one(arrived, "X-Big") == "b" * 12000
    assert one(arrived, "User-Agent") is None
    assert one(arrived, "Accept") == "text/event-stream"
    cookies = [("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("mcp-SESSION-id", lab.session)]
    await stream.stream(*TORTURE, extra=cookies)
    assert stream.body == stream.sent
    assert [value for name, value in stream.headers if name.lower() == "set-cookie"] == ["a=1", "b=2"]
    assert one(stream.headers, "Content-Length") is None
    await stream.abort()
    assert stream.ended == "abort"


async def test_a_request_that_the_upstream_drops_is_not_repeated(lab: Lab) -> None:
    """The upstream resets a GET before it answers: the client is told, and nobody asks again."""
    await lab.initialize()
    dropped = await lab.get("3")
    await dropped.abort()
    assert dropped.status in (502, None)
    # Another exchange in between gives a repeated request the time to arrive; the lab checks in the end.
    await (await lab.delete()).answer(200, [])


async def test_no_session_id_is_on_the_metrics_page(lab: Lab) -> None:
    """Ids are never labels, not even of a session that is open."""
    await lab.initialize()
    await (await lab.get()).stream(b"id: 1\ndata: x\n\n")
    assert lab.session not in (await lab.proxy.fetch("/metrics"))[1]
