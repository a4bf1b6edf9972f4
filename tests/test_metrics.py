"""The exposition as a scraper sees it: names, labels, zeros, formats, and what it costs."""

from __future__ import annotations

import gc
import io
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client import parser as text_parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from proxy.config.settings import LogSettings
from proxy.engine.commands import Command
from proxy.engine.findings import (
    PRODUCIBLE,
    AttachmentKind,
    CloseCause,
    Ending,
    Finding,
    QuarantineEnd,
    Verdict,
)
from proxy.engine.heads import Answer
from proxy.engine.policy import Mode, Policy
from proxy.errors import ConfigError
from proxy.logs import Log, open_log
from proxy.metrics import METHODS, PROTOCOLS, Metrics, refuse_multiprocess
from proxy.reporting import Reporter
from proxy.tally import Tally
from tests.engine.drive import Connection, dump, event
from tests.engine.shell import Client, Shell

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
BUDGET = 250


def made(*upstreams: str, exemplars: bool = False) -> Metrics:
    """Metrics of these upstreams, or of one called `tools`."""
    names = upstreams or ("tools",)
    return Metrics([(name, "observe") for name in names], version="1.2.3", exemplars=exemplars)


def scraped(metrics: Metrics, *names: str, accept: str | None = None) -> list[str]:
    """The sample lines of a scrape."""
    body, _ = metrics.render(accept, list(names))
    return [line for line in body.decode().splitlines() if not line.startswith("#")]


def of_upstream(metrics: Metrics, name: str) -> list[str]:
    """The sample lines of one upstream."""
    return [line for line in scraped(metrics) if f'upstream="{name}"' in line]


def families(metrics: Metrics, accept: str | None = None) -> set[str]:
    """The families a strict parser reads from a scrape; it raises on what is not well formed."""
    body, content_type = metrics.render(accept, [])
    parser = openmetrics_parser if "openmetrics" in content_type else text_parser
    parsed = parser.text_string_to_metric_families(body.decode())
    return {family.name for family in parsed}


def test_every_family_of_an_upstream_is_there_at_zero_from_the_start() -> None:
    """Before any traffic each closed set is complete, so that the first increase fires an alert."""
    lines = of_upstream(made(), "tools")
    names = {line.split("{")[0] for line in lines}
    assert names == {
        "forkwatch_detection_seconds_bucket",
        "forkwatch_detection_seconds_count",
        "forkwatch_detection_seconds_sum",
        "forkwatch_events_duplicated_total",
        "forkwatch_events_lost_total",
        "forkwatch_events_relayed_total",
        "forkwatch_fail_open_total",
        "forkwatch_findings_total",
        "forkwatch_http_requests_in_flight",
        "forkwatch_policy_actions_total",
        "forkwatch_proxy_overhead_seconds_bucket",
        "forkwatch_proxy_overhead_seconds_count",
        "forkwatch_proxy_overhead_seconds_sum",
        "forkwatch_gate_seconds_bucket",
        "forkwatch_gate_seconds_count",
        "forkwatch_gate_seconds_sum",
        "forkwatch_quarantine_rejected_requests_total",
        "forkwatch_quarantines_ended_total",
        "forkwatch_quarantines_total",
        "forkwatch_requests_in_flight",
        "forkwatch_requests_unanswered_total",
        "forkwatch_resume_attempts_total",
        "forkwatch_resume_gap_events_bucket",
        "forkwatch_resume_gap_events_count",
        "forkwatch_resume_gap_events_sum",
        "forkwatch_resume_gap_seconds_bucket",
        "forkwatch_resume_gap_seconds_count",
        "forkwatch_resume_gap_seconds_sum",
        "forkwatch_resume_verdicts_total",
        "forkwatch_sessions",
        "forkwatch_sessions_closed_total",
        "forkwatch_sessions_opened_total",
        "forkwatch_sse_parse_errors_total",
        "forkwatch_stream_bytes_total",
        "forkwatch_streams_closed_total",
        "forkwatch_streams_open",
        "forkwatch_upstream_errors_total",
        "forkwatch_upstream_headers_seconds_bucket",
        "forkwatch_upstream_headers_seconds_count",
        "forkwatch_upstream_headers_seconds_sum",
        "forkwatch_upstream_info",
    }
    nonzero = [line for line in lines if not line.endswith(" 0.0")]
    assert nonzero == ['forkwatch_upstream_info{mode="observe",upstream="tools"} 1.0']


def test_every_verdict_the_engine_can_give_has_its_series() -> None:
    """The rows of the verdict counter are exactly the judgements the engine can produce."""
    expected = {
        f'forkwatch_resume_verdicts_total{{certainty="{certainty}",reason="{reason}",'
        f'upstream="tools",verdict="{verdict}"}} 0.0'
        for verdict, reason, certainty in PRODUCIBLE
    }
    assert len(expected) == 48
    assert set(scraped(made(), "forkwatch_resume_verdicts_total")) == expected


def test_an_upstream_stays_within_its_budget_of_series() -> None:
    """With histograms, and with an upstream that answers with every status there is."""
    metrics = made("a", "b")
    for method, status in product((*METHODS, "PURGE"), range(100, 1000)):
        metrics.upstream("a").count_request(method, status)
        metrics.upstream("a").observe_headers(method, 0.1)
    for reason in ("dns", "no such reason"):
        metrics.upstream("a").count_error(reason)
        metrics.upstream("a").count_fail_open(reason)
        metrics.upstream("a").count_session(reason)
    assert len(of_upstream(metrics, "a")) <= BUDGET
    assert len(of_upstream(metrics, "b")) <= BUDGET - 30


class CountingShell(Shell):
    """A shell whose reports are counted and logged by the real reporter, and whose answers are counted."""

    def __init__(self, metrics: Metrics, log: Log) -> None:
        super().__init__(Policy(mode=Mode.ENFORCE))
        self._metrics = metrics
        self._reporter = Reporter(metrics, log)
        metrics.watch("tools", self.upstream)

    def perform(self, connection: Connection, commands: Sequence[Command]) -> None:
        """Reports are not kept: there are many."""
        super().perform(connection, commands)
        for report in self.reports:
            self._reporter.report("tools", report, self.now)
        self.reports.clear()

    def count(self, client: Client, status: int) -> None:
        """An answer as the copy loop counts it; and nothing of the exchange is kept."""
        counters = self._metrics.upstream("tools")
        counters.count_request(client.request.method, status)
        counters.observe_headers(client.request.method, 0.01)
        self.clients.clear()
        self.connections.clear()


def live(shell: CountingShell, session: str, former: str, n: int) -> None:
    """The life of one session: opened, shown events whose ids contain its own, resumed in the n-th way."""
    revision = (*PROTOCOLS, session)[n % (len(PROTOCOLS) + 1)]
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": revision}}
    opening = shell.begin("POST", session=None).uploaded(dump(body))
    opening.responded(Answer(200, False, session=session.encode())).end()
    shell.count(opening, 200)
    shell.shown(*(event(f"{session}_{i}") for i in range(1, 6)), session=session)
    resumed = shell.begin("GET", session=session, cursor=f"{session}_3")
    status = 300 + n % 300 if n % 6 == 0 else 200
    resumed.responded(Answer(status, is_stream=status == 200))
    resumed.send(
        *{
            0: (),
            1: (event(f"{session}_4"), event(f"{session}_5")),
            2: (event(f"{session}_1"), event(f"{session}_2")),
            3: (event(f"{session}_4", "another log"),),
            4: (event(f"{session}_5"),),
            5: (event(f"{former}_5"),),
        }[n % 6]
    )
    resumed.end((Ending.CLEAN, Ending.UPSTREAM_FAILED)[n % 2])
    shell.count(resumed, status)
    last = shell.begin(("DELETE", "OPTIONS", "PUT", session)[n % 4], session=session)
    if last.open:
        last.responded(Answer(204, False)).end()
    shell.count(last, 204)


def test_ten_thousand_sessions_add_no_series() -> None:
    """Whatever their ids, revisions, methods, statuses and verdicts: the budget holds, and none is named."""
    metrics = made(exemplars=True)
    before = {line.rsplit(" ", 1)[0] for line in of_upstream(metrics, "tools")}
    log = open_log(LogSettings(format="json", level="error"), stream=io.BytesIO())
    shell = CountingShell(metrics, log)
    source = random.Random(4821)
    sessions = [f"{source.getrandbits(128):032x}" for _ in range(10_000)]
    for n, session in enumerate(sessions):
        live(shell, session, sessions[n - 1], n)
    log.close()
    counters = metrics.upstream("tools")
    assert min(counters.sessions_opened.values()) > len(sessions) / 8
    assert sum(counters.sessions_opened.values()) == len(sessions)
    assert counters.resume_attempts == sum(counters.resume_verdicts.values()) == len(sessions)
    given = {verdict for (verdict, _, _), count in counters.resume_verdicts.items() if count}
    assert given == {*Verdict} - {Verdict.UNVERIFIABLE, Verdict.INCONCLUSIVE}
    after = of_upstream(metrics, "tools")
    assert len(after) <= BUDGET
    grown = {line.rsplit(" ", 1)[0] for line in after} - before
    assert {line.partition("{")[0] for line in grown} == {"forkwatch_http_requests_total"}
    text = b"".join(metrics.render(accept, [])[0] for accept in (None, OPENMETRICS))
    assert [session for session in sessions if session.encode() in text] == []
    assert text.count(b"# {session=") == sum(1 for count in counters.resume_verdicts.values() if count)


def test_statuses_beyond_the_bound_are_counted_under_other() -> None:
    """No request is lost from the sum when an upstream invents statuses."""
    metrics = made()
    for status in range(200, 300):
        metrics.upstream("tools").count_request("GET", status)
    metrics.upstream("tools").count_request("get", 200)
    lines = scraped(metrics, "forkwatch_http_requests_total")
    assert 'forkwatch_http_requests_total{code="other",method="GET",upstream="tools"} 76.0' in lines
    assert 'forkwatch_http_requests_total{code="other",method="other",upstream="tools"} 1.0' in lines
    assert sum(float(line.split()[-1]) for line in lines) == 101


def test_the_hot_path_adds_to_attributes_and_the_scrape_shows_it() -> None:
    """Plain integers become labelled series at the scrape."""
    metrics = made()
    counters = metrics.upstream("tools")
    counters.events_relayed_post += 3
    counters.events_relayed_resume += 2
    counters.stream_bytes += 4096
    counters.http_requests_in_flight += 1
    counters.quarantines += 1
    assert scraped(metrics, "forkwatch_events_relayed_total") == [
        'forkwatch_events_relayed_total{attachment="post",upstream="tools"} 3.0',
        'forkwatch_events_relayed_total{attachment="get",upstream="tools"} 0.0',
        'forkwatch_events_relayed_total{attachment="resume",upstream="tools"} 2.0',
    ]
    assert scraped(metrics, "forkwatch_stream_bytes") == [
        'forkwatch_stream_bytes_total{upstream="tools"} 4096.0'
    ]
    assert scraped(metrics, "forkwatch_http_requests_in_flight") == [
        'forkwatch_http_requests_in_flight{upstream="tools"} 1.0'
    ]
    assert scraped(metrics, "forkwatch_quarantines_total") == [
        'forkwatch_quarantines_total{upstream="tools"} 1.0'
    ]


def test_strings_from_outside_fall_into_the_closed_sets() -> None:
    """An unknown revision, reason or method is `other`; an unknown component is the detector."""
    metrics = made()
    counters = metrics.upstream("tools")
    counters.count_session("2025-06-18")
    counters.count_session("2099-01-01")
    counters.count_error("tls")
    counters.count_error("solar flare")
    counters.count_fail_open("gate")
    counters.count_fail_open("toaster")
    grown = [line for line in of_upstream(metrics, "tools") if line.endswith(" 1.0")]
    assert grown == [
        'forkwatch_sessions_opened_total{protocol="2025-06-18",upstream="tools"} 1.0',
        'forkwatch_sessions_opened_total{protocol="other",upstream="tools"} 1.0',
        'forkwatch_upstream_errors_total{reason="tls",upstream="tools"} 1.0',
        'forkwatch_upstream_errors_total{reason="other",upstream="tools"} 1.0',
        'forkwatch_fail_open_total{component="detector",upstream="tools"} 1.0',
        'forkwatch_fail_open_total{component="gate",upstream="tools"} 1.0',
        'forkwatch_upstream_info{mode="observe",upstream="tools"} 1.0',
    ]


def test_a_histogram_is_cumulative_and_its_bounds_are_inclusive() -> None:
    """A value on a bound belongs to it; +Inf is the count; the sum is the sum."""
    metrics = made()
    for seconds in (0.5, 0.6, 4000.0):
        metrics.upstream("tools").resume_gap_seconds.observe(seconds)
    assert scraped(metrics, "forkwatch_resume_gap_seconds") == [
        'forkwatch_resume_gap_seconds_bucket{le="0.5",upstream="tools"} 1.0',
        'forkwatch_resume_gap_seconds_bucket{le="1.0",upstream="tools"} 2.0',
        'forkwatch_resume_gap_seconds_bucket{le="5.0",upstream="tools"} 2.0',
        'forkwatch_resume_gap_seconds_bucket{le="10.0",upstream="tools"} 2.0',
        'forkwatch_resume_gap_seconds_bucket{le="30.0",upstream="tools"} 2.0',
        'forkwatch_resume_gap_seconds_bucket{le="60.0",upstream="tools"} 2.0',
        'forkwatch_resume_gap_seconds_bucket{le="300.0",upstream="tools"} 2.0',
        'forkwatch_resume_gap_seconds_bucket{le="3600.0",upstream="tools"} 2.0',
        'forkwatch_resume_gap_seconds_bucket{le="+Inf",upstream="tools"} 3.0',
        'forkwatch_resume_gap_seconds_count{upstream="tools"} 3.0',
        'forkwatch_resume_gap_seconds_sum{upstream="tools"} 4001.1',
    ]


def test_gauges_are_read_from_the_watched_ledgers() -> None:
    """Sessions and requests are each upstream's own, the memory is the sum over all."""
    metrics = made("a", "b")
    ledger = SimpleNamespace(sessions_active=5, sessions_quarantined=2, requests_in_flight=7, held_bytes=1000)
    metrics.watch("a", ledger)
    metrics.watch("b", SimpleNamespace(**vars(ledger) | {"held_bytes": 24}))
    ledger.sessions_active = 6
    assert scraped(metrics, "forkwatch_sessions")[:2] == [
        'forkwatch_sessions{state="active",upstream="a"} 6.0',
        'forkwatch_sessions{state="quarantined",upstream="a"} 2.0',
    ]
    assert 'forkwatch_requests_in_flight{upstream="a"} 7.0' in scraped(metrics)
    assert scraped(metrics, "forkwatch_ledger_bytes") == ["forkwatch_ledger_bytes 1024.0"]


def test_the_process_tells_its_version_limits_and_state() -> None:
    """Families without an upstream: build, limits, readiness, dropped log lines, loop lag, the process."""
    metrics = Metrics([("tools", "enforce")], version="1.2.3", limits={"max_connections": 20000})
    metrics.ready = True
    metrics.log_messages_dropped = lambda: 9
    metrics.event_loop_lag.observe(0.3)
    lines = scraped(metrics)
    assert any(line.startswith('forkwatch_build_info{python="3.') and "1.2.3" in line for line in lines)
    assert {
        'forkwatch_limit{name="max_connections"} 20000.0',
        "forkwatch_ready 1.0",
        "forkwatch_draining 0.0",
        "forkwatch_log_messages_dropped_total 9.0",
        'forkwatch_event_loop_lag_seconds_bucket{le="0.25"} 0.0',
        'forkwatch_event_loop_lag_seconds_bucket{le="0.5"} 1.0',
        "forkwatch_config_last_reload_successful 1.0",
        'forkwatch_upstream_info{mode="enforce",upstream="tools"} 1.0',
    } <= set(lines)
    names = {line.split("{")[0].split()[0] for line in lines}
    assert {"process_open_fds", "process_resident_memory_bytes", "python_gc_collections_total"} <= names


def test_the_configuration_was_last_loaded_at_the_start_until_its_owner_says_otherwise() -> None:
    """Successful from the start; then whatever the reload says, the time as Unix seconds."""
    started = time.time()
    metrics = made()
    assert scraped(metrics, "forkwatch_config_last_reload_successful") == [
        "forkwatch_config_last_reload_successful 1.0"
    ]
    (line,) = scraped(metrics, "forkwatch_config_last_reload_success_timestamp_seconds")
    assert started <= float(line.split()[1]) <= time.time()
    metrics.config_reload_ok, metrics.config_reload_at = False, 1764450000.5
    assert scraped(
        metrics,
        "forkwatch_config_last_reload_successful",
        "forkwatch_config_last_reload_success_timestamp_seconds",
    ) == [
        "forkwatch_config_last_reload_successful 0.0",
        "forkwatch_config_last_reload_success_timestamp_seconds 1.7644500005e+09",
    ]


def of_store(metrics: Metrics) -> list[str]:
    """The samples of the state store."""
    return [line for line in scraped(metrics) if "_state_store_" in line]


def test_the_state_store_has_every_operation_at_zero_from_the_start() -> None:
    """Also without a store: an alert on an increase needs the zero, and the help says what 0 means."""
    metrics = made()
    zeros = [f"forkwatch_state_store_{what}_total{{operation=\"{operation}\"}} 0.0"
             for what, operation in product(("operations", "errors"), ("load", "save", "delete"))]  # fmt: skip
    assert [line for line in of_store(metrics) if "_total" in line] == zeros
    assert {line.rsplit(" ", 1)[1] for line in of_store(metrics)} == {"0.0"}
    helps = [
        line
        for line in metrics.render(None, [])[0].decode().splitlines()
        if line.startswith("# HELP forkwatch_state_store_")
    ]
    assert len(helps) == 4
    assert all(line.endswith("with memory://.") for line in helps)


def test_what_a_state_store_did_is_counted_without_an_upstream() -> None:
    """Operations, errors, their time, and how far the store is behind, read at the scrape."""
    metrics = made("a", "b")
    store, behind = metrics.store, [3.5]
    store.operations["save"] += 2
    store.errors["save"] += 1
    store.operation_seconds.observe(0.25)
    store.lag_s = lambda: behind[0]
    assert [line for line in of_store(metrics) if not line.endswith(" 0.0")] == [
        'forkwatch_state_store_operations_total{operation="save"} 2.0',
        'forkwatch_state_store_errors_total{operation="save"} 1.0',
        'forkwatch_state_store_operation_seconds_bucket{le="0.25"} 1.0',
        'forkwatch_state_store_operation_seconds_bucket{le="1.0"} 1.0',
        'forkwatch_state_store_operation_seconds_bucket{le="5.0"} 1.0',
        'forkwatch_state_store_operation_seconds_bucket{le="+Inf"} 1.0',
        "forkwatch_state_store_operation_seconds_count 1.0",
        "forkwatch_state_store_operation_seconds_sum 0.25",
        "forkwatch_state_store_lag_seconds 3.5",
    ]
    behind[0] = 4.5
    assert "forkwatch_state_store_lag_seconds 4.5" in of_store(metrics)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (None, "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("application/openmetrics-text; version=frog", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain; version=frog; escaping=toad", "text/plain; version=0.0.4; charset=utf-8"),
    ],
    ids=["none", "any", "openmetrics", "bad-version", "bad-text-version"],
)
def test_the_format_follows_accept(accept: str | None, content_type: str) -> None:
    """OpenMetrics for who asks for it, the text format for everybody else, never an error."""
    body, answered = made().render(accept, [])
    assert answered.startswith(content_type)
    assert body.endswith(b"# EOF\n") == content_type.startswith("application/openmetrics-text")


def test_both_formats_parse_and_hold_the_same_families() -> None:
    """A strict parser accepts the exposition, and neither format has `_created` series."""
    metrics = made("a", "b")
    metrics.upstream("a").count_request("POST", 200)
    assert families(metrics) == families(metrics, OPENMETRICS)
    assert not [line for line in scraped(metrics) if "_created" in line]
    assert not [line for line in scraped(metrics, accept=OPENMETRICS) if "_created" in line]


def test_a_scrape_can_be_restricted_to_families() -> None:
    """The name of a family or of one of its series selects; an unknown name selects nothing."""
    metrics = made()
    assert scraped(metrics, "forkwatch_ready", "forkwatch_resume_attempts") == scraped(
        metrics, "forkwatch_ready", "forkwatch_resume_attempts_total"
    )
    assert len(scraped(metrics, "forkwatch_detection_seconds")) == 10
    assert scraped(metrics, "no_such_metric") == []


def test_verdicts_carry_the_last_session_as_exemplar_when_there_is_one() -> None:
    """Only in OpenMetrics, only on the series it belongs to."""
    metrics = made(exemplars=True)
    key = PRODUCIBLE[0]
    metrics.upstream("tools").resume_verdicts[key] += 1
    metrics.upstream("tools").verdict_exemplars[key] = "s_0123456789ab"
    lines = scraped(metrics, "forkwatch_resume_verdicts_total", accept=OPENMETRICS)
    assert [line for line in lines if "#" in line] == [
        'forkwatch_resume_verdicts_total{certainty="proven",reason="replayed",upstream="tools",'
        'verdict="resumed"} 1.0 # {session="s_0123456789ab"} 1.0'
    ]
    assert "s_0123456789ab" not in "".join(scraped(metrics))


def test_a_scrape_survives_counting_in_another_thread() -> None:
    """Counters that grow and gain children while they are read never fail a scrape."""
    metrics = made()
    counters, stop = metrics.upstream("tools"), threading.Event()

    def count() -> None:
        while not stop.is_set():
            counters.http_requests.clear()
            for status in range(200, 260):
                counters.count_request("GET", status)
                counters.detection_seconds.observe(0.01)

    thread = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(50):
            assert "forkwatch_http_requests" in families(metrics, OPENMETRICS)
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)


def test_a_scrape_starts_no_garbage_collection() -> None:
    """It would walk all sessions and stop every thread meanwhile; afterwards collection is on again."""
    metrics = made(*(f"upstream-{number}" for number in range(50)))
    collected: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        collected.append(f"{phase} {info}")

    gc.callbacks.append(note)
    try:
        for accept in (None, OPENMETRICS):
            gc.collect()
            collected.clear()
            metrics.render(accept, [])
            assert collected == []
            assert gc.isenabled()
    finally:
        gc.callbacks.remove(note)


def test_registries_are_separate_and_the_global_one_is_untouched() -> None:
    """Two proxies in one process do not meet, and a registry may be handed in."""
    registry = CollectorRegistry(auto_describe=True)
    metrics = Metrics([("tools", "observe")], version="1", registry=registry)
    assert metrics.registry is registry
    assert made().registry is not registry
    assert not [m.name for m in REGISTRY.collect() if m.name.startswith("forkwatch_")]


def test_an_unknown_upstream_is_an_error() -> None:
    """Only configured names are labels."""
    with pytest.raises(KeyError):
        made().upstream("elsewhere")


@pytest.mark.parametrize("name", ["PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir"])
def test_multiprocess_mode_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either spelling, by the check and by construction, with the variable's name and what to do."""
    with pytest.raises(ConfigError) as refused:
        refuse_multiprocess({name: "/nowhere"})
    assert refused.value.lines() == [
        f"{name}: multi-process metrics are not supported, they would be silently incomplete; "
        "unset the variable and scrape every instance"
    ]
    monkeypatch.setenv(name, "/nowhere")
    with pytest.raises(ConfigError):
        made()


def test_multiprocess_mode_is_refused_before_the_client_library_is_imported() -> None:
    """In a fresh process: a stray variable is our error with a remedy, not the library's traceback."""
    program = (
        "import sys\n"
        "from proxy.errors import ConfigError\n"
        "from proxy.metrics import Metrics\n"
        "try: Metrics([('tools', 'observe')], version='1')\n"
        "except ConfigError: print('prometheus_client' in sys.modules)\n"
    )
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": "/nowhere/at/all"}
    root = Path(__file__).parent.parent
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=root, env=env, capture_output=True, timeout=30, check=False
    )
    assert (ran.stdout, ran.stderr) == (b"False\n", b"")


def test_other_environments_are_not_refused() -> None:
    """A variable of another name does not matter."""
    refuse_multiprocess({"PROMETHEUS_URL": "x"})


def test_closed_sets_follow_the_vocabulary() -> None:
    """Findings, close causes and attachments have one child each, none by hand."""
    counters = made().upstream("tools")
    assert set(counters.findings) == set(Finding)
    assert set(counters.quarantines_ended) == set(QuarantineEnd)
    assert set(counters.streams_closed) == set(product(AttachmentKind, CloseCause))
    assert {verdict for verdict, _, _ in counters.resume_verdicts} == set(Verdict)


def test_a_tally_puts_each_value_in_one_bucket() -> None:
    """Below, on, between and beyond the bounds."""
    tally = Tally((1, 2))
    for value in (0.5, 1, 1.5, 2, 9):
        tally.observe(value)
    assert (tally.counts, tally.sum) == ([2, 2, 1], 14.0)
