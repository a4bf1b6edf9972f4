"""The rules of continuity as one table: what was shown, what a resume brings, the judgement it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from proxy.engine.findings import Ending
from proxy.engine.heads import Answer
from tests.engine.drive import (
    DEADLINE_S,
    KEEP_ALIVE,
    Drive,
    Seen,
    event,
    frame,
    priming,
    result,
)
from tests.scenarios.dialects import DIALECTS, Dialect

UNREADABLE = b"{not json"


@dataclass(frozen=True)
class Case:
    """One resume: what the standalone stream had shown, or what else came before, and what comes now."""

    name: str
    expect: Seen | None
    shown: tuple[bytes, ...] = ()
    cursor: object = None
    then: tuple[bytes, ...] = ()
    end: Ending | None = None
    silent_s: float = 0.0
    """How long nothing comes after that, before the end."""
    ids: str = "auto"
    before: Callable[[Drive], None] | None = None
    """What happened before the resume beside the session's beginning and `shown`."""
    rewritable: bool = True
    """Whether its messages are such that another serialiser changes only their text."""
    resume: Callable[[Drive, object], object] | None = None
    """How the resume is answered, if not with an open event stream."""

    def __str__(self) -> str:
        return self.name


# ---- every dialect in every situation


def dialect_cases(dialect: Dialect) -> Iterator[Case]:
    """What each class of ids allows to conclude."""
    shown_ids = {n: dialect.make("s1", dialect.streams[0], n) for n in range(1, 120)}
    beside = dialect.make("s1", dialect.streams[1], 8)

    def another(n: int) -> bytes:
        return event(dialect.make("s1", dialect.streams[0], n), "reborn")

    def events(first: int, last: int) -> tuple[bytes, ...]:
        return tuple(event(dialect.make("s1", dialect.streams[0], n), n) for n in range(first, last + 1))

    def case(name: str, cursor: int, then: tuple[bytes, ...], *expect: object, up_to: int = 7) -> Case:
        start = 101 if cursor > 100 else 1

        def show(drive: Drive) -> None:
            opened = drive.call(10) if dialect.over_post else drive.get()
            opened.send(*(event(shown_ids[n], n) for n in range(start, up_to + 1))).drop()

        verdict = Seen(*expect) if expect else None  # type: ignore[arg-type]
        configured = dialect.name if ":" in dialect.name else "auto"
        return Case(
            f"{dialect}: {name}", verdict, before=show, cursor=shown_ids[cursor], then=then, ids=configured
        )

    loose = dialect.late_backlog or dialect.kind == "timed"
    sure = "suspected" if dialect.kind == "timed" else "proven"
    replay = "proven" if dialect.repeats else "suspected"
    first = 5 if dialect.replays_cursor else 6
    unknown = ("unverifiable", "opaque_ids", "suspected")
    opaque = dialect.kind == "opaque"

    yield case("the outstanding events come", 5, events(first, 7), "resumed", "replayed", replay)
    yield case("the next event", 7, events(8, 8), *(unknown if opaque else ("resumed", "continued", sure)))
    idle = "suspected" if dialect.over_post else "proven"
    yield replace(case("nothing to say", 7, (), "resumed", "idle", idle), end=Ending.CLEAN)
    ends = {
        Ending.CLEAN: "upstream_closed",
        Ending.UPSTREAM_FAILED: "upstream_failed",
        Ending.CLIENT_LEFT: "client_left",
    }
    for how, reason in ends.items():
        one = case(f"one of two comes, then {reason}", 5, events(6, 6), "inconclusive", reason, "suspected")
        yield replace(one, end=how)
    nothing = case("nothing comes", 5, (), "gap", "nothing_replayed", "proven", 2)
    yield replace(nothing, end=Ending.CLEAN)
    assert nothing.expect is not None
    doubted = replace(nothing, expect=nothing.expect._replace(certainty="suspected"))
    yield replace(doubted, name=f"{doubted.name} for long", silent_s=10 * DEADLINE_S)
    yield replace(
        doubted, name=f"{doubted.name}, the client gives up", silent_s=DEADLINE_S, end=Ending.CLIENT_LEFT
    )
    jump: tuple[object, ...] = unknown if opaque else ("resumed", "continued", sure)
    if dialect.kind == "contiguous":
        jump = ("gap", "forward_jump", "suspected" if loose else "proven", 4)
    leaped = case("a jump", 7, events(12, 12), *jump)
    yield replace(leaped, end=Ending.CLEAN) if dialect.late_backlog else leaped
    skip = case(
        "two are passed over",
        5,
        events(8, 10),
        "gap",
        "successors_skipped",
        "suspected" if loose else "proven",
        2,
        up_to=9,
    )
    if dialect.repeats:
        yield replace(skip, silent_s=DEADLINE_S)
    low: tuple[object, ...] = unknown if opaque else ("fork", "id_regressed", sure)
    yield case("a lower id", 107, (another(50),), *low, up_to=107)
    if not opaque and dialect.kind != "timed":
        low = ("fork", "log_restarted", "proven")
    yield case("a new beginning", 107, (another(0),), *low, up_to=107)
    if dialect.tagged:
        yield case(
            "another stream's tag", 7, (event(beside, "not yours"),), "crossed", "other_stream", "proven"
        )
    if not dialect.repeats:
        return
    if not dialect.replays_cursor:
        yield case("the cursor again", 5, events(5, 6), "rewound", "inclusive", "proven", 0, 1)
    yield case(
        "everything again",
        5,
        events(1, 6),
        "rewound",
        "cursor_ignored",
        "proven",
        0,
        4 if dialect.replays_cursor else 5,
    )
    yield case("another payload after the cursor", 5, (another(6),), "fork", "content_diverged", "proven", 2)
    yield case("another payload before it", 7, (another(2),), "fork", "log_restarted", "proven")


# ---- what is no matter of the dialect


def numbered(first: int, last: int) -> tuple[bytes, ...]:
    """Events under bare integers."""
    return tuple(event(n) for n in range(first, last + 1))


def deleted(drive: Drive) -> None:
    """The client ended the session."""
    drive.delete()


def issued_again(drive: Drive) -> None:
    """The same session id is issued a second time."""
    drive.initialize()


def beside(drive: Drive) -> None:
    """A standalone stream 1, 2, 5 around a call that showed 3 and 4."""
    get = drive.get().send(event(1), event(2))
    drive.call(10).send(event(3), result(4, 10)).end()
    get.send(event(5)).drop()


def half_open(drive: Drive) -> None:
    """The former connection of the stream is still open here."""
    drive.get().send(*numbered(1, 7))


def other_session(drive: Drive) -> None:
    """Another session was followed from its beginning, and showed 8."""
    drive.initialize("s2")
    drive.show(event(8, "for the other"), session="s2")


def unfollowed_session(drive: Drive) -> None:
    """Another session showed 8, and how it began was not seen."""
    drive.show(event(8, "for the other"), session="s2")


def encoded(drive: Drive, cursor: object) -> None:
    """The stream comes in a content coding."""
    drive.request("GET", cursor=cursor, answer=Answer(200, True, encoded=True))


def refused_with(status: int) -> Callable[[Drive, object], None]:
    """The resume is answered with this status and JSON."""
    return lambda drive, cursor: drive.refuse(cursor, status)


def unanswered(how: Ending) -> Callable[[Drive, object], None]:
    """The resume gets no head before it is over."""

    def ask(drive: Drive, cursor: object) -> None:
        connection = drive.request("GET", cursor=cursor, answer=None)
        connection.end(how)

    return ask


STATUSES = {
    "not_found": (404,),
    "rejected": (400, 410, 412, 416, 422),
    "conflict": (409,),
    "unsupported": (405, 501),
    "unauthorized": (401, 403),
    "throttled": (429,),
    "upstream_error": (500, 502, 503, 504),
    "not_a_stream": (200, 202, 204),
    "other": (301, 402, 418, 421),
}
SAME = ("always the same",)
SWIFT = tuple(event(f"7_{n}") for n in (1, 2, 5))

CASES: list[Case] = [
    *(case for dialect in DIALECTS for case in dialect_cases(dialect)),
    *(
        Case(
            f"refused: {status}",
            Seen("refused", reason, "proven"),
            numbered(1, 5),
            3,
            resume=refused_with(status),
        )
        for reason, statuses in STATUSES.items()
        for status in statuses
    ),
    # rule 2
    Case("recycled", Seen("fork", "session_recycled", "proven", 2), numbered(1, 5), 3, before=deleted),
    # rule 3 and what cannot be read
    Case(
        "two payloads under the cursor",
        Seen("unverifiable", "ids_ambiguous", "suspected"),
        (event(1), event(2, "a"), event(2, "b")),
        2,
    ),
    Case(
        "the cursor stands on two streams",
        Seen("unverifiable", "ids_ambiguous", "suspected"),
        numbered(1, 2),
        2,
        before=lambda drive: drive.call(10).send(event(2, "another"), result(3, 10)).end(),
    ),
    Case(
        "an encoded stream",
        Seen("unverifiable", "ids_absent", "suspected")._replace(reason="encoded"),
        numbered(1, 5),
        3,
        resume=encoded,
    ),
    # priming
    Case(
        "a primer that takes a number",
        Seen("resumed", "continued", "proven"),
        numbered(1, 8),
        8,
        (priming(9), event(10)),
    ),
    Case(
        "a primer below the cursor", Seen("fork", "log_restarted", "proven"), numbered(7, 8), 8, (priming(1),)
    ),
    Case(
        "a primer of another stream",
        Seen("crossed", "other_stream", "proven"),
        tuple(event(f"7_{n}") for n in range(1, 5)),
        "7_4",
        (priming("8_5"),),
    ),
    Case(
        "the cursor's own primer",
        Seen("resumed", "continued", "proven"),
        (priming(1),),
        1,
        (priming(1), event(2)),
    ),
    Case("a message under the primer's id", None, (priming(1),), 1, (event(1),)),
    Case(
        "a primer is not outstanding",
        Seen("resumed", "idle", "proven"),
        (event(1), priming(2)),
        1,
        end=Ending.CLEAN,
    ),
    Case(
        "a primer comes as {}",
        Seen("resumed", "replayed", "proven"),
        (event(1), priming(2), event(3)),
        1,
        (frame(2, b"{}"), event(3)),
        rewritable=False,
    ),
    Case(
        "a primer comes as null",
        Seen("resumed", "replayed", "proven"),
        (event(1), priming(2), event(3)),
        1,
        (frame(2, b"null"), event(3)),
    ),
    Case(
        "a primer under an id shown as a message",
        Seen("resumed", "continued", "proven"),
        numbered(0, 5),
        5,
        (priming(0, 5000), event(6)),
    ),
    # known
    Case(
        "order within the replay is no matter where nothing is passed over",
        Seen("resumed", "replayed", "proven"),
        numbered(1, 7),
        5,
        (KEEP_ALIVE, event(6), KEEP_ALIVE, event(7)),
    ),
    Case(
        "a gap inside the outstanding",
        Seen("gap", "successors_skipped", "proven", 1),
        numbered(1, 8),
        5,
        (event(6), event(8)),
    ),
    Case(
        "a payload that cannot be compared",
        Seen("resumed", "replayed", "suspected"),
        (event(1), frame(2, UNREADABLE)),
        1,
        (frame(2, UNREADABLE),),
        rewritable=False,
    ),
    Case(
        "everything again, unreadable",
        Seen("rewound", "cursor_ignored", "suspected", 0, 2),
        (frame(1, UNREADABLE), frame(2, UNREADABLE), event(3)),
        2,
        (frame(1, UNREADABLE), frame(2, UNREADABLE), event(3)),
        rewritable=False,
    ),
    Case(
        "a reborn log of identical messages",
        Seen("fork", "log_restarted", "suspected"),
        tuple(event(n, *SAME) for n in range(1, 5)),
        3,
        tuple(event(n, *SAME) for n in range(1, 5)),
    ),
    Case(
        "everything again, and the end",
        Seen("rewound", "cursor_ignored", "proven", 0, 3),
        numbered(1, 3),
        3,
        numbered(1, 3),
        Ending.CLEAN,
    ),
    Case(
        "everything again, with what never came by here",
        Seen("rewound", "cursor_ignored", "proven", 0, 2),
        (event(1), event(2), event(5)),
        5,
        (event(1), event(2), event(3, "while nobody listened"), event(5)),
    ),
    Case(
        "an event never shown, inside the gap",
        Seen("resumed", "replayed", "proven"),
        (event(1), event(4)),
        1,
        (event(3, "late"), event(4)),
    ),
    Case("the cursor's place in other words", None, numbered(5, 7), 7, (event("07", "padded"),)),
    Case(
        "an id that has stood for several messages",
        None,
        (event(1), event(2, "a"), event(2, "b"), event(3)),
        3,
        (event(2, "c"),),
    ),
    Case(
        "rmcp primes a resumed connection too",
        Seen("resumed", "continued", "proven"),
        tuple(event(f"{n}/3") for n in range(1, 5)),
        "4/3",
        (priming("0/3"), event("4/3"), event("5/3")),
    ),
    # known elsewhere
    Case(
        "another stream's event",
        Seen("crossed", "other_stream", "proven"),
        cursor=1,
        then=(event(2), event(3)),
        before=beside,
    ),
    Case(
        "another stream's event that cannot be compared",
        Seen("crossed", "other_stream", "suspected"),
        numbered(1, 2),
        2,
        (frame(3, UNREADABLE),),
        rewritable=False,
        before=lambda drive: drive.call(10).send(frame(3, UNREADABLE), result(4, 10)).end(),
    ),
    Case(
        "another session's event",
        Seen("crossed", "other_session", "proven"),
        numbered(1, 7),
        7,
        (event(8, "for the other"),),
        before=other_session,
    ),
    Case(
        "perhaps another session's event",
        Seen("crossed", "other_session", "suspected"),
        numbered(1, 7),
        7,
        (event(8, "for the other"),),
        before=unfollowed_session,
    ),
    Case(
        "another stream's tag on few ids",
        Seen("crossed", "other_stream", "suspected"),
        (event("a_1"), event("a_2")),
        "a_2",
        (event("b_3"),),
    ),
    Case(
        "this session's tag in the cursor, another's in the event",
        Seen("crossed", "other_session", "proven"),
        (event("czE=:Nw==:1"),),
        "czE=:Nw==:1",
        (event("czI=:Nw==:2"),),
    ),
    Case(
        "what may be another session's tag",
        Seen("crossed", "other_session", "suspected"),
        (event("eA==:Nw==:1"), event("eA==:Nw==:2")),
        "eA==:Nw==:2",
        (event("eQ==:Nw==:3"),),
    ),
    # epochs
    Case(
        "an epoch tag",
        Seen("fork", "epoch_changed", "proven", 1),
        (event("7:41"), event("7:42")),
        "7:41",
        (event("8:43"),),
        ids="epoch:seq",
    ),
    Case(
        "a guessed epoch tag",
        Seen("fork", "epoch_changed", "suspected"),
        (event("one-1"), event("one-2")),
        "one-2",
        (event("two-3"),),
    ),
    Case(
        "a cursor of before the session was issued again",
        Seen("fork", "epoch_changed", "proven"),
        numbered(1, 3),
        3,
        (event(4),),
        before=issued_again,
    ),
    Case(
        "what was outstanding then still comes",
        Seen("resumed", "replayed", "proven"),
        numbered(1, 3),
        2,
        (event(3),),
        before=issued_again,
    ),
    # without ids
    Case(
        "a message without an id",
        Seen("fork", "id_missing", "proven", 2),
        numbered(1, 5),
        3,
        (event(None, "who am I"),),
    ),
    Case(
        "a ping without an id",
        Seen("resumed", "replayed", "proven"),
        numbered(1, 3),
        2,
        (frame(None, b'{"id":1,"method":"ping"}'), event(3)),
        rewritable=False,
    ),
    Case(
        "a stream that has mixed messages without ids in",
        Seen("unverifiable", "ids_absent", "suspected"),
        (event(1), event(None, "a")),
        1,
        (event(None, "b"),),
        Ending.CLEAN,
    ),
    Case(
        "a stream that has shown only primers",
        Seen("unverifiable", "ids_absent", "suspected"),
        (priming(1),),
        1,
        (event(None, "a"),),
        Ending.CLEAN,
    ),
    # no baseline
    Case(
        "unknown cursor, later id",
        Seen("unverifiable", "no_baseline", "suspected"),
        cursor=5,
        then=(event(6),),
    ),
    Case("unknown cursor, lower id", Seen("fork", "id_regressed", "suspected"), cursor=50, then=(event(6),)),
    Case(
        "unknown cursor, a new beginning",
        Seen("fork", "log_restarted", "suspected"),
        cursor=50,
        then=(event(1),),
    ),
    Case(
        "unknown cursor, itself again",
        Seen("rewound", "inclusive", "suspected", 0, 1),
        cursor=5,
        then=(event(5),),
    ),
    Case(
        "unknown cursor, itself as a primer",
        Seen("unverifiable", "no_baseline", "suspected"),
        cursor=5,
        then=(priming(5), priming(6), event(7)),
    ),
    Case(
        "unknown cursor, another stream's tag",
        Seen("crossed", "other_stream", "suspected"),
        cursor="7_5",
        then=(event("8_6"),),
    ),
    Case(
        "unknown cursor, a primer below",
        Seen("fork", "log_restarted", "suspected"),
        cursor=5,
        then=(priming(1),),
    ),
    Case(
        "unknown cursor, rmcp primes",
        Seen("unverifiable", "no_baseline", "suspected"),
        cursor="5",
        then=(priming(0, 3000), event(5), event(6)),
    ),
    Case(
        "unknown cursor, no id", Seen("fork", "id_missing", "suspected"), cursor=5, then=(event(None, "a"),)
    ),
    Case(
        "unknown cursor, silence",
        Seen("unverifiable", "no_baseline", "suspected"),
        cursor=5,
        end=Ending.CLEAN,
    ),
    Case(
        "unknown cursor, owned elsewhere",
        Seen("unverifiable", "no_baseline", "suspected"),
        numbered(1, 7),
        99,
        (event(100),),
        ids="opaque",
    ),
    # jumps
    Case(
        "integers that looked contiguous",
        Seen("gap", "forward_jump", "suspected", 3),
        numbered(1, 17),
        17,
        (event(21),),
    ),
    Case(
        "integers that looked contiguous for a while",
        Seen("resumed", "continued", "proven"),
        numbered(1, 16),
        16,
        (event(20),),
    ),
    Case(
        "integers that another stream counts too",
        Seen("resumed", "continued", "proven"),
        numbered(1, 17),
        17,
        (event(21),),
        before=lambda drive: drive.call(10).send(result(18, 10)).end(),
    ),
    Case(
        "integers that another session counts too",
        Seen("resumed", "continued", "proven"),
        numbered(1, 17),
        17,
        (event(21),),
        before=lambda drive: drive.show(event(18, "theirs"), session="s2"),
    ),
    Case(
        "live before the backlog, which comes",
        Seen("resumed", "continued", "proven"),
        tuple(event(f"{n}#s") for n in range(1, 5)),
        "4#s",
        tuple(event(f"{n}#s") for n in (7, 9, 5, 6, 8)),
        Ending.CLEAN,
    ),
    Case(
        "live before the backlog, which comes in part",
        Seen("gap", "forward_jump", "suspected", 1),
        tuple(event(f"{n}#s") for n in range(1, 5)),
        "4#s",
        tuple(event(f"{n}#s") for n in (7, 5)),
        Ending.CLEAN,
    ),
    Case(
        "live before the backlog, and an abort",
        Seen("inconclusive", "upstream_failed", "suspected"),
        tuple(event(f"{n}#s") for n in range(1, 5)),
        "4#s",
        (event("7#s"),),
        Ending.UPSTREAM_FAILED,
    ),
    Case(
        "live before what is outstanding",
        Seen("resumed", "replayed", "proven"),
        tuple(event(f"{n}#s") for n in range(1, 7)),
        "4#s",
        tuple(event(f"{n}#s") for n in (7, 6, 5)),
    ),
    Case(
        "live before the backlog, then what is of no stream",
        None,
        tuple(event(f"{n}#s") for n in range(1, 5)),
        "4#s",
        (event("7#s"), event("?")),
    ),
    # ends
    Case(
        "nothing while the former connection is open",
        Seen("gap", "nothing_replayed", "suspected", 2),
        cursor=5,
        end=Ending.CLEAN,
        before=half_open,
    ),
    Case(
        "the client leaves before the deadline",
        Seen("inconclusive", "client_left", "suspected"),
        numbered(1, 7),
        5,
        end=Ending.CLIENT_LEFT,
    ),
    Case(
        "the upstream fails at once",
        Seen("inconclusive", "upstream_failed", "suspected"),
        numbered(1, 7),
        5,
        end=Ending.UPSTREAM_FAILED,
    ),
    Case(
        "no head, the client left",
        Seen("inconclusive", "client_left", "suspected"),
        numbered(1, 7),
        5,
        resume=unanswered(Ending.CLIENT_LEFT),
    ),
    Case(
        "no head, the upstream failed",
        Seen("inconclusive", "upstream_failed", "suspected"),
        numbered(1, 7),
        5,
        resume=unanswered(Ending.UPSTREAM_FAILED),
    ),
    Case(
        "other event types prove nothing",
        Seen("resumed", "idle", "proven"),
        numbered(1, 7),
        7,
        (b"event: ping\nid: 3\ndata: {}\n\n", b"retry: 5\n\n"),
        Ending.CLEAN,
    ),
]
