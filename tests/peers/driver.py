"""Real clients that a test drives step by step, each in a process of its own.

Times are monotonic seconds of this machine, the same clock in every process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.peers.processes import CLIENTS, MCP1, MCP2, NODE, PEERS

PATIENCE_S = 20.0
"""How long a step may take that must happen; on a busy machine a client needs seconds to start."""

COMMANDS: dict[str, list[str]] = {
    "mcp 1.30": [MCP1, str(CLIENTS / "drive.py"), "mcp1"],
    "mcp 2.3": [MCP2, str(CLIENTS / "drive.py"), "mcp2"],
    "fastmcp 4.2": [MCP2, str(CLIENTS / "drive.py"), "fastmcp"],
    "npm sdk 1.32": [*NODE, str(PEERS / "npm/drive_sdk.mjs")],
    "npm client 2.4": [*NODE, str(PEERS / "npm/drive_client.mjs")],
}
"""How each client is started."""

CUT_MESSAGE = "Session terminated: "
"""What a call is told that was pending when its session was cut."""
SESSION_ERRORS = {
    "mcp 1.30": (32600, "Session terminated"),
    "mcp 2.3": (-32001, "Session not found: "),
    "fastmcp 4.2": (-32001, "Session not found: "),
    "npm sdk 1.32": (404, "Session not found: "),
    "npm client 2.4": (404, "Session not found: "),
}
"""The code and words of each client for a session that is over: its own, those of the 404's body, or both."""


def missing(client: str) -> str | None:
    """Why this client cannot run here, None if it can."""
    if COMMANDS[client][0] == NODE[0] and not Path(NODE[0]).exists():
        return "no Node.js under .peers: see tests/peers/setup.sh"
    return None


def each_client() -> list[Any]:
    """A parameter for each client; those that cannot run here are skipped and say why."""
    return [
        pytest.param(name, id=name, marks=[pytest.mark.skip(reason=why)] if (why := missing(name)) else [])
        for name in COMMANDS
    ]


@dataclass(frozen=True)
class Outcome:
    """How a call ended: `result` with its text, `error` with its code and words, or `hang`."""

    kind: str
    text: str = ""
    code: int | None = None
    at: float = 0.0


HANG = Outcome("hang")


@dataclass
class Driver:
    """One client process: its client objects by name, and all it said so far."""

    name: str
    process: asyncio.subprocess.Process
    said: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def version(self) -> str:
        """The package and its version, as the process found it."""
        ready = next(each for each in self.said if each["event"] == "ready")
        return f"{ready['package']} {ready['version']}"

    async def open(self, client: str, url: str, stale: str | None = None) -> None:
        """Make a client object and a session of it; AssertionError with its words if it cannot.

        `stale` is a session id that goes along with `initialize`.
        """
        self._tell("open", client, url=url, stale=stale)
        await self._until("opened", client)

    def call(self, client: str, key: str, tool: str, **arguments: Any) -> None:
        """Call a tool; `outcome` of this key says how it ends. Keys are unique within the process."""
        self._tell("call", client, key=key, tool=tool, arguments=arguments)

    async def outcome(self, key: str, within_s: float = PATIENCE_S) -> Outcome:
        """How the call of this key ends, `HANG` if it does not within so many seconds."""
        try:
            said = await self._heard(
                lambda each: each.get("key") == key and each["event"] in ("result", "error"), within_s
            )
        except TimeoutError:
            return HANG
        return Outcome(said["event"], said["text"], said.get("code"), said["at"])

    async def note(self, client: str, text: str) -> None:
        """Return once the client object got this notification; TimeoutError if it never comes."""
        wanted = {"event": "note", "client": client, "text": text}
        await self._heard(lambda each: wanted.items() <= each.items(), PATIENCE_S)

    def notes(self, client: str) -> list[str]:
        """The texts of the notifications that the client object got, in order."""
        return [each["text"] for each in self.said if each["event"] == "note" and each["client"] == client]

    def faults(self, client: str) -> list[str]:
        """What the client object complained of outside its calls: unknown answers, lost streams."""
        return [each["text"] for each in self.said if each["event"] == "fault" and each["client"] == client]

    async def close(self, client: str) -> None:
        """End the session with DELETE, and the client object; AssertionError with its words if it cannot."""
        self._tell("close", client)
        await self._until("closed", client)

    def _tell(self, do: str, client: str, **what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, "client": client, **what}).encode() + b"\n")

    async def _until(self, event: str, client: str) -> None:
        said = await self._heard(
            lambda each: each.get("client") == client and each["event"] in (event, "failed"), PATIENCE_S
        )
        assert said["event"] == event, f"{self.name}: {said}"

    async def _heard(self, fits: Any, within_s: float) -> dict[str, Any]:
        """The first thing said that fits, said already or still to come; TimeoutError if it is not."""
        seen = 0
        async with asyncio.timeout(within_s):
            while True:
                self.changed.clear()
                for each in self.said[seen:]:
                    if fits(each):
                        return each
                seen = len(self.said)
                await self.changed.wait()

    async def listen(self) -> None:
        """Take note of what the process says, until it ends."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            self.said.append(json.loads(line))
            self.changed.set()

    async def stop(self) -> None:
        """End the process, gently first."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), 2)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


@asynccontextmanager
async def drivers(directory: Path) -> AsyncIterator[dict[str, Driver]]:
    """All clients that can run here, started and ready; they end with the block."""
    started: dict[str, Driver] = {}
    listening: list[asyncio.Task[None]] = []
    with contextlib.ExitStack() as files:
        try:
            for name in [name for name in COMMANDS if missing(name) is None]:
                log = files.enter_context((directory / f"{name}.txt").open("wb"))
                process = await asyncio.create_subprocess_exec(
                    *COMMANDS[name],
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    limit=2**20,
                )
                started[name] = Driver(name, process)
                listening.append(asyncio.create_task(started[name].listen()))
            for driver in started.values():
                await driver._heard(lambda each: each["event"] == "ready", PATIENCE_S)
            yield started
        finally:
            await asyncio.gather(*(driver.stop() for driver in started.values()))
            await asyncio.gather(*listening)
