"""The image as an orchestrator runs it: without root, without a capability, with nothing to write on."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy import __version__
from tests.forkwatch_process import POLL_S, READY_TIMEOUT_S, free_port
from tests.packaging.image import DEBIAN_PATH, Image, built
from tests.scripted_upstream import PATIENCE_S, Upstream, listening
from tests.wire import SSE, Client, Head

pytestmark = pytest.mark.image

CONFIG = "/etc/forkwatch/forkwatch.yaml"
EVENT = b"id: 1\ndata: {}\n\n"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image, built once."""
    with built(tmp_path_factory.mktemp("image")) as made:
        yield made


def test_the_image_states_how_it_is_run(image: Image) -> None:
    """A numeric user that is not root, the addresses, where the admin socket goes, and how it ends."""
    stated = {
        name: image.config[name]
        for name in ("User", "Env", "Entrypoint", "Cmd", "ExposedPorts", "StopSignal")
    }
    assert stated == {
        "User": "10001:10001",
        "Env": [
            f"PATH=/opt/forkwatch/bin:{DEBIAN_PATH}",
            "PYTHONUNBUFFERED=1",
            "RUNTIME_DIRECTORY=/run/forkwatch",
            "FORKWATCH__LISTEN=0.0.0.0:8080",
            "FORKWATCH__STATUS=0.0.0.0:9464",
        ],
        "Entrypoint": ["forkwatch"],
        "Cmd": ["run", "--config", CONFIG],
        "ExposedPorts": {"8080/tcp": {}, "9464/tcp": {}},
        "StopSignal": "SIGTERM",
    }
    assert image.config["Healthcheck"]["Test"] == ["CMD", "forkwatch", "healthcheck"]


def test_it_holds_this_version_and_no_installer(image: Image) -> None:
    """The command runs; its environment has nothing in it that could install more."""
    version = image.run("forkwatch", "version")
    assert (version.stdout, version.returncode) == (f"forkwatch {__version__}\n", 0)
    script = "from importlib.util import find_spec; print(*map(find_spec, ['pip', 'setuptools']))"
    assert image.run("/opt/forkwatch/bin/python", "-c", script).stdout == "None None\n"


def test_its_user_can_write_in_one_folder(image: Image) -> None:
    """Beside the places where everybody can, that is /run/forkwatch, where nobody else can look."""
    found = image.run("find", "/", "-xdev", "(", "-path", "/proc", "-o", "-path", "/sys", "-o", "-path", "/dev", ")",
                      "-prune", "-o", "(", "-type", "d", "-o", "-type", "f", ")", "-writable", "-print")  # fmt: skip
    assert {*found.stdout.splitlines()} - {"/tmp", "/var/tmp", "/run/lock"} == {"/run/forkwatch"}
    owned = image.run("stat", "--format", "%u:%g %a", "/run/forkwatch")
    assert owned.stdout == "10001:10001 700\n"


def test_its_configuration_is_valid(image: Image) -> None:
    """`check` takes the file and the environment of the image; the addresses are those of a container."""
    checked = image.run("forkwatch", "check", "--config", CONFIG)
    assert checked.returncode == 0
    lines = checked.stdout.splitlines()
    assert lines[:3] == [f"OK: {CONFIG}", "listen    0.0.0.0:8080", "status    0.0.0.0:9464"]


@dataclass(frozen=True)
class Service:
    """The image at work, in front of an upstream that a test speaks for."""

    image: Image
    process: subprocess.Popen[bytes]
    upstream: Upstream
    port: int
    env: dict[str, str]

    def command(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command beside the proxy, with its settings."""
        return self.image.beside(self.process.pid, *command, **self.env)

    async def stream(self) -> Client:
        """A client with an open stream that has shown it one event, byte for byte."""
        client = await Client.connect(self.port)
        client.request("GET /mcp", "Accept: text/event-stream")
        peer = await self.upstream.accepted()
        assert Head.parse(await peer.head()).line == b"GET /mcp HTTP/1.1"
        peer.send(SSE + b"%x\r\n%s\r\n" % (len(EVENT), EVENT))
        assert (await client.head()).status == 200
        assert await client.chunk() == EVENT
        return client


@pytest.fixture
async def service(image: Image, tmp_path: Path) -> AsyncIterator[Service]:
    """The image's own command on a read-only root, once its own health check is content."""
    output = tmp_path / "output"
    listen, status = free_port(), free_port()
    async with listening() as upstream:
        env = {
            "FORKWATCH__LISTEN": f"127.0.0.1:{listen}",
            "FORKWATCH__STATUS": f"127.0.0.1:{status}",
            "FORKWATCH__UPSTREAMS__0__URL": str(upstream.address),
            "FORKWATCH__SHUTDOWN__DELAY": "0s",
            "FORKWATCH__SHUTDOWN__SPREAD": "0s",
        }
        before = subprocess.run(
            image.read_only("forkwatch", "healthcheck", **env), capture_output=True, text=True, check=False
        )
        assert (before.returncode, before.stderr.partition(":")[0]) == (1, "not ready")
        command = image.read_only(*image.config["Entrypoint"], *image.config["Cmd"], **env)
        with output.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        made = Service(image, process, upstream, listen, env)
        try:
            deadline = time.monotonic() + READY_TIMEOUT_S
            while made.command("forkwatch", "healthcheck").returncode != 0:
                assert process.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                await asyncio.sleep(POLL_S)
            yield made
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in output.read_text()


async def test_the_process_has_no_rights(service: Service) -> None:
    """It is user 10001 with no capability, cannot gain any, and sees a read-only root."""
    process = Path(f"/proc/{service.process.pid}")
    lines = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines())
    assert lines["Uid"].split() == ["10001"] * 4
    assert (lines["CapEff"], lines["CapBnd"], lines["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1")
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    assert [mount[5].split(",")[0] for mount in mounts if mount[4] == "/"] == ["ro"]


async def test_it_serves_and_ends_on_sigterm(service: Service) -> None:
    """A stream comes through as sent, ends cleanly with the drain, and the process with status 0."""
    client = await service.stream()
    service.process.terminate()
    assert await client.chunk() == b""
    client.leave()
    assert await asyncio.to_thread(service.process.wait, PATIENCE_S) == 0


async def test_a_hook_can_drain_it_before_sigterm(service: Service) -> None:
    """The command of the sidecar's preStop finds the admin socket; streams end, then SIGTERM ends the rest."""
    client = await service.stream()
    hook = asyncio.to_thread(service.command, "forkwatch", "drain", "--wait", "20s")
    drained, ended = await asyncio.gather(hook, client.chunk())
    client.leave()
    assert (drained.returncode, ended) == (0, b""), drained.stderr
    assert service.process.poll() is None
    service.process.terminate()
    assert await asyncio.to_thread(service.process.wait, PATIENCE_S) == 0
