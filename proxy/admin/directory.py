"""Finding sessions among many without holding up the streams: a few at a time, newest first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import TypeVar

from proxy.admin.views import state_of
from proxy.engine.findings import Verdict
from proxy.engine.ledger import Session, Upstream
from proxy.engine.privacy import of_hash

_T = TypeVar("_T")

Place = tuple[int, int, int]
"""Where a session stands in the listing: smaller is newer, no two are equal."""

_SLICE = 500
"""Sessions looked at in one turn of the loop: well under a millisecond."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions are listed; None asks nothing. `after` is the place of the last one seen."""

    state: str | None = None
    verdict: Verdict | None = None
    after: Place | None = None

    def takes(self, session: Session) -> bool:
        """Whether the session is one of them."""
        return (self.state is None or state_of(session) == self.state) and (
            self.verdict is None or self.verdict in session.timeline.verdicts
        )


async def page(upstreams: list[Upstream], wanted: Wanted, limit: int) -> tuple[list[Session], str | None]:
    """Up to `limit` sessions, newest first, and the token of the next page if there is one."""
    found: list[tuple[Place, Session]] = []
    async for place, session in _in_slices(merge(*map(_newest_first, range(len(upstreams)), upstreams))):
        if (wanted.after is None or place > wanted.after) and wanted.takes(session):
            found.append((place, session))
            if len(found) > limit:
                last, _ = found[limit - 1]
                return [session for _, session in found[:limit]], "_".join(map(str, last))
    return [session for _, session in found], None


def _newest_first(nth: int, upstream: Upstream) -> Iterator[tuple[Place, Session]]:
    """One upstream's sessions and their places in the listing."""
    for number in reversed(list(upstream.numbered)):
        session = upstream.numbered.get(number)
        if session is not None:
            yield (-round(session.opened_at * 1e6), nth, -number), session


def after(token: str) -> Place:
    """The place that a token stands for. Raises ValueError for one that was never given."""
    try:
        opened, nth, number = (int(part) for part in token[:64].split("_"))
    except ValueError as error:
        raise ValueError("not a token of this listing") from error
    return opened, nth, number


async def find(upstreams: list[Upstream], session_id: str) -> list[Session]:
    """The sessions of this id, raw or hashed: one on each upstream that knows it."""
    raw = session_id.encode("utf-8", "surrogateescape")
    direct = [upstream.sessions[raw] for upstream in upstreams if raw in upstream.sessions]
    matches = of_hash(session_id)
    if direct or matches is None:
        return direct
    found = []
    for upstream in upstreams:
        async for key in _in_slices(list(upstream.sessions)):
            if matches(key) and (session := upstream.sessions.get(key)) is not None:
                found.append(session)
    return found


async def _in_slices(items: Iterable[_T]) -> AsyncIterator[_T]:
    """The items, with a turn of the event loop after each slice of them."""
    for place, item in enumerate(items, 1):
        yield item
        if place % _SLICE == 0:
            await asyncio.sleep(0)
