"""What an operator switches on a running proxy: the mode of an upstream, and the quarantine of a session."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from proxy.engine.privacy import hash_session
from tests.admin.operator import Desk, desk, entry, until
from tests.forkwatch_process import POLL_S
from tests.scenarios.exchange import Exchange, one
from tests.scenarios.frames import event, result
from tests.scenarios.lab import Lab
from tests.scripted_upstream import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """The proxy of all these tests."""

    def entries(port: int) -> list[dict[str, Any]]:
        return [entry("soft", port, mode="observe"), entry("hard", port, mode="enforce")]

    async with desk(tmp_path_factory.mktemp("modes"), entries) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def here(process: Desk) -> AsyncIterator[Desk]:
    """It, with its configured modes in force before and after."""
    yield process
    await process.admin.order("POST policy", {"mode": "configured"})


async def switch(here: Desk, mode: str, upstream: str | None, ttl: str | None = None) -> Any:
    """Switch a mode; returns what changed."""
    wanted = {"mode": mode, "upstream": upstream, "ttl": ttl}
    return (await here.admin.order("POST policy", wanted))["changed"]


async def in_force(here: Desk, upstream: str) -> tuple[str, str]:
    """The mode in force and the configured one. The metrics say the same of the former."""
    status = await here.status(upstream)
    info = [dict(labels) for name, labels in await here.proxy.metrics() if name == "forkwatch_upstream_info"]
    assert [labels["mode"] for labels in info if labels["upstream"] == upstream] == [status["mode"]]
    return status["mode"], status["configured_mode"]


async def resumed(lab: Lab) -> Exchange:
    """A session with a call in flight has shown 1 to 3 and resumes after 3; nothing has come yet."""
    await lab.initialize()
    await lab.relay(event(1), event(2), event(3), request=10)
    return await (await lab.get("3")).stream()


async def is_cut(exchange: Exchange) -> None:
    """The stream ends cleanly with an error under the id of the call; the fork was not delivered."""
    await exchange.until(lambda: exchange.ended is not None, "the cut")
    assert exchange.ended == "clean"
    assert [(m["id"], m["error"]["code"]) for m in exchange.events()] == [(10, -32600)]
    assert b"e2-1" not in exchange.body


async def refused(exchange: Exchange) -> dict[str, Any]:
    """The error of a request that the proxy answered with 404; its id is null."""
    await exchange.until(lambda: exchange.ended is not None, "the refusal")
    body = json.loads(exchange.body)
    assert (exchange.status, body["id"], body["error"]["code"]) == (404, None, -32001)
    error: dict[str, Any] = body["error"]
    return error


async def passes(lab: Lab, request: object) -> None:
    """A call of the session reaches the upstream, and its answer the client."""
    call = await (await lab.call(request)).stream(result(None, request))
    await call.end()
    assert (call.status, call.body, call.ended) == (200, call.sent, "clean")


# A switch of the mode.


async def test_from_observe_to_enforce(here: Desk) -> None:
    """The next fork is cut. Status, metrics and log say which mode is in force, and for how long."""
    await here.settled()
    before = len(here.lines("policy.changed"))
    async with here.lab("/soft") as lab:
        forked = await resumed(lab)
        await forked.send(event(1, "e2-1"))  # observed
        assert forked.body == forked.sent
        [change] = await switch(here, "enforce", "soft")
        assert abs(change.pop("until_at") - time.time() - 3600) < 5
        assert change == {"upstream": "soft", "mode": "enforce", "previous_mode": "observe", "released": 0}
        assert await in_force(here, "soft") == ("enforce", "observe")
        assert await in_force(here, "hard") == ("enforce", "enforce")
        forked = await resumed(lab)
        await forked.offer(event(1, "e2-1"))
        await is_cut(forked)
    [line] = (await here.logged("policy.changed", before + 1))[before:]
    del line["ts"]
    said = {"level": "warning", "event": "policy.changed", "upstream": "soft", "mode": "enforce"}
    assert line == {**said, "previous_mode": "observe", "by": "admin", "ttl_s": 3600.0, "released": 0}


@pytest.mark.parametrize("first", [b"", event(1, "e2-1")[:-1]], ids=["nothing yet", "most of a frame"])
async def test_from_enforce_to_observe_at_once(here: Desk, first: bytes) -> None:
    """A resume that is being judged is not cut any more: what was held back arrives whole."""
    frame = event(1, "e2-1")
    async with here.lab("/hard") as lab:
        forked = await resumed(lab)
        if first:
            await forked.offer(first)
        await switch(here, "observe", "hard")
        await forked.offer(frame[len(first) :])
        await forked.send(result(2, 10))
        assert (forked.body, forked.ended) == (forked.sent, None)
        [line] = await lab.lines("resume.judged")
        assert (line["verdict"], line["action"]) == ("fork", "pass")
        assert await lab.counters.grown("policy_actions_total", action="would_cut") == 1
        assert await lab.counters.grown("quarantines_total") == 0


async def test_a_harsher_mode_waits_for_the_next_resume(here: Desk) -> None:
    """A resume that began under `observe` is judged under it: what it showed has left already."""
    async with here.lab("/soft") as lab:
        forked = await resumed(lab)
        await switch(here, "enforce", "soft")
        await forked.send(event(1, "e2-1"))
        assert (forked.body, forked.ended) == (forked.sent, None)
        assert await lab.counters.grown("quarantines_total") == 0


@pytest.mark.parametrize("mode", ["observe", "annotate"])
async def test_leaving_enforce_lets_sessions_go(here: Desk, mode: str) -> None:
    """A quarantined session's requests pass again, and the answer says how many were let go."""
    async with here.lab("/hard") as lab:
        forked = await resumed(lab)
        await forked.offer(event(1, "e2-1"))
        await is_cut(forked)
        await refused(await lab.call(11, reaches=False))
        assert (await here.status("hard"))["sessions"]["quarantined"] == 1
        [change] = await switch(here, mode, "hard")
        assert (change["previous_mode"], change["mode"], change["released"]) == ("enforce", mode, 1)
        await passes(lab, 12)
        assert (await here.status("hard"))["sessions"]["quarantined"] == 0
        assert await lab.counters.grown("quarantines_ended_total", cause="admin") == 1
        [line] = await lab.lines("quarantine.ended")
        assert line["cause"] == "admin"
        await here.settled()
        assert here.lines("policy.changed")[-1]["released"] == 1


async def test_a_switch_ends_by_its_time(here: Desk) -> None:
    """After one second the configured mode is in force again; the log says that it was the time."""
    async with here.lab("/soft") as lab:
        began = time.monotonic()
        await switch(here, "enforce", "soft", "1s")
        forked = await resumed(lab)
        await forked.offer(event(1, "e2-1"))
        await is_cut(forked)
        async with asyncio.timeout(PATIENCE_S):
            while (await here.status("soft"))["until_at"] is not None:
                await asyncio.sleep(POLL_S)
        assert 1.0 <= time.monotonic() - began < 3.5
        assert await in_force(here, "soft") == ("observe", "observe")
        await until(lambda: here.lines("policy.changed")[-1]["by"] == "ttl", "its line")
        line = here.lines("policy.changed")[-1]
        assert (line["mode"], line["previous_mode"], line["by"]) == ("observe", "enforce", "ttl")
        assert (line["ttl_s"], line["released"]) == (None, 1)
        await passes(lab, 12)


async def test_a_switch_survives_a_reload(here: Desk) -> None:
    """It stays in force for as long as it was to; what the file says now waits behind it."""
    [change] = await switch(here, "annotate", "soft", "10m")
    upstreams = here.proxy.settings["upstreams"]
    here.proxy.configure(upstreams=[{**upstreams[0], "mode": "enforce"}, upstreams[1]])
    try:
        assert (await here.hang_up())["changed"] == ["upstreams[soft].mode"]
        assert await in_force(here, "soft") == ("annotate", "enforce")
        assert abs((await here.status("soft"))["until_at"] - change["until_at"]) < 0.1
        [back] = await switch(here, "configured", "soft")
        expected = {"upstream": "soft", "mode": "enforce", "previous_mode": "annotate", "until_at": None}
        assert back == {**expected, "released": 0}
        assert await in_force(here, "soft") == ("enforce", "enforce")
    finally:
        here.proxy.configure(upstreams=upstreams)
        await here.hang_up()
    assert await in_force(here, "soft") == ("observe", "observe")


async def test_a_switch_of_all(here: Desk) -> None:
    """Without an upstream every one is switched; a later switch takes the place of an earlier one."""
    await switch(here, "annotate", None, "10m")
    changed = await switch(here, "observe", None, "20m")
    assert [(c["upstream"], c["mode"], c["previous_mode"]) for c in changed] == [
        ("soft", "observe", "annotate"),
        ("hard", "observe", "annotate"),
    ]
    for each in changed:
        assert abs(each["until_at"] - time.time() - 1200) < 5
    changed = await switch(here, "configured", None)
    assert [(c["mode"], c["until_at"]) for c in changed] == [("observe", None), ("enforce", None)]


# A session in quarantine by an operator's wish.


@pytest.mark.parametrize("path", ["/soft", "/hard"])
@pytest.mark.parametrize("by", ["hash", "raw id"])
async def test_an_operator_cuts_a_session(here: Desk, path: str, by: str) -> None:
    """All that is open ends as in a cut, each call by its own id; what follows is refused, in any mode."""
    async with here.lab(path) as lab:
        await lab.initialize()
        hashed = hash_session(lab.session)
        named = hashed if by == "hash" else lab.session
        streaming = await (await lab.call("abc")).stream(event(1))
        pending = await lab.call(12)
        standalone = await (await lab.get()).stream(event(2))
        done = await here.admin.order(f"POST sessions/{named}/quarantine")
        assert abs(done.pop("until_at") - time.time() - 600) < 5
        expected = {"session": hashed, "upstream": path[1:], "state": "quarantined"}
        assert done == {**expected, "ended_exchanges": 3}
        for exchange in (streaming, pending, standalone):
            await exchange.until(lambda: exchange.ended is not None, "the cut")  # noqa: B023
            assert (exchange.status, exchange.ended) == (200, "clean")
        told = {
            "code": -32600,
            "message": "Session terminated: an operator ended this session; start a new session",
        }
        evidence = dict.fromkeys(("verdict", "certainty", "cursor", "got", "lost"))
        told["data"] = {"forkwatch": {**evidence, "reason": "operator", "session": hashed}}
        assert streaming.events()[1:] == [{"jsonrpc": "2.0", "id": "abc", "error": told}]
        assert json.loads(pending.body) == {"jsonrpc": "2.0", "id": 12, "error": told}
        assert one(pending.headers, "Content-Type") == "application/json"
        assert one(pending.headers, "Forkwatch-Verdict") == "none; reason=operator"
        assert standalone.body == standalone.sent
        for late in (
            await lab.call(13, reaches=False),
            await lab.get(reaches=False),
            await lab.get("2", reaches=False),
        ):
            error = await refused(late)
            assert (
                error["message"]
                == "Session not found: forkwatch terminated it (operator); start a new session"
            )
            assert one(late.headers, "Forkwatch-Verdict") == "none; reason=operator"
        await assert_known_as_quarantined(here, lab, hashed)


async def assert_known_as_quarantined(here: Desk, lab: Lab, hashed: str) -> None:
    """The log, the metrics and the session's page say that it was an operator's wish."""
    [line] = await lab.lines("session.quarantined")
    assert (line["verdict"], line["reason"], line["certainty"], line["ttl_s"]) == (
        None,
        "operator",
        None,
        600.0,
    )
    assert await lab.counters.grown("quarantines_total") == 1
    assert await lab.counters.grown("quarantine_rejected_requests_total") == 3
    whole = await here.admin.get(f"sessions/{hashed}")
    quarantine = whole["quarantine"]
    assert abs(quarantine.pop("since_at") - time.time()) < 5
    assert abs(quarantine.pop("until_at") - time.time() - 600) < 5
    assert quarantine == {"verdict": None, "reason": "operator", "certainty": None}
    assert (whole["state"], whole["verdict"], whole["in_flight"], whole["open"]) == (
        "quarantined",
        None,
        0,
        0,
    )
    assert {c["cause"] for c in whole["timeline"]["connections"]} == {"proxy_cut"}
    assert (await here.status(lab.path[1:]))["verdicts"]["fork"] == await here.gauge(
        "resume_verdicts_total", upstream=lab.path[1:], verdict="fork"
    )


async def test_a_pending_call_is_told_when_its_client_comes_back(here: Desk) -> None:
    """A call whose stream had broken off fails with its own id as its client resumes it, once."""
    async with here.lab("/hard") as lab:
        await lab.initialize()
        await lab.relay(event(1), event(2), request=10)
        done = await here.admin.order(f"POST sessions/{lab.session}/quarantine")
        assert done["ended_exchanges"] == 0
        back = await lab.get("2", reaches=False)
        await is_cut(back)
        assert back.status == 200
        await refused(await lab.get("2", reaches=False))


@pytest.mark.parametrize("path", ["/soft", "/hard"])
async def test_an_operator_lets_a_session_go(here: Desk, path: str) -> None:
    """Its requests pass again; the other session of the upstream never noticed."""
    async with here.lab(path) as lab:
        await lab.initialize()
        other = lab.session
        await lab.initialize()
        hashed = hash_session(lab.session)
        await here.admin.order(f"POST sessions/{hashed}/quarantine")
        await refused(await lab.call(1, reaches=False))
        mine, lab.session = lab.session, other
        await passes(lab, 2)
        lab.session = mine
        assert await here.admin.order(f"DELETE sessions/{hashed}/quarantine") == {
            "session": hashed,
            "upstream": path[1:],
            "state": "active",
        }
        await passes(lab, 3)
        assert (await here.admin.get(f"sessions/{hashed}"))["quarantine"] is None
        assert await lab.counters.grown("quarantines_ended_total", cause="admin") == 1


async def test_what_cannot_be_cut_or_let_go(here: Desk) -> None:
    """An unknown session is 404; twice is 409, and so are an ended session and one that is not cut."""

    async def told(line: str) -> tuple[int, str]:
        answer = await here.admin.tell(line)
        return answer.status, answer.value["type"].removeprefix("forkwatch:")

    for nobody in ("s_000000000000", "nobody"):
        for method in ("POST", "DELETE"):
            assert await told(f"{method} sessions/{nobody}/quarantine") == (404, "no-such-session")
    async with here.lab("/hard") as lab:
        await lab.initialize()
        path = f"sessions/{hash_session(lab.session)}/quarantine"
        assert await told(f"DELETE {path}") == (409, "not-quarantined")
        assert await told(f"POST {path}?upstream=nobody") == (400, "no-such-upstream")
        assert await told(f"POST {path}?upstream=soft") == (404, "no-such-session")
        await here.admin.order(f"POST {path}?upstream=hard")
        assert await told(f"POST {path}") == (409, "session-quarantined")
        assert await lab.counters.grown("quarantines_total") == 1
        await here.admin.order(f"DELETE {path}?upstream=hard")
        assert await told(f"DELETE {path}") == (409, "not-quarantined")
        await (await lab.delete()).answer(204, [], None)
        assert await told(f"POST {path}") == (409, "session-ended")


@pytest.mark.parametrize("path", ["/soft", "/hard"])
async def test_an_operators_quarantine_survives_a_reload(here: Desk, path: str) -> None:
    """A reload that leaves the mode as it is lets nobody go."""
    async with here.lab(path) as lab:
        await lab.initialize()
        await here.admin.order(f"POST sessions/{lab.session}/quarantine")
        await here.hang_up()
        assert (await here.admin.get(f"sessions/{lab.session}"))["state"] == "quarantined"
