"""Plays in which nothing on the wire tells, or the rules may at most suspect; and replays from too early on."""

from __future__ import annotations

import gzip

from tests.load.actor import Actor
from tests.load.forked import NOBODY, accused, show
from tests.load.healthy import lose, replay
from tests.load.model import Session, Stream
from tests.load.truth import Truth, expect

NEVER_PROVEN = (
    "unverifiable/no_baseline|ids_ambiguous|opaque_ids|ids_absent",
    "fork/log_restarted|id_regressed|epoch_changed|id_missing suspected",
    "crossed/other_stream|other_session suspected",
    "gap/successors_skipped|forward_jump|nothing_replayed suspected",
    "rewound/inclusive|cursor_ignored suspected",
)


async def inclusive(actor: Actor, stream: Stream) -> None:
    """The replay begins with the cursor itself, or with the whole log: duplicates, no fork."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.choice((1, 2)))
    cursor, todo, whole = stream.log[place], stream.todo(place), actor.rng.random() < 0.5
    again = [e for e in stream.log[stream.floor : place + 1] if not e.priming][-6:] if whole else [cursor]
    if cursor.priming or (whole and len(again) < 2) or any(len(e.text) > 1000 for e in again):
        await replay(actor, stream, place, "replay", live=1)
        return
    reason = "cursor_ignored" if whole else "inclusive"
    allowed = f"rewound/{reason} proven"
    play = "whole replay" if whole else "inclusive replay"
    expected = accused(session, cursor, play, Truth.REWOUND, allowed, outstanding=len(todo))
    session.emit(stream)
    new = stream.log[stream.shown :]
    frames = [session.replayed(event) for event in (*again, *todo, *new)]
    await show(actor, stream, cursor, expected, frames, shown=new)


async def forged(actor: Actor, stream: Stream) -> None:
    """A cursor that was never issued here, answered by whatever the server has."""
    session = actor.session
    place = await lose(actor, stream, 0)
    far = session.id_of(stream.name, stream.log[place].n + 500_000)
    new = [session.emit(stream)]
    expected = expect("forged cursor", Truth.UNKNOWABLE, *NEVER_PROVEN)
    at = await actor.resume(stream, place, expected, cursor=far)
    at.send(new[0].frame)
    await actor.judged(stream)
    await actor.finish()


async def unfollowed(actor: Actor, stream: Stream) -> None:
    """A session that began elsewhere: its server is healthy, the proxy has no baseline."""
    mine = actor.session
    actor.session = theirs = Session(
        f"{actor.rng.getrandbits(128):032x}", actor.dialect, mine.shared, actor.rng
    )
    other = theirs.open()
    if theirs.dialect.inclusive:
        theirs.prime(other, 3000)
    for _ in range(6):
        theirs.emit(other)
    allowed = ["unverifiable/no_baseline suspected"]
    if theirs.dialect.inclusive:
        allowed.append("rewound/inclusive suspected")  # its numbers look like anybody's
    expected = expect("begun elsewhere", Truth.UNKNOWABLE, *allowed)
    at = await actor.resume(other, 3, expected)
    for event in other.log[3 if theirs.dialect.inclusive else 4 :]:
        at.send(event.frame)
    await actor.judged(other)
    await actor.finish()
    actor.session = mine
    await replay(actor, stream, await lose(actor, stream, 0), "replay", live=1)


async def encoded(actor: Actor, stream: Stream) -> None:
    """A content coding hides the frames."""
    place = await lose(actor, stream, actor.rng.choice((0, 1)))
    expected = expect("encoded", Truth.UNKNOWABLE, "unverifiable/encoded suspected")
    at = await actor.resume(stream, place, expected, answer=False)
    at.open_stream("Content-Encoding: gzip\r\n")
    at.send(gzip.compress(b": nothing\n\n", mtime=0))
    await actor.judged(stream)
    await actor.drop(stream, "close")
    await replay(actor, stream, place, "replay", live=1)


async def twins(actor: Actor, stream: Stream) -> None:
    """A reborn log of notifications that all say the same repeats the old ids: nothing tells it apart."""
    session = actor.session
    place = await lose(actor, stream, 0)
    cursor = stream.log[place]
    session.reborn(stream)
    if session.dialect.inclusive:
        session.prime(stream, 3000)
    for _ in range(3):
        session.emit(stream)
    frames = [event.frame for event in stream.log]
    allowed = (
        "rewound/cursor_ignored|inclusive",
        "fork/log_restarted|id_regressed suspected",
        "resumed/idle",
    )
    expected = expect("twins", Truth.UNKNOWABLE, *NEVER_PROVEN, *allowed)
    at = await actor.resume(stream, 0, expected, cursor=cursor.id)
    for frame in frames:
        at.send(frame)
    await actor.drop(stream, "close")
    await actor.finish()


async def half_open(actor: Actor, stream: Stream) -> None:
    """The server answers a resume by nothing, since it takes the earlier connection for open."""
    session = actor.session
    for _ in range(3):
        actor.say(stream, session.emit(stream))
    await actor.heard(stream)
    place, former = stream.shown - 3, stream.at
    assert former is not None
    allowed = "gap/nothing_replayed suspected"
    expected = accused(
        session, stream.log[place], "half open", Truth.SUSPECT, allowed, outstanding=len(stream.todo(place))
    )
    at = await actor.resume(stream, place, expected)
    at.finish()
    await at.over()
    await actor.judged(stream)
    actor.detached(stream)
    former.leave()
    await former.unheard()
    actor.load.totals.streams -= 1
    await replay(actor, stream, place, "replay", live=1)


async def superseded(actor: Actor, stream: Stream) -> None:
    """Two resumes of one cursor; the server ends the first for the second before it has said anything."""
    place = await lose(actor, stream, 2)
    if actor.session.ambiguous(stream.log[place]):
        await replay(actor, stream, place, "replay", live=1)
        return
    fields = {
        "Accept": "text/event-stream",
        "Mcp-Session-Id": actor.session.key,
        "Last-Event-ID": stream.log[place].id,
    }
    allowed = ("gap/nothing_replayed suspected", "inconclusive/upstream_closed", "resumed/idle|replayed")
    expected = expect("superseded", Truth.UNKNOWABLE, *allowed)
    actor.load.totals.resumes += 1
    first = await actor.load.wire.request("GET", actor.target, fields, keep=True)
    try:
        await first.arrived()
        first.open_stream()
        await first.head()
        await replay(actor, stream, place, "resumed twice")
    finally:  # its verdict comes after the other's, or at any time if the upstream dies meanwhile
        pending = actor.load.judge.expecting(actor.session.key, expected, "superseded")
    first.finish()
    await first.over()
    await pending.verdict()


async def early_tag(actor: Actor, stream: Stream) -> None:
    """Two ids do not make a dialect: another tag is only suspect."""
    await actor.finish()
    await actor.begin()
    session = actor.session
    session.primes, session.constant = False, False
    young = session.open()
    await actor.attach(young)
    for _ in range(2):
        actor.say(young, session.emit(young))
    await actor.drop(young, "abort")
    frame = session.style.frame(session.id_of(NOBODY, 7_000), session.notification("for somebody else"))
    expected = expect("early tag", Truth.SUSPECT, "crossed/other_stream suspected", outstanding=0)
    await show(actor, young, young.newest, expected, [frame])
    await actor.finish()
