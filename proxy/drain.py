"""The way out of service and back: not ready, no new connections, streams ended, nothing open.

A drain begins with SIGTERM or an operator's wish; only the former ends the process. What an operator
began can be undone at any time, also once everything has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from proxy.config.settings import Shutdown
from proxy.logs import Log
from proxy.server import Listener
from proxy.status import DRAINING, Readiness


class Service(Enum):
    """How far the proxy is out of service."""

    SERVING = "serving"
    DRAINING = "draining"
    """Not ready; streams are ending."""
    DRAINED = "drained"
    """Nothing is open and nobody can connect."""


class Drain:
    """The drain of one process. `shutdown` gives the times in force when one begins."""

    def __init__(
        self, listener: Listener, ready: Readiness, log: Log, shutdown: Callable[[], Shutdown]
    ) -> None:
        self._listener = listener
        self._ready = ready
        self._log = log
        self._shutdown = shutdown
        self._task: asyncio.Task[tuple[float, int]] | None = None

    @property
    def service(self) -> Service:
        """How far it has come."""
        if self._task is None:
            return Service.SERVING
        return Service.DRAINED if self._task.done() else Service.DRAINING

    def begin(self) -> None:
        """Begin, unless it has begun."""
        if self._task is None:
            self._ready.set_reason(DRAINING)
            self._task = asyncio.get_running_loop().create_task(self._run(self._shutdown()))

    async def finished(self) -> tuple[float, int]:
        """Wait for the end of a drain that has begun: the seconds it took, and how many streams were cut."""
        assert self._task is not None
        return await asyncio.shield(self._task)

    async def undo(self) -> None:
        """Take clients again, if a drain has begun. Raises ListenFailed if the address was taken meanwhile."""
        task, self._task = self._task, None
        if task is None:
            return
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        try:
            await self._listener.resume()
        except Exception:
            self._task = task
            raise
        self._ready.clear(DRAINING)
        self._log.event("drain.finished", undone=True)

    async def _run(self, shutdown: Shutdown) -> tuple[float, int]:
        loop, listener = asyncio.get_running_loop(), self._listener
        began = loop.time()
        self._log.event("drain.started", delay_s=shutdown.delay_s, spread_s=shutdown.spread_s,
                        deadline_s=shutdown.deadline_s, open_streams=listener.open_exchanges)  # fmt: skip
        listener.wind_down()
        await asyncio.sleep(shutdown.delay_s)
        left = max(0.0, shutdown.deadline_s - (loop.time() - began))
        cut = await listener.drain(min(shutdown.spread_s, left), left)
        took_s = round(loop.time() - began, 3)
        self._log.event("drain.finished", took_s=took_s, streams_cut=cut)
        return took_s, cut
