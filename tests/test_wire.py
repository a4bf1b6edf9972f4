"""What is read from and written to an upstream, byte by byte and without a socket."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from proxy.errors import UpstreamMalformed
from proxy.upstream.wire import (
    MAX_HEAD_BYTES,
    MAX_INTERIM,
    Phase,
    ResponseHead,
    ResponseReader,
    encode_chunk,
    encode_head,
)

OK = b"HTTP/1.1 200 OK\r\n"


@dataclass(slots=True)
class Heard:
    """All that came out of one response."""

    interim: list[ResponseHead] = field(default_factory=list)
    heads: list[ResponseHead] = field(default_factory=list)
    body: bytes = b""


def read(reads: list[bytes], *, bodiless: bool = False) -> tuple[Heard, ResponseReader]:
    """Feed `reads` to a new reader until it is done."""
    reader, heard = ResponseReader(), Heard()
    reader.begin(bodiless=bodiless)
    for data in reads:
        heard.body += reader.feed(data)
        heard.interim += reader.interim
        reader.interim.clear()
        if reader.head is not None:
            heard.heads.append(reader.head)
            reader.head = None
        if reader.error is not None or reader.phase is Phase.COMPLETE:
            break
    return heard, reader


def cuts(data: bytes) -> list[list[bytes]]:
    """`data` whole, in every two parts, and byte by byte."""
    pairs = [[data[:i], data[i:]] for i in range(1, len(data))]
    return [[data], *pairs, [data[i : i + 1] for i in range(len(data))]]


def head(
    status: int = 200,
    reason: bytes = b"OK",
    headers: list[tuple[bytes, bytes]] | None = None,
    *,
    version: str = "1.1",
    length: int | None = None,
    chunked: bool = False,
    bodiless: bool = False,
) -> ResponseHead:
    """A head as expected."""
    return ResponseHead(status, reason, headers or [], version, length, chunked, bodiless)


LENGTH_2 = [(b"Content-Length", b"2")]
CHUNKED = [(b"Transfer-Encoding", b"chunked")]

COMPLETE = [
    pytest.param(
        OK + b"Content-Length: 2\r\n\r\nhi", [], head(headers=LENGTH_2, length=2), b"hi", True, id="length"
    ),
    pytest.param(
        OK + b"Transfer-Encoding: chunked\r\n\r\n2;a=b\r\nhi\r\n1\r\n!\r\n0\r\nX-Trailer: 1\r\n\r\n",
        [],
        head(headers=CHUNKED, chunked=True),
        b"hi!",
        True,
        id="chunked-with-extension-and-trailer",
    ),
    pytest.param(
        b"HTTP/1.1 204 No Content\r\n\r\n", [], head(204, b"No Content", bodiless=True), b"", True, id="204"
    ),
    pytest.param(
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
        [],
        head(304, b"Not Modified", LENGTH_2, length=2, bodiless=True),
        b"",
        True,
        id="304-with-a-length",
    ),
    pytest.param(
        b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n",
        [],
        head(reason=b"", headers=[(b"Content-Length", b"0")], length=0),
        b"",
        True,
        id="no-reason",
    ),
    pytest.param(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        + OK
        + b"Content-Length: 2\r\n\r\nhi",
        [
            head(100, b"Continue", bodiless=True),
            head(103, b"Early Hints", [(b"Link", b"</a>")], bodiless=True),
        ],
        head(headers=LENGTH_2, length=2),
        b"hi",
        True,
        id="interim",
    ),
    pytest.param(
        OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi",
        [],
        head(headers=[(b"Connection", b"close"), *LENGTH_2], length=2),
        b"hi",
        False,
        id="connection-close",
    ),
    pytest.param(
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        [],
        head(headers=LENGTH_2, version="1.0", length=2),
        b"hi",
        False,
        id="http-1.0",
    ),
    pytest.param(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi",
        [],
        head(headers=[(b"Connection", b"keep-alive"), *LENGTH_2], version="1.0", length=2),
        b"hi",
        True,
        id="http-1.0-keep-alive",
    ),
    pytest.param(
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        [],
        head(headers=[(b"Connection", b"keep-alive"), *CHUNKED], version="1.0", chunked=True),
        b"",
        False,
        id="http-1.0-chunked-is-never-reused",
    ),
    pytest.param(
        OK + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi",
        [],
        head(headers=[(b"Connection", b"Upgrade"), (b"Upgrade", b"h2c"), *LENGTH_2], length=2),
        b"hi",
        True,
        id="an-upgrade-merely-offered",
    ),
    pytest.param(
        OK
        + b"SET-cookie:a\r\nx-a:  \xe6\x97 \xff\t \r\nset-Cookie: b\r\nEmpty:\r\nContent-Length: 2\r\n\r\nhi",
        [],
        head(
            headers=[
                (b"SET-cookie", b"a"),
                (b"x-a", b"\xe6\x97 \xff"),
                (b"set-Cookie", b"b"),
                (b"Empty", b""),
                *LENGTH_2,
            ],
            length=2,
        ),
        b"hi",
        True,
        id="fields-keep-order-case-duplicates-and-high-bytes",
    ),
]


@pytest.mark.parametrize(("data", "interim", "expected", "body", "reusable"), COMPLETE)
def test_complete_response(
    data: bytes, interim: list[ResponseHead], expected: ResponseHead, body: bytes, reusable: bool
) -> None:
    """A response reads the same however it is cut, ends where framed, and says if more may follow."""
    for reads in cuts(data):
        heard, reader = read(reads)
        assert (interim, [expected], body) == (heard.interim, heard.heads, heard.body), reads
        assert (reader.phase, reader.error, reader.reusable) == (Phase.COMPLETE, None, reusable), reads


@pytest.mark.parametrize(("data", "interim", "expected", "body", "reusable"), COMPLETE)
def test_surplus_costs_the_connection(
    data: bytes, interim: list[ResponseHead], expected: ResponseHead, body: bytes, reusable: bool
) -> None:
    """Bytes after a complete response are not taken for anything, and forbid another request."""
    for surplus in (OK + b"Content-Length: 5\r\n\r\nhello", b"garbage"):
        heard, reader = read([data + surplus])
        assert (interim, [expected], body) == (heard.interim, heard.heads, heard.body)
        assert (reader.phase, reader.error, reader.reusable) == (Phase.COMPLETE, None, False)


@pytest.mark.parametrize(
    "rest",
    [b"Content-Length: 5\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n", b"\r\n"],
    ids=["length", "chunked", "none"],
)
def test_answer_to_head_ends_with_its_head(rest: bytes) -> None:
    """An answer to HEAD has no body whatever its framing says, and its connection is not used again."""
    for reads in cuts(OK + rest):
        heard, reader = read(reads, bodiless=True)
        assert (len(heard.heads), heard.body, heard.heads[0].bodiless) == (1, b"", True)
        assert (reader.phase, reader.error, reader.reusable) == (Phase.COMPLETE, None, False)


def test_a_body_without_framing_lasts_until_eof() -> None:
    """With neither a length nor chunks the body is open-ended, and the reader says so."""
    heard, reader = read([OK + b"\r\nabc", b"def"])
    assert (heard.body, reader.phase, reader.until_eof) == (b"abcdef", Phase.BODY, True)


def test_reader_takes_one_response_after_another() -> None:
    """A kept-alive connection's second response starts afresh."""
    reader = ResponseReader()
    for text in (b"hi", b"hello"):
        reader.begin(bodiless=False)
        assert text == reader.feed(OK + b"Content-Length: %d\r\n\r\n" % len(text) + text)
        assert reader.head == head(headers=[(b"Content-Length", b"%d" % len(text))], length=len(text))
        assert (reader.phase, reader.reusable) == (Phase.COMPLETE, True)


MALFORMED = [
    pytest.param(OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", id="length-and-chunked"),
    pytest.param(OK + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n", id="chunked-and-length"),
    pytest.param(OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi", id="two-lengths"),
    pytest.param(b"HTTP/1.1 200 O\0K\r\nContent-Length: 2\r\n\r\nhi", id="control-in-reason"),
    pytest.param(OK + b"Content-Length: 2, 2\r\n\r\nhi", id="length-list"),
    pytest.param(OK + b"Content-Length: +2\r\n\r\nhi", id="length-with-sign"),
    pytest.param(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="other-coding-first"),
    pytest.param(OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", id="chunked-not-last"),
    pytest.param(OK + b"Transfer-Encoding: identity\r\n\r\n", id="identity"),
    pytest.param(
        OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", id="chunked-twice"
    ),
    pytest.param(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="101"),
    pytest.param(b"HTTP/1.1 020 x\r\n\r\n", id="status-below-100"),
    pytest.param(b"HTTP/2.0 200 OK\r\n\r\n", id="http-2"),
    pytest.param(b"HTTP/0.9 200 OK\r\n\r\n", id="http-0.9"),
    pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", id="bare-lf"),
    pytest.param(OK + b"A: b\r\n c\r\n\r\n", id="folded-field"),
    pytest.param(OK + b"A : b\r\n\r\n", id="space-before-colon"),
    pytest.param(OK + b"A: b\0c\r\n\r\n", id="nul"),
    pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="another-protocol"),
    pytest.param(b"HTTP/1.1 103 E\r\n\r\n" * (MAX_INTERIM + 1), id="too-many-interim"),
    pytest.param(b"HTTP/1.1 103 E\r\nContent-Length: 3\r\n\r\nabc" + OK, id="interim-with-a-body"),
    pytest.param(b"HTTP/1.1 121 E\r\nTransfer-Encoding: chunked\r\n\r\n", id="interim-in-chunks"),
    pytest.param(OK + b"A: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", id="head-too-large"),
    pytest.param(OK + b"A: " + b"x" * MAX_HEAD_BYTES, id="head-too-large-and-unfinished"),
]


@pytest.mark.parametrize("data", MALFORMED)
def test_malformed_head(data: bytes) -> None:
    """What no two readers would agree on is an error, whole or in small reads, and no head comes of it."""
    for size in (len(data), 7):
        heard, reader = read([data[i : i + size] for i in range(0, len(data), size)])
        assert isinstance(reader.error, UpstreamMalformed)
        assert (heard.heads, heard.body) == ([], b"")
        assert reader.phase is Phase.HEAD


def test_largest_head_passes() -> None:
    """A head of exactly the limit is accepted, whole and in parts."""
    start, end = OK + b"Content-Length: 2\r\nA: ", b"\r\n\r\n"
    data = start + b"x" * (MAX_HEAD_BYTES - len(start) - len(end)) + end + b"hi"
    for reads in ([data], [data[:-10], data[-10:]], [data[:60000], data[60000:-2], data[-2:]]):
        heard, reader = read(reads)
        assert (len(heard.heads), heard.body, reader.error) == (1, b"hi", None)


def test_what_came_before_a_break_is_kept() -> None:
    """Body bytes in front of broken chunk framing are returned together with the error."""
    heard, reader = read([OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nzz\r\n"])
    assert (len(heard.heads), heard.body) == (1, b"hi")
    assert isinstance(reader.error, UpstreamMalformed)


@pytest.mark.parametrize(
    ("start", "more"), [(b"2;a=", b"b"), (b"0\r\nA: ", b"b")], ids=["chunk-extension", "trailer"]
)
def test_endless_framing_is_refused(start: bytes, more: bytes) -> None:
    """Framing that never becomes body is read to the limit and no further."""
    reads = [OK + b"Transfer-Encoding: chunked\r\n\r\n" + start, *[more * 1024] * 100]
    _, reader = read(reads)
    assert isinstance(reader.error, UpstreamMalformed)


def test_request_head_is_written_as_given() -> None:
    """Fields keep order, case, duplicates and high bytes, and nothing is added."""
    fields = [(b"hOST", b"x"), (b"A", b"1"), (b"a", b"\xe6\xff"), (b"A", b"")]
    expected = b"POST /a%2Fb/../c?d=%41 HTTP/1.1\r\nhOST: x\r\nA: 1\r\na: \xe6\xff\r\nA: \r\n\r\n"
    assert expected == encode_head(b"POST", b"/a%2Fb/../c?d=%41", fields)


@pytest.mark.parametrize("value", [b"a\r\nEvil: 1", b"a\nEvil: 1", b"a\rb"])
def test_request_head_refuses_line_breaks(value: bytes) -> None:
    """No field can smuggle another one."""
    with pytest.raises(ValueError, match="line break"):
        encode_head(b"GET", b"/", [(b"A", value)])


def test_chunk() -> None:
    """A chunk has its size in hexadecimal."""
    assert encode_chunk(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
