"""A careless balancer: each new TCP connection goes where it points now, whatever session it belongs to.

It is told where to point, and can hold new connections meanwhile, so that what the demo shows is decided
by the demo and not by chance.
"""

from __future__ import annotations

import asyncio
import contextlib

READ_BYTES = 65536


class Balancer:
    """Copies bytes between each connection and the replica it was given when it came."""

    def __init__(self) -> None:
        """Nothing is accepted before `start`; connections wait until `point_at`."""
        self._target = 0
        self._open = asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen on a free port of the loopback interface and return it."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def point_at(self, port: int) -> None:
        """Send new connections to the replica on `port`, those on hold included."""
        self._target = port
        self._open.set()

    def hold(self) -> None:
        """Let new connections wait until the next `point_at`; those that are open go on."""
        self._open.clear()

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.create_task(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Join one connection to a replica until either end closes, then close both."""
        try:
            await self._open.wait()
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        except asyncio.CancelledError:
            writer.close()
            raise
        copies = [asyncio.create_task(_copy(reader, there[1])), asyncio.create_task(_copy(there[0], writer))]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
            there[1].close()
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Return when `reader` ends or either connection is lost."""
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(READ_BYTES):
            writer.write(chunk)
            await writer.drain()
