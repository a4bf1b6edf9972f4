"""nginx, HAProxy and Caddy around a real forkwatch: every cell of docs/proxies.md is measured here."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.between.crossing import Crossing, Route
from tests.between.middlebox import HERE, PROGRAMS, Middlebox, Program, installed, reserved
from tests.between.page import Table, snippets, table
from tests.between.rows import BEHIND, IN_FRONT, MARKING, Measure
from tests.between.stations import TITLES, Column, Stations, stations
from tests.between.streams import ENDS, HELD_S, end_after_silence
from tests.forkwatch_process import Counters
from tests.scenarios.exchange import STEP_TIMEOUT_S
from tests.scenarios.frames import event, result

pytestmark = [pytest.mark.ops, pytest.mark.asyncio(loop_scope="module")]

FRONT, BACK = table("In front of forkwatch"), table("Behind forkwatch")
DRAIN, AWAY = "forkwatch drains: a call; a standalone stream", "forkwatch is down: the client gets"

OF_THE_TEST = ("admin endpoint disabled", "automatic HTTPS is completely disabled")
"""What Caddy warns of because the tests switch it off."""

Way = Callable[[Column], AbstractAsyncContextManager[Route]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stations]:
    """Everything that is installed, running."""
    if not any(map(installed, PROGRAMS)):
        pytest.skip("none of " + ", ".join(each.package for each in PROGRAMS) + " is installed")
    async with stations(tmp_path_factory.mktemp("between")) as found:
        yield found


async def cells(running: Stations, way: Way, measure: Measure) -> dict[str, str]:
    """A row of a table, its cells measured at the same time."""

    async def cell(column: Column) -> str:
        if measure is end_after_silence:
            column = running.hasty.get(column.title, column)
        async with way(column) as route:
            return await measure(route)

    found = await asyncio.gather(*map(cell, running.columns))
    return {column.title: words for column, words in zip(running.columns, found, strict=True)}


def told(running: Stations, row: dict[str, str]) -> dict[str, str]:
    """A row of the page, without the programs that are not installed here."""
    return {column.title: row[column.title] for column in running.columns}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
async def test_the_program_takes_its_settings(program: Program, tmp_path: Path) -> None:
    """The program finds nothing to warn of. One that is missing is named here; elsewhere its columns are left out."""
    if not installed(program):
        pytest.skip(
            f"{program.name} is not installed: apt-get install {program.package}, or make ops as root"
        )
    settings = (HERE / program.recommended).read_text()
    with ExitStack() as stack:
        forkwatch, a, b, *listens = (reserved(stack) for _ in range(5))
        box = Middlebox(program, settings, forkwatch, (a, b), tmp_path, *listens)
        box.configure()
        box.start(program.check)
        assert await asyncio.to_thread(box.process.wait, STEP_TIMEOUT_S) == 0
    warnings = [line for line in box.said.splitlines() if "warn" in line.lower()]
    assert [line for line in warnings if not any(each in line for each in OF_THE_TEST)] == []


@pytest.mark.parametrize("name", IN_FRONT)
async def test_in_front(running: Stations, name: str) -> None:
    """Client, middlebox, forkwatch, server: a row of the first table."""
    assert await cells(running, running.in_front, IN_FRONT[name]) == told(running, FRONT[name])


@pytest.mark.parametrize("name", BEHIND)
async def test_behind(running: Stations, name: str) -> None:
    """Client, forkwatch, middlebox, two replicas: a row of the second table."""
    measure = BEHIND[name]
    try:
        assert await cells(running, running.behind, measure) == told(running, BACK[name])
    finally:
        if measure in MARKING:
            running.forget("nginx")


async def test_silence(running: Stations) -> None:
    """Without a limit that is passed, a silent stream lives on, on either side of forkwatch."""
    ways = (running.in_front, running.behind)

    async def cell(way: Way, column: Column) -> str:
        async with way(column) as route:
            return await end_after_silence(route)

    found = await asyncio.gather(*(cell(way, column) for way in ways for column in running.columns))
    assert set(found) == {"lives on"}


async def opened(running: Stations, stack: AsyncExitStack, column: Column) -> tuple[Crossing, Crossing]:
    """A standalone stream and a call, both under way by a middlebox."""
    route = await stack.enter_async_context(running.in_front(column))
    stream, call = await (await route.listen()).open(), await (await route.ask(20)).open()
    for each in (stream, call):
        await each.offer(event(1))
        assert await each.has(len(each.sent), HELD_S)
    return stream, call


async def answered(call: Crossing) -> None:
    """The call gets its response."""
    await call.offer(result(2, 20))
    await call.end()


async def test_a_drain(running: Stations) -> None:
    """A call that is answered in time is whole, a standalone stream ends, then there is nobody: two rows."""
    async with AsyncExitStack() as stack:
        under_way = await asyncio.gather(*(opened(running, stack, column) for column in running.columns))
        running.forkwatch.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*(answered(call) for _, call in under_way))
        await asyncio.gather(*(stream.over() for stream, _ in under_way))
        assert await asyncio.to_thread(running.forkwatch.process.wait, STEP_TIMEOUT_S) == 0
        away = await asyncio.gather(*(status(running, column) for column in running.columns))
        running.forkwatch.start()
    assert all(each.body == each.sent for both in under_way for each in both)
    ends = [f"{ENDS[str(call.ended)]}; {ENDS[str(stream.ended)]}" for stream, call in under_way]
    titles = [column.title for column in running.columns]
    assert dict(zip(titles, ends, strict=True)) == told(running, FRONT[DRAIN])
    found = [f"`{each}`" for each in away]
    assert dict(zip(titles, found, strict=True)) == told(running, FRONT[AWAY])


async def status(running: Stations, column: Column) -> int | None:
    """What a client gets from a middlebox with nothing behind it."""
    counters = Counters(running.forkwatch, {})
    route = Route(running.forkwatch, column.server, counters, column.box.in_front, "nowhere")
    refused = await route.request("GET", [], reaches=False)
    await refused.over()
    await route.close()
    return refused.status


@pytest.mark.parametrize(("page", "rows"), [(FRONT, [*IN_FRONT, DRAIN, AWAY]), (BACK, [*BEHIND])])
async def test_the_page_has_the_rows(page: Table, rows: list[str]) -> None:
    """Every row of the page is measured, and everything measured is on it, for the same columns."""
    assert list(page) == rows
    titles = [TITLES[program.name] + suffix for program in PROGRAMS for suffix in ("", ", set")]
    assert [list(row) for row in page.values()] == [titles] * len(rows)


async def test_the_page_has_the_files() -> None:
    """The settings on the page are those that were measured, to the byte."""
    assert snippets() == [(HERE / program.recommended).read_text() for program in PROGRAMS]
