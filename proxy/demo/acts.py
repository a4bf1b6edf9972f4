"""What happens in the demo: the same call, broken and resumed, on the same replica and on another one.

The two acts differ in one thing only, where the balancer sends the resume. Each step waits for a sign that
the one before it is over, so the same comes out every time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from proxy.demo.children import DemoFailed, Line
from proxy.demo.customer import Answer, Customer, visit
from proxy.demo.network import Attachment
from proxy.demo.stage import Judged, Replica, Stage

STEPS = 3
PASSING = 1
"""So many of the messages reach the client before the network drops its stream."""
OTHER_STEPS = 11
"""Of another customer's call on the other replica: enough to bring its log past the cursor."""


@dataclass(frozen=True, slots=True)
class Resume:
    """One broken call, from all sides. `counted` is what the proxy's verdict counters grew by."""

    customer: str
    replica: Replica
    call: Attachment
    resumed: list[Attachment]
    answer: Answer
    answered_s: float
    """Seconds from when the resume was let through until the client had its answer."""
    judged: Line
    counted: dict[Judged, int]
    before: int
    """Verdicts of the kind that was given, before this resume."""

    @property
    def verdict(self) -> Judged:
        """What the proxy's log says of it."""
        return self.judged["verdict"], self.judged["reason"], self.judged["certainty"]

    @property
    def wrong(self) -> bool:
        """Whether the client took something for its answer that is not."""
        return not self.answer.failed and not self.answer.text.startswith(f"{self.customer} has ")


async def settle(stage: Stage) -> None:
    """Return once a new customer's session is complete, its standalone stream included."""
    await stage.forkwatch.child.wait_for("stream.opened", kind="get")


async def broken_call(stage: Stage, customer: Customer, resume_at: Replica) -> Resume:
    """Make a call that starts on replica A, lose its stream, and let the resume go to `resume_at`.

    Raises DemoFailed if a step does not happen.
    """
    lost = asyncio.Event()

    def on_lost() -> None:
        stage.balancer.hold()
        lost.set()

    before = await stage.forkwatch.verdicts()
    stage.balancer.point_at(stage.a.port)
    customer.network.lose_after(PASSING, on_lost)
    call = asyncio.create_task(customer.ask(STEPS))
    try:
        await _happens(lost, call)
        await stage.a.child.wait_for("cut")  # A knows that the client is gone, …
        stage.a.go_on()
        await stage.a.child.wait_for("answered")  # … and has gone on without it
        stage.balancer.point_at(resume_at.port)
        let_through = asyncio.get_running_loop().time()
        answer = await call
        answered_s = asyncio.get_running_loop().time() - let_through
        judged = await stage.forkwatch.child.wait_for("resume.judged")
    finally:
        call.cancel()
    after = await stage.forkwatch.verdicts()
    kind: Judged = judged["verdict"], judged["reason"], judged["certainty"]
    first, *later = customer.network.attachments
    return Resume(
        customer=customer.name,
        replica=resume_at,
        call=first,
        resumed=[one for one in later if one.cursor is not None],  # the SDK lists the tools, too
        answer=answer,
        answered_s=answered_s,
        judged=judged,
        counted={key: n - before.get(key, 0) for key, n in after.items() if n != before.get(key, 0)},
        before=before.get(kind, 0),
    )


async def other_customer(stage: Stage, name: str) -> Answer:
    """A whole session of another customer on replica B, which leaves its events in B's log."""
    stage.balancer.point_at(stage.b.port)
    async with visit(name, stage.forkwatch.url) as customer:
        await settle(stage)
        stage.b.go_on()
        answer = await customer.ask(OTHER_STEPS)
    stage.balancer.point_at(stage.a.port)
    return answer


async def _happens(lost: asyncio.Event, call: asyncio.Task[Answer]) -> None:
    """Return once the stream is lost; raise DemoFailed if the call is over first."""
    waiting = asyncio.create_task(lost.wait())
    done, _ = await asyncio.wait({waiting, call}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if call in done and not lost.is_set():
        raise DemoFailed(f"the call was over before its stream could be lost: {call.result().text}")
