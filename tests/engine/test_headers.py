"""What a proxy may forward of a head, and what it says: a table each for requests and responses."""

from __future__ import annotations

import pytest

from proxy.engine.headers import Fields, Forwarding, RequestHead, request_head, response_fields

PLAIN = Forwarding(append=False)


def fields(*lines: str) -> Fields:
    """Fields written as `Name: value`."""
    return [(name.encode(), value.encode()) for name, _, value in (line.partition(": ") for line in lines)]


def head_of(raw: Fields, peer: bytes | None, forwarding: Forwarding) -> RequestHead:
    """What is made of these fields of a request."""
    return request_head(raw, [name.lower() for name, _ in raw], peer, forwarding)


def sent(*lines: str, forwarding: Forwarding = PLAIN, peer: bytes | None = b"192.0.2.7") -> list[str]:
    """The request fields as they go upstream."""
    head = head_of(fields(*lines), peer, forwarding)
    return [f"{name.decode()}: {value.decode()}" for name, value in head.fields]


REQUESTS: dict[str, tuple[list[str], list[str]]] = {
    "order, spelling and duplicates stay": (
        ["x-B: 1", "X-a: 2", "x-b: 3", "Cookie: a", "Cookie: b"],
        ["x-B: 1", "X-a: 2", "x-b: 3", "Cookie: a", "Cookie: b"],
    ),
    "hop-by-hop fields go": (
        [
            "Connection: keep-alive",
            "Keep-Alive: 5",
            "Proxy-Connection: x",
            "TE: trailers",
            "Trailer: a",
            "Upgrade: h2c",
            "A: 1",
        ],
        ["A: 1"],
    ),
    "so does what Connection names": (
        ["Connection: close, X-Hop ,x-other", "x-hop: 1", "X-Other: 2", "X-End: 3"],
        ["X-End: 3"],
    ),
    "but not the session, the cursor, the framing or the host": (
        [
            "Connection: mcp-session-id, Last-Event-ID, content-length, host",
            "Mcp-Session-Id: s",
            "Last-Event-ID: 1",
            "Content-Length: 0",
            "Host: h",
        ],
        ["Mcp-Session-Id: s", "Last-Event-ID: 1", "Content-Length: 0", "Host: h"],
    ),
    "a field as long as Connection is not it": (
        ["X-Relation: close", "Close: 1"],
        ["X-Relation: close", "Close: 1"],
    ),
    "chunked stays chunked": (["Transfer-Encoding: gzip, Chunked"], ["Transfer-Encoding: chunked"]),
    "another transfer coding goes": (["Transfer-Encoding: gzip"], []),
    "an event stream is asked for in no coding": (
        [
            "accept: application/json, Text/Event-Stream",
            "accept-encoding: gzip",
            "A: 1",
            "Accept-Encoding: br",
        ],
        ["accept: application/json, Text/Event-Stream", "accept-encoding: identity", "A: 1"],
    ),
    "also where none was named": (
        ["Accept: text/event-stream"],
        ["Accept: text/event-stream", "Accept-Encoding: identity"],
    ),
    "anything else may be coded": (
        ["Accept: text/html", "Accept-Encoding: gzip"],
        ["Accept: text/html", "Accept-Encoding: gzip"],
    ),
    "several Accept fields are one": (
        ["Accept: text/event-stream", "Accept: text/html"],
        ["Accept: text/event-stream", "Accept: text/html", "Accept-Encoding: identity"],
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_request_fields(name: str) -> None:
    """What goes upstream."""
    given, expected = REQUESTS[name]
    assert sent(*given) == expected


FORWARDED: dict[str, tuple[list[str], Forwarding, bytes | None, list[str]]] = {
    "set where absent": (
        ["Host: here"],
        Forwarding(),
        b"192.0.2.7",
        ["Host: here", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: http", "X-Forwarded-Host: here"],
    ),
    "appended to the last, the others kept": (
        [
            "X-Forwarded-For: a",
            "x-forwarded-for: b",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: there",
            "Host: h",
        ],
        Forwarding(scheme=b"https"),
        b"192.0.2.7",
        [
            "X-Forwarded-For: a",
            "x-forwarded-for: b, 192.0.2.7",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: there",
            "Host: h",
        ],
    ),
    "a peer without an address, a request without a host": (
        ["X-Forwarded-For: a"],
        Forwarding(scheme=b"https"),
        None,
        ["X-Forwarded-For: a", "X-Forwarded-Proto: https"],
    ),
    "host rewritten, the client's one told": (
        ["a: 1", "host: here", "b: 2"],
        Forwarding(host=b"upstream:9000"),
        None,
        ["a: 1", "host: upstream:9000", "b: 2", "X-Forwarded-Proto: http", "X-Forwarded-Host: here"],
    ),
    "host rewritten where there was none": ([], Forwarding(host=b"u", append=False), None, ["Host: u"]),
    "none": (["Host: here"], Forwarding(append=False), b"192.0.2.7", ["Host: here"]),
}


@pytest.mark.parametrize("name", FORWARDED)
def test_forwarded_fields(name: str) -> None:
    """Who asked, and what for, as far as the upstream wants to know."""
    given, forwarding, peer, expected = FORWARDED[name]
    assert sent(*given, forwarding=forwarding, peer=peer) == expected


SAID: dict[str, tuple[list[str], RequestHead]] = {
    "nothing": ([], RequestHead([])),
    "everything": (
        [
            "MCP-SESSION-ID: s",
            "last-event-id: 7",
            "Mcp-Protocol-Version: 2025-06-18",
            "Host: h",
            "Origin: https://o",
            "Accept: text/event-stream;q=1",
        ],
        RequestHead(
            [],
            session=b"s",
            cursor=b"7",
            protocol="2025-06-18",
            host=b"h",
            origin=b"https://o",
            accepts_stream=True,
        ),
    ),
    "two sessions are a third": (
        ["Mcp-Session-Id: a", "mcp-session-id: b"],
        RequestHead([], session=b"a, b"),
    ),
    "one of them empty, too": (
        ["Mcp-Session-Id: ", "mcp-session-id: b"],
        RequestHead([], session=b", b"),
    ),
    "what goes with Connection says nothing": (
        ["Connection: accept, Origin, close", "Accept: text/event-stream", "Origin: https://o"],
        RequestHead([]),
    ),
    "but its own framing does": (
        ["Connection: transfer-encoding", "Transfer-Encoding: chunked"],
        RequestHead([], chunked=True),
    ),
    "an empty session or cursor is none": (["Mcp-Session-Id: ", "Last-Event-ID: "], RequestHead([])),
    "chunked": (["Transfer-Encoding: chunked"], RequestHead([], chunked=True)),
}


@pytest.mark.parametrize("name", SAID)
def test_what_a_request_says(name: str) -> None:
    """What the engine needs of it."""
    given, expected = SAID[name]
    head = head_of(fields(*given), None, PLAIN)
    head.fields = []
    assert head == expected


def test_a_cursor_keeps_its_bytes() -> None:
    """It is opaque: nothing is decoded on the way."""
    head = head_of([(b"Last-Event-ID", b"\xff\xe6")], None, PLAIN)
    assert (head.cursor, head.fields) == (b"\xff\xe6", [(b"Last-Event-ID", b"\xff\xe6")])


RESPONSES: dict[str, tuple[list[str], list[str] | None, tuple[object, ...]]] = {
    # session, is_stream, is_json, encoded, replica
    "nothing": ([], [], (None, False, False, False, None)),
    "an event stream is not to be buffered": (
        ["Content-Type: Text/Event-Stream; charset=utf-8"],
        ["Content-Type: Text/Event-Stream; charset=utf-8", "X-Accel-Buffering: no"],
        (None, True, False, False, None),
    ),
    "unless it says so itself": (
        ["x-accel-buffering: yes", "content-type: text/event-stream"],
        None,
        (None, True, False, False, None),
    ),
    "json": (["Content-Type: application/json"], None, (None, False, True, False, None)),
    "another type": (["Content-Type: text/event-streams"], None, (None, False, False, False, None)),
    "a coding": (["Content-Encoding: gzip"], None, (None, False, False, True, None)),
    "no coding": (["Content-Encoding: Identity "], None, (None, False, False, False, None)),
    "an empty coding": (["Content-Encoding: "], None, (None, False, False, False, None)),
    "a session": (["mcp-SESSION-id: s"], None, (b"s", False, False, False, None)),
    "an empty session": (["Mcp-Session-Id: "], None, (None, False, False, False, None)),
    "a replica": (["X-Pod: " + "p" * 200], None, (None, False, False, False, "p" * 128)),
    "what each Connection field names": (
        ["Connection: keep-alive, x-a", "X-A: 1", "X-B: 2", "CONNECTION: x-b", "X-C: 3"],
        ["X-C: 3"],
        (None, False, False, False, None),
    ),
    "hop-by-hop": (
        ["Connection: x-a", "X-A: 1", "Transfer-Encoding: chunked", "Set-Cookie: a", "Set-Cookie: b"],
        ["Set-Cookie: a", "Set-Cookie: b"],
        (None, False, False, False, None),
    ),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_response_fields(name: str) -> None:
    """What goes to the client, and what it says; None for the fields as they came."""
    given, expected, said = RESPONSES[name]
    head = response_fields(fields(*given), b"x-pod")
    assert [f"{key.decode()}: {value.decode()}" for key, value in head.fields] == (
        given if expected is None else expected
    )
    assert (head.session, head.is_stream, head.is_json, head.encoded, head.replica) == said


def test_without_a_replica_header_nobody_is_named() -> None:
    """No field is it."""
    assert response_fields(fields("X-Pod: a"), None).replica is None
