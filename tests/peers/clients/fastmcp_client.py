"""A session of PyPI's fastmcp client. Usage: fastmcp_client.py URL."""

import sys

import anyio
import session
from fastmcp import Client


async def main(url):
    """One session in the handshake of 2025, ended with DELETE."""
    notes = session.Notes()

    async def on_log(params):
        notes.add(params.data)

    async with Client(url, mode="legacy", log_handler=on_log) as client:

        async def call(name, arguments):
            return (await client.call_tool(name, arguments)).content[0].text

        results = await session.run(call, notes)
    session.report(results, notes)


anyio.run(main, sys.argv[1])
