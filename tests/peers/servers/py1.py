"""A server on the official Python SDK, first generation. Usage: py1.py PORT uuid|int|none, or stdio."""

import sys

import anyio
import stores
from mcp.server.fastmcp import Context, FastMCP

STDIO = sys.argv[1] == "stdio"
OPTIONS = (
    {}
    if STDIO
    else {
        "host": "127.0.0.1",
        "port": int(sys.argv[1]),
        "event_store": stores.make(sys.argv[2]),
        "retry_interval": 500,
    }
)
server = FastMCP("py1", log_level="WARNING", **OPTIONS)


@server.tool()
async def count(ctx: Context, n: int = 5, ms: int = 100, tag: str = "c") -> str:
    """Send n notifications, one each ms, on this call's stream; then answer."""
    for i in range(n):
        await ctx.info(f"{tag}{i}")
        await anyio.sleep(ms / 1000)
    return f"done {tag} {n}"


@server.tool()
async def steps(ctx: Context, n: int = 5, ms: int = 100, tag: str = "s") -> str:
    """What count does, as progress of the call: a gateway passes only that on with the call it belongs to."""
    for i in range(n):
        await ctx.report_progress(i, n, f"{tag}{i}")
        await anyio.sleep(ms / 1000)
    return f"done {tag} {n}"


@server.tool()
async def poll(ctx: Context, ms: int = 100) -> str:
    """Close this call's stream on purpose, so that the client has to come back for the rest."""
    await ctx.info("before-close")
    await anyio.sleep(0.05)
    await ctx.close_sse_stream()
    await anyio.sleep(ms / 1000)
    await ctx.info("while-away")
    await anyio.sleep(ms / 1000)
    return "polled"


@server.tool()
async def poke(ctx: Context, n: int = 1, tag: str = "g") -> str:
    """Send n notifications on the session's standalone stream."""
    for i in range(n):
        await ctx.session.send_log_message(level="info", data=f"{tag}{i}")
    return "poked"


@server._mcp_server.set_logging_level()
async def set_level(level: str) -> None:
    """Every level is on; with a handler the server also declares that it logs, which gateways ask for."""


server.run(transport="stdio" if STDIO else "streamable-http")
