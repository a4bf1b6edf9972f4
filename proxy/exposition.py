"""How the counters of `proxy.metrics` become Prometheus and OpenMetrics text.

What an upstream has is a table in `proxy.families`; what the process has is here. Values are copied before
they are walked, since the event loop goes on counting meanwhile. This is the one module that imports the
client library; only `Metrics` imports it, after the environment was checked. There are no `_created`
series: a custom collector makes none.
"""

from __future__ import annotations

import contextlib
import gc
import platform
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TypeVar

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.samples import Exemplar

from proxy.families import COUNTERS, GAUGES, HISTOGRAMS, VERDICTS, Family
from proxy.metrics import Metrics, UpstreamCounters
from proxy.tally import Tally

PREFIX = "forkwatch_"
_SUFFIXES = ("", "_total", "_bucket", "_count", "_sum")

_V = TypeVar("_V")


class _Exposed:
    """The collector: reads one `Metrics` at every scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Every family, each child of it, in the order of the tables."""
        yield from self._process()
        yield from self._store()
        upstreams = list(self._metrics.upstreams.values())
        for family in COUNTERS:
            yield _counter(family, upstreams)
        for family in GAUGES:
            gauge = GaugeMetricFamily(PREFIX + family.name, family.help, labels=("upstream", *family.labels))
            for upstream, labels, value in _children(family, upstreams):
                gauge.add_metric((upstream.name, *labels), value)
            yield gauge
        for histogram in HISTOGRAMS:
            yield _histogram(histogram, upstreams)

    def _process(self) -> Iterator[Metric]:
        """What concerns the process and no upstream."""
        m = self._metrics
        yield _labelled(
            "build_info",
            "The version that runs; always 1.",
            ("version", "python"),
            {(m.version, platform.python_version()): 1},
        )
        yield _gauge("ready", "1 while /readyz says so.", m.ready)
        yield _gauge("draining", "1 from the start of a drain.", m.draining)
        yield _gauge(
            "config_last_reload_successful",
            "0 if the configuration was changed to one that is refused; the former is in force.",
            m.config_reload_ok,
        )
        yield _gauge(
            "config_last_reload_success_timestamp_seconds",
            "When the configuration in force was loaded, in Unix seconds.",
            m.config_reload_at,
        )
        limits: dict[tuple[str, ...], float] = {(name,): value for name, value in m.limits.items()}
        yield _labelled("limit", "The limits in force.", ("name",), limits)
        in_use = sum(c.ledger.held_bytes for c in list(m.upstreams.values()))
        yield _gauge("ledger_bytes", "Memory the ledgers account for.", in_use)
        yield CounterMetricFamily(
            f"{PREFIX}log_messages_dropped",
            "Log lines dropped because the reader of stdout stalled.",
            m.log_messages_dropped(),
        )
        refused = CounterMetricFamily(
            f"{PREFIX}requests_refused",
            "Requests refused before they had an upstream, by the type of the problem.",
            labels=("reason",),
        )
        for reason, count in dict(m.requests_refused).items():
            refused.add_metric((reason,), count)
        yield refused
        yield _tallied("event_loop_lag_seconds", "How late a timer of 100 ms fired.", m.event_loop_lag)

    def _store(self) -> Iterator[Metric]:
        """What concerns the state store."""
        store = self._metrics.store
        for name, what, counts in (
            (
                "state_store_operations",
                "What the state store was asked, whatever came of it",
                store.operations,
            ),
            ("state_store_errors", "Operations of the state store that failed", store.errors),
        ):
            metric = CounterMetricFamily(
                f"{PREFIX}{name}", f"{what}; 0 with memory://.", labels=("operation",)
            )
            for operation, value in dict(counts).items():
                metric.add_metric((operation,), value)
            yield metric
        yield _tallied(
            "state_store_operation_seconds",
            "Time an operation of the state store took; none with memory://.",
            store.operation_seconds,
        )
        yield _gauge(
            "state_store_lag_seconds",
            "Age of the oldest change that is not in the state store yet; 0 with memory://.",
            store.lag_s(),
        )


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
    with _no_collection():
        return encode(registry.restricted_registry(wanted) if wanted else registry), content_type


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection meanwhile.

    A scrape makes thousands of objects that are gone at its end. The collector takes them for a growing
    heap and walks all of it, sessions included: tens of milliseconds in which no thread runs.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, what, value)


def _labelled(
    name: str, what: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]
) -> GaugeMetricFamily:
    metric = GaugeMetricFamily(PREFIX + name, what, labels=labels)
    for key, value in values.items():
        metric.add_metric(key, value)
    return metric


def _tallied(name: str, what: str, tally: Tally) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(PREFIX + name, what, labels=())
    metric.add_metric((), *_buckets(tally))
    return metric


def _children(
    family: Family[_V], upstreams: Iterable[UpstreamCounters]
) -> Iterator[tuple[UpstreamCounters, tuple[str, ...], _V]]:
    for upstream in upstreams:
        for labels, value in family.read(upstream).items():
            yield upstream, labels, value


def _counter(family: Family[int], upstreams: Iterable[UpstreamCounters]) -> CounterMetricFamily:
    metric = CounterMetricFamily(PREFIX + family.name, family.help, labels=("upstream", *family.labels))
    for upstream, labels, value in _children(family, upstreams):
        exemplar = None
        if family is VERDICTS and (session := upstream.verdict_exemplars.get(labels)):
            exemplar = Exemplar({"session": session}, 1.0)
        metric.add_metric((upstream.name, *labels), value, exemplar=exemplar)
    return metric


def _histogram(family: Family[Tally], upstreams: Iterable[UpstreamCounters]) -> HistogramMetricFamily:
    metric = HistogramMetricFamily(PREFIX + family.name, family.help, labels=("upstream", *family.labels))
    for upstream, labels, tally in _children(family, upstreams):
        metric.add_metric((upstream.name, *labels), *_buckets(tally))
    return metric


def _buckets(tally: Tally) -> tuple[list[tuple[str, float]], float]:
    """Cumulative counts by their upper bound, +Inf last, and the sum. The count is that of +Inf."""
    bounds = (*(repr(float(bound)) for bound in tally.buckets), "+Inf")
    return list(zip(bounds, accumulate(list(tally.counts)), strict=True)), tally.sum
