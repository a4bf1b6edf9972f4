"""`annotate`: one comment where the stream is wrong, and every other byte as the upstream sent it.

Each stream is run whole, byte by byte and cut in two at every byte; the place of what was inserted is
computed from an unhindered scan of the stream.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from proxy.engine import terminal
from proxy.engine.commands import PASS
from proxy.engine.findings import Action, Ending
from proxy.engine.heads import Answer
from proxy.engine.policy import Mode, Policy
from proxy.engine.sse import Frame, Scanner
from tests.engine.drive import (
    DEADLINE_S,
    KEEP_ALIVE,
    crlf,
    cut_at,
    event,
    frame,
    priming,
    reserialised,
    result,
    single_bytes,
    whole,
)
from tests.engine.shell import Client, Phase, Shell, messages

ANNOTATE = Policy(mode=Mode.ANNOTATE)
NOTIFY = Policy(mode=Mode.ANNOTATE, notify=True)
BOM = b"\xef\xbb\xbf"


def cr(frames: bytes) -> bytes:
    """The same frames with the line ends nobody uses."""
    return frames.replace(b"\n", b"\r")


FORKED = event(1, "reborn")
STREAMS = {
    "one_frame": FORKED,
    "several_frames": FORKED + event(2, "reborn") + event(3, "reborn"),
    "after_keep_alive": KEEP_ALIVE + FORKED + KEEP_ALIVE,
    "after_a_duplicate_of_nothing": b"event: other\ndata: x\n\n" + FORKED + event(2, "reborn"),
    "id_last": b'data: {"method":"note"}\nid: 1\n\n' + event(2, "reborn"),
    "comment_inside": b': here\nid: 1\n: and here\ndata: {"n":1}\n: and there\n\n' + event(2, "reborn"),
    "blank_lines": b"\n\n" + FORKED + b"\n\n\n" + event(2, "reborn"),
    "crlf": crlf(KEEP_ALIVE + FORKED + event(2, "reborn")),
    "cr": cr(KEEP_ALIVE + FORKED + event(2, "reborn")),
    "mixed": b'id: 1\r\ndata: {"n":\rdata:1}\n\r\n' + b'id: 2\rdata: {"n":3}\n\r' + event(3, "reborn"),
    "mixed_again": b': k\r\r\nid: 1\ndata: {"n":1}\r\n\nid: 2\ndata: {"n":2}\r\r\nid: 3\r\ndata: {"n":3}\r\r',
    "bom": BOM + FORKED + event(2, "reborn"),
    "bom_crlf": BOM + crlf(FORKED),
    "retry": b'retry: 1000\n\nid: 1\nretry: 2000\ndata: {"n":1}\n\n',
}


def resumed(policy: Policy, cursor: int = 5, shown: Iterable[int] = range(1, 6)) -> tuple[Shell, Client]:
    """A resume of a stream that has shown these ids."""
    shell = Shell(policy)
    shell.open_session()
    shell.shown(*(event(number) for number in shown))
    return shell, shell.open_get(cursor)


def inserted(shell: Shell, client: Client) -> tuple[bytes, bytes]:
    """The comment and the notification that this resume's verdict gives rise to."""
    (judged,) = shell.judged
    assert judged.action is Action.ANNOTATE
    assert judged.would_cut is (judged.judgement.certainty == "proven")
    key = client.request.session or b""
    return (
        terminal.comment(judged.judgement, judged.cursor),
        terminal.notification(judged.judgement, judged.cursor, key),
    )


def places(body: bytes, *insertions: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The body without these insertions, each of which stands in it once, and where in that they stood."""
    assert [body.count(one) for one in insertions] == [1] * len(insertions)
    found = [body.index(one) for one in insertions]
    found = [
        at - sum(len(other) for other, its in zip(insertions, found, strict=True) if its < at) for at in found
    ]
    for one in insertions:
        body = body.replace(one, b"")
    return body, tuple(found)


def first_message(stream: bytes) -> Frame:
    """The first frame that can decide anything."""
    return next(each for each in Scanner().feed(stream) if each.id is not None)


def place(deciding: Frame, sent_before: int) -> int:
    """Where the comment belongs if so much of the stream left before the frame was whole."""
    return deciding.start if sent_before <= deciding.start else deciding.blank


def left_before(deciding: Frame, cut: int) -> int:
    """How much of a stream cut in two had left when the frame became whole."""
    return cut if cut <= deciding.blank else 0


@pytest.mark.parametrize("name", STREAMS)
def test_the_comment_stands_at_the_deciding_frame(name: str) -> None:
    """Before it if nothing of it has left, else inside it before its blank line; cut at every byte."""
    stream = STREAMS[name]
    deciding = first_message(stream)
    for at in range(len(stream) + 1):
        shell, client = resumed(ANNOTATE)
        client.send(stream, cut=cut_at(at)).end()
        comment, _ = inserted(shell, client)
        wanted = place(deciding, left_before(deciding, at))
        assert places(bytes(client.body), comment) == (stream, (wanted,)), at
        assert messages(bytes(client.body)) == messages(stream), at


@pytest.mark.parametrize("name", STREAMS)
def test_byte_by_byte_the_comment_stands_before_the_blank_line(name: str) -> None:
    """Every other byte of the frame has left by then."""
    stream = STREAMS[name]
    shell, client = resumed(ANNOTATE)
    client.send(stream, cut=single_bytes).end()
    comment, _ = inserted(shell, client)
    assert places(bytes(client.body), comment) == (stream, (first_message(stream).blank,))
    assert messages(bytes(client.body)) == messages(stream)


@pytest.mark.parametrize("name", STREAMS)
def test_the_notification_follows_the_deciding_frame(name: str) -> None:
    """After its blank line, and after the LF of a CRLF that came later than its CR; cut at every byte."""
    stream = STREAMS[name]
    deciding = first_message(stream)
    for at in range(len(stream) + 1):
        shell, client = resumed(NOTIFY)
        client.send(stream, cut=cut_at(at)).end()
        comment, notice = inserted(shell, client)
        wanted = place(deciding, left_before(deciding, at)), deciding.end
        assert places(bytes(client.body), comment, notice) == (stream, wanted), at
        got = messages(bytes(client.body))
        assert [message for message in got if b'"forkwatch"' not in message] == messages(stream), at
        assert len(got) == len(messages(stream)) + 1, at


@pytest.mark.parametrize("name", STREAMS)
def test_byte_by_byte_the_notification_follows_the_frame(name: str) -> None:
    """Each byte is a chunk, also the LF after a CR that ended the frame."""
    stream = STREAMS[name]
    shell, client = resumed(NOTIFY)
    client.send(stream, cut=single_bytes).end()
    comment, notice = inserted(shell, client)
    deciding = first_message(stream)
    assert places(bytes(client.body), comment, notice) == (stream, (deciding.blank, deciding.end))


def test_after_its_annotation_a_stream_is_a_raw_copy() -> None:
    """What follows the verdict passes as it comes, with nothing kept."""
    shell, client = resumed(NOTIFY)
    client.send(FORKED)
    assert client.exchange.receive(b"id: 2\ndata", shell.now) is PASS
    assert client.exchange.receive(b": x\n\n", shell.now) is PASS


def test_a_notification_that_waits_for_a_line_feed_comes_at_the_end() -> None:
    """The frame ended with a CR, and nothing followed."""
    shell, client = resumed(NOTIFY)
    client.send(cr(FORKED))
    comment, notice = inserted(shell, client)
    assert bytes(client.body) == comment + cr(FORKED)
    client.end()
    assert bytes(client.body) == comment + cr(FORKED) + notice


# ---- verdicts that no frame decides

AT_REST = {
    "nothing": b"",
    "comment": KEEP_ALIVE,
    "crlf": crlf(KEEP_ALIVE),
    "bom": BOM,
    "other_event": b"event: other\ndata: x\n\n",
}
IN_A_FRAME = {"lines": b"data: x\n", "a_comment_line": b": x\n", "crlf_lines": b"data: x\r\n"}
IN_A_LINE = {"line": b"data: x", "half_a_bom": BOM[:2], "field": b"da"}
AFTER_CR = {"cr": b": keep-alive\r\n\r", "cr_only": b": keep-alive\r\r", "bare": b"\r"}


def unanswered(policy: Policy) -> tuple[Shell, Client]:
    """A resume with two events outstanding."""
    return resumed(policy, cursor=5, shown=range(1, 8))


@pytest.mark.parametrize("sent", [*AT_REST.values(), *AFTER_CR.values()], ids=[*AT_REST, *AFTER_CR])
def test_an_end_that_decides_is_preceded_by_the_annotation(sent: bytes) -> None:
    """The client can still read why nothing came."""
    shell, client = unanswered(NOTIFY)
    client.send(sent).end()
    comment, notice = inserted(shell, client)
    assert [seen[:3] for seen in shell.verdicts] == [("gap", "nothing_replayed", "proven")]
    assert (bytes(client.body), client.phase) == (sent + comment + notice, Phase.ENDED)


@pytest.mark.parametrize("sent", IN_A_FRAME.values(), ids=IN_A_FRAME)
def test_an_end_within_a_frame_takes_no_notification(sent: bytes) -> None:
    """The comment is a line of a frame that is never dispatched; a frame of ours would complete it."""
    shell, client = unanswered(NOTIFY)
    client.send(sent).end()
    comment, _ = inserted(shell, client)
    assert bytes(client.body) == sent + comment


@pytest.mark.parametrize("sent", IN_A_LINE.values(), ids=IN_A_LINE)
def test_an_end_within_a_line_gets_a_line_of_its_own(sent: bytes) -> None:
    """Else the comment would be a part of that line."""
    shell, client = unanswered(NOTIFY)
    client.send(sent).end()
    comment, _ = inserted(shell, client)
    assert bytes(client.body) == sent + b"\n" + comment


def silent(policy: Policy, sent: bytes) -> tuple[Shell, Client]:
    """The same after ten deadlines of silence, which decide."""
    shell, client = unanswered(policy)
    client.send(sent)
    shell.pass_time(10 * DEADLINE_S)
    assert [seen[:3] for seen in shell.verdicts] == [("gap", "nothing_replayed", "suspected")]
    return shell, client


@pytest.mark.parametrize("name", [name for name in AT_REST if name != "nothing"])
def test_silence_is_annotated_at_once_between_frames(name: str) -> None:
    """Nothing need be waited for, and the stream goes on as it comes."""
    sent, more = AT_REST[name], event(8)
    shell, client = silent(NOTIFY, sent)
    comment, notice = inserted(shell, client)
    assert bytes(client.body) == sent + comment + notice
    client.send(more, cut=single_bytes).end()
    assert bytes(client.body) == sent + comment + notice + more
    assert len(shell.judged) == 1


@pytest.mark.parametrize("sent", IN_A_FRAME.values(), ids=IN_A_FRAME)
def test_silence_within_a_frame_is_annotated_inside_it(sent: bytes) -> None:
    """The comment at once as a line of the frame, the notification after its end."""
    shell, client = silent(NOTIFY, sent)
    comment, notice = inserted(shell, client)
    assert bytes(client.body) == sent + comment
    rest = b"id: 8\ndata: y\n\n"
    client.send(rest, event(9), cut=single_bytes).end()
    assert bytes(client.body) == sent + comment + rest + notice + event(9)


@pytest.mark.parametrize("sent", IN_A_LINE.values(), ids=IN_A_LINE)
def test_silence_within_a_line_is_annotated_before_the_blank_line(sent: bytes) -> None:
    """Once the frame is whole; the rest of the line is not ours to write."""
    shell, client = silent(NOTIFY, sent)
    assert bytes(client.body) == sent
    rest = b"z\nid: 8\ndata: y\n"
    client.send(rest + b"\n" + event(9), cut=single_bytes).end()
    comment, notice = inserted(shell, client)
    assert bytes(client.body) == sent + rest + comment + b"\n" + notice + event(9)


@pytest.mark.parametrize("sent", AFTER_CR.values(), ids=AFTER_CR)
@pytest.mark.parametrize("line_feed", [b"\n", b""], ids=["lf", "no_lf"])
def test_silence_after_a_cr_waits_for_the_next_frame(sent: bytes, line_feed: bytes) -> None:
    """An LF may still belong to it."""
    shell, client = silent(NOTIFY, sent)
    assert bytes(client.body) == sent
    client.send(line_feed + event(8) + event(9)).end()
    comment, notice = inserted(shell, client)
    assert bytes(client.body) == sent + line_feed + comment + event(8) + notice + event(9)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("decided", ["head", "silence"])
def test_before_the_first_byte_the_annotation_waits_for_a_frame(name: str, decided: str) -> None:
    """A BOM may still come, and nothing may stand before it; cut at every byte."""
    stream = STREAMS[name]
    deciding = Scanner().feed(stream)[0]
    for at in range(len(stream) + 1):
        shell, client = recycled(NOTIFY) if decided == "head" else silent(NOTIFY, b"")
        assert bytes(client.body) == b""
        client.send(stream, cut=cut_at(at)).end()
        comment, notice = inserted(shell, client)
        wanted = place(deciding, left_before(deciding, at)), deciding.end
        assert places(bytes(client.body), comment, notice) == (stream, wanted), at


def recycled(policy: Policy) -> tuple[Shell, Client]:
    """A resume in a session that its server has ended: decided by the head."""
    shell = Shell(policy)
    shell.open_session()
    shell.shown(event(1), event(2))
    shell.end_session().end()
    client = shell.open_get(2)
    assert [seen[:3] for seen in shell.verdicts] == [("fork", "session_recycled", "proven")]
    return shell, client


def test_a_head_that_decided_is_annotated_at_the_end_if_nothing_came() -> None:
    """The last chance is before the end."""
    shell, client = recycled(NOTIFY)
    client.end()
    comment, notice = inserted(shell, client)
    assert bytes(client.body) == comment + notice


@pytest.mark.parametrize("how", [Ending.UPSTREAM_FAILED, Ending.CLIENT_LEFT], ids=str)
def test_a_broken_end_decides_nothing_and_adds_nothing(how: Ending) -> None:
    """Two events are outstanding, but nobody said that they would not come."""
    shell, client = unanswered(NOTIFY)
    client.send(KEEP_ALIVE)
    client.leave() if how is Ending.CLIENT_LEFT else client.end(how)
    assert [seen.verdict for seen in shell.verdicts] == ["inconclusive"]
    assert bytes(client.body) == KEEP_ALIVE


# ---- what is not annotated

HEALTHY = {
    "replayed": event(4) + event(5) + event(6),
    "reserialised": reserialised(event(4) + event(5)),
    "keep_alive": KEEP_ALIVE + event(4) + KEEP_ALIVE + event(5),
    "answer": event(4) + event(5) + result(6, 1),
    "primed": priming(6) + event(4) + event(5),
    "crlf": crlf(event(4) + event(5) + event(6)),
    "bom": BOM + event(4) + event(5),
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize(
    "policy", [ANNOTATE, NOTIFY, Policy(mode=Mode.OBSERVE)], ids=["annotate", "notify", "observe"]
)
def test_a_healthy_replay_gets_no_byte_more_or_less(name: str, policy: Policy) -> None:
    """Whole, byte by byte and cut anywhere."""
    stream = HEALTHY[name]
    for cut in (whole, single_bytes, *(cut_at(at) for at in range(len(stream)))):
        shell, client = resumed(policy, cursor=3)
        client.send(stream, cut=cut).end()
        assert bytes(client.body) == stream
        assert [seen.verdict for seen in shell.verdicts] == ["resumed"]


@pytest.mark.parametrize("name", STREAMS)
def test_observe_changes_no_byte_of_a_fork(name: str) -> None:
    """It only says so, and that `enforce` would have cut."""
    stream = STREAMS[name]
    shell, client = resumed(Policy(mode=Mode.OBSERVE, notify=True))
    assert client.exchange.relay is not None
    assert not client.exchange.relay.rewrites
    client.send(stream, cut=single_bytes).end()
    (judged,) = shell.judged
    assert (judged.action, judged.would_cut) == (Action.PASS, True)
    assert bytes(client.body) == stream


def test_an_override_silences_a_reason() -> None:
    """`fork: pass` leaves the stream alone."""
    shell, client = resumed(Policy(mode=Mode.ANNOTATE, actions={"fork": Action.PASS}))
    client.send(FORKED).end()
    assert bytes(client.body) == FORKED
    assert [judged.action for judged in shell.judged] == [Action.PASS]


def test_live_streams_are_never_annotated() -> None:
    """Calls and plain GETs are not judged, whatever they show."""
    shell = Shell(NOTIFY)
    shell.open_session()
    shell.shown(event(1), event(2))
    get, call = shell.open_get(), shell.stream(7)
    for client in (get, call):
        assert client.exchange.relay is not None
        assert not client.exchange.relay.rewrites
        client.send(event(1, "again"), frame(None, b"x"), event(9)).end()
        assert client.body == client.sent


def test_each_resume_is_annotated_once() -> None:
    """One verdict, one annotation; the next resume of the new log is healthy."""
    shell, client = resumed(ANNOTATE)
    client.send(FORKED, event(2, "reborn")).end(Ending.UPSTREAM_FAILED)
    again = shell.open_get(1)
    again.send(event(2, "reborn"), event(3, "reborn"), event(1, "a third log")).end()
    assert client.body.count(b": forkwatch ") == 1
    assert again.body == again.sent
    assert [seen[:2] for seen in shell.verdicts] == [("fork", "log_restarted"), ("resumed", "replayed")]


# ---- heads


@pytest.mark.parametrize(
    ("mode", "answer", "rewrites"),
    [
        pytest.param(Mode.ANNOTATE, Answer(200, True, whole=True), True, id="annotate"),
        pytest.param(Mode.ENFORCE, Answer(200, True, whole=True), True, id="enforce"),
        pytest.param(Mode.OBSERVE, Answer(200, True, whole=True), False, id="observe"),
        pytest.param(Mode.ANNOTATE, Answer(200, True, whole=True, encoded=True), False, id="encoded"),
    ],
)
def test_a_resumed_stream_of_known_length_is_told_to_the_shell(
    mode: Mode, answer: Answer, rewrites: bool
) -> None:
    """Where bytes may be added no length can be promised."""
    shell = Shell(Policy(mode=mode))
    shell.open_session()
    shell.shown(event(1), event(2))
    client = shell.open_get(2, answer=answer)
    assert client.exchange.relay is not None
    assert client.exchange.relay.rewrites is rewrites


def test_a_stream_of_known_length_is_annotated_all_the_same() -> None:
    """Its head promised nothing to the client any more."""
    shell = Shell(ANNOTATE)
    shell.open_session()
    shell.shown(event(1), event(2))
    client = shell.open_get(2, answer=Answer(200, True, whole=True))
    client.send(FORKED).end()
    comment, _ = inserted(shell, client)
    assert bytes(client.body) == comment + FORKED


def test_an_encoded_stream_passes_as_it_comes() -> None:
    """Nothing can be read, so nothing can be said."""
    shell = Shell(NOTIFY)
    shell.open_session()
    shell.shown(event(1), event(2))
    client = shell.open_get(2, answer=Answer(200, True, encoded=True))
    client.send(b"\x1f\x8b\x08", FORKED).end()
    assert client.body == client.sent
    assert [seen[:2] for seen in shell.verdicts] == [("unverifiable", "encoded")]
