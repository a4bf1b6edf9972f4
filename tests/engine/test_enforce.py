"""`enforce` on the resumed stream: what convicts it is not delivered, and its pending call fails at once."""

from __future__ import annotations

import json

import pytest

from proxy.engine.commands import Elsewhere, Finish, Report, Send
from proxy.engine.findings import Action, CloseCause, Ending, Judged, SessionQuarantined
from proxy.engine.heads import Answer
from proxy.engine.policy import Mode, Policy
from tests.engine.drive import DEADLINE_S, KEEP_ALIVE, crlf, event, result
from tests.engine.forks import FORKED, closed, cut, pending
from tests.engine.shell import Client, Phase, Shell, messages

SUSPECTED = Policy(mode=Mode.ENFORCE, cut_on_suspected=True)


# ---- the resumed stream


def test_the_pending_call_fails_on_the_resumed_stream() -> None:
    """Nothing of the forked log is delivered: one error event with the call's id, then a clean end."""
    shell = pending()
    client = cut(shell)
    assert (client.error_ids, client.phase) == ([7], Phase.ENDED)
    (message,) = messages(bytes(client.body))
    error = json.loads(message)
    assert bytes(client.body) == b"event: message\ndata: " + message + b"\n\n"
    assert error["error"]["code"] == -32600
    assert error["error"]["message"].startswith("Session terminated: ")
    told = error["error"]["data"]["forkwatch"]
    assert (told["verdict"], told["reason"], told["cursor"], told["got"]) == (
        "fork",
        "log_restarted",
        "5",
        "1",
    )
    assert closed(shell, "resume") == [CloseCause.PROXY_CUT]
    assert shell.session().in_flight == {}


@pytest.mark.parametrize(
    "stream", [FORKED, crlf(FORKED), b"\xef\xbb\xbf" + FORKED], ids=["lf", "crlf", "bom"]
)
def test_no_byte_of_the_offending_frame_is_delivered(stream: bytes) -> None:
    """However it is cut; what came whole before it is."""
    for at in range(len(stream) + 1):
        shell = pending()
        client = shell.open_get(5)
        client.send(stream[:at]).send(stream[at:] + event(2, "reborn"))
        body = bytes(client.body).removeprefix(b"\xef\xbb\xbf")
        assert body.startswith(b"event: message\ndata: {"), at
        assert client.error_ids == [7], at


def test_healthy_frames_before_the_fork_are_delivered() -> None:
    """Also those of the same chunk."""
    shell = pending()
    client = shell.open_get(3).send(KEEP_ALIVE + event(4) + event(1, "reborn") + event(5))
    assert isinstance(client, Client)
    assert bytes(client.body).startswith(KEEP_ALIVE + event(4) + b"event: message\n")
    assert messages(bytes(client.body))[0] == messages(event(4))[0]
    assert client.error_ids == [7]


def test_a_stream_that_owes_nothing_just_ends() -> None:
    """An error without a request's id would be ignored, or taken for the whole connection."""
    shell = Shell()
    shell.open_session()
    shell.shown(*(event(number) for number in range(1, 6)))
    client = cut(shell)
    assert (bytes(client.body), client.phase) == (b"", Phase.ENDED)


def test_a_batch_fails_with_one_error_for_each_unanswered_id() -> None:
    """What was answered before is over; types are kept."""
    shell = Shell()
    shell.open_session()
    shell.stream(7, "7", 8).send(event(1), result(2, 8), event(3)).end(Ending.UPSTREAM_FAILED)
    client = shell.open_get(3)
    client.send(FORKED)
    assert client.error_ids == [7, "7"]


def test_the_order_of_the_cut() -> None:
    """Quarantine, then the resumed stream, then the others, in one list of commands."""
    shell = pending()
    shell.open_get()
    client = shell.open_get(5)
    commands = client.exchange.receive(FORKED, shell.now)
    kinds = [type(c.item) if isinstance(c, Report) else type(c) for c in commands]
    order = [Judged, SessionQuarantined, Send, Finish, Elsewhere]
    assert [kind for kind in kinds if kind in order] == order


def test_the_verdict_tells_what_was_done() -> None:
    """`action` is the cut, and nothing would have been cut besides."""
    shell = pending()
    cut(shell)
    (judged,) = shell.judged
    assert (judged.action, judged.would_cut, judged.in_flight) == (Action.CUT, False, 1)
    (quarantined,) = [item for item in shell.reports if isinstance(item, SessionQuarantined)]
    assert (quarantined.session, quarantined.judgement, quarantined.ttl_s) == ("s1", judged.judgement, 600.0)


def test_an_end_that_decides_cuts() -> None:
    """A clean end with an event outstanding: the error comes before it."""
    shell = pending()
    client = shell.open_get(3)
    client.send(KEEP_ALIVE, b"data: unfinis").end()
    assert [seen[:3] for seen in shell.verdicts] == [("gap", "nothing_replayed", "proven")]
    assert bytes(client.body).startswith(KEEP_ALIVE + b"event: message\n")
    assert (client.error_ids, client.phase) == ([7], Phase.ENDED)


def test_an_end_that_another_connection_explains_does_not() -> None:
    """A client that resumes twice in a row: the server may end the first connection for the second."""
    shell = pending()
    first, second = shell.open_get(3), shell.open_get(3)
    first.end()
    second.send(event(4), event(5))
    assert [seen[:3] for seen in shell.verdicts] == [
        ("gap", "nothing_replayed", "suspected"),
        ("resumed", "replayed", "proven"),
    ]
    assert shell.quarantined == []


def test_a_head_that_decides_cuts() -> None:
    """A deleted session is served again: nothing of the stream is awaited."""
    shell = Shell()
    shell.open_session()
    shell.shown(event(1), event(2))
    other = shell.open_get()
    shell.end_session().end()
    client = shell.open_get(2)
    assert (client.phase, other.phase) == (Phase.ENDED, Phase.ENDED)
    assert shell.quarantined == [b"s1"]
    assert shell.upstream.sessions_active == 0


def test_an_encoded_stream_of_a_recycled_session_is_broken_off() -> None:
    """The head alone proves it, and nothing can be said in a coding of the upstream's."""
    shell = Shell()
    shell.open_session()
    shell.shown(event(1), event(2))
    shell.end_session().end()
    client = shell.open_get(2, answer=Answer(200, True, encoded=True))
    assert client.phase is Phase.ABORTED
    assert shell.quarantined == [b"s1"]


@pytest.mark.parametrize("policy", [None, SUSPECTED], ids=["proven", "suspected"])
def test_silence_cuts_only_where_a_suspicion_may(policy: Policy | None) -> None:
    """With `cut_on: suspected` at the first deadline, so that a call no longer hangs."""
    shell = pending(policy)
    client = shell.open_get(3)
    shell.pass_time(DEADLINE_S)
    assert shell.findings == ["replay_overdue"]
    if policy is None:
        assert (client.phase, shell.judged) == (Phase.STREAMING, [])
    else:
        assert (client.error_ids, client.phase) == ([7], Phase.ENDED)
        assert [seen[:3] for seen in shell.verdicts] == [("gap", "nothing_replayed", "suspected")]


def test_in_flight_bounds_the_cut() -> None:
    """`when: in_flight`: an idle session is annotated, one with a call under way is cut."""
    policy = Policy(mode=Mode.ENFORCE, only_in_flight=True)
    shell = Shell(policy)
    shell.open_session()
    shell.shown(event(1), event(2))
    idle = shell.open_get(2)
    idle.send(FORKED)
    assert b": forkwatch verdict=fork " in idle.body
    assert shell.quarantined == []
    busy = pending(policy)
    assert cut(busy).error_ids == [7]


def test_a_deadline_that_the_client_did_not_wait_for() -> None:
    """It left after the deadline: the session is cut, and its call fails at its next resume."""
    shell = pending(SUSPECTED)
    client = shell.open_get(3)
    client.wake_at = None
    shell.pass_time(DEADLINE_S)
    client.leave()
    assert [seen[:3] for seen in shell.verdicts] == [("gap", "nothing_replayed", "suspected")]
    assert shell.quarantined == [b"s1"]
    assert shell.open_get(3).error_ids == [7]


UNJUDGED = {
    "refused": Answer(404, False),
    "failing": Answer(503, False),
    "no_stream": Answer(200, False),
    "encoded": Answer(200, True, encoded=True),
}


@pytest.mark.parametrize("answer", UNJUDGED.values(), ids=UNJUDGED)
def test_what_was_not_judged_is_not_cut(answer: Answer) -> None:
    """Refused out loud or unreadable, whatever the overrides say."""
    actions = {"refused": Action.CUT, "unverifiable": Action.CUT, "inconclusive": Action.CUT}
    shell = pending(Policy(mode=Mode.ENFORCE, cut_on_suspected=True, actions=actions))
    client = shell.open_get(5, answer=answer)
    client.send(FORKED).end()
    assert client.body == client.sent
    assert [judged.action for judged in shell.judged] == [Action.PASS]
    assert shell.quarantined == []
