"""`enforce`: a proven fork ends the session out loud, each pending call with an error under its own id."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.scenarios.exchange import STEP_TIMEOUT_S, Exchange, one
from tests.scenarios.frames import event, priming, result
from tests.scenarios.lab import Lab


async def error_of(exchange: Exchange) -> dict[str, Any]:
    """The one error that ends this exchange cleanly; its frame carries neither an id nor a retry."""
    await exchange.until(lambda: exchange.ended is not None, "the cut")
    assert (exchange.status, exchange.ended) == (200, "clean")
    streamed = one(exchange.headers, "Content-Type") == "text/event-stream"
    messages = exchange.events() if streamed else [json.loads(exchange.body)]
    (error,) = [message for message in messages if "error" in message]
    assert error["error"]["code"] == -32600
    assert error["error"]["message"].startswith("Session terminated: ")
    (injected,) = [frame for frame in exchange.body.split(b"\n\n") if b'"error"' in frame]
    assert not any(line.startswith((b"id:", b"retry:")) for line in injected.splitlines())
    return error


async def assert_quarantined(exchange: Exchange) -> None:
    """404 with a JSON-RPC error under a null id."""
    await exchange.until(lambda: exchange.ended is not None, "the answer to a quarantined request")
    body = json.loads(exchange.body)
    assert (exchange.status, body["id"], body["error"]["code"]) == (404, None, -32001)
    assert body["error"]["message"].startswith("Session not found: ")
    assert (one(exchange.headers, "Forkwatch-Verdict") or "").startswith("fork; reason=")


async def test_a_pending_call_on_a_forked_stream_fails_at_once(lab: Lab) -> None:
    """The forked frames are not delivered; the call's id gets an error that says why."""
    lab.path = "/enforce"
    await lab.initialize()
    await lab.relay(priming(1), event(2), event(3), request=10)
    resumed = await (await lab.get("3")).stream()
    await resumed.offer(event(1, "e2-1"), result(2, 10, "somebody else's answer"))
    error = await error_of(resumed)
    assert error["id"] == 10
    told = error["error"]["data"]["forkwatch"]
    assert (told["verdict"], told["certainty"], told["cursor"], told["got"]) == ("fork", "proven", "3", "1")
    assert b"e2-1" not in resumed.body
    assert b"somebody else" not in resumed.body
    assert await lab.counters.grown("policy_actions_total", action="cut") == 1
    assert await lab.counters.grown("quarantines_total") == 1


async def test_a_quarantined_session_gets_404_until_it_initializes_again(lab: Lab) -> None:
    """Calls and streams are refused here, DELETE goes upstream, a new session is healthy."""
    lab.path = "/enforce"
    await lab.initialize()
    old = lab.session
    await lab.relay(priming(1), event(2), event(3), request=10)
    resumed = await (await lab.get("3")).stream()
    await resumed.offer(event(1, "e2-1"))
    await error_of(resumed)
    await assert_quarantined(await lab.call(11, reaches=False))
    await assert_quarantined(await lab.get(reaches=False))
    deleted = await lab.delete()
    await deleted.answer(204, [], None)
    assert deleted.status in (200, 204)
    again = await lab.initialize(carry=old)
    assert one(again.upstream.headers, "Mcp-Session-Id") is None
    call = await (await lab.call(12)).stream(result(None, 12))
    await call.end()
    assert call.body == call.sent


async def test_other_calls_in_flight_fail_each_with_its_own_id(lab: Lab) -> None:
    """One stream already, one not answered at all, ids of both JSON kinds."""
    lab.path = "/enforce"
    await lab.initialize()
    await lab.relay(event(1), event(2), request=10)
    streamed = await (await lab.call("abc")).stream(event(3))
    unanswered = await lab.call(12)
    resumed = await (await lab.get("2")).stream()
    await resumed.offer(event(1, "e2-1"))
    assert [(await error_of(each))["id"] for each in (resumed, streamed, unanswered)] == [10, "abc", 12]


async def test_a_healthy_resume_is_untouched(lab: Lab) -> None:
    """A replay, a new event and the answer: every byte, and no quarantine."""
    lab.path = "/enforce"
    await lab.initialize()
    await lab.relay(priming(1), event(2), event(3), event(4), request=10)
    resumed = await lab.resume("3", event(4), event(5), result(6, 10))
    await resumed.end()
    assert resumed.body == resumed.sent
    await lab.judged("resumed", "replayed", "proven")
    assert await lab.counters.grown("quarantines_total") == 0


async def test_a_suspicion_is_not_enough_to_cut(lab: Lab) -> None:
    """A lower id by the clock is annotated, and the session lives on."""
    lab.path = "/enforce"
    await lab.initialize()
    await lab.relay(*(event(f"17959732{n:05}-0") for n in range(10, 15)))
    resumed = await lab.resume("1795973200014-0", event("1795973200002-0", "older"))
    await lab.judged("fork", {"id_regressed", "log_restarted"}, "suspected")
    assert b": forkwatch verdict=fork " in resumed.body
    assert await lab.counters.grown("quarantines_total") == 0
    call = await (await lab.call(11)).stream(result(None, 11))
    await call.end()
    assert call.status == 200


async def forked(lab: Lab) -> None:
    """The session is cut for a fork."""
    lab.path = "/enforce"
    await lab.initialize()
    await lab.relay(event(1), event(2), event(3), request=10)
    resumed = await (await lab.get("3")).stream()
    await resumed.offer(event(1, "e2-1"))
    await error_of(resumed)


async def test_a_refusal_to_head_has_no_body(lab: Lab) -> None:
    """What follows on a kept connection would be taken for the next answer."""
    await forked(lab)
    reader, writer = await asyncio.open_connection("127.0.0.1", lab.proxy.port)
    head = f"HEAD {lab.path} HTTP/1.1\r\nHost: h\r\nMcp-Session-Id: {lab.session}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), STEP_TIMEOUT_S)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert answer.endswith(b"\r\n\r\n")
    assert answer.count(b"\r\n\r\n") == 1


async def test_a_client_that_waits_to_upload_to_a_cut_session_is_told_to(lab: Lab) -> None:
    """The upstream is not asked, so the `100 Continue` is the proxy's; then comes the refusal."""
    await forked(lab)
    body = b'{"jsonrpc":"2.0","id":11,"method":"tools/call"}'
    reader, writer = await asyncio.open_connection("127.0.0.1", lab.proxy.port)
    head = f"POST {lab.path} HTTP/1.1\r\nHost: h\r\nMcp-Session-Id: {lab.session}\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n".encode())
    first = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), STEP_TIMEOUT_S)
    assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(body)
    assert (await asyncio.wait_for(reader.read(), STEP_TIMEOUT_S)).startswith(b"HTTP/1.1 404 ")
    writer.close()
