"""Requests with a framing, a head or a version of which two readers may think differently.

Where there are two values, the second is what goes upstream.
"""

from __future__ import annotations

HOST = b"Host: a\r\n"
GET = b"GET /mcp HTTP/1.1\r\n" + HOST
POST = b"POST /mcp HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
SECOND = b"GET /second HTTP/1.1\r\nHost: b\r\n\r\n"
EMPTY_CHUNKED = CHUNKED + b"0\r\n\r\n"

REFUSED = {
    # Two framings.
    "length, chunked": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "same length twice": POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 0\r\n\r\n",
    "list of one length": POST + b"Content-Length: 2, 2\r\n\r\nab",
    "list of lengths": POST + b"Content-Length: 2, 0\r\n\r\n",
    "length in a trailer": CHUNKED + b"0\r\nContent-Length: 9\r\n\r\n",
    # Codings that are not plain chunked.
    "chunked, identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "identity, chunked": POST + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "gzip, chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked, chunked": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunked in two lines": POST + b"Transfer-Encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n",
    "identity, then chunked": POST
    + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, then unknown": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunkedx": POST + b"Transfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n",
    "quoted": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "empty element": POST + b"Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n",
    "parameter": POST + b"Transfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n",
    "vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "trailing tab": POST + b"Transfer-Encoding: chunked\t\r\n\r\n0\r\n\r\n",
    "no coding": POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "chunked in 1.0": b"POST /mcp HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    # Lines and fields.
    "bare LF": b"POST /mcp HTTP/1.1\nHost: a\nContent-Length: 2\n\nab",
    "one bare LF": POST + b"X: a\nContent-Length: 2\r\n\r\nab",
    "bare LF at the end": POST + b"Content-Length: 0\r\n\n",
    "bare CR": POST + b"X: a\rContent-Length: 5\r\nContent-Length: 0\r\n\r\n",
    "two CR": POST + b"X: a\r\r\nContent-Length: 0\r\n\r\n",
    "folded": POST + b"X: a\r\n Content-Length: 9\r\nContent-Length: 2\r\n\r\nab",
    "folded by a tab": POST + b"X: a\r\n\tb\r\nContent-Length: 2\r\n\r\nab",
    "folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "folded first field": b"POST /mcp HTTP/1.1\r\n Host: a\r\nContent-Length: 0\r\n\r\n",
    "space before the colon": POST + b"Content-Length : 2\r\n\r\nab",
    "space before the coding's colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "tab before the colon": POST + b"Content-Length\t: 2\r\n\r\nab",
    "NUL in a value": POST + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "NUL in a name": POST + b"X\0: a\r\nContent-Length: 0\r\n\r\n",
    "NUL in the target": b"GET /mcp\0x HTTP/1.1\r\n" + HOST + b"\r\n",
    "control in a value": GET + b"X: a\x01b\r\n\r\n",
    "DEL in a value": GET + b"X: a\x7fb\r\n\r\n",
    "no name": POST + b": a\r\nContent-Length: 0\r\n\r\n",
    "no colon": POST + b"abc\r\nContent-Length: 0\r\n\r\n",
    "parenthesis in a name": GET + b"X(y): a\r\n\r\n",
    "high byte in a name": GET + b"X\xc3\xa9: a\r\n\r\n",
    "two hosts": GET + b"Host: b\r\n\r\n",
    "no host": b"GET /mcp HTTP/1.1\r\n\r\n",
    # Chunks.
    "control in an extension": CHUNKED + b"2;a=\x01b\r\nab\r\n0\r\n\r\n",
    "LF ends an extension": CHUNKED + b"2;a\nab\r\n0\r\n\r\n",
    "CRLF in a quoted extension": CHUNKED + b'2;a="\r\nab\r\n0\r\n\r\n',
    "space after the size": CHUNKED + b"2 \r\nab\r\n0\r\n\r\n",
    "space before the size": CHUNKED + b" 2\r\nab\r\n0\r\n\r\n",
    "0x": CHUNKED + b"0x2\r\nab\r\n0\r\n\r\n",
    "overflow": CHUNKED + b"10000000000000002\r\nab\r\n0\r\n\r\n",
    "negative size": CHUNKED + b"-1\r\nab\r\n0\r\n\r\n",
    "signed size": CHUNKED + b"+2\r\nab\r\n0\r\n\r\n",
    "LF after the size": CHUNKED + b"2\nab\n0\n\n",
    "no CRLF after the data": CHUNKED + b"2\r\nab0\r\n\r\n",
    "more data than the size": CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
    "no size": CHUNKED + b"\r\n0\r\n\r\n",
    "no trailer field": CHUNKED + b"0\r\nbad trailer\r\n\r\n",
    # Lengths.
    "signed length": POST + b"Content-Length: +2\r\n\r\nab",
    "negative length": POST + b"Content-Length: -2\r\n\r\nab",
    "length in hexadecimal": POST + b"Content-Length: 0x2\r\n\r\nab",
    "two numbers": POST + b"Content-Length: 1 2\r\n\r\nab",
    "length overflow": POST + b"Content-Length: 18446744073709551618\r\n\r\nab",
    "largest length": POST + b"Content-Length: 18446744073709551615\r\n\r\n",
    "empty length": POST + b"Content-Length: \r\n\r\n",
    # Request lines.
    "lower-case method": b"get /mcp HTTP/1.1\r\n" + HOST + b"\r\n",
    "no token": b"G{T /mcp HTTP/1.1\r\n" + HOST + b"\r\n",
    "unknown method": b"FROB /mcp HTTP/1.1\r\n" + HOST + b"\r\n",
    "method and more": b"GET~ /mcp HTTP/1.1\r\n" + HOST + b"\r\n",
    "space before the method": b" GET /mcp HTTP/1.1\r\n" + HOST + b"\r\n",
    "tabs": b"GET\t/mcp\tHTTP/1.1\r\n" + HOST + b"\r\n",
    "space in the target": b"GET /mcp x HTTP/1.1\r\n" + HOST + b"\r\n",
    "two versions": b"GET /mcp HTTP/1.1 HTTP/1.1\r\n" + HOST + b"\r\n",
    "high bytes in the target": b"GET /mcp/\xff\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n",
    "control in the target": b"GET /mcp/\x01 HTTP/1.1\r\n" + HOST + b"\r\n",
    "authority with GET": b"GET a:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT a:80 HTTP/1.1\r\n" + HOST + b"\r\n",
    # Versions.
    "0.9 without a version": b"GET /mcp\r\n\r\n",
    "0.9": b"GET /mcp HTTP/0.9\r\n" + HOST + b"\r\n",
    "1.2": b"GET /mcp HTTP/1.2\r\n" + HOST + b"\r\n",
    "2.0": b"GET /mcp HTTP/2.0\r\n" + HOST + b"\r\n",
    "2.0 with a body": b"POST /mcp HTTP/2.0\r\n" + HOST + b"Content-Length: 2\r\n\r\nab",
    "3.0": b"GET /mcp HTTP/3.0\r\n" + HOST + b"\r\n",
    "01.1": b"GET /mcp HTTP/01.1\r\n" + HOST + b"\r\n",
    "1": b"GET /mcp HTTP/1\r\n" + HOST + b"\r\n",
    "preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
}
"""What a 400 is the only answer to."""

PASSED = {
    "space before the coding": (POST + b"Transfer-Encoding:  chunked\r\n\r\n0\r\n\r\n", EMPTY_CHUNKED),
    "tab before the coding": (POST + b"Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n", EMPTY_CHUNKED),
    "case": (POST + b"tRANSFER-eNCODING: CHUNKED\r\n\r\n0\r\n\r\n", EMPTY_CHUNKED),
    "chunk extensions": (CHUNKED + b"2;a=b\r\nab\r\n0;x\r\n\r\n", CHUNKED + b"2\r\nab\r\n0\r\n\r\n"),
    "zeros before a size": (
        CHUNKED + b"0" * 40 + b"2\r\nab\r\n000\r\n\r\n",
        CHUNKED + b"2\r\nab\r\n0\r\n\r\n",
    ),
    "trailer": (CHUNKED + b"0\r\nMcp-Session-Id: z\r\n\r\n", EMPTY_CHUNKED),
    "chunked GET": (
        GET + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        GET + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
    ),
    "zeros before a length": (
        POST + b"Content-Length: 0002\r\n\r\nab",
        POST + b"Content-Length: 0002\r\n\r\nab",
    ),
    "a request as a body": (
        GET + b"Content-Length: %d\r\n\r\n" % len(SECOND) + SECOND,
        GET + b"Content-Length: %d\r\n\r\n" % len(SECOND) + SECOND,
    ),
    "coding with an underscore": (
        POST + b"Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        POST + b"Transfer_Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    ),
    "Connection names the length": (
        POST + b"Connection: content-length\r\nContent-Length: 2\r\n\r\nab",
        POST + b"Content-Length: 2\r\n\r\nab",
    ),
    "Connection names the coding": (
        POST + b"Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        CHUNKED + b"2\r\nab\r\n0\r\n\r\n",
    ),
    "Connection names the host": (GET + b"Connection: host\r\n\r\n", GET + b"\r\n"),
    "absolute target": (
        b"GET http://a/mcp HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET http://a/mcp HTTP/1.1\r\n" + HOST + b"\r\n",
    ),
    "asterisk": (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n"),
    "asterisk with GET": (b"GET * HTTP/1.1\r\n" + HOST + b"\r\n", b"GET * HTTP/1.1\r\n" + HOST + b"\r\n"),
    "dots": (
        b"GET /mcp/../x HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /mcp/../x HTTP/1.1\r\n" + HOST + b"\r\n",
    ),
    "lines before the request": (b"\r\n\r\n" + GET + b"\r\n", GET + b"\r\n"),
    "two spaces": (b"GET  /mcp  HTTP/1.1\r\n" + HOST + b"\r\n", GET + b"\r\n"),
    "high bytes in a value": (GET + b"X: \xff\x80\r\n\r\n", GET + b"X: \xff\x80\r\n\r\n"),
    "1.0 kept alive": (
        b"GET /mcp HTTP/1.0\r\n" + HOST + b"Connection: keep-alive\r\n\r\n",
        GET + b"\r\n",
    ),
    "an upgrade to websocket": (
        GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        GET + b"\r\n",
    ),
    "an upgrade to HTTP/2": (
        GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n",
        GET + b"\r\n",
    ),
    "an upgrade with a body": (
        POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab",
        POST + b"Content-Length: 2\r\n\r\nab",
    ),
    "an upgrade with chunks": (
        POST + b"Connection: Upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        CHUNKED + b"2\r\nab\r\n0\r\n\r\n",
    ),
    "two requests": (GET + b"\r\n", GET + b"\r\n"),
}
"""What is clear, or is made so."""

LAST_REQUESTS = {
    "Connection: close": (GET + b"Connection: close\r\n\r\n", GET + b"\r\n"),
    "a body and Connection: close": (
        POST + b"Connection: close\r\nContent-Length: 2\r\n\r\nab",
        POST + b"Content-Length: 2\r\n\r\nab",
    ),
    "1.0": (b"GET /mcp HTTP/1.0\r\n" + HOST + b"\r\n", GET + b"\r\n"),
}
"""What ends its connection, so that nothing may follow."""
