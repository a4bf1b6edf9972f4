"""What forkwatch judges and does with a middlebox in the way, in the words of a cell of docs/proxies.md."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.between.crossing import Crossing, Route
from tests.between.streams import arrived_or_over
from tests.forkwatch_process import POLL_S
from tests.scenarios.exchange import STEP_TIMEOUT_S
from tests.scenarios.frames import event

TRIES = 40
"""How often a balancer that chooses by chance may choose the same replica."""

ADDED_ON_THE_WAY = {
    "connection",
    "transfer-encoding",
    "content-length",
    "date",
    "server",
    "x-accel-buffering",
}
"""What each hop sets for itself, nginx takes the last away."""


async def _resumed(route: Route) -> tuple[Crossing, str]:
    """A resume that gets what it missed, from whichever server, up to 4; and its verdict."""
    stream = await (await route.listen()).open()
    await stream.offer(event(1), event(2), event(3))
    await stream.end()
    stream = await (await route.listen("2")).open()
    await stream.offer(event(3), event(4))
    await stream.end()
    return stream, f"`{(await _judged(route))['verdict']}`"


async def _forked(route: Route, stream: Crossing) -> dict[str, Any]:
    """The second verdict, on a resume that gets a log that begins anew: a proven one."""
    await stream.open()
    await stream.offer(event(1, "other"))
    await stream.end()
    line = await _judged(route, number=2)
    assert line["certainty"] == "proven"
    return line


async def _judged(route: Route, number: int = 1) -> dict[str, Any]:
    """The verdict on the session's first resume, or a later one; those the test broke off do not count."""
    async with asyncio.timeout(STEP_TIMEOUT_S):
        while True:
            lines = await route.lines("resume.judged")
            judged = [line for line in lines if line["verdict"] != "inconclusive"]
            if len(judged) >= number:
                return judged[number - 1]
            await asyncio.sleep(POLL_S)


async def verdicts(route: Route) -> str:
    """The verdicts on a resume with the same log, and on one with another."""
    _, healthy = await _resumed(route)
    line = await _forked(route, await route.listen("4"))
    return f"{healthy}; `{line['verdict']}`"


async def verdicts_on_replicas(route: Route) -> str:
    """The same where the second is given to the other replica, and how the two are named."""
    before, healthy = await _resumed(route)
    stream = await route.listen("4")
    for _ in range(TRIES):
        if stream.served_by != before.served_by:
            break
        await stream.leave()
        stream = await route.listen("4")
    line = await _forked(route, stream)
    found = (line["previous_replica"], line["replica"])
    named = found == tuple(route.names[each.served_by] for each in (before, stream))
    assert named or found[0] == found[1]
    return f"{healthy}; `{line['verdict']}`, {'each named' if named else 'one name'}"


async def resume_without_an_answer(route: Route) -> str:
    """What becomes of a resume when a replica takes it, and ends the connection instead of answering."""
    served: set[int] = set()
    for _ in range(TRIES):  # until there was a connection to each, which may be kept
        request = await route.listen()
        await request.answer(200, [])
        served.add(request.served_by)
        if served == set(route.servers.ports):
            break
    resumed = await route.listen("3")
    before = resumed.served_by
    resumed.upstream.writer.close()
    again = await arrived_or_over(route, resumed)
    if not again:
        return f"`{resumed.status}`"
    await resumed.answer(200, [])
    return "asks it again" if resumed.served_by == before else "asks the other"


async def _cut(route: Route) -> list[object]:
    """A cut and a request after it, as the client gets them: all but what may change on the way."""
    call = await (await route.ask(10)).open()
    await call.offer(event(1), event(2), event(3))
    await call.die()
    standalone = await (await route.listen()).open()
    stream = await (await route.listen("3")).open()
    await stream.offer(event(1, "other"))
    await stream.over()
    await standalone.over()
    refused = await route.ask(11, reaches=False)
    await refused.over()
    (error,) = stream.events()
    told = error["error"]["data"]["forkwatch"]["session"].encode()
    return [
        (each.status, each.ended, _own(each), each.body.replace(told, b"SESSION"))
        for each in (stream, standalone, refused)
    ]


def _own(crossing: Crossing) -> list[tuple[str, str]]:
    return sorted(
        (name.lower(), value) for name, value in crossing.headers if name.lower() not in ADDED_ON_THE_WAY
    )


async def cut(route: Route) -> str:
    """Whether what `enforce` sends is the same behind the middlebox as at forkwatch itself."""
    direct = Route(route.proxy, route.servers, route.counters, route.proxy.port, route.name)
    direct.path = route.path = f"/{route.name}-cut"
    await direct.initialize()
    try:
        wanted = await _cut(direct)
        await route.initialize()
        found = await _cut(route)
    finally:
        await direct.close()
    assert found == wanted
    return "unchanged"
