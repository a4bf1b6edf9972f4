"""Requests to a real server byte by byte, and all that came back, so that two runs can be compared.

What a server makes anew in every run is replaced by names, nothing else is: `MADE_ANEW` is the whole list.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from tests.wire import Client, End, Head

HOST = "localhost:8000"
"""The Host of every request, wherever it goes: servers look at it, and build addresses of it."""
ACCEPT = "Accept: application/json, text/event-stream"
JSON = "Content-Type: application/json"

MADE_ANEW = {
    "date": re.compile(r"(?<=^date: ).*", re.IGNORECASE),
    "uuid": re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}(?![0-9a-f])"),
    "time": re.compile(r"(?<=_)\d{13}_[0-9a-z_]+"),
}
"""The Date; session ids and event ids, in their random part; the time in an event id with what follows it there."""

END_OF_FRAME = re.compile(rb"\r?\n\r?\n")


@dataclass
class Answer:
    """What came back: the head line by line, the body as far as it was read, and how it ended."""

    head: list[str]
    body: str
    end: End | None
    """None where the client left, because the stream goes on."""


@dataclass
class Conversation:
    """The requests of one run, each on a connection of its own, and their answers by what was asked."""

    port: int
    session: list[str] = field(default_factory=list)
    """The fields that put a request into a session."""
    answers: dict[str, Answer] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    async def post(self, what: str, message: Any, *fields: str, host: str = HOST) -> bytes:
        """POST a message, bytes as they are, in the session if there is one; returns the answer's body."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        head = [ACCEPT, JSON, *self.session, *fields, f"Content-Length: {len(body)}"]
        return await self.ask(what, "POST /mcp", *head, body=body, host=host)

    async def ask(
        self,
        what: str,
        line: str,
        *fields: str,
        body: bytes = b"",
        host: str = HOST,
        until: bytes | None = None,
    ) -> bytes:
        """Send a request, keep its answer, return the answer's body.

        Of an event stream that has no end the client reads the frame with `until` in it and leaves, with an empty
        one it leaves after the head.
        """
        client = await Client.connect(self.port)
        try:
            client.request(line, *fields, host=host, body=body)
            return await self.keep(what, client, await client.head(), until, line.startswith("HEAD "))
        finally:
            client.leave()

    async def keep(
        self, what: str, client: Client, head: Head, until: bytes | None, of_head: bool = False
    ) -> bytes:
        """Read the body that belongs to the head, keep both, return the body."""
        end: End | None
        kind = head.one(b"Content-Type") or b""
        if until is not None and kind.startswith(b"text/event-stream") and head.one(b"Transfer-Encoding"):
            body, end = await _frames(client, until), None
        else:
            body, end = await client.body(head, of_head=of_head)
        lines = [head.line, *(b"%b: %b" % each for each in head.fields)]
        assert what not in self.answers, what
        named = [self._named(each.decode("latin-1")) for each in lines]
        self.answers[what] = Answer(named, self._named(body.decode("latin-1")), end)
        return body

    def _named(self, text: str) -> str:
        """The text with a name for each thing made anew, the same whenever that comes again."""
        text = MADE_ANEW["date"].sub("<date>", text)
        for kind in ("uuid", "time"):
            text = MADE_ANEW[kind].sub(lambda found: self._name(found[0]), text)
        return text

    def _name(self, value: str) -> str:
        return self.names.setdefault(value, f"<name {len(self.names)}>")


async def _frames(client: Client, until: bytes) -> bytes:
    """A chunked event stream up to the end of the frame with `until` in it, or to its own end."""
    body = b""
    while until and (piece := await client.chunk()):
        body += piece
        if until in body and (end := END_OF_FRAME.search(body, body.index(until))):
            return body[: end.end()]
    return body
