"""Everything that plays in the demo: two replicas, the balancer, and the proxy in front of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from proxy.demo.balancer import Balancer
from proxy.demo.children import START_TIMEOUT_S, Child, DemoFailed

VERDICTS = "forkwatch_resume_verdicts_total"

Judged = tuple[str, str, str]
"""A verdict, its reason and its certainty."""


class Replica:
    """One replica of the server. `port` is known once it is `ready`."""

    def __init__(self, name: str, directory: Path) -> None:
        """`name` is a letter."""
        self.name = name
        self.port = 0
        self.child = Child(f"replica {name}", directory, "proxy.demo.server", "0", name)

    async def start(self) -> None:
        """Return once connections are accepted."""
        await self.child.start()
        ready = await self.child.wait_for("ready", timeout_s=START_TIMEOUT_S)
        self.port = int(ready["port"])

    def go_on(self) -> None:
        """Let one call go on after its pause."""
        self.child.tell("go on")


class Forkwatch:
    """The proxy. `url` is where clients connect, `status_url` where its metrics are, `admin_url` the page."""

    def __init__(self, directory: Path, upstream_port: int, mode: str) -> None:
        """A configuration of its own, as a user would write it."""
        upstream = {
            "name": "bank",
            "url": f"http://127.0.0.1:{upstream_port}",
            "mode": mode,
            "replica_header": "X-Served-By",
            "timeouts": {"upstream_keepalive": "1ms"},  # so the balancer decides about every request
        }
        settings = {
            "listen": "127.0.0.1:0",
            "status": "127.0.0.1:0",
            "admin": "127.0.0.1:0",
            "upstreams": [upstream],
            "log": {"format": "json", "level": "debug"},
            "shutdown": {"delay": "0s", "spread": "0s", "deadline": "1s"},
        }
        config = directory / "forkwatch.yaml"
        config.write_text(json.dumps(settings))  # JSON is YAML
        self.child = Child("forkwatch", directory, "proxy", "run", "--config", str(config))
        self.url = self.status_url = self.admin_url = ""

    async def start(self) -> None:
        """Return once connections are accepted."""
        await self.child.start()
        ready = await self.child.wait_for("proxy.ready", timeout_s=START_TIMEOUT_S)
        self.url, self.status_url, self.admin_url = f"{ready['listen']}/mcp", ready["status"], ready["admin"]

    async def verdicts(self) -> dict[Judged, int]:
        """How often each verdict was given so far, from the metrics page. Raises DemoFailed without one."""
        try:
            async with aiohttp.ClientSession() as http, http.get(f"{self.status_url}/metrics") as response:
                page = await response.text()
        except aiohttp.ClientError as error:
            raise DemoFailed(f"forkwatch shows no metrics: {error}") from error
        return {
            (sample.labels["verdict"], sample.labels["reason"], sample.labels["certainty"]): int(sample.value)
            for family in text_string_to_metric_families(page)
            for sample in family.samples
            if sample.name == VERDICTS
        }


class Stage:
    """The parts, started and connected: client, forkwatch, balancer, replica `a` or `b`."""

    def __init__(self, a: Replica, b: Replica, balancer: Balancer, forkwatch: Forkwatch) -> None:
        """Made by `set_up`."""
        self.a, self.b = a, b
        self.balancer = balancer
        self.forkwatch = forkwatch

    def other(self, replica: Replica) -> Replica:
        """The replica that is not this one."""
        return self.b if replica is self.a else self.a


@asynccontextmanager
async def set_up(mode: str) -> AsyncIterator[Stage]:
    """A stage for as long as the block runs. Whatever ends the block, no process is left behind."""
    with TemporaryDirectory(prefix="forkwatch-demo-") as name:
        directory, balancer = Path(name), Balancer()
        a, b = Replica("A", directory), Replica("B", directory)
        forkwatch = Forkwatch(directory, await balancer.start(), mode)
        children = [forkwatch.child, a.child, b.child]
        try:
            async with asyncio.TaskGroup() as group:
                for part in (forkwatch, a, b):
                    group.create_task(part.start())
            balancer.point_at(a.port)
            yield Stage(a, b, balancer, forkwatch)
        finally:
            try:
                await balancer.stop()
                await asyncio.gather(*(child.stop() for child in children))
            finally:  # a second Ctrl-C may have interrupted that
                for child in children:
                    child.kill()
