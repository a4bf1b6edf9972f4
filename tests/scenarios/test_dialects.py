"""The rules of continuity in every dialect of event ids, with both line ends that servers use."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.scenarios.dialects import DIALECTS, Dialect, csharp
from tests.scenarios.exchange import Exchange
from tests.scenarios.frames import CRLF, KEEP_ALIVE, LF, event
from tests.scenarios.lab import Lab

UNVERIFIABLE = ("unverifiable", {"opaque_ids"}, None)


def dialects(*, leave_out: str = "") -> pytest.MarkDecorator:
    """All dialects but those named, each with LF and with CRLF."""
    chosen = [dialect for dialect in DIALECTS if dialect.name not in leave_out.split()]
    cases = [
        pytest.param(dialect, end, id=f"{dialect.name}-{'crlf' if end == CRLF else 'lf'}")
        for dialect in chosen
        for end in (LF, CRLF)
    ]
    return pytest.mark.parametrize(("dialect", "end"), cases)


@dataclass
class Numbered:
    """A stream of one session whose events are numbered in a dialect."""

    lab: Lab
    dialect: Dialect
    end: str
    stream: str = ""

    async def relay(self, first: int, last: int) -> None:
        """The stream shows the events from `first` to `last` and loses its connection."""
        self.lab.path = self.dialect.path
        await self.lab.initialize()
        self.stream = self.dialect.streams[0]
        self.shown = {n: self.id(n) for n in range(first, last + 1)}
        frames = [event(self.shown[n], self.text(n), self.end) for n in self.shown]
        await self.lab.relay(*frames, request=10 if self.dialect.over_post else None)

    def id(self, n: int) -> str:
        """An id for the n-th event; a new one each time where ids never repeat."""
        return self.dialect.make(self.lab.session, self.stream, n)

    def text(self, n: int) -> str:
        """What the n-th event says."""
        return f"{self.lab.session} {n}"

    def event(self, n: int, text: str | None = None) -> bytes:
        """The n-th event, or another one under its number."""
        return event(self.id(n), self.text(n) if text is None else text, self.end)

    async def resume(self, after: int, *frames: bytes) -> Exchange:
        """Resume after the n-th event, as it was shown."""
        return await self.lab.resume(self.shown[after], *frames)


@dialects()
async def test_a_complete_replay_is_resumed(lab: Lab, dialect: Dialect, end: str) -> None:
    """All outstanding events come, then a new one."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 7)
    first = 5 if dialect.replays_cursor else 6
    await log.resume(5, *(log.event(n) for n in range(first, 9)))
    await lab.judged("resumed", "replayed", "proven" if dialect.repeats else None)
    assert await lab.counters.grown("events_lost_total") == 0


@dialects()
async def test_a_quiet_stream_with_nothing_outstanding_is_idle(lab: Lab, dialect: Dialect, end: str) -> None:
    """Keep-alives alone, and the client leaves."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 7)
    await (await log.resume(7, KEEP_ALIVE, KEEP_ALIVE)).leave()
    await lab.judged("resumed", "idle")


@dialects()
async def test_the_next_event_continues(lab: Lab, dialect: Dialect, end: str) -> None:
    """With nothing outstanding the successor continues; an opaque id cannot show that it is one."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 7)
    await log.resume(7, log.event(8))
    if dialect.kind == "opaque":
        await lab.judged(*UNVERIFIABLE)
    else:
        await lab.judged("resumed", "continued")


@dialects(leave_out="typescript mcp-proxy redis")
async def test_a_log_that_begins_anew_is_a_fork(lab: Lab, dialect: Dialect, end: str) -> None:
    """The number one, never shown here, answers a cursor above a hundred; opaque ids cannot tell."""
    log = Numbered(lab, dialect, end)
    await log.relay(101, 107)
    await log.resume(107, log.event(1, "reborn"))
    if dialect.kind == "opaque":
        await lab.judged(*UNVERIFIABLE)
    else:
        await lab.judged("fork", {"log_restarted", "id_regressed"}, "proven")


@dialects()
async def test_a_lower_id_is_a_fork(lab: Lab, dialect: Dialect, end: str) -> None:
    """An id below the cursor that was never shown here: certain by a counter, suspected by a clock."""
    log = Numbered(lab, dialect, end)
    await log.relay(101, 107)
    await log.resume(107, log.event(50, "reborn"))
    if dialect.kind == "opaque":
        await lab.judged(*UNVERIFIABLE)
    elif dialect.kind == "timed":
        await lab.judged("fork", {"id_regressed", "log_restarted"}, "suspected")
    else:
        await lab.judged("fork", "id_regressed", "proven")


@dialects(leave_out="encrypted")
async def test_another_payload_under_an_outstanding_id_is_a_fork(
    lab: Lab, dialect: Dialect, end: str
) -> None:
    """The reborn log has overtaken the cursor: the numbers look perfect, the content does not."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 7)
    await log.resume(5, log.event(6, "reborn"))
    await lab.judged("fork", "content_diverged", "proven")


@dialects(leave_out="encrypted")
async def test_another_payload_under_a_consumed_id_is_a_fork(lab: Lab, dialect: Dialect, end: str) -> None:
    """The reborn log is still behind the cursor and repeats ids that stood for something else."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 7)
    await log.resume(7, log.event(2, "reborn"))
    await lab.judged("fork", "log_restarted", "proven")


@dialects(leave_out="encrypted")
async def test_a_replay_that_skips_outstanding_events_is_a_gap(lab: Lab, dialect: Dialect, end: str) -> None:
    """Two of the outstanding events do not come: suspected where a replay may lack order."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 9)
    await log.resume(5, *(log.event(n) for n in (8, 9, 10)))
    loose = dialect.late_backlog or dialect.kind == "timed"
    await lab.judged("gap", "successors_skipped", "suspected" if loose else "proven")
    assert await lab.counters.grown("events_lost_total") == 2


@dialects()
async def test_a_clean_end_with_events_outstanding_is_a_gap(lab: Lab, dialect: Dialect, end: str) -> None:
    """200, nothing, the end, while two events were outstanding."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 7)
    await (await log.resume(5)).end()
    await lab.judged("gap", "nothing_replayed", "proven" if dialect.repeats else None)


@dialects()
async def test_a_jump_with_nothing_outstanding_needs_contiguous_ids(
    lab: Lab, dialect: Dialect, end: str
) -> None:
    """Numbers without holes show a loss from the cursor alone; everywhere else holes are healthy."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 7)
    await log.resume(7, log.event(12))
    if dialect.kind == "contiguous":
        await lab.judged("gap", "forward_jump", "suspected" if dialect.late_backlog else "proven")
    elif dialect.kind == "opaque":
        await lab.judged(*UNVERIFIABLE)
    else:
        await lab.judged("resumed", "continued")


@dialects(leave_out="encrypted")
async def test_a_replay_from_the_cursor_itself_is_inclusive(lab: Lab, dialect: Dialect, end: str) -> None:
    """The cursor's own event comes again: a duplicate, but for a dialect that always begins with it."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 7)
    await log.resume(5, *(log.event(n) for n in range(5, 9)))
    if dialect.replays_cursor:
        await lab.judged("resumed", "replayed", "proven")
    else:
        await lab.judged("rewound", "inclusive", "proven")
        assert await lab.counters.grown("events_duplicated_total") == 1


@dialects(leave_out="encrypted")
async def test_a_replay_of_the_whole_log_is_rewound(lab: Lab, dialect: Dialect, end: str) -> None:
    """The server ignored the cursor and sent everything: duplicates, no fork."""
    log = Numbered(lab, dialect, end)
    await log.relay(1, 7)
    await log.resume(5, *(log.event(n) for n in range(1, 9)))
    await lab.judged("rewound", "cursor_ignored", "proven")


@pytest.mark.parametrize("dialect", [each for each in DIALECTS if each.tagged], ids=str)
async def test_an_event_that_names_another_stream_is_crossed(lab: Lab, dialect: Dialect) -> None:
    """The tag in the id is that of another stream of the session."""
    log = Numbered(lab, dialect, LF)
    await log.relay(1, 7)
    other = dialect.make(lab.session, dialect.streams[1], 8)
    await log.resume(7, event(other, "for somebody else"))
    await lab.judged("crossed", "other_stream", None if dialect.kind == "timed" else "proven")


async def test_an_event_that_names_another_session_is_crossed(lab: Lab) -> None:
    """Ids of the C# SDK carry the session: one of another session is out of place."""
    log = Numbered(lab, next(each for each in DIALECTS if each.make is csharp), LF)
    await log.relay(1, 7)
    await log.resume(7, event(csharp("somebody-else", "__get__", 8), "for somebody else"))
    await lab.judged("crossed", "other_session", "proven")


async def test_a_new_server_instance_is_a_new_epoch(lab: Lab) -> None:
    """Ids that name the instance of the server tell that another one answers."""
    dialect = next(each for each in DIALECTS if each.name == "instance")
    log = Numbered(lab, dialect, LF)
    await log.relay(1, 7)
    log.dialect = replace(dialect, make=lambda session, stream, n: f"another0inst-{n}")
    await log.resume(7, log.event(8))
    await lab.judged("fork", "epoch_changed")


async def test_an_epoch_tag_that_changes_is_a_fork(lab: Lab) -> None:
    """Ids configured as epoch:seq go on with the next number in another epoch."""
    lab.path = "/epoch"
    await lab.initialize()
    await lab.relay(event("7:41"), event("7:42"))
    await lab.resume("7:42", event("8:43"))
    await lab.judged("fork", "epoch_changed", "proven")
