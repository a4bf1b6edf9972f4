"""The timeline: what the picture of a session is drawn from, within its bounds."""

from __future__ import annotations

import pytest

from proxy.engine.findings import AttachmentKind, CloseCause, Ending, Judged, Judgement, Reason, Verdict
from proxy.engine.heads import Answer
from proxy.engine.policy import Mode, Policy
from proxy.engine.timeline import CONNECTIONS, POINTS, Connection, Positions, Timeline
from tests.engine.drive import Cut, Drive, event, priming, single_bytes, whole
from tests.engine.shell import STREAM, Shell

OBSERVE = Policy(mode=Mode.OBSERVE)
RESUMED = Judgement(Verdict.RESUMED, Reason.REPLAYED)
FORK = Judgement(Verdict.FORK, Reason.LOG_RESTARTED, got=b"1")
GAP = Judgement(Verdict.GAP, Reason.FORWARD_JUMP)
REFUSED = Judgement(Verdict.REFUSED, Reason.NOT_FOUND)


def judged(judgement: Judgement, **changed: object) -> Judged:
    """A judgement with its circumstances."""
    facts: dict[str, object] = {
        "session": "s1",
        "stream": "get-1",
        "judgement": judgement,
        "cursor": b"5",
        "high": b"7",
        "first_id": b"1",
        "outstanding": 2,
        "epoch": 1,
        "in_flight": 0,
        "away_s": 1.0,
        "took_s": 0.0,
        "replica": None,
        "previous_replica": None,
        **changed,
    }
    return Judged(**facts)  # type: ignore[arg-type]


def connection(stream: str = "get-1", *, over: bool = True, judgement: Judgement | None = None) -> Connection:
    """A connection of a timeline by itself."""
    made = Connection(AttachmentKind.GET, stream, 1, 0.0, None)
    if judgement is not None:
        made.judge(judged(judgement), Positions(), 0.0)
    if over:
        made.finish(1.0, CloseCause.UPSTREAM_EOF, 3)
    return made


def shown(shell: Shell) -> list[tuple[str, list[tuple[float, float]]]]:
    """Each connection of session s1: its kind, and its samples with times since the first connection."""
    connections = shell.session().timeline.connections
    began = connections[0].opened_at
    return [
        (c.kind.value, [(at - began, position) for at, position in zip(c.times, c.positions, strict=True)])
        for c in connections
    ]


# ---- samples


def test_few_samples_are_all_kept() -> None:
    """A short connection is drawn as it was; a position that does not change is one sample."""
    made = connection()
    due = [made.mark(second // 2, float(second)) for second in range(5)]
    assert list(zip(made.times, made.positions, strict=True)) == [(0, 0), (2, 1), (4, 2)]
    assert due == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_of_a_call_of_many_quick_events_its_first_and_last_are_kept() -> None:
    """Calls must cost little; one that takes its time is drawn in full."""
    shell = Shell(OBSERVE)
    shell.open_session()
    call = shell.stream(7)
    for number in range(1, 13):
        call.send(event(number))
    shell.pass_time(0.03)
    call.send(event(13)).send(event(14)).send(event(15)).end()
    (only,) = shell.session().timeline.connections
    assert list(only.positions) == [1, 13, 15]


def test_a_connection_goes_on_in_the_picture_as_ids_turn_out_to_be_opaque() -> None:
    """By its places then, since numbers tell nothing any more."""
    drive = Drive()
    drive.initialize()
    stream = drive.get().send(event("s_1"), event("s_2"), event("s_3"))
    drive.get().send(event("anything else"))
    stream.send(event("opaque 7"), event("opaque 8")).end()
    first, _ = drive.session().timeline.connections
    assert list(first.positions) == [3, 4]


@pytest.mark.parametrize("events", [POINTS, 1000, 100_000])
def test_many_samples_are_thinned_to_a_bound(events: int) -> None:
    """The first stays, the newest is close, and they are spread over the whole time."""
    made = connection()
    due = 0.0
    for number in range(1, events + 1):
        if number >= due:
            due = made.mark(number, float(number))
    assert len(made.times) <= POINTS
    assert (made.times[0], made.positions[0]) == (1.0, 1.0)
    assert made.times[-1] >= events * (1 - 2.0 / 16)
    steps = [b - a for a, b in zip(made.times, made.times[1:], strict=False)]
    assert max(steps) <= events / 4


def test_samples_at_one_moment_stay_within_the_bound() -> None:
    """A replay of thousands of events in one read."""
    made = connection()
    for number in range(10_000):
        made.mark(number, 1.0)
    assert len(made.times) <= POINTS
    assert (made.positions[0], made.positions[-1]) == (0.0, 9999.0)


# ---- which connections are kept


def test_the_oldest_unremarkable_connection_is_forgotten_first() -> None:
    """An alarm, and the connection before it on the same stream, outlive those of other streams."""
    timeline = Timeline()
    timeline.add(connection("get-1"))
    alarm = connection("get-1")
    assert timeline.add(alarm)
    timeline.judge(alarm, judged(FORK), Positions(), 0.0)
    for number in range(100):
        grew = timeline.add(connection(f"post-{number + 2}"))
        assert grew == (number < CONNECTIONS - 2)
    assert [c.stream for c in timeline.connections[:2]] == ["get-1", "get-1"]
    assert len(timeline.connections) == CONNECTIONS
    assert timeline.forgotten == 102 - CONNECTIONS
    assert timeline.worst() is alarm


def test_where_all_are_remarkable_the_oldest_that_is_over_goes() -> None:
    """The bound holds whatever a peer does."""
    timeline = Timeline()
    first = connection(over=False, judgement=FORK)
    timeline.add(first)
    for _ in range(CONNECTIONS):
        timeline.add(connection(judgement=FORK))
    assert len(timeline.connections) == CONNECTIONS
    assert timeline.connections[0] is first


def test_where_all_are_open_the_oldest_goes() -> None:
    """A session with more open streams than are drawn."""
    timeline = Timeline()
    made = [connection(f"get-{number}", over=False) for number in range(CONNECTIONS + 1)]
    for one in made:
        timeline.add(one)
    assert timeline.connections == made[1:]


@pytest.mark.parametrize(
    ("judgements", "worst"),
    [
        pytest.param([], None, id="none"),
        pytest.param([None], None, id="not-judged"),
        pytest.param([RESUMED, REFUSED], 1, id="no-alarm-newest"),
        pytest.param([GAP, RESUMED], 0, id="an-alarm-before-what-is-well"),
        pytest.param([FORK, GAP, RESUMED], 0, id="the-worst-alarm"),
        pytest.param([FORK, FORK], 1, id="the-newest-of-the-worst"),
    ],
)
def test_the_verdict_people_should_see(judgements: list[Judgement | None], worst: int | None) -> None:
    """The newest of the worst alarm, else the newest verdict."""
    timeline = Timeline()
    made = [connection(judgement=judgement) for judgement in judgements]
    for one in made:
        timeline.add(one)
    assert timeline.worst() is (None if worst is None else made[worst])


def test_long_ids_of_a_judgement_are_not_kept() -> None:
    """A client chooses its cursor, up to a head of 64 KiB."""
    made = connection()
    long = b"x" * 60_000
    fork = Judgement(Verdict.FORK, Reason.ID_MISSING, got=long)
    made.judge(judged(fork, cursor=long, high=long, first_id=long), Positions(), 1.0)
    assert made.judged is not None
    kept = (made.judged.cursor, made.judged.high, made.judged.first_id, made.judged.judgement.got)
    assert [len(one or b"") for one in kept] == [128] * 4


# ---- through the engine


@pytest.mark.parametrize("cut", [pytest.param(whole, id="whole"), pytest.param(single_bytes, id="bytes")])
def test_a_fork_falls(cut: Cut) -> None:
    """Numbers 1 to 7, a resume at 5, and another log from 1: the picture of the incident."""
    shell = Shell(OBSERVE)
    shell.open_session()
    first = shell.open_get(answer=Answer(200, True, replica="pod-a"))
    for number in range(1, 8):
        shell.pass_time(1.0)
        first.send(event(number))
    first.end(Ending.UPSTREAM_FAILED)
    shell.pass_time(3.0)
    second = shell.open_get(5, answer=Answer(200, True, replica="pod-b"))
    for number in (1, 2, 3):
        second.send(event(number, "reborn"), cut=cut)
    assert shown(shell) == [
        ("get", [(float(n), float(n)) for n in range(1, 8)]),
        ("resume", [(10.0, 1.0), (10.0, 2.0), (10.0, 3.0)]),
    ]
    before, after = shell.session().timeline.connections
    assert (before.replica, before.cause, before.events) == ("pod-a", CloseCause.UPSTREAM_RESET, 7)
    assert (after.replica, after.cause, after.closed_at) == ("pod-b", None, None)
    assert after.places == Positions(cursor=5, high=7, got=1)
    assert after.judged is not None
    assert after.judged.judgement.verdict is Verdict.FORK
    assert after.judged.dialect == "integer"
    assert shell.session().timeline.verdicts == {Verdict.FORK}


def test_opaque_ids_are_drawn_by_their_place() -> None:
    """A replay is seen where it stood, something unknown after all that was known."""
    shell = Shell(OBSERVE, ids="opaque")
    shell.open_session()
    first = shell.open_get()
    for name in ("aa", "bb", "cc", "dd"):
        first.send(event(name))
    first.end(Ending.UPSTREAM_FAILED)
    shell.open_get("bb").send(event("cc"), event("dd"), event("ee"))
    assert [[position for _, position in samples] for _, samples in shown(shell)] == [
        [0.0, 1.0, 2.0, 3.0],
        [2.0, 3.0, 4.0],
    ]
    assert shell.session().timeline.connections[1].places == Positions(cursor=1, high=3, got=3)


def test_a_cursor_without_a_baseline_has_a_position_all_the_same() -> None:
    """Numbers tell where they stand; nothing was shown before."""
    shell = Shell(OBSERVE)
    shell.open_session()
    shell.open_get(5).send(event(6))
    (only,) = shell.session().timeline.connections
    assert only.places.cursor == 5


def test_a_primed_id_is_drawn() -> None:
    """It moves the cursor, so the picture shows it."""
    shell = Shell(OBSERVE)
    shell.open_session()
    shell.open_get().send(priming(1)).send(event(2))
    assert [position for _, position in shown(shell)[0][1]] == [1.0, 2.0]


def test_a_refused_resume_is_a_moment() -> None:
    """No stream came of it: it has no samples, and ended as it began."""
    shell = Shell(OBSERVE)
    shell.open_session()
    shell.shown(event(1), event(2))
    shell.pass_time(1.0)
    shell.open_get(1, answer=Answer(404, False))
    refused = shell.session().timeline.connections[-1]
    assert (refused.kind, refused.cause, refused.stream) == (AttachmentKind.RESUME, None, "get-1")
    assert refused.opened_at == refused.closed_at == shell.now
    assert len(refused.times) == 0
    assert refused.judged is not None
    assert refused.judged.judgement == REFUSED


def test_a_refusal_names_the_form_of_its_cursor() -> None:
    """Also where nothing was ever shown, so that whoever looks knows which server it may be."""
    shell = Shell(OBSERVE)
    shell.open_session()
    shell.open_get(5, answer=Answer(404, False))
    assert [item.dialect for item in shell.judged] == ["integer"]


def test_a_stream_the_detector_gave_up_on_is_drawn_as_over() -> None:
    """With or without a session."""
    shell = Shell(OBSERVE)
    shell.open_session()
    shell.open_get().send(event(1)).exchange.abandon()
    (given_up,) = shell.session().timeline.connections
    assert (given_up.cause, given_up.closed_at, given_up.events) == (CloseCause.PROXY_ERROR, shell.now, 1)
    without = shell.begin("GET", session=None).responded(STREAM)
    assert without.exchange.abandon() == b""
