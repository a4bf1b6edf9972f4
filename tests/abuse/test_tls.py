"""TLS that does not come about, on either side: a 502 that says so and no more, and nobody else is concerned."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.abuse.authority import EXPIRED, Authority, Pair
from tests.abuse.process import abused, logged
from tests.abuse.witness import Witness
from tests.forkwatch_process import Counters
from tests.scripted_upstream import OK, PATIENCE_S, Upstream, listening
from tests.wire import End, Lab, entry, lab

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER = OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok"


@dataclass(slots=True)
class Site:
    """An upstream with a certificate, and how the proxy is told to reach it."""

    port: int
    tls: dict[str, Any]
    upstream: Upstream | None = None


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that the proxy is told to trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that nobody trusts."""
    return Authority(tmp_path_factory.mktemp("stranger"))


def wanting(pair: Pair, authority: Authority) -> ssl.SSLContext:
    """A server that wants a certificate of its client."""
    context = pair.serving()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.file)
    return context


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sites(authority: Authority, stranger: Authority) -> AsyncIterator[dict[str, Site]]:
    """Upstreams by the name of what is the matter with them."""
    here, trusted = "IP:127.0.0.1", {"ca": str(authority.file)}
    good, client = authority.sign("good", here), authority.sign("client", "DNS:client.test")
    alien = stranger.sign("alien", "DNS:client.test")
    old = good.serving()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old_wanting = wanting(good, authority)
    old_wanting.maximum_version = ssl.TLSVersion.TLSv1_2

    def shows(pair: Pair) -> dict[str, Any]:
        return {**trusted, "cert": str(pair.certificate), "key": str(pair.key)}

    async with contextlib.AsyncExitStack() as stack:

        async def site(context: ssl.SSLContext, tls: dict[str, Any]) -> Site:
            upstream = await stack.enter_async_context(listening(tls=context))
            return Site(upstream.address.port, tls, upstream)

        demanding = stack.enter_context(authority.demanding(good))
        yield {
            "good": await site(good.serving(), trusted),
            "tls-1-2": await site(old, trusted),
            "client-given": await site(wanting(good, authority), shows(client)),
            "unverified": await site(stranger.sign("unverified", here).serving(), {"verify": False}),
            "wrong-authority": await site(stranger.sign("wrong", here).serving(), trusted),
            "expired": await site(authority.sign("expired", here, EXPIRED).serving(), trusted),
            "other-host": await site(authority.sign("other", "DNS:other.test").serving(), trusted),
            "other-address": await site(authority.sign("address", "IP:127.0.0.2").serving(), trusted),
            "client-wanted": Site(demanding, trusted),
            "client-wanted-1-2": await site(old_wanting, trusted),
            "client-unknown": Site(demanding, shows(alien)),
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(
    tmp_path_factory: pytest.TempPathFactory, sites: dict[str, Site]
) -> AsyncIterator[tuple[Lab, Witness]]:
    """The proxy in front of all of them."""

    def entries(_: Upstream) -> list[dict[str, Any]]:
        return [entry(name, f"https://127.0.0.1:{site.port}", tls=site.tls) for name, site in sites.items()]

    async with abused(tmp_path_factory.mktemp("tls"), entries) as made:
        yield made


@pytest.mark.parametrize("name", ["good", "tls-1-2", "client-given", "unverified"])
async def test_tls_that_comes_about(here: Lab, sites: dict[str, Site], name: str) -> None:
    """Requests and answers pass."""
    upstream = sites[name].upstream
    assert upstream is not None
    async with Lab(here.proxy, upstream).for_one_test() as found:
        client = await found.client()
        client.request(f"POST /{name}", "Content-Length: 2", body=b"{}")
        peer = await found.upstream.accepted()
        await peer.head()
        assert await peer.body(2) == b"{}"
        peer.send(ANSWER)
        assert (await client.response()).body == b"ok"
        await peer.gone(PATIENCE_S)


NO_TLS = {
    "wrong-authority": "failed: CERTIFICATE_VERIFY_FAILED",
    "expired": "failed: CERTIFICATE_VERIFY_FAILED",
    "other-host": "failed: CERTIFICATE_VERIFY_FAILED",
    "other-address": "failed: CERTIFICATE_VERIFY_FAILED",
    "client-wanted": "failed: TLSV13_ALERT_CERTIFICATE_REQUIRED",
    "client-wanted-1-2": "hung up while connecting",
    "client-unknown": "failed: TLSV1_ALERT_UNKNOWN_CA",
}


@pytest.mark.parametrize(("name", "why"), NO_TLS.items(), ids=NO_TLS)
async def test_tls_that_does_not(here: Lab, authority: Authority, name: str, why: str) -> None:
    """The client gets a 502 whose detail names the upstream and the reason; no file, no name of a certificate."""
    counters = await Counters.since_now(here.proxy)
    client = await here.client()
    fields = ("Authorization: Bearer secret", "Content-Length: 6")
    client.request(f"POST /{name}?token=secret", *fields, body=b"secret")
    response = await client.response()
    assert (response.status, response.end) == (502, End.CLEAN)
    assert b'"forkwatch:upstream-unreachable"' in response.body
    assert why.encode() in response.body
    assert await client.closed() == b""
    await counters.reached("upstream_errors_total", upstream=name, reason="tls")
    [line] = await logged(here.proxy, "upstream.error", name)
    assert (line["reason"], line["status"]) == ("tls", 502)
    said = response.body + str(line).encode()
    for secret in (b"secret", b"PRIVATE", b"/CN=", bytes(authority.file.parent), b".pem", b".key"):
        assert secret not in said


# The listener's side.


async def test_clients_that_do_not_speak_tls(tmp_path: Path, authority: Authority) -> None:
    """Plain requests, nonsense and silence get no answer; a client that speaks TLS is served meanwhile."""
    pair = authority.sign("listener", "IP:127.0.0.1")
    keys = {"cert": str(pair.certificate), "key": str(pair.key)}
    async with lab(tmp_path, listener_tls=keys) as here:
        for _ in range(20):
            await here.client()  # silent
        for nonsense in (b"GET /mcp HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(100)):
            client = await here.client()
            client.send(nonsense)
            assert b"HTTP/" not in await client.closed()
        client = await here.client(tls=ssl.create_default_context(cafile=str(authority.file)))
        client.request("GET /mcp")
        peer = await here.upstream.accepted()
        await peer.head()
        peer.send(ANSWER)
        assert (await client.response()).body == b"ok"
        assert len(here.upstream.peers) == 1
