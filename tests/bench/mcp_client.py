"""A lean MCP client over streamable HTTP, and a load of tool calls made with it.

It speaks what a call takes and no more, so that little of the machine goes into it: revision 2025-11-25, every
event one `data` line, as the SDKs write them. Like a real client it keeps a standalone stream open, where a proxy
may deliver what belongs to a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

PROTOCOL = "2025-11-25"
CALL_TIMEOUT_S = 20.0
IDS_APART = 1_000_000  # between sessions: some event stores tell streams apart by the request's id alone
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
CLIENT_INFO = {"name": "bench", "version": "1"}

Message = dict[str, Any]


class CallFailed(Exception):
    """A request was not answered as it must be; the words say how."""


FAILURES = (aiohttp.ClientError, OSError, LookupError, ValueError, CallFailed)
"""What a proxy can do to a call: break the connection, keep it waiting, answer what is no JSON-RPC or no result."""


async def messages(response: aiohttp.ClientResponse) -> AsyncIterator[Message]:
    """The JSON-RPC messages of an answer, JSON or an event stream, as they arrive."""
    if response.content_type != "text/event-stream":
        yield orjson.loads(await response.read())
        return
    rest = b""
    async for data in response.content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:") and (payload := line[5:].strip()):  # a priming event has none
                yield orjson.loads(payload)


@dataclass(slots=True)
class Session:
    """One MCP session. `notified` counts the progress notifications it was sent, on whatever stream."""

    http: aiohttp.ClientSession
    url: str
    last_id: int
    headers: dict[str, str] = field(default_factory=lambda: dict(HEADERS))
    notified: int = 0

    async def open(self) -> None:
        """Initialize; CallFailed if the server will not."""
        params = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": CLIENT_INFO}
        result = await self._request("initialize", params)
        self.headers["MCP-Protocol-Version"] = result["protocolVersion"]
        told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        async with self.http.post(self.url, json=told, headers=self.headers) as response:
            if response.status >= 300:
                raise CallFailed(f"notifications/initialized: {response.status}")

    async def listen(self) -> None:
        """Read the standalone stream to its end; nothing if the server offers none."""
        async with self.http.get(self.url, headers=self.headers) as response:
            if response.status == 200:
                async for message in messages(response):
                    self._count(message)

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """The text a tool answers with, asked for progress; CallFailed if it gives none."""
        meta = {"progressToken": self.last_id + 1}
        result = await self._request("tools/call", {"name": tool, "arguments": arguments, "_meta": meta})
        if result.get("isError"):
            raise CallFailed(f"the tool failed: {result}")
        text: str = result["content"][0]["text"]
        return text

    async def close(self) -> None:
        """End the session."""
        async with self.http.delete(self.url, headers=self.headers):
            pass

    async def _request(self, method: str, params: dict[str, Any]) -> Message:
        """The result of a request, once its answer was read to the end."""
        self.last_id += 1
        body = orjson.dumps({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params})
        answer: Message | None = None
        async with self.http.post(self.url, data=body, headers=self.headers) as response:
            if response.status != 200:
                raise CallFailed(f"{method}: {response.status} {(await response.text())[:200]}")
            if session := response.headers.get("Mcp-Session-Id"):
                self.headers["Mcp-Session-Id"] = session
            async for message in messages(response):
                self._count(message)
                if message.get("id") == self.last_id:
                    answer = message
        if answer is None or "result" not in answer:
            raise CallFailed(f"{method}: {answer or 'the stream ended without the answer'}")
        result: Message = answer["result"]
        return result

    def _count(self, message: Message) -> None:
        self.notified += message.get("method") == "notifications/progress"


@asynccontextmanager
async def opened(url: str, count: int) -> AsyncIterator[list[Session]]:
    """So many sessions at once, each with connections and a standalone stream of its own."""
    async with AsyncExitStack() as stack:
        timeout = aiohttp.ClientTimeout(total=None)
        sessions = [
            Session(
                await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout)), url, n * IDS_APART
            )
            for n in range(count)
        ]
        async with asyncio.timeout(CALL_TIMEOUT_S):
            await asyncio.gather(*(each.open() for each in sessions))
        listening = [asyncio.create_task(each.listen()) for each in sessions]
        try:
            yield sessions
            with suppress(*FAILURES):  # it is over anyway
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    await asyncio.gather(*(each.close() for each in sessions))
        finally:
            for task in listening:
                task.cancel()
            await asyncio.gather(*listening, return_exceptions=True)


@dataclass(slots=True)
class Load:
    """What calling gave: how long each call that succeeded took, the words of those that failed, the progress."""

    took_s: float = 0.0
    calls_s: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    notified: int = 0


async def run_load(sessions: list[Session], notifications: int, seconds: float, limit: int) -> Load:
    """Call in every session at once, one call after another, for so long or up to `limit` calls a session.

    The tool sends so many progress notifications and then answers with what it was given.
    """
    load, began = Load(), time.perf_counter()
    arguments, expected = {"n": notifications, "ms": 0, "tag": "echo"}, f"done echo {notifications}"
    before = sum(each.notified for each in sessions)

    async def work(session: Session) -> None:
        for _ in range(limit):
            start = time.perf_counter()
            if start - began >= seconds:
                return
            try:
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    text = await session.call("steps", arguments)
                if text != expected:
                    raise CallFailed(f"another answer: {text[:200]}")
            except FAILURES as error:
                load.errors.append(f"{type(error).__name__} {error}")
            else:
                load.calls_s.append(time.perf_counter() - start)

    await asyncio.gather(*(work(each) for each in sessions))
    load.took_s = time.perf_counter() - began
    load.notified = sum(each.notified for each in sessions) - before
    return load
