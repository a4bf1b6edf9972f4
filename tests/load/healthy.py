"""Plays in which the server keeps its log: whatever the client does, nobody is to be accused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from tests.load.actor import JSON, Actor
from tests.load.model import LARGE_BYTES, Event, Session, Stream
from tests.load.truth import Expectation, Truth, expect

ENDS = ("leave", "abort", "close", "torn")
REFUSALS = {
    400: "rejected",
    401: "unauthorized",
    404: "not_found",
    405: "unsupported",
    409: "conflict",
    410: "rejected",
    429: "throttled",
    503: "upstream_error",
}
_LOOKS_CONTIGUOUS_AFTER = 16
IDLE = "idle"


def expected_of(play: str, session: Session, stream: Stream, place: int, new: Sequence[Event]) -> Expectation:
    """What may be said of a whole replay after the event at `place`, followed by `new` messages."""
    expected = _expected(play, session, stream, place, new)
    if session.forked and session.dialect.bare:
        return replace(expected, allowed=expected.allowed | {("unverifiable", "ids_ambiguous", "suspected")})
    return expected


def _expected(play: str, session: Session, stream: Stream, place: int, new: Sequence[Event]) -> Expectation:
    dialect, cursor, todo = session.dialect, stream.log[place], stream.todo(place)
    if session.ambiguous(cursor):
        return expect(play, Truth.UNKNOWABLE, "unverifiable/ids_ambiguous")
    count = len(todo)
    if todo:
        sure = dialect.repeats and dialect.cls != "timed" and not session.large(cursor, todo)
        certainty = "proven" if sure else ("" if dialect.repeats else "suspected")
        return expect(play, Truth.HEALTHY, f"resumed/replayed {certainty}".strip(), outstanding=count)
    if not new:
        return expect(play, Truth.HEALTHY, "resumed/idle", outstanding=0)
    if dialect.cls == "opaque":
        return expect(play, Truth.UNKNOWABLE, "unverifiable/opaque_ids", outstanding=0)
    if dialect.cls == "timed" or session.large(cursor, ()):
        return expect(play, Truth.HEALTHY, "resumed/continued suspected", outstanding=0)
    if dialect.bare and new[0].n != cursor.n + 1 and _run(stream, place) >= _LOOKS_CONTIGUOUS_AFTER:
        return expect(
            play, Truth.HEALTHY, "resumed/continued proven", "gap/forward_jump suspected", outstanding=0
        )
    return expect(play, Truth.HEALTHY, "resumed/continued proven", outstanding=0)


def _run(stream: Stream, place: int) -> int:
    """How many steps of one lead to the event at `place`."""
    run = 0
    while run < place and stream.log[place - run].n == stream.log[place - run - 1].n + 1:
        run += 1
    return run


async def lose(actor: Actor, stream: Stream, outstanding: int, how: str | None = None) -> int:
    """Some events, and the connection is lost with so many of them unconsumed; the place of the cursor."""
    if outstanding:
        for _ in range(outstanding + actor.rng.randrange(2)):
            actor.say(stream, actor.session.emit(stream))
    await actor.drop(stream, actor.rng.choice(ENDS) if how is None else how)
    return max(stream.shown - 1 - outstanding, stream.floor)


async def away(actor: Actor, stream: Stream, events: int) -> None:
    """The client is away; the server stores what nobody hears."""
    for _ in range(events):
        actor.session.emit(stream)
    if actor.rng.random() < 0.3:
        await actor.rest(actor.rng.random() * 0.2)


async def replay(actor: Actor, stream: Stream, place: int, play: str, live: int = 0) -> None:
    """A healthy resume: the cursor itself where servers do that, what follows it, then new events."""
    session, rng = actor.session, actor.rng
    unheard = stream.log[stream.shown :]
    if not (live or unheard or stream.todo(place) or play == IDLE):
        live = 1
    for _ in range(live):
        session.emit(stream)
    todo, new = stream.todo(place), [e for e in stream.log[stream.shown :] if not e.priming]
    expected = expected_of(play, session, stream, place, new)
    at = await actor.resume(stream, place, expected)
    if session.dialect.inclusive:
        if rng.random() < 0.5:
            at.send(_primer(session, stream))
        at.send(stream.log[place].frame)
    elif (
        session.primes
        and session.dialect.scope != "upstream"
        and rng.random() < 0.3
        and not unheard
        and not new
        and not session.ambiguous(stream.log[place])
    ):
        actor.noise(stream)
        frame = session.prime(stream, 500)  # a number of its own, before the backlog
        actor.say(stream, frame)
    rewritten = session.dialect.repeats and rng.random() < 0.2
    for event in todo:
        actor.noise(stream)
        again = rewritten and len(event.text) < LARGE_BYTES
        at.send(session.rewritten(stream, event) if again else session.replayed(event))
    for event in stream.log[stream.shown :]:
        actor.say(stream, event)
    if todo or new or expected.truth is Truth.UNKNOWABLE:
        await actor.judged(stream)


def _primer(session: Session, stream: Stream) -> bytes:
    """How rmcp primes a connection anew."""
    event_id = session.id_of(stream.name, session.dialect.first)
    return f"id: {event_id}\nretry: 3000\ndata: \n\n".encode()


# ---- the plays


async def plain(actor: Actor, stream: Stream) -> None:
    """Any loss of a connection, and everything comes again."""
    rng = actor.rng
    place = await lose(actor, stream, rng.choice((0, 0, 1, 2, 5)))
    await away(actor, stream, rng.choice((0, 0, 1, 3)))
    await replay(actor, stream, place, "replay", live=rng.choice((0, 1, 2)))


async def idle(actor: Actor, stream: Stream) -> None:
    """Nothing was outstanding and nothing comes; then the stream goes on."""
    place = await lose(actor, stream, 0, actor.rng.choice(("leave", "abort", "close")))
    await replay(actor, stream, place, IDLE)
    await actor.rest(0.1)
    actor.noise(stream)
    await actor.drop(stream, actor.rng.choice(("leave", "close", "abort")))
    await replay(actor, stream, stream.shown - 1, "replay", live=1)


async def polling(actor: Actor, stream: Stream) -> None:
    """The server closes on purpose, again and again, and the client polls."""
    for _ in range(3):
        await actor.drop(stream, "close")
        for _ in range(actor.rng.randrange(1, 3)):
            actor.session.emit(stream)
        await replay(actor, stream, stream.shown - 1, "polling")


async def refused(actor: Actor, stream: Stream) -> None:
    """The server says no, out loud; the next resume is served."""
    outstanding = actor.rng.choice((0, 2))
    place = await lose(actor, stream, outstanding)
    status = actor.rng.choice((*REFUSALS, 200))
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}'
    reason = REFUSALS.get(status, "not_a_stream")
    expected = expect("refused", Truth.HEALTHY, f"refused/{reason} proven")
    at = await actor.resume(stream, place, expected, answer=False)
    at.respond(status, {**JSON, "Retry-After": "1"}, body)
    await at.over()
    if at.status != status:
        actor.load.violations.add("wrong answer", f"{status} became {at.state()}")
    actor.check(at)
    actor.detached(stream)
    assert actor.pending is not None
    await actor.pending.verdict()
    actor.pending = None
    await replay(actor, stream, place, "replay", live=1)


async def twice(actor: Actor, stream: Stream) -> None:
    """The client resumes twice from one cursor; both are served, the server keeps the newer one."""
    place = await lose(actor, stream, actor.rng.randrange(1, 4))
    await replay(actor, stream, place, "resumed twice")
    former = stream.at
    assert former is not None
    await replay(actor, stream, place, "resumed twice", live=1)
    former.finish()
    await former.over()
    actor.check(former)
    actor.load.totals.streams -= 1


async def partial(actor: Actor, stream: Stream) -> None:
    """The connection is lost again within the replay; the rest comes by the next resume."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.randrange(3, 6))
    todo = stream.todo(place)
    if session.ambiguous(stream.log[place]):
        await replay(actor, stream, place, "replay", live=1)
        return
    how, reason = actor.rng.choice(
        (("leave", "client_left"), ("abort", "upstream_failed"), ("close", "upstream_closed"))
    )
    expected = expect("lost again", Truth.HEALTHY, f"inconclusive/{reason}", outstanding=len(todo))
    at = await actor.resume(stream, place, expected)
    if session.dialect.inclusive:
        at.send(stream.log[place].frame)
    struck = todo[: actor.rng.randrange(1, len(todo) - 1)]
    for event in struck:
        at.send(session.replayed(event))
    await actor.drop(stream, how)
    await replay(actor, stream, stream.log.index(struck[-1]), "replay", live=1)


async def live_before_backlog(actor: Actor, stream: Stream) -> None:
    """A live event comes first where such servers do that, then the backlog."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.randrange(1, 4))
    live = session.emit(stream)
    if stream.log[stream.shown] is not live:  # torn: it belongs to the backlog
        await replay(actor, stream, place, "replay")
        return
    count = len(stream.todo(place))
    backlog = stream.todo(place)
    expected = expect("live before backlog", Truth.HEALTHY, "resumed/replayed", outstanding=count)
    at = await actor.resume(stream, place, expected)
    actor.say(stream, live)
    for event in backlog:
        at.send(session.replayed(event))
    await actor.judged(stream)


async def hole(actor: Actor, stream: Stream) -> None:
    """Numbers that nobody was shown, where holes are normal."""
    place = await lose(actor, stream, 0, "abort")
    actor.session.skip_number(stream, actor.rng.randrange(1, 5))
    await replay(actor, stream, place, "hole", live=2)


async def call(actor: Actor, stream: Stream) -> None:
    """A call on the side, answered by a stream or at once; then its own stream goes on."""
    session, rng = actor.session, actor.rng
    if rng.random() < 0.3:
        request = session.next_request()
        exchange = await actor.post(session, {"id": request, "method": "tools/list"})
        body = json.dumps({"jsonrpc": "2.0", "id": request, "result": {"tools": []}}).encode()
        exchange.respond(200, JSON, body)
        await actor.answered(exchange, 200)
    else:
        await answered_call(actor, rng.randrange(4))
    actor.load.totals.calls += 1
    place = await lose(actor, stream, rng.choice((0, 2)))
    await replay(actor, stream, place, "replay", live=1)


async def answered_call(actor: Actor, events: int) -> Stream:
    """A call's stream from its beginning to its answer and its end."""
    session = actor.session
    stream = session.open(session.next_request())
    await actor.attach(stream)
    if session.primes:
        actor.say(stream, session.prime(stream, 3000))
    for _ in range(events):
        actor.say(stream, session.emit(stream))
    actor.say(stream, session.emit(stream, result=True))
    await actor.drop(stream, "close")
    return stream


async def both(actor: Actor, stream: Stream) -> None:
    """Two streams of one session take turns, are lost, and are resumed, in any order."""
    session, rng = actor.session, actor.rng
    other = session.open(session.next_request())
    await actor.attach(other)
    if session.primes:
        actor.say(other, session.prime(other, 3000))
    for each in [other, *rng.choices((stream, other), k=rng.randrange(2, 7)), other]:
        actor.say(each, session.emit(each))
        await actor.heard(each)
    await actor.drop(other, rng.choice(ENDS))
    places = {
        id(other): other.shown - 1 - rng.randrange(2),
        id(stream): await lose(actor, stream, rng.randrange(3)),
    }
    for each in rng.sample((stream, other), k=2):
        await replay(actor, each, places[id(each)], "two streams", live=rng.randrange(2))
    actor.say(other, session.emit(other, result=True))
    await actor.drop(other, "close")
    actor.load.totals.calls += 1


async def late_answer(actor: Actor, stream: Stream) -> None:
    """The answer was sent and the stream ended, but the client lost it: it comes by the resume."""
    session = actor.session
    for _ in range(2):
        actor.say(stream, session.emit(stream))
    actor.say(stream, session.emit(stream, result=True))
    await actor.drop(stream, "close")
    await replay(actor, stream, stream.shown - actor.rng.randrange(2, 4), "answer lost")
    await actor.drop(stream, "close")
    actor.load.totals.calls += 1
    await actor.finish()


async def fresh(actor: Actor, stream: Stream) -> None:
    """The client comes back without its cursor: never judged, and the server may go on."""
    await actor.drop(stream, actor.rng.choice(("leave", "abort", "close")))
    await actor.attach(stream)
    stream.floor = stream.shown
    if actor.dialect.inclusive:
        stream.at.send(_primer(actor.session, stream))  # type: ignore[union-attr]
    for _ in range(3):
        actor.say(stream, actor.session.emit(stream))
    place = await lose(actor, stream, actor.rng.choice((0, 1)))
    await replay(actor, stream, place, "after a fresh start", live=1)


async def answer(actor: Actor, stream: Stream) -> None:
    """A call that was resumed is answered on its resumed stream, which ends; another one begins."""
    place = await lose(actor, stream, actor.rng.choice((0, 1)))
    await replay(actor, stream, place, "replay", live=1)
    actor.say(stream, actor.session.emit(stream, result=True))
    await actor.drop(stream, "close")
    actor.load.totals.calls += 1
    await actor.finish()
