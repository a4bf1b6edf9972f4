"""One replica of the demo's MCP server: `python -m proxy.demo.server PORT REPLICA`, 0 for any free port.

Built on the official SDK, with two habits that servers have in the field, and that make a fork:

- It adopts any session id that a request carries, in order to survive a restart or to scale out:
  mongodb-mcp-server does so with externally managed sessions, 1mcp when it restores sessions, tower-mcp
  when it reinitialises by itself, and so do many servers that create a transport for an unknown id.
- Its event store is its own, with one counter for all sessions, like the one in the SDK's examples.

Each line of standard output is a JSON object: `ready`, `answered` (an answer is in the store), `cut` (the
client left before its answer was sent). Each line of standard input lets one waiting call go on; its end
ends the process, so that no replica outlives the demo.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable

import uvicorn
from anyio import TASK_STATUS_IGNORED
from anyio.abc import TaskStatus
from mcp.server.connection import Connection
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.runner import serve_connection
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp.types import JSONRPCMessage, JSONRPCResponse
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PROTOCOL = "2025-11-25"
RETRY_MS = 300
"""What the server asks clients to wait before they come back: short, since someone is watching."""
PAUSE_AFTER = 2
"""The step after which a call waits for a line of standard input."""
BALANCES = {"ana": 120, "bob": 9400}


class CountingStore(EventStore):
    """Events of all sessions under one growing integer; a stream is named by its JSON-RPC id alone."""

    def __init__(self, answered: Callable[[], None]) -> None:
        """`answered` is called when an answer is stored."""
        self._events: list[tuple[str, JSONRPCMessage | None]] = []
        self._answered = answered

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep `message` (None: a priming event) and return its id."""
        self._events.append((stream_id, message))
        if isinstance(message, JSONRPCResponse):
            self._answered()
        return str(len(self._events))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what this log holds after the id on the id's stream; None if the id is none of this log."""
        cursor = int(last_event_id) if last_event_id.isdecimal() else 0
        if not 0 < cursor <= len(self._events):
            return None
        stream_id = self._events[cursor - 1][0]
        for number, (stream, message) in enumerate(self._events[cursor:], cursor + 1):
            if stream == stream_id and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream_id


class Adopting:
    """An ASGI application that makes a session of every session id before the SDK looks it up."""

    def __init__(self, app: ASGIApp, manager: StreamableHTTPSessionManager) -> None:
        """`app` is the SDK's application, `manager` what keeps its sessions."""
        self._app = app
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        session = Headers(scope=scope).get("mcp-session-id") if scope["type"] == "http" else None
        if session is not None and session not in self._manager._server_instances:
            await self._adopt(session)
        await self._app(scope, receive, send)

    async def _adopt(self, session: str) -> None:
        manager = self._manager
        transport = StreamableHTTPServerTransport(
            session, event_store=manager.event_store, retry_interval=manager.retry_interval
        )
        manager._server_instances[session] = transport
        assert manager._task_group is not None  # the application's lifespan has begun
        await manager._task_group.start(self._serve, transport)

    async def _serve(
        self, transport: StreamableHTTPServerTransport, *, task_status: TaskStatus[None] = TASK_STATUS_IGNORED
    ) -> None:
        """Run the session as if it had been initialised here."""
        async with transport.connect() as (read, write):
            task_status.started()
            dispatcher: JSONRPCDispatcher[TransportContext] = JSONRPCDispatcher(read, write)
            connection = Connection.from_envelope(PROTOCOL, None, None)
            manager = self._manager
            await serve_connection(
                manager.app, dispatcher, connection=connection, lifespan_state=manager._lifespan_state
            )


def watched(app: ASGIApp, cut: Callable[[], None]) -> ASGIApp:
    """`app`, with `cut` called when a POST is over and its answer was not sent to the end."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        complete = scope["type"] != "http" or scope["method"] != "POST"

        async def sent(message: Message) -> None:
            nonlocal complete
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                complete = True
            await send(message)

        await app(scope, receive, sent)
        if not complete:
            cut()

    return serve


def bank(replica: str, go_on: asyncio.Semaphore) -> MCPServer:
    """The server: one slow tool that reports each step on its stream."""
    server = MCPServer(f"bank, replica {replica}", log_level="WARNING")

    @server.tool()
    async def balance(ctx: Context, account: str, steps: int) -> str:
        """Add up the ledgers of an account, slowly."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"{account} {step}/{steps}")
            if step == PAUSE_AFTER:
                await go_on.acquire()
        return f"{account} has {BALANCES[account]}"

    return server


def say(event: str, **fields: int | str) -> None:
    """Tell the demo."""
    print(json.dumps({"event": event, **fields}), flush=True)


async def serve(port: int, replica: str) -> None:
    """Serve until standard input ends."""
    go_on = asyncio.Semaphore(0)
    server = bank(replica, go_on)
    app = server.streamable_http_app(
        event_store=CountingStore(lambda: say("answered")), retry_interval=RETRY_MS
    )
    careless = watched(Adopting(app, server.session_manager), lambda: say("cut"))
    named = [("X-Served-By", f"replica-{replica}")]
    config = uvicorn.Config(careless, log_level="warning", timeout_graceful_shutdown=1, headers=named)
    web = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", port))
    say("ready", port=listener.getsockname()[1], replica=replica)
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    loop, commands = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while await commands.readline():
        go_on.release()
    web.should_exit = web.force_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
