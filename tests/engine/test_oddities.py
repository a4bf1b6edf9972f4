"""Situations in which healthy traffic was once accused, or a cut forgot somebody: each found on the wire."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha512

import pytest

from proxy.engine.findings import Ending
from proxy.engine.heads import Answer
from proxy.engine.ledger import Bounds
from proxy.engine.policy import Mode, Policy
from tests.engine.drive import Drive, dump, event, priming, result
from tests.engine.shell import STREAM, Shell

ENFORCE = Policy(mode=Mode.ENFORCE)


def drive() -> Drive:
    """A session that is initialized."""
    made = Drive()
    made.initialize()
    return made


def told(made: Drive) -> list[str]:
    """Verdict, reason and certainty of each judgement."""
    return [f"{each.verdict}/{each.reason} {each.certainty}" for each in made.verdicts]


@pytest.mark.parametrize("beat", [b"{}", b"null", b"ping", b'{"type":"heartbeat"}'])
def test_a_heartbeat_without_an_id_is_no_message(beat: bytes) -> None:
    """It is no JSON-RPC: neither is it a fork, nor does it excuse one."""
    made = drive()
    frame = b"data: " + beat + b"\n\n"
    made.show(event(1), frame, event(2))
    made.get(2).send(frame, event(3)).drop()
    made.get(3).send(b"data: " + dump({"jsonrpc": "2.0", "method": "m"}) + b"\n\n")
    assert told(made) == ["resumed/continued proven", "fork/id_missing proven"]


def test_a_primed_number_was_shown_by_its_session() -> None:
    """Two sessions that count for themselves share the number one primed: nothing crosses between them."""
    made = drive()
    made.initialize("s2")
    made.show(event(1, "tick"), session="s1")
    made.show(priming(1), event(2, "tick"), session="s2")
    made.get(1).send(event(2, "tick"))
    assert told(made) == ["resumed/continued proven"]


def test_a_resume_that_another_one_took_over_ends_without_proof() -> None:
    """The server closes the first for the second, which may be gone again by then."""
    made = drive()
    made.show(event(1), event(2), event(3))
    first = made.get(1)
    made.get(1).send(event(2), event(3)).end()
    first.end()
    assert told(made) == ["resumed/replayed proven", "gap/nothing_replayed suspected"]


def test_a_resume_that_was_sent_before_the_end_is_not_of_a_recycled_session() -> None:
    """Its answer comes after that of the DELETE; nobody serves the session again."""
    made = drive()
    made.show(event(1), event(2))
    resumed = made.request("GET", cursor=2, answer=None)
    made.delete()
    made.perform(resumed, resumed.exchange.responded(Answer(200, True), made.now))
    resumed.end()
    made.get(2)
    assert told(made) == ["resumed/idle proven", "fork/session_recycled proven"]


def test_a_stream_that_goes_on_while_the_session_is_issued_again() -> None:
    """The cursor was of the newest epoch when the resume opened."""
    made = drive()
    made.show(event(1), event(2))
    resumed = made.get(2)
    made.initialize()
    resumed.send(event(3))
    assert told(made) == ["resumed/continued proven"]


@pytest.mark.parametrize("empty", [b"{}", b"null", b" { }"])
def test_a_primer_that_was_never_relayed_comes_as_an_empty_object(empty: bytes) -> None:
    """Some servers store a priming frame as `{}` and replay it like a message."""
    made = drive()
    made.show(event("a"), event("b"))
    made.get("a").send(b"id: x\ndata: " + empty + b"\n\n", event("b"))
    assert told(made) == ["resumed/replayed proven"]


def test_a_replay_from_beyond_the_window_reuses_no_id() -> None:
    """Its events have their owner in the stream that showed them, remembered or not."""
    made = Drive(bounds=Bounds(ids_per_stream=8))
    made.initialize()
    frames = [event(f"{n:032x}") for n in range(1, 40)]
    made.show(*frames)
    made.get(f"{20:032x}").send(*frames[20:])
    assert made.findings == []


def test_a_stream_that_had_to_make_room_still_owes_its_answer() -> None:
    """More calls stream than are remembered: the cut gives each of them its error."""
    shell = Shell(ENFORCE, bounds=Bounds(streams_per_session=4))
    shell.open_session()
    calls = [shell.stream(n).send(event(100 + n)) for n in range(1, 7)]
    shell.shown(event(201), event(202))
    shell.open_get(202).send(event(1, "another log"))
    assert [call.error_ids for call in calls] == [[n] for n in range(1, 7)]


def test_a_stream_that_had_to_make_room_and_ends_without_its_answer_is_found() -> None:
    """Nobody can resume it any more: the response is missing."""
    shell = Shell(Policy(), bounds=Bounds(streams_per_session=1))
    shell.open_session()
    forgotten = shell.stream(1).send(event(1))
    shell.stream(2).send(event(2), result(3, 2)).end()
    forgotten.end(Ending.UPSTREAM_FAILED)
    assert shell.findings == ["response_missing"]


def test_only_what_is_in_flight_gets_an_error() -> None:
    """Of a batch that waits, what was answered elsewhere or cancelled meanwhile is over."""
    shell = Shell(ENFORCE)
    shell.open_session()
    get = shell.open_get().send(event(1), event(2))
    batch, single = shell.post(7, 8, 9), shell.post(5)
    get.send(result(3, 7), result(4, 5)).end(Ending.UPSTREAM_FAILED)
    shell.begin("POST").uploaded(
        dump({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 8}})
    )
    shell.open_get(4, answer=STREAM).send(event(1, "another log"))
    assert batch.error_ids == [9]
    assert single.error_ids == [None]


def test_a_server_that_gives_each_event_another_id_every_time() -> None:
    """What is sent again is no further event: a second resume of one cursor owes no more than the first."""

    def fresh(number: int) -> str:
        return b64encode(sha512(b"%d" % number).digest()).decode()

    made = drive()
    made.show(event(fresh(1), "a"), event(fresh(2), "b"), event(fresh(3), "c"))
    made.get(fresh(1)).send(event(fresh(12), "b"), event(fresh(13), "c")).drop()
    made.get(fresh(1)).send(event(fresh(22), "b"), event(fresh(23), "c"), event(fresh(24), "d"))
    assert told(made) == ["resumed/replayed suspected"] * 2


def test_a_session_is_used_for_as_long_as_its_streams() -> None:
    """A long stream that was just lost is no idle session: its resume is judged by all that it showed."""
    made = Drive(bounds=Bounds(session_idle_s=100.0))
    made.initialize()
    stream = made.get().send(event(1), event(2))
    made.now += 99
    stream.send(event(3), event(4)).drop()
    made.now += 2
    made.ledger.expire(made.now)
    made.get(2).send(event(1, "another log"))
    assert told(made) == ["fork/log_restarted proven"]
