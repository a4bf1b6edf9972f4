"""What each session has shown: per stream the relayed ids in order, with a digest of each payload.

Invariants: no payload and no id text is kept but the newest of a stream; a stream's log is two
packed arrays of 64-bit words (id, digest) in a bounded window; every container here has a bound
from the configuration, and what is dropped is the least recently used. An id shown only by a
priming frame has its place in the log but no owner. (Seed 000: one event log per session; spec
2025-11-25, transports: ids are unique per session and name a place in one stream.)
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from proxy.engine.commands import Command
from proxy.engine.digest import PRIMING, id_word
from proxy.engine.findings import AttachmentKind, Judged, Judgement, Reason
from proxy.engine.ids import INTEGER, Dialect, EventId, Evidence, IdClass, guess
from proxy.engine.jsonrpc import RequestId
from proxy.engine.log import Known, Log, known, packed
from proxy.engine.owners import Owners
from proxy.engine.policy import Policy
from proxy.engine.sse import Shape
from proxy.engine.timeline import CONNECTION_BYTES, Connection, Positions, Timeline

_STREAM_BYTES = 900
_SESSION_BYTES = 2600
_ENTRY_BYTES = 16
_FORMER_LOGS = 2
"""Logs of earlier epochs kept per stream, so that a late resume of one can still be named."""
_MAX_IN_FLIGHT = 1024
"""Requests remembered per session; MCP clients keep a handful."""
_MANY_STREAMS, _LITTLE_BYTES = 8, 1 << 17
"""A session with more streams that yet holds less: its ids are looked through at once, not stream by stream."""
_MAX_HIGH = 256
"""Bytes kept of a stream's newest id."""
_SHORT_ID = 64
"""A longer id of a session or a request is counted apart, twice: it is kept as it came and as text or a key."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of the configuration that concern the ledger."""

    sessions_per_upstream: int = 20_000
    streams_per_session: int = 64
    ids_per_stream: int = 1024
    ledger_bytes: int = 256 << 20
    session_idle_s: float = 7200.0


class Stream:
    """One logical SSE stream of a session: a POST's response, or a standalone GET."""

    __slots__ = ("attachments", "connections", "detached_at", "former", "high", "kind", "label",
                 "last", "left_by_client", "log", "lost_for", "owed", "replica", "retry_ms", "serial", "shown",
                 "takeovers", "unnumbered")  # fmt: skip

    def __init__(self, serial: int, kind: AttachmentKind, epoch: int) -> None:
        self.serial = serial
        self.kind = kind
        self.label = f"{kind}-{serial}"
        """The stream's name in logs: its kind and its number in the session."""
        self.log = Log(epoch)
        self.former: list[Log] = []
        """Logs of earlier epochs, newest last."""
        self.high: bytes | None = None
        """The newest id relayed (H)."""
        self.last: EventId | None = None
        """`high` taken apart."""
        self.shown = 0
        """Ids recorded ever."""
        self.unnumbered = False
        """The stream has shown messages without ids."""
        self.owed: tuple[str, ...] = ()
        """Keys of the requests whose responses this stream owes."""
        self.attachments = 0
        """Connections that are open."""
        self.connections = 0
        """Connections that there ever were."""
        self.detached_at: float | None = None
        self.left_by_client = False
        """The last connection ended because its client went: the server may not have noticed yet."""
        self.retry_ms = 0
        self.takeovers: tuple[float, ...] = ()
        """When connections took the stream from one still open; the newest five."""
        self.replica: str | None = None
        self.lost_for: tuple[bytes, int] | None = None
        """The cursor last judged with a loss, and how much."""

    def lose(self, cursor: bytes, lost: int) -> int:
        """Note a loss; returns what of it is new: a client that asks again has not lost more."""
        before = self.lost_for[1] if self.lost_for is not None and self.lost_for[0] == cursor else 0
        self.lost_for = (cursor, max(lost, before))
        return max(0, lost - before)


@dataclass(slots=True)
class Pending:
    """A request in flight: its exact JSON-RPC id, and the stream that owes the answer, if it has one."""

    id: RequestId
    stream: Stream | None = None


@dataclass(slots=True)
class Loop:
    """Resumes of one cursor without progress, for the finding `reconnect_loop`."""

    since: float
    count: int
    shown: int
    last: float


@dataclass(frozen=True, slots=True)
class Baseline:
    """Where a cursor stands: `place` in `log` of `stream`."""

    stream: Stream
    log: Log
    place: int

    def outstanding(self) -> list[tuple[int, int]]:
        """The message entries after the cursor: the known part of the gap `(L, H]`."""
        return [entry for entry in self.log.after(self.place) if entry[1] != PRIMING]


@dataclass(slots=True)
class Quarantine:
    """A session that was cut: why, and until when (monotonic seconds) without a request of it.

    `judgement` is None, and `cursor` empty, where it was an operator's wish.
    """

    judgement: Judgement | None
    cursor: bytes
    ttl_s: float
    until: float
    since: float

    def touch(self, now: float) -> None:
        """A request has carried the session: its time runs anew."""
        self.until = now + self.ttl_s


class Ambiguous(Enum):
    """Why a cursor has no single place."""

    AMBIGUOUS = "ambiguous"


class Member(Protocol):
    """An exchange under way in a session, as the session sees it."""

    handle: object

    def cut(self, now: float) -> Sequence[Command]:
        """The session was quarantined: end this exchange."""


class Session:
    """One `Mcp-Session-Id` on one upstream: its streams, epoch and requests in flight."""

    __slots__ = ("bounds", "bytes", "complete", "ended", "epoch", "evidence", "exchanges", "followed", "grew",
                 "in_flight", "key", "loops", "missed", "name", "newest", "number", "opened_at", "protocol",
                 "quarantine", "serial", "shown", "standalone", "streams", "timeline", "touched",
                 "unread", "upstream", "used_at")  # fmt: skip

    def __init__(self, upstream: Upstream, key: bytes, number: int, now: float, *, followed: bool) -> None:
        self.upstream = upstream
        self.bounds = upstream.bounds
        self.key = key
        self.name = key.decode("utf-8", "backslashreplace")
        self.number = number
        self.epoch = 1
        self.evidence = Evidence(upstream.forced)
        self.streams: dict[int, Stream] = {}
        self.standalone: Stream | None = None
        self.serial = 0
        self.in_flight: dict[str, Pending] = {}
        self.ended = False
        """Ended by a 2xx to its DELETE, and not initialized again since."""
        self.followed = followed
        """Its `initialize` was seen here."""
        self.complete = followed
        """Every id it showed was recorded and is still held: only then is a strange cursor strange."""
        self.unread = not followed
        """A part of what it showed was never read: its beginning, or what passed in a coding or while the detector
        failed. What only that part may have said of its server stays unknown."""
        self.missed = False
        """The last answer to it was a 404."""
        self.newest: EventId | None = None
        """The newest id of all its streams, while `grew`."""
        self.grew = True
        """Ids have grown over all streams so far: they share one counter."""
        self.shown = 0
        self.touched = 0
        self.loops: dict[int, Loop] = {}
        self.quarantine: Quarantine | None = None
        self.exchanges: dict[Member, None] = {}
        """The exchanges under way in this session, in the order they began."""
        self.bytes = _SESSION_BYTES + (2 * len(key) if len(key) > _SHORT_ID else 0)
        self.opened_at = self.used_at = now
        self.protocol = ""
        """The revision it speaks, or `other`; empty if unknown."""
        self.timeline = Timeline()

    def overlook(self) -> None:
        """Something of it passes, or has passed, unread."""
        self.complete = False
        self.unread = True

    # ---- streams

    def open_stream(self, kind: AttachmentKind) -> Stream:
        """Begin a new stream; the least recently opened idle one makes room beyond the limit."""
        streams = self.streams
        if len(streams) >= self.bounds.streams_per_session:
            oldest = next(iter(streams.values()))
            if oldest.attachments:
                oldest = next((stream for stream in streams.values() if not stream.attachments), oldest)
            self._forget(oldest)
        self.serial += 1
        stream = streams[self.serial] = Stream(self.serial, kind, self.epoch)
        self._grow(_STREAM_BYTES)
        return stream

    def _forget(self, stream: Stream) -> None:
        del self.streams[stream.serial]
        if self.standalone is stream:
            self.standalone = None
        if not stream.attachments:  # else it still owes them, known or not
            for key in stream.owed:
                self.settle(key)
        self.complete = False
        entries = sum([len(log) for log in (stream.log, *stream.former)])
        self._grow(-_STREAM_BYTES - _ENTRY_BYTES * entries)

    def _grow(self, n: int) -> None:
        self.bytes += n
        self.upstream.bytes += n

    def release(self) -> None:
        """The session is forgotten: it leaves its upstream's sums.

        What exchanges under way still do to it counts for nothing, in an upstream of its own.
        """
        upstream = self.upstream
        upstream.bytes -= self.bytes
        self.bytes = 0
        if self.exchanges:
            self.strand()

    def strand(self) -> None:
        """What comes of a forgotten session is no part of its upstream."""
        upstream = self.upstream
        self.upstream = Upstream(upstream.name, self.bounds, upstream.forced, upstream.policy)

    def shed(self) -> None:
        """Quarantined: only streams that owe a response still matter, for their clients' resumes."""
        for stream in list(self.streams.values()):
            if not stream.owed and not stream.attachments:
                self._forget(stream)

    # ---- for the picture

    def connect(self, stream: Stream, kind: AttachmentKind, now: float, replica: str | None) -> Connection:
        """A connection that serves `stream` has begun: the newest of the timeline."""
        connection = Connection(kind, stream.label, self.epoch, now, replica)
        if self.timeline.add(connection):
            self._grow(CONNECTION_BYTES)
        return connection

    def position(self, log: Log, raw: bytes, id_word: int) -> int:
        """Where an id stands on its stream's axis: its number where numbers tell, else its place in `log`.

        The place after the last one where the log does not hold it.
        """
        parsed, dialect = self.evidence.peek(raw), self.evidence.dialect or guess(raw)
        if parsed is not None and dialect.cls is not IdClass.TIMED:
            return parsed.seq[0]
        places = log.places(id_word)
        return places[-1] if places else log.total

    def positions(self, judged: Judged, log: Log) -> Positions:
        """Where the ids of a judgement stand: its cursor, the newest before it, and the one that decided."""
        ids = (judged.cursor, judged.high, judged.judgement.got)
        return Positions(*(None if raw is None else self.position(log, raw, id_word(raw)) for raw in ids))

    # ---- places

    def locate(self, id_word: int) -> Baseline | Ambiguous | None:
        """Where a cursor stands: in the newest epoch that knows it; None if no stream does."""
        epoch = self.epoch
        logs = [(stream, stream.log) for stream in self._may_hold(id_word)]
        found = _place(logs, id_word) if logs else None
        if found is not None or epoch == 1:
            return found
        needle = packed(id_word)
        aged = [s for s in self.streams.values() if s.former or s.log.epoch != epoch]
        for age in range(1, _FORMER_LOGS + 1):
            older = [(s, _aged(s, epoch, age)) for s in aged]
            found = _place(
                [(s, log) for s, log in older if log is not None and log.may_hold(needle)], id_word
            )
            if found is not None:
                return found
        return None

    def _may_hold(self, id_word: int) -> list[Stream]:
        """The streams whose log of this epoch may hold the id: a quick look at all, before a close one at few."""
        needle, epoch = packed(id_word), self.epoch
        streams = [stream for stream in self.streams.values() if stream.log.epoch == epoch]
        at_once = len(streams) > _MANY_STREAMS and self.bytes < _LITTLE_BYTES
        if at_once and needle not in b"".join([stream.log.ids for stream in streams]):
            return []
        return [stream for stream in streams if stream.log.may_hold(needle)]

    def elsewhere(
        self, parsed: EventId | None, id_word: int, word: int, beside: Stream
    ) -> tuple[Reason, Known] | None:
        """Where else than on `beside` this message was shown: on one other stream, or in another session.

        Bare integers tell of streams only while they grew over the whole session: servers that count
        per stream repeat both numbers and constant notifications. An id that itself names the stream
        `beside` is at home there, whichever connection showed it first. Of two standalone streams nothing is
        proven but by their names: the server may hold them for one log, which its newest connection carries.
        """
        dialect = self.evidence.dialect
        if (dialect is None or dialect.name != "integer" or self.grew) and not self._named(parsed, beside):
            owners = self.owners(id_word, word, beside)
            if len(owners) == 1 and owners[0][1] in (Known.SAME, Known.UNSURE):
                owner, how = owners[0]
                unsure = _one_log(beside, owner) and not self._names_another(parsed, beside)
                return Reason.OTHER_STREAM, Known.UNSURE if unsure else how
        foreign = self.upstream.foreign(self, id_word, word)
        return (Reason.OTHER_SESSION, foreign) if foreign in (Known.SAME, Known.UNSURE) else None

    def _named(self, parsed: EventId | None, stream: Stream) -> bool:
        last = stream.last
        if parsed is None or parsed.stream is None or last is None:
            return False
        return parsed.stream == last.stream and not self.evidence.tags_broken

    def _names_another(self, parsed: EventId | None, stream: Stream) -> bool:
        last = stream.last
        if parsed is None or parsed.stream is None or last is None or last.stream is None:
            return False
        return parsed.stream != last.stream and self.evidence.tags_convict

    def owners(self, id_word: int, word: int, beside: Stream | None) -> list[tuple[Stream, Known]]:
        """The streams, other than `beside`, whose newest log shows this id as a message."""
        found: list[tuple[Stream, Known]] = []
        for stream in self._may_hold(id_word):
            if stream is beside or not stream.log.has(id_word):
                continue
            how, _ = known(stream.log, id_word, word)
            if how not in (Known.NO, Known.PRIMED):
                found.append((stream, how))
        return found

    def next_epoch(self, begun_by: Stream | None = None) -> None:
        """The session's logs are new ones from here on: what was shown so far is another epoch.

        Where each stream counts for itself, the new log of the stream `begun_by` says nothing of the
        others: theirs go on in the new epoch.
        """
        self.epoch += 1
        if begun_by is not None and self._counts_per_stream():
            for stream in self.streams.values():
                if stream is not begun_by and stream.log.epoch == self.epoch - 1:
                    stream.log.epoch = self.epoch
            return
        self.newest = None
        self.grew = True

    def _counts_per_stream(self) -> bool:
        dialect = self.evidence.dialect
        if dialect is None:
            return False
        return dialect.per_stream or (dialect.name == "integer" and not self.grew)

    def current_log(self, stream: Stream) -> Log:
        """The stream's log of the session's epoch, begun if it has none yet."""
        log = stream.log
        if log.epoch != self.epoch:
            stream.former.append(log)
            if len(stream.former) > _FORMER_LOGS:
                self._grow_in(stream, -_ENTRY_BYTES * len(stream.former.pop(0)))
                self.complete = False
            log = stream.log = Log(self.epoch)
            stream.last = None
        return log

    # ---- recording

    def read(self, raw: bytes) -> EventId | None:
        """An id taken apart in the session's dialect; None if opaque. May revise the dialect."""
        evidence = self.evidence
        dialect = evidence.dialect
        parsed = evidence.read(raw)
        if evidence.dialect is not dialect and dialect is not None:
            for stream in self.streams.values():
                stream.last = None if stream.high is None else evidence.peek(stream.high)
            self.newest = None
        return parsed

    def append(
        self,
        stream: Stream,
        raw: bytes,
        id_word: int,
        word: int,
        parsed: EventId | None,
        previous: EventId | None,
    ) -> None:
        """Record a new id of `stream`, taken apart as `parsed`.

        `previous` came before it on the same connection; None if nothing did.
        """
        log = self.current_log(stream)
        if parsed is not None:
            if previous is not None or parsed.session is not None:
                self.evidence.observe(previous, parsed, self.key)
            last = stream.last
            log.run = log.run + 1 if last is not None and parsed.seq[0] == last.seq[0] + 1 else 0
        self._show(stream, log, raw, id_word, word, parsed)

    def extend(
        self,
        stream: Stream,
        log: Log,
        raw: bytes,
        id_word: int,
        word: int,
        parsed: EventId,
        previous: EventId,
    ) -> None:
        """As `append`, for a message whose id has the tags of `previous`, the stream's last, and a greater number."""
        if self.evidence.learns:
            self.evidence.observe(previous, parsed, self.key)
        log.run = log.run + 1 if parsed.seq[0] == previous.seq[0] + 1 else 0
        self._show(stream, log, raw, id_word, word, parsed)

    def _show(
        self, stream: Stream, log: Log, raw: bytes, id_word: int, word: int, parsed: EventId | None
    ) -> None:
        """The id is the stream's newest."""
        if parsed is not None:
            newest = self.newest
            if newest is None or parsed.seq > newest.seq:
                self.newest = parsed
            else:
                self.grew = False
        self._place(stream, log, id_word, word)
        stream.high = raw if len(raw) <= _MAX_HIGH else raw[:_MAX_HIGH]
        stream.last = parsed
        stream.shown += 1
        self.shown += 1
        dialect = self.evidence.dialect
        if dialect is not None and dialect.claimed and (word != PRIMING or dialect is INTEGER):
            # A primed number is shown, too.
            self.upstream.claim(self, id_word, parsed)

    def place_aside(self, stream: Stream, id_word: int, word: int = PRIMING) -> None:
        """Give an id its place without making it the stream's newest."""
        self._place(stream, self.current_log(stream), id_word, word)
        self.shown += 1

    def counted_past(self, stream: Stream, low: int) -> bool:
        """Whether another stream has come to `low` or beyond, so that holes may be its numbers."""
        rivals = (other.last for other in self.streams.values() if other is not stream)
        return any(last is not None and last.seq[0] >= low for last in rivals)

    def _place(self, stream: Stream, log: Log, id_word: int, word: int) -> None:
        if log.append(id_word, word, self.bounds.ids_per_stream):
            self._grow_in(stream, _ENTRY_BYTES)
        else:
            self.complete = False

    def _grow_in(self, stream: Stream, n: int) -> None:
        """A log of this stream grew; it counts for nothing once the stream had to make room, still open."""
        if stream.serial in self.streams:
            self.bytes += n
            self.upstream.bytes += n

    # ---- requests in flight

    def expect(self, key: str, pending: Pending) -> None:
        """A request was sent in this session."""
        if key in self.in_flight or len(self.in_flight) >= _MAX_IN_FLIGHT:
            self.settle(key if key in self.in_flight else next(iter(self.in_flight)))
        self.in_flight[key] = pending
        self.upstream.requests_in_flight += 1
        self._weigh(key, 1)

    def _weigh(self, key: str, sign: int) -> None:
        """A request's id, kept as it is and as its key, is as long as its peer likes: a long one is counted."""
        if len(key) > _SHORT_ID:
            self._grow(sign * 2 * len(key))

    def owed_ids(self, stream: Stream) -> list[RequestId]:
        """The exact ids of the requests that `stream` owes responses to."""
        return [self.in_flight[key].id for key in stream.owed if key in self.in_flight]

    def abandon_requests(self) -> None:
        """The session is over or begun anew: nothing is in flight any more."""
        for pending in self.in_flight.values():
            if pending.stream is not None:
                pending.stream.owed = ()
        self.upstream.requests_in_flight -= len(self.in_flight)
        for key in self.in_flight:
            self._weigh(key, -1)
        self.in_flight.clear()

    def settle(self, key: str) -> bool:
        """A request is over; returns whether it was in flight."""
        pending = self.in_flight.pop(key, None)
        if pending is None:
            return False
        self.upstream.requests_in_flight -= 1
        self._weigh(key, -1)
        stream = pending.stream
        if stream is not None:
            stream.owed = () if stream.owed == (key,) else tuple(k for k in stream.owed if k != key)
        return True


def _one_log(stream: Stream, other: Stream) -> bool:
    """Whether the server may hold two streams for one: plain GETs, of which it tells none from another."""
    return stream.kind is other.kind is AttachmentKind.GET


def _aged(stream: Stream, epoch: int, age: int) -> Log | None:
    """The stream's log of the session's epoch (age 0), or the `age`-th of earlier epochs."""
    logs = [*stream.former, stream.log]
    if stream.log.epoch != epoch:
        age -= 1
    return logs[-1 - age] if 0 <= age < len(logs) else None


def _place(logs: list[tuple[Stream, Log]], id_word: int) -> Baseline | Ambiguous | None:
    """The one place of an id in these logs: its message's, else its priming frame's."""
    holders = []
    for stream, log in logs:
        places = [place for place in log.places(id_word) if place >= log.oldest]
        if places:
            holders.append((stream, log, places))
    if not holders:
        return None
    owners = []
    for stream, log, places in holders:
        messages = [place for place in places if log.word(place) != PRIMING]
        if messages:
            owners.append((stream, log, messages))
    if len(owners) > 1 or (not owners and len(holders) > 1):
        return Ambiguous.AMBIGUOUS
    if not owners:
        stream, log, places = holders[0]
        return Baseline(stream, log, places[-1])
    stream, log, messages = owners[0]
    if len({log.word(place) for place in messages}) > 1:
        return Ambiguous.AMBIGUOUS
    return Baseline(stream, log, messages[-1])


@dataclass(slots=True)
class Upstream:
    """What spans the sessions of one upstream: the sessions, the owners of unique ids, the sums."""

    name: str
    bounds: Bounds = field(default_factory=Bounds)
    forced: Dialect | None = None
    policy: Policy = field(default_factory=Policy)
    sessions: OrderedDict[bytes, Session] = field(default_factory=OrderedDict)
    quarantined: dict[bytes, Session] = field(default_factory=dict)
    """The quarantined sessions, oldest first."""
    numbered: dict[int, Session] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)
    integers_shared: bool = False
    """Two sessions have shown the same bare integer: each counts for itself."""
    integer_sessions: set[int] = field(default_factory=set)
    """Up to two sessions that have shown bare integers; more need not be known."""
    bytes: int = 0
    """Memory accounted for in sessions, streams and ids."""
    sessions_active: int = 0
    """Sessions that have not ended."""
    sessions_quarantined: int = 0
    requests_in_flight: int = 0
    next_number: int = 0
    shape: Shape | None = None
    """How frames were written on the stream that ended last: the next one's are likely to be alike."""
    awaiting: deque[tuple[float, int, int]] = field(default_factory=deque)
    """Streams that ended owing a response: since when, the number of the session, that of the stream."""

    @property
    def held_bytes(self) -> int:
        """Memory accounted for: sessions, streams and ids, and the table of owners."""
        return self.bytes + self.owners.bytes

    def claim(self, session: Session, id_word: int, parsed: EventId | None) -> None:
        """A session has shown this id as a message: remember it where ids are unique upstream-wide."""
        dialect = session.evidence.dialect
        if dialect is None:
            return
        if dialect.unique:
            self.owners.claim(id_word, session.number)
        elif dialect.name == "integer" and parsed is not None and not self.integers_shared:
            before = self.owners.claim(id_word, session.number)
            if before >= 0 and before != session.number:
                self.integers_shared = True
            if len(self.integer_sessions) < 2:
                self.integer_sessions.add(session.number)

    def foreign(self, session: Session, id_word: int, word: int) -> Known | None:
        """How another session has shown this id, where ids are unique across the upstream; else None.

        That bare integers are unique is itself inferred: where the beginning of a session was not
        seen, its counter may only be further on than another's, and nothing can be sure.
        """
        dialect = session.evidence.dialect
        if dialect is None or not (
            dialect.unique
            or (dialect.name == "integer" and not self.integers_shared and len(self.integer_sessions) > 1)
        ):
            return None
        other = self.numbered.get(self.owners.who(id_word))
        if other is None or other is session:
            return None
        owners = other.owners(id_word, word, beside=None)
        if len(owners) != 1:
            return None
        inferred = not dialect.unique and not (session.followed and other.followed)
        return Known.UNSURE if inferred and owners[0][1] is Known.SAME else owners[0][1]

    def counted_elsewhere(self, session: Session, stream: Stream, low: int) -> bool:
        """Whether another stream or session has come to `low` or beyond, so that holes are theirs."""
        if session.counted_past(stream, low):
            return True
        others = (s.newest for s in self.sessions.values() if s is not session)
        return any(last is not None and last.seq[0] >= low for last in others)

    def __iter__(self) -> Iterator[Session]:
        return iter(self.sessions.values())
