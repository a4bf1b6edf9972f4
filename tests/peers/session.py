"""A client for exact resumes: it decides what it consumed, when it drops, and which cursor it sends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

PROTOCOL = "2025-11-25"
READ_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Frame:
    """One SSE frame: its id, None without one, and its JSON payload, None for a priming frame."""

    id: str | None
    payload: dict[str, Any] | None

    @property
    def text(self) -> str | None:
        """What a notification or a step of progress says, or the text of a result; None for anything else."""
        if self.payload is None:
            return None
        if "result" in self.payload:
            return str(self.payload["result"]["content"][0]["text"])
        params = self.payload.get("params", {})
        data = params.get("data", params.get("message"))
        return data.get("msg") if isinstance(data, dict) else data


def parse(raw: bytes) -> Frame:
    """The frame that these lines make."""
    fields: dict[str, str] = {}
    for line in raw.decode().splitlines():
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")
    data = fields.get("data", "")
    payload = json.loads(data) if data.strip() else None
    return Frame(fields.get("id"), payload or None)


@dataclass
class Stream:
    """One open event stream, read frame by frame."""

    response: aiohttp.ClientResponse
    frames: list[Frame] = field(default_factory=list)
    rest: bytes = b""

    async def next(self) -> Frame | None:
        """The next frame that is no comment, None at the end; TimeoutError after ten seconds of silence."""
        async with asyncio.timeout(READ_TIMEOUT_S):
            while True:
                self.rest = self.rest.replace(b"\r\n", b"\n")
                if b"\n\n" in self.rest:
                    raw, _, self.rest = self.rest.partition(b"\n\n")
                    frame = parse(raw)
                    if frame.id is not None or frame.payload is not None:
                        self.frames.append(frame)
                        return frame
                elif chunk := await self.response.content.readany():
                    self.rest += chunk
                else:
                    return None

    async def until_text(self, text: str) -> list[Frame]:
        """All frames so far, once one says `text`; AssertionError if the stream ends first."""
        while (frame := await self.next()) is not None:
            if frame.text == text:
                return self.frames
        raise AssertionError(f"the stream ended before {text!r}: {self.frames}")

    async def ending(self) -> str:
        """How the stream ends once it does: `clean`, or `aborted` when its framing promised more."""
        try:
            while await self.next() is not None:
                pass
        except aiohttp.ClientError:
            return "aborted"
        return "clean"

    def drop(self) -> None:
        """Close the connection under the server, as a lost network does."""
        self.response.close()


class Session:
    """One MCP session over plain HTTP."""

    def __init__(self, http: aiohttp.ClientSession, url: str, session_id: str) -> None:
        self.http, self.url = http, f"{url}/mcp"
        self.headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": PROTOCOL,
            "Mcp-Session-Id": session_id,
        }
        self.streams: list[Stream] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Session]:
        """Initialize a session, and close every connection in the end; the server's session is left alone."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        ) as http:
            params = {
                "protocolVersion": PROTOCOL,
                "capabilities": {},
                "clientInfo": {"name": "wire", "version": "1"},
            }
            body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
            headers = {"Accept": "application/json, text/event-stream"}
            async with http.post(f"{url}/mcp", json=body, headers=headers) as response:
                response.raise_for_status()
                await response.read()
                session = cls(http, url, response.headers["Mcp-Session-Id"])
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            async with http.post(session.url, json=note, headers=session.headers) as response:
                response.raise_for_status()
            try:
                yield session
            finally:
                for stream in session.streams:
                    stream.drop()

    async def call(self, request_id: int, tool: str, **arguments: Any) -> Stream:
        """Call a tool and return its open stream."""
        params: dict[str, Any] = {
            "name": tool,
            "arguments": arguments,
            "_meta": {"progressToken": request_id},
        }
        body = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}
        return self._opened(await self.http.post(self.url, json=body, headers=self.headers))

    async def listen(self) -> Stream:
        """Open the standalone stream."""
        return self._opened(await self.http.get(self.url, headers=self.headers))

    async def resume(self, cursor: str) -> Stream:
        """Resume a stream after `cursor`."""
        headers = {**self.headers, "Last-Event-ID": cursor}
        return self._opened(await self.http.get(self.url, headers=headers))

    def _opened(self, response: aiohttp.ClientResponse) -> Stream:
        self.streams.append(Stream(response))
        return self.streams[-1]

    async def end(self) -> int:
        """End the session; the status of the answer."""
        async with self.http.delete(self.url, headers=self.headers) as response:
            return response.status
