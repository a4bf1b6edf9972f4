"""A session of the second generation of the official Python client. Usage: mcp2.py URL."""

import sys
import warnings

import anyio
import session
from mcp.client import Client

warnings.simplefilter("ignore")  # the SDK calls its own logging tools deprecated


async def main(url):
    """One session in the handshake of 2025, which keeps its state in the server; ended with DELETE."""
    notes = session.Notes()

    async def on_log(params):
        notes.add(params.data)

    async with Client(url, mode="legacy", logging_callback=on_log) as client:

        async def call(name, arguments):
            return (await client.call_tool(name, arguments)).content[0].text

        results = await session.run(call, notes)
    session.report(results, notes)


anyio.run(main, sys.argv[1])
