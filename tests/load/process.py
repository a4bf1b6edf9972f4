"""The proxy under load: its configuration, its log as it is written, and what it costs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from tests import forkwatch_process
from tests.forkwatch_process import Forkwatch, free_port
from tests.load.dialects import DIALECTS
from tests.wire import rss_bytes

_POLL_S = 0.02
_STOP_S = 15.0
_JUDGED = b'"event":"resume.judged"'
SESSION_IDLE_S = 120
"""Longer than any client here is away."""
QUARANTINE_TTL_S = 5

_LOG_TIME = re.compile(rb'^\{"ts":"([^"]+)"', re.MULTILINE)

Hear = Callable[[Mapping[str, Any]], None]


class Proxy:
    """A forkwatch process with one upstream for each dialect, all on one port."""

    def __init__(
        self, directory: Path, port: int, mode: str, deadline_s: float, *, defect: str = "", log: str = "file"
    ) -> None:
        """`log`: where it goes: a `file`, a `full` disk, a pipe whose reader is `gone`, a `closed` descriptor."""
        self.log_to = log
        self.defect = defect
        self.admin_port = free_port()
        upstreams = [
            {
                "name": dialect.name,
                "url": f"http://127.0.0.1:{port}",
                "match": {"path": f"/{dialect.name}"},
                "mode": mode,
                "ids": dialect.ids,
                "replay_deadline": f"{deadline_s}s",
                "enforce": {"quarantine_ttl": f"{QUARANTINE_TTL_S}s"},
            }
            for dialect in DIALECTS
        ]
        self.forkwatch = Forkwatch(
            upstreams,
            directory,
            admin=f"127.0.0.1:{self.admin_port}",
            limits={"session_idle": f"{SESSION_IDLE_S}s"},
            log={"format": "json"},  # sessions are hashed, as the admin feed always tells them
        )
        self.log_file = directory / "stdout.jsonl"

    def start(self) -> None:
        """Start it, with its log where it is to go."""
        reader = -1
        if self.log_to == "full":
            self.log_file.symlink_to("/dev/full")
        elif self.log_to == "gone":
            os.mkfifo(self.log_file)
            reader = os.open(self.log_file, os.O_RDONLY | os.O_NONBLOCK)
        usual = forkwatch_process.COMMAND
        if self.defect:
            forkwatch_process.COMMAND = [sys.executable, "-m", *_launcher(self.defect), "run", "--config"]
        elif self.log_to == "closed":
            forkwatch_process.COMMAND = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *usual]
        try:
            self.forkwatch.start()
        finally:
            forkwatch_process.COMMAND = usual
            if reader >= 0:
                os.close(reader)

    def stop(self) -> int:
        """Ask it to end and give it time for what it has in memory; its exit status."""
        self.forkwatch.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.forkwatch.process.wait(_STOP_S)
        return self.forkwatch.stop()

    async def listen(self, hear: Hear) -> None:
        """Hear every verdict, until cancelled: from the log, or where that is broken from the admin feed."""
        if self.log_to == "file":
            await self._tail(hear)
        else:
            await self._feed(hear)

    async def _tail(self, hear: Hear) -> None:
        rest = b""
        with self.log_file.open("rb") as log:
            while True:
                lines = (rest + log.read()).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    if _JUDGED in line:
                        hear(orjson.loads(line))
                await asyncio.sleep(_POLL_S)

    async def _feed(self, hear: Hear) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin_port, limit=1 << 20)
        head = f"GET /api/v1/events?event=resume.judged HTTP/1.1\r\nHost: 127.0.0.1:{self.admin_port}\r\n\r\n"
        writer.write(head.encode())
        with contextlib.closing(writer):
            while line := await reader.readline():
                if line.startswith(b"data: {") and _JUDGED in line:
                    hear(orjson.loads(line[6:]))

    def went_back(self) -> int:
        """How often a line of the log bears an earlier time than the line before."""
        times = _LOG_TIME.findall(self.log_file.read_bytes())
        return sum(later < earlier for earlier, later in itertools.pairwise(times))

    async def admin(self, path: str) -> int:
        """The status of a page of the admin interface."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin_port)
        with contextlib.closing(writer):
            host = f"Host: 127.0.0.1:{self.admin_port}\r\nConnection: close\r\n\r\n"
            writer.write(f"GET {path} HTTP/1.1\r\n{host}".encode())
            answer = await asyncio.wait_for(reader.read(), 30)
        return int(answer.split(b" ", 2)[1])

    def fds(self) -> int:
        """Descriptors it holds now."""
        return len(os.listdir(f"/proc/{self.forkwatch.process.pid}/fd"))

    def rss(self) -> int:
        """Its resident memory, in bytes."""
        return rss_bytes(self.forkwatch.process.pid)

    async def ledger(self) -> int:
        """Memory its ledgers account for, in bytes."""
        return int((await self.forkwatch.metrics())["forkwatch_ledger_bytes", frozenset()])

    def cpu_s(self) -> float:
        """Processor time it has used."""
        fields = Path(f"/proc/{self.forkwatch.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _launcher(defect: str) -> list[str]:
    return ["tests.load.stepping"] if defect == "stepping" else ["tests.load.launcher", defect]
