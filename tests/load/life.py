"""What an actor does with its time: sessions of a few plays each, and how it recovers from an injected fault."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.load import forked, healthy, unknowable
from tests.load.actor import Actor
from tests.load.dialects import GET
from tests.load.exchange import Disrupted, End, Stuck
from tests.load.model import Session, Stream
from tests.load.truth import Truth, expect

PLAYS_OF_A_SESSION = 4
_ABUSE = 0.1
"""How often a fault, where they are wanted, is the actor's own: a reset at a random byte."""


@dataclass(frozen=True)
class Entry:
    """A play, how often it is chosen, and where it may be."""

    play: Callable[[Actor, Stream], Awaitable[None]]
    weight: float
    fits: Callable[[Session, Stream], bool] = lambda session, stream: True


def _numbered(session: Session, stream: Stream) -> bool:
    return session.dialect.numbered and session.dialect.name != "shared" and not session.constant


def _distinct(session: Session, stream: Stream) -> bool:
    return session.dialect.repeats and not session.constant


PLAYS = (
    Entry(healthy.plain, 30),
    Entry(healthy.idle, 5),
    Entry(healthy.polling, 4),
    Entry(healthy.refused, 5),
    Entry(
        healthy.twice, 3, lambda s, t: s.dialect.repeats or not s.constant
    ),  # a known fault, and 20 s of silence
    Entry(healthy.partial, 3, lambda s, t: s.dialect.repeats),
    Entry(healthy.live_before_backlog, 4, lambda s, t: s.dialect.live_first),
    Entry(healthy.hole, 3, lambda s, t: s.dialect.cls == "ordered"),
    Entry(healthy.call, 6),
    Entry(healthy.both, 6),
    Entry(healthy.late_answer, 5, lambda s, t: t.request is not None),
    Entry(healthy.fresh, 3, lambda s, t: t.name == GET and not s.dialect.inclusive),
    Entry(healthy.answer, 5, lambda s, t: t.request is not None),
    Entry(forked.restarted, 6, _numbered),
    Entry(forked.diverged, 3, _distinct),
    Entry(
        forked.regressed,
        3,
        lambda s, t: (
            (s.dialect.numbered or s.dialect.cls == "timed")
            and s.incarnation == 0
            and (s.start - s.dialect.first >= 100 or s.dialect.scope == "upstream")
        ),
    ),
    Entry(forked.id_missing, 2, lambda s, t: s.dialect.repeats),
    Entry(forked.recycled, 2),
    Entry(forked.skipped, 5, lambda s, t: not s.constant or s.dialect.name not in ("unknown", "encrypted")),
    Entry(forked.jumped, 5, lambda s, t: s.dialect.cls == "contiguous"),
    Entry(forked.nothing, 3),
    Entry(forked.silent, 1),
    Entry(forked.crossed_stream, 4, lambda s, t: s.dialect.owns and not s.constant),
    Entry(forked.crossed_tag, 3, lambda s, t: s.dialect.tagged),
    Entry(
        forked.crossed_session,
        3,
        lambda s, t: not s.constant and (s.dialect.unique or s.dialect.name == "csharp"),
    ),
    Entry(unknowable.inclusive, 3, lambda s, t: _distinct(s, t) and not s.dialect.inclusive),
    Entry(unknowable.forged, 1),
    Entry(unknowable.unfollowed, 2),
    Entry(unknowable.encoded, 1),
    Entry(
        unknowable.twins,
        10,
        lambda s, t: (
            s.constant
            and s.dialect.numbered
            and not s.dialect.epochs
            and s.dialect.name != "shared"
            and s.start == s.dialect.first
            and (s.dialect.inclusive or not t.log[0].priming)
        ),
    ),
    Entry(unknowable.half_open, 1),
    Entry(unknowable.superseded, 2, lambda s, t: not s.dialect.inclusive),
    Entry(
        unknowable.early_tag,
        3,
        lambda s, t: (
            s.dialect.tagged and s.dialect.cls != "timed" and s.dialect.name not in ("csharp", "rmcp")
        ),
    ),
)


async def live(actor: Actor) -> None:
    """One session after another until the load is over."""
    load = actor.load
    await actor.rest(actor.rng.random() * load.cycle_s)  # not all at once
    while not load.over.is_set():
        faults = load.wire.kills + actor.disturbed
        try:
            await _session(actor)
        except (Disrupted, Stuck, TimeoutError, ConnectionError) as error:
            if not load.faults or faults == load.wire.kills + actor.disturbed:
                load.violations.add("broken off", f"{actor.dialect.name}: {error!r}")
            await _abandon(actor)


async def _session(actor: Actor) -> None:
    load, rng = actor.load, actor.rng
    await load.up.wait()
    actor.alive.clear()
    session = await actor.begin()
    stream = await actor.open(rng.random() < 0.35)
    if stream.request is not None and rng.random() < 0.3:
        await actor.attach(session.open())  # a standalone stream on which nothing happens
    for _ in range(rng.randrange(1, 2 * PLAYS_OF_A_SESSION)):
        if load.over.is_set() or session.dead:
            break
        try:
            await _cycle(actor, stream)
        except (Disrupted, ConnectionError):
            if not load.faults or not await _recover(actor, stream):
                raise
    if not session.dead:
        await actor.finish()


async def _cycle(actor: Actor, stream: Stream) -> None:
    """The stream is live for a while, and then something happens to it."""
    load, rng = actor.load, actor.rng
    actor.faults = load.wire.kills + actor.disturbed
    actor.harmless = True
    await actor.live(stream, rng.uniform(0.5, 1.5) * load.cycle_s)
    if load.over.is_set():
        return
    if load.faults and rng.random() < _ABUSE:
        await _reset_anywhere(actor, stream)
    choice = [entry for entry in PLAYS if entry.fits(actor.session, stream)]
    entry = rng.choices(choice, [each.weight for each in choice])[0]
    actor.harmless = entry.play.__module__ == healthy.__name__
    await entry.play(actor, stream)


async def _reset_anywhere(actor: Actor, stream: Stream) -> None:
    """A reset at a random byte, with bytes before it that may or may not get through."""
    at = stream.at
    assert at is not None
    for _ in range(2):
        actor.say(stream, actor.session.emit(stream))
    frame = actor.session.emit(stream).frame
    at.send(frame[: actor.rng.randrange(1, len(frame))])
    actor.disturbed += 1
    at.reset()
    if await at.over() is not End.ABORT:
        actor.load.violations.add("wrong ending", f"a reset became {at.state()}")
    raise Disrupted("a reset at a random byte")


async def _recover(actor: Actor, stream: Stream) -> bool:
    """After a fault: what was relayed is not sure, yet a whole replay is healthy whatever was.

    False if it was no fault, or the session cannot go on.
    """
    load, session = actor.load, actor.session
    if actor.faults == load.wire.kills + actor.disturbed:
        return False
    _blur(actor, stream)
    if stream not in session.streams:
        return False
    if not (actor.harmless and session.dialect.repeats):
        return False  # the fork that was under way may have happened, or not
    if session.dead or stream.sure <= stream.floor or actor.rng.random() < 0.3:
        return False
    await load.up.wait()
    place = stream.sure - 1
    allowed = ("resumed/replayed|continued|idle", "unverifiable/opaque_ids|ids_ambiguous")
    expected = expect("after a fault", Truth.HEALTHY, *allowed)
    session.grew = False
    actor.faults = load.wire.kills + actor.disturbed
    at = await actor.resume(stream, place, expected)
    if session.dialect.inclusive:
        at.send(stream.log[place].frame)
    for event in stream.log[place + 1 : stream.shown]:
        if not event.priming:
            at.send(session.replayed(event))
    for event in [*stream.log[stream.shown :], session.emit(stream)]:
        if not event.priming:
            actor.say(stream, event)
        else:
            stream.shown += 1
    await actor.judged(stream)
    return True


def _blur(actor: Actor, stream: Stream) -> None:
    """Which verdict comes of what was under way is not sure; what the client surely has is."""
    load = actor.load
    load.totals.blurred_streams += 1
    if actor.pending is not None:
        actor.pending.blurred = True
        actor.pending = None
    at = stream.at
    if at is not None:
        if at.upstream is not None:  # else the answer is the proxy's own
            actor.check(at)
        stream.sure = max([stream.sure, *(shown for sent, shown in stream.marks if sent <= at.received)])
        stream.marks.clear()
        if at.end is None:
            at.leave()
        actor.detached(stream)
    for other in actor.session.streams:
        if other.at is not None:
            other.at.leave()
            actor.detached(other)


async def _abandon(actor: Actor) -> None:
    """Leave what is left of its sessions, and delete them if that can be done."""
    for session in actor.alive:
        for stream in session.streams:
            _blur(actor, stream)
        await actor.load.up.wait()
        try:
            if not session.dead:
                await actor.delete(session)
        except (Disrupted, Stuck, ConnectionError):
            actor.load.totals.undeleted += 1
        session.dead = True
    actor.alive.clear()
