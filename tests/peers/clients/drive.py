"""A Python client that a test drives. Usage: drive.py mcp1|mcp2|fastmcp.

Takes one JSON command a line on stdin and says what happens, one JSON line each with the monotonic time:
`open` a client object under a name, `call` a tool on it, `close` it. Ends when stdin does.
With `stale`, a session id, `open` sends that along with `initialize`, as some gateways do.
"""

import asyncio
import importlib.metadata
import json
import sys
import time
import warnings
from contextlib import asynccontextmanager

warnings.simplefilter("ignore")  # the second generation calls its own logging tools deprecated


def say(event, **what):
    """One line about what just happened."""
    print(json.dumps({"at": time.monotonic(), "event": event, **what}), flush=True)


def listeners(name):
    """What hears the notifications of a client object, and what hears answers that nobody asked for."""

    async def on_log(params):
        data = params.data
        say("note", client=name, text=data["msg"] if isinstance(data, dict) else data)

    async def on_message(message):
        if isinstance(message, Exception):
            say("fault", client=name, text=str(message)[:300])

    return on_log, on_message


def stale_header(session):
    """A header of every request that has no session of its own."""
    return {"Mcp-Session-Id": session} if session else {}


@asynccontextmanager
async def open_mcp1(name, url, stale):
    """The official SDK, first generation."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    on_log, on_message = listeners(name)
    async with (
        create_mcp_http_client(headers=stale_header(stale)) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write, logging_callback=on_log, message_handler=on_message) as client,
    ):
        await client.initialize()
        yield client


@asynccontextmanager
async def open_mcp2(name, url, stale):
    """The official SDK, second generation, in the handshake that has sessions."""
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    on_log, on_message = listeners(name)
    async with create_mcp_http_client(headers=stale_header(stale)) as http:
        transport = streamable_http_client(url, http_client=http)
        listening = {"logging_callback": on_log, "message_handler": on_message}
        async with Client(transport, mode="legacy", **listening) as client:
            yield client


@asynccontextmanager
async def open_fastmcp(name, url, stale):
    """The fastmcp client, in the handshake that has sessions."""
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    on_log, on_message = listeners(name)
    transport = StreamableHttpTransport(url, headers=stale_header(stale))
    async with Client(transport, mode="legacy", log_handler=on_log, message_handler=on_message) as client:
        yield client


OPENERS = {"mcp1": (open_mcp1, "mcp"), "mcp2": (open_mcp2, "mcp"), "fastmcp": (open_fastmcp, "fastmcp")}


async def make_call(client, key, tool, arguments):
    """One call, and how it ended; a call that is cancelled says nothing."""
    try:
        result = await client.call_tool(tool, arguments)
    except Exception as error:
        code = getattr(getattr(error, "error", error), "code", None)
        say("error", key=key, code=code, text=f"{type(error).__name__}: {error}"[:600])
    else:
        say("result", key=key, text=result.content[0].text)


async def serve(opener, name, url, stale, inbox):
    """One client object from its opening to its closing, in one task as the SDKs demand."""
    try:
        async with opener(name, url, stale) as client:
            say("opened", client=name)
            calls = set()
            while (command := await inbox.get()) is not None:
                calls.add(asyncio.create_task(make_call(client, *command)))
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    except BaseException as error:
        say("failed", client=name, text=f"{type(error).__name__}: {error}"[:600])
        raise
    say("closed", client=name)


async def main(kind):
    """Do as stdin says."""
    opener, package = OPENERS[kind]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    say("ready", package=package, version=importlib.metadata.version(package))
    inboxes, tasks = {}, []
    while line := await reader.readline():
        command = json.loads(line)
        name = command["client"]
        if command["do"] == "open":
            inboxes[name] = asyncio.Queue()
            client = serve(opener, name, command["url"], command["stale"], inboxes[name])
            tasks.append(asyncio.create_task(client))
        elif command["do"] == "call":
            inboxes[name].put_nowait((command["key"], command["tool"], command["arguments"]))
        else:
            inboxes[name].put_nowait(None)


asyncio.run(main(sys.argv[1]))
