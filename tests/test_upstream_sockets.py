"""Making a connection to an upstream: TCP, Unix sockets, TLS, and every way it fails."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.errors import ProxyError, UpstreamReset, UpstreamTimeout, UpstreamUnreachable
from proxy.upstream import Origin
from proxy.upstream.address import Address
from tests.scripted_upstream import (
    EMPTY,
    OK,
    Recorder,
    Upstream,
    disturb,
    exchange,
    get,
    listening,
    on_both_loops,
    origin,
    turns,
)


@on_both_loops
async def test_refused_connection() -> None:
    """Nobody listens: unreachable, and the message says where."""
    async with listening() as upstream:
        address = upstream.address
    async with origin(address) as to:
        await fails(to, UpstreamUnreachable, "connect", f"{address.port}.*refused")


async def test_unresolvable_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without an address is a matter of DNS."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)  # no test asks a name server
    async with origin(Address.parse("http://forkwatch.invalid:80")) as to:
        await fails(to, UpstreamUnreachable, "dns", "forkwatch.invalid cannot be resolved")


@contextlib.contextmanager
def deaf() -> Iterator[tuple[socket.socket, Address]]:
    """A listener whose queue is full: the kernel answers no further connection."""
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen(0)
    waiting = []
    for _ in range(4):
        waiting.append(socket.socket())
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(server.getsockname())
    try:
        yield server, Address("http", *server.getsockname())
    finally:
        for sock in (server, *waiting):
            sock.close()


@pytest.mark.parametrize(
    ("connect_s", "headers_s", "reason"),
    [(0.05, None, "connect_timeout"), (None, 0.05, "header_timeout"), (5.0, 0.05, "header_timeout")],
)
@on_both_loops
async def test_connect_timeout(connect_s: float | None, headers_s: float | None, reason: str) -> None:
    """A connection not made in time is a timeout; waiting for the head includes connecting."""
    with deaf() as (_, address):
        async with origin(address, connect_timeout_s=connect_s, headers_timeout_s=headers_s) as to:
            await fails(to, UpstreamTimeout, reason, "within 0.05 s")


@on_both_loops
async def test_cancelled_connect_sends_nothing() -> None:
    """A call cancelled while connecting leaves no connection behind that would carry its request later."""
    with deaf() as (_, address):
        async with origin(address) as to:
            sink = Recorder()
            call = get(to, sink)
            await turns(20)
            call.cancel()
            await turns(20)
            assert (sink.error, to.open_connections, call.peer) == (None, 0, None)
            assert not [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]


async def fails(to: Origin, error: type[ProxyError], reason: str, text: str) -> None:
    """A request fails with `error`, for `reason`, in words that match `text`."""
    sink = Recorder()
    get(to, sink)
    await sink.over()
    assert (type(sink.error), sink.error and sink.error.reason) == (error, reason)
    with pytest.raises(error, match=text):
        raise sink.error or AssertionError
    assert (to.open_connections, to.idle_connections) == (0, 0)


@on_both_loops
async def test_unix_socket(tmp_path: Path) -> None:
    """An upstream on a Unix socket is reached by its path and reused like any other."""
    async with listening(path=str(tmp_path / "s")) as upstream, origin(upstream.address) as to:
        peer = await exchange(upstream, to)
        sink = Recorder()
        call = get(to, sink)
        assert call.peer == f"unix:{tmp_path / 's'}"
        await peer.head()
        peer.end()
        await sink.over()
        assert isinstance(sink.error, UpstreamReset)


@on_both_loops
async def test_missing_unix_socket(tmp_path: Path) -> None:
    """No socket at the path: unreachable."""
    async with origin(Address.parse(f"unix:{tmp_path}/none")) as to:
        await fails(to, UpstreamUnreachable, "connect", "No such file")


@on_both_loops
async def test_ipv6() -> None:
    """An IPv6 upstream is reached, and named in brackets."""
    try:
        listener = listening("::1")
        upstream = await listener.__aenter__()
    except OSError:
        pytest.skip("no IPv6 here")
    async with origin(upstream.address) as to:
        sink = Recorder()
        call = get(to, sink)
        (await upstream.accepted()).send(EMPTY)
        await sink.over()
        assert call.peer == f"[::1]:{upstream.address.port}"
    await listener.__aexit__(None, None, None)


@pytest.mark.parametrize(("keepalive_s", "options"), [(60.0, (1, 60, 15, 4)), (None, (0, None, None, None))])
@on_both_loops
async def test_socket_options(keepalive_s: float | None, options: tuple[int, ...]) -> None:
    """Nagle is off; the kernel probes a silent upstream if asked to."""
    async with listening() as upstream, origin(upstream.address, tcp_keepalive_s=keepalive_s) as to:
        await exchange(upstream, to)
        [connection] = to._open  # the socket itself has no public name
        with socket.socket(fileno=connection.fd) as sock:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == options[0]
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            for name, value in zip(names, options[1:], strict=True):
                assert value in (None, sock.getsockopt(socket.IPPROTO_TCP, name))
            sock.detach()


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


def server_context(certificate: Path) -> ssl.SSLContext:
    """What the TLS upstream presents."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def secured(upstream: Upstream) -> Address:
    """Its address as https."""
    return Address("https", "127.0.0.1", upstream.address.port)


@on_both_loops
async def test_tls(certificate: Path) -> None:
    """An https upstream with a known authority works, is reused, and a clean and an unclean end differ."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with (
        listening(tls=server_context(certificate)) as upstream,
        origin(secured(upstream), ssl_context=trusting) as to,
    ):
        peer = await exchange(upstream, to, answer=OK + b"Content-Length: 300000\r\n\r\n" + bytes(300_000))
        sink = Recorder()
        get(to, sink)
        await peer.head()
        peer.send(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await sink.until(lambda: sink.body == b"hi")
        peer.writer.transport.abort()
        await sink.over()
        assert sink.error is not None
        assert sink.error.reason in ("truncated", "reset")
        sink = Recorder()
        call = get(to, sink)
        peer = await upstream.accepted()
        await peer.head()
        call.cancel()
        await peer.gone()
        assert to.open_connections == 0


@on_both_loops
async def test_tls_closed_right_after_the_handshake(certificate: Path) -> None:
    """A connection that ends before the request could be written fails the call, and does not lose it."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    context = server_context(certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # the server has the last word of the handshake
    arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(arrived, leaving, server_side=True)
    async with listening() as upstream, origin(secured(upstream), ssl_context=trusting) as to:
        sink = Recorder()
        get(to, sink)
        peer = await upstream.accepted()
        while not done(tls):
            peer.send(leaving.read())
            arrived.write(await peer.reader.read(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.unwrap()
        peer.send(leaving.read())  # the end of the handshake and the goodbye in one write
        await sink.over()
        assert (type(sink.error), sink.head) == (UpstreamReset, None)


def done(tls: ssl.SSLObject) -> bool:
    """Whether the handshake is complete after what has arrived."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


@on_both_loops
async def test_tls_with_an_unknown_authority(certificate: Path) -> None:
    """A certificate nobody vouches for is refused, and the reason is TLS."""
    async with listening(tls=server_context(certificate)) as upstream, origin(secured(upstream)) as to:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)  # the server's side of it
        await fails(to, UpstreamUnreachable, "tls", "TLS with https://127.0.0.1.*CERTIFICATE_VERIFY_FAILED")


@on_both_loops
async def test_tls_to_an_upstream_without() -> None:
    """An upstream that does not speak TLS fails the handshake, whatever it answers."""
    async with listening() as upstream, origin(secured(upstream)) as to:
        for how in ("bytes", "end"):
            sink = Recorder()
            get(to, sink)
            disturb(await upstream.accepted(), how)
            await sink.over()
            assert (type(sink.error), sink.error and sink.error.reason) == (UpstreamUnreachable, "tls")


@on_both_loops
async def test_cancel_in_a_tls_handshake() -> None:
    """A handshake the upstream never answers is given up at once."""
    async with listening() as upstream, origin(secured(upstream)) as to:
        sink = Recorder()
        call = get(to, sink)
        peer = await upstream.accepted()
        assert await peer.body(1) == b"\x16"
        call.cancel()
        await peer.gone()
        assert sink.error is None
