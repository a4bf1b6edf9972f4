"""Reconnects that get nowhere: one cursor resumed again and again, or connections that oust each other.

Known from the field: a failed resume that is answered by an empty 200 makes most clients ask for ever.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.engine.commands import PASS, Command, Report
from proxy.engine.digest import id_word
from proxy.engine.findings import Finding, Raised
from proxy.engine.ledger import Baseline, Loop, Session, Stream

LOOP_RESUMES = 20
"""Resumes of one cursor without progress, within `LOOP_WINDOW_S`, that are a loop."""
LOOP_TAKEOVERS = 5
"""Connections that took a stream from one still open, within `LOOP_WINDOW_S`, that are a loop."""
LOOP_WINDOW_S = 10.0
_MAX_LOOPS = 16


def resumed(session: Session, cursor: bytes, now: float) -> Sequence[Command]:
    """Count a resume; those that the server spaced by its `retry:` are its own wish, and no loop."""
    word = id_word(cursor)
    loop = session.loops.get(word)
    if loop is None or loop.shown != session.shown or now - loop.since > LOOP_WINDOW_S:
        session.loops.pop(word, None)
        if len(session.loops) >= _MAX_LOOPS:
            del session.loops[next(iter(session.loops))]
        session.loops[word] = Loop(since=now, count=1, shown=session.shown, last=now)
        return PASS
    found = session.locate(word)
    retry_s = found.stream.retry_ms / 1000 if isinstance(found, Baseline) else 0.0
    if not 0 < retry_s <= now - loop.last:
        loop.count += 1
    loop.last = now
    if loop.count < LOOP_RESUMES:
        return PASS
    del session.loops[word]
    return [Report(Raised(Finding.RECONNECT_LOOP, session.name, "", "one cursor"))]


def taken_over(session: Session, stream: Stream, now: float) -> Sequence[Command]:
    """A connection took `stream` from one that is still open."""
    stream.takeovers = (*stream.takeovers[1 - LOOP_TAKEOVERS :], now)
    if len(stream.takeovers) < LOOP_TAKEOVERS or now - stream.takeovers[0] > LOOP_WINDOW_S:
        return PASS
    stream.takeovers = ()
    return [Report(Raised(Finding.RECONNECT_LOOP, session.name, stream.label, "takeovers"))]
