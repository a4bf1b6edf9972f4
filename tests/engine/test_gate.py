"""The gate of `enforce`: a resumed stream leaves frame by frame until its verdict, then as it comes."""

from __future__ import annotations

import pytest

from proxy.engine.commands import PASS
from proxy.engine.findings import Action, Ending, FailedOpen
from proxy.engine.heads import Answer
from proxy.engine.policy import Mode, Policy
from proxy.engine.sse import Scanner
from tests.engine.drive import (
    DEADLINE_S,
    KEEP_ALIVE,
    crlf,
    cut_at,
    dump,
    event,
    priming,
    reserialised,
    result,
    single_bytes,
    whole,
)
from tests.engine.shell import STREAM, Client, Phase, Shell, messages

ENFORCE = Policy(mode=Mode.ENFORCE)
BOM = b"\xef\xbb\xbf"
GATE = 200


def resumed(
    cursor: object = 3, *, policy: Policy = ENFORCE, gate_bytes: int = 1 << 20, answer: Answer = STREAM
) -> tuple[Shell, Client]:
    """A resume of a call's stream that has shown 1 to 5 and owes the answer to request 7."""
    shell = Shell(policy, gate_bytes=gate_bytes)
    shell.open_session()
    shell.owing(7, *(event(number) for number in range(1, 6)))
    return shell, shell.open_get(cursor, answer=answer)


def failed_open(shell: Shell) -> list[str]:
    """The parts of the detector that let something pass unjudged."""
    return [item.component for item in shell.reports if isinstance(item, FailedOpen)]


# ---- what is held, and what is not

HEALTHY = {
    "replayed": event(4) + event(5) + event(6),
    "reserialised": reserialised(event(4) + event(5)),
    "keep_alive": KEEP_ALIVE + event(4) + KEEP_ALIVE + event(5) + KEEP_ALIVE,
    "answer": event(4) + event(5) + result(6, 7),
    "primed": priming(6) + event(4) + event(5),
    "other_events": b"event: other\ndata: x\n\n" + event(4) + event(5),
    "crlf": crlf(event(4) + event(5) + event(6)),
    "cr": (event(4) + event(5)).replace(b"\n", b"\r"),
    "bom": BOM + event(4) + event(5),
}


@pytest.mark.parametrize("stream", HEALTHY.values(), ids=HEALTHY)
def test_a_healthy_replay_leaves_byte_for_byte(stream: bytes) -> None:
    """Whole, byte by byte and cut anywhere: the same bytes, nothing added."""
    for cut in (whole, single_bytes, *(cut_at(at) for at in range(len(stream)))):
        shell, client = resumed()
        client.send(stream, cut=cut).end()
        assert bytes(client.body) == stream
        assert [seen[:2] for seen in shell.verdicts] == [("resumed", "replayed")]


@pytest.mark.parametrize("stream", HEALTHY.values(), ids=HEALTHY)
def test_only_the_frame_being_judged_is_held(stream: bytes) -> None:
    """At every byte, all that came before the unfinished frame has left; after the verdict all has."""
    shell, client = resumed()
    scanner = Scanner()
    for at in range(len(stream)):
        client.send(stream[at : at + 1])
        scanner.feed(stream[at : at + 1])
        held = scanner.begun if not shell.judged and scanner.begun is not None else at + 1
        assert bytes(client.body) == stream[:held], at


def test_a_keep_alive_leaves_at_once() -> None:
    """A comment with its blank line is no frame to judge, also right after a replayed event."""
    _, client = resumed()
    client.send(KEEP_ALIVE)
    assert bytes(client.body) == KEEP_ALIVE
    client.send(event(4) + KEEP_ALIVE + b"id: 5\n")
    assert bytes(client.body) == KEEP_ALIVE + event(4) + KEEP_ALIVE


def test_a_matching_frame_leaves_before_the_verdict() -> None:
    """Each outstanding event is delivered as it is recognised."""
    shell, client = resumed()
    client.send(event(4))
    assert bytes(client.body) == event(4)
    assert shell.judged == []


def test_after_the_verdict_the_stream_is_a_raw_copy() -> None:
    """Parts of frames pass as they come."""
    shell, client = resumed()
    client.send(event(4), event(5))
    assert client.exchange.receive(b"id: 6\nda", shell.now) is PASS


def test_the_gate_tells_how_long_it_held() -> None:
    """Two frames, each in two parts; the time between frames is not held."""
    shell, client = resumed()
    for frame in (event(4), event(5)):
        client.send(frame[:9])
        shell.pass_time(1.5)
        client.send(frame[9:])
        shell.pass_time(0.25)
    assert shell.gated == [3.0]


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.ANNOTATE])
def test_no_other_mode_holds_anything(mode: Mode) -> None:
    """A part of a frame leaves at once, and there is no gate to tell of."""
    shell, client = resumed(policy=Policy(mode=mode))
    client.send(event(4)[:9])
    assert bytes(client.body) == event(4)[:9]
    client.send(event(4)[9:], event(5)).end()
    assert shell.gated == []


def test_live_streams_are_never_held() -> None:
    """A call's stream and a plain GET are raw copies from the first byte."""
    shell = Shell()
    shell.open_session()
    for client in (shell.stream(1), shell.open_get()):
        client.send(b"id: 1\nda")
        assert bytes(client.body) == b"id: 1\nda"


def test_a_suspicion_is_annotated_before_the_frame_that_was_held() -> None:
    """Nothing of it has left, however it came."""
    policy = Policy(mode=Mode.ENFORCE, actions={"fork": Action.ANNOTATE})
    for cut in (whole, single_bytes):
        shell, client = resumed(policy=policy)
        client.send(KEEP_ALIVE, event(2, "other"), event(3, "other"), cut=cut).end()
        comment, _, rest = bytes(client.body).removeprefix(KEEP_ALIVE).partition(b"\n")
        assert comment.startswith(b": forkwatch verdict=fork ")
        assert rest == event(2, "other") + event(3, "other")
        assert [judged.action for judged in shell.judged] == [Action.ANNOTATE]


def test_what_silence_finds_held_is_let_go() -> None:
    """A verdict by silence ends the judging, so the part of a frame leaves, and is annotated inside."""
    shell, client = resumed()
    client.send(b"data: x")
    assert bytes(client.body) == b""
    shell.pass_time(10 * DEADLINE_S)
    assert [seen[:3] for seen in shell.verdicts] == [("gap", "nothing_replayed", "suspected")]
    assert bytes(client.body) == b"data: x"
    client.send(b"\n\n")
    lines = bytes(client.body).split(b"\n")
    assert (lines[0], lines[1][:26], lines[2:]) == (b"data: x", b": forkwatch verdict=gap re", [b"", b""])
    assert shell.gated == [10 * DEADLINE_S]


@pytest.mark.parametrize("how", [Ending.UPSTREAM_FAILED, Ending.CLEAN])
def test_a_frame_that_never_became_whole_leaves_at_the_end(how: Ending) -> None:
    """It proves nothing: the client gets what the upstream sent, and its kind of ending."""
    shell, client = resumed()
    client.send(event(4), b"id: 1\ndata: other")
    client.end(how)
    assert bytes(client.body) == client.sent
    assert client.phase is (Phase.ENDED if how is Ending.CLEAN else Phase.ABORTED)
    assert [seen.verdict for seen in shell.verdicts] == ["inconclusive"]
    assert shell.quarantined == []


# ---- a frame larger than the gate


def large(id: object, text: str = "other", *, id_first: bool = True, event_type: bytes = b"") -> bytes:
    """A frame of twice the gate's size."""
    data = b"data: " + dump({"method": "note", "params": {"data": text.ljust(2 * GATE)}}) + b"\n"
    line = b"" if id is None else f"id: {id}\n".encode()
    return event_type + (line + data if id_first else data + line) + b"\n"


def test_an_oversized_frame_is_judged_by_its_id_and_cut_before_it_leaves() -> None:
    """An id below the cursor that was never shown: nothing of the frame is delivered."""
    shell, client = resumed(gate_bytes=GATE)
    client.send(event(4), large(0), cut=single_bytes)
    assert [seen[:3] for seen in shell.verdicts] == [("fork", "log_restarted", "proven")]
    assert failed_open(shell) == ["gate"]
    assert bytes(client.body).startswith(event(4) + b"event: message\ndata: ")
    assert (client.error_ids, client.phase) == ([7], Phase.ENDED)
    assert len(client.sent) < len(event(4)) + GATE + 10


def test_an_oversized_frame_is_judged_once() -> None:
    """By what was known when it was let go; its end adds nothing, and it is recorded then."""
    shell, client = resumed(gate_bytes=GATE)
    client.send(large(4), cut=single_bytes)
    assert shell.judged == []
    client.send(event(5)).end()
    assert [seen[:3] for seen in shell.verdicts] == [("resumed", "replayed", "suspected")]
    assert bytes(client.body) == client.sent
    assert failed_open(shell) == ["gate"]


def test_of_an_oversized_frame_the_payload_proves_nothing() -> None:
    """It replays a known id with another payload, which nobody waited to see: suspected at most."""
    shell, client = resumed(gate_bytes=GATE)
    client.send(large(4), event(5), cut=cut_at(GATE + 20))
    assert [seen[:3] for seen in shell.verdicts] == [("resumed", "replayed", "suspected")]
    shell, client = resumed()
    client.send(large(4), event(5), cut=cut_at(GATE + 20))
    assert [seen[:3] for seen in shell.verdicts] == [("fork", "content_diverged", "proven")]


@pytest.mark.parametrize("at", range(2 * GATE + 1, len(large(1, id_first=False)), 7))
def test_an_oversized_frame_whose_id_comes_last_is_made_void(at: int) -> None:
    """A part of it has left when its id convicts: the client's parser must not take it for a message."""
    shell, client = resumed(gate_bytes=GATE)
    client.send(event(4), b"", large(1, id_first=False), cut=cut_at(len(event(4)) + at))
    assert [seen[:3] for seen in shell.verdicts] == [("fork", "log_restarted", "proven")]
    assert failed_open(shell) == ["gate"]
    body = bytes(client.body)
    assert body.startswith(event(4) + large(1, id_first=False)[:at])
    assert b"event: forkwatch-discard\n\nevent: message\n" in body
    assert messages(body)[0] == messages(event(4))[0]
    assert len(messages(body)) == 2
    assert client.error_ids == [7]


def test_an_oversized_frame_without_an_id_passes_and_is_counted() -> None:
    """Only its end could have convicted it, and it does: the rest of the frame does not leave."""
    shell, client = resumed(gate_bytes=GATE)
    text = large(None)
    client.send(text[:-1], cut=single_bytes)
    assert bytes(client.body) == text[:-1]
    assert failed_open(shell) == ["gate"]
    client.send(text[-1:])
    assert [seen[:3] for seen in shell.verdicts] == [("fork", "id_missing", "proven")]
    assert bytes(client.body).startswith(text[:-1] + b"event: forkwatch-discard\n\nevent: message\n")
    assert client.error_ids == [7]


def test_an_oversized_frame_is_made_void_where_another_verdict_cuts_it() -> None:
    """A part of it was let go, and it is not whole yet."""
    shell, other = resumed(5, gate_bytes=GATE)
    shell.owing(8, event(6), event(7), event(8))
    client = shell.open_get(6)
    sent = event(7), large(None)[: GATE + 20]
    client.send(*sent, cut=cut_at(len(event(7))))
    other.send(event(1, "other"))
    body = bytes(client.body)
    assert body.startswith(b"".join(sent) + b"\nevent: forkwatch-discard\n\nevent: message\n")
    assert (client.error_ids, client.phase) == ([8], Phase.ENDED)


def test_an_oversized_event_of_another_type_proves_nothing() -> None:
    """Its id is no message's, and the stream goes on."""
    shell, client = resumed(gate_bytes=GATE)
    client.send(large(1, event_type=b"event: other\n"), event(4), event(5), cut=single_bytes).end()
    assert [seen[:2] for seen in shell.verdicts] == [("resumed", "replayed")]
    assert bytes(client.body) == client.sent
    assert failed_open(shell) == ["gate"]


def test_an_oversized_comment_passes() -> None:
    """It has no id to be judged by."""
    shell, client = resumed(gate_bytes=GATE)
    client.send(b": " + b"x" * 3 * GATE + b"\n\n", event(4), event(5), cut=single_bytes).end()
    assert bytes(client.body) == client.sent
    assert [seen[:2] for seen in shell.verdicts] == [("resumed", "replayed")]


def test_each_oversized_frame_is_counted_once() -> None:
    """However many chunks it takes."""
    shell, client = resumed(gate_bytes=GATE)
    client.send(large(4), large(5), cut=single_bytes).end()
    assert failed_open(shell) == ["gate", "gate"]
    assert bytes(client.body) == client.sent


def test_an_oversized_frame_that_came_in_one_chunk_is_judged_whole() -> None:
    """Nothing of it had to be held."""
    shell, client = resumed(gate_bytes=GATE)
    client.send(large(4))
    assert [seen[:3] for seen in shell.verdicts] == [("fork", "content_diverged", "proven")]
    assert failed_open(shell) == []
    assert not bytes(client.body).startswith(b"id: 4")


def test_a_suspected_oversized_frame_is_annotated_inside() -> None:
    """The comment waits for its blank line: the frame's beginning is let go in the same turn."""
    policy = Policy(mode=Mode.ENFORCE, actions={"fork": Action.ANNOTATE})
    shell, client = resumed(policy=policy, gate_bytes=GATE)
    text = large(0)
    client.send(text, cut=cut_at(GATE + 20))
    assert [judged.action for judged in shell.judged] == [Action.ANNOTATE]
    comment = bytes(client.body)[len(text) - 1 : -1]
    assert comment.startswith(b": forkwatch verdict=fork ")
    assert bytes(client.body) == text[:-1] + comment + b"\n"
