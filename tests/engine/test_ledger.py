"""What a session has shown: windows and places, epochs, owners, requests in flight, and bounds."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.digest import PRIMING, UNKNOWN, id_word
from proxy.engine.findings import AttachmentKind, Reason
from proxy.engine.ids import forced
from proxy.engine.ledger import Ambiguous, Baseline, Bounds, Pending, Session, Stream, Upstream
from proxy.engine.log import Known, Log, known
from proxy.engine.owners import Owners
from tests.engine.drive import session_of
from tests.engine.shell import Shell

A, B, C = 1001, 1002, 1003  # digests of messages


def log_of(*entries: tuple[int, int], limit: int = 1024) -> Log:
    """A log of (id, digest) words."""
    log = Log(1)
    for id_word_, word in entries:
        log.append(id_word_, word, limit)
    return log


# ---- a log


@given(count=st.integers(0, 200), limit=st.integers(1, 80))
def test_a_log_keeps_its_beginning_and_the_newest(count: int, limit: int) -> None:
    """Places count from the first id ever; what is held is the beginning and a window, in order."""
    log = log_of(*((10_000 + n, 20_000 + n) for n in range(count)), limit=limit)
    beginning = min(16, min(limit, count) // 4)
    held = (
        list(range(count))
        if count <= limit
        else [*range(beginning), *range(count - limit + beginning, count)]
    )
    assert (len(log), log.total) == (len(held), count)
    assert [n for n in range(count) if log.places(10_000 + n) == [n]] == held
    assert [log.word(n) for n in held] == [20_000 + n for n in held]
    assert log.oldest == (0 if count <= limit else count - limit + beginning)
    for place in (-1, log.oldest - 1, log.oldest, count - 1):
        assert log.after(place) == [
            (10_000 + n, 20_000 + n) for n in range(max(place + 1, log.oldest), count)
        ]


def test_appending_tells_whether_the_log_grew() -> None:
    """A full window overwrites its oldest entry."""
    log = Log(1)
    assert [log.append(n, A, 2) for n in (1, 2, 3)] == [True, True, False]
    assert (log.places(1), log.places(2), log.places(3)) == ([], [1], [2])


def test_an_id_may_stand_several_times() -> None:
    """Each place of it, oldest first, also when the ring has turned."""
    log = log_of((1, A), (2, A), (1, B), (3, C), (1, A), limit=4)
    assert log.places(1) == [0, 2, 4]
    assert (log.payload_count(A), log.payload_count(B), log.payload_count(9)) == (2, 1, 0)


KNOWN: list[tuple[str, list[tuple[int, int]], int, tuple[Known, int]]] = [
    ("never", [(2, A)], A, (Known.NO, -1)),
    ("only a primer", [(1, PRIMING), (1, PRIMING)], A, (Known.PRIMED, 1)),
    ("the same", [(1, A)], A, (Known.SAME, 0)),
    ("the same, after a primer", [(1, PRIMING), (1, A)], A, (Known.SAME, 1)),
    ("the same twice", [(1, A), (1, A)], A, (Known.SAME, 1)),
    ("one of several", [(1, A), (1, B)], A, (Known.SAME, 0)),
    ("another", [(1, A)], B, (Known.DIFFERENT, 0)),
    ("none of several", [(1, A), (1, B)], C, (Known.AMBIGUOUS, 1)),
    ("not to be compared", [(1, A)], UNKNOWN, (Known.UNSURE, 0)),
    ("kept without a digest", [(1, UNKNOWN)], A, (Known.UNSURE, 0)),
]


@pytest.mark.parametrize(("name", "entries", "word", "expect"), KNOWN, ids=[row[0] for row in KNOWN])
def test_how_an_id_stands(
    name: str, entries: list[tuple[int, int]], word: int, expect: tuple[Known, int]
) -> None:
    """The six ways, each with the last fitting place."""
    assert known(log_of(*entries), 1, word) == expect


# ---- a session


def show(session: Session, stream: Stream, *ids: object, word: int | None = None) -> None:
    """The stream shows messages, told by their ids unless `word` is given."""
    for each in ids:
        raw = str(each).encode()
        parsed = session.read(raw)
        payload = hash(raw) % 10**6 + 10 if word is None else word
        session.append(stream, raw, id_word(raw), payload, parsed, stream.last)


def word_of(id: object) -> int:
    """The digest `show` gives an id."""
    return hash(str(id).encode()) % 10**6 + 10


def where(session: Session, id: object) -> object:
    """The label, epoch and place of a cursor."""
    found = session.locate(id_word(str(id).encode()))
    if isinstance(found, Baseline):
        return found.stream.label, found.log.epoch, found.place
    return found


def test_a_cursor_is_located() -> None:
    """On its stream, at its place; unknown ids nowhere."""
    session = session_of()
    get, post = session.open_stream(AttachmentKind.GET), session.open_stream(AttachmentKind.POST)
    show(session, get, 1, 2)
    show(session, post, 3, 4, 5)
    assert [where(session, n) for n in (2, 3, 9)] == [("get-1", 1, 1), ("post-2", 1, 0), None]


@pytest.mark.parametrize("ids_each", [1, 300], ids=["few ids", "many ids"])
@pytest.mark.parametrize("streams", [1, 8, 9, 40])
def test_a_cursor_is_located_among_many_streams(streams: int, ids_each: int) -> None:
    """Whether all ids are looked through at once or stream by stream: each is found, a strange one is not."""
    session, last = session_of(), ids_each - 1
    for number in range(1, streams + 1):
        stream = session.open_stream(AttachmentKind.POST)
        show(session, stream, *(f"{number}_{n}" for n in range(ids_each)))
    for number in range(1, streams + 1):
        assert where(session, f"{number}_{last}") == (f"post-{number}", 1, last)
    assert where(session, "strange") is None


def test_a_cursor_with_two_owners_is_ambiguous() -> None:
    """Two streams have shown it as a message, or one with two payloads, or two as a primer."""
    session = session_of()
    one, two = session.open_stream(AttachmentKind.GET), session.open_stream(AttachmentKind.POST)
    show(session, one, 1, 2)
    show(session, two, 1)
    show(session, two, 7, word=A)
    show(session, two, 7, word=B)
    for stream in (one, two):
        session.place_aside(stream, id_word(b"0"))
    assert [where(session, n) for n in (1, 7, 0)] == [Ambiguous.AMBIGUOUS] * 3
    assert where(session, 2) == ("get-1", 1, 1)


def test_a_primer_owns_nothing() -> None:
    """A message elsewhere goes before it; alone it is a place like any other, and never outstanding."""
    session = session_of()
    one, two = session.open_stream(AttachmentKind.GET), session.open_stream(AttachmentKind.POST)
    session.place_aside(one, id_word(b"0"))
    session.place_aside(one, id_word(b"1"))
    show(session, two, 0)
    assert where(session, 0) == ("post-2", 1, 0)
    assert where(session, 1) == ("get-1", 1, 1)
    found = session.locate(id_word(b"1"))
    assert isinstance(found, Baseline)
    assert found.outstanding() == []
    assert session.owners(id_word(b"0"), word_of(0), two) == []


def test_epochs() -> None:
    """The newest epoch that knows a cursor counts; two former ones are kept, the third is forgotten."""
    session = session_of()
    get, idle = session.open_stream(AttachmentKind.GET), session.open_stream(AttachmentKind.GET)
    show(session, idle, 77)
    for _ in range(3):
        show(session, get, 1, 2, 3)
        session.next_epoch()
        session.current_log(get)
    show(session, get, 1)
    assert (session.epoch, get.log.epoch, [log.epoch for log in get.former]) == (4, 4, [2, 3])
    assert where(session, 1) == ("get-1", 4, 0)
    assert where(session, 3) == ("get-1", 3, 2)
    assert where(session, 77) == ("get-2", 1, 0)
    assert not session.complete
    assert session.owners(id_word(b"77"), word_of(77), get) == []


def test_where_each_stream_counts_for_itself_a_new_log_is_one_streams() -> None:
    """The others go on in the new epoch; with one counter for all, they end with the old one."""
    session = session_of()
    session.next_epoch(session.open_stream(AttachmentKind.GET))  # nothing is known of its ids yet
    one, two = session.open_stream(AttachmentKind.GET), session.open_stream(AttachmentKind.POST)
    show(session, one, 1, 2)
    show(session, two, 7)
    session.next_epoch(one)
    assert [each.log.epoch for each in (one, two)] == [2, 2]
    assert session.epoch == 3
    show(session, one, 1, 2)
    show(session, two, 1, 2)
    session.next_epoch(one)
    assert [each.log.epoch for each in (one, two)] == [3, 4]
    assert where(session, 2) == ("post-3", 4, 1)


def test_only_what_is_wholly_held_after_it_locates_a_cursor() -> None:
    """The beginning that a long log keeps is for comparing: what followed it is forgotten."""
    session = session_of(bounds=Bounds(ids_per_stream=64))
    stream = session.open_stream(AttachmentKind.GET)
    show(session, stream, *range(1, 101))
    assert [where(session, n) for n in (1, 16, 52)] == [None] * 3
    assert where(session, 53) == ("get-1", 1, 52)
    assert known(stream.log, id_word(b"1"), word_of(1)) == (Known.SAME, 0)
    assert not session.complete


def test_a_stream_makes_room_for_another() -> None:
    """The least recently opened idle one goes, with what it owes; if none is idle, the oldest."""
    session = session_of(bounds=Bounds(streams_per_session=2))
    first = session.standalone = session.open_stream(AttachmentKind.GET)
    second = session.open_stream(AttachmentKind.POST)
    first.attachments = 1
    session.expect("i:1", Pending(1, second))
    second.owed = ("i:1",)
    session.open_stream(AttachmentKind.POST)
    assert list(session.streams) == [1, 3]
    assert (session.in_flight, session.complete, session.standalone) == ({}, False, first)
    session.streams[3].attachments = 1
    session.open_stream(AttachmentKind.POST)
    assert list(session.streams) == [3, 4]


def test_a_stream_that_made_room_counts_for_nothing() -> None:
    """Its connection may still be open and bring events: only known streams count."""
    session = session_of(bounds=Bounds(streams_per_session=1))
    first = session.open_stream(AttachmentKind.GET)
    first.attachments = 1
    session.open_stream(AttachmentKind.POST)
    before = session.bytes
    show(session, first, 1, 2)
    assert (session.bytes, session.upstream.bytes) == (before, before)


def test_a_change_of_dialect_reads_the_newest_ids_again() -> None:
    """The common stream of rmcp was taken for bare integers until a call showed `n/m`."""
    session = session_of()
    get, quiet = session.open_stream(AttachmentKind.GET), session.open_stream(AttachmentKind.GET)
    show(session, get, 0, 1)
    assert session.newest == (None, None, None, (1,))
    show(session, session.open_stream(AttachmentKind.POST), "0/3")
    assert (get.last, quiet.last) == ((None, None, None, (1,)), None)
    show(session, get, "?")
    assert (get.last, session.evidence.dialect) == (None, forced("opaque"))


def test_the_newest_id_is_kept_short() -> None:
    """An id as long as a page is its first 256 bytes in the logs."""
    session = session_of()
    stream = session.open_stream(AttachmentKind.GET)
    show(session, stream, "x" * 1000)
    assert stream.high == b"x" * 256


# ---- elsewhere


def test_another_streams_message() -> None:
    """One other owner with an equal payload; with another payload, or two owners, nothing is said."""
    session = session_of()
    one, two, three = (session.open_stream(AttachmentKind.POST) for _ in range(3))
    show(session, one, 1)
    show(session, two, 2, 3)
    show(session, three, 4)

    def elsewhere(id: object, word: int) -> object:
        raw = str(id).encode()
        return session.elsewhere(session.read(raw), id_word(raw), word, one)

    assert elsewhere(3, word_of(3)) == (Reason.OTHER_STREAM, Known.SAME)
    assert elsewhere(3, UNKNOWN) == (Reason.OTHER_STREAM, Known.UNSURE)
    assert elsewhere(3, A) is None
    assert elsewhere(1, word_of(1)) is None
    show(session, three, 3)
    assert elsewhere(3, word_of(3)) is None
    assert elsewhere(4, word_of(4)) is None, "the integers no longer grow over the whole session"


def test_an_id_that_names_the_stream_is_at_home_there() -> None:
    """Two connections of one stream, by the tags of its ids; broken tags name nothing."""
    session = session_of()
    one, two = session.open_stream(AttachmentKind.GET), session.open_stream(AttachmentKind.GET)
    show(session, one, "_GET_stream_1")
    show(session, two, "_GET_stream_2")
    parsed = session.read(b"_GET_stream_2")
    arguments = (id_word(b"_GET_stream_2"), word_of("_GET_stream_2"), one)
    assert session.elsewhere(parsed, *arguments) is None
    session.evidence.tags_broken = True
    assert session.elsewhere(parsed, *arguments) == (Reason.OTHER_STREAM, Known.UNSURE)


def test_another_sessions_unique_id() -> None:
    """Ids that are unique by form are looked up across the upstream; only a live owner's log counts."""
    upstream = Upstream("tools")
    one, two = session_of("s1", upstream=upstream), session_of("s2", upstream=upstream)
    mine = one.open_stream(AttachmentKind.GET)
    theirs = two.open_stream(AttachmentKind.GET)
    ids = [f"{n:032x}" for n in range(4)]
    show(one, mine, ids[0])
    show(two, theirs, ids[1])

    def foreign(id: str, word: int) -> Known | None:
        return upstream.foreign(one, id_word(id.encode()), word)

    assert foreign(ids[1], word_of(ids[1])) is Known.SAME
    assert foreign(ids[1], A) is Known.DIFFERENT
    assert foreign(ids[0], word_of(ids[0])) is None
    assert foreign(ids[3], A) is None
    show(two, two.open_stream(AttachmentKind.POST), ids[1])
    assert foreign(ids[1], word_of(ids[1])) is None, "two streams of that session have shown it"
    del upstream.numbered[two.number]
    assert foreign(ids[1], A) is None


def test_another_sessions_integer() -> None:
    """Unique only while two sessions have shown ids and none was shown by both; then never again."""
    upstream = Upstream("tools")
    one, two = session_of("s1", upstream=upstream), session_of("s2", upstream=upstream)
    mine, theirs = one.open_stream(AttachmentKind.GET), two.open_stream(AttachmentKind.GET)

    def foreign(id: int) -> Known | None:
        return upstream.foreign(one, id_word(b"%d" % id), word_of(id))

    assert upstream.foreign(one, id_word(b"5"), word_of(5)) is None, "no dialect is known yet"
    show(one, mine, 1, 2)
    assert foreign(3) is None
    show(two, theirs, 3)
    assert foreign(3) is Known.SAME
    two.followed = False
    assert foreign(3) is Known.UNSURE
    show(two, theirs, 2)
    assert upstream.integers_shared
    assert foreign(3) is None
    show(two, theirs, 9)
    assert foreign(9) is None


def test_ids_of_no_dialect_are_nobodys() -> None:
    """What may repeat is not claimed."""
    upstream = Upstream("tools")
    session = session_of("s1", upstream=upstream)
    upstream.claim(session, 1, None)
    show(session, session.open_stream(AttachmentKind.GET), "abc")
    assert upstream.owners.who(id_word(b"abc")) == -1


def test_numbers_counted_elsewhere() -> None:
    """Another stream or session has come at least so far."""
    upstream = Upstream("tools")
    one, two = session_of("s1", upstream=upstream), session_of("s2", upstream=upstream)
    mine = one.open_stream(AttachmentKind.GET)
    show(one, mine, 1, 50)
    one.open_stream(AttachmentKind.GET)
    assert not upstream.counted_elsewhere(one, mine, 1)
    show(two, two.open_stream(AttachmentKind.GET), 9)
    assert [upstream.counted_elsewhere(one, mine, low) for low in (9, 10)] == [True, False]
    show(one, one.open_stream(AttachmentKind.POST), 12)
    assert [upstream.counted_elsewhere(one, mine, low) for low in (12, 13)] == [True, False]
    assert list(upstream) == [one, two]


# ---- owners


def test_owners_remember_the_last_claimant() -> None:
    """Who showed an id before is answered by the claim."""
    owners = Owners()
    word = id_word(b"a")
    assert (owners.who(word), owners.claim(word, 7), owners.claim(word, 9), owners.who(word)) == (
        -1,
        -1,
        7,
        9,
    )


def test_owners_have_two_generations() -> None:
    """When the young table is half full it becomes the old one; what is two turns old is forgotten."""
    owners = Owners(limit=1 << 10)
    words = [id_word(str(n).encode()) for n in range(2000)]
    for number, word in enumerate(words):
        owners.claim(word, number)
    assert owners.bytes == 8 * (1 << 10) * 2
    assert owners.who(words[0]) == -1
    recent = words[-500:]
    found = [owners.who(word) for word in recent]
    assert all(got in (-1, expected) for got, expected in zip(found, range(1500, 2000), strict=True))
    assert found.count(-1) < 25, "some are pushed out by their neighbours, few"
    survivor = next(word for word in words[900:1400] if owners.who(word) >= 0)
    before = owners.who(survivor)
    assert owners.claim(survivor, 77) == before
    assert owners.who(survivor) == 77


def test_owners_that_collide_push_out_the_first() -> None:
    """Four slots are probed; a fifth id of the same slot takes the first one's place."""
    owners = Owners()
    slot = 5
    words = [(n + 1) << 24 | slot for n in range(5)]
    for number, word in enumerate(words):
        assert owners.claim(word, number) == -1
    assert [owners.who(word) for word in words] == [-1, 1, 2, 3, 4]
    assert owners.who(9 << 24 | slot) == -1


def test_owners_grow_up_to_their_limit() -> None:
    """The table doubles with each turn until it may not."""
    owners = Owners(limit=1 << 12)
    for n in range(20_000):
        owners.claim(id_word(str(n).encode()), n)
    assert owners.bytes == 8 * (1 << 12) * 2


# ---- requests in flight


def test_requests_in_flight_are_counted_once() -> None:
    """Asked again they are the newer request; settled they are gone, also from the stream that owed."""
    session = session_of()
    stream = session.open_stream(AttachmentKind.POST)
    stream.owed = ("i:1", "i:2")
    session.expect("i:1", Pending(1, stream))
    session.expect("i:2", Pending(2, stream))
    session.expect("i:3", Pending(3))
    assert session.upstream.requests_in_flight == 3
    assert [session.settle(key) for key in ("i:1", "i:1", "i:3")] == [True, False, True]
    assert (list(stream.owed), session.upstream.requests_in_flight) == (["i:2"], 1)
    session.expect("i:2", Pending(2))
    assert (list(stream.owed), session.upstream.requests_in_flight) == ([], 1)
    session.expect("i:4", Pending(4, stream))
    stream.owed = ("i:4",)
    session.abandon_requests()
    assert (list(stream.owed), list(session.in_flight), session.upstream.requests_in_flight) == ([], [], 0)


def test_requests_in_flight_are_bounded() -> None:
    """The oldest of more than a thousand is given up."""
    session = session_of()
    for n in range(1030):
        session.expect(f"i:{n}", Pending(n))
    assert (len(session.in_flight), session.upstream.requests_in_flight) == (1024, 1024)
    assert "i:5" not in session.in_flight


# ---- bounds


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["get", "post", "epoch", "aside"]), st.integers(0, 40)),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_what_is_counted_is_what_is_held(steps: list[tuple[int, str, int]]) -> None:
    """The bytes of a session are those of its logs, within the bounds, whatever it shows."""
    bounds = Bounds(streams_per_session=3, ids_per_stream=8)
    session = session_of(bounds=bounds)
    empty = session.bytes
    for at, action, number in steps:
        if action == "epoch":
            session.next_epoch()
            continue
        kind = AttachmentKind.GET if action == "get" else AttachmentKind.POST
        streams = list(session.streams.values())
        stream = streams[at] if at < len(streams) else session.open_stream(kind)
        if action == "aside":
            session.place_aside(stream, number)
        else:
            show(session, stream, *range(number, number + 5))
        held = sum(len(log) for each in session.streams.values() for log in (each.log, *each.former))
        assert session.bytes - empty == 900 * len(session.streams) + 16 * held
        assert session.upstream.bytes == session.bytes
        assert len(session.streams) <= 3
        assert held <= 3 * 3 * 8
    session.release()
    assert (session.bytes, session.upstream.bytes) == (0, 0)


def test_a_client_that_asks_again_has_not_lost_more() -> None:
    """A loss counts once for a cursor, and what it grows by; another cursor's is another loss."""
    stream = session_of().open_stream(AttachmentKind.GET)
    assert [stream.lose(b"5", 2), stream.lose(b"5", 2), stream.lose(b"5", 3), stream.lose(b"6", 2)] == [
        2,
        0,
        1,
        2,
    ]


def test_a_word_that_only_straddles_two_is_not_found() -> None:
    """The search is one of bytes: what it finds between two words is nobody's id."""
    log = Log(1)
    first, second = 0x1122334455667788, 0x99AABBCCDDEEFF00
    log.append(first, 2, 10)
    log.append(second, 2, 10)
    pair = first.to_bytes(8, sys.byteorder) + second.to_bytes(8, sys.byteorder)
    between = int.from_bytes(pair[3:11], sys.byteorder)
    assert not log.has(between)
    assert log.places(second) == [1]


def test_a_stream_that_made_room_while_open_counts_for_nothing_ever_after() -> None:
    """Not even where its older logs are forgotten, epochs later."""
    shell = Shell(bounds=Bounds(streams_per_session=1))
    shell.open_session()
    session = shell.session()
    first = session.open_stream(AttachmentKind.GET)
    first.attachments = 1
    session.place_aside(first, 1)
    session.open_stream(AttachmentKind.GET)
    before = session.bytes
    for word in range(2, 7):
        session.next_epoch()
        session.place_aside(first, word)
    assert session.bytes == before == shell.upstream.bytes
