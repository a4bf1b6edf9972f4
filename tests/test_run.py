"""`forkwatch run` as a process: how it starts, what it says, and how it ends."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forkwatch_process import ROOT, Counters
from tests.scripted_upstream import EMPTY, PATIENCE_S, Peer, listening
from tests.wire import LAST, SSE, Client, End, Lab, lab

COMMAND = [sys.executable, "-m", "proxy", "run"]
READY = re.compile(
    r"forkwatch ready: listening on http://127\.0\.0\.1:(\d+), status on http://127\.0\.0\.1:(\d+),"
)
EVENT = b"9\r\ndata: a\n\n\r\n"


# The start.


@contextmanager
def started(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and the first line it printed for people; it is killed in the end."""
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, *flags], stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as process:
        try:
            assert process.stderr is not None
            yield process, process.stderr.readline()
        finally:
            process.kill()


def ended(*flags: str) -> subprocess.CompletedProcess[str]:
    """A process that is to end by itself."""
    return subprocess.run(
        [*COMMAND, *flags], capture_output=True, text=True, timeout=30, cwd=ROOT, check=False
    )


def events(process: subprocess.Popen[str], last: str) -> list[dict[str, Any]]:
    """The log up to the event `last`."""
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        found.append(json.loads(line))
        if found[-1]["event"] == last:
            return found
    raise AssertionError(f"{last} was never logged: {found}")


async def test_free_ports_and_the_ready_line() -> None:
    """Port 0 picks free ports; the ready line, and the log, say which; they serve."""
    async with listening() as upstream:
        flags = ["--upstream", str(upstream.address), "--listen", "127.0.0.1:0", "--status", "127.0.0.1:0"]
        with started(*flags, "--log-format", "json") as (process, line):
            found = READY.match(line)
            assert found is not None, line
            log = await asyncio.to_thread(events, process, "proxy.ready")
            assert [e["event"] for e in log] == ["proxy.started", "config.loaded", "proxy.ready"]
            ready = log[-1]
            assert ready["listen"] == f"http://127.0.0.1:{found[1]}"
            assert ready["status"] == f"http://127.0.0.1:{found[2]}"
            client = await Client.connect(int(found[1]))
            client.request("GET /")
            peer = await upstream.accepted()
            await peer.head()
            peer.send(EMPTY)
            assert (await client.response()).status == 200
            status = await Client.connect(int(found[2]))
            status.request("GET /readyz")
            assert (await status.response()).status == 200
            for each in (client, status):
                each.leave()
                await each.writer.wait_closed()
            process.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("which", ["listen", "status"])
def test_a_port_in_use(which: str) -> None:
    """An address that is taken is one clear line and exit 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        places = {"listen": "127.0.0.1:0", "status": "127.0.0.1:0", which: address}
        flags = [part for name, value in places.items() for part in (f"--{name}", value)]
        done = ended("--upstream", "http://127.0.0.1:9", *flags, "--log-format", "json")
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert address in line
    assert f"({which})" in line
    assert "in use" in line
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize("text", ["upstreams: []", "nope: 1\nlisten: nowhere", "upstreams: [", ""])
def test_a_bad_configuration(text: str, tmp_path: Path) -> None:
    """What cannot be used is exit 2 and lines that say where, before anything is opened."""
    file = tmp_path / "forkwatch.yaml"
    file.write_text(text)
    done = ended("--config", str(file))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("where", ["listener", "upstream"])
def test_unusable_certificates(where: str, tmp_path: Path) -> None:
    """A certificate file that is none is a failed start with one line about it, and no traceback."""
    bad = tmp_path / "bad.pem"
    bad.write_text("this is no certificate\n")
    settings: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "status": "127.0.0.1:0",
        "admin": None,
        "upstreams": [{"name": "a", "url": "https://127.0.0.1:9"}],
    }
    if where == "listener":
        settings["tls"] = {"cert": str(bad), "key": str(bad)}
    else:
        settings["upstreams"][0]["tls"] = {"ca": str(bad)}
    file = tmp_path / "forkwatch.yaml"
    file.write_text(json.dumps(settings))
    done = ended("--config", str(file))
    assert done.returncode in (1, 2)
    [line] = done.stderr.splitlines()
    assert "tls" in line.lower() or "certificate" in line.lower()
    assert "Traceback" not in done.stderr + done.stdout


# The end.


@dataclass(slots=True)
class Drain:
    """A proxy about to be stopped, with a standalone stream and one that answers a POST."""

    here: Lab
    get: Client
    get_peer: Peer
    post: Client
    post_peer: Peer
    idle: Client

    def signal(self, number: int = signal.SIGTERM) -> float:
        """Send it; returns when."""
        self.here.proxy.process.send_signal(number)
        return time.monotonic()

    async def status(self) -> int:
        """The exit status, once there is one."""
        async with asyncio.timeout(2 * PATIENCE_S):
            return await asyncio.to_thread(self.here.proxy.process.wait)

    async def until_draining(self) -> None:
        """Wait until the proxy says it is not ready."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.here.proxy.fetch("/readyz"))[0] != 503:
                pass

    def logged(self, event: str) -> dict[str, Any]:
        """The one such event."""
        [found] = [e for e in self.here.proxy.log() if e["event"] == event]
        return found


@asynccontextmanager
async def draining(tmp_path: Path, delay: str, spread: str, deadline: str) -> AsyncIterator[Drain]:
    """What is to be drained, with these limits."""
    shutdown = {"delay": delay, "spread": spread, "deadline": deadline}
    async with lab(tmp_path, shutdown=shutdown) as here:
        get, get_peer, _ = await here.opened("GET /mcp", "Mcp-Session-Id: s-1")
        post, post_peer, _ = await here.opened("POST /mcp", "Content-Length: 0")
        idle = await here.client()
        idle.request("GET /nowhere")
        await idle.response()
        yield Drain(here, get, get_peer, post, post_peer, idle)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_drain(tmp_path: Path, number: int) -> None:
    """Not ready first; then standalone streams end cleanly, POST streams go on to the deadline; exit 0."""
    async with draining(tmp_path, "500ms", "100ms", "1500ms") as drain:
        began = drain.signal(number)
        await drain.until_draining()
        await drain.here.exchange("POST /mcp", "Content-Length: 0", answer=EMPTY)  # new work is still taken
        assert time.monotonic() - began < 0.5
        assert await drain.get.chunk() == b""
        await drain.get_peer.gone(PATIENCE_S)
        assert time.monotonic() - began >= 0.5
        assert await drain.idle.closed() == b""
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(drain.here.proxy.port)
        drain.post_peer.send(EVENT)
        assert await drain.post.chunk() == b"data: a\n\n"
        assert await drain.post.closed() == b""
        await drain.post_peer.gone(PATIENCE_S)
        assert await drain.status() == 0
        assert 1.5 <= time.monotonic() - began < 3.0
        assert drain.logged("drain.finished")["streams_cut"] == 1
        assert {e["cause"] for e in drain.here.proxy.log() if e["event"] == "stream.closed"} == {
            "proxy_drain"
        }
        assert drain.here.proxy.log()[-1]["event"] == "proxy.stopped"


async def test_a_drain_waits_no_longer_than_it_must(tmp_path: Path) -> None:
    """Once the last stream has ended the process does, long before the deadline."""
    async with draining(tmp_path, "0s", "0s", "20s") as drain:
        began = drain.signal()
        assert await drain.get.chunk() == b""
        drain.post_peer.send(LAST)
        assert await drain.post.chunk() == b""
        assert await drain.status() == 0
        assert time.monotonic() - began < PATIENCE_S
        assert drain.logged("drain.finished")["streams_cut"] == 0


async def test_requests_during_a_drain(tmp_path: Path) -> None:
    """A request under way is answered in full; its connection serves no other."""
    async with draining(tmp_path, "0s", "0s", "20s") as drain:
        waiting = await drain.here.client()
        waiting.request("POST /mcp", "Content-Length: 2", body=b"{}")
        peer = await drain.here.upstream.accepted()
        await peer.head()
        drain.signal()
        assert await drain.get.chunk() == b""
        peer.send(EMPTY)
        response = await waiting.response()
        assert (response.status, response.end) == (200, End.CLEAN)
        assert response.head.one(b"Connection") == b"close"
        assert await waiting.closed() == b""
        drain.post_peer.send(LAST)
        assert await drain.status() == 0


async def test_a_second_signal(tmp_path: Path) -> None:
    """Whoever signals twice does not want to wait: the process ends at once, as a failure."""
    async with draining(tmp_path, "20s", "0s", "20s") as drain:
        drain.signal()
        await drain.until_draining()
        began = drain.signal()
        assert await drain.status() == 1
        assert time.monotonic() - began < 1.0


# What it says, and what it never says.

SECRETS = ("s3ss10n", "qu3ry", "b3ar3r", "c00k1e", "arg-um3nt", "pr1vate")


async def test_secrets_stay_out_of_logs_and_metrics(tmp_path: Path) -> None:
    """No session id, query, credential, cookie or body is in a log line, a metric or on stderr."""
    call = (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":"arg-um3nt"}}}'
    )
    fields = ["Mcp-Session-Id: s3ss10n", "Authorization: Bearer b3ar3r", "Cookie: a=c00k1e"]
    fields += ["Accept: text/event-stream"]
    log = {"format": "json", "level": "debug"}
    async with lab(tmp_path, log=log, limits={"streams_per_session": 2}) as here:
        counters = await Counters.since_now(here.proxy)
        event = b'id: 1\ndata: {"jsonrpc":"2.0","id":1,"result":{"pr1vate":1}}\n\n'
        stream = SSE + b"%x\r\n%b\r\n" % (len(event), event)
        await here.exchange(
            "POST /mcp?qu3ry=1", *fields, f"Content-Length: {len(call)}", body=call, answer=stream + LAST
        )
        await here.exchange("GET /mcp?qu3ry=1", *fields, "Last-Event-ID: 1", answer=stream + LAST)
        for answer in (b"HTTP/1.1 pr1vate\r\n\r\n", b"X-pr1vate : 1\r\n\r\n"):
            await here.exchange("GET /mcp?qu3ry=1", *fields, answer=answer)
        client, peer, _ = await here.opened("GET /mcp?qu3ry=1", *fields)
        peer.send(b"4\r\npr1v\r\nzz\r\n")
        await client.closed()
        client = await here.client()
        client.send(b"GET /mcp?qu3ry=1 HTTP/1.1\r\nHost: a\r\nMcp-Session-Id : s3ss10n\r\nb3ar3r\r\n\r\n")
        answered = str(await client.closed())
        assert [secret for secret in SECRETS if secret in answered] == []
        await counters.reached("upstream_errors_total", 3)
        said = here.proxy.log_file.read_text() + here.proxy.errors.read_text()
        said += (await here.proxy.fetch("/metrics"))[1]
    said += here.proxy.log_file.read_text()
    assert "stream.closed" in said
    assert "upstream.error" in said
    assert [secret for secret in SECRETS if secret in said] == []


async def test_a_log_that_nobody_reads(tmp_path: Path) -> None:
    """When the reader of the log has gone away, requests are served all the same."""
    async with listening() as upstream:
        flags = ["--upstream", str(upstream.address), "--listen", "127.0.0.1:0", "--status", "127.0.0.1:0"]
        with started(*flags, "--log-format", "json") as (process, line):
            found = READY.match(line)
            assert found is not None, line
            assert process.stdout is not None
            process.stdout.close()
            for _ in range(3):
                client = await Client.connect(int(found[1]))
                client.request("GET /", "Mcp-Session-Id: s", "Last-Event-ID: 1")
                peer = await upstream.accepted()
                await peer.head()
                peer.send(SSE + LAST)
                assert (await client.response()).status == 200
                client.leave()
                peer.end()
            assert process.poll() is None


def test_a_process_shows_where_it_stands(tmp_path: Path) -> None:
    """SIGUSR1 writes the stack of every thread to stderr, and the proxy goes on."""
    with started(
        "--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--status", "127.0.0.1:0"
    ) as (
        process,
        ready,
    ):
        assert READY.match(ready)
        process.send_signal(signal.SIGUSR1)
        assert process.stderr is not None
        shown = [process.stderr.readline() for _ in range(2)]
        assert shown[0].startswith("Thread 0x")
        assert shown[1].startswith("  File ")
        process.send_signal(signal.SIGUSR1)
        assert process.poll() is None


def test_without_a_stdout_the_log_goes_nowhere() -> None:
    """A shell may have closed it; the proxy serves all the same."""
    flags = ["--upstream", "http://127.0.0.1:9", "--listen", "127.0.0.1:0", "--status", "127.0.0.1:0"]
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *COMMAND, *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stderr is not None
            assert READY.match(process.stderr.readline())
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            assert process.wait(30) in (0, 1)
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
