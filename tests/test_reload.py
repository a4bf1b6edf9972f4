"""A new configuration for a running proxy: under load, in part, broken, only tried, and with a new certificate."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import resource
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio

from proxy.engine.privacy import hash_session
from tests.abuse.process import tcp_socket
from tests.admin.operator import Desk, desk, entry, until
from tests.forkwatch_process import POLL_S, free_port
from tests.scenarios.exchange import read_head
from tests.scenarios.frames import event
from tests.scripted_upstream import PATIENCE_S
from tests.wire import Client, End

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """The proxy of these tests."""
    async with desk(tmp_path_factory.mktemp("reload"), lambda port: [entry("mcp", port)]) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def here(process: Desk) -> AsyncIterator[Desk]:
    """It, with its first configuration in force before and after."""
    first = dict(process.proxy.settings)
    yield process
    process.proxy.settings = first
    process.proxy.configure()
    assert (await process.hang_up())["event"] == "config.reloaded"


async def answered(here: Desk, path: str) -> int:
    """The status of a request on a connection of its own; the upstream answers 202 if it gets there."""
    async with here.lab(path) as lab:
        exchange = await lab.request("POST", [], b"{}", reaches=False)
        asked = asyncio.ensure_future(here.upstream.waiting.get())
        await asyncio.wait(
            [asked, asyncio.ensure_future(exchange.until(lambda: exchange.ended is not None, "an answer"))],
            return_when=asyncio.FIRST_COMPLETED,
        )
        if asked.done():
            exchange.arrived = asked.result()
            await exchange.answer(202, [])
        asked.cancel()
        await exchange.until(lambda: exchange.ended is not None, "an answer")
        assert exchange.status is not None
        return exchange.status


# Under load.

STREAMS = 50
WORKERS = 12
RELOADS = 20
BETWEEN = 60
"""Requests that are answered between two reloads, at least."""
TICK_S = 0.05


class Server:
    """An upstream that answers each POST with its name, and each GET with a stream of counted events."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.over = asyncio.Event()
        self.events = 0
        """Sent so far, over all streams."""
        self.sent: list[int] = []
        """How many events each stream had, once it ended."""

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Listen on a loopback port, which it gives."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                first, _ = await read_head(reader)
                if first.startswith("GET "):
                    await self._stream(writer)
                else:
                    await reader.readexactly(2)
                    body = json.dumps({"server": self.name}).encode()
                    writer.write(answer % len(body) + body)
        writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head)
        for number in count(1):
            frame = event(number, f"{self.name}-{number}")
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
            self.events += 1
            if self.over.is_set():
                writer.write(b"0\r\n\r\n")
                self.sent.append(number)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.over.wait(), TICK_S)


class Load:
    """Clients that ask without a pause on kept connections, and others that listen."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answered = 0
        self.over = False

    async def ask(self, client: Client) -> str:
        """One request; the name of the server that answered."""
        client.request("POST /mcp", "Content-Length: 2", body=b"{}")
        response = await client.response()
        assert (response.status, response.end) == (200, End.CLEAN)
        assert response.head.one(b"Connection") is None  # it is kept
        self.answered += 1
        name: str = json.loads(response.body)["server"]
        return name

    async def work(self) -> None:
        """Ask until it is over."""
        client = await Client.connect(self.port)
        while not self.over:
            await self.ask(client)
        client.leave()
        await client.writer.wait_closed()

    async def listen(self, session: str, opened: asyncio.Event) -> bytes:
        """The whole of a stream."""
        client = await Client.connect(self.port)
        client.request("GET /mcp", f"Mcp-Session-Id: {session}", "Accept: text/event-stream")
        head = await client.head()
        assert head.status == 200
        body = await client.chunk()
        opened.set()
        rest, end = await client.body(head)
        assert end is End.CLEAN
        client.leave()
        await client.writer.wait_closed()
        return body + rest


async def test_reloads_under_load(tmp_path: Path) -> None:
    """Twenty reloads that change the url: no request fails, no stream ends or loses an event, and what
    begins afterwards goes to the new upstream while old streams go on with the old one."""
    servers = [Server("a"), Server("b")]
    async with (
        servers[0].listening() as a,
        servers[1].listening() as b,
        desk(tmp_path, lambda _: [entry("mcp", a)]) as made,
    ):
        ports = (a, b)
        load = Load(made.proxy.port)
        opened = [asyncio.Event() for _ in range(STREAMS)]
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            streams = [group.create_task(load.listen(f"s-{n}", each)) for n, each in enumerate(opened)]
            for each in opened:
                await each.wait()
            for _ in range(WORKERS):
                group.create_task(load.work())
            client = await Client.connect(made.proxy.port)
            for number in range(1, RELOADS + 1):
                asked, shown = load.answered, servers[0].events
                while load.answered < asked + BETWEEN or servers[0].events < shown + STREAMS:
                    await asyncio.sleep(POLL_S)
                made.proxy.configure(upstreams=[entry("mcp", ports[number % 2])])
                if number % 2:
                    changed = (await made.hang_up())["changed"]
                else:
                    changed = (await made.admin.order("POST reload"))["changed"]
                assert changed == ["upstreams[mcp].url"]
                assert await load.ask(client) == "ab"[number % 2]
            client.leave()
            await client.writer.wait_closed()
            load.over = True
            for server in servers:
                server.over.set()
        status = await made.status()
        assert (status["fail_open"], status["upstream_errors"]) == (0, 0)
    assert load.answered > RELOADS * BETWEEN
    assert (len(servers[0].sent), servers[1].sent) == (STREAMS, [])
    sent = [b"".join(event(n, f"a-{n}") for n in range(1, number + 1)) for number in servers[0].sent]
    assert sorted(task.result() for task in streams) == sorted(sent)
    assert servers[0].events > RELOADS * STREAMS


# What changes.


async def test_a_new_upstream(here: Desk) -> None:
    """It is served at once, and each of its counters is there at zero before its first request."""
    assert await answered(here, "/late") == 404
    here.proxy.configure(upstreams=[*here.proxy.settings["upstreams"], entry("late", here.port)])
    line = await here.hang_up()
    assert (line["changed"], line["restart_needed"], line["level"]) == (["upstreams[late]"], [], "info")
    page = (await here.proxy.fetch("/metrics"))[1].splitlines()
    series = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in page if not line.startswith("#")}
    known = {
        name.replace('"mcp"', '"late"') for name in series if 'upstream="mcp"' in name and "code=" not in name
    }
    late = {name: value for name, value in series.items() if 'upstream="late"' in name}
    assert late.keys() == known
    assert {value for name, value in late.items() if "upstream_info" not in name} == {"0.0"}
    assert await answered(here, "/late") == 202
    assert await here.gauge("http_requests_total", upstream="late", method="POST", code="202") == 1
    assert [u["upstream"] for u in (await here.admin.get("status"))["upstreams"]] == ["mcp", "late"]


async def test_a_removed_upstream(here: Desk) -> None:
    """Its path is nobody's any more, what it has under way goes on, and its counters stay as they are."""
    first = here.proxy.settings["upstreams"]
    here.proxy.configure(upstreams=[*first, entry("gone", here.port)])
    await here.hang_up()
    assert await answered(here, "/gone") == 202
    before = await here.gauge("http_requests_total", upstream="gone")
    assert before >= 1
    async with here.lab("/gone") as lab:
        await lab.initialize()
        stream = await (await lab.get()).stream(event(1))
        here.proxy.configure(upstreams=first)
        assert (await here.hang_up())["changed"] == ["upstreams[gone]"]
        assert await answered(here, "/gone") == 404
        await stream.send(event(2))
        await stream.end()
        assert (stream.body, stream.ended) == (stream.sent, "clean")
    assert await here.gauge("http_requests_total", upstream="gone") == before + 2  # the lab's own
    assert await here.gauge("events_relayed_total", upstream="gone", attachment="get") == 2
    assert [u["upstream"] for u in (await here.admin.get("status"))["upstreams"]] == ["mcp"]
    assert (await here.admin.tell("POST policy", {"mode": "observe", "upstream": "gone"})).status == 400


async def test_its_sessions_are_still_known(here: Desk) -> None:
    """An upstream whose url or mode changes keeps its sessions: a resume has its baseline."""
    async with here.lab() as lab:
        await lab.initialize()
        await lab.relay(event(1), event(2), event(3), request=10)
        first = here.proxy.settings["upstreams"]
        here.proxy.configure(upstreams=[{**first[0], "replay_deadline": "400ms"}])
        assert (await here.hang_up())["changed"] == ["upstreams[mcp].replay_deadline"]
        await lab.resume("3", event(1, "e2-1"))
        await lab.judged("fork", "log_restarted", "proven")


async def test_what_needs_a_restart(here: Desk) -> None:
    """A changed address is named as such, and the rest of the file takes effect; the old one serves."""
    elsewhere = f"127.0.0.1:{free_port()}"
    here.proxy.configure(listen=elsewhere, limits={"streams_per_session": 7})
    answer = await here.admin.order("POST reload")
    warnings = answer.pop("warnings")
    assert answer == {
        "reloaded": True,
        "dry_run": False,
        "changed": ["limits.streams_per_session"],
        "restart_needed": ["listen"],
    }
    assert [warning.partition(":")[0] for warning in warnings] == ["state"]
    await here.settled()
    assert here.lines("config.reloaded")[-1]["restart_needed"] == ["listen"]
    assert await here.gauge("limit", name="streams_per_session") == 7
    assert await answered(here, "/mcp") == 202
    with pytest.raises(ConnectionRefusedError):
        await Client.connect(int(elsewhere.rpartition(":")[2]))
    assert (await here.admin.order("POST reload"))["restart_needed"] == ["listen"]  # until there is one


async def test_the_log(tmp_path: Path) -> None:
    """A changed level and format take effect with the next line."""
    async with desk(tmp_path, lambda port: [entry("mcp", port)]) as made:

        async def lines_of_a_stream(log: dict[str, str]) -> list[str]:
            made.proxy.configure(log=log)
            await made.admin.order("POST reload")
            async with made.lab() as lab:
                await lab.initialize()
                await (await (await lab.get()).stream(event(1))).end()
                session = hash_session(lab.session)

            def lines() -> list[str]:
                return [line for line in made.proxy.log_file.read_text().splitlines() if session in line]

            await until(lambda: any("stream.closed" in line for line in lines()), "stream.closed")
            return lines()

        named = [json.loads(line)["event"] for line in await lines_of_a_stream({"format": "json"})]
        assert named == ["session.opened", "stream.closed"]
        found = await lines_of_a_stream({"format": "json", "level": "debug"})
        assert [json.loads(line)["event"] for line in found] == [
            "session.opened",
            "stream.opened",
            "stream.closed",
        ]
        shown = await lines_of_a_stream({"format": "console"})
        assert len(shown) == 2
        assert not shown[0].startswith("{")
        assert "session.opened" in shown[0]


async def test_more_connections(here: Desk) -> None:
    """With a higher `max_connections` the process may open as many files, as if it had begun so."""
    pid = here.proxy.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (300, hard))
    here.proxy.configure(limits={"max_connections": 400})
    assert (await here.hang_up())["changed"] == ["limits.max_connections"]
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (2 * 400 + 256, hard)


async def test_when_silent_clients_are_probed(here: Desk) -> None:
    """`tcp_keepalive` holds for the clients that connect from now on."""
    found = []
    for setting in ("3s", "7s", "12h"):
        timeouts = {"tcp_keepalive": setting}
        here.proxy.configure(upstreams=[entry("mcp", here.port, timeouts=timeouts)])
        await here.hang_up()
        _, writer = await asyncio.open_connection("127.0.0.1", here.proxy.port)
        async with asyncio.timeout(PATIENCE_S):
            while (
                seconds := tcp_socket(here.proxy.port, writer.get_extra_info("sockname")[1]).probed_in_s
            ) is None:
                await asyncio.sleep(POLL_S)
        found.append(seconds)
        writer.close()
    assert found == [3, 7, 32767], "the last is more than the kernel takes"


# What is refused.

BROKEN = """\
listen: 127.0.0.1:{port}
status: nowhere
upstreams:
- name: mcp
  url: http://127.0.0.1:{upstream}
  mode: enfoce
  replay_deadline: 5
limits: {{max_conections: 5}}
"""


@pytest.mark.parametrize("how", ["signal", "api"])
async def test_a_broken_file(here: Desk, how: str) -> None:
    """Every error is named with its line, nothing changes, and the metrics say so until a good one comes."""
    file = here.proxy.directory / "forkwatch.yaml"
    file.write_text(BROKEN.format(port=here.proxy.port, upstream=here.port))
    good_at = await here.gauge("config_last_reload_success_timestamp_seconds")
    await here.settled()
    before = len(here.lines("config.rejected"))
    if how == "signal":
        errors = (await here.hang_up())["errors"]
        said = here.proxy.errors.read_text().splitlines()
        assert said[-len(errors) :] == [f"forkwatch: not reloaded: {error}" for error in errors]
    else:
        answer = await here.admin.tell("POST reload")
        assert (answer.status, answer.value["reloaded"]) == (422, False)
        assert answer.value["type"] == "forkwatch:config-rejected"
        errors = answer.value["errors"]
    places = [error.removeprefix(f"{file}:").split(": ")[:2] for error in errors]
    assert places == [
        ["2", "status"],
        ["6", "upstreams[0].mode"],
        ["7", "upstreams[0].replay_deadline"],
        ["8", "limits.max_conections"],
    ]
    [line] = (await here.logged("config.rejected", before + 1))[before:]
    assert (line["level"], line["path"], line["errors"]) == ("error", str(file), errors)
    assert await here.gauge("config_last_reload_successful") == 0
    assert await here.gauge("config_last_reload_success_timestamp_seconds") == good_at
    status = (await here.admin.get("status"))["config"]
    assert (status["last_reload_ok"], status["errors"]) == (False, errors)
    assert await answered(here, "/mcp") == 202
    assert (await here.status())["mode"] == "observe"
    here.proxy.configure()
    assert (await here.hang_up())["changed"] == []
    assert await here.gauge("config_last_reload_successful") == 1
    assert abs(await here.gauge("config_last_reload_success_timestamp_seconds") - time.time()) < 5
    status = (await here.admin.get("status"))["config"]
    assert (status["last_reload_ok"], status["errors"]) == (True, [])


async def test_a_file_that_is_gone(here: Desk) -> None:
    """It is an error like any other: the configuration in force stays."""
    (here.proxy.directory / "forkwatch.yaml").unlink()
    answer = await here.admin.tell("POST reload")
    assert (answer.status, len(answer.value["errors"])) == (422, 1)
    assert await answered(here, "/mcp") == 202


@pytest.mark.parametrize("query", ["dry_run=1", "dry_run=true"])
async def test_a_dry_run(here: Desk, query: str) -> None:
    """It says what would change, or be refused, and does nothing; the log says nothing either."""
    await here.settled()
    before = len(here.lines("config.reloaded")), len(here.lines("config.rejected"))
    first = here.proxy.settings["upstreams"]
    here.proxy.configure(upstreams=[{**first[0], "mode": "enforce"}, entry("new", here.port)])
    answer = await here.admin.order(f"POST reload?{query}")
    assert (answer["reloaded"], answer["dry_run"]) == (False, True)
    assert answer["changed"] == ["upstreams[mcp].mode", "upstreams[new]"]
    status = await here.admin.get("status")
    assert [(u["upstream"], u["mode"], u["configured_mode"]) for u in status["upstreams"]] == [
        ("mcp", "observe", "observe")
    ]
    assert await answered(here, "/new") == 404
    (here.proxy.directory / "forkwatch.yaml").write_text("upstreams: []\n")
    assert (await here.admin.tell(f"POST reload?{query}")).status == 422
    status = (await here.admin.get("status"))["config"]
    assert (status["last_reload_ok"], status["errors"]) == (True, [])
    assert await here.gauge("config_last_reload_successful") == 1
    await here.logged("config.reloaded", before[0])
    await here.logged("config.rejected", before[1])


async def test_a_signal_and_an_order_at_once(here: Desk) -> None:
    """Reloads happen one after another, and none is lost."""
    await here.settled()
    before = len(here.lines("config.reloaded"))
    for number in range(1, 6):
        here.proxy.configure(limits={"streams_per_session": number})
        here.proxy.process.send_signal(signal.SIGHUP)
        await here.admin.order("POST reload")
        await here.logged("config.reloaded", before + 2 * number)
    assert await here.gauge("limit", name="streams_per_session") == 5
    assert await answered(here, "/mcp") == 202


# A renewed certificate.


def renew(file: Path) -> bytes:
    """A new certificate for 127.0.0.1 and its key, in one file, which takes the old one's place whole."""
    if (openssl := shutil.which("openssl")) is None:
        pytest.skip("openssl makes the certificate")
    key, cert = file.with_suffix(".key"), file.with_suffix(".crt")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=forkwatch test", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    file.write_text(key.read_text() + cert.read_text())
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(cert.read_text())).digest()


def anyone() -> ssl.SSLContext:
    """A client that takes any certificate, to look at it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def fingerprint(client: Client) -> bytes:
    """Of the certificate that a connection was shown."""
    shown = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return hashlib.sha256(shown).digest()


async def test_a_renewed_certificate(tmp_path: Path) -> None:
    """New connections are shown the renewed one, old ones go on; a pair that does not fit changes nothing."""
    file = tmp_path / "server.pem"
    old = renew(file)
    tls = {"cert": str(file), "key": str(file)}

    async with desk(tmp_path, lambda port: [entry("mcp", port)], tls=tls) as made:

        async def asks(client: Client) -> None:
            client.request("GET /mcp")
            async with asyncio.timeout(PATIENCE_S):
                arrived = await made.upstream.waiting.get()
            arrived.writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            assert (await client.response()).status == 204

        clients = [await Client.connect(made.proxy.port, tls=anyone())]
        await asks(clients[0])
        new = renew(file)
        clients.append(await Client.connect(made.proxy.port, tls=anyone()))
        line = await made.hang_up()
        assert (line["event"], line["changed"], line["restart_needed"]) == ("config.reloaded", [], [])
        clients.append(await Client.connect(made.proxy.port, tls=anyone()))
        whole = file.read_text()
        file.write_text(whole[: len(whole) // 2])
        line = await made.hang_up()
        assert line["event"] == "config.rejected"
        [error] = line["errors"]
        assert "tls: cert and key cannot be used together; " in error
        clients.append(await Client.connect(made.proxy.port, tls=anyone()))
        for client in clients:
            await asks(client)
        assert [fingerprint(client) for client in clients] == [old, old, new, new]
        for client in clients:
            client.leave()
            async with asyncio.timeout(PATIENCE_S):
                await client.writer.wait_closed()
