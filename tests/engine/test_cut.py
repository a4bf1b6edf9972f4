"""The cut of `enforce`: one verdict ends everything else a session has under way, as clients need it."""

from __future__ import annotations

import json

import pytest

from proxy.engine.findings import Action, CloseCause
from proxy.engine.heads import Answer
from proxy.engine.policy import Mode, Policy
from tests.engine.drive import KEEP_ALIVE, crlf, event, frame, single_bytes
from tests.engine.forks import FORKED, closed, cut, pending
from tests.engine.shell import ACCEPTED, JSON, STREAM, Client, Phase, Shell, body_of, messages

VOID = b"event: forkwatch-discard\n\n"


# ---- the other exchanges


@pytest.mark.parametrize(
    ("sent", "voided"),
    [
        pytest.param(b"", b"", id="nothing sent"),
        pytest.param(event(6), b"", id="frame boundary"),
        pytest.param(event(6) + KEEP_ALIVE, b"", id="after a comment"),
        pytest.param(event(6) + b"id: 9\nda", b"\n" + VOID, id="mid line"),
        pytest.param(event(6) + b"id: 9\n", VOID, id="mid frame"),
        pytest.param(event(6) + b"id: 9\r", VOID, id="mid frame after a CR"),
        pytest.param(crlf(event(6))[:-1], b"", id="between CR and LF of the blank line"),
        pytest.param(b": keep", b"\n" + VOID, id="mid comment"),
        pytest.param(b"\xef\xbb", b"\n" + VOID, id="mid BOM"),
    ],
)
def test_another_calls_stream_is_cut_at_a_frame_boundary(sent: bytes, voided: bytes) -> None:
    """What the client holds of a frame is made void first, so that the error is one of its own."""
    shell = pending()
    other = shell.stream("abc")
    other.send(sent)
    cut(shell)
    body = bytes(other.body)
    assert body.startswith(sent + voided + b"event: message\ndata: {")
    assert (other.error_ids, other.phase) == (["abc"], Phase.ENDED)
    assert len(messages(body)) == len(messages(sent)) + 1
    assert closed(shell, "post") == [CloseCause.UPSTREAM_RESET, CloseCause.PROXY_CUT]


def test_an_annotated_stream_is_cut_like_any_other() -> None:
    """A resume already judged, with a part of a frame out."""
    shell = pending(Policy(mode=Mode.ENFORCE, actions={"rewound": Action.ANNOTATE}))
    shell.owing(8, event(6), event(7), event(8))
    judged = shell.open_get(7).send(event(6), event(7), event(8), b"id: 9\nda")
    assert isinstance(judged, Client)
    cut(shell)
    assert bytes(judged.body).endswith(b"\n\n")
    assert b"id: 9\nda\n" + VOID + b"event: message\n" in judged.body
    assert judged.error_ids == [8]


def test_a_resume_still_held_is_cut_without_what_is_held() -> None:
    """Its own frame was not judged; its verdict is that it could not be followed."""
    shell = pending()
    shell.owing(8, event(6), event(7), event(8))
    held = shell.open_get(6)
    held.send(event(7), b"id: 8\nda")
    cut(shell)
    assert bytes(held.body).startswith(event(7) + b"event: message\n")
    assert held.error_ids == [8]
    assert [seen[:2] for seen in shell.verdicts] == [
        ("fork", "log_restarted"),
        ("inconclusive", "client_left"),
    ]
    assert len(shell.gated) == 2


@pytest.mark.parametrize(
    ("requests", "status", "errors"),
    [
        pytest.param((8,), 200, [8], id="single"),
        pytest.param(("8",), 200, ["8"], id="string id"),
        pytest.param((8, "8", 9), 200, [8, "8", 9], id="batch"),
    ],
)
def test_a_call_not_answered_yet_gets_a_json_error(
    requests: tuple[int | str, ...], status: int, errors: list[int | str]
) -> None:
    """A 404 would mean that it was not processed, and clients would send it again."""
    shell = pending()
    waiting = shell.post(*requests)
    cut(shell)
    assert waiting.response is not None
    assert (waiting.response.status, waiting.response.media_type) == (status, "application/json")
    assert isinstance(json.loads(waiting.response.body), list) is (len(requests) > 1)
    assert waiting.error_ids == errors
    assert shell.session().in_flight == {}


def test_a_notification_not_answered_yet_gets_404() -> None:
    """There is no id to fail."""
    shell = pending()
    waiting = shell.post()
    cut(shell)
    assert waiting.response is not None
    assert waiting.response.status == 404
    assert shell.rejected == [("POST", 404)]


@pytest.mark.parametrize(
    ("body", "status", "errors"),
    [
        pytest.param(body_of(8), 200, [8], id="a call"),
        pytest.param(body_of(), 404, [None], id="a notification"),
        pytest.param(None, 404, [None], id="too large"),
        pytest.param(b"", 404, [None], id="empty"),
        pytest.param(b"no json", 404, [None], id="no json"),
        pytest.param(body_of(8, method="initialize"), 200, [8], id="an initialize"),
    ],
)
def test_a_call_whose_body_is_still_coming_is_withdrawn(
    body: bytes | None, status: int, errors: list[int | None]
) -> None:
    """The upstream's part is given up at once; the answer follows when the ids are known."""
    shell = pending()
    coming = shell.begin("POST")
    cut(shell)
    assert (coming.withdrawn, coming.phase) == (True, Phase.WAITING)
    coming.uploaded(body)
    assert coming.response is not None
    assert (coming.response.status, coming.error_ids) == (status, errors)


@pytest.mark.parametrize("lifted", ["reissued", "expired"])
def test_a_withdrawn_call_is_answered_though_the_quarantine_is_over(lifted: str) -> None:
    """Its upstream part is gone: nobody else would answer it."""
    shell = pending()
    coming = shell.begin("POST")
    cut(shell)
    if lifted == "reissued":
        shell.open_session(carry="s1")
    else:
        shell.pass_time(601)
        shell.ledger.expire(shell.now)
    again = shell.stream(8)
    coming.uploaded(body_of(8))
    assert coming.error_ids == [8]
    assert again.phase is Phase.STREAMING
    assert list(shell.session().in_flight) == ["i:8"]


def test_a_withdrawn_call_whose_client_leaves() -> None:
    """Nothing is left to answer."""
    shell = pending()
    coming = shell.begin("POST")
    cut(shell)
    coming.leave()
    assert shell.session().exchanges == {}


@pytest.mark.parametrize("answer", [JSON, ACCEPTED], ids=["json", "accepted"])
def test_an_answer_under_way_is_let_through(answer: Answer) -> None:
    """Its head is out, and a JSON body cannot be replaced."""
    shell = pending()
    answered = shell.post(8).responded(answer)
    cut(shell)
    answered.send(b'{"jsonrpc":"2.0","id":8,"result":{}}').end()
    assert (answered.phase, answered.errors) == (Phase.ENDED, [])
    assert answered.body == answered.sent


def test_a_standalone_get_ends_cleanly() -> None:
    """It owes nothing."""
    shell = pending()
    get = shell.open_get()
    get.send(KEEP_ALIVE)
    cut(shell)
    assert (get.phase, bytes(get.body)) == (Phase.ENDED, KEEP_ALIVE)


def test_a_get_not_answered_yet_gets_404() -> None:
    """A plain GET is nobody's call."""
    shell = pending()
    waiting = shell.begin("GET")
    cut(shell)
    assert waiting.response is not None
    assert (waiting.response.status, shell.rejected) == (404, [("GET", 404)])


def test_a_waiting_resume_of_another_call_gets_that_calls_error() -> None:
    """A dropped network resumes all streams at once; a 404 would hang most clients."""
    shell = pending()
    shell.owing(8, event(6), event(7))
    waiting = shell.begin("GET", cursor=7)
    cut(shell)
    assert waiting.response is not None
    assert (waiting.response.status, waiting.response.media_type) == (200, "text/event-stream")
    assert waiting.error_ids == [8]
    assert [seen[:2] for seen in shell.verdicts] == [
        ("fork", "log_restarted"),
        ("inconclusive", "client_left"),
    ]
    assert shell.rejected == [("GET", 200)]


def test_the_newest_connection_of_a_stream_gets_the_error() -> None:
    """The older one is half open here and dead for its client."""
    shell = pending()
    half_open = shell.stream(8)
    half_open.send(event(6), event(7))
    resumed = shell.open_get(6)
    cut(shell)
    assert (half_open.error_ids, resumed.error_ids) == ([], [8])


@pytest.mark.parametrize(
    "answer", [Answer(200, True, whole=True), Answer(200, True, encoded=True)], ids=["whole", "encoded"]
)
def test_a_stream_that_nothing_can_be_added_to_is_broken_off(answer: Answer) -> None:
    """Its length is promised, or a coding hides its frames: the client sees that it is not whole."""
    shell = pending()
    other = shell.post(8).responded(answer)
    other.send(event(6))
    cut(shell)
    assert (other.phase, other.errors) == (Phase.ABORTED, [])


def test_the_call_of_a_stream_broken_off_fails_at_its_resume() -> None:
    """Nothing was said on it, so the error is owed yet."""
    shell = pending()
    other = shell.post(8).responded(Answer(200, True, whole=True))
    other.send(event(6))
    cut(shell)
    assert shell.open_get(6).error_ids == [8]


def test_delete_and_initialize_are_left_alone() -> None:
    """The one ends the session anyway, the other begins a new one."""
    shell = pending()
    delete = shell.begin("DELETE")
    initialize = shell.begin("POST").uploaded(body_of(1, method="initialize"))
    cut(shell)
    assert (delete.phase, initialize.phase) == (Phase.WAITING, Phase.WAITING)
    delete.responded(ACCEPTED).end()
    initialize.responded(Answer(200, False, session=b"s2")).end()
    assert (delete.phase, initialize.phase) == (Phase.ENDED, Phase.ENDED)
    assert (delete.response, initialize.response) == (None, None)


def test_an_initialize_is_no_request_of_the_session_it_carries() -> None:
    """It is in flight in none, or in the one that answers it."""
    shell = Shell()
    shell.open_session()
    initialize = shell.begin("POST").uploaded(body_of(1, method="initialize"))
    assert shell.session().in_flight == {}
    initialize.responded(Answer(200, True, session=b"s2"))
    assert (shell.session().in_flight, list(shell.session("s2").in_flight)) == ({}, ["i:1"])


def test_a_request_cancelled_before_its_head_is_over() -> None:
    """The head of its stream does not bring it back, and its end misses no answer."""
    shell = Shell()
    shell.open_session()
    call = shell.post(8)
    cancel = frame(None, b"").replace(
        b"data: \n\n", b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}'
    )
    shell.begin("POST").uploaded(cancel).responded(ACCEPTED).end()
    call.responded(STREAM).end()
    assert (shell.session().in_flight, shell.findings) == ({}, [])


def test_other_sessions_are_left_alone() -> None:
    """A cut is one session's."""
    shell = pending()
    shell.open_session("s2")
    other = shell.stream(8, session="s2")
    cut(shell)
    assert other.phase is Phase.STREAMING
    assert shell.upstream.requests_in_flight == 1


def test_an_answer_in_a_session_cut_meanwhile() -> None:
    """The session was not known when the request came: it is cut when its head shows that it is."""
    shell = Shell()
    early, late, resume = shell.post(8), shell.begin("POST"), shell.begin("GET", cursor=5)
    shell.open_session()
    shell.owing(7, *(event(number) for number in range(1, 6)))
    cut(shell)
    assert early.responded(STREAM).error_ids == [8]
    assert late.responded(STREAM).withdrawn
    assert late.uploaded(body_of(9)).error_ids == [9]
    assert resume.responded(STREAM).response is not None
    assert resume.response is not None
    assert resume.response.status == 404
    assert len(shell.judged) == 2


def test_byte_by_byte_a_fork_is_cut_the_same() -> None:
    """The others do not notice how it came."""
    shell = pending()
    other = shell.stream(8)
    client = shell.open_get(5)
    client.send(FORKED, cut=single_bytes)
    assert (client.error_ids, other.error_ids) == ([7], [8])
    assert len(client.sent) == len(FORKED)
