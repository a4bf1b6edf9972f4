"""The status and the admin listener as aiohttp serves them, with a bounded number of connections.

Whoever reaches one of them could otherwise take all the descriptors that the streams need. The oldest
connection gives way and not the newest: probes and scrapes get through, whoever holds the others.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp import web

MAX_CONNECTIONS = 64
"""Of one listener. A probe, a scraper and people with a browser are a handful."""


async def listen(runner: web.AppRunner, where: socket.socket | tuple[str, int]) -> asyncio.Server:
    """Accept connections for `runner`, which was set up, on a bound socket or at an address.

    Close what this returns, then clean `runner` up. Raises OSError if the address cannot be used.
    """
    served = runner.server
    assert served is not None

    def connection() -> asyncio.Protocol:
        crowd = served.connections
        for oldest in crowd[: max(0, len(crowd) - MAX_CONNECTIONS + 1)]:
            oldest.force_close()
        return served()

    loop = asyncio.get_running_loop()
    if isinstance(where, socket.socket):
        return await loop.create_server(connection, sock=where)
    return await loop.create_server(connection, *where)
