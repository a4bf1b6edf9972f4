"""Each report of the engine as the counters and the one line it becomes."""

from __future__ import annotations

import io
import json
import tracemalloc
from base64 import b64encode
from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.settings import LogSettings
from proxy.engine.findings import (
    PRODUCIBLE,
    REASONS,
    Action,
    AttachmentKind,
    Certainty,
    CloseCause,
    FailedOpen,
    Finding,
    Gated,
    Judged,
    Judgement,
    Malformed,
    QuarantineEnd,
    QuarantineEnded,
    QuarantineRejected,
    Raised,
    Reason,
    Reportable,
    ResumeAttempted,
    SessionClosed,
    SessionCloseReason,
    SessionOpened,
    SessionQuarantined,
    StreamClosed,
    StreamOpened,
    Verdict,
)
from proxy.engine.privacy import hash_session
from proxy.logs import Log, open_log
from proxy.metrics import Metrics
from proxy.reporting import LEVELS, Reporter, hint_of, without_session

FORK = Judged(
    session="abc",
    stream="p-7",
    judgement=Judgement(Verdict.FORK, Reason.ID_REGRESSED, got=b"p7_1", lost=7, duplicated=2),
    cursor=b"p7_111",
    high=b"p7_118",
    first_id=b"p7_112",
    outstanding=7,
    epoch=1,
    in_flight=1,
    away_s=1.00349,
    took_s=0.0114,
    replica="a",
    previous_replica=None,
    lost_anew=7,
)
CLOSED = StreamClosed(
    session="abc",
    stream="p-7",
    kind=AttachmentKind.POST,
    cause=CloseCause.COMPLETED,
    events=118,
    last_id=b"p7_118",
    bytes=40211,
    duration_s=88.30001,
    ttfb_s=0.25,
)


class Desk:
    """A reporter over real counters and a real log kept in memory."""

    def __init__(self, *, exemplars: bool = False) -> None:
        self.metrics = Metrics([("tools", "observe")], version="1", exemplars=exemplars)
        self.before = self.samples()
        self._out = io.BytesIO()
        self._log: Log = open_log(LogSettings(format="json", level="debug"), stream=self._out)
        self.reporter = Reporter(self.metrics, self._log)

    def samples(self, accept: str | None = None) -> dict[str, float]:
        """Every series of this upstream and its value, except the buckets of histograms."""
        lines = self.metrics.render(accept, [])[0].decode().splitlines()
        split = [
            line.rsplit(" ", 1) for line in lines if 'upstream="tools"' in line and "_bucket" not in line
        ]
        return {series: float(value) for series, value in split}

    def changed(self) -> dict[str, float]:
        """The series that changed since the start, without prefix and upstream label, and by how much."""
        now = self.samples()
        return {
            series.removeprefix("forkwatch_")
            .replace('upstream="tools",', "")
            .replace(',upstream="tools"', "")
            .replace('{upstream="tools"}', ""): round(value - self.before.get(series, 0), 6)
            for series, value in now.items()
            if value != self.before.get(series, 0)
        }

    def lines(self) -> list[dict[str, object]]:
        """What was logged, without the time."""
        assert self._log.close()
        lines = [json.loads(line) for line in self._out.getvalue().splitlines()]
        return [{key: value for key, value in line.items() if key != "ts"} for line in lines]


def reported(item: Reportable) -> tuple[dict[str, float], list[dict[str, object]]]:
    """What one report changes and logs."""
    desk = Desk()
    desk.reporter.report("tools", item, 0.0)
    return desk.changed(), desk.lines()


def test_a_judged_resume_is_counted_and_told_with_all_its_circumstances() -> None:
    """The verdict, the losses, the three histograms, one error line, and one for the action."""
    desk = Desk()
    desk.reporter.report("tools", FORK._replace(action=Action.ANNOTATE, would_cut=True), 0.0)
    assert desk.changed() == {
        'resume_verdicts_total{certainty="proven",reason="id_regressed",verdict="fork"}': 1,
        'policy_actions_total{action="annotate"}': 1,
        'policy_actions_total{action="would_cut"}': 1,
        "events_lost_total": 7,
        "events_duplicated_total": 2,
        "resume_gap_events_count": 1,
        "resume_gap_events_sum": 7,
        "resume_gap_seconds_count": 1,
        "resume_gap_seconds_sum": 1.00349,
        "detection_seconds_count": 1,
        "detection_seconds_sum": 0.0114,
    }
    assert desk.lines() == [
        {
            "level": "error",
            "event": "resume.judged",
            "upstream": "tools",
            "session": hash_session("abc"),
            "stream": "p-7",
            "verdict": "fork",
            "reason": "id_regressed",
            "certainty": "proven",
            "cursor": "p7_111",
            "high": "p7_118",
            "outstanding": 7,
            "first_id": "p7_112",
            "lost": 7,
            "duplicated": 2,
            "epoch": 1,
            "in_flight": 1,
            "away_s": 1.003,
            "replica": "a",
            "previous_replica": None,
            "action": "annotate",
            "took_ms": 11.4,
            "hint": hint_of(FORK),
        },
        {
            "level": "warning",
            "event": "policy.action",
            "upstream": "tools",
            "session": hash_session("abc"),
            "stream": "p-7",
            "mode": "observe",
            "action": "would_cut",
            "verdict": "fork",
            "reason": "id_regressed",
            "certainty": "proven",
        },
    ]


def test_a_loss_that_was_counted_before_is_not_counted_again() -> None:
    """The line says what this resume lacks; the counter only what no resume of the cursor lacked before."""
    changed, lines = reported(FORK._replace(lost_anew=2))
    assert changed["events_lost_total"] == 2
    assert lines[0]["lost"] == 7


def test_a_session_id_inside_an_event_id_is_hashed() -> None:
    """The Java SDK's response ids are the session's; the C# SDK's hold it in base64."""
    session = "9f8e7d6c5b4a39281706f5e4d3c2b1a0"
    shown = hash_session(session)
    ids = session.encode(), b64encode(session.encode()) + b":X19nZXRfXw==:7", b"7"
    item = FORK._replace(session=session, cursor=ids[0], high=ids[1], first_id=ids[2])
    _, (line,) = reported(item)
    assert (line["cursor"], line["high"], line["first_id"]) == (shown, f"{shown}:X19nZXRfXw==:7", "7")


def test_long_session_ids_that_clients_make_up_are_not_kept() -> None:
    """What is looked for in an event id is remembered for short session ids alone: heads are up to 64 KiB."""
    tracemalloc.start()
    try:
        for n in range(60):
            session = f"{n:04}" * 7500
            assert session.encode() not in (without_session(session.encode(), session) or b"")
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 1 << 20


def test_unknown_time_away_is_not_observed() -> None:
    """None is no zero."""
    changed, lines = reported(FORK._replace(away_s=None))
    assert not [series for series in changed if "gap_seconds" in series]
    assert lines[0]["away_s"] is None


@pytest.mark.parametrize("verdict", Verdict)
def test_every_verdict_has_its_level(verdict: Verdict) -> None:
    """Good behaviour and blindness inform, losses warn, other logs are errors."""
    expected = {"rewound": "warning", "gap": "warning", "fork": "error", "crossed": "error"}
    reason, certainties = next(iter(REASONS[verdict].items()))
    item = FORK._replace(judgement=Judgement(verdict, reason, certainties[0]))
    _, lines = reported(item)
    assert lines[0]["level"] == expected.get(verdict, "info")
    assert set(LEVELS) == set(Verdict)


@pytest.mark.parametrize(("verdict", "reason", "certainty"), PRODUCIBLE)
def test_every_judgement_counts_in_a_series_that_was_there(
    verdict: Verdict, reason: Reason, certainty: Certainty
) -> None:
    """No judgement the engine can give creates a series."""
    desk = Desk()
    desk.reporter.report("tools", FORK._replace(judgement=Judgement(verdict, reason, certainty)), 0.0)
    assert desk.samples().keys() == desk.before.keys()
    assert desk.metrics.upstream("tools").resume_verdicts[verdict, reason, certainty] == 1


@pytest.mark.parametrize("finding", Finding)
def test_a_finding_is_counted_and_told(finding: Finding) -> None:
    """A missing response counts as a request unanswered as well."""
    changed, lines = reported(Raised(finding, "abc", "p-7", "why"))
    expected = {f'findings_total{{finding="{finding}"}}': 1.0}
    if finding is Finding.RESPONSE_MISSING:
        expected["requests_unanswered_total"] = 1.0
    assert changed == expected
    assert lines == [
        {
            "level": "warning",
            "event": "finding.raised",
            "upstream": "tools",
            "session": hash_session("abc"),
            "stream": "p-7",
            "finding": str(finding),
            "detail": "why",
        }
    ]


def test_an_attempt_is_counted_and_told() -> None:
    """A GET with a cursor, before its verdict."""
    assert reported(ResumeAttempted("abc", b"p7_1\xff")) == (
        {"resume_attempts_total": 1},
        [
            {
                "level": "info",
                "event": "resume.attempted",
                "upstream": "tools",
                "session": hash_session("abc"),
                "cursor": r"p7_1\xff",
            }
        ],
    )


def test_a_session_that_opens_is_counted_by_its_revision() -> None:
    """A revision nobody knows is `other` in the metric and itself in the line."""
    changed, lines = reported(SessionOpened("abc", "2099-01-01", followed=True))
    assert changed == {'sessions_opened_total{protocol="other"}': 1}
    assert lines == [
        {
            "level": "info",
            "event": "session.opened",
            "upstream": "tools",
            "session": hash_session("abc"),
            "protocol": "2099-01-01",
            "followed": True,
        }
    ]


@pytest.mark.parametrize("reason", SessionCloseReason)
def test_a_session_that_closes_is_counted_by_its_reason(reason: SessionCloseReason) -> None:
    """An eviction has an event of its own, since it loses a baseline."""
    evicted = reason is SessionCloseReason.EVICTED
    changed, lines = reported(SessionClosed("abc", reason))
    assert changed == {f'sessions_closed_total{{reason="{reason}"}}': 1}
    assert lines == [
        {
            "level": "warning" if evicted else "info",
            "event": "session.evicted" if evicted else "session.closed",
            "upstream": "tools",
            "session": hash_session("abc"),
            "reason": str(reason),
        }
    ]


def test_a_stream_is_open_until_it_is_closed() -> None:
    """The gauge goes up and down, and each end of the stream has its line."""
    desk = Desk()
    desk.reporter.report("tools", StreamOpened("abc", "p-7", AttachmentKind.POST), 0.0)
    assert desk.changed() == {'streams_open{attachment="post"}': 1}
    desk.reporter.report("tools", CLOSED, 0.0)
    assert desk.changed() == {'streams_closed_total{attachment="post",cause="completed"}': 1}
    bound = {"upstream": "tools", "session": hash_session("abc"), "stream": "p-7"}
    assert desk.lines() == [
        {"level": "debug", "event": "stream.opened", **bound, "kind": "post"},
        {
            "level": "info",
            "event": "stream.closed",
            **bound,
            "kind": "post",
            "cause": "completed",
            "events": 118,
            "last_id": "p7_118",
            "bytes": 40211,
            "duration_s": 88.3,
            "ttfb_ms": 250.0,
        },
    ]


@pytest.mark.parametrize(("kind", "cause"), [*product(AttachmentKind, CloseCause)])
def test_every_end_of_a_stream_counts_and_warns_when_abnormal(
    kind: AttachmentKind, cause: CloseCause
) -> None:
    """What a healthy client or server does informs; what broke a stream warns."""
    abnormal = {"eof_incomplete", "upstream_reset", "upstream_idle", "proxy_error"}
    changed, lines = reported(CLOSED._replace(kind=kind, cause=cause, ttfb_s=None, last_id=None))
    assert changed[f'streams_closed_total{{attachment="{kind}",cause="{cause}"}}'] == 1
    assert lines[0]["level"] == ("warning" if cause in abnormal else "info")
    assert (lines[0]["ttfb_ms"], lines[0]["last_id"]) == (None, None)


def test_a_quarantine_is_counted_and_told_loudly() -> None:
    """A session that was cut is an error line with the verdict and how long it stays refused."""
    changed, lines = reported(SessionQuarantined("abc", FORK.judgement, 600.0))
    assert changed == {"quarantines_total": 1}
    assert lines == [
        {
            "level": "error",
            "event": "session.quarantined",
            "upstream": "tools",
            "session": hash_session("abc"),
            "verdict": "fork",
            "reason": "id_regressed",
            "certainty": "proven",
            "ttl_s": 600.0,
        }
    ]


def test_a_refused_request_is_counted_and_told() -> None:
    """What the proxy answered in a quarantined session's name, with method and status."""
    changed, lines = reported(QuarantineRejected("abc", "GET", 404))
    assert changed == {"quarantine_rejected_requests_total": 1}
    assert [(line["event"], line["method"], line["status"]) for line in lines] == [
        ("quarantine.rejected", "GET", 404)
    ]


@pytest.mark.parametrize("cause", QuarantineEnd)
def test_the_end_of_a_quarantine_is_counted_by_its_cause(cause: QuarantineEnd) -> None:
    """Every cause has its own series and is in the line."""
    changed, lines = reported(QuarantineEnded("abc", cause))
    assert changed == {f'quarantines_ended_total{{cause="{cause}"}}': 1}
    assert [(line["event"], line["cause"]) for line in lines] == [("quarantine.ended", cause)]


def test_time_in_the_gate_is_counted_without_a_line() -> None:
    """How long frames were held back is a histogram."""
    changed, lines = reported(Gated(0.25))
    assert changed == {"gate_seconds_count": 1, "gate_seconds_sum": 0.25}
    assert lines == []


def test_a_malformed_line_is_counted_and_told() -> None:
    """What a server sent that is no SSE."""
    changed, lines = reported(Malformed("", "", "id with NUL"))
    assert changed == {"sse_parse_errors_total": 1}
    assert lines == [
        {"level": "warning", "event": "sse.malformed", "upstream": "tools", "detail": "id with NUL"}
    ]


def test_failing_open_is_counted_and_told() -> None:
    """The part that failed and what it said."""
    changed, lines = reported(FailedOpen("gate", "KeyError: 'x'"))
    assert changed == {'fail_open_total{component="gate"}': 1}
    assert lines == [
        {
            "level": "warning",
            "event": "check.failed_open",
            "upstream": "tools",
            "component": "gate",
            "error": "KeyError: 'x'",
        }
    ]


def test_the_same_verdict_is_told_five_times_then_once_a_window_and_always_counted() -> None:
    """A reconnect storm does not drown the log; `repeated` says how many lines it would have been."""
    desk = Desk()
    for number in range(1000):
        desk.reporter.report("tools", FORK, number / 100)
    desk.reporter.report("tools", FORK, 10.0)
    desk.reporter.report("tools", FORK._replace(cursor=b"other"), 10.0)
    assert desk.changed()["events_lost_total"] == 7 * 1002
    assert [(line["cursor"], line.get("repeated")) for line in desk.lines()] == [
        *[("p7_111", None)] * 5,
        ("p7_111", 995),
        ("other", None),
    ]


@pytest.mark.parametrize(
    ("item", "other"),
    [
        (Raised(Finding.ID_REUSED, "abc", "p-7"), Raised(Finding.ID_REUSED, "another", "p-7")),
        (ResumeAttempted("abc", b"1"), ResumeAttempted("another", b"1")),
        (Malformed("abc", "p-7", "x"), Malformed("another", "p-7", "x")),
    ],
    ids=["finding", "attempt", "malformed"],
)
def test_what_a_peer_can_repeat_without_end_is_thinned(item: Reportable, other: Reportable) -> None:
    """Five lines, then silence within the window; another session has its own five."""
    desk = Desk()
    for _ in range(50):
        desk.reporter.report("tools", item, 0.0)
    desk.reporter.report("tools", other, 0.0)
    assert len(desk.lines()) == 6


def test_calls_that_end_do_not_crowd_out_what_is_repeated() -> None:
    """Each has its line, and none takes the place of a reconnect storm among the things remembered."""
    desk = Desk()
    attempt, calls = ResumeAttempted("abc", b"1"), 4097
    call = CLOSED._replace(session="abc", kind=AttachmentKind.POST)
    for _ in range(6):
        desk.reporter.report("tools", attempt, 0.0)
    for number in range(calls):
        desk.reporter.report("tools", call._replace(stream=f"post-{number}"), 0.0)
    desk.reporter.report("tools", attempt, 0.0)
    events = Counter(line["event"] for line in desk.lines())
    assert events == {"resume.attempted": 5, "stream.closed": calls}


def test_resumes_that_end_again_and_again_are_thinned() -> None:
    """A loop of resumes ends as often as it begins."""
    desk = Desk()
    for _ in range(50):
        desk.reporter.report("tools", CLOSED._replace(session="abc", kind=AttachmentKind.RESUME), 0.0)
    assert len(desk.lines()) == 5


def test_exemplars_name_the_hashed_session_when_they_are_on() -> None:
    """Never the raw one, and nothing at all by default."""
    on, off = Desk(exemplars=True), Desk()
    for desk in (on, off):
        desk.reporter.report("tools", FORK, 0.0)
    text = on.metrics.render("application/openmetrics-text; version=1.0.0", [])[0].decode()
    assert f'# {{session="{hash_session("abc")}"}}' in text
    assert '"abc"' not in text
    assert off.metrics.upstream("tools").verdict_exemplars == {}


@given(
    session=st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape")),
    cursor=st.binary(),
    high=st.none() | st.binary(),
    replica=st.none() | st.text(),
)
def test_no_bytes_of_a_peer_raise(
    session: str, cursor: bytes, high: bytes | None, replica: str | None
) -> None:
    """Observability never breaks a relay."""
    desk = Desk(exemplars=True)
    items: list[Reportable] = [
        FORK._replace(session=session, cursor=cursor, high=high, first_id=high, replica=replica),
        ResumeAttempted(session, cursor),
        Malformed(session, session, session),
        CLOSED._replace(session=session, last_id=high),
        FailedOpen(session, session),
    ]
    for item in items:
        desk.reporter.report("tools", item, 0.0)
    assert len(desk.lines()) == len(items)
