"""`annotate`: one comment line where the stream is wrong, and not a byte more or less anywhere else."""

from __future__ import annotations

from tests.scenarios.frames import event
from tests.scenarios.lab import Lab


async def test_a_fork_is_annotated_before_the_frame_that_proves_it(lab: Lab) -> None:
    """The line stands directly before the deciding frame and names the verdict and the cursor."""
    lab.path = "/annotate"
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 6)))
    resumed = await lab.resume("5", event(1, "e2-1"), event(2, "e2-2"))
    line, _, rest = resumed.body.partition(b"\n")
    assert line.startswith(b": forkwatch verdict=fork reason=log_restarted certainty=proven cursor=5 got=1 ")
    assert rest == resumed.sent
    assert await lab.counters.grown("policy_actions_total", action="annotate") == 1


async def test_a_frame_half_sent_is_annotated_before_its_blank_line(lab: Lab) -> None:
    """Bytes that the client has already cannot be preceded: the comment stands inside the frame."""
    lab.path = "/annotate"
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 6)))
    frame = event(1, "e2-1")
    resumed = await lab.resume("5", frame[:12], frame[12:])
    lines = resumed.body.split(b"\n")
    (place,) = [place for place, line in enumerate(lines) if line.startswith(b": forkwatch verdict=fork ")]
    assert lines[place + 1] == b""
    assert b"\n".join(lines[:place] + lines[place + 1 :]) == frame


async def test_an_end_that_decides_is_preceded_by_the_annotation(lab: Lab) -> None:
    """Nothing was replayed and the stream ends: the client can still read why."""
    lab.path = "/annotate"
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 8)))
    resumed = await lab.resume("5")
    await resumed.end()
    assert resumed.body.startswith(b": forkwatch verdict=gap reason=nothing_replayed ")
    assert (resumed.plain(), resumed.ended) == (b"", "clean")


async def test_a_healthy_replay_is_not_annotated(lab: Lab) -> None:
    """The outstanding events and a new one pass as they came."""
    lab.path = "/annotate"
    await lab.initialize()
    await lab.relay(*(event(n) for n in range(1, 6)))
    resumed = await lab.resume("3", *(event(n) for n in (4, 5, 6)))
    assert resumed.body == resumed.sent
    await lab.judged("resumed", "replayed", "proven")
