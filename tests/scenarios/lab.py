"""A laboratory of the wire: a scripted upstream, a scripted client, and the real proxy process between them.

A scenario drives both ends step by step; nothing here waits for time to pass.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterable
from typing import Any

from tests.forkwatch_process import POLL_S, Counters, Forkwatch
from tests.scenarios.exchange import MAX_LINE, STEP_TIMEOUT_S, Exchange, Headers, ScriptedUpstream


class Lab:
    """What one scenario works with: the upstream, a session of its own, and the counters since it began."""

    def __init__(self, proxy: Forkwatch, upstream: ScriptedUpstream, counters: Counters) -> None:
        self.proxy, self.upstream, self.counters = proxy, upstream, counters
        self.path = "/mcp"
        self.session = ""
        self.exchanges: list[Exchange] = []
        self.sessions: list[str] = []

    async def close(self) -> None:
        """Cut every connection of the scenario, and see that the upstream was asked for nothing else."""
        for exchange in self.exchanges:
            exchange.task.cancel()
            exchange.writer.transport.abort()
            if exchange.arrived:
                exchange.arrived.writer.transport.abort()
        unasked = [self.upstream.waiting.get_nowait().request for _ in range(self.upstream.waiting.qsize())]
        assert not unasked, f"the upstream got requests that nobody made: {unasked}"

    async def request(
        self,
        method: str,
        headers: Headers,
        body: bytes = b"",
        *,
        target: str | None = None,
        reaches: bool = True,
    ) -> Exchange:
        """Send a request through the proxy; with `reaches`, return once the upstream holds its side of it."""
        target = target or self.path
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.port, limit=MAX_LINE)
        lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{self.proxy.port}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if method == "POST":
            lines.append(f"Content-Length: {len(body)}")
        writer.write("".join(line + "\r\n" for line in [*lines, ""]).encode() + body)
        await writer.drain()
        exchange = Exchange(target, reader, writer)
        self.exchanges.append(exchange)
        if reaches:
            try:
                exchange.arrived = await asyncio.wait_for(self.upstream.waiting.get(), STEP_TIMEOUT_S)
            except TimeoutError:
                raise AssertionError(f"{method} {target} never arrived: {exchange.status}") from None
        return exchange

    async def initialize(
        self, *, version: str = "2025-06-18", carry: str | None = None, session: str | None = None
    ) -> Exchange:
        """Open a session under a fresh id unless one is given; later requests of the lab carry it."""
        params = {"protocolVersion": version, "capabilities": {}}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
        asked = {**body, "params": {**params, "clientInfo": {"name": "lab", "version": "1"}}}
        result = {**params, "serverInfo": {"name": "lab", "version": "1"}}
        exchange = await self.request("POST", self._post_headers(carry), json.dumps(asked).encode())
        self.session = session or uuid.uuid4().hex
        self.sessions.append(self.session)
        answer = json.dumps({"jsonrpc": "2.0", "id": 0, "result": result}).encode()
        headers = [("Content-Type", "application/json"), ("Mcp-Session-Id", self.session)]
        await exchange.answer(200, headers, answer)
        return exchange

    async def get(self, cursor: str | None = None, *, reaches: bool = True) -> Exchange:
        """Open the standalone stream, or resume a stream after a cursor."""
        headers = [("Accept", "text/event-stream"), *self._session_headers(self.session)]
        if cursor is not None:
            headers.append(("Last-Event-ID", cursor))
        return await self.request("GET", headers, reaches=reaches)

    async def call(self, request: object, *, reaches: bool = True) -> Exchange:
        """Call a tool under a JSON-RPC id."""
        params = {"name": "work", "arguments": {}}
        body = {"jsonrpc": "2.0", "id": request, "method": "tools/call", "params": params}
        headers = self._post_headers(self.session)
        return await self.request("POST", headers, json.dumps(body).encode(), reaches=reaches)

    async def delete(self) -> Exchange:
        """Ask for the end of the session."""
        return await self.request("DELETE", self._session_headers(self.session))

    async def relay(self, *frames: bytes, request: object = None) -> None:
        """A stream shows these frames and loses its connection: that of a request, or the standalone one."""
        exchange = await (self.get() if request is None else self.call(request))
        await exchange.stream(*frames)
        await exchange.abort()

    async def resume(self, cursor: str, *frames: bytes) -> Exchange:
        """A stream is resumed after a cursor and shows these frames, which reach the client unchanged."""
        exchange = await (await self.get(cursor)).stream(*frames)
        assert exchange.plain() == exchange.sent
        return exchange

    def _session_headers(self, session: str | None) -> Headers:
        return [("MCP-Protocol-Version", "2025-06-18"), ("Mcp-Session-Id", session)] if session else []

    def _post_headers(self, session: str | None) -> Headers:
        accept = ("Accept", "application/json, text/event-stream")
        return [("Content-Type", "application/json"), accept, *self._session_headers(session)]

    async def judged(
        self, verdict: str, reasons: str | Iterable[str], certainty: str | None = None, count: int = 1
    ) -> None:
        """Every resume has its verdict, and these are all: so many of this kind, and no other."""
        allowed = {reasons} if isinstance(reasons, str) else set(reasons)
        given = await self.counters.settled()
        fitting = {
            key: number
            for key, number in given.items()
            if key[0] == verdict and key[1] in allowed and certainty in (None, key[2])
        }
        wanted = f"{count} x {verdict}/{'|'.join(sorted(allowed))}/{certainty or 'any'}"
        assert fitting == given, f"wanted {wanted}"
        assert sum(given.values()) == count, f"wanted {wanted}"

    async def lines(self, event: str) -> list[dict[str, Any]]:
        """The log lines of this event about the lab's sessions, once there is one: the log lags behind."""
        async with asyncio.timeout(STEP_TIMEOUT_S):
            while True:
                lines = [line for line in self.proxy.log() if line.get("session") in self.sessions]
                if found := [line for line in lines if line["event"] == event]:
                    return found
                await asyncio.sleep(POLL_S)
