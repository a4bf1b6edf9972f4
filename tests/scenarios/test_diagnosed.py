"""What must be diagnosed: reports from the field and the rules of continuity, reduced to bytes."""

from __future__ import annotations

from tests.scenarios.frames import KEEP_ALIVE, event, priming, result
from tests.scenarios.lab import Lab


def events(*numbers: int) -> list[bytes]:
    """The events of the log that the client first saw."""
    return [event(n) for n in numbers]


def reborn(*numbers: int) -> list[bytes]:
    """The events of another log under the same numbers."""
    return [event(n, f"e2-{n}") for n in numbers]


async def test_a_counter_that_restarts_under_an_adopted_session_is_a_fork(lab: Lab) -> None:
    """The cursor is 8412 and the stream goes on with 17, 18, 19."""
    await lab.initialize()
    await lab.relay(*events(*range(8408, 8413)))
    await lab.resume("8412", *reborn(17, 18, 19))
    await lab.judged("fork", {"id_regressed", "log_restarted"}, "proven")


async def test_one_fork_is_one_verdict_and_one_line_at_error(lab: Lab) -> None:
    """A fresh log from one answers the cursor 4821: five events of it are one fork."""
    await lab.initialize()
    await lab.relay(*events(1, 2, 3, 4, 5, 6, 4819, 4820, 4821))
    await lab.resume("4821", *reborn(1, 2, 3, 4, 5))
    await lab.judged("fork", {"log_restarted", "content_diverged", "id_regressed"}, "proven")
    (line,) = await lab.lines("resume.judged")
    assert (line["level"], str(line["cursor"]), line["certainty"]) == ("error", "4821", "proven")


async def test_a_reborn_counter_past_the_cursor_is_told_by_content(lab: Lab) -> None:
    """The numbers follow the cursor perfectly; what they stand for is not what was shown."""
    await lab.initialize()
    await lab.relay(*events(*range(1, 8)))
    await lab.resume("5", *reborn(6, 7, 8))
    await lab.judged("fork", "content_diverged", "proven")


async def test_a_jump_over_outstanding_events_is_a_gap(lab: Lab) -> None:
    """Two events were outstanding and a far number comes: both are lost."""
    await lab.initialize()
    await lab.relay(*events(*range(1, 8)))
    await lab.resume("5", *events(1001, 1002))
    await lab.judged("gap", {"successors_skipped", "forward_jump"}, "proven")
    assert await lab.counters.grown("events_lost_total") >= 2


async def test_an_accepted_resume_without_a_replay_is_overdue_then_a_gap(lab: Lab) -> None:
    """Keep-alives alone raise `replay_overdue` at the deadline; the next live event makes it a gap."""
    await lab.initialize()
    await lab.relay(*events(*range(1, 8)))
    resumed = await lab.resume("5", KEEP_ALIVE)
    await lab.counters.reached("findings_total", finding="replay_overdue")
    await resumed.send(*events(8))
    await lab.judged("gap", {"successors_skipped", "nothing_replayed"})
    assert await lab.counters.grown("findings_total", finding="replay_overdue") == 1


async def test_a_clean_end_before_the_replay_is_a_gap(lab: Lab) -> None:
    """200, no frame, a clean end, while events were outstanding."""
    await lab.initialize()
    await lab.relay(*events(*range(1, 8)))
    await (await lab.resume("5")).end()
    await lab.judged("gap", "nothing_replayed", "proven")


async def test_another_streams_events_are_crossed(lab: Lab) -> None:
    """A call's notification and its answer are replayed on the standalone stream."""
    await lab.initialize()
    standalone = await (await lab.get()).stream(*events(1, 2))
    call = await (await lab.call(10)).stream(event(3), result(4, 10))
    await call.end()
    await standalone.send(event(5))
    await standalone.abort()
    await lab.resume("1", event(2), event(3), result(4, 10), event(5))
    await lab.judged("crossed", "other_stream", "proven")


async def test_an_evicted_window_is_a_gap_and_no_fork(lab: Lab) -> None:
    """The buffer kept only the newest events: exactly two are lost."""
    await lab.initialize()
    await lab.relay(*events(*range(1, 10)))
    await lab.resume("5", *events(8, 9, 10))
    await lab.judged("gap", "successors_skipped", "proven")
    assert await lab.counters.grown("events_lost_total") == 2


async def test_a_session_served_again_after_delete_is_a_fork(lab: Lab) -> None:
    """The DELETE was answered with 2xx, and nobody initialized since."""
    await lab.initialize()
    await lab.relay(*events(*range(1, 6)))
    await (await lab.delete()).answer(204, [], None)
    await lab.resume("5", *reborn(1))
    await lab.judged("fork", "session_recycled", "proven")


async def test_a_message_without_an_id_on_a_numbered_stream_is_a_fork(lab: Lab) -> None:
    """Every message so far carried an id; continuity of this one cannot be shown."""
    await lab.initialize()
    await lab.relay(*events(1, 2, 3))
    await lab.resume("3", KEEP_ALIVE, event(None, "who am I"))
    await lab.judged("fork", "id_missing", "proven")


async def test_an_event_seen_in_another_session_is_crossed(lab: Lab) -> None:
    """Random ids are unique over the whole upstream: one that another session showed is not ours."""
    theirs = "5e2b1c1e-7d4c-4b0a-9f0e-1a2b3c4d5e6f"
    ours = ["0d3c6a52-51f5-4b6e-8a39-6f0f3b1d2c01", "7a9e4f10-2b1c-4a57-9d53-c8a1e0f4b702"]
    await lab.initialize()
    await lab.relay(event(theirs, "for the other session"))
    await lab.initialize()
    await lab.relay(*(event(each) for each in ours))
    await lab.resume(ours[1], event(theirs, "for the other session"))
    await lab.judged("crossed", "other_session", "proven")


async def test_a_fork_is_judged_once_and_the_new_log_is_followed(lab: Lab) -> None:
    """After a fork the new log is the next epoch: a resume within it is healthy."""
    await lab.initialize()
    await lab.relay(*events(*range(101, 108)))
    forked = await lab.resume("107", *reborn(1, 2, 3))
    await lab.judged("fork", {"log_restarted", "id_regressed"}, "proven")
    await forked.abort()
    await lab.resume("2", *reborn(3, 4))
    given = await lab.counters.settled()
    assert given.pop(("resumed", "replayed", "proven")) == 1
    assert list(given.values()) == [1]


async def test_another_streams_primer_replayed_as_an_empty_object_decides_nothing(lab: Lab) -> None:
    """A server that replays all streams sends a call's primer as {}, then its answer: that is crossed."""
    ours, primer, answer = "8f1c0a5e-0000-4000-8000-000000000001", "primer-of-call-2", "answer-of-call-2"
    await lab.initialize(version="2025-11-25")
    await lab.relay(priming("primer-of-call-1"), event(ours), request=1)
    call = await (await lab.call(2)).stream(priming(primer), result(answer, 2))
    await call.end()
    await lab.resume(ours, f"id: {primer}\ndata: {{}}\n\n".encode(), result(answer, 2))
    await lab.judged("crossed", "other_stream", "proven")
