"""One way through forkwatch and a middlebox, scripted at both ends.

Built on the laboratory of the scenarios. Here the client enters at any port, the server answers HTTP/1.0 as it
must (a middlebox may speak it), and a step does not wait for bytes that a middlebox may hold.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tests.forkwatch_process import Counters, Forkwatch
from tests.scenarios.exchange import MAX_LINE, Exchange, Headers, ScriptedUpstream
from tests.scenarios.lab import Lab

CLIENT, PROXY = "127.0.0.2", "127.0.0.1"
"""The client's own address, and that of the two proxies."""
HOST = "mcp.test"
ARRIVAL_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Servers:
    """What stands at the far end: one server, or two replicas, whose requests come in one queue."""

    waiting: ScriptedUpstream
    ports: tuple[int, ...]

    @classmethod
    async def listening(cls, count: int) -> tuple[Servers, list[ScriptedUpstream]]:
        """So many, on free ports."""
        servers = [ScriptedUpstream() for _ in range(count)]
        for server in servers:
            server.waiting = servers[0].waiting
        ports = [await server.start() for server in servers]
        return cls(servers[0], tuple(ports)), servers


class Crossing(Exchange):
    """One request through both proxies and, once it arrived, the server's side of it."""

    @property
    def served_by(self) -> int:
        """The port of the server that got it."""
        port: int = self.upstream.writer.get_extra_info("sockname")[1]
        return port

    _chunked = False

    async def open(self, *extra: tuple[str, str], chunked: bool = True) -> Crossing:
        """The server's head of an event stream, chunked where it may be; it may be held on its way."""
        self._chunked = chunked and not self.upstream.request.endswith("HTTP/1.0")
        framing = ("Transfer-Encoding", "chunked") if self._chunked else ("Connection", "close")
        await self.respond(200, [("Content-Type", "text/event-stream"), framing, *extra])
        return self

    async def offer(self, *frames: bytes) -> None:
        """The server sends frames; they may be held on their way."""
        for frame in frames:
            self.upstream.writer.write(b"%x\r\n%b\r\n" % (len(frame), frame) if self._chunked else frame)
            self.sent += frame

    async def end(self) -> None:
        """The server ends the stream as it must, and the client has seen an end."""
        if self._chunked:
            self.upstream.writer.write(b"0\r\n\r\n")
        else:
            self.upstream.writer.close()
        await self.over()

    async def die(self, *, reset: bool = False) -> None:
        """The server's process ends in mid-stream, or its machine resets; the client has seen an end."""
        if reset:
            await self.abort()
        else:
            self.upstream.writer.close()
            await self.over()

    async def over(self) -> None:
        """Wait for the end at the client, whichever it is."""
        await self.until(lambda: self.ended is not None, "an end")

    async def has(self, size: int, within_s: float) -> bool:
        """Whether the client has so many bytes of the body in time."""

        async def wait() -> None:
            while len(self.body) < size:
                self.changed.clear()
                await self.changed.wait()

        try:
            await asyncio.wait_for(wait(), within_s)
        except TimeoutError:
            return False
        return True


class Route(Lab):
    """A laboratory whose client enters at `port` and speaks to the entry `name` of forkwatch.

    `names` is how a middlebox names the servers, by their ports.
    """

    def __init__(self, proxy: Forkwatch, servers: Servers, counters: Counters, port: int, name: str) -> None:
        super().__init__(proxy, servers.waiting, counters)
        self.servers, self.port, self.name, self.path = servers, port, name, f"/{name}"
        self.names: dict[int, str] = {}

    async def request(
        self,
        method: str,
        headers: Headers,
        body: bytes = b"",
        *,
        target: str | None = None,
        reaches: bool = True,
    ) -> Crossing:
        """Send a request; with `reaches`, return once a server holds its side of it."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=MAX_LINE, local_addr=(CLIENT, 0)
        )
        lines = [f"{method} {target or self.path} HTTP/1.1", f"Host: {HOST}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        writer.write("".join(line + "\r\n" for line in [*lines, ""]).encode() + body)
        crossing = Crossing(self.path, reader, writer)
        self.exchanges.append(crossing)
        if reaches:
            crossing.arrived = await asyncio.wait_for(self.upstream.waiting.get(), ARRIVAL_TIMEOUT_S)
        return crossing

    async def listen(self, cursor: str | None = None) -> Crossing:
        """Open the standalone stream, or resume a stream after a cursor."""
        found = await self.get(cursor)
        assert isinstance(found, Crossing)
        return found

    async def ask(self, request: object, *, reaches: bool = True) -> Crossing:
        """Call a tool under a JSON-RPC id."""
        found = await self.call(request, reaches=reaches)
        assert isinstance(found, Crossing)
        return found

    async def closed(self, attachment: str) -> str:
        """The cause that forkwatch counts for the one stream of this kind to close since the counters began."""
        labels = {"upstream": self.name, "attachment": attachment}
        await self.counters.reached("streams_closed_total", upstream=self.name, attachment=attachment)
        (cause,) = [
            dict(found)["cause"]
            for (name, found), value in (await self.proxy.metrics()).items()
            if name == "forkwatch_streams_closed_total"
            and labels.items() <= dict(found).items()
            and value > self.counters.before.get((name, found), 0.0)
        ]
        return cause
