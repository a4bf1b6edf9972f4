"""The clients' side of a real proxy process: what is accepted, what is refused, and what stays open."""

from __future__ import annotations

import asyncio
import resource
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.scripted_upstream import EMPTY, OK, PATIENCE_S, Upstream, listening
from tests.wire import LAST, SSE, Client, End, Head, Lab, entry, hang_up, lab, rss_bytes

pytestmark = pytest.mark.asyncio(loop_scope="module")

IDLE_STREAMS = 1000
IDLE_STREAM_BYTES = 48 * 1024
"""More than an idle stream takes by far; the bench measures how much it is."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """The proxy of all these tests."""
    async with lab(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def here(process: Lab) -> AsyncIterator[Lab]:
    """It, for one test."""
    async with process.for_one_test() as found:
        yield found


async def refused(here: Lab, raw: bytes, status: int, kind: str) -> None:
    """`raw` gets one problem as its answer and the end of the connection; nothing goes upstream."""
    client = await here.client()
    client.send(raw)
    response = await client.response()
    assert (response.status, response.end) == (status, End.CLEAN)
    assert response.head.one(b"Content-Type") == b"application/problem+json"
    assert f'"forkwatch:{kind}"'.encode() in response.body
    assert await client.closed() == b""
    assert here.upstream.peers == []


@pytest.mark.parametrize(
    "raw",
    [
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /mcp HTTP/9.9\r\nHost: a\r\n\r\n",
        b"GET /mcp SMTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40) + b"\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost a\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nHost: a\r\nX: a\x0bb\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n",
        b"CONNECT other.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n",
    ],
)
async def test_bad_requests(here: Lab, raw: bytes) -> None:
    """What is no request, or could be read in two ways, is a 400 problem and does not go upstream."""
    await refused(here, raw, 400, "bad-request")


@pytest.mark.parametrize(
    "fields",
    [
        b"X: " + b"x" * 70_000 + b"\r\n",
        b"X" * 70_000 + b": x\r\n",
        b"".join(b"X-%d: %b\r\n" % (i, b"x" * 8000) for i in range(20)),
        b"".join(b"X-%d: x\r\n" % i for i in range(10_000)),
        b"".join(b"X-%d: %b\r\n" % (i, b"x" * 60_000) for i in range(50)),
    ],
    ids=["value", "name", "sum", "count", "3 MB"],
)
async def test_too_large_a_head(here: Lab, fields: bytes) -> None:
    """A head of more than 64 KiB is a 431 problem, however it comes about."""
    await refused(here, b"GET /mcp HTTP/1.1\r\nHost: a\r\n" + fields + b"\r\n", 431, "header-too-large")


async def test_too_large_a_head_that_began_behind_another_request(here: Lab) -> None:
    """What came of it together with the request before it counts as well."""
    client = await here.client()
    head = (
        b"GET /mcp HTTP/1.1\r\nHost: a\r\n"
        + b"".join(b"X-%d: %b\r\n" % (n, b"y" * 1000) for n in range(100))
        + b"\r\n"
    )
    half = len(head) // 2  # less than the limit, however it is cut into reads
    client.send(b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n" + head[:half])
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(EMPTY)
    assert (await client.response()).status == 200
    client.send(head[half:])
    response = await client.response()
    assert (response.status, b'"forkwatch:header-too-large"' in response.body) == (431, True)
    assert await client.closed() == b""
    assert len(here.upstream.peers) == 1


async def test_too_long_a_target(here: Lab) -> None:
    """So is one whose target alone is as large."""
    raw = b"GET /mcp?" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    await refused(here, raw, 431, "header-too-large")


async def test_a_bad_request_after_a_good_one(here: Lab) -> None:
    """Garbage on a connection that served a request is refused like any other."""
    client = await here.client()
    client.request("GET /mcp")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(EMPTY)
    await client.response()
    client.send(b"nonsense\r\n\r\n")
    assert (await client.response()).status == 400
    assert await client.closed() == b""


async def test_garbage_in_a_chunked_upload(here: Lab) -> None:
    """An upload that breaks its framing is never completed upstream; the client's connection ends."""
    client = await here.client()
    client.request("POST /mcp", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n")
    peer = await here.upstream.accepted()
    await peer.head()
    assert await peer.body(8) == b"3\r\nabc\r\n"
    client.send(b"zz\r\n")
    assert LAST not in await peer.gone(PATIENCE_S)
    assert b" 200 " not in await client.closed()


async def test_an_endless_head(here: Lab) -> None:
    """A head that never ends is refused as soon as it is too large, and not kept."""
    client = await here.client()
    client.send(b"GET /mcp HTTP/1.1\r\nHost: a\r\n")
    for i in range(100):
        client.send(b"X-%d: %b\r\n" % (i, b"x" * 4000))
    response = await client.response()
    assert (response.status, response.end) == (431, End.CLEAN)
    assert await client.closed() == b""


@pytest.mark.parametrize("protocol", ["h2c", "websocket", "TLS/1.0"])
async def test_an_upgrade_is_not_offered_on(here: Lab, protocol: str) -> None:
    """A request that offers an upgrade is served without, its body as well, and so is the next one."""
    client = await here.client()
    for _ in range(2):
        client.request(
            "POST /mcp", f"Upgrade: {protocol}", "Connection: Upgrade", "Content-Length: 2", body=b"{}"
        )
        peer = await here.upstream.accepted()
        assert b"pgrade" not in await peer.head()
        assert await peer.body(2) == b"{}"
        peer.send(EMPTY)
        assert (await client.response()).status == 200
        await hang_up(peer)


@pytest.mark.parametrize("target", ["http://other.test/mcp?x=1", "/mcp?x=1"])
async def test_forms_of_a_target(here: Lab, target: str) -> None:
    """An absolute target is matched by its path and forwarded as it is."""
    head, _ = await here.exchange(f"GET {target}", answer=EMPTY)
    assert head.line == f"GET {target} HTTP/1.1".encode()


async def test_http_1_0_stream(here: Lab) -> None:
    """A client of HTTP/1.0 gets a stream without chunks that ends with its connection."""
    client = await here.client()
    client.send(b"GET /mcp HTTP/1.0\r\nHost: a\r\n\r\n")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(SSE)
    head = await client.head()
    assert head.line == b"HTTP/1.0 200 OK"
    assert head.one(b"Transfer-Encoding") is None
    peer.send(b"9\r\ndata: a\n\n\r\n")
    assert await client.exactly(9) == b"data: a\n\n"
    peer.send(LAST)
    assert await client.closed() == b""


async def test_http_1_0_stream_that_breaks(here: Lab) -> None:
    """Where EOF is the end, only a reset tells a client of HTTP/1.0 that it was none."""
    client = await here.client()
    client.send(b"GET /mcp HTTP/1.0\r\nHost: a\r\n\r\n")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(SSE)
    head = await client.head()
    peer.end()
    assert await client.body(head) == (b"", End.RESET)


@pytest.mark.parametrize("keep", [True, False])
async def test_http_1_0_keep_alive(here: Lab, keep: bool) -> None:
    """A connection of HTTP/1.0 is kept if the client asks for it, and else closed."""
    client = await here.client()
    asks = b"Connection: keep-alive\r\n" if keep else b""
    for _ in range(1 + keep):
        client.send(b"GET /mcp HTTP/1.0\r\nHost: a\r\n" + asks + b"\r\n")
        peer = await here.upstream.accepted()
        await peer.head()
        peer.send(OK + b"Content-Length: 2\r\n\r\nhi")
        response = await client.response()
        assert (response.body, response.end) == (b"hi", End.CLEAN)
        assert response.head.one(b"Connection") == (b"keep-alive" if keep else b"close")
        await hang_up(peer)
    if not keep:
        assert await client.closed() == b""


async def test_pipelined_requests(here: Lab) -> None:
    """Requests sent at once are answered in their order, each by what the upstream said to it."""
    client = await here.client()
    for i in range(3):
        client.request(f"POST /mcp/{i}", "Content-Length: 2", body=b"{}")
    for i in range(3):
        peer = await here.upstream.accepted()
        assert (await peer.head()).startswith(b"POST /mcp/%d " % i)
        assert here.upstream.queue.empty()
        peer.send(OK + b"Connection: close\r\nContent-Length: 1\r\n\r\n%d" % i)
    for i in range(3):
        assert (await client.response()).body == b"%d" % i


async def test_connection_close(here: Lab) -> None:
    """A client that asks for the end of the connection gets it, after the whole answer."""
    _, response = await here.exchange(
        "GET /mcp", "Connection: close", answer=OK + b"Content-Length: 2\r\n\r\nhi"
    )
    assert (response.head.one(b"Connection"), response.body) == (b"close", b"hi")
    assert await here.clients[-1].closed() == b""


async def test_a_thousand_idle_streams(here: Lab, record_property: Callable[[str, object], None]) -> None:
    """A thousand streams are open at once; each has had its head, and little memory is spent on it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4 * IDLE_STREAMS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * IDLE_STREAMS, hard), hard))
    pid = here.proxy.process.pid
    await asyncio.gather(*(here.opened("GET /mcp") for _ in range(20)))
    before = rss_bytes(pid)
    for _ in range(IDLE_STREAMS // 50):
        opened = await asyncio.gather(*(here.opened("GET /mcp", "Mcp-Session-Id: s-idle") for _ in range(50)))
        assert {head.status for _, _, head in opened} == {200}
    each = (rss_bytes(pid) - before) / IDLE_STREAMS
    record_property("rss_bytes_per_idle_stream", round(each))
    print(f"RSS per idle stream: {each / 1024:.1f} KiB")
    assert each < IDLE_STREAM_BYTES
    here.upstream.peers[-1].send(b"9\r\ndata: a\n\n\r\n")
    assert await here.clients[-1].chunk() == b"data: a\n\n"


# Other listeners and other upstreams.


async def serves(here: Lab, **options: Any) -> Head:
    """One request with a body and one stream work; returns the head of the first as the upstream got it."""
    client = await here.client(**options)
    client.request("POST /mcp", "Content-Length: 2", body=b"{}")
    peer = await here.upstream.accepted()
    head = Head.parse(await peer.head())
    assert await peer.body(2) == b"{}"
    peer.send(EMPTY)
    assert (await client.response()).status == 200
    await hang_up(peer)
    client.request("GET /mcp")
    peer = await here.upstream.accepted()
    await peer.head()
    peer.send(SSE + b"9\r\ndata: a\n\n\r\n")
    assert (await client.head()).status == 200
    assert await client.chunk() == b"data: a\n\n"
    client.writer.transport.abort()
    await peer.gone(PATIENCE_S)
    return head


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 that is its own authority, with its key, in one file."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("openssl makes the certificate")
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=forkwatch test", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(file), "-out", str(file.with_suffix(".crt"))]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    file.write_text(file.read_text() + file.with_suffix(".crt").read_text())
    return file


async def test_tls_on_both_sides(certificate: Path, tmp_path: Path) -> None:
    """With TLS to the clients and to the upstream, requests, streams and leaving work as without."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)

    def entries(upstream: Upstream) -> list[dict[str, Any]]:
        url = f"https://127.0.0.1:{upstream.address.port}"
        return [entry("mcp", url, tls={"ca": str(certificate)}), entry("unknown", url)]

    tls = {"cert": str(certificate), "key": str(certificate)}
    async with lab(tmp_path, entries, tls=serving, listener_tls=tls) as here:
        trusting = ssl.create_default_context(cafile=str(certificate))
        head = await serves(here, tls=trusting)
        assert head.one(b"X-Forwarded-Proto") == b"https"
        client = await here.client(tls=trusting)
        client.request("GET /unknown")
        response = await client.response()
        assert (response.status, b"upstream-unreachable" in response.body) == (502, True)
        plain = await here.client()
        plain.send(b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"200" not in await plain.closed()


async def test_unix_socket_upstream(tmp_path: Path) -> None:
    """An upstream behind a Unix socket."""
    async with (
        listening(path=str(tmp_path / "s")) as upstream,
        lab(tmp_path, lambda _: [entry("mcp", upstream)]) as here,
    ):
        here.upstream = upstream
        await serves(here)


async def test_ipv6(tmp_path: Path) -> None:
    """A listener and an upstream on IPv6; the client's address is forwarded."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            port: int = probe.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no ::1")
    async with listening("::1") as upstream:
        url = f"http://[::1]:{upstream.address.port}"
        async with lab(tmp_path, lambda _: [entry("mcp", url)], listen=f"[::1]:{port}") as here:
            here.upstream, here.proxy.port = upstream, port
            assert (await serves(here, host="::1")).one(b"X-Forwarded-For") == b"::1"


async def test_max_connections(tmp_path: Path) -> None:
    """One connection over the limit is told 503 and closed; the next fits once another has left."""
    async with lab(tmp_path, limits={"max_connections": 2}) as here:
        first, _, _ = await here.opened("GET /mcp")
        await here.opened("GET /mcp")
        third = await here.client()
        response = await third.response()
        assert (response.status, b'"forkwatch:over-limit"' in response.body) == (503, True)
        assert await third.closed() == b""
        first.leave()
        await first.writer.wait_closed()
        async with asyncio.timeout(PATIENCE_S):
            while not await answered(here):
                pass


async def answered(here: Lab) -> bool:
    """Whether a new connection is served: the proxy may see the other's end a little later."""
    client: Client = await here.client()
    client.request("GET /nowhere")
    return (await client.response()).status == 404


async def test_client_keepalive(tmp_path: Path) -> None:
    """An idle client connection is closed after `client_keepalive`, a busy one is not."""

    def entries(upstream: Upstream) -> list[dict[str, Any]]:
        return [entry("mcp", upstream, timeouts={"client_keepalive": "200ms"})]

    async with lab(tmp_path, entries) as here:
        streaming, peer, _ = await here.opened("GET /mcp")
        idle = await here.client()
        idle.request("GET /nowhere")
        await idle.response()
        assert await idle.closed() == b""
        peer.send(b"9\r\ndata: a\n\n\r\n")
        assert await streaming.chunk() == b"data: a\n\n"


async def test_how_many_requests_may_wait(here: Lab) -> None:
    """Requests sent before the first is answered are served in their order; beyond 64 of them nothing is read."""
    client = await here.client()
    client.send(b"".join(b"GET /mcp?n=%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(100)))
    for n in range(65):
        peer = await here.upstream.accepted()
        assert (await peer.head()).startswith(b"GET /mcp?n=%d HTTP/1.1\r\n" % n)
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        assert (await client.response()).status == 200
    assert await client.closed() == b""
