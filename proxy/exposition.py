"""How the counters of `proxy.metrics` become Prometheus and OpenMetrics text.

Each family is one row of a table: its name, its help, its labels and how to read its children off an
`UpstreamCounters`. Values are copied before they are walked, since the event loop goes on counting
meanwhile. This is the one module that imports the client library; only `Metrics` imports it, after
the environment was checked. There are no `_created` series: a custom collector makes none.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.samples import Exemplar

from proxy.metrics import Metrics, Tally, UpstreamCounters

PREFIX = "forkwatch_"
_SUFFIXES = ("", "_total", "_bucket", "_count", "_sum")

_S = TypeVar("_S", bound=str)
_T = TypeVar("_T", bound=tuple[str, ...])
_V = TypeVar("_V")
_Read = Callable[[UpstreamCounters], Mapping[tuple[str, ...], _V]]


@dataclass(frozen=True, slots=True)
class _Family(Generic[_V]):
    """One family of an upstream. `read` gives its children by the values of `labels`."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: _Read[_V]


def _by(counts: Mapping[_S, _V]) -> dict[tuple[str, ...], _V]:
    """A copy keyed by one label. The copy is one step for the interpreter, the walk is not."""
    return {(key,): value for key, value in dict(counts).items()}


def _by_all(counts: Mapping[_T, _V]) -> dict[tuple[str, ...], _V]:
    """The same where the key is the tuple of all labels."""
    copied = dict(counts)  # first, in one step; then retyped
    return dict(copied.items())


def _relayed(c: UpstreamCounters) -> Mapping[tuple[str, ...], int]:
    return {
        ("post",): c.events_relayed_post,
        ("get",): c.events_relayed_get,
        ("resume",): c.events_relayed_resume,
    }


def _sessions(c: UpstreamCounters) -> Mapping[tuple[str, ...], int]:
    return {("active",): c.ledger.sessions_active, ("quarantined",): c.ledger.sessions_quarantined}


_VERDICTS: _Family[int] = _Family(
    "resume_verdicts",
    "Resumes judged. Sums to resume_attempts once each has its verdict.",
    ("verdict", "reason", "certainty"),
    lambda c: _by_all(c.resume_verdicts),
)

_COUNTERS: tuple[_Family[int], ...] = (
    _Family("resume_attempts", "GETs with a Last-Event-ID.", (), lambda c: {(): c.resume_attempts}),
    _VERDICTS,
    _Family("findings", "What was noticed outside a verdict.", ("finding",), lambda c: _by(c.findings)),
    _Family(
        "policy_actions",
        "What was done about a judgement; would_cut is what enforce would have done.",
        ("action",),
        lambda c: _by(c.policy_actions),
    ),
    _Family("events_relayed", "Server-sent events relayed.", ("attachment",), _relayed),
    _Family(
        "events_lost",
        "Events a client will not get. A lower bound: only what was relayed before is known.",
        (),
        lambda c: {(): c.events_lost},
    ),
    _Family("events_duplicated", "Events a client got twice.", (), lambda c: {(): c.events_duplicated}),
    _Family(
        "requests_unanswered",
        "JSON-RPC requests whose stream ended for good without their response.",
        (),
        lambda c: {(): c.requests_unanswered},
    ),
    _Family(
        "sessions_opened",
        "Sessions that became known, by protocol revision.",
        ("protocol",),
        lambda c: _by(c.sessions_opened),
    ),
    _Family(
        "sessions_closed", "Sessions that left the ledger.", ("reason",), lambda c: _by(c.sessions_closed)
    ),
    _Family("quarantines", "Sessions put under quarantine.", (), lambda c: {(): c.quarantines}),
    _Family(
        "quarantine_rejected_requests",
        "Requests of quarantined sessions that the proxy answered.",
        (),
        lambda c: {(): c.quarantine_rejected_requests},
    ),
    _Family(
        "quarantines_ended",
        "Quarantines lifted, and why.",
        ("cause",),
        lambda c: _by(c.quarantines_ended),
    ),
    _Family(
        "http_requests",
        "Requests answered, by status; the code is 'other' beyond a fixed number of pairs.",
        ("method", "code"),
        lambda c: _by_all(c.http_requests),
    ),
    _Family(
        "upstream_errors",
        "Failed exchanges with the upstream.",
        ("reason",),
        lambda c: _by(c.upstream_errors),
    ),
    _Family(
        "streams_closed",
        "Event streams that ended, and why.",
        ("attachment", "cause"),
        lambda c: _by_all(c.streams_closed),
    ),
    _Family("stream_bytes", "Bytes of event streams relayed.", (), lambda c: {(): c.stream_bytes}),
    _Family(
        "fail_open",
        "Times a part of the detector failed and the bytes flowed on unjudged.",
        ("component",),
        lambda c: _by(c.fail_open),
    ),
    _Family(
        "sse_parse_errors",
        "Lines of event streams that made no sense.",
        (),
        lambda c: {(): c.sse_parse_errors},
    ),
)

_GAUGES: tuple[_Family[int], ...] = (
    _Family(
        "requests_in_flight",
        "JSON-RPC requests without their answer yet.",
        (),
        lambda c: {(): c.ledger.requests_in_flight},
    ),
    _Family("sessions", "Sessions in the ledger.", ("state",), _sessions),
    _Family(
        "http_requests_in_flight",
        "HTTP requests being served.",
        (),
        lambda c: {(): c.http_requests_in_flight},
    ),
    _Family("streams_open", "Event streams open now.", ("attachment",), lambda c: _by(c.streams_open)),
    _Family("upstream_info", "The policy in force.", ("mode",), lambda c: {(c.mode,): 1}),
)

_HISTOGRAMS: tuple[_Family[Tally], ...] = (
    _Family(
        "resume_gap_events",
        "Relayed events after the cursor of a resume: the known part of its gap.",
        (),
        lambda c: {(): c.resume_gap_events},
    ),
    _Family(
        "resume_gap_seconds",
        "Time a client was away before it resumed.",
        (),
        lambda c: {(): c.resume_gap_seconds},
    ),
    _Family(
        "detection_seconds",
        "From the first byte of a resumed stream to its verdict.",
        (),
        lambda c: {(): c.detection_seconds},
    ),
    _Family(
        "gate_seconds",
        "Time the frames of a resumed stream were held back until its verdict, in enforce.",
        (),
        lambda c: {(): c.gate_seconds},
    ),
    _Family(
        "upstream_headers_seconds",
        "Time until the upstream's response head.",
        ("method",),
        lambda c: _by(c.upstream_headers_seconds),
    ),
)


class _Exposed:
    """The collector: reads one `Metrics` at every scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Every family, each child of it, in the order of the tables."""
        yield from self._process()
        upstreams = list(self._metrics.upstreams.values())
        for family in _COUNTERS:
            yield _counter(family, upstreams)
        for family in _GAUGES:
            gauge = GaugeMetricFamily(PREFIX + family.name, family.help, labels=("upstream", *family.labels))
            for upstream, labels, value in _children(family, upstreams):
                gauge.add_metric((upstream.name, *labels), value)
            yield gauge
        for histogram in _HISTOGRAMS:
            yield _histogram(histogram, upstreams)

    def _process(self) -> Iterator[Metric]:
        """What concerns the process and no upstream."""
        m = self._metrics
        build = GaugeMetricFamily(
            f"{PREFIX}build_info", "The version that runs; always 1.", labels=("version", "python")
        )
        build.add_metric((m.version, platform.python_version()), 1)
        yield build
        yield GaugeMetricFamily(f"{PREFIX}ready", "1 while /readyz says so.", m.ready)
        yield GaugeMetricFamily(f"{PREFIX}draining", "1 from the start of a drain.", m.draining)
        limit = GaugeMetricFamily(f"{PREFIX}limit", "The limits in force.", labels=("name",))
        for name, value in m.limits.items():
            limit.add_metric((name,), value)
        yield limit
        yield GaugeMetricFamily(
            f"{PREFIX}ledger_bytes",
            "Memory the ledgers account for.",
            sum(c.ledger.bytes for c in list(m.upstreams.values())),
        )
        yield CounterMetricFamily(
            f"{PREFIX}log_messages_dropped",
            "Log lines dropped because the reader of stdout stalled.",
            m.log_messages_dropped(),
        )
        lag = HistogramMetricFamily(
            f"{PREFIX}event_loop_lag_seconds", "How late a timer of 100 ms fired.", labels=()
        )
        lag.add_metric((), *_buckets(m.event_loop_lag))
        yield lag


def register(metrics: Metrics, registry: CollectorRegistry | None) -> CollectorRegistry:
    """Make `registry` (a new one for None, never the global one) expose `metrics` and the process."""
    if registry is None:
        # Described from what it collects, so that a scrape can be restricted to some names.
        registry = CollectorRegistry(auto_describe=True)
    registry.register(_Exposed(metrics))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry, accept: str | None, names: Iterable[str]) -> tuple[bytes, str]:
    """The text and its content type. A family's name among `names` means all of its series."""
    try:
        encode, content_type = choose_encoder(accept or "")
    except (TypeError, ValueError):  # a version in the header that is no version
        encode, content_type = generate_latest, CONTENT_TYPE_PLAIN_0_0_4
    wanted = {name + suffix for name in names for suffix in _SUFFIXES}
    return encode(registry.restricted_registry(wanted) if wanted else registry), content_type


def _children(
    family: _Family[_V], upstreams: Iterable[UpstreamCounters]
) -> Iterator[tuple[UpstreamCounters, tuple[str, ...], _V]]:
    for upstream in upstreams:
        for labels, value in family.read(upstream).items():
            yield upstream, labels, value


def _counter(family: _Family[int], upstreams: Iterable[UpstreamCounters]) -> CounterMetricFamily:
    metric = CounterMetricFamily(PREFIX + family.name, family.help, labels=("upstream", *family.labels))
    for upstream, labels, value in _children(family, upstreams):
        exemplar = None
        if family is _VERDICTS and (session := upstream.verdict_exemplars.get(labels)):
            exemplar = Exemplar({"session": session}, 1.0)
        metric.add_metric((upstream.name, *labels), value, exemplar=exemplar)
    return metric


def _histogram(family: _Family[Tally], upstreams: Iterable[UpstreamCounters]) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(PREFIX + family.name, family.help, labels=("upstream", *family.labels))
    for upstream, labels, tally in _children(family, upstreams):
        metric.add_metric((upstream.name, *labels), *_buckets(tally))
    return metric


def _buckets(tally: Tally) -> tuple[list[tuple[str, float]], float]:
    """Cumulative counts by their upper bound, +Inf last, and the sum. The count is that of +Inf."""
    bounds = (*(repr(float(bound)) for bound in tally.buckets), "+Inf")
    return list(zip(bounds, accumulate(list(tally.counts)), strict=True)), tally.sum
