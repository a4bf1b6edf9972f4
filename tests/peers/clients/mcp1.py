"""A session of the first generation of the official Python client. Usage: mcp1.py URL."""

import sys

import anyio
import session
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client


async def main(url):
    """One session, ended with DELETE."""
    notes = session.Notes()

    async def on_log(params):
        notes.add(params.data)

    async with (
        streamable_http_client(url) as (read, write, _),
        ClientSession(read, write, logging_callback=on_log) as client,
    ):
        await client.initialize()

        async def call(name, arguments):
            return (await client.call_tool(name, arguments)).content[0].text

        results = await session.run(call, notes)
    session.report(results, notes)


anyio.run(main, sys.argv[1])
