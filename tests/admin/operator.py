"""An operator at the admin interface of a running proxy, and a desk: a proxy, its upstream, and the operator.

Requests are written as they are on the wire, so that a test says exactly which headers go and which do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.forkwatch_process import POLL_S, Counters, Forkwatch
from tests.scenarios.exchange import ScriptedUpstream
from tests.scenarios.lab import Lab
from tests.scripted_upstream import PATIENCE_S
from tests.wire import Client, End, Head

MUTATION = "X-Forkwatch-Admin: 1"
Fields = tuple[str, ...]
Entries = Callable[[int], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of the admin interface."""

    status: int
    head: Head
    body: bytes

    @property
    def value(self) -> Any:
        """Its JSON."""
        return json.loads(self.body)


@dataclass(slots=True)
class Operator:
    """Asks the interface at `place` (`unix:PATH` or `HOST:PORT`), each time on a connection of its own."""

    place: str
    fields: Fields = ()
    """Sent with every request."""
    tails: list[Client] = field(default_factory=list)
    logged: int = 0
    """How many of its requests the proxy logs: orders, and what was refused."""

    async def connect(self) -> Client:
        """A connection."""
        if self.place.startswith("unix:"):
            return Client(*await asyncio.open_unix_connection(self.place.removeprefix("unix:")))
        host, _, port = self.place.rpartition(":")
        return Client(*await asyncio.open_connection(host, int(port)))

    async def ask(
        self, line: str, *fields: str, body: bytes | None = None, host: str = "localhost"
    ) -> Answer:
        """`METHOD TARGET` with exactly these fields, and the whole answer."""
        client = await self.connect()
        size = () if body is None else (f"Content-Length: {len(body)}",)
        client.request(line, *self.fields, *fields, *size, "Connection: close", body=body or b"", host=host)
        try:
            answer = await client.response(of_head=line.startswith("HEAD "))
        finally:
            client.leave()
            await client.writer.wait_closed()
        assert answer.end is End.CLEAN
        self.logged += not line.startswith(("GET ", "HEAD ")) and answer.status < 400
        return Answer(answer.status, answer.head, answer.body)

    async def get(self, path: str) -> Any:
        """What a 200 to GET says."""
        answer = await self.ask(f"GET /api/v1/{path}")
        assert answer.status == 200, answer.body
        return answer.value

    async def tell(self, line: str, value: object = None) -> Answer:
        """An order: `METHOD PATH` below /api/v1/ with the header that orders need."""
        method, path = line.split(" ")
        body = None if value is None else json.dumps(value).encode()
        return await self.ask(f"{method} /api/v1/{path}", MUTATION, body=body)

    async def order(self, line: str, value: object = None) -> Any:
        """What a 2xx to an order says."""
        answer = await self.tell(line, value)
        assert answer.status in (200, 202), answer.body
        return answer.value

    async def tail(self, query: str = "", *fields: str) -> Tail:
        """The live tail, once it has begun."""
        client = await self.connect()
        self.tails.append(client)
        client.request(f"GET /api/v1/events{query}", *self.fields, *fields, host="localhost")
        head = await client.head()
        assert (head.status, head.one(b"Content-Type")) == (200, b"text/event-stream")
        return Tail(client)

    def leave(self) -> None:
        """End every live tail."""
        for client in self.tails:
            client.writer.transport.abort()
        self.tails.clear()


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the live tail."""

    id: str
    event: str
    data: dict[str, Any]


@dataclass(slots=True)
class Tail:
    """A reader of the live tail."""

    client: Client
    _rest: bytes = b""

    async def block(self) -> bytes:
        """The next lines up to a blank one: an event, or a comment."""
        while b"\n\n" not in self._rest:
            self._rest += await self.client.chunk()
        found, _, self._rest = self._rest.partition(b"\n\n")
        return found

    async def event(self) -> Event:
        """The next event; comments before it are skipped."""
        while True:
            lines = (await self.block()).decode().split("\n")
            told = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
            if told:
                return Event(told["id"], told["event"], json.loads(told["data"]))

    async def until(self, holds: Callable[[Event], bool]) -> list[Event]:
        """The events up to the first for which this holds."""
        found = [await self.event()]
        while not holds(found[-1]):
            found.append(await self.event())
        return found


@dataclass(slots=True)
class Desk:
    """A proxy with an admin socket in its directory, the scripted upstream behind it, and its operator."""

    proxy: Forkwatch
    upstream: ScriptedUpstream
    port: int
    """The upstream's."""
    admin: Operator

    @contextlib.asynccontextmanager
    async def lab(self, path: str = "/mcp") -> AsyncIterator[Lab]:
        """A laboratory on one of the proxy's entries; what it opened is cut in the end."""
        made = Lab(self.proxy, self.upstream, await Counters.since_now(self.proxy))
        made.path = path
        try:
            yield made
        finally:
            await made.close()
            self.admin.leave()
        if self.proxy.process.poll() is None:
            assert await made.counters.grown("fail_open_total") == 0

    async def status(self, upstream: str = "mcp") -> Any:
        """One upstream's part of the status."""
        [found] = [u for u in (await self.admin.get("status"))["upstreams"] if u["upstream"] == upstream]
        return found

    async def gauge(self, metric: str, /, **labels: str) -> float:
        """`forkwatch_METRIC` as it is now, summed over the labels that are not given."""
        samples = (await self.proxy.metrics()).items()
        return sum(
            value
            for (sample, found), value in samples
            if sample == f"forkwatch_{metric}" and labels.items() <= dict(found).items()
        )

    async def settled(self) -> None:
        """Wait for the lines of what the operator has ordered: the log lags behind."""
        await until(lambda: len(self.orders()) >= self.admin.logged, "lines of all orders")

    def orders(self) -> list[dict[str, Any]]:
        """The lines of what was carried out; those of what was refused are thinned."""
        return [line for line in self.lines("admin.request") if line["status"] < 400]

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of this event so far."""
        return [line for line in self.proxy.log() if line["event"] == event]

    async def logged(self, event: str, count: int) -> list[dict[str, Any]]:
        """The log lines of this event, which are so many once those of all orders have come."""
        await self.settled()
        await until(lambda: len(self.lines(event)) >= count, f"{count} lines of {event}")
        found = self.lines(event)
        assert len(found) == count
        return found

    async def hang_up(self, number: int = signal.SIGHUP) -> dict[str, Any]:
        """Send the signal to reload; returns the line that says how that went."""
        names = ("config.reloaded", "config.rejected")
        await self.settled()
        before = sum(len(self.lines(name)) for name in names)
        self.proxy.process.send_signal(number)
        await until(lambda: sum(len(self.lines(name)) for name in names) > before, "a line of the reload")
        return [line for line in self.proxy.log() if line["event"] in names][-1]


async def until(holds: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Return once this holds; AssertionError that says what never came."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, f"never came: {what}"
        await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def desk(directory: Path, entries: Entries, **top: Any) -> AsyncIterator[Desk]:
    """A proxy with these upstreams, given the scripted one's port; it has logged no traceback in the end."""
    upstream = ScriptedUpstream()
    port = await upstream.start()
    place = f"unix:{directory}/admin.sock"
    proxy = Forkwatch(entries(port), directory, **{"admin": place, **top}).start()
    try:
        yield Desk(proxy, upstream, port, Operator(place))
    finally:
        await asyncio.to_thread(proxy.stop)
        upstream.server.close()
        await until(lambda: not _serving(), "the upstream's connections end")
    said = proxy.errors.read_text() + proxy.log_file.read_text()
    assert "Traceback" not in said, said[-2000:]


def _serving() -> list[asyncio.Task[Any]]:
    """The connections of scripted upstreams."""
    return [t for t in asyncio.all_tasks() if "ScriptedUpstream._serve" in repr(t.get_coro())]


def entry(name: str, port: int, **settings: Any) -> dict[str, Any]:
    """The configuration of one way to the scripted upstream: what is below /NAME."""
    url = f"http://127.0.0.1:{port}"
    return {"name": name, "url": url, "match": {"path": f"/{name}"}, "replay_deadline": "300ms", **settings}
