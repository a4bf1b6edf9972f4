"""What one connection records: what is new, what came again, and when a log begins anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.engine.attachment import Attachment
from proxy.engine.continuity import FrameKind, Shown
from proxy.engine.digest import PRIMING, id_word
from proxy.engine.findings import AttachmentKind, Finding, Raised
from proxy.engine.ledger import Bounds, Session
from tests.engine.drive import Drive, event, frame, priming, result, session_of

GET, POST, RESUME = AttachmentKind.GET, AttachmentKind.POST, AttachmentKind.RESUME


def say(id: object, word: int | None = None) -> Shown:
    """A message under `id`, told by its id unless `word` is given."""
    raw = None if id is None else str(id).encode()
    if raw is None:
        return Shown(FrameKind.MESSAGE, None, 0, 9)
    return Shown(FrameKind.MESSAGE, raw, id_word(raw), 100 + id_word(raw) % 1000 if word is None else word)


def prime(id: object) -> Shown:
    """A priming frame."""
    raw = str(id).encode()
    return Shown(FrameKind.PRIMING, raw, id_word(raw), 0)


def record(attachment: Attachment, *shown: Shown) -> list[str]:
    """Record frames; the details of the findings they give rise to."""
    raised = [attachment.record(each) for each in shown]
    assert all(isinstance(each, Raised | None) for each in raised)
    assert {each.finding for each in raised if each is not None} <= {Finding.ID_REUSED}
    return [each.detail for each in raised if each is not None]


def connected(kind: AttachmentKind = GET, session: Session | None = None) -> Attachment:
    """A connection that begins a stream."""
    session = session or session_of()
    return Attachment(session, session.open_stream(kind), kind)


def again(former: Attachment, kind: AttachmentKind = GET) -> Attachment:
    """Another connection of the same stream."""
    return Attachment(former.session, former.stream, kind)


def ids(attachment: Attachment, *candidates: object) -> list[object]:
    """Which of these the stream's current log holds, by place."""
    log = attachment.session.current_log(attachment.stream)
    found = [(place, each) for each in candidates for place in log.places(id_word(str(each).encode()))]
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


@pytest.mark.parametrize("kind", [GET, POST])
def test_new_ids_are_appended_in_order(kind: AttachmentKind) -> None:
    """Each once, and the newest is H."""
    attachment = connected(kind)
    assert record(attachment, say(1), say(2), say(5)) == []
    assert (ids(attachment, 1, 2, 5), attachment.stream.high) == ([1, 2, 5], b"5")


def test_frames_that_show_nothing() -> None:
    """No id and no message leaves no trace; a message without an id is remembered as such."""
    attachment = connected()
    assert record(attachment, Shown(FrameKind.NOTHING, None, 0, 0)) == []
    assert not attachment.stream.unnumbered
    assert record(attachment, say(None)) == []
    assert attachment.stream.unnumbered
    assert len(attachment.stream.log) == 0


def test_another_event_type_with_an_id_is_a_place() -> None:
    """go-sdk primes with `event: prime`: a cursor of it can be found, and nobody owns it."""
    attachment = connected(POST)
    raw = b"K5VQ3ZL7M2XJ4N6PBD3RTSWGFH_0"
    attachment.record(Shown(FrameKind.NOTHING, raw, id_word(raw), 0))
    assert attachment.stream.log.word(0) == PRIMING


def test_a_primer_moves_the_newest_id_forward_only() -> None:
    """A lower one gets its place beside; one that stands already gets none."""
    attachment = connected()
    record(attachment, prime(3), say(4), prime(0), prime(3), prime(9))
    assert ids(attachment, 3, 4, 0, 9) == [3, 4, 0, 9]
    assert attachment.stream.high == b"9"


@pytest.mark.parametrize("kind", [GET, RESUME])
def test_what_comes_again_is_not_recorded_again(kind: AttachmentKind) -> None:
    """A replay on a new connection, whole or in part, then what is new."""
    former = connected()
    record(former, say(1), say(2), say(3))
    attachment = again(former, kind)
    assert record(attachment, say(1), say(2), say(3), say(4), say(3)) == []
    assert (ids(attachment, 1, 2, 3, 4), attachment.session.epoch) == ([1, 2, 3, 4], 1)


def test_a_plain_get_with_other_payloads_begins_an_epoch() -> None:
    """The server is entitled to start anew; what is recorded belongs to the new log alone."""
    former = connected()
    record(former, say(1), say(2), say(3))
    attachment = again(former)
    assert record(attachment, say(1, 77), say(2, 78)) == []
    assert (attachment.session.epoch, ids(attachment, 1, 2, 3)) == (2, [1, 2])


def test_a_plain_get_with_lower_ids_begins_an_epoch() -> None:
    """By order, where nothing says that it is the known log that comes again."""
    former = connected()
    record(former, say(8), say(9))
    assert record(again(former), say(1)) == []
    assert (former.session.epoch, ids(former, 1, 8, 9)) == (2, [1])


def test_what_looked_like_a_replay_belongs_to_the_log_it_began() -> None:
    """Constant messages came first and were equal: cursors of the new log may name them."""
    former = connected()
    record(former, say(1, 50), say(2, 50), say(3))
    record(again(former), say(1, 50), say(2, 50), say(3, 77), say(4))
    assert (former.session.epoch, ids(former, 1, 2, 3, 4)) == (2, [1, 2, 3, 4])


def test_a_resume_never_begins_an_epoch_by_itself() -> None:
    """Its judgement does; here another payload is a reused id."""
    former = connected()
    record(former, say(1), say(2))
    attachment = again(former, RESUME)
    assert record(attachment, say(1, 77)) == ["another payload"]
    assert attachment.session.epoch == 1
    attachment.begin_epoch()
    assert record(attachment, say(1, 88)) == []
    assert (attachment.session.epoch, ids(attachment, 1, 2)) == (2, [1])


@pytest.mark.parametrize("kind", [GET, RESUME])
def test_the_forgotten_past_of_a_replay_has_no_place(kind: AttachmentKind) -> None:
    """Ids before the newest that are not held, on a connection that replays the known log."""
    former = connected()
    record(former, say(1), say(2), say(5))
    attachment = again(former, kind)
    assert record(attachment, say(1), say(2), say(3), say(4), say(5), say(6)) == []
    assert (ids(attachment, *range(1, 7)), attachment.session.epoch) == ([1, 2, 5, 6], 1)
    assert not attachment.session.complete


def test_times_begin_no_epoch() -> None:
    """A clock that has stepped back is no new log."""
    former = connected()
    record(former, say("s_1795973200386_aa"), say("s_1795973200387_aa"))
    record(again(former), say("s_1795973200111_aa"))
    assert former.session.epoch == 1


def test_reused_ids_within_a_connection() -> None:
    """All ids are 1: each message is recorded, and each reuse is reported."""
    attachment = connected()
    assert record(attachment, say(1, 50), say(1, 51), say(1, 52)) == ["another payload", "another payload"]
    assert len(attachment.stream.log) == 3


def test_an_id_of_another_stream_is_reused() -> None:
    """A call's stream uses the id of an event that the standalone one has shown."""
    first = connected()
    record(first, say(1), say(2))
    second = connected(POST, first.session)
    assert record(second, say(1)) == ["another stream"]
    assert record(second, say(2)) == [], "the integers no longer grow: each stream counts for itself"


def test_a_unique_id_that_comes_again_on_a_settled_connection_is_looked_up() -> None:
    """Opaque ids have no order to go by: who owns one is asked instead."""
    attachment = connected(POST)
    uuids = [f"{n:032x}" for n in range(3)]
    assert record(attachment, *map(say, uuids), say(uuids[0], 77)) == ["another payload"]
    assert record(attachment, say("f" * 32)) == []


def test_a_crossed_event_keeps_its_owner() -> None:
    """Delivered on an unsettled connection, equal to what another stream has shown."""
    first = connected()
    record(first, say(1), say(2))
    call = connected(POST, first.session)
    record(call, say(3))
    assert record(again(first, RESUME), say(3)) == []
    assert (ids(first, 1, 2, 3), first.session.complete) == ([1, 2], False)


def test_opaque_ids_that_repeat_are_recorded_as_they_come() -> None:
    """Where ids are not unique, a settled connection looks nothing up."""
    attachment = connected(POST)
    assert record(attachment, say("abc"), say("abc")) == []
    assert len(attachment.stream.log) == 2


def test_what_came_again_is_remembered_within_the_window() -> None:
    """Not more than a log can hold, however long the replay."""
    session = session_of(bounds=Bounds(ids_per_stream=8))
    former = connected(GET, session)
    record(former, *(say(n, 50) for n in range(1, 7)))
    attachment = again(former)
    record(attachment, *(say(n, 50) for n in range(1, 7)), *(say(6, 50) for _ in range(20)))
    attachment.begin_epoch()
    assert len(session.current_log(former.stream)) == 8
    record(attachment, say(7))
    assert ids(attachment, 7) == [7]


def show_unreadable_twice(drive: Drive) -> None:
    """The same, on two plain GETs."""
    for _ in range(2):
        drive.show(frame(1, b"{no"))


LIVE: dict[str, tuple[Callable[[Drive], object], list[str]]] = {
    "a message under an id that is a call's primer": (
        lambda drive: drive.call(1).send(priming(1), event(1), result(2, 1)),
        [],
    ),
    "one id on two calls": (
        lambda drive: (drive.call(1).send(result(1, 1)), drive.call(2).send(result(1, 2))),
        ["id_reused"],
    ),
    "a payload that cannot be compared": (
        show_unreadable_twice,
        ["reconnect_without_cursor"],
    ),
}


@pytest.mark.parametrize("name", LIVE)
def test_findings_of_live_streams(name: str) -> None:
    """What the wire gives rise to beside verdicts."""
    script, findings = LIVE[name]
    drive = Drive()
    drive.initialize()
    script(drive)
    assert (drive.findings, drive.verdicts) == (findings, [])


def test_the_short_way_takes_only_what_plainly_follows() -> None:
    """Greater than anything the session has shown, or of another counter; nothing else, and then it does nothing."""
    first = connected(POST)
    record(first, say(1), say(4))
    second = connected(POST, first.session)
    record(second, say(5))
    assert not first.follow(b"5", id_word(b"5"), 9)  # another stream's: one counter numbers them all
    assert not first.follow(b"x", id_word(b"x"), 9)
    assert first.follow(b"6", id_word(b"6"), 9)
    assert ids(first, 1, 4, 5, 6, "x") == [1, 4, 6]


def test_the_short_way_looks_up_unique_ids() -> None:
    """A uuid that this session has shown before is left to the long way."""
    attachment = connected(POST)
    one, two = f"{1:032x}".encode(), f"{2:032x}".encode()
    record(attachment, say(one.decode()))
    assert attachment.follow(two, id_word(two), 9)
    assert not attachment.follow(one, id_word(one), 9)
    assert len(attachment.stream.log) == 2
