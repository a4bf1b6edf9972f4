"""Ids of every dialect: their forms, near misses, what may be compared, and when a guess may convict."""

from __future__ import annotations

import base64
import time

import pytest

from proxy.engine.ids import (
    DIALECTS,
    INTEGER,
    OPAQUE,
    RMCP,
    TRUST_AFTER,
    EventId,
    Evidence,
    IdClass,
    compare,
    forced,
    guess,
    known,
    names,
    skipped,
)

UUID = "406ac4b1-2c15-463e-b603-579e85ef286c"
MS = 1795973200386

FORMS: list[tuple[str, str, tuple[object, ...] | None]] = [
    (f"{UUID}_{UUID}", "java-pair", None),
    (UUID, "uuid", None),
    (UUID.upper(), "uuid", None),
    (UUID.replace("-", ""), "uuid", None),
    (f"GET::{MS}_{UUID}", "kotlin", (None, b"GET", None, (MS,))),
    (f"a::b::{MS}_{UUID}", "kotlin", (None, b"a::b", None, (MS,))),
    (f"_GET_stream_{MS}_0000_j8i", "mcp-proxy", (None, b"_GET_stream", None, (MS, 0))),
    (f"{UUID}_{MS}_00zz_", "mcp-proxy", (None, UUID.encode(), None, (MS, 35 * 36 + 35))),
    (f"{UUID}_{MS}_m1ua3dbg", "typescript", (None, UUID.encode(), None, (MS,))),
    (f"_GET_stream_{MS}_", "typescript", (None, b"_GET_stream", None, (MS,))),
    (f"{MS}-0", "redis", (None, None, None, (MS, 0))),
    (f"tools:{MS}-12", "redis", (None, b"tools", None, (MS, 12))),
    (f"2:b'{MS}-3'", "redis", (None, b"2", None, (MS, 3))),
    ("cVltM3gwYzk=:X19nZXRfXw==:42", "csharp", (b"qYm3x0c9", b"X19nZXRfXw==", None, (42,))),
    ("a:Nw==:42", "csharp", (None, b"Nw==", None, (42,))),
    ("_GET_stream:000000000000001a", "cloudflare", (None, b"_GET_stream", None, (26,))),
    ("q83vEjRWeJo:0", "logiscape", (None, b"q83vEjRWeJo", None, (0,))),
    ("_GET_stream:4", "logiscape", (None, b"_GET_stream", None, (4,))),
    ("3#_GET_stream", "mcp-lite", (None, b"_GET_stream", None, (3,))),
    ("_0", "go-sdk", (None, b"", None, (0,))),
    ("K5VQ3ZL7M2XJ4N6PBD3RTSWGFH_17", "go-sdk", (None, b"K5VQ3ZL7M2XJ4N6PBD3RTSWGFH", None, (17,))),
    ("57", "integer", (None, None, None, (57,))),
    ("007", "integer", (None, None, None, (7,))),
    ("9" * 18, "integer", (None, None, None, (10**18 - 1,))),
    ("4/3", "rmcp", (None, b"3", None, (4,))),
    ("1_3", "swift", (None, b"1", None, (3,))),
    ("_GET_stream_3", "swift", (None, b"_GET_stream", None, (3,))),
    ("a_b_12", "swift", (None, b"a_b", None, (12,))),
    ("host-1-77", "instance", (None, None, b"host-1", (77,))),
    ("A" * 40, "encrypted", None),
    ("backend1:aWQ=,backend2:aWQy", "encrypted", None),
    # near misses
    (f"{UUID}_{UUID}0", "encrypted", None),
    (UUID[:-1], "opaque", None),
    (f"_GET_stream_{MS}_0000_j8iz", "opaque", None),
    (f"_GET_stream_{MS // 10}_m1ua3dbg", "opaque", None),
    ("_GET_stream:00000000000001a", "opaque", None),
    ("q83vEjRWeJ:0", "opaque", None),
    ("9" * 19, "opaque", None),
    ("-5", "opaque", None),
    ("1.5", "opaque", None),
    ("0x1a", "opaque", None),
    ("12 ", "opaque", None),
    ("12\n", "opaque", None),
    ("\u0663", "opaque", None),
    ("A" * 39, "opaque", None),
    ("", "opaque", None),
    ("#1", "opaque", None),
    ("abc", "opaque", None),
]


@pytest.mark.parametrize(("raw", "name", "parts"), FORMS, ids=[repr(raw) for raw, _, _ in FORMS])
def test_form(raw: str, name: str, parts: tuple[object, ...] | None) -> None:
    """An id is of one dialect, and comes apart as that dialect says; what nothing recognises is opaque."""
    dialect = guess(raw.encode())
    assert (dialect.name, dialect.parse(raw.encode())) == (name, parts)


def test_every_dialect_has_a_form_here() -> None:
    """The table leaves none out."""
    assert {name for _, name, _ in FORMS} == {dialect.name for dialect in DIALECTS} == set(names())


def test_a_dialect_reads_its_own_ids_only() -> None:
    """What has not the form has no parts, and an opaque id never has any."""
    assert [dialect.name for dialect in DIALECTS if dialect.parse(b"?") is not None] == []
    assert OPAQUE.parse(b"12") is None
    assert repr(RMCP) == "<Dialect rmcp>"


def parse(raw: str) -> EventId | None:
    """An id in the dialect it suggests."""
    return guess(raw.encode()).parse(raw.encode())


ORDER = [
    ("9", "10", -1),
    ("07", "7", 0),
    ("_9", "_10", -1),
    ("_GET_stream_2", "7_3", -1),
    ("4/3", "3/3", 1),
    ("4/3", "9/4", None),
    ("a-1", "b-2", None),
    ("a-1", "a-2", -1),
    (f"s_{MS}_aaaa_zz", f"s_{MS}_aaab_aa", -1),
    (f"s_{MS}_zz", f"s_{MS}_aa", 0),
    ("cVltM3gwYzk=:Nw==:2", "cVltM3gwYzk=:Nw==:1", 1),
    ("cVltM3gwYzk=:Nw==:2", "czI=:Nw==:1", None),
    (UUID, UUID, None),
]


@pytest.mark.parametrize(("a", "b", "order"), ORDER, ids=[f"{a} {b}" for a, b, _ in ORDER])
def test_order(a: str, b: str, order: int | None) -> None:
    """Numbers are compared as numbers, within one session, epoch and (where each counts) stream."""
    dialect = guess(a.encode())
    assert compare(parse(a), parse(b), dialect) == order
    assert compare(parse(b), parse(a), dialect) == (None if order is None else -order)


def test_skipped_numbers() -> None:
    """How many lie between: none for a successor, negative for what is not later."""
    ids = {n: INTEGER.parse(str(n).encode()) for n in (5, 6, 9)}
    five, six, nine = ids[5], ids[6], ids[9]
    assert five is not None
    assert six is not None
    assert nine is not None
    assert (skipped(five, six), skipped(five, nine), skipped(five, five), skipped(nine, five)) == (
        0,
        3,
        -1,
        -5,
    )


CONFIGURED = [
    ("integer", "integer", "5", (None, None, None, (5,))),
    ("opaque", "opaque", "5", None),
    ("epoch:seq", "epoch:seq", "7:41", (None, None, b"7", (41,))),
    ("stream:seq", "stream:seq", "a:b:3", (None, b"a:b", None, (3,))),
    ("session/stream/seq", "session/stream/seq", "s/t/3", (b"s", b"t", None, (3,))),
    ("stream_seq", "stream_seq", "a_3", (None, b"a", None, (3,))),
    ("seq", "seq", "3", (None, None, None, (3,))),
    ("seq.epoch", "seq.epoch", "3.x", (None, None, b"x", (3,))),
]


@pytest.mark.parametrize(("text", "name", "raw", "parts"), CONFIGURED, ids=[row[0] for row in CONFIGURED])
def test_configured(text: str, name: str, raw: str, parts: tuple[object, ...] | None) -> None:
    """`ids:` names a dialect or spells a pattern, whose separators mean themselves."""
    dialect = forced(text)
    assert dialect is not None
    assert known(text)
    assert (dialect.name, dialect.parse(raw.encode())) == (name, parts)


@pytest.mark.parametrize("text", ["nonsense", "epoch:", "seq:seq", "stream:number", "", "epoch:stream"])
def test_configured_wrongly(text: str) -> None:
    """A pattern needs one `seq` and known words; the error names what was given."""
    assert not known(text)
    with pytest.raises(ValueError, match="is no id dialect"):
        forced(text)


@pytest.mark.parametrize(
    "text", ["epoch:stream:seq", "session:epoch:stream:seq", "session:seq:stream:epoch", "stream::epoch/seq"]
)
@pytest.mark.parametrize("unit", [":", "1:", "a/b:", "::", "/"])
def test_a_pattern_takes_linear_time(text: str, unit: str) -> None:
    """Whoever chooses an id as long as a header may be cannot hold the proxy up with it."""
    dialect = forced(text)
    assert dialect is not None
    began = time.thread_time()
    dialect.parse(unit.encode() * (65536 // len(unit)))
    assert time.thread_time() - began < 0.5


def test_a_separator_inside_tags_belongs_to_the_first() -> None:
    """Every later tag ends at its separators, so that an id has one reading."""
    dialect = forced("epoch:stream:seq")
    assert dialect is not None
    assert dialect.parse(b"a:b:c:7") == (None, b"c", b"a:b", (7,))
    assert dialect.parse(b"a:b::7") is None


def test_configured_auto() -> None:
    """`auto` forces nothing."""
    assert known("auto")
    assert forced("auto") is None
    assert forced("stream:seq") != forced("stream:seq")
    assert forced("epoch:seq").per_stream is False  # type: ignore[union-attr]
    assert forced("stream:seq").per_stream is True  # type: ignore[union-attr]


# ---- evidence


def feed(evidence: Evidence, *raws: str, session: str = "s1") -> Evidence:
    """The ids of one connection, in order."""
    previous: EventId | None = None
    for raw in raws:
        current = evidence.read(raw.encode())
        evidence.observe(previous, current, session.encode())
        previous = current
    return evidence


def test_bare_integers_convict_at_once() -> None:
    """Their order needs no trust; they are never contiguous by form."""
    evidence = feed(Evidence(), "5")
    assert (evidence.convicts, evidence.tags_convict, evidence.contiguous) == (True, False, False)


@pytest.mark.parametrize("seen", range(1, 6))
def test_a_guess_convicts_after_four_ids(seen: int) -> None:
    """Four ids of the session have agreed with the form, in order and with the same tags."""
    evidence = feed(Evidence(), *(f"_{n}" for n in range(seen)))
    assert evidence.convicts is evidence.tags_convict is (seen >= TRUST_AFTER == 4)
    assert evidence.contiguous


def test_agreement_adds_up_over_connections() -> None:
    """Two ids on each of several streams: a later stream vouches for one more each time."""
    evidence = feed(Evidence(), "_0", "_1")
    assert not evidence.convicts
    feed(evidence, "K5VQ3ZL7M2XJ4N6PBD3RTSWGFH_0", "K5VQ3ZL7M2XJ4N6PBD3RTSWGFH_1")
    feed(evidence, "_2", "_3")
    assert evidence.convicts


def test_a_session_tag_that_is_this_sessions_convicts_at_once() -> None:
    """Nobody embeds the session's id by chance."""
    tag = base64.b64encode(b"s1").decode()
    assert feed(Evidence(), f"{tag}:Nw==:1").convicts
    assert not feed(Evidence(), f"{base64.b64encode(b's2').decode()}:Nw==:1").convicts


CHANGED_TAGS = [
    ("a_1", "b_2"),
    ("a-1", "b-2"),
    ("czE=:Nw==:1", "czE=:OA==:2"),
    ("czE=:Nw==:1", "czI=:Nw==:2"),
]


@pytest.mark.parametrize("raws", CHANGED_TAGS, ids=" ".join)
def test_tags_that_change_within_a_connection_are_no_tags(raws: tuple[str, ...]) -> None:
    """Two ids of one stream with different tags: the form is not what it was taken for."""
    evidence = feed(Evidence(), *raws)
    assert (evidence.tags_broken, evidence.convicts, evidence.tags_convict, evidence.contiguous) == (
        True,
        False,
        False,
        False,
    )


def test_a_configured_epoch_may_change_within_a_connection() -> None:
    """The operator said that it is an epoch: its change is news, not a broken form."""
    evidence = feed(Evidence(forced("epoch:seq")), "7:1", "8:1")
    assert (evidence.tags_broken, evidence.convicts, evidence.agreed) == (False, True, 0)


def test_disorder_within_a_connection_ends_conviction() -> None:
    """Where ids come in any order, order says little."""
    evidence = feed(Evidence(), "5", "7", "6")
    assert (evidence.disordered, evidence.convicts, evidence.contiguous) == (True, False, False)


def test_a_hole_within_a_connection_makes_a_contiguous_dialect_ordered() -> None:
    """Its numbers still have an order, and a jump is no loss."""
    evidence = feed(Evidence(), "_0", "_1", "_2", "_5")
    assert (evidence.holes, evidence.contiguous, evidence.convicts) == (True, False, True)


def test_an_equal_number_is_no_disorder() -> None:
    """rmcp primes a stream with the id of its first message; a millisecond may hold two events."""
    evidence = feed(Evidence(), "0/3", "0/3", "1/3")
    assert (evidence.disordered, evidence.holes, evidence.agreed) == (False, False, 2)
    evidence = feed(Evidence(), f"s_{MS}_aa", f"s_{MS}_bb")
    assert (evidence.disordered, evidence.agreed, evidence.convicts) == (False, 2, False)


def test_the_common_primer_of_rmcp_breaks_no_tags() -> None:
    """Before 2.0 every stream was primed with the first id of the common one."""
    evidence = feed(Evidence(RMCP), "0", "0/3", "1/3")
    assert (evidence.tags_broken, evidence.disordered) == (False, False)
    assert feed(Evidence(RMCP), "4", "5/3").tags_broken


def test_times_never_convict_by_order_but_their_tags_do() -> None:
    """Clocks step; a foreign stream's name is one whatever the clock says."""
    evidence = feed(Evidence(), *(f"s_{MS + n}_aa" for n in range(4)))
    assert (evidence.convicts, evidence.tags_convict) == (False, True)


def test_integers_turn_out_to_be_rmcp() -> None:
    """The common stream of rmcp looks like bare integers until a call's stream shows."""
    evidence = feed(Evidence(), "0", "1")
    assert evidence.dialect is INTEGER
    assert evidence.peek(b"0/3") == (None, b"3", None, (0,))
    assert evidence.dialect is INTEGER
    assert evidence.read(b"0/3") == (None, b"3", None, (0,))
    assert evidence.dialect is RMCP
    assert evidence.read(b"2") == (None, None, None, (2,))


def test_an_id_of_another_form_makes_the_session_opaque() -> None:
    """One stranger, and nothing can be compared any more."""
    evidence = feed(Evidence(), "5", "abc")
    assert evidence.dialect is OPAQUE
    assert (evidence.convicts, evidence.contiguous, evidence.read(b"6")) == (False, False, None)


def test_a_forced_dialect_stays() -> None:
    """The operator knows; a stranger is no id of it."""
    evidence = feed(Evidence(INTEGER), "5", "abc", "0/3")
    assert evidence.dialect is INTEGER
    assert evidence.peek(b"0/3") is None
    assert evidence.convicts


def test_before_the_first_id_nothing_is_known() -> None:
    """Nothing convicts; an id is taken as its form suggests."""
    evidence = Evidence()
    evidence.observe(None, EventId(None, None, None, (1,)), b"s1")
    assert (evidence.convicts, evidence.tags_convict, evidence.contiguous) == (False, False, False)
    assert evidence.peek(b"7") == (None, None, None, (7,))
    assert evidence.dialect is None


def test_classes_of_dialects() -> None:
    """What may be concluded, at one glance."""
    by_class = {cls: {d.name for d in DIALECTS if d.cls is cls} for cls in IdClass}
    assert by_class == {
        IdClass.CONTIGUOUS: {"csharp", "cloudflare", "logiscape", "mcp-lite", "go-sdk", "rmcp"},
        IdClass.ORDERED: {"integer", "swift", "instance"},
        IdClass.TIMED: {"kotlin", "mcp-proxy", "typescript", "redis"},
        IdClass.OPAQUE: {"java-pair", "uuid", "encrypted", "opaque"},
    }
    assert {d.name for d in DIALECTS if d.inclusive} == {"rmcp"}
    assert {d.name for d in DIALECTS if d.live_first} == {"cloudflare", "mcp-lite"}
    assert {d.name for d in DIALECTS if d.unique} == {
        "java-pair",
        "uuid",
        "kotlin",
        "mcp-proxy",
        "typescript",
    }
