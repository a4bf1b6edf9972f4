"""The processes that the demo starts, each with the JSON lines it prints, and their end in any case."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

START_TIMEOUT_S = 30.0
EVENT_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 3.0
_LAST_WORDS = 600
PACKAGES = Path(__file__).parents[2]
"""Where `python -m` finds this package first, whatever lies in the directory the demo was started in."""

Line = dict[str, Any]


class DemoFailed(Exception):
    """The story cannot go on; the message says what happened instead."""


class Child:
    """One process of ours, `python -m MODULE ARGUMENT...`, in a process group of its own.

    A group of its own, so that Ctrl-C reaches the demo alone, which then ends its children in order.
    """

    def __init__(self, name: str, directory: Path, *argv: str) -> None:
        """`name` is for people; what it prints goes to files in `directory` as well."""
        self.name = name
        self._argv = argv
        self._errors = directory / f"{name.replace(' ', '-')}.txt"
        self.output = directory / f"{name.replace(' ', '-')}.jsonl"
        """All it printed so far."""
        self._lines: asyncio.Queue[Line | None] = asyncio.Queue()
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process's id, None before its start."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process. What it needs until it is ready, `wait_for` waits for."""
        # The settings of whoever runs the demo are for a proxy of their own.
        env = {name: value for name, value in os.environ.items() if not name.startswith("FORKWATCH")}
        with self._errors.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                env=env,
                cwd=PACKAGES,
                start_new_session=True,
            )
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        with self.output.open("wb", buffering=0) as copy:
            while raw := await self._process.stdout.readline():
                copy.write(raw)
                with contextlib.suppress(ValueError):  # not JSON: not for us
                    self._lines.put_nowait(json.loads(raw))
        self._lines.put_nowait(None)

    async def wait_for(self, event: str, *, timeout_s: float = EVENT_TIMEOUT_S, **fields: object) -> Line:
        """The next line of this event with these fields; lines before it are passed over.

        Raises DemoFailed after `timeout_s` seconds, or at once if the process ends.
        """
        said = "nothing"
        try:
            async with asyncio.timeout(timeout_s):
                while (line := await self._lines.get()) is not None:
                    said = str(line.get("event"))
                    if line.get("event") == event and fields.items() <= line.items():
                        return line
        except TimeoutError:
            words = f"{self.name} did not say {event} within {timeout_s:g} s; the last it said was {said}"
            raise DemoFailed(words) from None
        raise DemoFailed(f"{self.name} ended: {self._errors.read_text(errors='replace')[-_LAST_WORDS:]}")

    def tell(self, line: str) -> None:
        """Write one line to the process."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    async def stop(self) -> None:
        """Ask the process to end, and end it if it takes too long. Does nothing if there is none."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            self.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    def kill(self) -> None:
        """End the process at once, if it lives."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        # Not by the process object: that reaps a process that is gone already, and asyncio misses it.
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)
