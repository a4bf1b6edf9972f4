"""Every interleaving of one session's exchanges: what must hold after each step, whatever came before it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.engine.findings import ResumeAttempted
from proxy.engine.heads import Answer
from proxy.engine.ledger import Bounds, Session
from proxy.engine.policy import Mode, Policy
from tests.engine.model import Link, Server
from tests.engine.shell import Client, Phase, Shell

PICK = st.integers(0, 7)
SELDOM = st.sampled_from([False, False, False, False, True])
OFTEN = st.sampled_from([True, True, True, False])
GATE = 90
BOUNDS = Bounds(sessions_per_upstream=2, streams_per_session=5, ids_per_stream=8, session_idle_s=900.0)


class Interleavings(RuleBasedStateMachine):
    """One session of one upstream, many exchanges, one careless or healthy server."""

    @initialize(
        mode=st.sampled_from([Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.ANNOTATE, Mode.OBSERVE]),
        notify=st.booleans(),
        calls=st.integers(0, 2),
    )
    def begin(self, mode: Mode, notify: bool, calls: int) -> None:
        """A proxy with this policy, and a session with calls that lost their connections."""
        self.shell = Shell(Policy(mode=mode, notify=notify), bounds=BOUNDS, gate_bytes=GATE)
        self.server = Server(self.shell)
        self.server.initialize(carry=False)
        self.others = 0
        self.ever_forked = False
        self.pending: set[object] = set()
        self.was_quarantined = False
        for _ in range(calls):
            self.call(depth=2)
            self.talk(pick=0, events=3, answer=False, size=1000)
            self.close(pick=0, how="lost")

    # ---- what the client does

    @rule(depth=st.integers(0, 2))
    def call(self, depth: int) -> None:
        """A call begins; its body may be complete at once, and its stream open."""
        link = self.server.post()
        if depth > 0:
            self.server.upload(link, too_large=False)
        if depth > 1 and link.client.phase is Phase.WAITING:
            self.server.respond(link, as_stream=True)

    @rule(pick=PICK, too_large=SELDOM)
    def upload(self, pick: int, too_large: bool) -> None:
        """A call's body is complete."""
        link = self._choose(pick, lambda each: not each.uploaded)
        if link is not None:
            self.server.upload(link, too_large)

    @rule(pick=PICK, cursor=st.sampled_from(["none", "old", "old", "old", "unknown"]), answered=OFTEN)
    def get(self, pick: int, cursor: str, answered: bool) -> None:
        """A plain GET, a resume of anything that was ever relayed, or one of nothing."""
        relayed = self.server.relayed()
        number = None if cursor == "none" or not relayed else 10**6
        if number is not None and cursor == "old":
            number = relayed[-1 - pick % len(relayed)]
            self.ever_forked = self.ever_forked or self.server.stale(number)
        link = self.server.get(number)
        if answered and link.client.open:
            self.server.respond(link, as_stream=True)

    @rule(granted=st.booleans(), really=SELDOM, left=SELDOM)
    def delete(self, granted: bool, really: bool, left: bool) -> None:
        """The client ends the session; the server may not grant it, and the client may not wait."""
        if not really:
            return
        client = self.shell.begin("DELETE")
        if left:
            client.leave()
        elif granted:
            self.server.alive = False
            client.responded(Answer(204, False)).end()
        else:
            client.responded(Answer(405, False)).end()

    @rule(carry=st.booleans(), anyway=SELDOM)
    def initialize_again(self, carry: bool, anyway: bool) -> None:
        """The client begins anew where it must, seldom where it need not."""
        if anyway or self._quarantined or not self.server.alive:
            self.server.initialize(carry)
            self.ever_forked = False

    # ---- what the server does

    @rule(pick=PICK, as_stream=OFTEN)
    def respond(self, pick: int, as_stream: bool) -> None:
        """The head of an answer comes, perhaps before the upload is complete."""
        link = self._choose(pick, _answerable)
        if link is not None:
            self.server.respond(link, as_stream)

    @rule(pick=PICK, events=st.integers(1, 3), answer=SELDOM, size=st.sampled_from([0, 7, 40, 1000, 1000]))
    def talk(self, pick: int, events: int, answer: bool, size: int) -> None:
        """Events are written; a part of what is written is read."""
        link = self._choose(pick, _streams)
        if link is not None:
            for _ in range(events):
                self.server.emit(link, answer)
            self._flow(link, size)

    @rule(pick=PICK, size=st.sampled_from([1, 5, 30, 64, 1000]))
    def flow(self, pick: int, size: int) -> None:
        """So many bytes are read."""
        link = self._choose(pick, lambda each: bool(each.unread))
        if link is not None:
            self._flow(link, size)

    @precondition(lambda self: self.server.counter > 1)
    @rule()
    def restart(self) -> None:
        """The fork."""
        self.server.restart()
        self.ever_forked = True

    @precondition(lambda self: self.server.counter > 1)
    @rule(answered=st.integers(0, 4), fork=OFTEN)
    def reconnect(self, answered: int, fork: bool) -> None:
        """The network drops: all that was open resumes at once, perhaps at a server that knows nothing."""
        if fork:
            self.restart()
        numbers = self.server.relayed()[-4:]
        self.ever_forked = self.ever_forked or any(self.server.stale(number) for number in numbers)
        links = [self.server.get(number) for number in numbers]
        for link in links[:answered]:
            if not self._quarantined:
                self.pending = set(self._reachable())
            if link.client.open:
                self.server.respond(link, as_stream=True)
        for size in (40, 1000):
            for link in [link for link in links if _streams(link)][-1:]:
                self.server.emit(link, answer=False)
                self._flow(link, size)

    # ---- how things end, and time

    @rule(pick=PICK, how=st.sampled_from(["left", "drained", "lost", "finished"]))
    def close(self, pick: int, how: str) -> None:
        """A client leaves, the proxy drains, the upstream breaks off, or ends what was read."""
        link = self._choose(pick, lambda each: how == "left" or _streams(each))
        if link is None:
            return
        if how == "left":
            link.client.leave()
        elif how == "drained":
            link.client.drain()
        elif how == "finished" and not link.unread:
            link.client.end()
        else:
            self.server.lose(link)

    @rule(seconds=st.sampled_from([0.5, 0.5, 6.0, 60.0, 601.0]))
    def pass_time(self, seconds: float) -> None:
        """Deadlines, and what is due for expiry."""
        self.shell.pass_time(seconds)
        self.shell.ledger.expire(self.shell.now)

    @rule(really=SELDOM)
    def another_session(self, really: bool) -> None:
        """Room is made: perhaps by forgetting this session, with exchanges under way."""
        if really:
            self.others += 1
            self.shell.open_session(f"x{self.others}")

    # ---- helpers of the rules

    def _choose(self, pick: int, wanted: object) -> Link | None:
        links = [link for link in self.server.open_links() if wanted(link)]  # type: ignore[operator]
        return links[pick % len(links)] if links else None

    def _flow(self, link: Link, size: int) -> None:
        client = link.client
        before = len(self.shell.judged)
        if not self._quarantined:
            self.pending = set(self._reachable())
        self.server.flow(link, size)
        if (
            not link.reborn
            or client.request.cursor is None
            or self.shell.upstream.policy.mode is not Mode.ENFORCE
        ):
            return
        ids = [int(part.split(b"\n")[0]) for part in bytes(client.sent).split(b"id: ")[1:] if b"\n\n" in part]
        if ids and ids[0] <= int(client.request.cursor) and len(self.shell.judged) > before:
            assert client.phase is Phase.ENDED
            assert client.exchange.relay is not None
            assert client.exchange.session is not None
            assert client.exchange.session.quarantine is not None

    @property
    def _quarantined(self) -> bool:
        return b"s1" in self.shell.upstream.quarantined

    def _sessions(self) -> Iterator[Session]:
        return iter(self.shell.upstream.sessions.values())

    # ---- what must hold after every step

    @invariant()
    def the_sums_are_those_of_a_recount(self) -> None:
        """Bytes, requests in flight, sessions."""
        upstream, sessions = self.shell.upstream, list(self._sessions())
        assert upstream.bytes == sum(session.bytes for session in sessions)
        for session in sessions:
            logs = [len(log) for stream in session.streams.values() for log in (stream.log, *stream.former)]
            held = 900 * len(session.streams) + 800 * len(session.timeline.connections)
            assert session.bytes == 2600 + held + 16 * sum(logs)
        assert upstream.requests_in_flight == sum(len(session.in_flight) for session in sessions)
        quarantined = [session for session in sessions if session.quarantine is not None]
        assert list(upstream.quarantined.values()) == sorted(
            quarantined, key=lambda session: list(upstream.quarantined).index(session.key)
        )
        assert upstream.sessions_quarantined == len(quarantined)
        active = [session for session in sessions if session.quarantine is None and not session.ended]
        assert upstream.sessions_active == len(active)

    @invariant()
    def the_connections_are_those_that_are_open(self) -> None:
        """Of each stream as many as clients have; of each session those under way."""
        relays = [client.exchange.relay for client in self.shell.clients if client.open]
        open_streams = Counter(id(relay.stream) for relay in relays if relay is not None)
        under_way = [client.exchange for client in self.shell.clients if client.open]
        for session in self._sessions():
            for stream in session.streams.values():
                assert stream.attachments == open_streams[id(stream)]
                for key in stream.owed:
                    assert session.in_flight[key].stream is stream
            assert set(session.exchanges) == {each for each in under_way if each.session is session}

    @invariant()
    def no_healthy_session_is_cut(self) -> None:
        """Without a fork in the script there is no cut, and the milder modes never make one."""
        enforces = self.shell.upstream.policy.mode is Mode.ENFORCE
        assert not self._quarantined or (self.ever_forked and enforces)

    @invariant()
    def in_quarantine_nothing_goes_on(self) -> None:
        """No stream is open; what waits was withdrawn, or waits for its ids; a JSON answer may finish."""
        for client in self.shell.clients:
            session = client.exchange.session
            if client.open and session is not None and session.quarantine is not None:
                assert client.exchange.relay is None
                waits = client.withdrawn or client.held_back or client.request.method == "DELETE"
                assert waits or client.phase is Phase.STREAMING

    @invariant()
    def each_pending_call_fails_once(self) -> None:
        """No id fails twice, and a cut fails in its turn all that clients were waiting for here."""
        errors = Counter(one for client in self.shell.clients for one in client.error_ids if one is not None)
        assert not errors or set(errors.values()) == {1}
        if self._quarantined and not self.was_quarantined:
            assert self.pending <= set(errors)
        self.was_quarantined = self._quarantined
        self.pending = set(self._reachable())

    def _reachable(self) -> Iterator[object]:
        session = self.shell.upstream.sessions.get(b"s1")
        if session is None:
            return
        for link in self.server.open_links():
            exchange = link.client.exchange
            if exchange.session is not session or not link.uploaded:
                continue
            if exchange.relay is not None:
                yield from session.owed_ids(exchange.relay.stream)
            elif link.client.phase is Phase.WAITING and f"i:{link.request}" in session.in_flight:
                yield link.request

    @invariant()
    def each_client_has_what_was_sent(self) -> None:
        """Nothing but what the upstream sent, in order; never more than a frame is held back."""
        for client in self.shell.clients[-12:]:
            body, sent = bytes(client.body), bytes(client.sent)
            if b"forkwatch" in body:
                continue
            assert sent.startswith(body)
            if client.exchange.relay is None or self.shell.upstream.policy.mode is not Mode.ENFORCE:
                assert body == sent
            elif client.phase is Phase.STREAMING:
                assert len(sent) - len(body) <= GATE

    @invariant()
    def each_resume_has_one_verdict(self) -> None:
        """All but those under way."""
        attempted = sum(isinstance(item, ResumeAttempted) for item in self.shell.reports)
        judging = sum(_unjudged(client) for client in self.shell.clients)
        assert attempted == len(self.shell.judged) + judging

    def teardown(self) -> None:
        """Everything ends; nothing is left open."""
        if not hasattr(self, "shell"):
            return
        for client in self.shell.clients:
            client.leave()
        self.the_sums_are_those_of_a_recount()
        self.the_connections_are_those_that_are_open()
        self.each_resume_has_one_verdict()
        for session in self._sessions():
            assert session.exchanges == {}
        self.shell.pass_time(10_000.0)
        self.shell.ledger.expire(self.shell.now)
        self.shell.ledger.expire(self.shell.now)
        assert self.shell.upstream.requests_in_flight == 0


def _streams(link: Link) -> bool:
    return link.client.phase is Phase.STREAMING and link.stream is not None


def _answerable(link: Link) -> bool:
    """Whether the upstream has the request and has not answered it."""
    client = link.client
    waits_here = client.withdrawn or (client.held_back and not link.uploaded)
    return client.phase is Phase.WAITING and not waits_here


def _unjudged(client: Client) -> bool:
    """Whether this is a resume whose verdict is still to come."""
    if not client.open or not client.request.resumes:
        return False
    relay = client.exchange.relay
    return client.phase is Phase.WAITING if relay is None else relay.judging


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
