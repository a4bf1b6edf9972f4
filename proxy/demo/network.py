"""The network between the demo's client and the proxy: it shows what passes, and loses it when told to.

What it loses was sent, and reached the client's machine, but never the client: the connection is closed
under it. That is what makes a resume necessary, and what a correct replay makes good.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import NamedTuple

import httpx2
import orjson

from proxy.engine.sse import Frame, Scanner

COMMENT = re.compile(rb"^: (forkwatch [^\r\n]*)", re.MULTILINE)
"""What the proxy adds to a stream in `annotate`."""


class Event(NamedTuple):
    """One event as it passed: its id, None without one, and what it says; '' for a priming event."""

    id: str | None
    text: str


@dataclass(slots=True)
class Attachment:
    """One connection of a call's stream. `cursor` is its Last-Event-ID, None for the call itself."""

    cursor: str | None
    arrived: list[Event]
    lost: list[Event]
    comments: list[str]


class Network(httpx2.AsyncBaseTransport):
    """The HTTP transport of one client. `attachments` grows with each stream of a call or resume of one."""

    def __init__(self) -> None:
        """Begin as a network that loses nothing."""
        self.attachments: list[Attachment] = []
        self._inner = httpx2.AsyncHTTPTransport()
        self._on_lost: Callable[[], None] | None = None
        self._passing = 0

    def lose_after(self, messages: int, on_lost: Callable[[], None]) -> None:
        """Forget what passed; drop the next stream when more than `messages` come, and call `on_lost`."""
        self.attachments.clear()
        self._passing, self._on_lost = messages, on_lost

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; a stream of a call is watched, all else passes."""
        response = await self._inner.handle_async_request(request)
        cursor = request.headers.get("last-event-id")
        streams = response.headers.get("content-type", "").startswith("text/event-stream")
        if streams and (cursor is not None or request.method == "POST"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            attachment = Attachment(cursor, [], [], [])
            self.attachments.append(attachment)
            response.stream = _Watched(response.stream, attachment, self._passing, self._on_lost)
            self._on_lost = None
        return response

    async def aclose(self) -> None:
        """Close every connection."""
        await self._inner.aclose()


class _Watched(httpx2.AsyncByteStream):
    """A response body that is read frame by frame, and ends in an error once something is lost."""

    def __init__(
        self,
        inner: httpx2.AsyncByteStream,
        attachment: Attachment,
        passing: int,
        on_lost: Callable[[], None] | None,
    ) -> None:
        self._inner = inner
        self._attachment = attachment
        self._passing = passing
        self._on_lost = on_lost
        self._scanner = Scanner()
        self._answered = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        attachment = self._attachment
        async for chunk in self._inner:
            base, keep = self._scanner.offset, len(chunk)
            for frame in self._scanner.feed(chunk):
                if attachment.lost or self._is_lost(frame):
                    keep = min(keep, max(0, frame.start - base))
                    attachment.lost.append(_event(frame))
                elif not self._answered:  # what follows an answer, the client does not wait for
                    attachment.arrived.append(_event(frame))
                    self._answered = b'"result"' in (frame.payload or b"")
            attachment.comments += [found.decode() for found in COMMENT.findall(chunk)]
            if attachment.lost and self._on_lost is not None:
                await self._inner.aclose()
                self._on_lost()
                if keep:
                    yield chunk[:keep]
                raise httpx2.ReadError("the network is gone")
            yield chunk

    def _is_lost(self, frame: Frame) -> bool:
        if self._on_lost is None or not frame.payload:
            return False
        return sum(1 for event in self._attachment.arrived if event.text) >= self._passing

    async def aclose(self) -> None:
        await self._inner.aclose()


def _event(frame: Frame) -> Event:
    """What one frame says to a person."""
    id = None if frame.id is None else frame.id.decode()
    if not frame.payload:
        return Event(id, "")
    message = orjson.loads(frame.payload)
    if "result" in message:
        return Event(id, message["result"].get("content", [{"text": "result"}])[0]["text"])
    if "error" in message:
        return Event(id, message["error"]["message"])
    return Event(id, message["params"].get("message", message["method"]))
