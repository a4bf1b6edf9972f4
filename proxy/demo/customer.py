"""A customer of the demo's bank: a session of the official Python client, over a network that can be lost.

The client resumes by itself: when a call's stream breaks it comes back with `Last-Event-ID`, as it does in
any program that uses the SDK.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import TextContent

from proxy.demo.children import DemoFailed
from proxy.demo.network import Network

PATIENCE_S = 8.0
"""How long a customer waits for an answer: what hangs has to end while someone watches."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to, as the program that made it sees it."""

    text: str
    failed: bool = False


class Customer:
    """One session; `network` is what its requests pass through."""

    def __init__(self, name: str, client: Client, network: Network) -> None:
        """Made by `visit`."""
        self.name = name
        self.network = network
        self._client = client

    async def ask(self, steps: int) -> Answer:
        """Ask for the customer's own balance, added up in so many steps. Failure is an answer too."""
        arguments = {"account": self.name, "steps": steps}
        try:
            result = await self._client.call_tool(
                "balance", arguments, PATIENCE_S, progress_callback=_ignore_progress
            )
        except MCPError as error:
            return Answer(str(error), failed=True)
        content = result.content[0]
        text = content.text if isinstance(content, TextContent) else content.type
        return Answer(text, failed=bool(result.is_error))


@asynccontextmanager
async def visit(name: str, url: str) -> AsyncIterator[Customer]:
    """A session at `url` for as long as the block runs, ended with DELETE. Raises DemoFailed without one."""
    logging.getLogger("mcp").addHandler(logging.NullHandler())  # its warnings are not part of the story
    network = Network()
    async with (
        httpx2.AsyncClient(transport=network, timeout=httpx2.Timeout(PATIENCE_S, read=None)) as http,
        AsyncExitStack() as stack,
    ):
        # The handshake of 2025: the session, and the log behind it, is kept by the server.
        client = Client(streamable_http_client(url, http_client=http), mode="legacy", cache=None)
        try:
            await stack.enter_async_context(client)
        except (MCPError, ExceptionGroup) as error:
            raise DemoFailed(f"{name}'s client could not open a session: {error}") from error
        yield Customer(name, client, network)


async def _ignore_progress(progress: float, total: float | None, message: str | None) -> None:
    """Asking for progress is what makes the server send it."""
