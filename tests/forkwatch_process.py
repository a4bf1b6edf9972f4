"""A real forkwatch process for tests: its addresses, its counters, its log.

The process is started with a configuration file of its own and stopped with all that it started.
What it counted is read as differences, so that one process serves many tests.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

READY_TIMEOUT_S = 20.0
POLL_S = 0.02
ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "proxy", "run", "--config"]
SAMPLE = re.compile(r'^(forkwatch_\w+)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]
Verdicts = dict[tuple[str, str, str], int]
ALARMS = {"fork", "gap", "crossed", "rewound"}


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Forkwatch:
    """A running proxy. `port` serves clients, `status_port` the metrics."""

    def __init__(self, upstreams: list[dict[str, Any]], directory: Path, **top: Any) -> None:
        self.port, self.status_port = free_port(), free_port()
        self.directory = directory
        self.settings = {
            "listen": f"127.0.0.1:{self.port}",
            "status": f"127.0.0.1:{self.status_port}",
            "admin": None,
            "upstreams": upstreams,
            "log": {"format": "json", "session_ids": "raw"},
            "shutdown": {"delay": "0s", "spread": "0s", "deadline": "1s"},
            **top,
        }

    def start(self) -> Forkwatch:
        """Start the process and return once it is ready; RuntimeError with its last words if it dies."""
        config = self.directory / "forkwatch.yaml"
        config.write_text(json.dumps(self.settings))  # JSON is YAML
        self.log_file = self.directory / "stdout.jsonl"
        self.errors = self.directory / "stderr.txt"
        with self.log_file.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen(
                [*COMMAND, str(config)],
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                start_new_session=True,
            )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"forkwatch was not ready: {self.errors.read_text()[-800:]}")
            time.sleep(POLL_S)
        return self

    def configure(self, **top: Any) -> None:
        """Write the configuration file anew, with these keys changed; the process is not told."""
        self.settings = {**self.settings, **top}
        (self.directory / "forkwatch.yaml").write_text(json.dumps(self.settings))

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}/readyz", timeout=1):
                return True
        except (OSError, HTTPException):
            return False

    def stop(self) -> int:
        """Ask the process to drain, end its group after three seconds, and return its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(3)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
        return self.process.wait(5)

    async def fetch(self, path: str) -> tuple[int, str]:
        """The status and body of a page of the status listener."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.status_port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        try:
            raw = await asyncio.wait_for(reader.read(), 5)
        finally:
            writer.close()
        head, _, body = raw.partition(b"\r\n\r\n")
        if b"chunked" in head.lower():
            body = b"".join(
                re.findall(rb"[0-9a-fA-F]+\r\n(.*?)\r\n(?=[0-9a-fA-F]+\r\n)", body + b"0\r\n", re.DOTALL)
            )
        return int(head.split()[1]), body.decode()

    async def metrics(self) -> Metrics:
        """The samples of the proxy's own metrics that are not zero, by name and labels."""
        samples: Metrics = {}
        for line in (await self.fetch("/metrics"))[1].splitlines():
            if not line.endswith(" 0.0") and (found := SAMPLE.match(line)):
                samples[found[1], frozenset(LABEL.findall(found[2] or ""))] = float(found[3])
        return samples

    def log(self) -> list[dict[str, Any]]:
        """The log lines so far, whole ones only. Lines gather for 20 ms in the proxy, so wait until none comes."""
        size, deadline = -1, time.monotonic() + READY_TIMEOUT_S
        while size != (size := self.log_file.stat().st_size) and time.monotonic() < deadline:
            time.sleep(2 * POLL_S)
        lines = self.log_file.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]


class Counters:
    """What a proxy counted since a moment. Polls, since counters have no other way to tell."""

    def __init__(self, proxy: Forkwatch, before: Metrics) -> None:
        self.proxy, self.before = proxy, before

    @classmethod
    async def since_now(cls, proxy: Forkwatch) -> Counters:
        """Counters that start at zero here."""
        return cls(proxy, await proxy.metrics())

    async def grown(self, name: str, **labels: str) -> float:
        """How much `forkwatch_NAME` grew, summed over the labels that are not given."""
        return self._grown(await self.proxy.metrics(), name, labels)

    def _grown(self, now: Metrics, name: str, labels: dict[str, str]) -> float:
        return sum(
            value - self.before.get((sample, found), 0.0)
            for (sample, found), value in now.items()
            if sample == f"forkwatch_{name}" and labels.items() <= dict(found).items()
        )

    async def verdicts(self) -> Verdicts:
        """The verdicts given: (verdict, reason, certainty) to how many, none at zero."""
        given: Verdicts = {}
        for (name, labels), value in (await self.proxy.metrics()).items():
            grown = int(value - self.before.get((name, labels), 0.0))
            if name == "forkwatch_resume_verdicts_total" and grown:
                found = dict(labels)
                key = (found["verdict"], found["reason"], found["certainty"])
                given[key] = given.get(key, 0) + grown
        return given

    async def settled(self, timeout_s: float = 5.0) -> Verdicts:
        """The verdicts, once every resume that was attempted has one; AssertionError else."""

        def every_resume_is_judged(now: Metrics) -> bool:
            attempts = self._grown(now, "resume_attempts_total", {})
            return self._grown(now, "resume_verdicts_total", {}) >= attempts

        await self.until(every_resume_is_judged, "a verdict for every resume", timeout_s)
        return await self.verdicts()

    async def reached(self, name: str, at_least: float = 1, timeout_s: float = 5.0, **labels: str) -> None:
        """Return once `forkwatch_NAME` grew by this much; AssertionError else."""
        what = f"{name} {labels} grows by {at_least}"
        await self.until(lambda now: self._grown(now, name, labels) >= at_least, what, timeout_s)

    async def until(self, holds: Callable[[Metrics], bool], what: str, timeout_s: float) -> None:
        """Return once the condition holds for the metrics; AssertionError that says what never came."""
        deadline = time.monotonic() + timeout_s
        while not holds(await self.proxy.metrics()):
            if time.monotonic() > deadline:
                raise AssertionError(f"never came: {what}; the verdicts are {await self.verdicts()}")
            await asyncio.sleep(POLL_S)
