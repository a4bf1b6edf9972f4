"""An MCP server without an SDK, whose tools are plays: what it writes, and when, is exactly known.

A play that waits for its test is called with the name of a `Scene`. Sessions number their events
from 1; a play says itself what a resume of its stream gets.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios.exchange import Headers, one, read_chunk, read_head
from tests.scenarios.frames import event

Play = Callable[["Session", "Responder", Any, dict[str, Any]], Coroutine[Any, Any, None]]
Resumed = Callable[[str, "Responder"], Coroutine[Any, Any, None]]


@dataclass
class Scene:
    """What a test and a play tell each other."""

    consumed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the test: the client has what was sent, the connection may be lost."""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the test: the resume may be answered."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by `silent`: the request is here, and stays unanswered."""
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by `dropped`: its connection is lost."""
    offended_at: float | None = None
    """When the first frame of another log was written."""
    session: str = ""
    """The session that called last in this scene."""
    foreign: bytes = b""
    """The frame that answered somebody else's call."""
    calls: list[str] = field(default_factory=list)
    """The tools that were called in this scene: a client that replays a call shows here."""


class Responder:
    """The way back to the client of one request."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.over = asyncio.Event()

    async def answer(self, status: int, value: object = None, headers: Headers | None = None) -> None:
        """A whole answer with a JSON body, or an empty one."""
        body = b"" if value is None else json.dumps(value).encode()
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Content-Type: application/json"]
        lines += [f"{name}: {text}" for name, text in headers or []]
        self.writer.write("".join(line + "\r\n" for line in [*lines, ""]).encode() + body)
        await self.writer.drain()

    async def begin(self) -> None:
        """The head of an event stream."""
        self.writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        await self.writer.drain()

    async def send(self, *frames: bytes) -> None:
        """Frames of an event stream."""
        for frame in frames:
            self.writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
            await self.writer.drain()

    async def end(self) -> None:
        """The clean end of an event stream."""
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        self.over.set()

    def drop(self) -> None:
        """The connection is lost in the middle of the stream, after what was sent."""
        self.writer.close()
        self.over.set()

    async def hold(self) -> None:
        """Say nothing more until the stream is ended from elsewhere, or its client goes."""
        await self.over.wait()


@dataclass
class Session:
    """One session, as this server keeps it."""

    server: ScriptedServer
    id: str
    counter: int = 0
    resumes: dict[str, Resumed] = field(default_factory=dict)
    """What a resume after this cursor gets."""
    standalone: Responder | None = None
    standalone_log: list[tuple[int, bytes]] = field(default_factory=list)

    def next(self) -> int:
        """A new event id of this session."""
        self.counter += 1
        return self.counter

    def notify(self, text: str) -> bytes:
        """One more event of the standalone stream."""
        number = self.next()
        self.standalone_log.append((number, event(number, text)))
        return self.standalone_log[-1][1]


class ScriptedServer:
    """The server, on a loopback port, in the loop of the test."""

    def __init__(self, plays: dict[str, Play]) -> None:
        """`plays`: what each tool does."""
        self.plays = plays
        self.sessions: dict[str, Session] = {}
        self.scenes: dict[str, Scene] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen, and return the base URL."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """End every connection."""
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def scene(self, name: str) -> Scene:
        """A new scene, for a call with the argument `scene` of this name."""
        self.scenes[name] = Scene()
        return self.scenes[name]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """The requests of one connection, one after the other; a play is over when its client has gone."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                prefix = b""
                while True:
                    first, headers = await read_head(reader, prefix)
                    message = json.loads(await _body(reader, headers) or b"{}")
                    play = self._route(first.split()[0], headers, message, Responder(writer))
                    if not (prefix := await _while_connected(play, reader)):
                        break
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _route(self, method: str, headers: Headers, message: dict[str, Any], to: Responder) -> None:
        carried = one(headers, "Mcp-Session-Id")
        session = self.sessions.get(carried or "")
        if message.get("method") == "initialize" and carried is None:
            await self._initialize(message, to)
        elif message.get("method") == "initialize":
            await to.answer(400, _error(-32600, "already initialized"))
        elif session is None:
            await to.answer(404, _error(-32001, "Session not found"))
        elif method == "DELETE":
            del self.sessions[session.id]
            await to.answer(200)
        elif method == "GET":
            await _get(session, one(headers, "Last-Event-ID"), to)
        elif "id" not in message:
            await to.answer(202)
        elif message["method"] == "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.plays]
            await to.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})
        else:
            params = message["params"]
            arguments = params.get("arguments") or {}
            if scene := self.scenes.get(arguments.get("scene", "")):
                scene.calls.append(params["name"])
                scene.session = session.id
            await self.plays[params["name"]](session, to, message["id"], arguments)

    async def _initialize(self, message: dict[str, Any], to: Responder) -> None:
        session = Session(self, uuid.uuid4().hex)
        self.sessions[session.id] = session
        answer = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "logging": {}},
            "serverInfo": {"name": "scripted", "version": "1"},
        }
        headers = [("Mcp-Session-Id", session.id)]
        await to.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": answer}, headers)


async def _while_connected(play: Coroutine[Any, Any, None], reader: asyncio.StreamReader) -> bytes:
    """Play to the end or until the client goes; the first byte of the next request, b"" if there is none."""
    playing, ahead = asyncio.ensure_future(play), asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait([playing, ahead], return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()
            return await ahead
        return b""
    finally:
        playing.cancel()
        ahead.cancel()
        await asyncio.gather(playing, ahead, return_exceptions=True)


async def _body(reader: asyncio.StreamReader, headers: Headers) -> bytes:
    if length := one(headers, "Content-Length"):
        return await reader.readexactly(int(length))
    body = b""
    if one(headers, "Transfer-Encoding"):
        while chunk := await read_chunk(reader):
            body += chunk
    return body


def _error(code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


async def _get(session: Session, cursor: str | None, to: Responder) -> None:
    """A resume of a call, or the standalone stream, resumed or not."""
    if cursor in session.resumes:
        await session.resumes[cursor](cursor, to)
        return
    log = session.standalone_log
    if cursor is not None and cursor not in [str(number) for number, _ in log]:
        await to.answer(400, _error(-32600, "no such event"))
        return
    if session.standalone is not None:
        await to.answer(409, _error(-32600, "one standalone stream is enough"))
        return
    session.standalone = to
    try:
        await to.begin()
        await to.send(*after(log, cursor))
        await to.hold()
    finally:
        if session.standalone is to:
            session.standalone = None


def after(log: list[tuple[int, bytes]], cursor: str | None) -> list[bytes]:
    """The frames that come after this event id; none without one."""
    return [] if cursor is None else [frame for number, frame in log if number > int(cursor)]
