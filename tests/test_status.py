"""The status listener over real sockets: probes, the scrape, and what it refuses to say."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator

import aiohttp
import pytest

from proxy.endpoint import Endpoint
from proxy.metrics import Metrics
from proxy.side_listener import MAX_CONNECTIONS
from proxy.status import DRAINING, STARTING, Status

ANYWHERE = Endpoint("127.0.0.1", 0)


class Served:
    """A running status listener and a client for it."""

    def __init__(self, status: Status, metrics: Metrics, url: str, client: aiohttp.ClientSession) -> None:
        self.status = status
        self.metrics = metrics
        self.url = url
        self._client = client

    async def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
        """The status, content type and body of one answer."""
        async with self._client.request(method, self.url + path, headers=headers) as response:
            self.headers = response.headers.copy()
            return response.status, response.headers["Content-Type"], await response.read()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A listener on a free port."""
    metrics = Metrics([("tools", "observe")], version="1.2.3")
    status = Status(metrics, ANYWHERE)
    host, port = await status.start()
    async with aiohttp.ClientSession() as client:
        yield Served(status, metrics, f"http://{host}:{port}", client)
    await status.stop()


async def test_it_says_which_port_it_got(served: Served) -> None:
    """Port 0 picks a free one, and the caller learns which."""
    assert served.url.startswith("http://127.0.0.1:")
    assert not served.url.endswith(":0")


async def test_the_oldest_connection_gives_way(served: Served) -> None:
    """Whoever holds connections open does not keep probes out, and holds no more than the limit."""
    held = [
        await asyncio.open_connection(*served.url.removeprefix("http://").split(":"))
        for _ in range(MAX_CONNECTIONS + 3)
    ]
    async with asyncio.timeout(5):
        assert [await reader.read() for reader, _ in held[:3]] == [b"", b"", b""]
    assert (await served.ask("/livez"))[0] == 200
    assert not any(reader.at_eof() for reader, _ in held[4:])
    for _, writer in held:
        writer.close()


async def test_it_is_live_while_the_loop_turns(served: Served) -> None:
    """Liveness asks nothing else, also while not ready."""
    assert await served.ask("/livez") == (200, "application/json", b'{"live":true}\n')


async def test_readiness_follows_its_reasons(served: Served) -> None:
    """Not ready until told, ready without reasons, and every reason is named, oldest first."""
    ready = served.status.ready
    steps = []
    for change, reason in (
        (ready.set_reason, STARTING),
        (ready.clear, STARTING),
        (ready.set_reason, "state_store"),
        (ready.set_reason, DRAINING),
        (ready.set_reason, DRAINING),
        (ready.clear, "state_store"),
        (ready.clear, "never set"),
    ):
        change(reason)
        code, content_type, body = await served.ask("/readyz")
        assert content_type == "application/json"
        steps.append((code, json.loads(body)))
    assert steps == [
        (503, {"ready": False, "reasons": ["starting"]}),
        (200, {"ready": True, "reasons": []}),
        (503, {"ready": False, "reasons": ["state_store"]}),
        (503, {"ready": False, "reasons": ["state_store", "draining"]}),
        (503, {"ready": False, "reasons": ["state_store", "draining"]}),
        (503, {"ready": False, "reasons": ["draining"]}),
        (503, {"ready": False, "reasons": ["draining"]}),
    ]


async def test_the_gauges_follow_readiness(served: Served) -> None:
    """What a probe is told is what a scrape shows."""

    async def gauges() -> list[str]:
        _, _, body = await served.ask("/metrics?name[]=forkwatch_ready&name[]=forkwatch_draining")
        return sorted(line for line in body.decode().splitlines() if not line.startswith("#"))

    assert await gauges() == ["forkwatch_draining 0.0", "forkwatch_ready 0.0"]
    served.status.ready.clear(STARTING)
    assert await gauges() == ["forkwatch_draining 0.0", "forkwatch_ready 1.0"]
    served.status.ready.set_reason(DRAINING)
    assert await gauges() == ["forkwatch_draining 1.0", "forkwatch_ready 0.0"]


async def test_a_scrape_shows_what_was_counted(served: Served) -> None:
    """The text format by default, uncached, with the process beside the proxy's own."""
    served.metrics.upstream("tools").events_relayed_get += 5
    code, content_type, body = await served.ask("/metrics")
    assert (code, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert served.headers["Cache-Control"] == "no-store"
    assert b'\nforkwatch_events_relayed_total{attachment="get",upstream="tools"} 5.0\n' in body
    assert b"\nprocess_open_fds " in body


async def test_a_scrape_is_openmetrics_for_who_asks(served: Served) -> None:
    """By the Accept header."""
    code, content_type, body = await served.ask(
        "/metrics", Accept="application/openmetrics-text; version=1.0.0"
    )
    assert code == 200
    assert content_type.startswith("application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert body.endswith(b"# EOF\n")


async def test_the_loop_turns_while_a_scrape_renders(served: Served) -> None:
    """A probe is answered in the middle of a rendering, and a second scrape waits for the first."""
    probed = threading.Event()
    begun: list[int] = []
    waited: list[bool] = []

    def during_rendering() -> int:
        begun.append(threading.get_ident())
        waited.append(probed.wait(5))
        return len(waited)

    served.metrics.log_messages_dropped = during_rendering
    async with asyncio.TaskGroup() as group:
        scrapes = [
            group.create_task(served.ask("/metrics?name[]=forkwatch_log_messages_dropped")) for _ in range(3)
        ]
        codes = {(await served.ask("/livez"))[0] for _ in range(10)}
        at_once = len(begun)
        probed.set()
    assert codes == {200}
    assert at_once <= 1
    assert waited == [True] * 3
    assert {scrape.result()[2].splitlines()[-1] for scrape in scrapes} == {
        b"forkwatch_log_messages_dropped_total %d.0" % number for number in (1, 2, 3)
    }


@pytest.mark.parametrize("path", ["/", "/metrics/", "/livez/x", "/api/v1/sessions", "/..%2fmetrics"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_everything_else_is_not_found(served: Served, path: str, method: str) -> None:
    """A JSON answer that says what there is."""
    code, content_type, body = await served.ask(path, method)
    assert (code, content_type) == (404, "application/json")
    assert json.loads(body) == {"error": "not found", "paths": ["/livez", "/readyz", "/metrics"]}


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"])
async def test_it_is_read_only(served: Served, path: str, method: str) -> None:
    """Anything but GET and HEAD is refused, with what is allowed."""
    code, content_type, body = await served.ask(path, method)
    assert (code, content_type, served.headers["Allow"]) == (405, "application/json", "GET, HEAD")
    assert json.loads(body) == {"error": "method not allowed"}


@pytest.mark.parametrize(
    ("path", "code"), [("/livez", 200), ("/readyz", 503), ("/metrics", 200), ("/x", 404)]
)
async def test_head_is_get_without_a_body(served: Served, path: str, code: int) -> None:
    """Load balancers probe with HEAD."""
    answered, _, body = await served.ask(path, "HEAD")
    assert (answered, body) == (code, b"")


async def test_the_server_header_names_no_versions(served: Served) -> None:
    """Neither the language nor the libraries."""
    for path in ("/livez", "/metrics", "/nowhere"):
        await served.ask(path)
        assert served.headers["Server"] == "forkwatch"


async def test_a_port_in_use_is_an_oserror_and_leaves_nothing_behind(served: Served) -> None:
    """The caller maps it; stopping what never started is harmless."""
    second = Status(served.metrics, Endpoint("127.0.0.1", int(served.url.rsplit(":", 1)[1])))
    with pytest.raises(OSError, match="address already in use"):
        await second.start()
    await second.stop()


async def test_after_stop_nobody_is_answered(served: Served) -> None:
    """Also an idle kept-alive connection goes, and a second stop is harmless."""
    await served.ask("/livez")
    started = time.monotonic()
    await served.status.stop()
    assert time.monotonic() - started < 5
    with pytest.raises(aiohttp.ClientConnectionError):
        await served.ask("/livez")
    await served.status.stop()


async def test_the_lag_of_the_loop_is_measured() -> None:
    """A loop that was blocked shows it in the histogram and tells who asked to be told."""
    metrics = Metrics([("tools", "observe")], version="1")
    told: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def tell(lag: float) -> None:
        if not told.done():
            told.set_result(lag)

    status = Status(metrics, ANYWHERE, stalled=tell)
    await status.start()
    try:
        time.sleep(1.3)  # what this measures: code that blocks the loop
        lag = await asyncio.wait_for(told, 5)
    finally:
        await status.stop()
    assert lag >= 1.0
    assert metrics.event_loop_lag.sum >= lag
    assert sum(metrics.event_loop_lag.counts[-2:]) >= 1
