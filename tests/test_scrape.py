"""What a scrape of a running process shows, and that the streams do not notice it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from proxy.metrics import HTTP_CHILDREN, OVERHEAD_EVERY
from tests.forkwatch_process import Counters, Forkwatch
from tests.scripted_upstream import Peer, Upstream
from tests.timed_stream import TimedStream, timed_stream
from tests.wire import Lab, entry, lab

UPSTREAMS = [f"upstream-{number}" for number in range(50)]
METHODS = ("GET", "POST", "DELETE", "OPTIONS", "HEAD", "PUT")
STALL_S = 0.05
"""A bound of the histogram of the loop's lag as well."""
PHASE_S = 4.0
PAUSE_S = 0.05
ATTEMPTS = 4
"""Of which one must do: another process may take the core, but does not do so whenever there is a scrape."""
EVERY_S = 0.01


async def test_one_read_in_sixteen_is_timed(tmp_path: Path) -> None:
    """Reads of the upstream are counted down over all exchanges; the time between them is not the proxy's."""
    async with lab(tmp_path) as here:
        before = await Counters.since_now(here.proxy)
        began = asyncio.get_running_loop().time()
        client, peer, _ = await here.opened("GET /mcp", "Accept: text/event-stream")
        for number in range(2 * OVERHEAD_EVERY - 2):
            peer.send(b"9\r\nid: %03d\n\n\r\n" % number)
            assert await client.chunk() == b"id: %03d\n\n" % number
        assert await before.grown("proxy_overhead_seconds_count") == 1
        _, response = await here.exchange("GET /mcp", answer=b"HTTP/1.1 204 No Content\r\n\r\n")
        assert response.status == 204
        assert await before.grown("proxy_overhead_seconds_count") == 2
        spent = await before.grown("proxy_overhead_seconds_sum")
        assert 0 < spent < (asyncio.get_running_loop().time() - began) / OVERHEAD_EVERY


@dataclass(frozen=True, slots=True)
class Seen:
    """One phase: how often the loop's own timer was late, and how late all but 2 % of the events were at most."""

    late_ticks: int
    event_s: float
    scrapes: int

    def undisturbed(self, quiet: Seen) -> bool:
        """Whether the loop stood still no more often than in the quiet phase, and the stream did not."""
        return self.late_ticks <= quiet.late_ticks and self.event_s < STALL_S


async def test_a_scrape_of_fifty_upstreams_delays_no_stream(tmp_path: Path) -> None:
    """While every series there can be is scraped again and again, the loop is late no more often than before."""
    async with lab(tmp_path, lambda upstream: [entry(name, upstream) for name in UPSTREAMS]) as here:
        await fill(here)
        series = re.findall(r'upstream="(upstream-\d+)"', (await here.proxy.fetch("/metrics"))[1])
        assert {name: series.count(name) > 240 for name in UPSTREAMS} == dict.fromkeys(UPSTREAMS, True)
        attempts: list[tuple[Seen, Seen]] = []
        async with timed_stream(here, f"/{UPSTREAMS[0]}", EVERY_S) as stream:
            while len(attempts) < ATTEMPTS and not any(
                scraped.undisturbed(quiet) for quiet, scraped in attempts
            ):
                quiet = await phase(here.proxy, stream, [])
                async with scraping(here.proxy) as sizes:
                    attempts.append((quiet, await phase(here.proxy, stream, sizes)))
        assert min(scraped.scrapes for _, scraped in attempts) >= 5
        assert any(scraped.undisturbed(quiet) for quiet, scraped in attempts), attempts


async def phase(proxy: Forkwatch, stream: TimedStream, sizes: list[int]) -> Seen:
    """What is late in the next seconds; `sizes` grows with each scrape."""
    await stream.delays()
    before = await late_ticks(proxy)
    await asyncio.sleep(PHASE_S)  # what is measured
    delays = sorted(await stream.delays())
    assert len(delays) > PHASE_S / EVERY_S / 2
    return Seen(await late_ticks(proxy) - before, delays[len(delays) * 98 // 100], len(sizes))


async def late_ticks(proxy: Forkwatch) -> int:
    """How often the process has found its loop late by more than `STALL_S`."""
    name = "forkwatch_event_loop_lag_seconds"
    _, text = await proxy.fetch(f"/metrics?name[]={name}")
    ticks = dict(re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\S+)$', text, re.M))
    return int(float(ticks["+Inf"]) - float(ticks[str(STALL_S)]))


@contextlib.asynccontextmanager
async def scraping(proxy: Forkwatch) -> AsyncIterator[list[int]]:
    """Scrapes without much of a pause, from a thread; the list grows with the size of each."""
    stop = threading.Event()
    sizes: list[int] = []

    def scrape() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.status_port, timeout=10)
        with contextlib.closing(connection):
            while not stop.wait(PAUSE_S):
                connection.request("GET", "/metrics")
                sizes.append(len(connection.getresponse().read()))

    task = asyncio.create_task(asyncio.to_thread(scrape))
    try:
        yield sizes
    finally:
        stop.set()
        await task


async def fill(here: Lab) -> None:
    """Each upstream answers with more statuses than are told apart, to every method."""
    serving = asyncio.create_task(serve(here.upstream))
    async with asyncio.TaskGroup() as group:
        for name in UPSTREAMS:
            group.create_task(ask(here, name))
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def ask(here: Lab, name: str) -> None:
    """The requests for one upstream, on one connection."""
    client = await here.client()
    asked = [("GET", 400 + number) for number in range(HTTP_CHILDREN)] + [(name, 500) for name in METHODS]
    for method, status in asked:
        client.request(f"{method} /{name}/{status}")
        assert (await client.response(of_head=method == "HEAD")).status == status


async def serve(upstream: Upstream) -> None:
    """Answer each request with the status that its target ends with, until cancelled."""

    async def answer(peer: Peer) -> None:
        target = (await peer.head()).split()[1]
        peer.send(b"HTTP/1.1 %b Because\r\nContent-Length: 0\r\n\r\n" % target[-3:])

    async with asyncio.TaskGroup() as group:
        while True:
            group.create_task(answer(await upstream.queue.get()))
