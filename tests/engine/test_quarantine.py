"""Quarantine: what a cut session's later requests get, and how it ends."""

from __future__ import annotations

import json

import pytest

from proxy.engine.commands import Elsewhere, Report
from proxy.engine.findings import (
    Ending,
    QuarantineEnd,
    QuarantineEnded,
    Raised,
    SessionClosed,
    SessionQuarantined,
)
from proxy.engine.heads import Answer
from proxy.engine.ledger import Bounds
from proxy.engine.policy import Mode, Policy
from proxy.engine.privacy import hash_session
from proxy.engine.quarantine import ordered
from proxy.engine.terminal import verdict_header
from tests.engine.drive import event
from tests.engine.shell import ACCEPTED, JSON, STREAM, Client, Phase, Shell, body_of

TTL_S = 600.0
BIG = Bounds(sessions_per_upstream=3)


def quarantined(bounds: Bounds | None = None) -> Shell:
    """A session whose call 7 failed by a cut, and whose calls 8 and 9 lost their connections before."""
    shell = Shell(bounds=bounds)
    shell.open_session()
    shell.owing(7, *(event(number) for number in range(1, 6)))
    shell.owing(8, event(6), event(7))
    shell.owing(9, event(8), event(9))
    shell.open_get(5).send(event(1, "reborn"))
    assert shell.quarantined == [b"s1"]
    return shell


def cut_session(shell: Shell, session: str) -> None:
    """Another session is cut."""
    shell.open_session(session)
    shell.shown(event(101), event(102), session=session)
    shell.open_get(102, session=session).send(event(1, "reborn"))


def refused(client: Client) -> bool:
    """Whether this got the 404 that clients take for the end of the session."""
    if client.response is None or client.response.status != 404:
        return False
    body = json.loads(client.response.body)
    return (
        client.response.media_type == "application/json"
        and body["id"] is None
        and body["error"]["code"] == -32001
        and body["error"]["message"].startswith("Session not found: ")
    )


# ---- later requests


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "PATCH"])
def test_a_later_request_gets_404(method: str) -> None:
    """Before the upstream is asked."""
    shell = quarantined()
    client = shell.begin(method)
    assert refused(client)
    assert shell.rejected == [(method, 404)]
    assert not client.upstream_answered


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body_of(11), id="a call"),
        pytest.param(body_of(11, 12), id="a batch"),
        pytest.param(body_of(), id="a notification"),
        pytest.param(b"no json", id="no json"),
        pytest.param(b"", id="empty"),
        pytest.param(None, id="too large to be known for an initialize"),
    ],
)
def test_a_later_post_gets_404(body: bytes | None) -> None:
    """Once its body is known; nothing goes upstream before."""
    shell = quarantined()
    client = shell.begin("POST")
    assert client.exchange.needs_upload
    assert client.phase is Phase.WAITING
    client.uploaded(body)
    assert refused(client)
    assert shell.rejected == [("POST", 404)]


def test_an_initialize_passes_without_the_dead_session() -> None:
    """Some clients still send the old id with it."""
    shell = quarantined()
    client = shell.begin("POST").uploaded(body_of(0, method="initialize"))
    assert client.exchange.drops_session
    assert client.phase is Phase.WAITING
    client.responded(Answer(200, False, session=b"s2")).end()
    assert list(shell.upstream.sessions) == [b"s1", b"s2"]
    assert shell.quarantined == [b"s1"]


def test_an_initialize_answered_with_the_same_id_lifts_the_quarantine() -> None:
    """The server has issued it anew: it is a session like any other, in another epoch."""
    shell = quarantined()
    shell.open_session(carry="s1")
    assert (shell.quarantined, shell.lifted) == ([], ["reinitialized"])
    assert "session_reissued" in shell.findings
    assert shell.stream(11).phase is Phase.STREAMING
    assert (shell.upstream.sessions_active, shell.upstream.sessions_quarantined) == (1, 0)
    assert list(shell.session().in_flight) == ["i:11"]


@pytest.mark.parametrize(
    ("cursor", "request_id"), [(7, 8), (6, 8), (9, 9)], ids=["newest", "older", "another call"]
)
def test_a_resume_of_a_pending_call_is_answered_once(cursor: int, request_id: int) -> None:
    """With that call's error as a stream; the second time with 404."""
    shell = quarantined()
    first, second = shell.open_get(cursor), shell.open_get(cursor)
    assert first.response is not None
    assert (first.response.status, first.response.media_type) == (200, "text/event-stream")
    assert first.error_ids == [request_id]
    assert refused(second)
    assert shell.rejected == [("GET", 200), ("GET", 404)]


@pytest.mark.parametrize("cursor", [5, 1, 4711], ids=["answered", "answered older", "unknown"])
def test_a_resume_of_nothing_pending_gets_404(cursor: int) -> None:
    """The zombie of a client whose call has failed is no new incident either."""
    shell = quarantined()
    before = list(shell.reports)
    for _ in range(2):
        assert refused(shell.open_get(cursor))
    assert len(shell.reports) == len(before) + 2
    assert shell.rejected == [("GET", 404)] * 2


def test_only_a_get_resumes() -> None:
    """A cursor on a HEAD takes nothing away from the call's own resume."""
    shell = quarantined()
    assert refused(shell.begin("HEAD", cursor=7))
    assert shell.open_get(7).error_ids == [8]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer(204, False), None),
        (JSON, None),
        (Answer(404, False), 200),
        (Answer(405, False), 200),
        (Answer(500, False), 200),
    ],
    ids=lambda value: str(value.status) if isinstance(value, Answer) else None,
)
def test_delete_goes_upstream_and_succeeds(answer: Answer, status: int | None) -> None:
    """Clients throw on anything but a 2xx, and only want it over with."""
    shell = quarantined()
    client = shell.begin("DELETE")
    assert client.phase is Phase.WAITING
    client.responded(answer)
    if status is None:
        assert (client.phase, client.response) == (Phase.STREAMING, None)
    else:
        assert client.response is not None
        assert (client.response.status, client.response.media_type, client.response.body) == (200, None, b"")
        assert shell.rejected == [("DELETE", 200)]
    client.end()
    assert shell.quarantined == [b"s1"]


def test_delete_succeeds_though_the_upstream_fails() -> None:
    """Also then."""
    shell = quarantined()
    client = shell.begin("DELETE")
    client.end(Ending.UPSTREAM_FAILED)
    assert client.response is not None
    assert client.response.status == 200


def test_delete_of_a_client_that_left_is_not_answered() -> None:
    """Nobody is there, and nothing is counted."""
    shell = quarantined()
    shell.begin("DELETE").leave()
    assert shell.rejected == []


def test_other_sessions_pass() -> None:
    """And requests without a session."""
    shell = quarantined()
    assert shell.stream(11, session="s2").phase is Phase.STREAMING
    assert shell.begin("GET", session=None).responded(JSON).phase is Phase.STREAMING


def test_in_the_milder_modes_nothing_is_quarantined() -> None:
    """`observe` and `annotate` only say so."""
    for mode in (Mode.OBSERVE, Mode.ANNOTATE):
        shell = Shell(Policy(mode=mode))
        shell.open_session()
        shell.shown(event(101), event(102))
        shell.open_get(102).send(event(1, "reborn")).end()
        assert shell.quarantined == []
        assert shell.open_get(1).phase is Phase.STREAMING


# ---- how it ends


def test_it_runs_from_the_last_request_that_carried_the_session() -> None:
    """Whatever that was; the session is forgotten then, and may come again."""
    shell = quarantined()
    for request in ("GET", "DELETE", "POST"):
        shell.pass_time(TTL_S - 1)
        assert shell.ledger.expire(shell.now) == []
        shell.begin(request).leave()
    shell.pass_time(TTL_S - 1)
    assert shell.ledger.expire(shell.now) == []
    shell.pass_time(1)
    (ended, closed) = [item for _, item in shell.ledger.expire(shell.now)]
    assert isinstance(ended, QuarantineEnded)
    assert (ended.cause.value, type(closed).__name__) == ("ttl", "SessionClosed")
    assert (shell.quarantined, list(shell.upstream.sessions)) == ([], [])
    assert shell.stream(11).phase is Phase.STREAMING


def test_an_idle_session_in_quarantine_is_not_forgotten() -> None:
    """Its time is its own: `session_idle` does not shorten it."""
    shell = quarantined(Bounds(session_idle_s=10))
    shell.pass_time(TTL_S - 1)
    reports = [item for _, item in shell.ledger.expire(shell.now)]
    assert [item.finding.value for item in reports if isinstance(item, Raised)] == ["response_missing"] * 2
    assert shell.quarantined == [b"s1"]


def test_it_is_never_evicted_before_others() -> None:
    """Newer sessions make room for newer ones."""
    shell = quarantined(BIG)
    for number in range(2, 8):
        shell.open_session(f"s{number}")
    assert sorted(shell.upstream.sessions) == [b"s1", b"s6", b"s7"]
    assert shell.quarantined == [b"s1"]


def test_where_all_are_quarantined_a_newcomer_is_not_kept() -> None:
    """The bound holds, and no quarantine ends for it: a dead session must stay refused."""
    shell = quarantined(BIG)
    for number in range(2, 6):
        cut_session(shell, f"s{number}")
    assert shell.quarantined == [b"s1", b"s2", b"s3"]
    assert len(shell.upstream.sessions) == 3
    assert shell.lifted == []
    assert (shell.upstream.sessions_active, shell.upstream.sessions_quarantined) == (0, 3)
    evicted = [item.session for item in shell.reports if isinstance(item, SessionClosed)]
    assert evicted[-1] == "s5"


def test_what_a_newcomer_that_is_not_kept_shows_counts_for_nothing() -> None:
    """Its stream goes on; the sums of the upstream are those of the sessions it knows."""
    shell = quarantined(BIG)
    for number in (2, 3):
        cut_session(shell, f"s{number}")
    shell.open_get(session="s4").send(*(event(number) for number in range(1, 6)))
    assert list(shell.upstream.sessions) == [b"s1", b"s2", b"s3"]
    assert shell.upstream.bytes == sum(session.bytes for session in shell.upstream.sessions.values())


def test_what_a_quarantined_session_holds_is_shed() -> None:
    """Only streams that owe an answer still matter."""
    shell = quarantined()
    session = shell.session()
    assert [stream.owed for stream in session.streams.values()] == [("i:8",), ("i:9",)]
    assert shell.upstream.bytes == session.bytes


# ---- a session forgotten while exchanges of it are under way


def test_a_delete_of_a_session_forgotten_meanwhile() -> None:
    """It counts for nothing any more."""
    shell = quarantined(Bounds(sessions_per_upstream=1))
    delete = shell.begin("DELETE")
    shell.pass_time(TTL_S)
    shell.ledger.expire(shell.now)
    delete.responded(ACCEPTED).end()
    assert (shell.upstream.sessions_active, shell.upstream.sessions_quarantined) == (0, 0)


def test_a_fork_in_a_session_evicted_meanwhile_is_cut_all_the_same() -> None:
    """Its streams end, the sums of the upstream are those of the sessions it knows."""
    shell = Shell(bounds=Bounds(sessions_per_upstream=1))
    shell.open_session()
    shell.owing(7, *(event(number) for number in range(1, 6)))
    resume, other = shell.open_get(5), shell.stream(8)
    shell.open_session("s2")
    assert list(shell.upstream.sessions) == [b"s2"]
    resume.send(event(1, "reborn"))
    assert (resume.phase, other.phase) == (Phase.ENDED, Phase.ENDED)
    upstream = shell.upstream
    assert (upstream.sessions_active, upstream.sessions_quarantined, upstream.requests_in_flight) == (1, 0, 0)
    assert upstream.bytes == shell.session("s2").bytes
    shell.pass_time(10 * TTL_S)
    assert shell.ledger.expire(shell.now) == []
    assert shell.begin("GET").responded(STREAM).phase is Phase.STREAMING


# ---- an operator's order


def test_an_operator_cuts_a_session() -> None:
    """As a verdict would: pending calls fail by their ids, the standalone stream ends, the rest gets 404."""
    shell = Shell(Policy(mode=Mode.OBSERVE))
    shell.open_session()
    get = shell.open_get().send(event(1))
    call = shell.stream("seven").send(event(2))
    pending = shell.post(8)
    commands = ordered(shell.session(), shell.now)
    shell.perform(get, [c for c in commands if isinstance(c, Report)])
    for command in commands:
        if isinstance(command, Elsewhere):
            assert isinstance(command.party.handle, Client)
            shell.perform(command.party.handle, command.commands)
    assert (get.phase, call.phase, pending.phase) == (Phase.ENDED, Phase.ENDED, Phase.ANSWERED)
    assert (call.error_ids, pending.error_ids) == (["seven"], [8])
    hashed = hash_session(b"s1")
    nothing = {"verdict": None, "certainty": None, "cursor": None, "got": None, "lost": None}
    assert call.errors[0]["error"] == {
        "code": -32600,
        "message": "Session terminated: an operator ended this session; start a new session",
        "data": {"forkwatch": {**nothing, "reason": "operator", "session": hashed}},
    }
    later = shell.post(9)
    assert later.response is not None
    assert later.response.status == 404
    assert b"forkwatch terminated it (operator)" in later.response.body
    assert verdict_header(later.response.judgement) == b"none; reason=operator"
    assert [item for item in shell.reports if isinstance(item, SessionQuarantined)] == [
        SessionQuarantined("s1", None, TTL_S)
    ]


def test_an_operator_lets_a_session_go() -> None:
    """Its requests pass again, and it counts as active."""
    shell = quarantined()
    assert refused(shell.post(10))
    assert shell.ledger.release(shell.session(), QuarantineEnd.ADMIN) == QuarantineEnded(
        "s1", QuarantineEnd.ADMIN
    )
    assert (shell.upstream.sessions_active, shell.upstream.sessions_quarantined) == (1, 0)
    assert shell.post(11).phase is Phase.WAITING
    assert shell.quarantined == []


def test_a_switch_to_a_milder_mode_takes_effect_on_a_resume_that_is_being_judged() -> None:
    """The frame held back is let go; a switch the other way waits for the next resume."""
    shell = Shell()
    shell.open_session()
    shell.shown(event(1), event(2), event(3))
    resumed = shell.open_get(2).send(b"id: 1\n")
    shell.upstream.policy = Policy(mode=Mode.OBSERVE)
    resumed.send(event(1, "reborn").removeprefix(b"id: 1\n"))
    assert (resumed.phase, bytes(resumed.body)) == (Phase.STREAMING, event(1, "reborn"))
    assert shell.quarantined == []
    harsher = shell.open_get(1)
    shell.upstream.policy = Policy(mode=Mode.ENFORCE)
    harsher.send(event(1, "reborn again"))
    assert harsher.phase is Phase.STREAMING


def test_new_bounds_and_dialects_are_for_what_begins_from_now_on() -> None:
    """A log keeps the length it was begun with; an upstream that is left out keeps its sessions."""
    shell = Shell()
    shell.open_session()
    bounds = Bounds(sessions_per_upstream=2, ids_per_stream=16)
    shell.ledger.configure(bounds, {"tools": None, "new": None})
    assert shell.session().bounds.ids_per_stream == 1024
    shell.open_session("s2")
    assert shell.session("s2").bounds is bounds
    shell.open_session("s3")
    assert list(shell.upstream.sessions) == [b"s2", b"s3"]
    shell.ledger.configure(bounds, {"new": None})
    assert list(shell.ledger.upstreams) == ["tools", "new"]
    assert list(shell.upstream.sessions) == [b"s2", b"s3"]
