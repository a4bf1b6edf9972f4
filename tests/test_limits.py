"""What a peer may make the proxy keep: the limits that no other test reaches.

docs/security.md lists all limits, each with its test.
"""

from __future__ import annotations

import asyncio
import io
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from proxy.cli import CommandFailed, client
from proxy.cli.locate import Place
from proxy.config.settings import LogSettings
from proxy.engine import privacy
from proxy.engine.findings import AttachmentKind
from proxy.engine.headers import response_fields
from proxy.engine.heads import Answer
from proxy.engine.ids import forced
from proxy.engine.jsonrpc import session_error_in_body
from proxy.engine.privacy import hash_session
from proxy.engine.sse import Frame, Scanner
from proxy.logs import Repeats, open_log
from proxy.synthetic import CorsMemory
from tests.admin_interface import serving
from tests.engine.drive import Drive, dump, priming, session_of
from tests.forkwatch_process import POLL_S, Counters, Forkwatch, free_port
from tests.scripted_upstream import EMPTY, OK, PATIENCE_S
from tests.wire import SSE, Client, Lab, lab

IN_ONE_LOOP = pytest.mark.asyncio(loop_scope="module")

KIB = 1024
STREAM = Answer(200, True)
MARGIN = 4
"""How far what is held may exceed what is accounted for: the accounting is of plain sessions and calls."""


# ---- what the ledger remembers of a session


def test_a_batch_puts_no_more_in_flight_than_any_other() -> None:
    """Of as many requests as one body may hold, and a later one, a session remembers 1024."""
    drive = Drive()
    drive.initialize()
    for first, count in ((0, 1024), (1024, 1), (5000, 3000)):  # the last is too long to be told apart
        body = dump([{"id": first + n, "method": "tools/call"} for n in range(count)])
        drive.request("POST", body=body, answer=STREAM)
    session = drive.session()
    assert (len(session.in_flight), drive.upstream.requests_in_flight) == (1024, 1024)
    assert [len(stream.owed) for stream in session.streams.values()] == [1023, 1, 0]


def test_of_earlier_logs_two_are_kept() -> None:
    """A server that begins a new log again and again is followed, and the oldest is forgotten each time."""
    session = session_of()
    stream = session.open_stream(AttachmentKind.GET)
    for epoch in range(6):
        session.append(stream, b"%d" % epoch, epoch, 1, None, None)
        session.next_epoch()
    assert [log.epoch for log in stream.former] == [4, 5]
    assert session.bytes == session_of().bytes + 900 + 16 * 3


@pytest.mark.parametrize(("others", "findings"), [(15, ["reconnect_loop"]), (16, [])])
def test_loops_are_counted_for_sixteen_cursors(others: int, findings: list[str]) -> None:
    """With a seventeenth the oldest is forgotten: its count begins anew."""
    drive = Drive()
    drive.initialize()
    for cursor in ["a"] * 19 + [f"other-{n}" for n in range(others)] + ["a"]:
        drive.refuse(cursor, 404)
    assert [found for found in drive.findings if found == "reconnect_loop"] == findings


def held_beyond_what_is_accounted(drive: Drive, before: int) -> float:
    """How much more is held since `before` than the ledger accounts for, as a factor."""
    drive.reports.clear()
    return (tracemalloc.get_traced_memory()[0] - before) / drive.ledger.held_bytes


@pytest.fixture
def traced() -> Iterator[int]:
    """Memory is traced from here on; how much is held now."""
    tracemalloc.start()
    yield tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


def test_long_session_ids_are_accounted_for(traced: int) -> None:
    """A client of a server that takes any session id fills no memory that `ledger_bytes` does not know of."""
    drive = Drive()
    for n in range(200):
        drive.request("GET", session=f"{n:06d}" + "x" * 60_000, answer=Answer(200, False)).end()
    assert held_beyond_what_is_accounted(drive, traced) < MARGIN


def test_long_request_ids_are_accounted_for(traced: int) -> None:
    """Nor does one that leaves calls with long JSON-RPC ids unanswered."""
    drive = Drive()
    drive.initialize()
    for n in range(16):
        body = dump({"id": f"{n:06d}" + "x" * 500_000, "method": "tools/call"})
        drive.request("POST", body=body, answer=STREAM).send(priming(n)).drop()
    assert held_beyond_what_is_accounted(drive, traced) < MARGIN


# ---- what is read of a stream, an answer, a field


def test_what_is_kept_of_a_frame() -> None:
    """An id of 1024 bytes and data of 64 KiB are read; of one byte more nothing is known but that they came."""

    def read(id_bytes: int, data_bytes: int) -> tuple[bool, bool]:
        [found] = Scanner().feed(b"id: " + b"i" * id_bytes + b"\ndata: " + b"d" * data_bytes + b"\n\n")
        return found.id is not None, found.payload is not None

    assert [read(1024, 65_536), read(1025, 65_536), read(1024, 65_537)] == [
        (True, True),
        (False, True),
        (True, False),
    ]


def test_what_is_kept_of_the_other_fields() -> None:
    """Of an event type 64 bytes are kept; a reconnection time of more than 15 digits is none."""

    def read(fields: bytes) -> Frame:
        [found] = Scanner().feed(fields + b"\ndata: x\n\n")
        return found

    assert read(b"event: " + b"e" * 1000).event == b"e" * 64
    assert (read(b"retry: " + b"9" * 15).retry_ms, read(b"retry: " + b"9" * 16).retry_ms) == (
        10**15 - 1,
        None,
    )


def test_a_number_of_more_digits_is_opaque() -> None:
    """An id of 18 digits is a number; with 19 it is only a name, since it would not fit a word."""
    integer = forced("integer")
    assert integer is not None
    assert [integer.parse(b"9" * digits) is not None for digits in (18, 19)] == [True, False]


def test_how_much_of_an_error_is_searched() -> None:
    """The words that say a session is gone are looked for in the first 256 characters of a message."""

    def says(at: int) -> bool:
        message = " " * at + "session not found"
        return session_error_in_body(dump({"id": 1, "error": {"code": -32000, "message": message}}))

    assert [says(256 - len("session not found")), says(257 - len("session not found"))] == [True, False]


def test_the_name_of_a_replica_is_kept_short() -> None:
    """Of the header that names the replica 128 characters are kept; it is passed on as it is."""
    found = response_fields([(b"X-Served-By", b"r" * 1000)], b"x-served-by")
    assert (found.replica, found.fields) == ("r" * 128, [(b"X-Served-By", b"r" * 1000)])


# ---- tables that peers fill


def cors(origin: int, size: int = 10) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """An origin, and an answer's CORS fields of so many bytes together with it."""
    name, value = b"Access-Control-Allow-Origin", b"https://%06d.test" % origin
    return value, [(name, b"*" * max(1, size - len(name) - len(value)))]


def test_cors_fields_are_remembered_for_64_origins() -> None:
    """With one more the origin is forgotten whose last answer is the oldest."""
    memory = CorsMemory()
    for origin in [*range(64), 0, 64]:
        memory.remember(*cors(origin))
    known = [origin for origin in range(65) if memory.fields(cors(origin)[0])]
    assert known == [0, *range(2, 65)]


@pytest.mark.parametrize(("size", "kept"), [(4096, True), (4097, False)])
def test_cors_fields_are_remembered_up_to_4_kib(size: int, kept: bool) -> None:
    """What an upstream sends beyond it, or a client's origin takes of it, is not remembered."""
    memory = CorsMemory()
    origin, fields = cors(1, size)
    assert sum(len(name) + len(value) for name, value in fields) + len(origin) == size
    memory.remember(origin, fields)
    assert bool(memory.fields(origin)) is kept


@pytest.mark.parametrize(("others", "said"), [(4095, None), (4096, 0)])
def test_repetitions_are_remembered_for_4096_things(others: int, said: int | None) -> None:
    """Lines are thinned for the things repeated last; what was forgotten has its burst again."""
    repeats = Repeats()
    assert [repeats.admit("x" * 60_000, 0.0) for _ in range(6)] == [0, 0, 0, 0, 0, None]
    for n in range(others):
        repeats.admit(n, 0.0)
    assert repeats.admit("x" * 60_000, 0.0) == said


def test_a_text_in_the_log_is_kept_short() -> None:
    """Of a value that a peer chose 512 characters are written, of an event id 128."""
    stream = io.BytesIO()
    log = open_log(LogSettings(format="json"), stream=stream)
    log.event("upstream.error", reason="r", error="x" * 10_000)
    log.event("resume.attempted", cursor=b"x" * 10_000)
    assert log.close()
    failed, attempted = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (failed["error"], attempted["cursor"]) == ("x" * 512, "x" * 128)


def test_hashes_of_long_session_ids_are_not_kept() -> None:
    """A cache keeps so many entries, of ids of at most 256 bytes: a peer cannot fill it with large ones."""
    made: list[str] = []

    @privacy.cached_if_short(8192)
    def length(raw: str) -> int:
        made.append(raw)
        return len(raw)

    short, long = "x" * 256, "x" * 257
    assert [length(short), length(short), length(long), length(long)] == [256, 256, 257, 257]
    assert made == [short, long, long]
    for n in range(8192):
        length(str(n))
    length(short)
    assert made.count(short) == 2

    tracemalloc.start()
    try:
        for n in range(60):
            hash_session(f"{n:04}" * 7500)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20


# ---- a running process


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    """A proxy that reads little of a request."""
    limits = {"request_inspect_bytes": "1KiB"}
    async with lab(tmp_path_factory.mktemp("limits"), limits=limits) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def here(process: Lab) -> AsyncIterator[Lab]:
    """It, for one test."""
    async with process.for_one_test() as made:
        yield made


async def settled(here: Lab, gauge: str, value: float) -> None:
    """A gauge comes to a value; AssertionError else."""
    name = f"forkwatch_{gauge}"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            samples = await here.proxy.metrics()
            if sum(held for (sample, _), held in samples.items() if sample == name) == value:
                return
            await asyncio.sleep(POLL_S)


@IN_ONE_LOOP
@pytest.mark.parametrize(("size", "in_flight"), [(1024, 1), (1025, 0)])
async def test_a_request_is_read_up_to_its_limit(here: Lab, size: int, in_flight: int) -> None:
    """A body of `request_inspect_bytes` has its id known; a larger one is forwarded and has none."""
    session = ("Mcp-Session-Id: s-1", "Content-Type: application/json")
    await here.exchange("GET /mcp", session[0], answer=EMPTY)
    call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ""})
    body = call.replace('""', f'"{"x" * (size - len(call))}"').encode()
    assert len(body) == size
    one = await here.client()
    one.request("POST /mcp", *session, f"Content-Length: {size}", body=body)
    peer = await here.upstream.accepted()
    await peer.head()
    assert await peer.body(size) == body
    peer.send(SSE)
    await one.head()
    await settled(here, "requests_in_flight", in_flight)


@IN_ONE_LOOP
@pytest.mark.parametrize(("size", "found"), [(64 * KIB, 1), (64 * KIB + 1, 0)])
async def test_a_json_answer_is_read_up_to_its_limit(here: Lab, size: int, found: int) -> None:
    """An error inside a 200 is found in 64 KiB; a larger answer passes unread."""
    error = json.dumps(
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Session not found"}}
    )
    body = error.encode().ljust(size)
    answer = OK + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size + body
    before = await Counters.since_now(here.proxy)
    call = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    fields = ("Mcp-Session-Id: s-1", f"Content-Length: {len(call)}")
    _, response = await here.exchange("POST /mcp", *fields, answer=answer, body=call)
    assert (response.status, response.body) == (200, body)
    assert await before.grown("findings_total", finding="error_in_success") == found


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forkwatch]:
    """A proxy that nobody uses, with its admin interface on TCP."""
    upstream = {"name": "gone", "url": f"http://127.0.0.1:{free_port()}"}
    directory = tmp_path_factory.mktemp("alone")
    proxy = Forkwatch([upstream], directory, admin=f"127.0.0.1:{free_port()}").start()
    yield proxy
    proxy.stop()


async def refused(proxy: Forkwatch, listener: str, raw: bytes) -> None:
    """One of the other listeners answers `raw` with 400 and closes, and the process lives on."""
    neighbour = await Client.connect(int(proxy.settings[listener].rpartition(":")[2]))
    neighbour.send(raw)
    assert (await neighbour.head()).status == 400
    await neighbour.closed()
    neighbour.leave()
    assert (await proxy.fetch("/livez"))[0] == 200


@pytest.mark.parametrize("listener", ["status", "admin"])
@pytest.mark.parametrize("what", ["target", "field", "fields"])
async def test_heads_of_the_other_listeners(alone: Forkwatch, listener: str, what: str) -> None:
    """The status and admin listeners read a head of some kilobytes; a larger one is a 400."""
    raw = {
        "target": b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "field": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        "fields": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: x\r\n" * 10_000 + b"\r\n",
    }[what]
    await refused(alone, listener, raw)


@pytest.mark.parametrize("listener", ["status", "admin"])
async def test_nonsense_at_the_other_listeners_is_not_logged(alone: Forkwatch, listener: str) -> None:
    """A request that is none costs no line and shows nothing of itself, which may be a token, on stderr."""
    secret = f"t0ken-for-{listener}"
    raw = f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\x01\r\n\r\n"
    await refused(alone, listener, raw.encode())
    assert secret not in alone.errors.read_text() + alone.log_file.read_text()


# ---- the command line


def test_how_much_the_command_line_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer larger than the limit is cut off there, and is then no answer of a forkwatch."""
    monkeypatch.setattr(client, "_MOST_BYTES", 1000)
    with serving(str(tmp_path / "s")) as interface:
        interface.replies["GET /api/v1/status"] = (200, {"more": "x" * 980})
        asking = client.Admin(Place.parse(f"unix:{interface.path}"))
        assert len(asking.ask("GET", "status").body["more"]) == 980
        interface.replies["GET /api/v1/status"] = (200, {"more": "x" * 10_000})
        with pytest.raises(CommandFailed, match="is not the admin interface of a forkwatch"):
            asking.ask("GET", "status")
