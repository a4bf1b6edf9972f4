"""A server on PyPI's fastmcp with its own event store: random ids within a session. Usage: fast.py PORT."""

import sys

import anyio
import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.server.event_store import EventStore

server = FastMCP("fast")


@server.tool
async def count(ctx: Context, n: int = 5, ms: int = 100, tag: str = "c") -> str:
    """Send n notifications, one each ms, on this call's stream; then answer."""
    for i in range(n):
        await ctx.info(f"{tag}{i}")
        await anyio.sleep(ms / 1000)
    return f"done {tag} {n}"


@server.tool
async def poll(ctx: Context, ms: int = 100) -> str:
    """Close this call's stream on purpose, so that the client has to come back for the rest."""
    await ctx.info("before-close")
    await anyio.sleep(0.05)
    await ctx.close_sse_stream()
    await anyio.sleep(ms / 1000)
    await ctx.info("while-away")
    await anyio.sleep(ms / 1000)
    return "polled"


@server.tool
async def poke(ctx: Context, n: int = 1, tag: str = "g") -> str:
    """Send n notifications on the session's standalone stream."""
    for i in range(n):
        await ctx.session.send_log_message(level="info", data=f"{tag}{i}")
    return "poked"


app = server.http_app(path="/mcp", event_store=EventStore(), retry_interval=500)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
