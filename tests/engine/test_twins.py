"""Pairs of resumes that look alike, one harmless and one harmful; and what is healthy, however odd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from proxy.engine.continuity import Resume
from proxy.engine.digest import id_word
from proxy.engine.findings import Ending
from tests.engine.drive import DEADLINE_S, KEEP_ALIVE, Drive, event, frame, priming, result, seen

Script = Callable[[Drive], object]
BROKEN_OFF = "inconclusive/upstream_failed suspected"
ALARMS = ("fork", "gap", "crossed", "rewound")


def verdicts(script: Script) -> list[str]:
    """What a script's resumes were judged as, `verdict/reason certainty`."""
    drive = Drive()
    drive.initialize()
    script(drive)
    return [f"{seen.verdict}/{seen.reason} {seen.certainty}" for seen in drive.verdicts]


def numbered(first: int, last: int, form: str = "{}") -> tuple[bytes, ...]:
    """Events whose payload is told by their number."""
    return tuple(event(form.format(n), f"message {n}") for n in range(first, last + 1))


def resume(shown: tuple[bytes, ...], cursor: object, *then: bytes, end: Ending | None = None) -> Script:
    """The standalone stream shows events and breaks; a resume brings these."""

    def script(drive: Drive) -> None:
        drive.show(*shown)
        connection = drive.get(cursor).send(*then)
        if end is not None:
            connection.end(end)

    return script


def refused(drive: Drive) -> None:
    """The server says out loud that it cannot."""
    drive.show(*numbered(1, 7))
    drive.refuse(5, 404)


MS = 1_795_973_200_000


def burst(*tails: str) -> tuple[bytes, ...]:
    """Events of the TypeScript example store within one millisecond, told by their tails."""
    return tuple(event(f"s_{MS}_{tail}", tail) for tail in tails)


TWINS: dict[str, tuple[Script, str, Script, str]] = {
    "numbers that go on: the same log, or a reborn counter that has overtaken the cursor": (
        resume(numbered(1, 7), 5, *numbered(6, 8)),
        "resumed/replayed proven",
        resume(numbered(1, 7), 5, event(6, "reborn"), event(7, "reborn")),
        "fork/content_diverged proven",
    ),
    "a lower number: the whole history again, or a log begun anew": (
        resume(numbered(1, 7), 5, *numbered(1, 8)),
        "rewound/cursor_ignored proven",
        resume(numbered(1, 7), 5, event(1, "reborn")),
        "fork/log_restarted proven",
    ),
    "a lower number: the whole history again, or a number that never was": (
        resume(numbered(8408, 8412), 8412, *numbered(8408, 8412), end=Ending.CLEAN),
        "rewound/cursor_ignored proven",
        resume(numbered(8408, 8412), 8412, event(17, "reborn")),
        "fork/id_regressed proven",
    ),
    "the cursor itself: replayed again, or another event under its id": (
        resume(numbered(1, 7), 7, *numbered(7, 8)),
        "rewound/inclusive proven",
        resume(numbered(1, 7), 7, event(7, "reborn")),
        "fork/log_restarted proven",
    ),
    "an id that sorts lower: the same millisecond, or a clock that has stepped back": (
        resume(burst("zz", "b1", "q7"), f"s_{MS}_zz", *burst("b1", "q7")),
        "resumed/replayed proven",
        resume(burst("zz", "b1", "q7"), f"s_{MS}_q7", event(f"s_{MS - 5000}_aa", "reborn")),
        "fork/id_regressed suspected",
    ),
    "the number 0: rmcp's primer, or rmcp reborn": (
        resume(numbered(0, 4, "{}/3"), "4/3", priming("0/3"), *numbered(4, 5, "{}/3")),
        "resumed/continued proven",
        resume(numbered(1, 4, "{}/3"), "4/3", event("0/3", "reborn")),
        "fork/log_restarted proven",
    ),
    "one id for everything, or one id with two contents across the break": (
        resume((event(1, "a"), event(1, "b"), event(1, "c")), 1, event(1, "d")),
        "unverifiable/ids_ambiguous suspected",
        resume((event(1, "a"),), 1, event(1, "d")),
        "fork/log_restarted proven",
    ),
    "a jump: seeded past the old maximum, or over events that were outstanding": (
        resume(numbered(1, 7), 7, *numbered(1001, 1002)),
        "resumed/continued proven",
        resume(numbered(1, 7), 5, *numbered(1001, 1002)),
        "gap/successors_skipped proven",
    ),
    "a jump: ids that are times, or ids without holes": (
        resume(numbered(1, 5, f"{(MS << 20)}{{}}"), f"{MS << 20}5", event(f"{MS << 20}9")),
        "unverifiable/opaque_ids suspected",
        resume(numbered(1, 5, "_{}"), "_5", event("_9")),
        "gap/forward_jump proven",
    ),
    "no replay: refused out loud, or 200 and nothing": (
        refused,
        "refused/not_found proven",
        resume(numbered(1, 7), 5, end=Ending.CLEAN),
        "gap/nothing_replayed proven",
    ),
    "silence: nothing was outstanding, or something was": (
        resume(numbered(1, 7), 7, KEEP_ALIVE, end=Ending.CLEAN),
        "resumed/idle proven",
        resume(numbered(1, 7), 5, KEEP_ALIVE, end=Ending.CLEAN),
        "gap/nothing_replayed proven",
    ),
    "no id: on a stream that never had them all, or on one that did": (
        resume((event(1), event(None, "a")), 1, event(None, "b"), end=Ending.CLEAN),
        "unverifiable/ids_absent suspected",
        resume((event(1), event(2)), 2, event(None, "b")),
        "fork/id_missing proven",
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_twins_are_told_apart(name: str) -> None:
    """The harmless one raises nothing beyond duplicates; the harmful one gets its name."""
    harmless, good, harmful, bad = TWINS[name]
    assert (verdicts(harmless), verdicts(harmful)) == ([good], [bad])
    assert not good.startswith(("fork", "gap", "crossed"))
    assert bad.startswith(("fork", "gap", "crossed"))


# ---- healthy, however odd it looks


@dataclass(frozen=True)
class Healthy:
    """A script that must raise nothing, and what its resumes are judged as."""

    script: Script
    expect: tuple[str, ...]


HEALTHY: dict[str, Healthy] = {}


def healthy(name: str, *expect: str) -> Callable[[Script], Script]:
    """Add a script to the table."""

    def add(script: Script) -> Script:
        HEALTHY[name] = Healthy(script, expect)
        return script

    return add


@healthy("streams of one session share a counter, and each is resumed", *["resumed/replayed proven"] * 2)
def _(drive: Drive) -> None:
    get = drive.get().send(event(1), event(4))
    call = drive.call(1).send(priming(2), event(3), event(5))
    get.send(event(6), event(9)).drop()
    call.send(event(7), event(8)).drop()
    drive.get(4).send(event(6), event(9), event(12))
    drive.get(3).send(event(5), event(7), event(8), event(10), result(11, 1))


@healthy("every stream counts for itself and says the same", "resumed/continued proven")
def _(drive: Drive) -> None:
    changed = "the list has changed"
    get = drive.get().send(*(event(n, changed) for n in (1, 2, 3)))
    drive.call(1).send(event(1, changed), event(2, changed), event(3, changed), event(4, changed)).end()
    get.drop()
    drive.call(2).send(event(1, changed), event(2, changed)).end()
    drive.show(event(4, "mine"))
    drive.get(4)  # two streams have shown it: ambiguous, whatever comes
    drive.call(3).send(*numbered(11, 13)).drop()
    drive.get(13).send(event(14, changed))


HEALTHY["every stream counts for itself and says the same"] = Healthy(
    HEALTHY["every stream counts for itself and says the same"].script,
    ("unverifiable/ids_ambiguous suspected", "resumed/continued proven"),
)


@healthy("sessions count for themselves and say the same", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.initialize("s2")
    drive.show(*(event(n, "changed") for n in range(1, 4)))
    drive.show(*(event(n, "changed") for n in range(1, 9)), session="s2")
    drive.get(3).send(event(4, "changed"))


@healthy("two resumes of one cursor at once", "resumed/replayed proven", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 7))
    one, two = drive.get(5), drive.get(5)
    one.send(*numbered(6, 8))
    two.send(*numbered(6, 9))


@healthy("two resumes share the live events between them", *["resumed/continued proven"] * 2)
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 5, "_{}"))
    one, two = drive.get("_5"), drive.get("_5")
    one.send(*numbered(6, 7, "_{}"))
    two.send(*numbered(8, 8, "_{}"))


@healthy("the former connection is half open and still gets an event", "resumed/continued proven")
def _(drive: Drive) -> None:
    former = drive.get().send(*numbered(1, 5, "_{}"))
    resumed = drive.get("_5")
    former.send(*numbered(6, 6, "_{}"))
    resumed.send(*numbered(7, 7, "_{}"))


@healthy("a primer takes a number and is not replayed", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 5, "q83vEjRWeJo:{}"), priming("q83vEjRWeJo:6"))
    drive.get("q83vEjRWeJo:5").send(*numbered(7, 7, "q83vEjRWeJo:{}"))


@healthy("contiguous-looking ids of one counter for all streams", "resumed/continued proven")
def _(drive: Drive) -> None:
    get = drive.get().send(*numbered(1, 4, "_GET_stream:{}"))
    drive.call(1).send(*numbered(5, 7, "call_number:{}")).end()
    get.drop()
    drive.get("_GET_stream:4").send(*numbered(8, 8, "_GET_stream:{}"))


@healthy("more than the window has been relayed, and the newest is resumed", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 3000))
    drive.get(2990).send(*numbered(2991, 3000))


@healthy("a cursor that has left the window", "unverifiable/no_baseline suspected")
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 3000))
    drive.get(500).send(*numbered(501, 3000))


@healthy("a cursor of the beginning, when the window has moved on", "unverifiable/no_baseline suspected")
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 3000))
    drive.get(5).send(*numbered(6, 3000))


@healthy("a plain GET replays more than is remembered, then a resume", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.call(1).send(*numbered(0, 3, "KKKKKKKKKKKKKKKKKKKKKKKKKK_{}")).drop()
    drive.show(*numbered(0, 3000, "_{}"))
    drive.show(*numbered(0, 3005, "_{}"))
    drive.get("KKKKKKKKKKKKKKKKKKKKKKKKKK_2").send(*numbered(3, 4, "KKKKKKKKKKKKKKKKKKKKKKKKKK_{}"))


@healthy("a plain GET beside a half-open one, then a resume of the former", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.get().send(*numbered(0, 5, "_{}"))
    drive.show(*numbered(0, 7, "_{}"))
    drive.get("_5").send(*numbered(6, 8, "_{}"))


@healthy(
    "a plain GET begins anew, and a call that counts for itself goes on", *["resumed/continued proven"] * 2
)
def _(drive: Drive) -> None:
    drive.call(1).send(*(event(n, f"call {n}") for n in range(1, 4))).drop()
    drive.show(*numbered(1, 5))
    drive.show(event(1, "anew"), event(2, "anew"))
    drive.get(3).send(event(4, "call 4")).drop()
    drive.get(4).send(event(5, "call 5"))


@healthy("one stream was forked, and another that counts for itself goes on", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.call(1).send(*numbered(0, 4, "{}/1")).drop()
    drive.call(2).send(*numbered(0, 4, "{}/2")).drop()
    drive.get("4/1").send(event("0/1", "reborn")).drop()
    drive.reports.clear()
    drive.get("4/2").send(*numbered(4, 5, "{}/2"))


@healthy("a plain GET begins anew with what an old log began with", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(event(1, "hello"), event(2, "hello"), event(3, "old"), event(4, "old"))
    drive.show(event(1, "hello"), event(2, "hello"), event(3, "new"))
    drive.get(2).send(event(3, "new"))


@healthy("keep-alives, pings and log lines of other types within the replay", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 4))
    ping = frame(None, b'{"jsonrpc":"2.0","id":"p","method":"ping"}')
    noise = (
        KEEP_ALIVE,
        ping,
        b"event: ping\ndata:\n\n",
        b"data:\n\n",
        b"retry: 10\n\n",
        b"event: log\ndata: x\n\n",
    )
    drive.get(2).send(*noise, *numbered(3, 3), *noise, *numbered(4, 4))


@healthy("the server's own new log events between the replayed ones", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(event(1), event(4), event(7))
    drive.get(1).send(event(3, "log"), event(4), event(6, "log"), event(7))


@healthy("a break right after such a log event", BROKEN_OFF, "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.show(event(1), event(4), event(7))
    drive.get(1).send(event(3, "log")).drop()
    drive.get(3).send(event(4), event(7), event(8))


@healthy("the session is issued again and counts anew", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 7))
    drive.initialize(carry="s1")
    drive.show(event(1, "anew"), event(2, "anew too"))
    drive.get(1).send(event(2, "anew too"))


@healthy("a cursor with blanks around it", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(b"id:  7 \ndata: a\n\n", event(8))
    drive.get(" 7 ").send(event(8))


@healthy("ids out of order within a connection", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(event(5), event(7), event(6), event(8))
    drive.get(5).send(event(7), event(6), event(8))


@healthy("a new id below the cursor where ids come in any order", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.show(event(5), event(9), event(6), event(10))
    drive.get(10).send(event(8))


@healthy("zero-padded ids", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*numbered(97, 103, "{:06}"))
    drive.get("000099").send(*numbered(100, 104, "{:06}"))


@healthy(
    "a replay that breaks off again and again",
    *["inconclusive/upstream_failed suspected"] * 3,
    "resumed/replayed proven",
)
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 9))
    for at in (5, 6, 7):
        drive.get(at).send(*numbered(at + 1, at + 1)).drop()
    drive.get(8).send(*numbered(9, 9))


@healthy("one fork is one verdict, and the forked log is judged in itself", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*numbered(1, 9))
    drive.get(9).send(event(1, "reborn"), event(2, "reborn"), event(3, "reborn")).drop()
    drive.reports.clear()
    drive.get(2).send(event(3, "reborn"), event(4, "reborn"))


@healthy("a fork that began with what the old log said too", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(event(1, "hello"), event(2, "hello"), *numbered(3, 9))
    drive.get(9).send(event(1, "hello"), event(2, "hello"), event(3, "reborn"), event(4, "reborn")).drop()
    drive.reports.clear()
    drive.get(2).send(event(3, "reborn"), event(4, "reborn"))


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_raised(name: str) -> None:
    """The resumes of a healthy server, however odd, are no alarm."""
    expect = HEALTHY[name].expect
    assert verdicts(HEALTHY[name].script) == list(expect)
    assert not any(verdict.startswith(ALARMS) for verdict in expect)


# ---- more than the window


def test_a_whole_replay_of_a_long_log_is_told_from_a_reborn_one() -> None:
    """The beginning of a log is kept: it came again, or something else came in its place."""
    again = resume(numbered(1, 3000), 3000, *numbered(1, 3001))
    reborn = resume(numbered(1, 3000), 3000, event(1, "reborn"))
    assert verdicts(again) == ["rewound/cursor_ignored proven"]
    assert verdicts(reborn) == ["fork/log_restarted proven"]


def test_the_ids_of_a_stream_that_took_anothers_place_are_only_suspected_to_be_crossed() -> None:
    """Bare integers: a plain GET may have replaced a half-open one, so that both are one log."""

    def script(drive: Drive) -> None:
        drive.get().send(*numbered(1, 5))
        drive.show(*numbered(6, 7))
        drive.get(5).send(*numbered(6, 8))

    assert verdicts(script) == ["crossed/other_stream suspected"]


def test_standalone_streams_that_a_server_uses_by_turns_may_be_one_log() -> None:
    """Its newest connection carries it; as that is gone, the one before does again."""

    def script(drive: Drive) -> None:
        one = drive.get().send(event(1))
        drive.get().send(event(2)).drop()
        one.send(event(3)).drop()
        drive.get(1).send(event(2))

    assert verdicts(script) == ["crossed/other_stream suspected"]


def test_what_came_late_on_the_older_of_two_connections_proves_nothing() -> None:
    """Its bytes were on their way as the other one was opened, which has carried the log since."""

    def script(drive: Drive) -> None:
        one = drive.get()
        two = drive.get()
        one.send(*numbered(1, 3))
        two.send(event(4))
        one.drop()
        drive.get(3).send(event(4))

    assert verdicts(script) == ["crossed/other_stream suspected"]


@pytest.mark.parametrize("number", [6, 7], ids=["shown on the other", "never shown"])
@pytest.mark.parametrize("dialect", ["{1}#{0}", "{0}_{1}", "aaaaaaaaaa{0}:{1}"])
def test_standalone_streams_whose_ids_name_them_are_told_apart(dialect: str, number: int) -> None:
    """The name in an id proves what it is of, whether or not the message was shown there."""

    def script(drive: Drive) -> None:
        one, two = drive.get(), drive.get()
        for n in range(1, 7):
            one.send(event(dialect.format("1", n)))
            two.send(event(dialect.format("2", n)))
        one.send(event(dialect.format("1", 7))).drop()
        two.drop()
        drive.get(dialect.format("1", 7)).send(event(dialect.format("2", number)))

    assert verdicts(script) == ["crossed/other_stream proven"]


def test_a_jump_that_may_be_live_before_backlog_is_decided_at_the_deadline() -> None:
    """Where live events may come first the backlog has until the replay deadline."""
    drive = Drive()
    drive.initialize()
    drive.show(*numbered(1, 5, "{}#s"))
    drive.get("5#s").send(event("9#s"))
    drive.pass_time(DEADLINE_S)
    assert [seen[:3] for seen in drive.verdicts] == [("gap", "forward_jump", "suspected")]


def test_another_streams_primer_replayed_as_an_empty_object_is_no_message() -> None:
    """server-everything replays the primers of all calls as `{}`: they neither skip nor decide."""
    drive = Drive()
    drive.initialize()
    get = drive.get().send(event("0f" * 16, "a"))
    drive.call(7).send(priming("1f" * 16), result("2f" * 16, 7)).end()
    get.drop()
    drive.get("0f" * 16).send(frame("1f" * 16, b"{}"), result("2f" * 16, 7))
    assert [seen[:3] for seen in drive.verdicts] == [("crossed", "other_stream", "proven")]


def test_silence_is_no_answer_where_nothing_was_outstanding() -> None:
    """A quiet resume is given up only for what it owes."""
    drive = Drive()
    drive.initialize()
    drive.show(*numbered(1, 3))
    session = drive.session()
    newest, older = (
        Resume(session, cursor, session.locate(id_word(cursor)), attached=False) for cursor in (b"3", b"1")
    )
    assert newest.given_up() is None
    judgement = older.given_up()
    assert judgement is not None
    assert seen(judgement) == ("gap", "nothing_replayed", "suspected", 2, 0)


def test_id_words_ignore_blanks_only() -> None:
    """A cursor comes back without the blanks around it; everything else in it counts."""
    assert id_word(b" 7\t") == id_word(b"7") != id_word(b"07")
