"""Out of service and back: what happens to two hundred streams at the end, and a drain that is undone."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.admin.operator import Desk, desk, entry, until
from tests.forkwatch_process import POLL_S
from tests.scenarios.frames import event, result
from tests.scripted_upstream import EMPTY, PATIENCE_S, Peer
from tests.wire import LAST, Client, End, Head, Lab, lab

STANDALONE = 150
CALLS = 50
DELAY_S, SPREAD_S, DEADLINE_S = 1.0, 0.8, 3.0
LATE_S = 1.5
"""How late a busy machine may be."""


@dataclass(slots=True)
class Ended:
    """How a stream ended for its client, and when, in seconds from the signal."""

    body: bytes
    end: End
    at: float


async def read(client: Client, head: Head, began: Callable[[], float]) -> Ended:
    """The rest of a stream."""
    body, end = await client.body(head)
    return Ended(body, end, time.monotonic() - began())


async def opened(here: Lab, count: int, line: str) -> list[tuple[Client, Peer, Head]]:
    """So many streams, each in a session of its own."""
    method = line.partition(" ")[0]
    found = []
    for first in range(0, count, 25):
        found += await asyncio.gather(
            *(
                here.opened(line, f"Mcp-Session-Id: {method}-{first + n}", "Content-Length: 0")
                for n in range(min(25, count - first))
            )
        )
    return found


async def unready(here: Lab) -> None:
    """Wait until the proxy says that it is not ready, and why."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await here.proxy.fetch("/readyz"))[0] != 503:
            await asyncio.sleep(POLL_S)
    assert json.loads(found[1]) == {"ready": False, "reasons": ["draining"]}


async def test_two_hundred_streams(tmp_path: Path) -> None:
    """Standalone streams end cleanly one after another, calls that finish are whole, the rest are broken
    off at the deadline; clients are taken during the delay, and refused afterwards."""
    shutdown = {"delay": f"{DELAY_S}s", "spread": f"{SPREAD_S}s", "deadline": f"{DEADLINE_S}s"}
    async with lab(tmp_path, shutdown=shutdown) as here:
        gets = await opened(here, STANDALONE, "GET /mcp")
        calls = await opened(here, CALLS, "POST /mcp")
        idle = await here.client()
        idle.request("GET /mcp", "Content-Length: 0")
        idle_peer = await here.upstream.accepted()
        await idle_peer.head()
        idle_peer.send(EMPTY)
        assert (await idle.response()).head.one(b"Connection") is None
        began = time.monotonic()
        reading = [asyncio.create_task(read(c, head, lambda: began)) for c, _, head in [*gets, *calls]]
        here.proxy.process.send_signal(signal.SIGTERM)
        await unready(here)
        _, response = await here.exchange("POST /mcp", "Content-Length: 0", answer=EMPTY)
        assert (response.status, response.head.one(b"Connection")) == (200, b"close")
        idle.request("POST /mcp", "Content-Length: 0")
        peer = await here.upstream.accepted()
        await peer.head()
        peer.send(EMPTY)
        assert (await idle.response()).head.one(b"Connection") == b"close"
        assert time.monotonic() - began < DELAY_S, "too slow a machine to look into the delay"
        standalone = await asyncio.gather(*reading[:STANDALONE])
        with pytest.raises(ConnectionRefusedError):
            await Client.connect(here.proxy.port)
        frame = event(1)
        for _, peer, _ in calls[::2]:
            peer.send(b"%x\r\n%b\r\n" % (len(frame), frame) + LAST)
        answered = await asyncio.gather(*reading[STANDALONE::2])
        at = time.monotonic() - began
        rest = await asyncio.gather(*reading[STANDALONE + 1 :: 2])
        assert await asyncio.to_thread(here.proxy.process.wait, PATIENCE_S) == 0
        took = time.monotonic() - began
    assert Counter((each.body, each.end) for each in standalone) == {(b"", End.CLEAN): STANDALONE}
    assert_spread([each.at for each in standalone])
    assert Counter((each.body, each.end) for each in answered) == {(event(1), End.CLEAN): CALLS // 2}
    assert at < DEADLINE_S
    assert Counter((each.body, each.end) for each in rest) == {(b"", End.CUT): CALLS // 2}
    assert all(DEADLINE_S - 0.1 <= each.at < DEADLINE_S + LATE_S for each in rest)
    assert took < DEADLINE_S + LATE_S
    assert_logged(here)


def assert_spread(times: list[float]) -> None:
    """None ends before the delay is over, and they end one after another over the spread."""
    times = sorted(times)
    assert times[0] >= DELAY_S - 0.01
    assert 0.8 * SPREAD_S <= times[-1] - times[0] < SPREAD_S + LATE_S
    quarters = [times[len(times) * n // 4 - 1] - times[0] for n in (1, 2, 3)]
    for n, quarter in enumerate(quarters, 1):
        assert quarter >= 0.8 * SPREAD_S * n / 4
    assert len({round(at, 2) for at in times}) > 20  # not all at once


def assert_logged(here: Lab) -> None:
    """The log has the drain from its start to its end, and why each stream ended."""
    log = here.proxy.log()
    [started] = [line for line in log if line["event"] == "drain.started"]
    assert (started["delay_s"], started["spread_s"], started["deadline_s"]) == (DELAY_S, SPREAD_S, DEADLINE_S)
    assert started["open_streams"] == STANDALONE + CALLS
    [finished] = [line for line in log if line["event"] == "drain.finished"]
    assert finished["streams_cut"] == CALLS // 2
    assert [line["event"] for line in log][-2:] == ["drain.finished", "proxy.stopped"]
    causes = Counter((line["kind"], line["cause"]) for line in log if line["event"] == "stream.closed")
    assert causes == {
        ("get", "proxy_drain"): STANDALONE,
        ("post", "proxy_drain"): CALLS // 2,
        ("post", "completed"): CALLS // 2,
    }


# An operator's drain.


def quick(directory: Path, **top: Any) -> Any:
    """A desk whose drain has a short delay, and a deadline that no test waits for."""
    shutdown = {"delay": "50ms", "spread": "0s", "deadline": "60s"}
    return desk(directory, lambda port: [entry("mcp", port)], **{"shutdown": shutdown, **top})


async def state(made: Desk) -> tuple[str, int, float, float]:
    """What the status, /readyz and the gauges `ready` and `draining` say."""
    said = (await made.admin.get("status"))["state"]
    return (
        said,
        (await made.proxy.fetch("/readyz"))[0],
        await made.gauge("ready"),
        await made.gauge("draining"),
    )


READY = ("ready", 200, 1.0, 0.0)
DRAINING = ("draining", 503, 0.0, 1.0)
DRAINED = ("drained", 503, 0.0, 1.0)


async def becomes(made: Desk, expected: tuple[str, int, float, float]) -> None:
    """Wait until the proxy says so."""
    async with asyncio.timeout(PATIENCE_S):
        while (await made.admin.get("status"))["state"] != expected[0]:
            await asyncio.sleep(POLL_S)
    assert await state(made) == expected


async def refuses(port: int) -> bool:
    """Whether nobody can connect."""
    try:
        client = await Client.connect(port)
    except ConnectionRefusedError:
        return True
    client.leave()
    return False


async def serves(made: Desk) -> None:
    """A call is answered, and its connection is kept."""
    async with made.lab() as lab:
        await lab.initialize()
        call = await (await lab.call(1)).stream(result(None, 1))
        await call.end()
        assert call.body == call.sent
        assert "connection" not in {name.lower() for name, _ in call.headers}


async def refusing(made: Desk) -> None:
    """Wait until nobody can connect any more: the delay is over."""
    async with asyncio.timeout(PATIENCE_S):
        while not await refuses(made.proxy.port):
            await asyncio.sleep(POLL_S)


async def at_once(made: Desk) -> None:
    """Do not wait: the delay has just begun."""
    assert not await refuses(made.proxy.port)


@pytest.mark.parametrize("when", [at_once, refusing], ids=["in the delay", "after it"])
async def test_undone_while_it_goes_on(tmp_path: Path, when: Callable[[Desk], Awaitable[None]]) -> None:
    """A call that is open goes on through it all, and clients are taken again on the same port."""
    shutdown = {"delay": "400ms", "spread": "0s", "deadline": "60s"}
    async with quick(tmp_path, shutdown=shutdown) as made:
        await serves(made)
        async with made.lab() as lab:
            await lab.initialize()
            call = await (await lab.call(7)).stream(event(1))
            assert await made.admin.order("POST drain") == {"state": "draining", "open_exchanges": 1}
            assert await state(made) == DRAINING
            assert await made.admin.order("POST drain") == {"state": "draining", "open_exchanges": 1}
            await when(made)
            assert await made.admin.order("DELETE drain") == {"state": "ready"}
            assert await state(made) == READY
            await call.send(event(2), result(3, 7))
            await call.end()
            assert (call.body, call.ended) == (call.sent, "clean")
        await serves(made)
        await made.settled()
        [line] = made.lines("drain.finished")
        assert line["undone"] is True
        assert len(made.lines("drain.started")) == 1
        assert made.proxy.process.poll() is None


@pytest.mark.parametrize("listen", ["a port", "port 0"])
async def test_undone_after_its_end(tmp_path: Path, listen: str) -> None:
    """A standalone stream has ended, nobody could connect, the interface still answers; then all is as
    before, twice, also where the port was chosen by the system."""
    top = {} if listen == "a port" else {"listen": "127.0.0.1:0"}
    async with quick(tmp_path, **top) as made:
        where = (await made.admin.get("status"))["listen"]
        made.proxy.port = int(where.rpartition(":")[2])
        for _ in range(2):
            async with made.lab() as lab:
                await lab.initialize()
                stream = await (await lab.get()).stream(event(1))
                await made.admin.order("POST drain")
                await stream.until(lambda: stream.ended is not None, "the end")  # noqa: B023
                assert (stream.body, stream.ended) == (stream.sent, "clean")
                await becomes(made, DRAINED)
                assert await refuses(made.proxy.port)
            assert await made.admin.order("DELETE drain") == {"state": "ready"}
            assert await state(made) == READY
            assert (await made.admin.get("status"))["listen"] == where
            await serves(made)
        await made.logged("drain.finished", 4)
        assert [line.get("undone") for line in made.lines("drain.finished")] == [None, True, None, True]


async def test_nothing_to_undo(tmp_path: Path) -> None:
    """To undo a drain that never began is no error, and nothing happens."""
    async with quick(tmp_path) as made:
        assert await made.admin.order("DELETE drain") == {"state": "ready"}
        await made.settled()
        assert made.lines("drain.finished") == []
        await serves(made)


async def test_the_address_is_taken_meanwhile(tmp_path: Path) -> None:
    """Then it stays drained, says so, and can be undone later."""
    async with quick(tmp_path) as made:
        await made.admin.order("POST drain")
        await becomes(made, DRAINED)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", made.proxy.port))
            other.listen()
            answer = await made.admin.tell("DELETE drain")
            assert (answer.status, answer.value["type"]) == (409, "forkwatch:address-taken")
            assert "in use" in answer.value["detail"]
            assert await state(made) == DRAINED
        assert await made.admin.order("DELETE drain") == {"state": "ready"}
        await serves(made)


async def test_a_signal_after_an_operators_drain(tmp_path: Path) -> None:
    """Nothing is open any more: the process ends at once, with 0, and its delay is not waited for again."""
    shutdown = {"delay": "1s", "spread": "0s", "deadline": "60s"}
    async with quick(tmp_path, shutdown=shutdown) as made:
        await made.admin.order("POST drain")
        await becomes(made, DRAINED)
        began = time.monotonic()
        made.proxy.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(made.proxy.process.wait, PATIENCE_S) == 0
        assert time.monotonic() - began < 1.0
        assert [line["event"] for line in made.proxy.log()][-2:] == ["proxy.stopping", "proxy.stopped"]


async def test_a_signal_after_a_drain_was_undone(tmp_path: Path) -> None:
    """It is a drain of its own: with its delay, and a clean end of streams."""
    async with quick(tmp_path) as made:
        await made.admin.order("POST drain")
        await becomes(made, DRAINED)
        await made.admin.order("DELETE drain")
        async with made.lab() as lab:
            await lab.initialize()
            stream = await (await lab.get()).stream(event(1))
            began = time.monotonic()
            made.proxy.process.send_signal(signal.SIGTERM)
            await stream.until(lambda: stream.ended is not None, "the end")
            assert (stream.body, stream.ended) == (stream.sent, "clean")
            assert time.monotonic() - began >= 0.05
            assert await asyncio.to_thread(made.proxy.process.wait, PATIENCE_S) == 0


async def test_two_signals_during_an_operators_drain(tmp_path: Path) -> None:
    """The first one ends the process after the drain that is under way, which cannot be undone any more;
    the second one ends it at once, with 1."""
    async with quick(tmp_path) as made, made.lab() as lab:
        await lab.initialize()
        call = await (await lab.call(7)).stream(event(1))
        await made.admin.order("POST drain")
        await refusing(made)
        made.proxy.process.send_signal(signal.SIGTERM)
        await until(lambda: bool(made.lines("proxy.stopping")), "proxy.stopping")
        answer = await made.admin.tell("DELETE drain")
        assert (answer.status, answer.value["type"]) == (409, "forkwatch:ending")
        assert await made.admin.order("POST drain") == {"state": "draining", "open_exchanges": 1}
        await call.send(event(2))
        assert len(made.lines("drain.started")) == 1
        began = time.monotonic()
        made.proxy.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(made.proxy.process.wait, PATIENCE_S) == 1
        assert time.monotonic() - began < 1.0
