"""Plays in which the server goes on with another log, or loses events, and the rules can tell."""

from __future__ import annotations

from collections.abc import Sequence

from tests.load.actor import Actor
from tests.load.healthy import answered_call, lose, replay
from tests.load.model import LARGE_BYTES, Event, Session, Stream
from tests.load.truth import Expectation, Truth, expect

NOBODY = "999"
"""A stream that nobody has opened."""
OVERDUE = 1.3
"""So many replay deadlines are surely one."""


def accused(
    session: Session, cursor: Event, play: str, truth: Truth, *allowed: str, outstanding: int
) -> Expectation:
    """What may be said, unless the cursor has two owners: then nothing can."""
    if session.ambiguous(cursor):
        return expect(play, Truth.UNKNOWABLE, "unverifiable/ids_ambiguous")
    return expect(play, truth, *allowed, outstanding=outstanding)


async def show(
    actor: Actor,
    stream: Stream,
    cursor: Event,
    expected: Expectation,
    frames: Sequence[bytes],
    *,
    decisive: int = 0,
    shown: Sequence[Event] = (),
) -> None:
    """A resume that is answered by these frames; the one at `decisive` convicts, where any does.

    `shown`: what of the stream's log they have shown.
    """
    at = await actor.resume(stream, 0, expected, cursor=cursor.id)
    for frame in frames:
        at.send(frame)
    for event in shown:
        actor.session.show(stream, event)
    actor.load.totals.events += len(frames)
    await actor.judged(stream, b"".join(frames[:decisive]))


async def go_on(actor: Actor, stream: Stream, expected: Expectation) -> None:
    """Later resumes, of what was shown since, are judged in the log that was shown last."""
    if actor.session.dead:
        return
    if expected.truth is Truth.UNKNOWABLE or actor.dialect.name == "counted":
        await actor.finish()  # what the proxy makes of such a session now is not for sure
        return
    actor.session.forked = True
    stream.floor = stream.shown
    for _ in range(2):
        actor.session.emit(stream)
    for event in stream.log[stream.shown :]:
        actor.say(stream, event)
    place = await lose(actor, stream, actor.rng.choice((0, 1)))
    await replay(actor, stream, place, "after a fork", live=1)


def begins(session: Session, cursor: Event) -> list[bytes]:
    """How such a server begins every replay."""
    return [cursor.frame] if session.dialect.inclusive else []


# ---- another log


async def restarted(actor: Actor, stream: Stream) -> None:
    """The counter begins anew: other content under the old ids, or ids never seen."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.choice((0, 0, 2)))
    cursor, count = stream.log[place], len(stream.todo(place))
    reasons = "epoch_changed" if session.dialect.epochs else "log_restarted|id_regressed"
    allowed = f"fork/{reasons} proven"
    expected = accused(session, cursor, "restarted", Truth.PROVEN, allowed, outstanding=count)
    session.reborn(stream)
    if session.dialect.inclusive:
        session.prime(stream, 3000)
    for _ in range(3):
        session.emit(stream)
    frames = [event.frame for event in stream.log]
    first = 1 if session.dialect.inclusive else 0
    await show(actor, stream, cursor, expected, frames, decisive=first, shown=stream.log)
    await go_on(actor, stream, expected)


async def diverged(actor: Actor, stream: Stream) -> None:
    """The numbers go on as if nothing had happened, the content does not."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.randrange(1, 4))
    cursor, todo = stream.log[place], stream.todo(place)
    if any(len(event.text) >= LARGE_BYTES for event in (cursor, *todo)):  # too large to be compared
        await replay(actor, stream, place, "replay", live=1)
        return
    reasons = "content_diverged|log_restarted" if session.dialect.inclusive else "content_diverged"
    allowed = f"fork/{reasons} proven"
    expected = accused(session, cursor, "diverged", Truth.PROVEN, allowed, outstanding=len(todo))
    events = [cursor, *todo] if session.dialect.inclusive else todo
    frames = [session.style.frame(e.id, session.notification(f"another {e.text[:40]}")) for e in events]
    await show(actor, stream, cursor, expected, frames)
    await go_on(actor, stream, expected)


async def regressed(actor: Actor, stream: Stream) -> None:
    """A lower number than the cursor's, which nobody was ever shown."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.choice((0, 2)))
    cursor, count = stream.log[place], len(stream.todo(place))
    n = session.burned if session.dialect.scope == "upstream" else session.dialect.first + 50
    timed = session.dialect.cls == "timed"
    truth, certainty = (Truth.SUSPECT, "suspected") if timed else (Truth.PROVEN, "proven")
    allowed = f"fork/id_regressed|log_restarted {certainty}"
    expected = accused(session, cursor, "regressed", truth, allowed, outstanding=count)
    frame = session.style.frame(session.id_of(stream.name, n), session.notification("of another log"))
    await show(actor, stream, cursor, expected, [frame])
    if not session.dead:
        await actor.finish()


async def id_missing(actor: Actor, stream: Stream) -> None:
    """A message without an id, where each had one."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.choice((0, 1)))
    cursor, count = stream.log[place], len(stream.todo(place))
    expected = accused(
        session, cursor, "id missing", Truth.PROVEN, "fork/id_missing proven", outstanding=count
    )
    frame = session.style.frame(None, session.notification("without an id"))
    await show(actor, stream, cursor, expected, [frame])
    if not session.dead:
        await actor.finish()


async def recycled(actor: Actor, stream: Stream) -> None:
    """The session was deleted, and is served again."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.choice((0, 1)), "abort")
    cursor = stream.log[place]
    await actor.delete(session)
    stream.request = None  # nothing is in flight any more
    expected = expect("recycled", Truth.PROVEN, "fork/session_recycled proven")
    await show(actor, stream, cursor, expected, [session.emit(stream).frame])
    if not session.dead:
        await actor.finish()


# ---- losses


async def skipped(actor: Actor, stream: Stream) -> None:
    """Some of the outstanding events, or all of them, do not come; later ones do."""
    session, dialect = actor.session, actor.dialect
    place = await lose(actor, stream, actor.rng.randrange(2, 5))
    cursor, todo = stream.log[place], stream.todo(place)
    rest = todo[actor.rng.randrange(1, len(todo) + 1) :]
    session.emit(stream)
    new = stream.log[stream.shown :]
    doubtful = dialect.cls == "timed" or dialect.live_first or not dialect.repeats
    truth, certainty = (Truth.SUSPECT, "suspected") if doubtful else (Truth.PROVEN, "proven")
    if session.large(cursor, todo):  # what cannot be compared may stand for anything
        await replay(actor, stream, place, "replay", live=1)
        return
    allowed = f"gap/successors_skipped {certainty}".strip()
    expected = accused(session, cursor, "skipped", truth, allowed, outstanding=len(todo))
    head = begins(session, cursor)
    frames = [*head, *(session.replayed(event) for event in rest), *(event.frame for event in new)]
    await show(actor, stream, cursor, expected, frames, decisive=len(head), shown=new)
    await go_on(actor, stream, expected)


async def jumped(actor: Actor, stream: Stream) -> None:
    """Nothing was outstanding, and the next number is not the next: contiguous ids show a loss alone."""
    session = actor.session
    place = await lose(actor, stream, 0, actor.rng.choice(("leave", "abort", "close")))
    cursor = stream.log[place]
    session.skip_number(stream, actor.rng.randrange(1, 4))
    session.emit(stream)
    new = stream.log[stream.shown :]
    late = session.dialect.live_first
    truth, certainty = (Truth.SUSPECT, "suspected") if late else (Truth.PROVEN, "proven")
    allowed = f"gap/forward_jump {certainty}"
    expected = accused(session, cursor, "jumped", truth, allowed, outstanding=0)
    head = begins(session, cursor)
    frames = [*head, *(event.frame for event in new)]
    await show(actor, stream, cursor, expected, frames, decisive=len(head), shown=new)
    await go_on(actor, stream, expected)


async def nothing(actor: Actor, stream: Stream) -> None:
    """Events are outstanding; the answer is an empty stream."""
    session, how = actor.session, actor.rng.choice(("leave", "abort", "close", "torn"))
    place = await lose(actor, stream, actor.rng.randrange(1, 4), how)
    cursor, todo = stream.log[place], stream.todo(place)
    certainty = "" if how == "leave" or not session.dialect.repeats else " proven"
    truth = Truth.PROVEN if certainty == " proven" else Truth.SUSPECT
    allowed = f"gap/nothing_replayed{certainty}"
    expected = accused(session, cursor, "nothing", truth, allowed, outstanding=len(todo))
    at = await actor.resume(stream, place, expected)
    at.finish()
    await at.over()
    await actor.judged(stream)
    actor.detached(stream)
    if not session.dead:
        await replay(actor, stream, place, "replay", live=1)


async def silent(actor: Actor, stream: Stream) -> None:
    """Events are outstanding; nothing comes, and the client gives up after the deadline."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.randrange(1, 4), "abort")
    cursor, todo = stream.log[place], stream.todo(place)
    allowed = "gap/nothing_replayed suspected"
    expected = accused(session, cursor, "silent", Truth.SUSPECT, allowed, outstanding=len(todo))
    await actor.resume(stream, place, expected)
    if expected.truth is Truth.SUSPECT:
        await actor.wait(OVERDUE * actor.load.deadline_s)
    await actor.drop(stream, "leave")
    await replay(actor, stream, place, "replay", live=1)


# ---- events of others


async def crossed_stream(actor: Actor, stream: Stream) -> None:
    """What another stream of the session has shown comes here."""
    session = actor.session
    other = await answered_call(actor, 3)
    if session.dialect.bare and not session.grew:
        await replay(actor, stream, await lose(actor, stream, 0), "replay", live=1)
        return
    place = await lose(actor, stream, actor.rng.choice((0, 1)))
    foreign = [e for e in other.log if not e.priming and len(e.text) < 1000]
    await _foreign(actor, stream, place, "crossed stream", "other_stream", foreign[-1].frame)


async def crossed_tag(actor: Actor, stream: Stream) -> None:
    """The id names another stream."""
    session = actor.session
    place = await lose(actor, stream, actor.rng.choice((0, 1)))
    frame = session.style.frame(session.id_of(NOBODY, 7_000), session.notification("for somebody else"))
    await _foreign(actor, stream, place, "crossed tag", "other_stream", frame)


async def crossed_session(actor: Actor, stream: Stream) -> None:
    """What another session of the upstream has shown comes here."""
    mine = actor.session
    await actor.begin()
    theirs = actor.session
    theirs.constant = False
    other = await actor.open(False)
    await actor.drop(other, "leave")
    actor.session = mine
    place = await lose(actor, stream, actor.rng.choice((0, 1)))
    frame = next(e.frame for e in other.log if not e.priming and len(e.text) < 1000)
    reasons = "other_session|other_stream" if mine.dialect.cls == "timed" else "other_session"
    await _foreign(actor, stream, place, "crossed session", reasons, frame)
    await actor.delete(theirs)


async def _foreign(actor: Actor, stream: Stream, place: int, play: str, reasons: str, frame: bytes) -> None:
    session, cursor = actor.session, stream.log[place]
    timed = session.dialect.cls == "timed"
    truth, certainty = (Truth.SUSPECT, "") if timed else (Truth.PROVEN, " proven")
    allowed = f"crossed/{reasons}{certainty}"
    expected = accused(session, cursor, play, truth, allowed, outstanding=len(stream.todo(place)))
    head = begins(session, cursor)
    await show(actor, stream, cursor, expected, [*head, frame], decisive=len(head))
    await go_on(actor, stream, expected)
