"""A server on the second generation of the official Python SDK. Usage: py2.py PORT uuid|int|none."""

import sys
import warnings

import anyio
import stores
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import LoggingMessageNotification, LoggingMessageNotificationParams

warnings.simplefilter("ignore")  # the SDK calls its own logging tools deprecated
server = MCPServer("py2", log_level="WARNING")


@server.tool()
async def count(ctx: Context, n: int = 5, ms: int = 100, tag: str = "c") -> str:
    """Send n notifications, one each ms, on this call's stream; then answer."""
    for i in range(n):
        await ctx.log("info", f"{tag}{i}")
        await anyio.sleep(ms / 1000)
    return f"done {tag} {n}"


@server.tool()
async def poll(ctx: Context, ms: int = 100) -> str:
    """Close this call's stream on purpose, so that the client has to come back for the rest."""
    await ctx.log("info", "before-close")
    await anyio.sleep(0.05)
    await ctx.close_sse_stream()
    await anyio.sleep(ms / 1000)
    await ctx.log("info", "while-away")
    await anyio.sleep(ms / 1000)
    return "polled"


@server.tool()
async def poke(ctx: Context, n: int = 1, tag: str = "g") -> str:
    """Send n notifications on the session's standalone stream."""
    for i in range(n):
        params = LoggingMessageNotificationParams(level="info", data=f"{tag}{i}")
        await ctx.session.send_notification(LoggingMessageNotification(params=params))
    return "poked"


server.run(
    transport="streamable-http",
    host="127.0.0.1",
    port=int(sys.argv[1]),
    event_store=stores.make(sys.argv[2]),
    retry_interval=500,
)
