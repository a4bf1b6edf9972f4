"""Starts the real servers and clients that `setup.sh` installed, and ends them with all they started."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.forkwatch_process import free_port

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".peers"
START_TIMEOUT_S = 25.0
CLIENT_TIMEOUT_S = 40.0

MCP1 = str(PEERS / "mcp1/bin/python")
MCP2 = str(PEERS / "mcp2/bin/python")
NODE = [str(PEERS / "bin/node"), "--preserve-symlinks-main"]
MODULES = PEERS / "npm/node_modules"
SERVERS, CLIENTS = HERE / "servers", HERE / "clients"

Command = Callable[[int], list[str]]

SERVER_COMMANDS: dict[str, Command] = {
    "py1-uuid": lambda port: [MCP1, str(SERVERS / "py1.py"), str(port), "uuid"],
    "py1-int": lambda port: [MCP1, str(SERVERS / "py1.py"), str(port), "int"],
    "py1-resurrect-int": lambda port: [MCP1, str(SERVERS / "py1_resurrect.py"), str(port), "int"],
    "py2-uuid": lambda port: [MCP2, str(SERVERS / "py2.py"), str(port), "uuid"],
    "py2-int": lambda port: [MCP2, str(SERVERS / "py2.py"), str(port), "int"],
    "fastmcp": lambda port: [MCP2, str(SERVERS / "fast.py"), str(port)],
    "ts1": lambda port: [*NODE, str(PEERS / "npm/ts1.mjs"), str(port)],
    "mcp-proxy": lambda port: [
        *[
            NODE[0],
            str(MODULES / "mcp-proxy/dist/bin/mcp-proxy.mjs"),
            "--port",
            str(port),
            "--host",
            "127.0.0.1",
        ],
        *["--server", "stream", "--", MCP1, str(SERVERS / "py1.py"), "stdio"],
    ],
    "everything": lambda port: [
        *[NODE[0], str(MODULES / "@modelcontextprotocol/server-everything/dist/index.js"), "streamableHttp"]
    ],
    # These have what the conformance suite calls.
    "suite-py1": lambda port: [MCP1, str(SERVERS / "suite_py1.py"), str(port)],
    "suite-py2": lambda port: [MCP2, str(SERVERS / "suite_py2.py"), str(port)],
    "suite-ts1": lambda port: [*NODE, str(PEERS / "npm/suite_ts1.mjs"), str(port)],
    "suite-ts2": lambda port: [*NODE, str(PEERS / "npm/suite_ts2.mjs"), str(port)],
}
"""How each peer server is started on a port; server-everything takes it from the environment."""

CLIENT_COMMANDS: dict[str, list[str]] = {
    "mcp 1.30": [MCP1, str(CLIENTS / "mcp1.py")],
    "mcp 2.3": [MCP2, str(CLIENTS / "mcp2.py")],
    "fastmcp 4.2": [MCP2, str(CLIENTS / "fastmcp_client.py")],
    "npm sdk 1.32": [*NODE, str(PEERS / "npm/sdk.mjs")],
    "npm client 2.4": [*NODE, str(PEERS / "npm/client.mjs")],
}


class Server:
    """One real MCP server on a port of its own, its output in a file."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.port = name, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.output = directory / f"{name}.txt"

    async def start(self) -> None:
        """Start the process and return once it answers HTTP; RuntimeError with its output if never."""
        with self.output.open("ab") as out:
            self.process = subprocess.Popen(
                SERVER_COMMANDS[self.name](self.port),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, "PORT": str(self.port)},
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        async with aiohttp.ClientSession() as http:
            while not await self._answers(http):
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError(f"{self.name} did not start: {self.output.read_text()[-800:]}")
                await asyncio.sleep(0.05)

    async def _answers(self, http: aiohttp.ClientSession) -> bool:
        try:
            async with http.post(f"{self.url}/mcp", json={}) as response:
                return bool(response.status)
        except (aiohttp.ClientError, OSError):
            return False

    def kill(self) -> None:
        """End the server and what it started, as a crash would."""
        with contextlib.suppress(ProcessLookupError):  # gone already
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(5)


async def run_client(name: str, url: str) -> dict[str, Any]:
    """What the real client saw in one session with `url`; RuntimeError with its words if it failed."""
    process = await asyncio.create_subprocess_exec(
        *CLIENT_COMMANDS[name], url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), CLIENT_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{name} exited with {process.returncode}: {err.decode()[-1200:]}")
    seen: dict[str, Any] = json.loads(out.splitlines()[-1])
    return seen
