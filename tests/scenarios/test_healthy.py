"""What is healthy, however odd it looks: nothing is raised and every byte is what the upstream sent."""

from __future__ import annotations

import json

import pytest

from tests.forkwatch_process import ALARMS
from tests.scenarios.exchange import one
from tests.scenarios.frames import KEEP_ALIVE, event, priming, result
from tests.scenarios.lab import Lab

REFUSALS = {
    400: "rejected",
    401: "unauthorized",
    404: "not_found",
    405: "unsupported",
    409: "conflict",
    410: "rejected",
    421: "other",
    429: "throttled",
    503: "upstream_error",
}
MODES = pytest.mark.parametrize(
    "path", ["/mcp", "/annotate", "/enforce"], ids=["observe", "annotate", "enforce"]
)


async def no_alarm(lab: Lab) -> None:
    """Every resume is judged, nothing is an alarm, nothing was cut."""
    given = await lab.counters.settled()
    assert {key: count for key, count in given.items() if key[0] in ALARMS} == {}
    assert await lab.counters.grown("policy_actions_total", action="cut") == 0
    assert await lab.counters.grown("quarantines_total") == 0


@MODES
async def test_a_reconnect_without_a_cursor_may_start_anew(lab: Lab, path: str) -> None:
    """A GET without Last-Event-ID is no resume, whatever its numbers are."""
    lab.path = path
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 6)))
    await (await lab.get()).stream(event(1, "anew"), event(2, "anew too"))
    await no_alarm(lab)
    assert await lab.counters.grown("resume_attempts_total") == 0


@MODES
async def test_a_server_that_closes_in_order_to_be_polled(lab: Lab, path: str) -> None:
    """Priming, a close on purpose, two polls, and the answer on the last."""
    lab.path = path
    await lab.initialize(version="2025-11-25")
    call = await (await lab.call(10)).stream(priming("A_0", 200))
    await call.end()
    first = await lab.resume("A_0", event("A_1"))
    await first.end()
    second = await lab.resume("A_1", b"retry: 500\n\n", result("A_2", 10))
    await second.end()
    await lab.judged("resumed", {"continued", "replayed"}, count=2)
    assert await lab.counters.grown("requests_unanswered_total") == 0


@MODES
async def test_a_cursor_older_than_the_newest_event_gets_the_backlog(lab: Lab, path: str) -> None:
    """The client consumed less than was relayed; what it missed comes, then a new event."""
    lab.path = path
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 10)))
    await lab.resume("5", *(event(n) for n in range(6, 11)))
    await lab.judged("resumed", "replayed", "proven")


@MODES
async def test_a_second_standalone_stream_is_refused_and_the_first_goes_on(lab: Lab, path: str) -> None:
    """409 passes as it came, and a client that closes its stream closes it upstream at once."""
    lab.path = path
    await lab.initialize()
    stream = await (await lab.get()).stream(event(1))
    second = await lab.get()
    conflict = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Conflict"}}'
    await second.answer(409, [("Content-Type", "application/json")], conflict)
    assert (second.status, second.body) == (409, conflict)
    await stream.send(event(2))
    await stream.leave()
    await no_alarm(lab)


@MODES
async def test_a_server_without_ids_is_no_news(lab: Lab, path: str) -> None:
    """No ids, no resume, no noise in the log."""
    lab.path = path
    await lab.initialize()
    stream = await (await lab.get()).stream(event(None, "a"), KEEP_ALIVE, event(None, "b"))
    await stream.end()
    await (await lab.get()).stream(event(None, "c"))
    call = await (await lab.call(10)).stream(result(None, 10))
    await call.end()
    await no_alarm(lab)
    loud = [line for line in lab.proxy.log() if line.get("session") == lab.session]
    assert [line for line in loud if line["level"] in ("warning", "error")] == []


@MODES
async def test_explicit_refusals_pass_untouched(lab: Lab, path: str) -> None:
    """Each status, with the headers that tell a client what to do, and the session lives on."""
    lab.path = path
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 6)))
    advice = {"Retry-After": "7", "WWW-Authenticate": "Bearer", "Access-Control-Allow-Origin": "*"}
    for status in REFUSALS:
        error = {"code": -32000, "message": f"no {status}"}
        body = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        refused = await lab.get("3")
        await refused.answer(status, [("Content-Type", "application/json"), *advice.items()], body)
        assert (refused.status, refused.body) == (status, body)
        assert {name: one(refused.headers, name) for name in advice} == advice
    expected: dict[tuple[str, str, str], int] = {}
    for reason in REFUSALS.values():
        expected["refused", reason, "proven"] = expected.get(("refused", reason, "proven"), 0) + 1
    assert await lab.counters.settled() == expected
    call = await (await lab.call(11)).stream(result(None, 11))
    await call.end()
    assert call.status == 200


@MODES
async def test_a_quiet_stream_then_a_primer_that_takes_a_number(lab: Lab, path: str) -> None:
    """Nothing was outstanding: silence is idle, and a priming event is part of the numbers."""
    lab.path = path
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 8)))
    quiet = await lab.resume("7", *[KEEP_ALIVE] * 6)
    await quiet.send(event(8))
    await quiet.abort()
    await lab.resume("8", priming("9"), event(10))
    await lab.judged("resumed", "continued", count=2)
    assert await lab.counters.grown("findings_total", finding="replay_overdue") == 0


@MODES
async def test_stateless_traffic_keeps_no_session(lab: Lab, path: str) -> None:
    """Requests of the revision 2026-07-28 pass with their headers and make no state."""
    lab.path = path
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}).encode()
    headers = [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "t"),
    ]
    for _ in range(3):
        call = await lab.request("POST", headers, body)
        await call.stream(KEEP_ALIVE, result(None, 1))
        await call.end()
        assert call.body == call.sent
        assert one(call.upstream.headers, "Mcp-Name") == "t"
    await no_alarm(lab)
    assert await lab.counters.grown("sessions_opened_total") == 0
