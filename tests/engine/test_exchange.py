"""One request from its head to its end: whose session it is, what is in flight, what is noticed."""

from __future__ import annotations

import pytest

from proxy.engine.commands import PASS
from proxy.engine.findings import Ending, ResumeAttempted
from proxy.engine.heads import Answer
from proxy.engine.ledger import Bounds
from proxy.engine.loops import LOOP_RESUMES, LOOP_TAKEOVERS
from proxy.engine.policy import Mode, Policy
from tests.engine.drive import dump, event, priming, result
from tests.engine.shell import ACCEPTED, JSON, STREAM, Client, Phase, Shell, body_of

OBSERVE = Policy(mode=Mode.OBSERVE)
NOT_FOUND = Answer(404, False)


def opened() -> Shell:
    """A session."""
    shell = Shell(OBSERVE)
    shell.open_session()
    return shell


# ---- sessions


def test_only_a_2xx_makes_a_session() -> None:
    """A rejected request leaves nothing behind."""
    shell = Shell(OBSERVE)
    for answer in (NOT_FOUND, Answer(500, False), Answer(302, False)):
        shell.open_get(answer=answer, session="s9").end()
    assert shell.upstream.sessions == {}
    shell.open_get(session="s9")
    assert list(shell.upstream.sessions) == [b"s9"]


def test_a_200_after_a_404_is_flapping() -> None:
    """Replicas without affinity."""
    shell = opened()
    shell.open_get(answer=NOT_FOUND).end()
    shell.open_get().end()
    shell.open_get().end()
    assert shell.findings == ["session_flapping"]


def test_use_after_delete_is_stale() -> None:
    """Of everything but another DELETE."""
    shell = opened()
    shell.end_session().end()
    shell.end_session().end()
    shell.begin("GET").leave()
    assert shell.findings == ["stale_session_use"]


def test_a_delete_that_is_not_granted_ends_nothing() -> None:
    """Nor one of a session that nobody knows."""
    shell = opened()
    shell.end_session(Answer(405, False)).end()
    shell.end_session(session="unknown").end()
    assert not shell.session().ended


def test_an_initialize_that_names_no_session() -> None:
    """A stateless server: nothing is made."""
    shell = Shell(OBSERVE)
    shell.begin("POST", session=None).uploaded(body_of(0, method="initialize")).responded(JSON).end()
    assert shell.upstream.sessions == {}


def test_an_exchange_ends_before_its_session_is_left() -> None:
    """A session knows exactly the exchanges under way."""
    shell = opened()
    get, call = shell.open_get(), shell.post(7)
    assert list(shell.session().exchanges) == [get.exchange, call.exchange]
    get.end()
    call.leave()
    assert shell.session().exchanges == {}


# ---- requests in flight


@pytest.mark.parametrize("answer", [JSON, ACCEPTED, Answer(400, False), Answer(500, False)])
def test_any_answer_but_a_stream_ends_its_requests(answer: Answer) -> None:
    """Their keys are not in flight any more once the head has come."""
    shell = opened()
    call = shell.post(7, "8")
    assert list(shell.session().in_flight) == ["i:7", "s:8"]
    call.responded(answer)
    assert (shell.session().in_flight, shell.upstream.requests_in_flight) == ({}, 0)


def test_what_was_answered_before_its_upload_was_read_is_not_in_flight() -> None:
    """The head came first."""
    shell = opened()
    shell.begin("POST").responded(JSON).uploaded(body_of(7))
    assert shell.session().in_flight == {}


def test_a_stream_that_began_before_its_upload_was_read_owes_the_answer() -> None:
    """The ids are known late, but known."""
    shell = opened()
    call = shell.begin("POST").responded(STREAM).uploaded(body_of(7))
    assert list(shell.session().in_flight) == ["i:7"]
    call.send(result(1, 7)).end()
    assert shell.session().in_flight == {}


@pytest.mark.parametrize("body", [None, b"", b"no json"])
def test_a_body_that_tells_no_ids_puts_nothing_in_flight(body: bytes | None) -> None:
    """The stream owes nothing that could be missed."""
    shell = opened()
    shell.begin("POST").uploaded(body).responded(STREAM).end()
    assert (shell.session().in_flight, shell.findings) == ({}, [])


def test_requests_of_an_ended_session_are_not_in_flight() -> None:
    """Nobody will answer them there."""
    shell = opened()
    shell.end_session().end()
    shell.post(7)
    assert shell.session().in_flight == {}


def test_a_cancellation_ends_a_request() -> None:
    """And is none itself."""
    shell = opened()
    call = shell.stream(7)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    shell.begin("POST").uploaded(dump(cancel)).responded(ACCEPTED).end()
    assert shell.session().in_flight == {}
    call.end()
    assert shell.findings == []


@pytest.mark.parametrize("left", [True, False])
def test_a_call_without_an_answer_is_over(left: bool) -> None:
    """The client left, or the upstream failed."""
    shell = opened()
    call = shell.post(7)
    call.leave() if left else call.end(Ending.UPSTREAM_FAILED)
    assert shell.session().in_flight == {}


def test_abandoning_a_call_that_waits() -> None:
    """It is over, and the session's ids are not known completely any more."""
    shell = opened()
    call = shell.post(7)
    assert call.exchange.abandon() == b""
    assert (shell.session().in_flight, shell.session().complete) == ({}, False)
    assert shell.post(7, session=None).exchange.abandon() == b""


def test_a_call_of_a_session_forgotten_meanwhile_is_in_flight_where_it_is_answered() -> None:
    """The answer shows the session to exist anew, and its stream owes the response."""
    shell = Shell(OBSERVE, bounds=Bounds(sessions_per_upstream=1))
    shell.open_session()
    call = shell.post(7)
    shell.open_session("s2")
    call.responded(STREAM)
    assert list(shell.session().in_flight) == ["i:7"]
    call.end()
    assert shell.findings == ["response_missing"]


# ---- resumes


@pytest.mark.parametrize(
    ("left", "reason"),
    [pytest.param(True, "client_left", id="left"), pytest.param(False, "upstream_failed", id="failed")],
)
def test_a_resume_without_an_answer_is_inconclusive(left: bool, reason: str) -> None:
    """One verdict for each attempt, also then."""
    shell = opened()
    shell.shown(event(1), event(2))
    client = shell.begin("GET", cursor=1)
    client.leave() if left else client.end(Ending.UPSTREAM_FAILED)
    (judged,) = shell.judged
    assert (judged.judgement.verdict.value, judged.judgement.reason.value) == ("inconclusive", reason)
    assert (judged.outstanding, judged.high, judged.away_s) == (1, b"2", 0.0)


def test_a_resume_of_an_unknown_session_is_judged_by_its_status() -> None:
    """Nothing else is known of it."""
    shell = Shell(OBSERVE)
    shell.open_get(5, answer=NOT_FOUND, session="s9").end()
    (judged,) = shell.judged
    assert (judged.session, judged.stream, judged.epoch, judged.in_flight) == ("s9", "", 0, 0)


@pytest.mark.parametrize(
    ("cursor", "found"),
    [
        pytest.param("plain", [], id="plain"),
        pytest.param("é", [], id="utf-8"),
        pytest.param("a\x7fb", ["cursor_unrepresentable"], id="control"),
    ],
)
def test_a_cursor_that_no_field_carries_whole(cursor: str, found: list[str]) -> None:
    """Controls are lost on the way, or end the field."""
    shell = Shell(OBSERVE)
    shell.begin("GET", cursor=cursor)
    assert shell.findings == found


def test_a_cursor_that_is_no_utf_8() -> None:
    """Clients that decode it send another one back."""
    shell = Shell(OBSERVE)
    head = Client(shell, type(shell.begin("GET").request)("GET", b"s1", b"\xff", None))
    head.began()
    assert shell.findings == ["cursor_unrepresentable"]
    assert [item.cursor for item in shell.reports if isinstance(item, ResumeAttempted)] == [b"\xff"]


def test_a_strange_cursor_that_is_accepted() -> None:
    """A session followed from its beginning never issued it, and the server does not mind."""
    shell = opened()
    shell.shown(event(1))
    shell.open_get(4711)
    assert shell.findings == ["cursor_not_validated"]


def test_a_plain_get_continues_the_standalone_stream() -> None:
    """A reconnect without the cursor it had; while one is open it is a stream of its own."""
    shell = opened()
    shell.open_get().end()
    shell.open_get().send(event(1)).end()
    assert shell.findings == []
    first = shell.open_get()
    second = shell.open_get()
    assert shell.findings == ["reconnect_without_cursor"]
    assert first.exchange.relay is not None
    assert second.exchange.relay is not None
    assert first.exchange.relay.stream is not second.exchange.relay.stream


# ---- loops


def looped(shell: Shell, times: int, pause_s: float = 0.1) -> list[str]:
    """So many resumes of one cursor that bring nothing; what was found."""
    for _ in range(times):
        shell.open_get(1).end(Ending.UPSTREAM_FAILED)
        shell.pass_time(pause_s)
    return [finding for finding in shell.findings if finding == "reconnect_loop"]


def test_twenty_resumes_of_one_cursor_are_a_loop() -> None:
    """Within ten seconds and without progress; found once each time."""
    shell = opened()
    shell.shown(event(1))
    assert looped(shell, LOOP_RESUMES - 1) == []
    assert looped(shell, 1) == ["reconnect_loop"]
    assert looped(shell, LOOP_RESUMES - 1) == ["reconnect_loop"]


def test_slow_resumes_are_no_loop() -> None:
    """Nor those that the server spaces by its `retry:`."""
    shell = opened()
    shell.shown(event(1))
    assert looped(shell, 3 * LOOP_RESUMES, pause_s=1.0) == []
    spaced = opened()
    spaced.shown(event(0), priming(1, 100))
    assert looped(spaced, 3 * LOOP_RESUMES) == []


def test_progress_begins_the_count_anew() -> None:
    """Something was shown meanwhile."""
    shell = opened()
    shell.shown(event(1))
    looped(shell, LOOP_RESUMES - 1)
    shell.stream(7).send(event(2))
    assert looped(shell, LOOP_RESUMES - 1) == []


def test_a_cursor_nobody_knows_loops_all_the_same() -> None:
    """It has no `retry:` to be spaced by; only so many cursors are watched."""
    shell = opened()
    for cursor in range(100, 140):
        shell.open_get(cursor, answer=NOT_FOUND).end()
    assert len(shell.session().loops) == 16
    for _ in range(LOOP_RESUMES):
        shell.open_get(99, answer=NOT_FOUND).end()
    assert shell.findings == ["reconnect_loop"]


def test_five_takeovers_of_one_stream_are_a_loop() -> None:
    """Connections that each take it from one still open."""
    shell = opened()
    shell.shown(event(1))
    for _ in range(LOOP_TAKEOVERS):
        shell.open_get(1)
    assert shell.findings == []
    shell.open_get(1)
    assert shell.findings == ["reconnect_loop"]
    for _ in range(LOOP_TAKEOVERS - 1):
        shell.pass_time(3.0)
        shell.open_get(1)
    assert shell.findings == ["reconnect_loop"]


# ---- JSON answers


@pytest.mark.parametrize(
    ("body", "found"),
    [
        pytest.param({"jsonrpc": "2.0", "id": 7, "result": {}}, [], id="result"),
        pytest.param(
            {"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": "no tool"}}, [], id="error"
        ),
        pytest.param(
            {"error": {"code": -32001, "message": "Session not found"}}, ["error_in_success"], id="session"
        ),
    ],
)
def test_a_session_error_in_a_json_answer_is_found(body: object, found: list[str]) -> None:
    """The server says 200 and means 404."""
    for session in ("s1", None):
        shell = opened()
        call = shell.post(7, session=session).responded(JSON)
        shell.perform(call, call.exchange.answered(dump(body)))
        assert shell.findings == found


# ---- other methods


def test_what_has_no_part_in_sessions_passes() -> None:
    """Other methods, with or without the header."""
    shell = opened()
    for method in ("OPTIONS", "HEAD", "PUT"):
        for session in ("s1", None):
            client = shell.begin(method, session=session).responded(STREAM)
            assert client.exchange.relay is None
            assert client.send(b"anything").phase is Phase.STREAMING
    assert shell.post(7, session=None).exchange.cut(0.0) is PASS
