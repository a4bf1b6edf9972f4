"""One stream on its way through: what is counted, what is found, what is owed, and how it is said to end."""

from __future__ import annotations

import pytest

from proxy.engine.commands import PASS, Report, WakeAfter
from proxy.engine.findings import AttachmentKind, CloseCause, Ending, Malformed, StreamClosed, StreamOpened
from proxy.engine.heads import Answer
from proxy.engine.policy import Mode, Policy
from tests.engine.drive import DEADLINE_S, KEEP_ALIVE, crlf, dump, event, frame, priming, result, single_bytes
from tests.engine.shell import STREAM, Client, Phase, Shell

OBSERVE = Policy(mode=Mode.OBSERVE)


def opened(policy: Policy = OBSERVE) -> Shell:
    """A session."""
    shell = Shell(policy)
    shell.open_session()
    return shell


def closed(shell: Shell) -> StreamClosed:
    """The summary of the last stream that ended."""
    return [item for item in shell.reports if isinstance(item, StreamClosed)][-1]


def receive(client: Client, chunk: bytes) -> list[object]:
    """What the engine wants done about a chunk."""
    return list(client.exchange.receive(chunk, client.shell.now))


# ---- the common case


def test_the_common_case_is_the_shared_pass() -> None:
    """A chunk of a live stream costs no list and no command, however it is cut."""
    client = opened().stream(7)
    for chunk in (event(1), event(2)[:9], event(2)[9:], KEEP_ALIVE, event(3) + event(4)):
        assert client.exchange.receive(chunk, 0.0) is PASS


def test_a_report_of_a_live_chunk_sends_nothing() -> None:
    """Its bytes have left before the engine saw them."""
    client = opened().stream(7)
    receive(client, event(1))
    (report,) = receive(client, event(1, "again"))
    assert isinstance(report, Report)


def test_the_summary_of_a_stream() -> None:
    """Events, bytes, ids and times, once."""
    shell = opened()
    client = shell.stream(7)
    (opening,) = [item for item in shell.reports if isinstance(item, StreamOpened)]
    assert (opening.session, opening.stream, opening.kind.value) == ("s1", "post-1", "post")
    shell.pass_time(2.0)
    client.send(priming(1), KEEP_ALIVE, event(2), b"event: other\ndata: x\n\n", result(3, 7))
    shell.pass_time(1.0)
    client.end()
    assert closed(shell) == StreamClosed(
        session="s1",
        stream="post-1",
        kind=opening.kind,
        cause=CloseCause.COMPLETED,
        events=3,
        last_id=b"3",
        bytes=len(client.sent),
        duration_s=3.0,
        ttfb_s=2.0,
    )
    assert client.exchange.relay is not None
    assert client.exchange.relay.ended(Ending.CLEAN, shell.now) is PASS


def test_a_stream_on_which_nothing_came() -> None:
    """There is no first byte to wait for."""
    shell = opened()
    shell.open_get().end()
    assert (closed(shell).ttfb_s, closed(shell).last_id, closed(shell).events) == (None, None, 0)


# ---- how it ends


CAUSES = [
    pytest.param("post", b"", Ending.CLIENT_LEFT, CloseCause.CLIENT_CLOSED, id="client left"),
    pytest.param("post", b"", Ending.UPSTREAM_FAILED, CloseCause.UPSTREAM_RESET, id="upstream failed"),
    pytest.param("post", b"", Ending.CLEAN, CloseCause.EOF_INCOMPLETE, id="no answer"),
    pytest.param("post", result(1, 7), Ending.CLEAN, CloseCause.COMPLETED, id="answer"),
    pytest.param("get", event(1), Ending.CLEAN, CloseCause.UPSTREAM_EOF, id="standalone"),
    pytest.param("encoded", b"\x1f\x8b", Ending.CLEAN, CloseCause.UPSTREAM_EOF, id="unreadable"),
]


@pytest.mark.parametrize(("kind", "sent", "how", "cause"), CAUSES)
def test_the_cause_of_the_end(kind: str, sent: bytes, how: Ending, cause: CloseCause) -> None:
    """As the label of the metric."""
    shell = opened()
    if kind == "get":
        client = shell.open_get()
    else:
        client = shell.post(7).responded(Answer(200, True, encoded=kind == "encoded"))
    client.send(sent)
    client.leave() if how is Ending.CLIENT_LEFT else client.end(how)
    assert closed(shell).cause is cause
    assert shell.upstream.requests_in_flight == 0


def test_a_drain_is_named_by_the_shell() -> None:
    """It knows better than the ending says."""
    shell = opened()
    shell.open_get().drain()
    assert closed(shell).cause is CloseCause.PROXY_DRAIN


@pytest.mark.parametrize("how", Ending)
def test_a_frame_cut_short_is_found(how: Ending) -> None:
    """But not where the client left: nobody misses it."""
    shell = opened()
    client = shell.open_get().send(event(1), b"data: x")
    assert isinstance(client, Client)
    client.leave() if how is Ending.CLIENT_LEFT else client.end(how)
    assert shell.findings == ([] if how is Ending.CLIENT_LEFT else ["frame_truncated"])


def test_an_answer_that_never_comes_is_found() -> None:
    """At once where no id allows a resume, after `session_idle` where one does."""
    shell = opened()
    shell.stream(7).end()
    assert shell.findings == ["response_missing"]
    shell.stream(8).send(event(1)).end()
    assert shell.findings == ["response_missing"]
    assert list(shell.session().in_flight) == ["i:8"]
    shell.pass_time(7200.0)
    found = [item for _, item in shell.ledger.expire(shell.now)]
    assert "response_missing" in str(found)
    assert shell.upstream.requests_in_flight == 0


def test_an_answer_that_comes_by_a_resume_is_none_missing() -> None:
    """The call is over then."""
    shell = opened()
    shell.owing(7, event(1))
    shell.open_get(1).send(result(2, 7)).end()
    assert (shell.session().in_flight, shell.findings) == ({}, [])


def test_of_two_connections_the_last_decides_what_is_owed() -> None:
    """The first one's end leaves the call to the other."""
    shell = opened()
    first = shell.stream(7)
    first.send(event(1), event(2))
    second = shell.open_get(1)
    first.end()
    assert list(shell.session().in_flight) == ["i:7"]
    second.send(event(2), result(3, 7)).end()
    assert shell.session().in_flight == {}


# ---- what a frame says


def test_an_id_less_answer_ends_its_call() -> None:
    """Frames without ids are read only where they may be an answer."""
    shell = opened()
    shell.stream(7).send(frame(None, dump({"method": "note"})), result(None, 7)).end()
    assert (shell.session().in_flight, shell.findings) == ({}, [])


def test_a_ping_without_an_id_proves_nothing() -> None:
    """On a resume of a stream whose messages carried ids it is no `id_missing`."""
    shell = opened()
    shell.shown(event(1), event(2))
    client = shell.open_get(1)
    client.send(frame(None, dump({"jsonrpc": "2.0", "id": 1, "method": "ping"})), event(2))
    assert [seen[:2] for seen in shell.verdicts] == [("resumed", "replayed")]


@pytest.mark.parametrize("payload", [b'"error" but no json', b'{"error": '])
def test_what_cannot_be_parsed_answers_nothing(payload: bytes) -> None:
    """It passes all the same."""
    shell = opened()
    client = shell.stream(7)
    client.send(frame(None, payload), frame(1, payload)).end()
    assert client.body == client.sent
    assert list(shell.session().in_flight) == ["i:7"]


def test_a_session_error_inside_a_stream_is_found() -> None:
    """The server says 200 and means 404."""
    shell = opened()
    error = {"jsonrpc": "2.0", "id": 7, "error": {"code": -32001, "message": "Session not found"}}
    shell.stream(7).send(frame(1, dump(error))).end()
    assert shell.findings == ["error_in_success"]
    assert shell.session().in_flight == {}


@pytest.mark.parametrize("id_first", [True, False])
def test_an_answer_too_large_to_read_ends_its_call(id_first: bool) -> None:
    """Its id stands at the beginning or at the end of the message."""
    shell = opened()
    call, other = shell.stream(7), shell.stream(8)
    text = b'"result":{"text":"' + b"x" * 70_000 + b'"}'
    said = (
        b'{"jsonrpc":"2.0","id":7,' + text + b"}" if id_first else b'{"jsonrpc":"2.0",' + text + b',"id":7}'
    )
    call.send(frame(1, said), cut=lambda stream: (stream[at : at + 999] for at in range(0, len(stream), 999)))
    assert list(shell.session().in_flight) == ["i:8"]
    assert other.phase is Phase.STREAMING


def test_a_message_too_large_to_read_at_all_ends_what_its_stream_owes() -> None:
    """Rather than to find an answer missing that may have come."""
    shell = opened()
    call = shell.stream(7)
    call.send(frame(1, b'{"x":"' + b"x" * 70_000 + b'","id":7,"y":"' + b"y" * 70_000 + b'"}')).end()
    assert (shell.session().in_flight, shell.findings) == ({}, [])


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ENFORCE])
def test_an_unusable_id_is_reported(mode: Mode) -> None:
    """One longer than any proves nothing, and the session is not known completely any more."""
    shell = opened(Policy(mode=mode))
    shell.shown(event(1))
    client = shell.open_get(1)
    client.send(frame("i" * 2000, dump({"method": "note"})))
    assert [type(item) for item in shell.reports].count(Malformed) == 1
    assert not shell.session().complete
    assert client.body == client.sent
    assert shell.judged == []


def test_an_unusable_id_without_a_session_is_reported_too() -> None:
    """There is nothing to become incomplete."""
    shell = Shell(OBSERVE)
    client = shell.post(7, session=None).responded(STREAM)
    client.send(frame("i" * 2000, b"{}"), result(1, 7), result(None, 8)).end()
    assert any(isinstance(item, Malformed) for item in shell.reports)
    assert closed(shell).cause is CloseCause.COMPLETED


def test_without_a_session_answers_are_ticked_off() -> None:
    """And nothing is remembered."""
    shell = Shell(OBSERVE)
    client = shell.post(7, 8, session=None).responded(STREAM)
    client.send(frame(1, b"{}"), result(2, 8)).end()
    assert closed(shell).cause is CloseCause.EOF_INCOMPLETE
    assert shell.findings == ["response_missing"]
    assert shell.upstream.sessions == {}


def test_rmcp_is_known_by_how_it_primes() -> None:
    """`id: 0` with its `retry:` before any id tells it from other integers."""
    shell = opened()
    shell.stream(7).send(priming(0, 3000))
    dialect = shell.session().evidence.dialect
    assert dialect is not None
    assert dialect.name == "rmcp"


@pytest.mark.parametrize("payload", [b"{}", b"null"])
def test_a_priming_frame_may_be_replayed_as_an_empty_message(payload: bytes) -> None:
    """Under an id that only primed, on whichever stream; under another id it is a message."""
    shell = opened()
    shell.shown(event(1), priming(2), event(3))
    client = shell.open_get(1).send(frame(2, payload))
    assert shell.judged == []
    client.send(event(3))
    assert [seen[:2] for seen in shell.verdicts] == [("resumed", "replayed")]


def test_crossed_frames_leave_the_ledger_alone() -> None:
    """They have their owner elsewhere."""
    shell = opened()
    get = shell.open_get()
    get.send(event(1))
    shell.stream(7).send(event(2), event(3))
    get.end(Ending.UPSTREAM_FAILED)
    shell.open_get(1).send(event(3))
    assert [seen[:2] for seen in shell.verdicts] == [("crossed", "other_stream")]
    assert not shell.session().complete


# ---- time


def test_a_wake_too_early_waits_for_the_rest() -> None:
    """Progress meanwhile puts the deadline off."""
    shell = opened()
    shell.shown(event(1), event(2), event(3))
    client = shell.open_get(1)
    assert client.wake_at == shell.now + DEADLINE_S
    shell.now += 2.0
    client.send(event(2))
    shell.now += 3.0
    (wish,) = client.exchange.wake(shell.now)
    assert wish == WakeAfter(2.0)


def test_a_decision_put_off_by_a_frame_asks_to_be_woken() -> None:
    """Nothing was outstanding, but a live event came before what may be its backlog: the deadline decides."""
    shell = opened()
    shell.shown(event("1#s"), event("2#s"))
    client = shell.open_get("2#s")
    assert client.wake_at is None
    assert receive(client, event("9#s")) == [WakeAfter(DEADLINE_S)]
    shell.now += DEADLINE_S
    client.wake()
    assert [seen[:3] for seen in shell.verdicts] == [("gap", "forward_jump", "suspected")]


def test_silence_is_found_once_and_judged_after_ten_deadlines() -> None:
    """`replay_overdue`, then the verdict."""
    shell = opened()
    shell.shown(event(1), event(2))
    shell.open_get(1)
    shell.pass_time(9.5 * DEADLINE_S)
    assert (shell.findings, shell.judged) == (["replay_overdue"], [])
    shell.pass_time(DEADLINE_S)
    assert [seen[:3] for seen in shell.verdicts] == [("gap", "nothing_replayed", "suspected")]


def test_a_wake_after_the_verdict_does_nothing() -> None:
    """Nor one where nothing is outstanding, nor one of what is no stream."""
    shell = opened()
    shell.shown(event(1), event(2))
    client = shell.open_get(1).send(event(2))
    assert client.exchange.wake(shell.now + 60) is PASS
    idle = shell.open_get(2)
    assert list(idle.exchange.wake(shell.now + 60)) == []
    assert shell.post(7).exchange.wake(shell.now) is PASS


# ---- the engine failed on it


def test_abandoning_a_stream_gives_back_what_was_held() -> None:
    """The rest of the stream is none of the engine's business; its calls are over."""
    shell = opened(Policy(mode=Mode.ENFORCE))
    shell.owing(7, event(1), event(2))
    client = shell.open_get(1)
    client.send(event(2)[:9])
    assert client.exchange.abandon() == event(2)[:9]
    assert client.exchange.abandon() == b""
    session = shell.session()
    assert (session.in_flight, session.exchanges, session.complete) == ({}, {}, False)
    assert [stream.attachments for stream in session.streams.values()] == [0]


@pytest.mark.parametrize("how", ["all", "not the beginning", "not what failed", "not what was encoded"])
def test_numbers_sent_again_may_be_rmcps_where_a_part_was_not_read(how: str) -> None:
    """rmcp replays the cursor's own event; how its streams begin tells it from others, if that was read."""
    shell = Shell(OBSERVE)
    if how == "not the beginning":
        shell.post(1).responded(Answer(200, False))
    else:
        shell.open_session()
    if how == "not what failed":
        shell.open_get().send(priming(0, 3000)[:9]).exchange.abandon()
    if how == "not what was encoded":
        shell.open_get(answer=Answer(200, True, encoded=True)).send(b"\x1f\x8b").end()
    shell.shown(event(8), event(9))
    shell.open_get(9).send(event(9), event(10)).end()
    certainty = "proven" if how == "all" else "suspected"
    assert shell.verdicts[-1][:3] == ("rewound", "inclusive", certainty)


def test_of_an_unknown_session_nothing_is_overlooked() -> None:
    """An exchange that the detector never saw makes no session; one that is known is read in part."""
    shell = opened()
    for key in (b"another", b"s1"):
        shell.ledger.overlook(shell.upstream, key)
    (session,) = shell.upstream
    assert (session.key, session.complete, session.unread) == (b"s1", False, True)


def test_abandoning_a_live_stream() -> None:
    """Nothing was held."""
    shell = opened()
    client = shell.stream(7)
    client.send(crlf(event(1)), cut=single_bytes)
    relay = client.exchange.relay
    assert relay is not None
    assert relay.abandoned(shell.now) is None
    assert client.exchange.abandon() == b""
    assert shell.upstream.requests_in_flight == 0
    closed = relay.abandoned(shell.now)
    assert closed is not None
    assert (closed.kind, closed.cause, closed.events) == (AttachmentKind.POST, CloseCause.PROXY_ERROR, 1)


def test_a_relay_is_cut_once() -> None:
    """Whoever asks again has nothing to perform; without a session there is nothing to cut."""
    shell = opened(Policy(mode=Mode.ENFORCE))
    shell.shown(event(1), event(2))
    other = shell.open_get()
    shell.open_get(2).send(event(1, "reborn"))
    assert other.phase is Phase.ENDED
    for client in (other, shell.post(7, session=None).responded(STREAM)):
        assert client.exchange.relay is not None
        assert client.exchange.relay.cut(shell.now) is PASS
        assert client.exchange.cut(shell.now) is PASS


def test_a_large_message_is_counted_and_recorded() -> None:
    """A payload over the digest's limit takes the long way: a later resume still finds its id."""
    shell = opened()
    client = shell.stream(7)
    client.send(event(1), event(2, "x" * 40_000), event(3))
    client.end()
    assert (closed(shell).events, closed(shell).last_id) == (3, b"3")
