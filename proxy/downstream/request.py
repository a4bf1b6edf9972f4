"""One request as it was read: its head as on the wire, and its body as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.engine.headers import Fields

HIGH_BYTES = 64 * 1024
"""Of a body, not taken yet: above it the client is read no further."""


class Upload:
    """A request's body on its way: what has come and was not taken. Back-pressure bounds it."""

    __slots__ = ("_chunks", "_flow", "_size", "_waiting", "complete")

    def __init__(self, flow: Callable[[bool], None]) -> None:
        """`flow` is called with False when the client should be read no further, with True when again."""
        self._chunks: list[bytes] = []
        self._size = 0
        self._flow = flow
        self._waiting: asyncio.Future[None] | None = None
        self.complete = False
        """The last byte has come."""

    def feed(self, data: bytes) -> None:
        """More of the body has come."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size > HIGH_BYTES:
            self._flow(False)
        self._wake()

    def finish(self) -> None:
        """That was all of it."""
        self.complete = True
        self._wake()

    def take(self) -> bytes:
        """All that has come and was not taken."""
        if not self._chunks:
            return b""
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        if self._size > HIGH_BYTES:
            self._flow(True)
        self._size = 0
        return data

    @property
    def at_end(self) -> bool:
        """Whether all has come and was taken."""
        return self.complete and not self._chunks

    async def read(self) -> bytes:
        """What comes next, b"" at the end. Waits for ever if the client sends nothing more."""
        while not self._chunks and not self.complete:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self.take()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


class Request:
    """A head that is complete, with the body that follows it."""

    __slots__ = ("body", "headers", "keep_alive", "method", "names", "old", "size", "target", "version")

    def __init__(
        self,
        method: str,
        target: bytes,
        version: str,
        headers: Fields,
        body: Upload,
        *,
        size: int,
        keep_alive: bool,
    ) -> None:
        """`target` and `headers` are the bytes as sent, fields in their order."""
        self.method = method
        self.target = target
        self.version = version
        self.old = version == "1.0"
        """The client speaks HTTP/1.0."""
        self.headers = headers
        self.names = [name.lower() for name, _ in headers]
        """The names of the fields in lower case, in their order."""
        self.body = body
        self.size = size
        """The bytes of the head, or more: where that cannot matter they are not counted one by one."""
        self.keep_alive = keep_alive
        """The client would send more requests on this connection."""

    def values(self, name: bytes) -> list[bytes]:
        """The values of each field of this name, given in lower case."""
        names = self.names
        count = names.count(name)
        if count == 0:
            return []
        if count == 1:
            return [self.headers[names.index(name)][1]]
        return [value for key, (_, value) in zip(names, self.headers, strict=True) if key == name]
