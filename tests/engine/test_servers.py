"""Server by server: a healthy resume raises nothing, and the failure the server is known for is named.

A script plays what that version of the server sends, read in its source or measured; the row says what the
engine makes of it, as `verdict/reason certainty`.
"""

from __future__ import annotations

import base64
import itertools
import uuid
from collections.abc import Callable
from typing import NamedTuple

import pytest

from proxy.engine.findings import Ending
from proxy.engine.heads import Answer
from tests.engine.drive import (
    DEADLINE_S,
    Connection,
    Drive,
    crlf,
    event,
    frame,
    priming,
    reserialised,
    result,
)

ALARMS = ("fork", "gap", "crossed", "rewound")
FOREVER_S = 10 * DEADLINE_S
CLOCK_MS = 1_795_973_200_000


class Row(NamedTuple):
    """One server's behaviour and what is said about it."""

    server: str
    what: str
    script: Callable[[Drive], object]
    verdicts: tuple[str, ...]
    findings: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing may be raised."""
        return not any(verdict.startswith(ALARMS) for verdict in self.verdicts)


ROWS: list[Row] = []


def server(
    name: str, what: str, *verdicts: str, findings: tuple[str, ...] = ()
) -> Callable[[Callable[[Drive], object]], Callable[[Drive], object]]:
    """Add a script to the table."""

    def add(script: Callable[[Drive], object]) -> Callable[[Drive], object]:
        ROWS.append(Row(name, what, script, verdicts, findings))
        return script

    return add


def uid(*parts: object) -> str:
    """A random-looking id that is the same each time."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(map(str, parts))))


def events(form: str, first: int, last: int) -> tuple[bytes, ...]:
    """Events whose ids are made by putting the number into `form`."""
    return tuple(event(form.format(n), f"message {n}") for n in range(first, last + 1))


def ts(stream: str, ms: int, tail: str) -> str:
    """An id of the TypeScript example store."""
    return f"{stream}_{CLOCK_MS + ms}_{tail}"


# ---- TypeScript

GET_TS = [ts("_GET_stream", 10 * n, f"k{n}idsq0d") for n in range(9)]
POST_TS = [ts(uid("post"), 10 * n, f"m{n}ua3dbg") for n in range(9)]


@server("typescript 1.32.2", "a call resumed from its primer, then its response", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.call(7).send(priming(POST_TS[0], 1000), event(POST_TS[1])).drop()
    drive.get(POST_TS[0]).send(event(POST_TS[1]), result(POST_TS[2], 7)).end()


@server("typescript 1.32.2", "a burst within a millisecond comes in another order", "resumed/replayed proven")
def _(drive: Drive) -> None:
    burst = [ts(uid("post"), 5, tail) for tail in ("zz9", "b1k", "q7a", "a00")]
    drive.call(7).send(priming(POST_TS[0]), *map(event, burst)).drop()
    drive.get(POST_TS[0]).send(*map(event, sorted(burst)), result(POST_TS[2], 7))


@server("typescript 1.32.2", "the standalone stream resumes open and dead", "gap/nothing_replayed suspected",
        findings=("replay_overdue",))  # fmt: skip
def _(drive: Drive) -> None:
    drive.show(*map(event, GET_TS[:5]))
    drive.get(GET_TS[2])
    drive.pass_time(FOREVER_S)


@server("typescript 1.29.0", "what a call emitted meanwhile is lost unseen", "resumed/idle suspected")
def _(drive: Drive) -> None:
    drive.call(7).send(priming(POST_TS[0])).drop()
    drive.get(POST_TS[0]).end(Ending.CLIENT_LEFT)


@server("typescript 2.4.0", "a finished call is replayed and closed", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.call(7).send(priming(POST_TS[0]), event(POST_TS[1]), result(POST_TS[2], 7)).drop()
    drive.get(POST_TS[0]).send(event(POST_TS[1]), result(POST_TS[2], 7)).end()


@server("typescript 2.4.0", "the standalone stream resumes empty and closed", "gap/nothing_replayed proven")
def _(drive: Drive) -> None:
    drive.show(*map(event, GET_TS[:5]))
    drive.get(GET_TS[2]).end()


@server("server-everything 2026.8.31", "the standalone stream alone", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*(event(uid(n)) for n in range(4)))
    drive.get(uid(1)).send(event(uid(2)), event(uid(3)))


@server("server-everything 2026.8.31", "another call's response is replayed", "crossed/other_stream proven")
def _(drive: Drive) -> None:
    get = drive.get().send(event(uid("g", 1)))
    drive.call(7).send(result(uid("a", 1), 7)).end()
    get.drop()
    drive.get(uid("g", 1)).send(result(uid("a", 1), 7))


def proxied(ms: int, counter: str, stream: str = "_GET_stream") -> str:
    """An id of npm mcp-proxy."""
    return f"{stream}_{CLOCK_MS + ms}_{counter}_j8i"


@server("mcp-proxy 6.7.19", "replay and then live", "resumed/replayed proven")
def _(drive: Drive) -> None:
    ids = [proxied(ms, f"000{n}") for ms in (1, 2) for n in range(3)]
    drive.show(*map(event, ids[:5]))
    drive.get(ids[2]).send(*map(event, ids[3:]))


@server("mcp-proxy 6.7.19", "an evicted cursor", "refused/rejected proven")
def _(drive: Drive) -> None:
    drive.refuse(proxied(1, "0000"), 400)


@server("mcp-proxy 6.7.19", "the clock steps back", "fork/id_regressed suspected")
def _(drive: Drive) -> None:
    drive.show(*(event(proxied(ms, "0000")) for ms in (5000, 5001, 5002)))
    drive.get(proxied(5002, "0000")).send(event(proxied(1000, "0000"), "later"))


# ---- Python


@server("mcp 1.30.0", "replay, a new primer, live, with CRLF", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*(crlf(event(uid(n))) for n in range(4)))
    backlog = (event(uid(2)), event(uid(3)), priming(uid("primer"), 3000), event(uid(5)))
    drive.get(uid(1)).send(*map(crlf, backlog))


@server("mcp 1.30.0", "the newest cursor: only a primer, then live", "unverifiable/opaque_ids suspected")
def _(drive: Drive) -> None:
    drive.show(*(event(uid(n)) for n in range(4)))
    drive.get(uid(3)).send(priming(uid("primer")), event(uid(4)))


@server("mcp 1.30.0", "an evicted cursor gets 200 and nothing", "gap/nothing_replayed proven")
def _(drive: Drive) -> None:
    drive.show(*(event(uid(n)) for n in range(4)))
    drive.get(uid(1)).end()


@server("mcp 1.30.0", "another session's event is replayed", "crossed/other_session proven")
def _(drive: Drive) -> None:
    drive.initialize("s2")
    drive.show(event(uid("a", 1)))
    drive.show(event(uid("b", 1)), session="s2")
    drive.get(uid("a", 1)).send(event(uid("b", 1)))


@server("mcp 1.30.0 without a store", "any cursor", "refused/upstream_error proven")
def _(drive: Drive) -> None:
    drive.refuse("abc", 500)


@server("mcp 2.3.0 sse_polling", "one counter for all sessions leaves holes", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.initialize("s2")
    drive.show(event(1), event(2), event(5))
    drive.show(event(3), event(4), event(6), session="s2")
    drive.get(5).send(priming(7), event(9))


@server("mcp 2.3.0 sse_polling", "another session's number is replayed", "crossed/other_session proven")
def _(drive: Drive) -> None:
    drive.initialize("s2")
    drive.show(event(1), event(2))
    drive.show(event(3), session="s2")
    drive.get(2).send(event(3))


@server("fastmcp 4.2.3", "the replay has explicit nulls", "resumed/replayed proven")
def _(drive: Drive) -> None:
    live = frame(uid(2), b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
    replayed = live.replace(b'changed"}', b'changed","params":null}')
    drive.show(event(uid(1)), live)
    drive.get(uid(1)).send(replayed, priming(uid(3)))


@server("fastmcp 3.4.3", "another session's event is replayed", "crossed/other_session proven")
def _(drive: Drive) -> None:
    drive.initialize("s2")
    drive.show(event(uid("a", 1)), event(uid("a", 2)))
    drive.show(event(uid("b", 1)), session="s2")
    drive.get(uid("a", 2)).send(event(uid("b", 1)))


# ---- Go

GO = "K5VQ3ZL7M2XJ4N6PBD3RTSWGFH"


@server("go-sdk 1.7.0", "a call resumed from its primer", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.call(7).send(f"event: prime\nid: {GO}_0\ndata: \n\n".encode(), event(f"{GO}_1")).drop()
    drive.get(f"{GO}_0").send(event(f"{GO}_1"), result(f"{GO}_2", 7)).end()


@server(
    "go-sdk 1.7.0",
    "a plain GET replays everything, then a resume",
    "resumed/continued proven",
    findings=("reconnect_without_cursor",),
)
def _(drive: Drive) -> None:
    drive.show(*events("_{}", 0, 5))
    drive.show(*events("_{}", 0, 6))
    drive.get("_6").send(*events("_{}", 7, 7))


@server("go-sdk 1.7.0", "a cursor beyond the head is adopted", "unverifiable/no_baseline suspected",
        findings=("cursor_not_validated",))  # fmt: skip
def _(drive: Drive) -> None:
    drive.show(*events("_{}", 0, 1))
    drive.get("_999").send(*events("_{}", 1000, 1000))


@server("go-sdk 1.7.0", "a purged stream", "refused/rejected proven")
def _(drive: Drive) -> None:
    drive.show(*events("_{}", 0, 1))
    drive.refuse("_0", 400)


@server("go-sdk 1.7.0", "an adopted index leaves a hole", "gap/forward_jump proven")
def _(drive: Drive) -> None:
    drive.show(*events("_{}", 0, 4))
    drive.get("_4").send(*events("_{}", 9, 9))


@server("mcp-go 0.57.0", "one counter for all sessions", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(event(3), event(8), event(9))
    drive.get(3).send(event(8), event(9), event(14))


@server("mcp-go 0.57.0", "a purged cursor", "refused/rejected proven")
def _(drive: Drive) -> None:
    drive.refuse(3, 400)


@server("mcp-go 1.0.0-beta.1", "restarted: any session id is good, the counter is reborn",
        "fork/content_diverged proven")  # fmt: skip
def _(drive: Drive) -> None:
    drive.show(*events("{}", 1, 7))
    drive.get(5).send(event(6, "reborn"))


@server("mcp-go 1.0.0-beta.1", "restarted and still behind the cursor", "fork/log_restarted proven")
def _(drive: Drive) -> None:
    drive.show(*events("{}", 41, 43))
    drive.get(43).send(event(1, "reborn"))


# ---- Rust


@server("rmcp 3.1.4", "the replay begins with the cursor", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.call(7).send(priming("0/3", 3000), event("0/3"), event("1/3"), event("2/3")).drop()
    drive.get("1/3").send(event("1/3"), event("2/3"), result("3/3", 7)).end()


@server("rmcp 3.1.4", "the standalone stream primes with 0, and begins with 0", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.show(priming(0, 3000), event(0), event(1), event(2))
    drive.get(2).send(event(2), event(3))


@server(
    "rmcp 3.1.4",
    "a plain GET replays the cache",
    "resumed/continued proven",
    findings=("reconnect_without_cursor",),
)
def _(drive: Drive) -> None:
    drive.show(priming(0, 3000), *events("{}", 0, 20))
    drive.show(priming(0, 3000), *events("{}", 5, 21))
    drive.get(21).send(*events("{}", 21, 22))


@server("rmcp 1.8.0", "every stream is primed with 0", "unverifiable/ids_ambiguous suspected",
        "resumed/replayed proven")  # fmt: skip
def _(drive: Drive) -> None:
    drive.show(priming(0, 3000))
    drive.call(7).send(priming(0, 3000)).drop()
    drive.get(0).end()
    drive.call(8).send(priming(0, 3000), *events("{}/4", 0, 5)).drop()
    drive.get("4/4").send(*events("{}/4", 4, 5))


@server("rmcp 3.1.4", "the cache of 16 has moved on", "gap/successors_skipped proven")
def _(drive: Drive) -> None:
    drive.show(*events("{}", 0, 3), priming("0/1"), *events("{}", 4, 24))
    drive.get(3).send(*events("{}", 9, 24))


@server("rmcp 3.1.4 with session_store", "restored elsewhere: counters at 0", "fork/log_restarted proven")
def _(drive: Drive) -> None:
    drive.call(7).send(priming("0/3"), *events("{}/3", 0, 6)).drop()
    drive.get("6/3").send(event("0/3", "reborn"))


@server("rmcp 2.0", "an unknown cursor gets 200 and nothing", "gap/nothing_replayed proven")
def _(drive: Drive) -> None:
    drive.call(7).send(priming("0/3"), *events("{}/3", 0, 6)).drop()
    drive.get("4/3").end()


# ---- C#


def sharp(n: int, stream: str = "__get__", session: str = "s1") -> str:
    """An id of the C# SDK."""
    return ":".join([*(base64.b64encode(part.encode()).decode() for part in (session, stream)), str(n)])


@server("csharp-sdk 2.2.0", "primed, replayed, live", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(priming(sharp(1)), event(sharp(2)), event(sharp(3)))
    drive.get(sharp(1)).send(priming(sharp(1)), event(sharp(2)), event(sharp(3)), event(sharp(4)))


@server("csharp-sdk 2.2.0", "the reader and the live stream both deliver", "resumed/replayed proven",
        "resumed/continued proven")  # fmt: skip
def _(drive: Drive) -> None:
    live = drive.get().send(priming(sharp(1)), event(sharp(2)))
    first = drive.get(sharp(1)).send(event(sharp(2)))
    second = drive.get(sharp(2))
    live.send(event(sharp(3)))
    first.send(event(sharp(3)))
    second.send(event(sharp(4)))


@server("csharp-sdk 2.2.0", "another session's cursor", "refused/rejected proven")
def _(drive: Drive) -> None:
    drive.refuse(sharp(1, session="s2"), 400)


@server("csharp-sdk 2.2.0 migrated", "the writer begins at 1", "fork/log_restarted proven")
def _(drive: Drive) -> None:
    drive.show(*(event(sharp(n)) for n in range(1, 6)))
    drive.get(sharp(5)).send(event(sharp(1), "reborn"))


@server("csharp-sdk 2.2.0 migrated", "the reader waits until the counter has passed it",
        "gap/forward_jump proven")  # fmt: skip
def _(drive: Drive) -> None:
    drive.show(*(event(sharp(n)) for n in range(1, 6)))
    drive.get(sharp(5)).send(event(sharp(9)))


@server("csharp-sdk 2.2.0 migrated", "silent for ever", "gap/nothing_replayed suspected",
        findings=("replay_overdue",))  # fmt: skip
def _(drive: Drive) -> None:
    drive.show(*(event(sharp(n)) for n in range(1, 6)))
    drive.get(sharp(3))
    drive.pass_time(FOREVER_S)


# ---- JVM, Swift


def pair(n: int) -> str:
    """An id of the Java SDK."""
    return f"{uid('transport')}_{uid('event', n)}"


@server("java-sdk 2.0.1", "responses carry the session id as theirs", "unverifiable/ids_ambiguous suspected",
        findings=("id_reused",))  # fmt: skip
def _(drive: Drive) -> None:
    session = uid("session")
    drive.initialize(session)
    drive.call(1, session=session).send(result(session, 1, "a")).end()
    drive.call(2, session=session).send(result(session, 2, "b")).end()
    drive.get(session, session=session).end()


@server("java-sdk 2.0.1 WebFlux", "a cursor gets 200 and nothing", "gap/nothing_replayed proven")
def _(drive: Drive) -> None:
    drive.show(*(event(pair(n)) for n in range(3)))
    drive.get(pair(0)).end()


@server(
    "java-sdk 2.0.1 servlet", "a cursor hangs", "gap/nothing_replayed suspected", findings=("replay_overdue",)
)
def _(drive: Drive) -> None:
    drive.show(*(event(pair(n)) for n in range(3)))
    drive.get(pair(0))
    drive.pass_time(FOREVER_S)


def kotlin(n: int) -> str:
    """An id of the Kotlin conformance store."""
    return f"GET::{CLOCK_MS + n}_{uid(n)}"


@server("kotlin-sdk 0.14.0", "replays and closes", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(priming(kotlin(0)), b"data:\n\n", event(kotlin(1)), event(kotlin(2)))
    drive.get(kotlin(1)).send(b"data:\n\n", event(kotlin(2))).end()


@server("kotlin-sdk 0.14.0", "another stream's event", "crossed/other_stream suspected")
def _(drive: Drive) -> None:
    drive.show(event(kotlin(1)), event(kotlin(2)))
    drive.get(kotlin(2)).send(event(kotlin(3).replace("GET", "7"), "not yours"))


@server("swift-sdk 0.12", "one counter for all streams", "resumed/replayed proven")
def _(drive: Drive) -> None:
    get = drive.get().send(priming("_GET_stream_1"), event("_GET_stream_2"))
    drive.call(1).send(priming("1_3"), result("1_4", 1)).end()
    get.send(event("_GET_stream_5")).drop()
    drive.get("_GET_stream_2").send(event("_GET_stream_5"), priming("_GET_stream_6"), event("_GET_stream_9"))


@server("swift-sdk 0.12", "an unknown cursor, and a stream it thinks open", "refused/rejected proven",
        "refused/conflict proven")  # fmt: skip
def _(drive: Drive) -> None:
    drive.refuse("_GET_stream_77", 400)
    drive.refuse("_GET_stream_77", 409)


@server("swift-sdk 0.12", "a call's event on the standalone stream", "crossed/other_stream proven")
def _(drive: Drive) -> None:
    drive.show(*(event(f"_GET_stream_{n}") for n in (1, 2, 3, 4)))
    drive.get("_GET_stream_4").send(event("1_5", "not yours"))


# ---- Cloudflare and the smaller ones


def flare(n: int) -> str:
    """An id of cloudflare/agents."""
    return f"_GET_stream:{n:016x}"


@server("cloudflare/agents 0.32.0", "live before backlog", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.show(*(event(flare(n)) for n in range(1, 12)))
    drive.get(flare(11)).send(event(flare(14)), event(flare(12)), event(flare(13)), event(flare(15)))


@server("cloudflare/agents 0.32.0", "backlog of 1000, then live", "gap/forward_jump suspected")
def _(drive: Drive) -> None:
    drive.show(*(event(flare(n)) for n in range(1, 12)))
    drive.get(flare(11)).send(event(flare(900))).end()


@server("tower-mcp", "two GETs: the same message under two ids", "resumed/continued proven")
def _(drive: Drive) -> None:
    one, two = drive.get(), drive.get()
    for n in range(0, 6, 2):
        one.send(event(n, f"both {n}"))
        two.send(event(n + 1, f"both {n}"))
    one.drop()
    drive.get(4).send(event(6, "both 6"))


@server("tower-mcp", "an unknown session", "refused/not_a_stream proven")
def _(drive: Drive) -> None:
    drive.refuse(4, 200)


@server("tower-mcp restored", "the counter is seeded past the old maximum", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.show(*events("{}", 0, 7))
    drive.get(7).send(event(1001))


@server("tower-mcp auto_reinitialize", "the old id with a fresh counter", "fork/log_restarted proven")
def _(drive: Drive) -> None:
    drive.show(*events("{}", 3, 7))
    drive.get(7).send(event(0, "reborn"))


@server("turul", "registered before the replay: an id comes twice", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*events("{}", 1, 7))
    drive.get(5).send(*events("{}", 6, 6), *events("{}", 6, 7), *events("{}", 7, 7))


@server("turul", "the replay is capped", "gap/successors_skipped proven")
def _(drive: Drive) -> None:
    drive.show(*events("{}", 1, 150))
    drive.get(10).send(*events("{}", 11, 110), event(151, "live"))


@server("turul DynamoDB", "all events have expired: the next id is 1", "fork/log_restarted proven")
def _(drive: Drive) -> None:
    drive.show(*events("{}", 1, 7))
    drive.get(7).send(event(1, "after the purge"))


@server("logiscape", "polled: replay and close", "resumed/replayed proven", "resumed/continued proven")
def _(drive: Drive) -> None:
    drive.call(7).send(priming("q83vEjRWeJo:0", 1500), event("q83vEjRWeJo:1")).drop()
    drive.get("q83vEjRWeJo:0").send(event("q83vEjRWeJo:1")).end()
    drive.get("q83vEjRWeJo:1").send(result("q83vEjRWeJo:2", 7)).end()


@server("logiscape", "an unknown stream of a live session", "refused/not_found proven")
def _(drive: Drive) -> None:
    drive.refuse("q83vEjRWeJo:0", 404)


@server("logiscape", "64 entries shared by all streams", "gap/successors_skipped proven")
def _(drive: Drive) -> None:
    drive.call(7).send(*events("q83vEjRWeJo:{}", 1, 80)).drop()
    drive.get("q83vEjRWeJo:3").send(*events("q83vEjRWeJo:{}", 17, 80))


def php(n: int) -> str:
    """An id of php-mcp/server."""
    return f"GET_STREAM_{CLOCK_MS + n}_{n:08x}"


@server("php-mcp/server", "nothing outstanding", "resumed/continued suspected")
def _(drive: Drive) -> None:
    drive.show(event(php(1)), event(php(2)))
    drive.get(php(2)).send(event(php(9)))


@server("php-mcp/server", "the standalone stream is never replayed", "gap/successors_skipped suspected")
def _(drive: Drive) -> None:
    drive.show(event(php(1)), event(php(2)), event(php(3)))
    drive.get(php(1)).send(event(php(9)))


@server("mcp-lite 0.10.0", "live may come before the backlog", "resumed/replayed proven")
def _(drive: Drive) -> None:
    drive.show(*events("{}#_GET_stream", 1, 6))
    drive.get("4#_GET_stream").send(*events("{}#_GET_stream", 7, 7), *events("{}#_GET_stream", 5, 6))


@server(
    "mcp-lite 0.10.0",
    "the store has moved on",
    "gap/successors_skipped suspected",
    findings=("replay_overdue",),
)
def _(drive: Drive) -> None:
    drive.show(*events("{}#_GET_stream", 1, 9))
    drive.get("4#_GET_stream").send(*events("{}#_GET_stream", 8, 10))
    drive.pass_time(DEADLINE_S)


_salt = itertools.count()


def sealed(*backends: str) -> str:
    """A cursor of the Envoy AI gateway: never twice the same text."""
    return base64.b64encode(uuid.uuid5(uuid.NAMESPACE_URL, f"{next(_salt)}{backends}").bytes * 3).decode()


@server("envoy ai-gateway 1.1.0", "202, and every cursor is new text", "resumed/replayed suspected")
def _(drive: Drive) -> None:
    first = sealed("a1")
    drive.show(event(first, 1), event(sealed("a2"), 2), event(sealed("a3"), 3))
    ping = frame(None, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    resumed = drive.request("GET", cursor=first, answer=Answer(202, True))
    resumed.send(ping, event(sealed("a2"), 2), event(sealed("a3"), 3))


@server("envoy ai-gateway 1.1.0", "a backend's cursor was wiped", "gap/successors_skipped suspected")
def _(drive: Drive) -> None:
    first = sealed("a1")
    drive.show(event(first, 1), event(sealed("a2"), 2), event(sealed("a3"), 3))
    drive.get(first).send(event(sealed("a9"), 9))


@server("context-forge 1.0.7", "the store answers, nothing is replayed", "gap/nothing_replayed proven")
def _(drive: Drive) -> None:
    drive.show(*(event(uid(n)) for n in range(4)))
    drive.get(uid(1)).end()


@server("redis xadd ids", "order by milliseconds and number", "resumed/replayed proven")
def _(drive: Drive) -> None:
    ids = [f"{CLOCK_MS + ms}-{n}" for ms in (0, 7) for n in (0, 1)]
    drive.show(*map(event, ids))
    drive.get(ids[1]).send(*map(reserialised, map(event, ids[2:])))


@server("redis xadd ids", "the stream's name is taken from the wrong part", "gap/nothing_replayed proven")
def _(drive: Drive) -> None:
    ids = [f"2:b'{CLOCK_MS + ms}-0'" for ms in (0, 7, 9)]
    drive.show(*map(event, ids))
    drive.get(ids[0]).end()


def without_ids(drive: Drive) -> Connection:
    """A server that never shows an id."""
    drive.show(event(None, "a"), event(None, "b"))
    drive.call(7).send(event(None, "c"), result(None, 7)).end()
    return drive.get().send(event(None, "d"))


for name in ("ruby-sdk 1.3.0", "php-sdk 0.7.1", "quarkus 2.0.0.CR2", "mcp-use 1.34.6", "agentgateway 1.4.1"):
    server(name, "no ids, no resume, nothing to say")(without_ids)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.server}: {row.what}" for row in ROWS])
def test_server(row: Row) -> None:
    """The healthy resume raises nothing; the known failure gets its name."""
    drive = Drive()
    drive.initialize()
    row.script(drive)
    got = tuple(f"{seen.verdict}/{seen.reason} {seen.certainty}" for seen in drive.verdicts)
    assert (got, tuple(drive.findings)) == (row.verdicts, row.findings)


def test_every_server_is_seen_in_good_health() -> None:
    """Each server with a failure has a healthy row too, under any of its versions."""
    healthy = {row.server.split()[0] for row in ROWS if row.healthy}
    always_failing = {"context-forge"}  # it replays nothing, whatever the cursor
    assert {row.server.split()[0] for row in ROWS} - healthy == always_failing
