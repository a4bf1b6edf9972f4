"""Finding sessions among many without holding up the streams: a few at a time, newest first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TypeVar

from proxy.admin.views import state_of
from proxy.engine.findings import Verdict
from proxy.engine.ledger import Session, Upstream
from proxy.engine.privacy import of_hash

_T = TypeVar("_T")

_SLICE = 500
"""Sessions looked at in one turn of the loop: well under a millisecond."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sessions are listed; None asks nothing. `after` is the place of the last one seen."""

    state: str | None = None
    verdict: Verdict | None = None
    after: tuple[int, int] | None = None

    def takes(self, session: Session) -> bool:
        """Whether the session is one of them."""
        return (self.state is None or state_of(session) == self.state) and (
            self.verdict is None or self.verdict in session.timeline.verdicts
        )


async def page(upstreams: list[Upstream], wanted: Wanted, limit: int) -> tuple[list[Session], str | None]:
    """Up to `limit` sessions, newest first, upstream by upstream, and the token of the next page if there is one."""
    found: list[tuple[tuple[int, int], Session]] = []
    for place, upstream in enumerate(upstreams):
        if wanted.after is not None and place < wanted.after[0]:
            continue
        before = wanted.after[1] if wanted.after is not None and place == wanted.after[0] else None
        numbers = reversed(list(upstream.numbered))
        async for number in _in_slices(n for n in numbers if before is None or n < before):
            session = upstream.numbered.get(number)
            if session is not None and wanted.takes(session):
                found.append(((place, number), session))
                if len(found) > limit:
                    (last, _) = found[limit - 1]
                    return [session for _, session in found[:limit]], f"{last[0]}-{last[1]}"
    return [session for _, session in found], None


def after(token: str) -> tuple[int, int]:
    """The place that a token stands for. Raises ValueError for one that was never given."""
    place, separator, number = token.partition("-")
    if not (separator and place.isdecimal() and number.isdecimal()):
        raise ValueError("not a token of this listing")
    return int(place), int(number)


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
