"""The bytes the proxy adds of its own: exactly these, whatever ids servers and clients chose."""

from __future__ import annotations

import json
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine import terminal
from proxy.engine.findings import Certainty, Judgement, Reason, Verdict
from proxy.engine.jsonrpc import RequestId, requests
from proxy.engine.privacy import hash_session
from proxy.engine.sse import Scanner

FORK = Judgement(Verdict.FORK, Reason.LOG_RESTARTED, Certainty.PROVEN, got=b"1", lost=3)
UNDECIDED = Judgement(Verdict.GAP, Reason.NOTHING_REPLAYED, Certainty.SUSPECTED, lost=7)
SESSION = b"5d41402a"
HASHED = hash_session(SESSION)
EVIDENCE = {
    "forkwatch": {
        "verdict": "fork",
        "reason": "log_restarted",
        "certainty": "proven",
        "cursor": "42",
        "got": "1",
        "lost": 3,
        "session": HASHED,
    }
}


def test_the_comment_is_one_line() -> None:
    """A comment with its line end and no blank line of its own."""
    assert terminal.comment(FORK, b"42") == (
        b": forkwatch verdict=fork reason=log_restarted certainty=proven cursor=42 got=1 lost=3\n"
    )


def test_the_comment_of_what_no_frame_decided() -> None:
    """There is no id to show."""
    assert terminal.comment(UNDECIDED, b"42") == (
        b": forkwatch verdict=gap reason=nothing_replayed certainty=suspected cursor=42 got= lost=7\n"
    )


HOSTILE = [
    pytest.param(b"a\nevent: x", b"a%0Aevent:%20x", id="lf"),
    pytest.param(b"a\r\r", b"a%0D%0D", id="cr"),
    pytest.param(b"a\0b", b"a%00b", id="nul"),
    pytest.param(b"\xff\xfe", b"%FF%FE", id="not utf-8"),
    pytest.param("é\u2028".encode(), b"%C3%A9%E2%80%A8", id="line separator"),
    pytest.param(b"x lost=0", b"x%20lost%3D0".replace(b"%3D", b"="), id="blank"),
    pytest.param(b"100%", b"100%25", id="percent"),
    pytest.param(b"a:b;c,d.e+f-g_h/i=j#k@l", b"a:b;c,d.e+f-g_h/i=j#k@l", id="plain"),
    pytest.param(b"x" * 81, b"x" * 80, id="capped"),
    pytest.param(b"\n" * 40, b"%0A" * 26, id="capped between escapes"),
]


@pytest.mark.parametrize(("value", "shown"), HOSTILE)
def test_values_are_percent_encoded_and_capped(value: bytes, shown: bytes) -> None:
    """What a peer chose ends no line, needs no decoding, and takes 80 characters at most."""
    judgement = Judgement(Verdict.FORK, Reason.ID_REGRESSED, got=value)
    assert terminal.comment(judgement, value) == (
        b": forkwatch verdict=fork reason=id_regressed certainty=proven cursor="
        + shown + b" got=" + shown + b" lost=0\n"
    )  # fmt: skip


@given(st.binary(max_size=200), st.one_of(st.none(), st.binary(max_size=200)))
def test_nothing_breaks_out_of_the_comment(cursor: bytes, got: bytes | None) -> None:
    """Any two ids: one line of printable ASCII, from which short ids can be read again."""
    line = terminal.comment(Judgement(Verdict.FORK, Reason.ID_REGRESSED, got=got), cursor)
    assert line.startswith(b": ")
    assert line.endswith(b" lost=0\n")
    assert all(0x20 <= byte < 0x7F for byte in line[:-1])
    shown = line.split(b" cursor=")[1].split(b" got=")[0]
    assert len(shown) <= 80
    assert cursor.startswith(unquote_to_bytes(shown))
    assert len(shown) >= 78 or unquote_to_bytes(shown) == cursor


def test_the_notification_is_one_frame_without_an_id() -> None:
    """An `id:` would become the client's cursor, a `retry:` its clock."""
    (frame,) = Scanner().feed(terminal.notification(FORK, b"42", SESSION))
    assert (frame.id, frame.retry_ms, frame.event, frame.has_data) == (None, None, b"message", True)
    assert frame.payload is not None
    assert json.loads(frame.payload) == {
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": {
            "level": "critical",
            "logger": "forkwatch",
            "data": {
                "message": "the resumed stream does not continue its log (fork/log_restarted)",
                **EVIDENCE,
            },
        },
    }


def test_the_error_event_to_the_byte() -> None:
    """The event that every measured client hears: `event: message`, one data line, nothing else."""
    assert terminal.error_events([10], FORK, b"42", SESSION) == (
        b'event: message\ndata: {"jsonrpc":"2.0","id":10,"error":{"code":-32600,"message":"Session '
        b"terminated: the resumed stream does not continue its log (fork/log_restarted); start a new session"
        b'","data":{"forkwatch":{"verdict":"fork","reason":"log_restarted","certainty":"proven","cursor":"42",'
        b'"got":"1","lost":3,"session":"' + HASHED.encode() + b'"}}}}\n\n'
    )


def test_one_event_for_each_pending_request() -> None:
    """In the order given; none for none."""
    events = terminal.error_events([1, "1"], FORK, b"42", SESSION)
    payloads = [frame.payload for frame in Scanner().feed(events)]
    assert [json.loads(payload or b"")["id"] for payload in payloads] == [1, "1"]
    assert terminal.error_events([], FORK, b"42", SESSION) == b""


AS_SENT = [
    pytest.param(b"1", id="integer"),
    pytest.param(b'"1"', id="string"),
    pytest.param(b'""', id="empty string"),
    pytest.param(b"0", id="zero"),
    pytest.param(b"-7", id="negative"),
    pytest.param(b"1.5", id="fraction"),
    pytest.param(b"9007199254740993", id="beyond doubles"),
    pytest.param(b"18446744073709551616", id="beyond 64 bits"),
    pytest.param(b"123456789012345678901234567890", id="huge"),
    pytest.param(b'"\\ud800"', id="lone surrogate"),
    pytest.param(b'"a\\nb\\u2028c\\u0000"', id="controls"),
    pytest.param('"é😀"'.encode(), id="unicode"),
    pytest.param(b'"' + b"x" * 5000 + b'"', id="long"),
]


@pytest.mark.parametrize("written", AS_SENT)
def test_an_id_keeps_its_type_and_value(written: bytes) -> None:
    """`1` is not `"1"`, and no digit is lost: clients drop an error under any other id."""
    body = requests(b'{"jsonrpc":"2.0","id":' + written + b',"method":"tools/call"}')
    assert body is not None
    (frame,) = Scanner().feed(terminal.error_events(body.request_ids, FORK, b"42", SESSION))
    (answer,) = [json.loads(frame.payload or b"")]
    wanted = json.loads(written)
    assert (answer["id"], type(answer["id"])) == (wanted, type(wanted))
    alone = terminal.error_body(body.request_ids, batch=False, judgement=FORK, cursor=b"42", session=SESSION)
    assert json.loads(alone) == answer


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.one_of(st.integers(), st.text(), st.text(alphabet='\ud800\r\n\0"\\'), FINITE))
def test_any_id_makes_one_frame(request_id: RequestId) -> None:
    """Whatever a client chose, it cannot end the event early or begin another."""
    events = terminal.error_events([request_id], FORK, b"42", SESSION)
    frames = Scanner().feed(events)
    assert [frame.end for frame in frames] == [len(events)]
    assert json.loads(frames[0].payload or b"")["id"] == request_id


def test_the_answer_to_a_single_request_and_to_a_batch() -> None:
    """A batch of one is answered by an array, a single request by an object."""
    facts = {"judgement": FORK, "cursor": b"42", "session": SESSION}
    single = terminal.error_body((3,), batch=False, **facts)  # type: ignore[arg-type]
    batch = terminal.error_body((3,), batch=True, **facts)  # type: ignore[arg-type]
    error = {
        "code": -32600,
        "message": "Session terminated: the resumed stream does not continue its log (fork/log_restarted);"
        " start a new session",
        "data": EVIDENCE,
    }
    assert json.loads(single) == {"jsonrpc": "2.0", "id": 3, "error": error}
    assert json.loads(batch) == [json.loads(single)]


def test_the_refusal_has_a_null_id() -> None:
    """With a request's id some clients take it for that call alone and keep the dead session."""
    assert json.loads(terminal.not_found_body(FORK, b"42", SESSION)) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {
            "code": -32001,
            "message": "Session not found: forkwatch terminated it (fork/log_restarted); start a new session",
            "data": EVIDENCE,
        },
    }


def test_evidence_shows_ids_as_text_and_the_session_as_its_hash() -> None:
    """Capped, readable though not UTF-8, and no session id that could be replayed."""
    judgement = Judgement(Verdict.FORK, Reason.ID_REGRESSED, got=b"\xff" + b"y" * 200)
    told = terminal.evidence(judgement, b"x" * 200, SESSION)["forkwatch"]
    assert told == {
        "verdict": "fork",
        "reason": "id_regressed",
        "certainty": "proven",
        "cursor": "x" * 80,
        "got": "\\xff" + "y" * 79,
        "lost": 0,
        "session": HASHED,
    }
    assert terminal.evidence(UNDECIDED, b"1", SESSION)["forkwatch"]["got"] is None  # type: ignore[index]


def test_the_verdict_header() -> None:
    """One line of closed words."""
    assert terminal.verdict_header(FORK) == b"fork; reason=log_restarted; certainty=proven"
