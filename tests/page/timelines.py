"""What the page is shown: one session for each thing that can happen, as a timeline of the admin API.

The answers are literal, so that a test of the page says which JSON gives which picture.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

T0 = 1764457200.0
"""When everything here begins: 2025-11-29T23:00:00Z."""
Json = dict[str, Any]
Points = list[list[float]]


def climb(start: float, ids: Iterable[int], step: float = 0.4) -> Points:
    """Points that come one after the other, `step` seconds apart."""
    return [[start + step * place, position] for place, position in enumerate(ids)]


def connection(kind: str, opened: float, closed: float | None, points: Points, **more: Any) -> Json:
    """One connection of the stream `get-1` unless told otherwise."""
    return {
        "stream": "get-1",
        "kind": kind,
        "opened_at": T0 + opened,
        "closed_at": None if closed is None else T0 + closed,
        "cause": None if closed is None else "client_closed",
        "events": len(points),
        "epoch": 1,
        "replica": "pod-a",
        "points": [[T0 + at, position] for at, position in points],
        "judged": None,
        **more,
    }


def judged(at: float, verdict: str, reason: str, **more: Any) -> Json:
    """What was concluded from a resume after 5 with 6 and 7 outstanding, unless told otherwise."""
    facts = {
        "at": T0 + at,
        "verdict": verdict,
        "reason": reason,
        "certainty": "proven",
        "cursor": "5",
        "high": "7",
        "first_id": "6",
        "got": "6",
        "outstanding": 2,
        "lost": 0,
        "duplicated": 0,
        "in_flight": 0,
        "away_s": 1.003,
        "replica": "pod-a",
        "previous_replica": "pod-a",
        "action": "pass",
        "would_cut": False,
        "took_ms": 0.4,
        "hint": None,
        **more,
    }
    for name in ("cursor", "high", "got"):
        text = facts[name]
        facts.setdefault(f"{name}_position", int(text) if text is not None and text.isdigit() else None)
    return facts


def first(ids: Iterable[int] = range(1, 8)) -> Json:
    """The connection before: ids 1 to 7, of which the client kept 5."""
    return connection("get", 0, 3, climb(0.2, ids))


def resumed(points: Points, verdict: Json, **more: Any) -> Json:
    """The connection that came back at second 4."""
    return connection("resume", 4.0, None, points, judged=verdict, **more)


HINT = (
    "The replicas do not share one event store: route by Mcp-Session-Id (sticky sessions), or give every replica the "
    "same store."
)
MOVED = {"replica": "pod-b", "previous_replica": "pod-a"}
FORK = {"lost": 2, "in_flight": 1, "would_cut": True, "hint": HINT, **MOVED}

TIMELINES: dict[str, list[Json]] = {
    "healthy": [first(), resumed(climb(4.1, range(6, 12)), judged(4.1, "resumed", "replayed", got="7"))],
    "fork": [
        first(),
        resumed(
            climb(4.1, range(1, 8)),
            judged(4.1, "fork", "log_restarted", first_id="1", got="1", **FORK),
            replica="pod-b",
        ),
    ],
    "diverged": [
        first(),
        resumed(climb(4.1, range(6, 11)), judged(4.1, "fork", "content_diverged", **FORK), replica="pod-b"),
    ],
    "large": [
        connection("get", 0, 7206, [*climb(1, range(4774, 4831, 2), 250), [7204, 4830]], replica="pod-a"),
        connection(
            "resume",
            7207.0,
            None,
            climb(7207.01, range(1, 10), 0.002),
            replica="pod-b",
            judged=judged(7207.01, "fork", "log_restarted", cursor="4821", high="4830", first_id="1", got="1",
                          outstanding=9, **(FORK | {"lost": 9})),
        ),
    ],
    "gap": [
        first(),
        resumed(climb(4.1, range(8, 12)), judged(4.1, "gap", "successors_skipped", first_id="8", got="8", lost=2)),
    ],
    "jump": [
        first(range(1, 6)),
        resumed(
            climb(4.1, range(9, 13)),
            judged(4.1, "gap", "forward_jump", high="5", first_id="9", got="9", outstanding=0, lost=3),
        ),
    ],
    "nothing": [
        first(),
        connection("resume", 4.0, 4.2, [], cause="upstream_eof", judged=judged(
            4.2, "gap", "nothing_replayed", first_id=None, got=None, lost=2)),
    ],
    "rewound": [
        first(),
        resumed(
            climb(4.1, range(3, 10)),
            judged(4.5, "rewound", "cursor_ignored", first_id="3", got="6", duplicated=3),
        ),
    ],
    "crossed": [
        first(),
        resumed(
            climb(4.1, [12, 13, 14]),
            judged(4.1, "crossed", "other_stream", first_id="12", got="12", hint="Streams are not kept apart."),
        ),
    ],
    "refused": [
        first(),
        connection("resume", 4.0, 4.0, [], cause=None, judged=judged(
            4.0, "refused", "not_found", first_id=None, got=None, action="pass")),
    ],
    "idle": [
        first(range(1, 6)),
        connection("resume", 4.0, None, [], judged=judged(
            6.0, "resumed", "idle", high="5", first_id=None, got=None, outstanding=0)),
    ],
    "cut": [
        first(),
        connection("resume", 4.0, 4.1, [], cause="proxy_cut", replica="pod-b", judged=judged(
            4.1, "fork", "log_restarted", first_id="1", got="1", action="cut", **(FORK | {"would_cut": False}))),
    ],
    "calm": [first(range(1, 12))],
    "empty": [],
    "opaque": [
        first(range(1, 8)),
        resumed(climb(4.1, [8, 9, 10]), judged(
            4.1, "fork", "content_diverged", certainty="suspected", cursor="0a6f2d6e-93f1-4a57-9d3b-2f0d5f1b7c11",
            high="9d3b2f0d-93f1-4a57-9d3b-0a6f2d6e7c11", got="77aa2f0d-93f1-4a57-9d3b-0a6f2d6e7c11",
            cursor_position=5, high_position=7, got_position=8, lost=2)),
    ],
    "hostile": [
        first() | {"replica": "<b>pod</b>"},
        resumed(climb(4.1, range(1, 4)), judged(4.1, "fork", "log_restarted", first_id="<i>1</i>", got="<i>1</i>",
                got_position=1, hint="<img src=x>", replica="<u>pod</u>", previous_replica="<b>pod</b>", lost=2)),
    ],
}  # fmt: skip
"""What happened in the session of that name, oldest connection first."""


def busy() -> list[Json]:
    """A long life: calls, healthy reconnects, a fork on the third and what went on after it."""
    rounds = [first(range(1, 6))]
    position = 5
    for place in range(1, 6):
        at = 60.0 * place
        fork = place == 3
        ids = range(1, 5) if fork else range(position + 1, position + 5)
        facts = {"first_id": str(ids[0]), "got": str(ids[0])} | (FORK | {"lost": 0} if fork else {})
        rounds.append(connection("resume", at, at + 6, climb(at + 0.2, ids), epoch=1 if place < 3 else 2, judged=judged(
            at + 0.2, "fork" if fork else "resumed", "log_restarted" if fork else "continued", cursor=str(position),
            high=str(position), outstanding=0, **facts), replica="pod-a" if place < 3 else "pod-b"))  # fmt: skip
        position = ids[-1]
    rounds[-1] |= {"closed_at": None, "cause": None}
    calls = [
        connection("post", at, at + 2, climb(at + 0.1, range(100 + at, 103 + at)), stream=f"post-{place}",
                   cause="completed")
        for place, at in enumerate((20, 90, 150, 200, 260, 300, 330), 1)
    ]  # fmt: skip
    return [*rounds, *calls]


TIMELINES["busy"] = busy()
