"""What becomes of streams and headers at a middlebox, in the words of a cell of docs/proxies.md."""

from __future__ import annotations

import asyncio
import statistics
import time

from tests.between.crossing import CLIENT, HOST, PROXY, Crossing, Route
from tests.forkwatch_process import Counters
from tests.scenarios.exchange import Headers, one
from tests.scenarios.frames import event

AT_ONCE_S = 0.1
HELD_S = 1.0
"""After so long an event that has not come is taken to be held."""
EVENTS = 3
HEADER_KIB = (3, 6, 12, 24, 48)
SHORT_SILENCE_S = 1.2
"""More than twice the limit of the hasty middleboxes."""
NO_BUFFERING = ("X-Accel-Buffering", "no")
ENDS = {"clean": "clean end", "abort": "broken off"}


async def delay_of_an_event(route: Route, *extra: tuple[str, str]) -> str:
    """How long an event is on its way, in chunks or in a body that ends with its connection."""
    words = [await _delay(await (await route.listen()).open(*extra, chunked=each)) for each in (True, False)]
    return words[0] if words[0] == words[1] else f"{words[0]} in chunks, else {words[1]}"


async def _delay(stream: Crossing) -> str:
    """How long an event is on its way, when each is sent after the one before it has arrived."""
    delays = []
    for number in range(1, EVENTS + 1):
        began = time.monotonic()
        await stream.offer(event(number))
        if not await stream.has(len(stream.sent), HELD_S):
            await stream.end()
            assert stream.body == stream.sent
            return "held to the end"
        delays.append(time.monotonic() - began)
    await stream.end()
    if (usual := statistics.median(delays)) < AT_ONCE_S:
        return "at once"
    assert 0.15 < usual < 0.35, delays
    return "0.2 s late"


async def delay_of_an_unbuffered_event(route: Route) -> str:
    """The same, of a server that asks not to be buffered."""
    return await delay_of_an_event(route, NO_BUFFERING)


async def _broken_call(route: Route, *, reset: bool) -> tuple[str, str]:
    """A call whose server dies in mid-stream, by FIN or RST: the end at the client, and the cause counted."""
    route.counters = await Counters.since_now(route.proxy)
    call = await (await route.ask(10)).open(NO_BUFFERING)
    await call.offer(event(1), event(2))
    assert await call.has(len(call.sent), HELD_S)
    await call.die(reset=reset)
    assert call.body == call.sent
    return ENDS[str(call.ended)], await route.closed("post")


async def end_of_a_broken_call(route: Route) -> str:
    """How a call ends for the client when the server dies, in whichever way; forkwatch is not deceived."""
    (end, cause), by_reset = await _broken_call(route, reset=False), await _broken_call(route, reset=True)
    assert (cause, by_reset) == ("upstream_reset", (end, cause))
    return end


async def end_and_cause_of_a_broken_call(route: Route) -> str:
    """How a call ends for the client when a replica dies, and what forkwatch takes it for."""
    found = [await _broken_call(route, reset=reset) for reset in (False, True)]
    by_fin, by_reset = (f"{end}, `{cause}`" for end, cause in found)
    return by_fin if by_fin == by_reset else f"{by_fin}; by RST {by_reset}"


async def news_of_a_client_that_left(route: Route) -> str:
    """When the server of a silent stream learns that the client has left."""
    stream = await (await route.listen()).open(NO_BUFFERING)
    await stream.offer(event(1))
    await stream.has(len(stream.sent), HELD_S)
    stream.task.cancel()
    stream.writer.close()
    try:
        await asyncio.wait_for(stream.upstream.gone.wait(), HELD_S)
    except TimeoutError:
        return "not while silent"
    return "at once"


async def _arrived(route: Route) -> Headers:
    """The headers of a request as the server gets them."""
    request = await route.request("GET", [])
    await request.answer(200, [])
    return request.upstream.headers


async def host_and_forwarded_for(route: Route) -> str:
    """Whose Host the server gets, and whose the addresses in its `X-Forwarded-For` are."""
    headers = await _arrived(route)
    host = "client's" if one(headers, "Host") == HOST else "configured"
    lines = [value for name, value in headers if name.lower() == "x-forwarded-for"]
    whose = {CLIENT: "client", PROXY: "last proxy"}
    return f"{host}; " + ", ".join(whose[each] for each in ", ".join(lines).split(", "))


async def largest_headers(route: Route) -> str:
    """The largest header line of a request and of a response, each with what comes of a larger one."""
    return f"{await _largest_request_header(route)}; {await _largest_response_header(route)}"


async def _largest_request_header(route: Route) -> str:
    for before, size in zip((0, *HEADER_KIB), HEADER_KIB, strict=False):
        reply = await route.request("GET", [("X-Large", "x" * 1024 * size)], reaches=False)
        if not await arrived_or_over(route, reply):
            return f"{before} KiB (`{reply.status}`)"
        await reply.answer(200, [])
    return f"{HEADER_KIB[-1]} KiB"


async def _largest_response_header(route: Route) -> str:
    for before, size in zip((0, *HEADER_KIB), HEADER_KIB, strict=False):
        reply = await route.request("GET", [])
        await reply.answer(200, [("X-Large", "x" * 1024 * size)])
        if reply.status != 200:
            return f"{before} KiB (`{reply.status}`)"
    return f"{HEADER_KIB[-1]} KiB"


async def arrived_or_over(route: Route, request: Crossing) -> bool:
    """Whether a request reaches a server, which then is its upstream, before its client has an answer."""
    arrival = asyncio.create_task(route.upstream.waiting.get())
    over = asyncio.create_task(request.over())
    await asyncio.wait([arrival, over], return_when=asyncio.FIRST_COMPLETED)
    if over.done():
        arrival.cancel()
        return False
    over.cancel()
    request.arrived = await arrival
    return True


async def end_after_silence(route: Route) -> str:
    """What becomes of a stream that is silent for longer than a limit, and what forkwatch takes it for."""
    stream = await (await route.listen()).open(NO_BUFFERING)
    await stream.offer(event(1))
    await stream.has(len(stream.sent), HELD_S)
    try:
        async with asyncio.timeout(SHORT_SILENCE_S):
            await stream.over()
    except TimeoutError:
        await stream.offer(event(2))
        assert await stream.has(len(stream.sent), HELD_S)
        return "lives on"
    return f"{ENDS[str(stream.ended)]}, `{await route.closed('get')}`"
