"""What an engineer should look at after a verdict: a catalogue of what known servers do.

A hint guesses, and says so ("usually", "known of"): it decides nothing and proves nothing. The rows
rest on docs/servers.md, whose versions the comments name; *measured* was run, *read* is the source.
docs/hints.md is this table on a page, and a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.engine.findings import Certainty, Reason, Verdict

LONGEST = 240
"""Characters of a hint: a log line stays a line."""

_FORK, _GAP, _CROSSED, _REWOUND = Verdict.FORK, Verdict.GAP, Verdict.CROSSED, Verdict.REWOUND
_REFUSED, _UNVERIFIABLE, _INCONCLUSIVE = Verdict.REFUSED, Verdict.UNVERIFIABLE, Verdict.INCONCLUSIVE
_PROVEN, _SUSPECTED = Certainty.PROVEN, Certainty.SUSPECTED

_REBORN = (Reason.ID_REGRESSED, Reason.LOG_RESTARTED, Reason.CONTENT_DIVERGED)
"""What a counter that began anew looks like, before and after it has caught up with the cursor."""
_EVICTED = (Reason.SUCCESSORS_SKIPPED, Reason.FORWARD_JUMP)
"""What a buffer that has moved on looks like."""
_CLOCKED = ("typescript", "mcp-proxy", "redis", "kotlin")
_RANDOM = ("uuid", "java-pair", "typescript", "mcp-proxy", "kotlin")


@dataclass(frozen=True, slots=True)
class Row:
    """One hint and the circumstances it is for; what a row leaves out, it does not ask about.

    `dialects` are names of the id forms (`ids:`), `moved` is whether the replica changed.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    text: str
    dialects: tuple[str, ...] = ()
    moved: bool | None = None
    certainty: Certainty | None = None

    @property
    def weight(self) -> tuple[bool, bool, bool, bool]:
        """A changed replica says most, then the server's name, then an unchanged one, then the certainty."""
        return self.moved is True, bool(self.dialects), self.moved is False, self.certainty is not None

    def fits(self, certainty: Certainty, dialect: str | None, moved: bool | None) -> bool:
        """Whether the circumstances are those the row asks for."""
        return (
            (not self.dialects or dialect in self.dialects)
            and self.moved in (None, moved)
            and self.certainty in (None, certainty)
        )


# A row stays a few lines instead of one line for each argument.
# fmt: off
CATALOGUE: tuple[Row, ...] = (
    # ---- fork. In general: mcp 1.30.0 + 15 lines that adopt unknown ids, kill -9, restart (measured).
    Row(_FORK, (Reason.ID_REGRESSED,),
        "Ids fell behind the cursor: usually another process answers under the old session id, or a restarted one. "
        "Keep a session on one replica (replica_header tells which), and answer 404 to lost sessions."),
    Row(_FORK, (Reason.LOG_RESTARTED,),
        "The log began anew under the old session id: usually a restart, or another replica that adopts unknown ids. "
        "Keep events in a shared store, or answer 404 so that clients start anew."),
    Row(_FORK, (Reason.CONTENT_DIVERGED,),
        "Known ids came with other content: usually the counter of a restarted process, or of another replica, has "
        "caught up with the cursor. Keep events in a shared store, or answer 404 to lost sessions."),
    Row(_FORK, (*_REBORN, Reason.EPOCH_CHANGED), moved=True, text=
        "The replicas differ, and the new one seems to keep a log of its own under the same session id. "
        "Check that a session stays on one replica (sticky by Mcp-Session-Id), or that all share one event store."),
    Row(_FORK, _REBORN, moved=False, text=
        "It seems the same replica, so a restart is likelier than routing: check its uptime. "
        "A balancer may hide the replicas (set replica_header); a restarted server should answer 404 to old sessions."),
    # rmcp 0.8 to 3.1.4 with session_store (read): the restored worker's counters and cache are its own.
    Row(_FORK, _REBORN, dialects=("rmcp",), text=
        "Known of rmcp with a session_store: a restored session counts from 0, after a restart or 300 s of idleness. "
        "Add an event store that all replicas share, or drop session_store so that clients get 404."),
    Row(_FORK, _REBORN, dialects=("rmcp",), moved=True, text=
        "The replicas differ: known of rmcp with a session_store, which restores the session but not its events. "
        "Add an event store that all replicas share, or keep a session on one replica."),
    # csharp-sdk 2.2.0 with ISessionMigrationHandler (read).
    Row(_FORK, _REBORN, dialects=("csharp",), text=
        "Known of the C# SDK with an ISessionMigrationHandler: the new writer counts from 1 over the old events. "
        "Keep a session on one replica, or remove the handler so that clients get 404."),
    Row(_FORK, _REBORN, dialects=("csharp",), moved=True, text=
        "The replicas differ: known of the C# SDK with an ISessionMigrationHandler, whose new writer counts from 1. "
        "Keep a session on one replica, or remove the handler so that clients get 404."),
    # mcp 1.30.0 + 15 lines (measured); mcp-go 0.43.1 to 1.0.0-beta.1, tower-mcp (read).
    Row(_FORK, _REBORN, dialects=("integer",), text=
        "Usually a restart: known of mcp-go's default session manager, of tower-mcp and rmcp with a session store, of "
        "Python servers that adopt unknown ids. Answer 404 to lost sessions, or keep the counter in a store."),
    # typescript 1.32.2, mcp-proxy 6.7.19 (their ids, measured): the order is the wall clock's.
    Row(_FORK, (Reason.ID_REGRESSED,), dialects=_CLOCKED, text=
        "These ids begin with the clock's milliseconds, so a clock that stepped back looks the same. "
        "Check the server's clock first, then whether it restarted or another replica answered."),
    Row(_FORK, (Reason.ID_REGRESSED,), dialects=_CLOCKED, moved=True, text=
        "The replicas differ, and these ids begin with the clock's milliseconds: compare the replicas' clocks. "
        "Then check that a session stays on one replica (sticky by Mcp-Session-Id)."),
    # Follows from the form of the ids; java-sdk 2.0.1 (read) gives every response the session's id.
    Row(_FORK, (Reason.LOG_RESTARTED, Reason.CONTENT_DIVERGED), dialects=_RANDOM, text=
        "Random ids hardly come twice by chance: look for a store or gateway that rewrites events on replay, "
        "or a server that uses one id again (known of the Java SDK's responses)."),
    Row(_FORK, (Reason.LOG_RESTARTED,), dialects=_RANDOM, certainty=_SUSPECTED, text=
        "Random ids hardly come twice, so this is likelier a replay of identical messages from before the cursor. "
        "Check that Last-Event-ID reaches the server, and that its store begins after that event."),
    Row(_FORK, (Reason.LOG_RESTARTED, Reason.CONTENT_DIVERGED), dialects=_RANDOM, moved=True, text=
        "The replicas differ, yet random ids came again, which is hardly chance. "
        "Check that all replicas run one version, and that no store or gateway rewrites events on replay."),
    # agentgateway 1.4.1 drops ids, mcp-go has them from 0.57.0 (read).
    Row(_FORK, (Reason.ID_MISSING,),
        "Ids stopped in a stream that had them: usually a replica without an event store, or a gateway that strips "
        "ids (known of agentgateway). Check that all replicas are alike; set replica_header."),
    Row(_FORK, (Reason.ID_MISSING,), moved=True, text=
        "The replicas differ, and the new one sends no ids: usually it has no event store, or runs another version "
        "(mcp-go has ids from 0.57.0). Make the replicas alike, or keep a session on one replica."),
    Row(_FORK, (Reason.EPOCH_CHANGED,),
        "The events are of a newer incarnation than the cursor: usually the server restarted or another replica took "
        "over. It should answer 404, or replay from a shared event store; set replica_header."),
    # model-context-protocol-rb (read).
    Row(_FORK, (Reason.EPOCH_CHANGED,), dialects=("instance",), text=
        "The ids name a server instance, and it changed: known of model-context-protocol-rb, where each instance "
        "counts for itself. Keep a session on one instance, and answer 404 when it is gone."),
    # mcp-go 0.43.1 to 1.0.0-beta.1 (read).
    Row(_FORK, (Reason.SESSION_RECYCLED,),
        "The session was ended by DELETE and is served again without initialize: known of mcp-go's default session "
        "manager, where any well-formed id is good. Check that DELETE removes the session everywhere."),
    Row(_FORK, (Reason.SESSION_RECYCLED,), moved=True, text=
        "The replicas differ: usually DELETE reached one, and another still serves the session. "
        "Keep sessions in one shared store, or route DELETE by Mcp-Session-Id like the rest."),
    # ---- gap
    Row(_GAP, (Reason.SUCCESSORS_SKIPPED,),
        "Events shown before were left out: usually evicted, or never stored. Raise the event store's limits above "
        "your clients' longest absence, and share it between replicas (replica_header tells them apart)."),
    Row(_GAP, (Reason.FORWARD_JUMP,),
        "The numbers jump past the cursor's successor: usually events were evicted, so raise the event store's "
        "limits. If your server leaves holes on purpose, set `ids: opaque` for this upstream."),
    Row(_GAP, (Reason.NOTHING_REPLAYED,), certainty=_PROVEN, text=
        "200 and an empty stream is how many servers answer a cursor they do not know: usually evicted, or of "
        "another process. Share one event store between replicas, raise its limits, set replica_header."),
    Row(_GAP, (Reason.NOTHING_REPLAYED,), certainty=_SUSPECTED, text=
        "Nothing outstanding came: usually the server does not know the cursor and keeps silent, or still holds the "
        "former connection. Check its event store with this cursor; set replica_header."),
    Row(_GAP, (*_EVICTED, Reason.NOTHING_REPLAYED), moved=True, text=
        "The replicas differ, and the new one seems to lack events that the former showed. "
        "Check that all replicas share one event store, or keep a session on one replica (sticky by Mcp-Session-Id)."),
    Row(_GAP, (Reason.SUCCESSORS_SKIPPED, Reason.NOTHING_REPLAYED), moved=False, text=
        "It seems the same replica, so eviction or a restart is likelier than routing: raise the event store's limits "
        "and check the uptime. A balancer may hide the replicas (set replica_header)."),
    # rmcp 0.8 to 3.1.4 (read): 16 events a stream; an empty answer from 2.0; shadow streams.
    Row(_GAP, _EVICTED, dialects=("rmcp",), text=
        "Known of rmcp: it keeps the last 16 events of a stream and silently replays from the oldest left. "
        "Use an event store with a higher limit."),
    Row(_GAP, (Reason.NOTHING_REPLAYED,), dialects=("rmcp",), text=
        "rmcp from 2.0 answers a cursor it has lost with an empty stream, and a GET beside one it takes for open "
        "with keep-alives only. Check whether the server still holds the former connection."),
    # cloudflare/agents 0.32.0, logiscape, mcp-lite 0.10.0 (read).
    Row(_GAP, _EVICTED, dialects=("cloudflare", "logiscape", "mcp-lite"), text=
        "Known bounds: cloudflare/agents replays 1000 events, logiscape keeps 64 for all streams of a session, "
        "mcp-lite has a bounded buffer; each then goes on silently. Raise the limit."),
    Row(_GAP, (Reason.NOTHING_REPLAYED,), dialects=("cloudflare",), text=
        "cloudflare/agents answers a stream it no longer has with silence, and deletes a call's events as it sends "
        "the response. If this was a call, its result may be lost: let the client ask again."),
    # csharp-sdk 2.2.0 (read): the reader waits on the cursor's log while the new writer counts from 1.
    Row(_GAP, (Reason.FORWARD_JUMP, Reason.NOTHING_REPLAYED), dialects=("csharp",), text=
        "Known of the C# SDK after a session migration: the resume reads the old log, silent until the new counter has "
        "passed the cursor. Keep a session on one replica, or remove the ISessionMigrationHandler."),
    # go-sdk 1.7.0 (read).
    Row(_GAP, (Reason.FORWARD_JUMP,), dialects=("go-sdk",), text=
        "Known of go-sdk: it takes over a cursor beyond its own log and counts on from there. "
        "Look for the finding cursor_not_validated, and have the client start a new session."),
    # mcp 1.30.0 and 2.3.0, fastmcp 4.2.3, server-everything 2026.8.31 (measured); context-forge 1.0.7 (read).
    Row(_GAP, (Reason.NOTHING_REPLAYED,), dialects=("uuid",), certainty=_PROVEN, text=
        "200 and an empty stream is what the Python SDK and FastMCP answer to a cursor they do not know (usually "
        "evicted: 100 events a stream), ContextForge 1.0.7 to any. Raise the limit; share one store between replicas."),
    Row(_GAP, (Reason.NOTHING_REPLAYED,), dialects=("uuid",), certainty=_SUSPECTED, text=
        "Known of server-everything: an unknown cursor gets an open, silent stream. The Python SDK replays nothing "
        "while it still takes the former connection for open: see whether the next resume is replayed."),
    Row(_GAP, (Reason.SUCCESSORS_SKIPPED,), dialects=("uuid",), text=
        "Known of FastMCP before 4 (events stored at one moment drop out of the stream's list) and of ContextForge "
        "(100 events for all sessions). Upgrade, or raise the event store's limit."),
    # typescript 1.32.2, 2.4.0 (measured), 1.10.0 to 1.32.2 (read); php-mcp/server has ids of this form.
    Row(_GAP, (Reason.NOTHING_REPLAYED,), dialects=("typescript",), text=
        "The TypeScript SDK's example store cannot resume the standalone stream: 1.x stays silent, 2.x ends empty. "
        "Use a store that keeps which stream an id belongs to, rather than cutting it from the id."),
    Row(_GAP, (Reason.SUCCESSORS_SKIPPED,), dialects=("typescript",), text=
        "The TypeScript SDK's example store sorts ids of one millisecond by a random tail, so a replay may miss "
        "some; php-mcp/server never replays the standalone stream. Use a store with a counter."),
    # mcp 2.3.0 sse_polling, tower-mcp, turul (read).
    Row(_GAP, (Reason.NOTHING_REPLAYED,), dialects=("integer",), text=
        "An empty answer is what the Python SDK and rmcp from 2.0 give to a cursor they do not know, and tower-mcp to "
        "one beyond its newest: usually after a restart. Keep the counter and the events in a store."),
    Row(_GAP, _EVICTED, dialects=("integer",), text=
        "Known of rmcp (keeps 16 events of a stream), turul (replays 100) and tower-mcp (keeps 1000): what is older "
        "is skipped silently. Raise the limit, or have clients come back sooner."),
    # java-sdk 2.0.1, Spring AI (read).
    Row(_GAP, (Reason.NOTHING_REPLAYED,), dialects=("java-pair",), text=
        "The Java SDK and Spring AI (read in 2.0.1) replay nothing: WebFlux ends empty, servlet and WebMvc fall "
        "silent for good. Have clients reconnect without a cursor; what they missed is lost."),
    # Stores of several projects (read).
    Row(_GAP, (Reason.NOTHING_REPLAYED,), dialects=("redis",), text=
        "Known of event stores on Redis streams that take the stream's name from the wrong part of the id. "
        "Check how the store finds the stream of an id, and that it decodes what Redis returns."),
    # envoy ai-gateway 1.1.0 (read).
    Row(_GAP, (Reason.SUCCESSORS_SKIPPED,), dialects=("encrypted",), text=
        "Known of Envoy AI gateway: one event without an id wipes that backend's part of the cursor. "
        "Give every backend an event store, so that each of its events has an id."),
    # ---- crossed
    Row(_CROSSED, (Reason.OTHER_STREAM,),
        "Streams of one session are mixed: usually the event store does not separate them, or takes the stream from "
        "the wrong part of the id. Replay only events of the cursor's stream."),
    Row(_CROSSED, (Reason.OTHER_STREAM,), moved=True, text=
        "The replicas differ, so another replica may count the same ids for other streams. Check first that a session "
        "stays on one replica or that all share one event store, then that it separates streams."),
    # server-everything 2026.8.31 (measured).
    Row(_CROSSED, (Reason.OTHER_STREAM,), dialects=("uuid",), text=
        "Known of server-everything: its store replays every later event of the session, other calls' responses too. "
        "Keep the stream with each event, and replay that stream alone."),
    # turul, tower-mcp, mcp-go 1.0.0-beta.1 (read).
    Row(_CROSSED, (Reason.OTHER_STREAM,), dialects=("integer",), text=
        "Known of turul and tower-mcp (one log for a session's streams), and of mcp-go after a restart, when it gives "
        "the numbers out again. Keep the stream with each event; check the uptime."),
    # rmcp 0.16 to 1.8 (read).
    Row(_CROSSED, (Reason.OTHER_STREAM,), dialects=("rmcp",), text=
        "Known of rmcp 0.16 to 1.8: every call is primed with 0, an id of the common stream, so its resume gets that "
        "stream. Upgrade to 2.0 or later."),
    # mcp 1.30.0 and 2.3.0 (measured), fastmcp up to 3.4.3 (read): streams keyed by JSON-RPC id alone.
    Row(_CROSSED, (Reason.OTHER_SESSION,),
        "Treat it as a data leak: usually sessions share an event store without the session in its keys. "
        "Use a store for each session, or prefix stream ids with the session."),
    Row(_CROSSED, (Reason.OTHER_SESSION,), moved=True, text=
        "Treat it as a data leak, first of all in what the replicas share: usually an event store without the session "
        "in its keys. The replicas differ, too: keep a session on one until the store is fixed."),
    Row(_CROSSED, (Reason.OTHER_SESSION,), dialects=("uuid", "integer"), text=
        "A data leak known of the Python SDK (1.30.0, 2.3.0), whose streams are named by JSON-RPC id alone, and of "
        "FastMCP up to 3.4.3. Use a store for each session, or upgrade FastMCP."),
    Row(_CROSSED, (Reason.OTHER_SESSION,), dialects=("typescript",), text=
        "A data leak known of the TypeScript SDK where transports share an event store: every standalone stream has "
        "the same name. Use a store for each session."),
    # ---- rewound
    Row(_REWOUND, (Reason.INCLUSIVE,),
        "The cursor's own event came again: usually the store replays from the cursor instead of after it. "
        "Compare with > rather than >=; until then clients get that event twice."),
    Row(_REWOUND, (Reason.INCLUSIVE, Reason.CURSOR_IGNORED), moved=True, text=
        "The replicas differ but know the same events: usually they run different versions, or one is reached by way "
        "of a gateway that drops Last-Event-ID. Make the replicas and their routes alike."),
    # rmcp 0.8 to 3.1.4 (read): looks like bare integers until a call's stream has shown <n>/<m>.
    Row(_REWOUND, (Reason.INCLUSIVE,), dialects=("integer",), text=
        "All versions of rmcp replay the cursor's own event and mean no harm: if this is rmcp, set `ids: rmcp`. "
        "Else the store replays from the cursor instead of after it."),
    # go-sdk 1.7.0 with an event store, rmcp (read).
    Row(_REWOUND, (Reason.CURSOR_IGNORED,),
        "Usually Last-Event-ID does not reach the server: go-sdk and rmcp replay everything to a GET without it. "
        "Look for a gateway that drops the header, then for a store that restarts from its oldest event."),
    # ---- refused
    Row(_REFUSED, (Reason.NOT_FOUND,),
        "The server does not know the session: usually it restarted, expired it, or another replica answered. "
        "The client must initialize again; many SDK clients leave that to the application."),
    Row(_REFUSED, (Reason.NOT_FOUND, Reason.REJECTED), moved=True, text=
        "The replicas differ, and this one seems to lack the session or its events. "
        "Keep a session on one replica (sticky by Mcp-Session-Id), or share sessions and event store."),
    Row(_REFUSED, (Reason.NOT_FOUND,), dialects=("logiscape",), text=
        "logiscape also answers 404 for a stream it has evicted (64 events a session) while the session lives. "
        "If requests of the session still succeed, raise that limit."),
    # 400: mcp 1.25, typescript 1.x examples, server-everything for a session; go-sdk, C#, Swift for a cursor.
    Row(_REFUSED, (Reason.REJECTED,),
        "The server does not know the cursor (go-sdk, C#, Swift, npm mcp-proxy, mcp-go) or the session (Python SDK "
        "before 1.26, TypeScript 1.x examples, server-everything). The response body says which."),
    Row(_REFUSED, (Reason.REJECTED,), dialects=("go-sdk",), text=
        "go-sdk answers 400 without an event store, and once the store (10 MiB by default) has purged the stream; "
        "then a plain GET fails, too. Raise the limit; the response body says which it is."),
    Row(_REFUSED, (Reason.CONFLICT,),
        "The server still takes the former connection of the stream for open. If 409 goes on after seconds, it does "
        "not notice clients that left: check its keep-alives, and gateways that hold connections."),
    # typescript 1.25 to 1.29 with a store that names an id's stream (read).
    Row(_REFUSED, (Reason.CONFLICT,), dialects=("typescript",), text=
        "The TypeScript SDK 1.25 to 1.29 never lets go of a resumed stream, so that every later resume gets 409. "
        "Upgrade to 1.30 or later."),
    Row(_REFUSED, (Reason.UNSUPPORTED,),
        "Nothing can be resumed here: usual for stateless servers (the official PHP SDK, createMcpHandler of "
        "TypeScript 2). If yours has sessions, look for a gateway that allows POST alone."),
    # rmcp up to 0.16, csharp-sdk 2.2.0 (read).
    Row(_REFUSED, (Reason.UNAUTHORIZED,),
        "Usually an expired token: the client should renew it and resume. Known of rmcp up to 0.16: 401 to an unknown "
        "session; of the C# SDK: 403 to another user's session."),
    Row(_REFUSED, (Reason.THROTTLED,),
        "The server or a gateway limits requests. Look for the finding reconnect_loop (a client that comes back "
        "without a pause); else raise the limit for GET."),
    # mcp 1.30.0 without a store (measured); rmcp 1.x (read).
    Row(_REFUSED, (Reason.UPSTREAM_ERROR,),
        "See the server's log. Known of the Python SDK without an event store: 500 to every resume, so configure one; "
        "of rmcp 1.x: 500 to a cursor it has lost. 502 to 504 are usually a gateway's."),
    # tower-mcp (read).
    Row(_REFUSED, (Reason.NOT_A_STREAM,),
        "Usually a web application or gateway answered instead of the MCP endpoint: check the path. "
        "Known of tower-mcp: 200 with a JSON-RPC error for an unknown session."),
    Row(_REFUSED, (Reason.OTHER,),
        "An answer that MCP servers hardly give: usually a gateway's redirect, or 421 from a check of the Host "
        "header (see `host_header`). Send the same GET to the server directly."),
    # ---- unverifiable
    Row(_UNVERIFIABLE, (Reason.NO_BASELINE,),
        "This process never relayed the cursor: forkwatch restarted, another instance saw the session, or a limit "
        "evicted it (`limits`). Keep a session on one forkwatch; new ids make a new baseline."),
    Row(_UNVERIFIABLE, (Reason.OPAQUE_IDS,),
        "Not an alarm: nothing was outstanding, and ids of this form have no order. If yours carry a counter, name "
        "its pattern under `ids:` (such as epoch:seq)."),
    Row(_UNVERIFIABLE, (Reason.IDS_ABSENT,),
        "Events of this stream carry no ids, so neither the server nor forkwatch can tell where to go on. "
        "Most SDKs send ids only with an event store: configure one."),
    Row(_UNVERIFIABLE, (Reason.IDS_AMBIGUOUS,),
        "The cursor stands for several events, so no server can tell which is meant. "
        "Make ids unique in the session: usually each stream counts from the beginning."),
    # rmcp 0.16 to 1.8, turul, java-sdk 2.0.1 (read).
    Row(_UNVERIFIABLE, (Reason.IDS_AMBIGUOUS,), dialects=("integer", "rmcp"), text=
        "Known of rmcp 0.16 to 1.8 (every stream is primed with 0; upgrade to 2.0) and of turul (every response "
        "counts from 1). Make ids unique in the session."),
    Row(_UNVERIFIABLE, (Reason.IDS_AMBIGUOUS,), dialects=("uuid",), text=
        "Known of the Java SDK (servlet, WebMvc): every response has the session id as its event id, so such a "
        "cursor names none. It replays nothing anyway: have clients reconnect without a cursor."),
    Row(_UNVERIFIABLE, (Reason.ENCODED,),
        "The stream is compressed although `identity` was asked for. "
        "Turn compression off for text/event-stream: usually it is a gateway's."),
    Row(_UNVERIFIABLE, (Reason.STATE_LOST,),
        "forkwatch could not read the session's stored state; the server is not at fault. "
        "Check the store under `state:`; new ids make a new baseline."),
    # ---- inconclusive
    Row(_INCONCLUSIVE, (Reason.CLIENT_LEFT,),
        "The client left before anything could be judged: usually its own time limit, or it stopped. "
        "If it comes back at once and again, look for the finding reconnect_loop."),
    # logiscape, kotlin-sdk 0.14.0 (read).
    Row(_INCONCLUSIVE, (Reason.UPSTREAM_CLOSED,),
        "A part of the replay came, then a clean end; the rest is judged at the next resume. "
        "Usual for servers that are polled; else look for a time limit in the server or a gateway."),
    # csharp-sdk 2.2.0 (read).
    Row(_INCONCLUSIVE, (Reason.UPSTREAM_FAILED,),
        "The upstream broke off: usually a crash, a deployment, or a gateway's idle limit (see upstream.error). "
        "Known of the C# SDK: 200, then an abort, when an event expired before its stream."),
)
# fmt: on

_BY_REASON = {
    (verdict, reason): sorted(
        (row for row in CATALOGUE if row.verdict is verdict and reason in row.reasons),
        key=lambda row: row.weight,
        reverse=True,
    )
    for verdict, reason in {(row.verdict, reason) for row in CATALOGUE for reason in row.reasons}
}


def hint(
    *, verdict: Verdict, reason: Reason, certainty: Certainty, dialect: str | None, moved: bool | None
) -> str | None:
    """What to look at, in at most `LONGEST` characters; None where nothing is to be said.

    `dialect` is the form of the session's ids, None if unknown. `moved` is whether another replica
    answered than the one that served the stream before, None if unknown. The row that asks for
    most wins, weighed as `Row.weight` says.
    """
    rows = _BY_REASON.get((verdict, reason), ())
    return next((row.text for row in rows if row.fits(certainty, dialect, moved)), None)
