"""The bytes of HTTP/1.1 as the upstream leg writes and reads them; no sockets and no clock.

A request is serialised exactly as it is given. A response is parsed by llhttp in its strict mode and handed
on as it was sent (RFC 9112): field order, duplicates, case and bytes >= 0x80 are kept, only the optional
whitespace around a value is not. What llhttp leaves to its user is decided here: transfer codings other than
`chunked`, interim responses, the answer to HEAD, and limits, so that no upstream can make a reader hold more
than `MAX_HEAD_BYTES` and one read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import httptools

from proxy.errors import UpstreamMalformed

MAX_HEAD_BYTES = 64 * 1024
"""The largest response head, and the most framing (chunk extensions, trailers) read without a body byte."""

MAX_INTERIM = 16
"""The most 1xx responses before the final one."""

LAST_CHUNK = b"0\r\n\r\n"

_BODILESS_STATUS = frozenset({204, 304})
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

Headers = list[tuple[bytes, bytes]]


@dataclass(slots=True)
class ResponseHead:
    """The head of one response, as sent.

    `headers` keeps order, duplicates and the case of names; values have no surrounding whitespace. `version`
    is "1.1" or "1.0". `content_length` and `chunked` are the framing the upstream declared; with neither the
    body ends when the connection does. `bodiless` says that no body follows whatever the fields promise: an
    answer to HEAD, 1xx, 204, 304.
    """

    status: int
    reason: bytes
    headers: Headers
    version: str
    content_length: int | None
    chunked: bool
    bodiless: bool


def is_chunked(headers: Headers) -> bool:
    """Whether a request with these fields sends its body in chunks."""
    return b"transfer-encoding" in [name.lower() for name, _ in headers if len(name) == 17]


def encode_head(method: bytes, target: bytes, headers: Headers) -> bytes:
    """A request head, fields as given and in their order.

    Raises ValueError if any part holds a CR or LF: it would end the line and smuggle another.
    """
    request_line = b"%b %b HTTP/1.1" % (method, target)
    head = b"\r\n".join([request_line, *map(b": ".join, headers), b"", b""])
    line_ends = len(headers) + 2
    if head.count(b"\n") != line_ends or head.count(b"\r") != line_ends:
        raise ValueError("a request line or header field holds a line break")
    return head


def encode_chunk(data: bytes) -> bytes:
    """`data`, which must not be empty, as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


class Phase(Enum):
    """How far the current response has come."""

    HEAD = "head"
    # the final head is not complete; interim heads may have passed
    BODY = "body"
    # the final head is known, the end of the message is not
    COMPLETE = "complete"
    # the message ended; anything more on this connection was not asked for


# On Python 3.11 an enum's member costs as much as a call each time it is looked up on its class.
HEAD, BODY, COMPLETE = Phase.HEAD, Phase.BODY, Phase.COMPLETE


class _Stop(Exception):
    """Leaves llhttp from inside a callback; `ResponseReader` already holds the reason."""


class ResponseReader:
    """Reads the responses of one connection, one after the other.

    `begin` before each, then `feed` every read. After a `feed`: `interim` holds the 1xx heads it completed,
    in order, and `head` the final head if it completed that one; the caller takes both out. `error` is None
    until the upstream breaks the protocol; nothing may be fed after that. What was decoded before the break
    is still returned.
    """

    __slots__ = (
        "_bodiless",
        "_framing_bytes",
        "_headers",
        "_interim_count",
        "_parser",
        "_pieces",
        "_read_bytes",
        "_reason",
        "error",
        "head",
        "interim",
        "on_body",
        "phase",
        "reusable",
        "until_eof",
    )

    def __init__(self) -> None:
        """Not ready before the first `begin`."""
        self.phase = COMPLETE
        self.head: ResponseHead | None = None
        self.interim: list[ResponseHead] = []
        self.error: UpstreamMalformed | None = None
        self.reusable = False
        """Whether another request may follow on this connection, once the phase is COMPLETE."""
        self.until_eof = False
        """Whether the end of the connection is the end of the body."""
        self._pieces: list[bytes] = []
        # llhttp calls the list itself, not a method of ours: one Python frame less for each piece of a body.
        self.on_body: Callable[[bytes], None] = self._pieces.append
        self._headers: Headers = []
        self._reason = b""
        self._bodiless = False
        self._framing_bytes = 0
        self._read_bytes = 0
        self._interim_count = 0
        self._parser = httptools.HttpResponseParser(self)

    def begin(self, *, bodiless: bool) -> None:
        """Expect a response. `bodiless`: it answers HEAD, so it ends with its head."""
        self.phase = HEAD
        self._bodiless = bodiless
        self._framing_bytes = self._interim_count = 0

    def feed(self, data: bytes) -> bytes:
        """Take one read; return the body bytes in it, decoded and joined, b"" if there are none."""
        self._read_bytes = len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._stopped(error)
        pieces = self._pieces
        if len(pieces) == 1:
            self._framing_bytes = 0
            return pieces.pop()
        if pieces:
            body = b"".join(pieces)
            pieces.clear()
            self._framing_bytes = 0
            return body
        if self.head is None and self.phase is not COMPLETE and self.error is None:
            self._count_framing()
        return b""

    def close(self) -> None:
        """Let go of the parser: it and this reader refer to each other."""
        del self._parser, self.on_body

    def on_message_begin(self) -> None:
        """llhttp: a status line starts."""
        if self.phase is not HEAD:
            raise _Stop
        self._headers = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        """llhttp: a part of the reason phrase."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp: a field of the head, or a trailer field, which is dropped: chunking is hop by hop."""
        if self.phase is HEAD:
            self._headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """llhttp: the empty line after a head."""
        head = self._checked_head()
        if head.status < 200:
            self._interim_count += 1
            if self._interim_count > MAX_INTERIM:
                self._refuse(f"more than {MAX_INTERIM} interim responses")
            if head.content_length or head.chunked:
                self._refuse("an interim response with a body")  # llhttp would read one, no client does
            self.interim.append(head)
            return
        self.head = head
        self.phase = BODY
        self._framing_bytes = 0
        self.until_eof = not (head.bodiless or head.chunked or head.content_length is not None)
        self.reusable = self._parser.should_keep_alive() and not (head.version == "1.0" and head.chunked)
        if self._bodiless:
            # llhttp does not know the request's method and would wait for a body. Stopping it costs the
            # connection, as it must: a body sent all the same would be taken for the next answer.
            self.phase = COMPLETE
            raise _Stop

    def on_message_complete(self) -> None:
        """llhttp: the end of a message, interim ones included."""
        if self.phase is BODY:
            self.phase = COMPLETE

    def _checked_head(self) -> ResponseHead:
        parser = self._parser
        headers, self._headers = self._headers, []  # a long stream need not keep its head
        status, version = parser.get_status_code(), parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse(f"HTTP/{version} is not spoken here")
        if status < 100 or status == 101:
            self._refuse(f"status {status} was not asked for")
        length: int | None = None
        codings: list[bytes] = []
        for name, value in headers:
            size = len(name)
            if size == 14 and name.lower() == b"content-length":
                length = int(value)  # llhttp admits digits only, and only once
            elif size == 17 and name.lower() == b"transfer-encoding":
                codings.append(value.lower())
        if (
            _CONTROL.search(self._reason) is not None
        ):  # llhttp lets it through, no client has to (RFC 9112, 4)
            self._refuse("a control character in its reason phrase")
        if self._framing_bytes + self._read_bytes > MAX_HEAD_BYTES:
            self._check_size(headers)
        if codings and codings != [b"chunked"]:
            # The leg sends no TE field, so another coding was not negotiated; undoing a part of it would lie.
            self._refuse("a transfer coding other than chunked")
        bodiless = self._bodiless or status < 200 or status in _BODILESS_STATUS
        return ResponseHead(status, self._reason, headers, version, length, bool(codings), bodiless)

    def _check_size(self, headers: Headers) -> None:
        """Refuse a head that is too large, not one that merely came in a large read with its body."""
        size = len("HTTP/1.1 200 \r\n\r\n") + len(self._reason)
        size += sum(len(name) + len(value) + len(": \r\n") for name, value in headers)
        if size > MAX_HEAD_BYTES:
            self._refuse(f"a response head larger than {MAX_HEAD_BYTES} bytes")

    def _refuse(self, what: str) -> None:
        self.error = UpstreamMalformed(f"the upstream sent {what}")
        raise _Stop

    def _stopped(self, error: httptools.HttpParserError) -> None:
        """Say what stopped llhttp. After a complete message that only costs the connection."""
        if self.phase is COMPLETE:
            self.reusable = False
        elif self.error is None:
            self.error = UpstreamMalformed(f"the upstream's response is not valid HTTP/1.1: {error}")
            self.error.__cause__ = error

    def _count_framing(self) -> None:
        self._framing_bytes += self._read_bytes
        if self._framing_bytes > MAX_HEAD_BYTES:
            self.error = UpstreamMalformed(f"the upstream sent more than {MAX_HEAD_BYTES} bytes of framing")
