"""Which sessions are known: opened by 2xx answers, touched by use, evicted and expired within bounds."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.engine.findings import (
    AttachmentKind,
    Finding,
    Raised,
    Reportable,
    SessionClosed,
    SessionCloseReason,
    SessionOpened,
)
from proxy.engine.ledger import Bounds, Pending, Session, Stream
from proxy.engine.sessions import PROTOCOLS, Ledger, missing_responses
from tests.engine.drive import Drive, event, result


class World(NamedTuple):
    """A ledger of two upstreams."""

    ledger: Ledger

    def open(
        self,
        key: str,
        *,
        now: float = 0.0,
        at: str = "a",
        initialized: bool = True,
        protocol: str | None = None,
    ) -> tuple[Session, list[Reportable]]:
        """A 2xx answer shows that the session exists."""
        upstream = self.ledger.upstreams[at]
        return self.ledger.open(upstream, key.encode(), now, initialized=initialized, protocol=protocol)

    def known(self, at: str = "a") -> list[str]:
        """The sessions of an upstream, least recently used first."""
        return [key.decode() for key in self.ledger.upstreams[at].sessions]


def world(**bounds: float) -> World:
    """A ledger with these bounds."""
    return World(Ledger(Bounds(**bounds), {"a": None, "b": None}))  # type: ignore[arg-type]


def fill(session: Session, count: int) -> Stream:
    """The session shows so many ids on a stream."""
    stream = session.open_stream(AttachmentKind.GET)
    for n in range(count):
        session.append(stream, b"x", n, 100 + n, None, None)
    return stream


@pytest.mark.parametrize("protocol", [*sorted(PROTOCOLS), "2023-01-01", None])
def test_a_session_opens_once(protocol: str | None) -> None:
    """The first 2xx opens it, later ones find it; an unknown revision is `other`."""
    w = world()
    session, reports = w.open("s", initialized=False, protocol=protocol)
    named = protocol if protocol in PROTOCOLS else "other"
    assert reports == [SessionOpened("s", named or "other", followed=False)]
    assert w.open("s", now=5.0, initialized=False) == (session, [])
    assert (session.used_at, session.followed, session.complete) == (5.0, False, False)
    assert session.upstream.sessions_active == 1


def test_a_key_that_is_no_text_still_has_a_name() -> None:
    """Bytes that are not UTF-8 are shown escaped, the same everywhere."""
    ledger = world().ledger
    session, reports = ledger.open(ledger.upstreams["a"], b"s\xff", 0.0, initialized=True, protocol=None)
    assert session.name == "s\\xff"
    assert reports == [SessionOpened("s\\xff", "other", followed=True)]


def test_a_session_issued_again_begins_another_epoch() -> None:
    """`initialize` answered with a known id: what was in flight is over, and the logs begin anew."""
    w = world()
    session, _ = w.open("s")
    session.expect("i:1", Pending(1))
    again, reports = w.open("s", protocol="2025-06-18")
    assert again is session
    assert reports == [
        Raised(Finding.SESSION_REISSUED, "s"),
        SessionClosed("s", SessionCloseReason.REISSUED),
        SessionOpened("s", "2025-06-18", followed=True),
    ]
    assert (session.epoch, session.in_flight, session.upstream.sessions_active) == (2, {}, 1)


def test_an_ended_session_is_known_and_may_return() -> None:
    """DELETE ends it once; it is served again as another epoch, or issued again without a second close."""
    w = world()
    session, _ = w.open("s")
    upstream = session.upstream
    assert w.ledger.end(session) == [SessionClosed("s", SessionCloseReason.DELETED)]
    assert w.ledger.end(session) == []
    assert upstream.sessions_active == 0
    assert w.ledger.revive(session) == [SessionOpened("s", "other", followed=False)]
    assert (session.epoch, session.ended, upstream.sessions_active) == (2, False, 1)
    w.ledger.end(session)
    _, reports = w.open("s")
    assert reports == [Raised(Finding.SESSION_REISSUED, "s"), SessionOpened("s", "other", followed=True)]
    assert upstream.sessions_active == 1


# ---- bounds


def test_the_least_recently_used_session_goes_first() -> None:
    """A touch is use; the newcomer stays."""
    w = world(sessions_per_upstream=2)
    w.open("one")
    w.open("two", now=1.0)
    w.ledger.find(w.ledger.upstreams["a"], b"one", 2.0)
    _, reports = w.open("three", now=3.0)
    assert reports[1:] == [SessionClosed("two", SessionCloseReason.EVICTED)]
    assert w.known() == ["one", "three"]
    assert w.ledger.find(w.ledger.upstreams["a"], b"two", 4.0) is None


def test_a_session_that_relays_gets_a_second_chance() -> None:
    """Its streams bring events though no request touches it; once, until it has brought more."""
    w = world(sessions_per_upstream=2)
    one, _ = w.open("one")
    w.open("two")
    fill(one, 1)
    w.open("three")
    assert w.known() == ["three", "one"]
    w.open("four")
    w.open("five")
    assert w.known() == ["four", "five"]


def test_if_all_relay_the_oldest_goes() -> None:
    """Nobody is spared for ever."""
    w = world(sessions_per_upstream=1)
    one, _ = w.open("one")
    fill(one, 1)
    w.open("two")
    assert w.known() == ["two"]


def test_an_evicted_session_is_closed_once() -> None:
    """An ended one has been closed already; its memory is given back in either case."""
    w = world(sessions_per_upstream=1)
    one, _ = w.open("one")
    w.ledger.end(one)
    _, reports = w.open("two")
    assert reports == [SessionOpened("two", "other", followed=True)]
    upstream = w.ledger.upstreams["a"]
    assert (upstream.sessions_active, len(upstream.numbered)) == (1, 1)
    assert upstream.bytes == upstream.sessions[b"two"].bytes


def test_too_many_bytes_are_given_back_by_the_upstream_that_holds_most() -> None:
    """Its own newcomers make room at once; a crowded neighbour gives way when time passes, by its name."""
    w = world(ledger_bytes=55_000)
    for n in range(3):
        session, _ = w.open(f"a{n}")
        fill(session, 600)
    small, reports = w.open("b0", at="b")
    assert reports == [SessionOpened("b0", "other", followed=True)]
    expired = w.ledger.expire(0.0)
    assert expired == [("a", SessionClosed("a0", SessionCloseReason.EVICTED))]
    assert (w.known("a"), w.known("b")) == (["a1", "a2"], ["b0"])
    assert w.ledger.held_bytes <= 55_000
    fill(small, 1000)
    fill(w.ledger.upstreams["a"].sessions[b"a2"], 800)
    _, reports = w.open("a3")
    assert SessionClosed("a1", SessionCloseReason.EVICTED) in reports
    assert w.known("b") == ["b0"]


def test_one_session_that_is_too_large_alone() -> None:
    """It is not evicted by its own opening; when time passes everything that does not fit goes."""
    w = world(ledger_bytes=1000)
    _, reports = w.open("s")
    assert reports == [SessionOpened("s", "other", followed=True)]
    assert w.ledger.expire(0.0) == [("a", SessionClosed("s", SessionCloseReason.EVICTED))]
    assert w.ledger.expire(0.0) == []
    assert w.ledger.upstreams["a"].bytes == 0


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab"), st.integers(0, 300)), max_size=80),
    limit=st.integers(40_000, 120_000),
)
def test_a_ledger_never_outgrows_its_bounds(steps: list[tuple[int, str, int]], limit: int) -> None:
    """Whatever is opened and shown: sessions at once, bytes as soon as time passes."""
    w = world(sessions_per_upstream=4, streams_per_session=3, ids_per_stream=64, ledger_bytes=limit)
    for now, (key, at, count) in enumerate(steps):
        session, _ = w.open(str(key), at=at, now=float(now), initialized=count % 2 == 0)
        fill(session, count)
        for upstream in w.ledger.upstreams.values():
            assert len(upstream.sessions) <= 4
            assert set(upstream.numbered.values()) == set(upstream.sessions.values())
            assert upstream.bytes == sum(each.bytes for each in upstream.sessions.values())
            assert all(len(each.streams) <= 3 for each in upstream.sessions.values())
        w.ledger.expire(float(now))
        assert w.ledger.held_bytes <= limit


@pytest.mark.parametrize(
    ("upstreams", "limit"), [(1, 256 << 20), (20, 256 << 20), (20, 16 << 20), (2, 1 << 20)]
)
def test_the_owners_of_ids_leave_room_for_sessions(upstreams: int, limit: int) -> None:
    """However many upstreams have shown however many ids, their tables take a quarter of the ledger at most."""
    ledger = Ledger(Bounds(ledger_bytes=limit), {f"u{n}": None for n in range(upstreams)})
    most = [upstream.owners.limit for upstream in ledger.upstreams.values()]
    assert limit // 16 < 2 * 8 * sum(most) <= limit // 4 or max(most) == 1 << 20
    ledger.configure(Bounds(ledger_bytes=limit), {f"u{n}": None for n in range(2 * upstreams)})
    assert 2 * 8 * sum(upstream.owners.limit for upstream in ledger.upstreams.values()) <= limit // 4


# ---- time


def test_idle_sessions_expire() -> None:
    """After `session_idle` without use, each reported with its upstream; an ended one in silence."""
    w = world(session_idle_s=100.0)
    w.open("old", now=0.0)
    w.open("kept", now=60.0)
    ended, _ = w.open("other", now=0.0, at="b")
    w.ledger.end(ended)
    assert w.ledger.expire(99.0) == []
    assert w.ledger.expire(100.0) == [("a", SessionClosed("old", SessionCloseReason.EXPIRED))]
    assert (w.known("a"), w.known("b")) == (["kept"], [])


def test_a_session_in_use_does_not_expire() -> None:
    """A stream that stays open for hours is use."""
    drive = Drive(bounds=Bounds(session_idle_s=100.0))
    drive.initialize()
    stream = drive.get().send(event(1))
    drive.now += 150.0
    assert drive.ledger.expire(drive.now) == []
    stream.end()
    drive.now += 100.0
    assert drive.ledger.expire(drive.now) == [("tools", SessionClosed("s1", SessionCloseReason.EXPIRED))]


def test_a_response_that_nobody_came_back_for_is_missing() -> None:
    """The call's stream ended owing it and could be resumed; `session_idle` later nobody had."""
    drive = Drive(bounds=Bounds(session_idle_s=100.0))
    drive.initialize()
    drive.call(7).send(event("7_1")).drop()
    drive.now += 60.0
    drive.show(event("g_2"))
    assert drive.ledger.expire(drive.now) == []
    drive.now += 40.0
    missing = Raised(Finding.RESPONSE_MISSING, "s1", "post-1", "i:7")
    assert drive.ledger.expire(drive.now) == [("tools", missing)]
    assert drive.upstream.requests_in_flight == 0


def test_a_response_that_came_by_a_resume_is_not_missing() -> None:
    """Neither while the resumed connection is open, nor after it has brought the response."""
    drive = Drive(bounds=Bounds(session_idle_s=100.0))
    drive.initialize()
    drive.call(7).send(event("7_1")).drop()
    drive.now += 60.0
    resumed = drive.get("7_1")
    drive.now += 40.0
    assert drive.ledger.expire(drive.now) == []
    resumed.send(result("7_2", 7)).end()
    drive.now += 90.0
    assert drive.ledger.expire(drive.now) == []  # its time runs from the end of its stream
    drive.now += 10.0
    closed = [("tools", SessionClosed("s1", SessionCloseReason.EXPIRED))]
    assert drive.ledger.expire(drive.now) == closed


def test_what_an_evicted_session_owed_is_not_reported() -> None:
    """It was closed with everything it was waiting for, and nothing holds on to it."""
    drive = Drive(bounds=Bounds(session_idle_s=100.0, sessions_per_upstream=1))
    drive.initialize()
    drive.call(7).send(event("7_1")).drop()
    drive.initialize("s2")
    drive.now += 99.0
    drive.ledger.find(drive.upstream, b"s2", drive.now)
    drive.now += 1.0
    assert drive.ledger.expire(drive.now) == []
    assert drive.upstream.awaiting == type(drive.upstream.awaiting)()


def test_waiting_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many the oldest is forgotten, and its response not reported as missing."""
    monkeypatch.setattr("proxy.engine.sessions._AWAITING", 2)
    drive = Drive(bounds=Bounds(session_idle_s=100.0))
    drive.initialize()
    for request in (1, 2, 3):
        drive.call(request).send(event(f"{request}_{request}")).drop()
    drive.now += 100.0
    details = [item.detail for _, item in drive.ledger.expire(drive.now) if isinstance(item, Raised)]
    assert details == ["i:2", "i:3"]


def test_missing_responses_without_a_session() -> None:
    """Stateless traffic owes responses too."""
    stream = Stream(0, AttachmentKind.POST, 0)
    stream.owed = ("i:1", "s:a")
    assert missing_responses(None, stream) == [
        Raised(Finding.RESPONSE_MISSING, "", "post-0", "i:1"),
        Raised(Finding.RESPONSE_MISSING, "", "post-0", "s:a"),
    ]
    assert missing_responses(None, stream) == []
