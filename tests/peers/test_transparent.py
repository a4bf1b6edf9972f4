"""In observe, what real servers answer comes through to the byte: what differs is listed here, whole.

The same requests, with the same Host, go to one process of a server directly and to another through forkwatch.
Compared are the status line, every header line with its case and in its order, the body, and how it ended.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.forkwatch_process import Counters, Forkwatch
from tests.peers.conversation import ACCEPT, HOST, JSON, Answer, Conversation
from tests.peers.processes import Server
from tests.wire import Client

LATEST, SESSIONLESS = "2025-11-25", "2026-07-28"
EVENT_ID = re.compile(rb"^id: ?(\S+)", re.MULTILINE)

HOP_BY_HOP = re.compile(r"(connection|keep-alive): ", re.IGNORECASE)
"""The header lines of a server that are for its own connection alone (RFC 9110, section 7.6.1)."""


@dataclass(frozen=True)
class Peer:
    """A server, as far as the requests must know it, and the header lines that go and come on the way."""

    tool: str
    """It sends messages on its stream, then answers."""
    last: bytes
    """What the answer says."""
    changed: set[str]
    arguments: dict[str, Any] = field(default_factory=lambda: {"n": 3, "ms": 30, "tag": "c"})
    pokes: bool = True
    """A tool `poke` sends on the standalone stream."""
    listens: bool = True
    """The standalone stream's head comes before its first event."""


PYTHON = Peer("count", b"done c 3", {"-connection: keep-alive"})
NODE = {"-Connection: keep-alive", "-Keep-Alive: timeout=5", "-connection: keep-alive"}
PATIENT_NODE = NODE - {"-Keep-Alive: timeout=5"} | {"-Keep-Alive: timeout=300"}
PEERS: dict[str, Peer] = {
    "py1-int": PYTHON,
    "py2-int": PYTHON,
    "fastmcp": PYTHON,
    "ts1": replace(PYTHON, changed=NODE),
    "mcp-proxy": replace(PYTHON, changed=PATIENT_NODE, tool="steps"),
    "everything": Peer(
        "trigger-long-running-operation",
        b"operation completed",
        NODE,
        {"duration": 0.2, "steps": 2},
        pokes=False,
    ),
    "suite-ts2": Peer(
        "test_tool_with_logging", b"Logged three messages", NODE, {}, pokes=False, listens=False
    ),
}


def request(number: int | str, method: str, **params: Any) -> dict[str, Any]:
    """A JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def tool_call(number: int, name: str, **arguments: Any) -> dict[str, Any]:
    """A call of a tool that may report its progress."""
    return request(number, "tools/call", name=name, arguments=arguments, _meta={"progressToken": number})


CLIENT = {"name": "wire", "version": "1"}
INITIALIZE = request(0, "initialize", protocolVersion=LATEST, capabilities={}, clientInfo=CLIENT)
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": SESSIONLESS,
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def converse(port: int, peer: Peer) -> dict[str, Answer]:
    """All the requests, in the same order every time."""
    talk = Conversation(port)
    await ask_around(talk)
    await without_a_session(talk)
    await open_session(talk)
    await use_session(talk, peer)
    await listen(talk, peer)
    await misuse_session(talk)
    await misuse_protocol(talk)
    await end_session(talk)
    return talk.answers


async def ask_around(talk: Conversation) -> None:
    """Other methods, a preflight, other paths and oddly written ones."""
    await talk.ask("HEAD", "HEAD /mcp", ACCEPT)
    preflight = ["Origin: http://localhost:8000", "Access-Control-Request-Method: POST"]
    await talk.ask("OPTIONS", "OPTIONS /mcp", *preflight)
    for method in ("PUT", "PATCH"):
        await talk.ask(method, f"{method} /mcp", JSON, "Content-Length: 2", body=b"{}")
    for path in (
        "/",
        "/nope",
        "/sse",
        "/mcp%2Fnope",
        "/a%2F..%2Fmcp?x=%2F&y=a+b",
        "/.well-known/oauth-protected-resource",
    ):
        await talk.ask(f"GET {path}", f"GET {path}", ACCEPT)
    await talk.ask("POST elsewhere", "POST /mcp/nope/", ACCEPT, JSON, "Content-Length: 2", body=b"{}")


async def without_a_session(talk: Conversation) -> None:
    """Foreign Hosts and Origins, a cursor of no session, and the sessionless requests of 2026-07-28."""
    await talk.post("a foreign Host", INITIALIZE, host="evil.example")
    await talk.post("a foreign Origin", INITIALIZE, "Origin: http://evil.example")
    await talk.post("a cursor without a session", INITIALIZED, "Last-Event-ID: 1")
    for method, params in (
        ("server/discover", {}),
        ("tools/list", {}),
        ("tools/call", {"name": "no-such-tool", "arguments": {}}),
    ):
        named = [f"Mcp-Name: {params['name']}"] if "name" in params else []
        fields = [f"MCP-Protocol-Version: {SESSIONLESS}", f"Mcp-Method: {method}", *named]
        await talk.post(f"sessionless {method}", request(1, method, **params, _meta=ENVELOPE), *fields)


async def open_session(talk: Conversation) -> None:
    """The handshake."""
    client = await Client.connect(talk.port)
    body = json.dumps(INITIALIZE).encode()
    client.request("POST /mcp", ACCEPT, JSON, f"Content-Length: {len(body)}", host=HOST, body=body)
    head = await client.head()
    await talk.keep("initialize", client, head, None)
    client.leave()
    session_id = head.one(b"Mcp-Session-Id")
    assert session_id is not None
    talk.session = [f"Mcp-Session-Id: {session_id.decode()}", f"MCP-Protocol-Version: {LATEST}"]
    await talk.post("initialized", INITIALIZED)


async def use_session(talk: Conversation, peer: Peer) -> None:
    """Calls with an answer and with a stream, and resumes."""
    await talk.post("tools/list", request(1, "tools/list"))
    await talk.post("a string id", request("two", "ping"))
    await talk.post("an unknown method", request(3, "no/such"))
    await talk.post("an unknown tool", tool_call(4, "no-such-tool"))
    called = await talk.post("tools/call", tool_call(5, peer.tool, **peer.arguments))
    cursor = EVENT_ID.findall(called)[-2].decode()
    fields = [ACCEPT, *talk.session]
    await talk.ask("resume", "GET /mcp", *fields, f"Last-Event-ID: {cursor}", until=peer.last)
    await talk.ask("resume an unknown cursor", "GET /mcp", *fields, "Last-Event-ID: no-such-id", until=b"")


async def listen(talk: Conversation, peer: Peer) -> None:
    """The standalone stream, and a second one beside it."""
    if not peer.listens:
        return
    standalone = await Client.connect(talk.port)
    standalone.request("GET /mcp", ACCEPT, *talk.session, host=HOST)
    head = await standalone.head()
    await talk.ask("a second standalone stream", "GET /mcp", ACCEPT, *talk.session, until=b"")
    if peer.pokes:
        await talk.post("poke", tool_call(6, "poke", n=2))
    await talk.keep("the standalone stream", standalone, head, b"g1" if peer.pokes else b"")
    standalone.leave()


async def misuse_session(talk: Conversation) -> None:
    """Sessions and revisions that the server does not know."""
    session_id, revision = talk.session
    talk.session = ["Mcp-Session-Id: no-such-session", revision]
    await talk.post("an unknown session", request(7, "tools/list"))
    await talk.ask("GET in an unknown session", "GET /mcp", ACCEPT, *talk.session, until=b"")
    talk.session = [session_id, "MCP-Protocol-Version: 1999-01-01"]
    await talk.post("an unknown revision", request(8, "tools/list"))
    talk.session = [session_id, revision]


async def misuse_protocol(talk: Conversation) -> None:
    """Wrong types, no JSON, headers that come twice, and an upload in chunks."""
    body = json.dumps(request(9, "tools/list")).encode()
    rest = [*talk.session, f"Content-Length: {len(body)}"]
    await talk.ask("a wrong Accept", "POST /mcp", "Accept: text/plain", JSON, *rest, body=body)
    await talk.ask("no Accept", "POST /mcp", JSON, *rest, body=body)
    await talk.ask("GET with a wrong Accept", "GET /mcp", "Accept: application/json", *talk.session)
    await talk.ask("a wrong type", "POST /mcp", ACCEPT, "Content-Type: text/plain", *rest, body=body)
    await talk.ask("no type", "POST /mcp", ACCEPT, *rest, body=body)
    twice = ["Accept: application/json", "Accept: text/event-stream", "X-Twice: one", "x-twice: two"]
    await talk.ask("headers twice", "POST /mcp", *twice, JSON, *rest, body=body)
    fields = [ACCEPT, JSON, *talk.session, "Transfer-Encoding: chunked"]
    in_chunks = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (10, body[:10], len(body) - 10, body[10:])
    await talk.ask("a chunked upload", "POST /mcp", *fields, body=in_chunks)
    await talk.post("no JSON", b"{")
    await talk.post("an empty body", b"")
    await talk.post("no JSON-RPC", {"hello": "world"})


async def end_session(talk: Conversation) -> None:
    """The end, and what comes after it."""
    await talk.ask("DELETE", "DELETE /mcp", ACCEPT, *talk.session)
    await talk.post("a call after the end", request(10, "tools/list"))
    await talk.ask("DELETE again", "DELETE /mcp", ACCEPT, *talk.session)


def allowed(direct: Answer) -> Answer:
    """The only answer that may come through for what the server said."""
    return replace(direct, head=[line for line in direct.head if not HOP_BY_HOP.match(line)])


def changed(direct: Answer, proxied: Answer) -> set[str]:
    """The lines of the head that went (`-`) and came (`+`)."""
    lines = difflib.ndiff(direct.head, proxied.head)
    return {f"{line[0]}{line[2:]}" for line in lines if line[0] in "+-"}


@pytest.mark.parametrize("name", PEERS)
async def test_answers_come_through_to_the_byte(name: str, tmp_path: Path) -> None:
    """Of all answers of this server only the listed header lines are not the same through the proxy."""
    servers = [Server(name, tmp_path / "direct"), Server(name, tmp_path / "proxied")]
    for server in servers:
        server.output.parent.mkdir()
    proxy = Forkwatch([{"name": name, "url": servers[1].url, "mode": "observe"}], tmp_path)
    try:
        await asyncio.gather(*(server.start() for server in servers))
        counters = await Counters.since_now(proxy.start())
        ports = [servers[0].port, proxy.port]
        direct, proxied = await asyncio.gather(*(converse(port, PEERS[name]) for port in ports))
        assert await counters.grown("fail_open_total") == 0
        assert await counters.grown("http_requests_total") == len(proxied)
    finally:
        for server in servers:
            server.kill()
        proxy.stop()
    assert proxied == {what: allowed(answer) for what, answer in direct.items()}
    assert set().union(*(changed(direct[what], proxied[what]) for what in direct)) == PEERS[name].changed
