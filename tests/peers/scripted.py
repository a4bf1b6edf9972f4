"""An MCP server without an SDK that forks on demand: what it writes, and when, is exactly known.

Each tool is a play. `forked` shows some events of its log, loses the connection, and answers the
resume with another log; the moment it wrote the first frame of that is kept. The healthy plays
break their streams too, and continue them as a server in good order does. A play that waits for
its test is called with the name of a `Scene`. Sessions number their events from 1.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.scenarios.exchange import Headers, one, read_chunk, read_head
from tests.scenarios.frames import event, priming, result

WRONG = "the answer of another log"
RETRY_MS = 300
"""What a healthy stream asks its client to wait before it comes back."""
FORKED_RETRY_MS = 1000
"""What a stream asks that will fork: what happens sooner was not brought about by one more attempt."""
LATE_RETRY_MS = 2500
"""What `dropped` asks: its client comes back when everything else is over."""
CLEAN, LOST = "clean", "lost"
"""How a healthy stream breaks: as a server that wants to be polled, or as a network does."""

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

    def __init__(self) -> None:
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
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in PLAYS]
            await to.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})
        else:
            params = message["params"]
            arguments = params.get("arguments") or {}
            if scene := self.scenes.get(arguments.get("scene", "")):
                scene.calls.append(params["name"])
                scene.session = session.id
            await PLAYS[params["name"]](session, to, message["id"], arguments)

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
        await to.send(*_after(log, cursor))
        await to.hold()
    finally:
        if session.standalone is to:
            session.standalone = None


def _after(log: list[tuple[int, bytes]], cursor: str | None) -> list[bytes]:
    return [] if cursor is None else [frame for number, frame in log if number > int(cursor)]


# ---- plays that fork


async def _forked(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """Four events and the loss of the connection; the resume gets another log, of the kind `log`."""
    scene, kind = session.server.scenes[arguments["scene"]], arguments["log"]
    unique = kind == "foreign"
    first, second, third, last = [uuid.uuid4() if unique else session.next() for _ in range(4)]
    another = {
        "restarted": [event(1, "reborn"), result(2, request, WRONG)],
        "misaddressed": [event(1, "reborn"), result(2, "somebody else's", WRONG)],
        "rewritten": [event(third, "rewritten"), result(last, request, WRONG)],
        "foreign": [scene.foreign],
    }[kind]
    session.resumes[str(last)] = partial(_offend, scene, another)
    await to.begin()
    await to.send(priming(first, FORKED_RETRY_MS), event(second, "1"), event(third, "2"), event(last, "last"))
    await scene.consumed.wait()
    to.drop()


async def _offend(scene: Scene, frames: list[bytes], cursor: str, to: Responder) -> None:
    await scene.go.wait()
    await to.begin()
    scene.offended_at = scene.offended_at or time.monotonic()
    await to.send(*frames)
    await to.end()


async def _own(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """Answer at once, under an id that no other event has; `forked` may show it to somebody else."""
    scene = session.server.scenes[arguments["scene"]]
    scene.foreign = result(uuid.uuid4(), request, WRONG)
    await to.begin()
    await to.send(scene.foreign)
    await to.end()


# ---- calls that are pending while another one forks


async def _slow(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """One event, and no answer: the stream stays open."""
    await to.begin()
    await to.send(event(session.next(), "slow"))
    await to.hold()


async def _silent(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """Not even a response head."""
    session.server.scenes[arguments["scene"]].reached.set()
    await to.hold()


async def _dropped(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """The connection is lost, and the client stays away for a while; its resume is never answered."""
    scene = session.server.scenes[arguments["scene"]]

    async def never(cursor: str, to: Responder) -> None:
        await to.hold()

    first, last = session.next(), session.next()
    session.resumes[str(last)] = never
    await to.begin()
    await to.send(priming(first, LATE_RETRY_MS), event(last, "late"))
    await scene.consumed.wait()
    to.drop()
    scene.lost.set()


# ---- healthy plays


async def _answer(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """A priming event, n notifications, the answer."""
    await to.begin()
    await to.send(priming(session.next(), RETRY_MS))
    for i in range(arguments.get("n", 0)):
        await to.send(event(session.next(), f"{arguments['tag']}{i}"))
    await to.send(result(session.next(), request, f"done {arguments.get('tag', '')}"))
    await to.end()


async def _plain(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """An answer that is no stream."""
    content = [{"type": "text", "text": f"done {arguments.get('tag', '')}"}]
    await to.answer(200, {"jsonrpc": "2.0", "id": request, "result": {"content": content}})


async def _broken(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """A stream that breaks in as many ways as `breaks` says, each time after one notification."""
    log: list[tuple[int, bytes]] = []
    breaks: list[str] = list(arguments["breaks"])
    scene = session.server.scenes.get(arguments.get("scene", ""))

    async def show(frame: Callable[[int], bytes], to: Responder) -> None:
        number = session.next()
        log.append((number, frame(number)))
        session.resumes[str(number)] = go_on
        await to.send(log[-1][1])

    async def go_on(cursor: str | None, to: Responder) -> None:
        await to.begin()
        await to.send(*_after(log, cursor))
        await show(lambda number: priming(number, RETRY_MS), to)
        if breaks:
            await show(lambda number: event(number, f"{arguments['tag']}{len(breaks)}"), to)
            if breaks.pop(0) == CLEAN:
                await to.end()
            else:
                assert scene is not None
                await scene.consumed.wait()
                to.drop()
            return
        await show(lambda number: result(number, request, f"done {arguments['tag']}"), to)
        await to.end()

    await go_on(None, to)


async def _poke(session: Session, to: Responder, request: Any, arguments: dict[str, Any]) -> None:
    """Notifications on the standalone stream; with `away` its connection ends before them."""
    if arguments.get("away") and session.standalone is not None:
        listener, session.standalone = session.standalone, None
        number = session.next()
        session.standalone_log.append((number, priming(number, RETRY_MS)))
        await listener.send(session.standalone_log[-1][1])
        await listener.end()
    for i in range(arguments.get("n", 1)):
        frame = session.notify(f"{arguments['tag']}{i}")
        if session.standalone is not None:
            await session.standalone.send(frame)
    await _plain(session, to, request, arguments)


PLAYS: dict[str, Play] = {
    "forked": _forked,
    "own": _own,
    "slow": _slow,
    "silent": _silent,
    "dropped": _dropped,
    "answer": _answer,
    "plain": _plain,
    "broken": _broken,
    "poke": _poke,
}
"""What each tool does."""
