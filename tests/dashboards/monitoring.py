"""Prometheus and Alertmanager as real processes on loopback, configured as dashboards/ says, and a webhook."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from aiohttp import web

from tests.dashboards.files import DASHBOARDS, RUNBOOKS, document
from tests.dashboards.tools import program
from tests.forkwatch_process import free_port

START_TIMEOUT_S = 20.0
TURN_TIMEOUT_S = 30.0
POLL_S = 0.1
INTERVAL = "1s"

_T = TypeVar("_T")


async def until(ask: Callable[[], Awaitable[_T]], holds: Callable[[_T], bool], what: str) -> _T:
    """Ask until the answer is as it should be, and return it; AssertionError that says what never came."""
    answer = await ask()
    try:
        async with asyncio.timeout(TURN_TIMEOUT_S):
            while not holds(answer):
                await asyncio.sleep(POLL_S)
                answer = await ask()
    except TimeoutError:
        raise AssertionError(f"never came: {what}; the last answer is {answer}") from None
    return answer


class Webhook:
    """A receiver of alerts: what arrived, by the path it came to."""

    def __init__(self) -> None:
        self.arrived: list[tuple[str, dict[str, Any]]] = []

    async def names(self, path: str) -> list[str]:
        """The alerts that arrived at a path."""
        return [alert["labels"]["alertname"] for found, alert in self.arrived if found == path]

    async def receive(self, request: web.Request) -> web.Response:
        """Take what Alertmanager sends."""
        self.arrived += [(request.path, alert) for alert in (await request.json())["alerts"]]
        return web.Response()

    @classmethod
    @contextlib.asynccontextmanager
    async def listening(cls) -> AsyncIterator[tuple[Webhook, int]]:
        """A webhook on a free port."""
        webhook, port, app = cls(), free_port(), web.Application()
        app.router.add_post("/{receiver}", webhook.receive)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield webhook, port
        finally:
            await runner.cleanup()


class Prometheus:
    """A running Prometheus, asked over its HTTP interface."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    async def fetch(self, path: str, **parameters: str) -> bytes:
        """The body of a page; AssertionError with what it says unless it is 200."""
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        return await asyncio.to_thread(_read, url)

    async def api(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the interface."""
        answer = json.loads(await self.fetch(f"/api/v1/{path}", **parameters))
        assert answer["status"] == "success", answer
        return answer["data"]

    async def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The value of each series of the answer to an instant query."""
        result = (await self.api("query", query=expression))["result"]
        return [(row["metric"], float(row["value"][1])) for row in result]

    async def answered(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The answer to an instant query, once there is a series in it."""
        return await until(lambda: self.query(expression), bool, expression)


def _read(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            raise AssertionError(f"{url}: {error.code} {error.read()[:500]!r}") from None


@contextlib.asynccontextmanager
async def running(name: str, url: str, directory: Path, *arguments: str) -> AsyncIterator[None]:
    """A process of its own until the block ends; RuntimeError with its last words if it is never ready."""
    said = directory / f"{name}.log"
    with said.open("wb") as log:
        process = subprocess.Popen(
            [program(name), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while process.poll() is None and not await asyncio.to_thread(_ready, url):
                await asyncio.sleep(POLL_S)
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended: {said.read_text()[-800:]}")
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1):
            return True
    except OSError:
        return False


@contextlib.asynccontextmanager
async def alertmanager(directory: Path, webhook_port: int) -> AsyncIterator[int]:
    """An Alertmanager with the routes of dashboards/ that sends to the webhook at once; its port."""
    config, port = document(DASHBOARDS / "alertmanager.yml"), free_port()
    config["route"]["group_wait"] = "0s"
    for receiver in config["receivers"]:
        for hook in receiver.get("webhook_configs", []):
            hook["url"] = f"http://127.0.0.1:{webhook_port}{urllib.parse.urlsplit(hook['url']).path}"
    file = directory / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    arguments = [
        f"--config.file={file}",
        f"--storage.path={directory / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    async with running("prometheus-alertmanager", f"http://127.0.0.1:{port}", directory, *arguments):
        yield port


@contextlib.asynccontextmanager
async def prometheus(directory: Path, proxy_port: int, alertmanager_port: int) -> AsyncIterator[Prometheus]:
    """A Prometheus with the configuration of dashboards/ that scrapes one proxy every second."""
    config, port = document(DASHBOARDS / "prometheus.yml"), free_port()
    config["global"] = {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL}
    config["rule_files"] = [str(DASHBOARDS / name) for name in config["rule_files"]]
    config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{proxy_port}"]}]
    managers = [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]
    config["alerting"]["alertmanagers"] = [{"static_configs": managers}]
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    arguments = [
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--web.user-assets={RUNBOOKS}",
        f"--web.external-url=http://127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
    ]
    async with running("prometheus", f"http://127.0.0.1:{port}", directory, *arguments):
        yield Prometheus(port)
