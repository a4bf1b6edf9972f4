"""What the interface knows of one session: the data that the picture of a fork is drawn from."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from proxy.engine.findings import Certainty, Reason, Verdict
from proxy.engine.hints import hint
from proxy.engine.privacy import hash_session
from proxy.engine.timeline import CONNECTIONS, POINTS
from tests.admin.operator import Desk, desk, entry
from tests.scenarios.exchange import Exchange
from tests.scenarios.frames import event, result
from tests.scenarios.lab import Lab

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desk]:
    """The proxy of these tests; its upstream names its replicas."""

    def entries(port: int) -> list[dict[str, Any]]:
        return [entry("mcp", port, replica_header="X-Replica"), entry("hard", port, mode="enforce")]

    async with desk(tmp_path_factory.mktemp("session"), entries) as made:
        yield made


async def shows(lab: Lab, cursor: str | None, replica: str, *frames: bytes) -> Exchange:
    """A standalone stream, or its resume, from this replica, has shown these frames."""
    return await (await lab.get(cursor)).stream(*frames, extra=[("X-Replica", replica)])


def timed(value: dict[str, Any], *keys: str) -> None:
    """These are moments of this test; they are taken out, so that the rest can be compared whole."""
    for key in keys:
        assert abs(value.pop(key) - time.time()) < 30, key


async def test_a_fork(here: Desk) -> None:
    """1 to 7 before, 1 to 3 of another log after: the points, the gap, and the judgement, all of it."""
    async with here.lab() as lab:
        await lab.initialize()
        first = await shows(lab, None, "pod-a", *(event(n) for n in range(1, 8)))
        await first.abort()
        second = await shows(lab, "5", "pod-b", *(event(n, f"e2-{n}") for n in range(1, 4)))
        await lab.judged("fork", "log_restarted", "proven")
        whole = await here.admin.get(f"sessions/{hash_session(lab.session)}")
        assert whole == await here.admin.get(f"sessions/{lab.session}") | {"timeline": whole["timeline"]}
        summary = {
            key: value for key, value in whole.items() if key not in ("quarantine", "logs", "timeline")
        }
        [listed] = (await here.admin.get("sessions?limit=1"))["sessions"]
        assert summary == listed
        assert whole["quarantine"] is None
        assert whole["logs"] == [
            {
                "stream": "get-1",
                "kind": "get",
                "high": "3",
                "events": 10,
                "epoch": 2,
                "open": 1,
                "in_flight": 0,
                "replica": "pod-b",
            }
        ]
        await second.end()
        closed = (await here.admin.get(f"sessions/{lab.session}"))["timeline"]["connections"][1]
        assert (closed["cause"], closed["events"]) == ("upstream_eof", 3)
    timeline = whole["timeline"]
    timed(timeline, "now")
    before, after = timeline.pop("connections")
    assert timeline == {"forgotten": 0}
    judged = after.pop("judged")
    judged_at = judged["at"]
    old, new = before.pop("points"), after.pop("points")
    assert [position for _, position in old] == [1, 2, 3, 4, 5, 6, 7]
    assert [position for _, position in new] == [1, 2, 3]
    moments = [
        before["opened_at"],
        *(at for at, _ in old),
        before["closed_at"],
        after["opened_at"],
        judged_at,
    ]
    moments += [at for at, _ in new]  # all of them are of the other log
    assert moments == sorted(moments)
    timed(before, "opened_at", "closed_at")
    timed(after, "opened_at")
    assert before == {
        "stream": "get-1",
        "kind": "get",
        "cause": "upstream_reset",
        "events": 7,
        "epoch": 1,
        "replica": "pod-a",
        "judged": None,
    }
    assert after == {
        "stream": "get-1",
        "kind": "resume",
        "closed_at": None,
        "cause": None,
        "events": 3,
        "epoch": 1,  # as it opened
        "replica": "pod-b",
    }
    assert_judged(judged)
    verdict = whole["verdict"]
    assert verdict == {
        "verdict": "fork",
        "reason": "log_restarted",
        "certainty": "proven",
        "at": judged_at,
        "action": "would_cut",
    }


def assert_judged(judged: dict[str, Any]) -> None:
    """Everything that is said of the fork."""
    timed(judged, "at")
    assert 0 <= judged.pop("away_s") < 10
    assert 0 <= judged.pop("took_ms") < 5000
    expected_hint = hint(
        verdict=Verdict.FORK,
        reason=Reason.LOG_RESTARTED,
        certainty=Certainty.PROVEN,
        dialect="integer",
        moved=True,
    )
    assert expected_hint
    assert judged == {
        "verdict": "fork",
        "reason": "log_restarted",
        "certainty": "proven",
        "cursor": "5",
        "high": "7",
        "first_id": "1",
        "got": "1",
        "outstanding": 2,
        "lost": 2,
        "duplicated": 0,
        "in_flight": 0,
        "replica": "pod-b",
        "previous_replica": "pod-a",
        "action": "pass",
        "would_cut": True,
        "cursor_position": 5,
        "high_position": 7,
        "got_position": 1,
        "hint": expected_hint,
    }


async def test_a_refused_resume(here: Desk) -> None:
    """It is a connection without points, over as it began, with its judgement; the stream is its own."""
    async with here.lab() as lab:
        await lab.initialize()
        await lab.relay(event(1), event(2), event(3), request=10)
        await (await lab.get("2")).answer(404, [("Content-Type", "application/json")], b"{}")
        await lab.judged("refused", "not_found")
        found = await here.admin.get(f"sessions/{lab.session}")
    call, refused = found["timeline"]["connections"]
    assert (call["kind"], call["cause"], call["events"]) == ("post", "upstream_reset", 3)
    judged = refused.pop("judged")
    assert refused["opened_at"] == refused["closed_at"] == judged["at"]
    timed(refused, "opened_at", "closed_at")
    assert refused == {
        "replica": judged["replica"],
        "stream": call["stream"],
        "kind": "resume",
        "cause": None,
        "events": 0,
        "epoch": 1,
        "points": [],
    }
    assert {
        key: judged[key] for key in ("verdict", "reason", "cursor", "high", "first_id", "got", "in_flight")
    } == {
        "verdict": "refused",
        "reason": "not_found",
        "cursor": "2",
        "high": "3",
        "first_id": None,
        "got": None,
        "in_flight": 1,
    }
    assert (judged["cursor_position"], judged["high_position"], judged["got_position"]) == (2, 3, None)
    assert (judged["action"], judged["would_cut"], judged["outstanding"], judged["lost"]) == (
        "pass",
        False,
        1,
        0,
    )
    assert found["verdict"]["verdict"] == "refused"


OPAQUE = ["kQ8zV1", "Xw0c9P", "b7LmT2", "Zr5YhA"]


async def test_opaque_ids(here: Desk) -> None:
    """Where ids do not count, a position is an ordinal: the cursor and the newest have theirs, and what
    nobody has seen stands after all of them."""
    async with here.lab() as lab:
        await lab.initialize()
        first = await shows(lab, None, "pod-a", *(event(each) for each in OPAQUE))
        await first.abort()
        second = await shows(lab, OPAQUE[1], "pod-a", event("nobodys", "another log"))
        await second.end()
        await lab.counters.settled()
        found = await here.admin.get(f"sessions/{lab.session}")
    before, after = found["timeline"]["connections"]
    ordinals = [position for _, position in before["points"]]
    assert ordinals == list(range(ordinals[0], ordinals[0] + 4))
    assert found["dialect"] in (None, "opaque")
    judged = after["judged"]
    assert (judged["cursor"], judged["high"], judged["got"]) == (OPAQUE[1], OPAQUE[3], "nobodys")
    assert (judged["cursor_position"], judged["high_position"]) == (ordinals[1], ordinals[3])
    assert judged["got_position"] == ordinals[3] + 1
    assert [position for _, position in after["points"]] == [ordinals[3] + 1]


async def test_a_cut(here: Desk) -> None:
    """The connection that was cut, and the quarantine with its verdict."""
    async with here.lab("/hard") as lab:
        await lab.initialize()
        await lab.relay(event(1), event(2), event(3), request=10)
        forked = await (await lab.get("3")).stream()
        await forked.offer(event(1, "e2-1"))
        await forked.until(lambda: forked.ended is not None, "the cut")
        found = await here.admin.get(f"sessions/{lab.session}")
    quarantine = found["quarantine"]
    assert abs(quarantine["until_at"] - quarantine["since_at"] - 600) < 0.01
    timed(quarantine, "since_at")
    del quarantine["until_at"]
    assert quarantine == {"verdict": "fork", "reason": "log_restarted", "certainty": "proven"}
    assert found["state"] == "quarantined"
    _, cut = found["timeline"]["connections"]
    assert (cut["cause"], cut["judged"]["action"], cut["judged"]["would_cut"]) == ("proxy_cut", "cut", False)
    assert cut["points"] == []  # what decided was not delivered


async def test_many_connections_and_events(here: Desk) -> None:
    """Both are bounded: the oldest are forgotten and counted, a fork's last; samples are thinned."""
    async with here.lab() as lab:
        await lab.initialize()
        first = await shows(lab, None, "pod-a", *(event(n) for n in range(1, 200)))
        await first.abort()
        await (await shows(lab, "199", "pod-b", event(1, "e2-1"))).abort()
        await (await shows(lab, "1", "pod-b", event(2, "e2-2"))).abort()
        for number in range(2, CONNECTIONS + 3):
            call = await (await lab.call(number)).stream(result(None, number))
            await call.end()
        found = await here.admin.get(f"sessions/{lab.session}")
    timeline = found["timeline"]
    connections = timeline["connections"]
    assert (len(connections), timeline["forgotten"]) == (CONNECTIONS, 4)
    assert [c["opened_at"] for c in connections] == sorted(c["opened_at"] for c in connections)
    assert [(c["kind"], c["stream"]) for c in connections[:3]] == [
        ("get", "get-1"),
        ("resume", "get-1"),
        ("resume", "get-1"),
    ]
    assert [c["judged"]["verdict"] for c in connections[1:3]] == ["fork", "resumed"]
    positions = [position for _, position in connections[0]["points"]]
    assert len(positions) <= POINTS
    assert positions[0] == 1
    assert positions == sorted(set(positions))
    assert max(positions) > 150
    assert connections[0]["events"] == 199
    assert found["verdict"]["verdict"] == "fork"  # the worst one is shown, not the newest
