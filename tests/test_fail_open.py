"""A detector that raises: the bytes flow on unjudged, it is counted, and nobody sees a traceback."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests import forkwatch_process
from tests.forkwatch_process import Counters
from tests.scripted_upstream import OK
from tests.wire import LAST, SSE, End, Lab, lab

pytestmark = pytest.mark.asyncio(loop_scope="module")

STEPS = [
    "Exchange.__init__",
    "Exchange.began",
    "Exchange.uploaded",
    "Exchange.responded",
    "Exchange.answered",
    "Exchange.ended",
    "Scanner.feed",
    "Relay.ended",
]

BREAKABLE = """
import sys
from pathlib import Path
from proxy.cli import main
from proxy.engine.exchange import Exchange
from proxy.engine.relay import Relay
from proxy.engine.sse import Scanner

def breakable(cls, name):
    method = getattr(cls, name)
    def step(*arguments, **settings):
        if Path({switch!r}).read_text() == cls.__name__ + "." + name:
            raise RuntimeError("a defect of the detector")
        return method(*arguments, **settings)
    setattr(cls, name, step)

for step in {steps!r}:
    owner, name = step.split(".")
    breakable({{"Exchange": Exchange, "Relay": Relay, "Scanner": Scanner}}[owner], name)
sys.exit(main())
"""
"""The proxy, with steps of the engine that raise once a file names them."""

FRAMES = [
    b'id: %d\ndata: {"jsonrpc":"2.0","method":"notifications/n","params":{"n":%d}}\n\n' % (i, i)
    for i in range(4)
]
CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'
FIELDS = ["Accept: text/event-stream", f"Content-Length: {len(CALL)}"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["observe", "enforce"])
async def process(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Lab, Path]]:
    """The proxy of these tests, and the file that names the step that raises."""
    directory = tmp_path_factory.mktemp("fail_open")
    switch = directory / "switch"
    switch.write_text("")
    code = BREAKABLE.format(switch=str(switch), steps=STEPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forkwatch_process, "COMMAND", [sys.executable, "-c", code, "run", "--config"])
        async with lab(directory, mode=request.param) as found:
            yield found, switch


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_raises(process: tuple[Lab, Path], step: str) -> None:
    """Whichever step of the engine raises, clients and upstream notice nothing."""
    at, switch = process
    session = f"Mcp-Session-Id: s-{step}"
    async with at.for_one_test() as here:
        switch.write_text("")
        await stream(here, f"POST /mcp/{step}", session, *FIELDS, body=CALL, frames=FRAMES)
        counters = await Counters.since_now(here.proxy)
        switch.write_text(step)
        await stream(here, "POST /mcp", session, *FIELDS, body=CALL, frames=FRAMES)
        await stream(here, "GET /mcp", session, "Last-Event-ID: 1", frames=FRAMES[2:])
        answer = OK + b'Content-Type: application/json\r\nContent-Length: 12\r\n\r\n{"error": 1}'
        _, plain = await here.exchange("POST /mcp", session, *FIELDS, body=CALL, answer=answer)
        assert (plain.body, plain.end) == (b'{"error": 1}', End.CLEAN)
        await counters.reached("fail_open_total", component="detector")
        switch.write_text("")
        await stream(here, "GET /mcp", f"{session}-other", frames=FRAMES)
    assert "check.failed_open" in {e["event"] for e in at.proxy.log()}


async def test_what_passed_unread_is_not_held_against_a_session(process: tuple[Lab, Path]) -> None:
    """A cursor from a stream that the detector never saw is not called a strange one."""
    at, switch = process
    initialize = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}'
    session = "Mcp-Session-Id: a-session-read-in-part"
    answer = OK + b"Content-Type: application/json\r\n%b\r\nContent-Length: 2\r\n\r\n{}" % session.encode()
    async with at.for_one_test() as here:
        switch.write_text("")
        counters = await Counters.since_now(here.proxy)
        await here.exchange("POST /mcp", f"Content-Length: {len(initialize)}", body=initialize, answer=answer)
        await counters.reached("sessions_opened_total", protocol="2025-06-18")
        switch.write_text("Exchange.__init__")
        await stream(here, "GET /mcp", session, frames=FRAMES[:2])
        await counters.reached("fail_open_total", component="detector")
        switch.write_text("")
        await stream(here, "GET /mcp", session, "Last-Event-ID: 1", frames=FRAMES[2:])
        await counters.reached("resume_verdicts_total", verdict="unverifiable")
        assert await counters.grown("findings_total", finding="cursor_not_validated") == 0


async def stream(here: Lab, line: str, *fields: str, frames: list[bytes], body: bytes = b"") -> None:
    """One exchange answered by a stream: every byte of it and its clean end arrive."""
    answer = SSE + b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames) + LAST
    _, response = await here.exchange(line, *fields, answer=answer, body=body)
    assert (response.status, response.body, response.end) == (200, b"".join(frames), End.CLEAN)
