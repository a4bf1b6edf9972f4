"""What is counted, as plain integers; how it is exposed is `proxy.exposition`.

The copy loop adds to attributes of one `UpstreamCounters` and nothing else: no locks, no labels, no
client library. The event loop's thread writes, a scrape in another thread reads copies, so a scrape
may be one event behind itself but never fails. Every child the engine can produce exists at 0 from
the start, since a counter that first appears at 1 never fires an alert on its increase.

The budget is 250 series an upstream. It decides how many buckets a histogram has (`proxy.tally`) and that
`http_requests` holds a bounded number of status codes; `tests/test_metrics.py` counts the series.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Protocol, TypeVar

from proxy import tally
from proxy.engine.findings import (
    PRODUCIBLE,
    Action,
    AttachmentKind,
    Certainty,
    CloseCause,
    Finding,
    QuarantineEnd,
    Reason,
    SessionCloseReason,
    Verdict,
)
from proxy.errors import UPSTREAM_ERROR_REASONS, ConfigError, Problem
from proxy.tally import Tally

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_K = TypeVar("_K")

OTHER = "other"
METHODS = ("GET", "POST", "DELETE", "OPTIONS", "HEAD", OTHER)
TIMED_METHODS = ("GET", "POST", "DELETE", OTHER)
"""`upstream_headers_seconds` costs eight series a method; preflights and HEAD share `other`."""
PROTOCOLS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", OTHER)
COMPONENTS = ("detector", "gate", "relay", "report")
"""What can fail on a stream: judging, holding a frame back, carrying the bytes, counting and logging."""
HTTP_CHILDREN = 24
"""Pairs of method and status counted apart; later ones of a method share the code `other`."""
REFUSALS = ("bad-request", "draining", "header-too-large", "no-upstream", "over-limit", OTHER)
"""Why a request is refused before it has an upstream: types of the problem it is answered with."""
OPERATIONS = ("load", "save", "delete")
"""What the proxy asks of a state store."""
OVERHEAD_EVERY = 16
"""Reads of an upstream to one that is timed: the clock is not looked at for the others."""


class LedgerGauges(Protocol):
    """One upstream's ledger as a scrape reads it: four plain numbers, cheap from any thread."""

    @property
    def sessions_active(self) -> int:
        """Sessions known and not quarantined."""

    @property
    def sessions_quarantined(self) -> int:
        """Sessions under quarantine."""

    @property
    def requests_in_flight(self) -> int:
        """JSON-RPC requests without their answer, over all sessions."""

    @property
    def held_bytes(self) -> int:
        """Memory the ledger accounts for, in bytes."""


@dataclass(frozen=True, slots=True)
class _NoLedger:
    """What an upstream shows until its ledger is watched."""

    sessions_active: int = 0
    sessions_quarantined: int = 0
    requests_in_flight: int = 0
    held_bytes: int = 0


class UpstreamCounters:
    """Everything counted for one configured upstream; a name here is the metric's without `_total`.

    Made once at the start and shared by all its exchanges. Keys of the `Counter`s are closed sets:
    strings that come from outside go through the methods, which fold the unknown into `other`.
    """

    __slots__ = (
        "detection_seconds",
        "events_duplicated",
        "events_lost",
        "events_relayed_get",
        "events_relayed_post",
        "events_relayed_resume",
        "fail_open",
        "findings",
        "gate_seconds",
        "http_requests",
        "http_requests_in_flight",
        "ledger",
        "mode",
        "name",
        "policy_actions",
        "proxy_overhead_seconds",
        "quarantine_rejected_requests",
        "quarantines",
        "quarantines_ended",
        "reads_to_sample",
        "requests_unanswered",
        "resume_attempts",
        "resume_gap_events",
        "resume_gap_seconds",
        "resume_verdicts",
        "sessions_closed",
        "sessions_opened",
        "sse_parse_errors",
        "stream_bytes",
        "streams_closed",
        "streams_open",
        "upstream_errors",
        "upstream_headers_seconds",
        "verdict_exemplars",
    )

    def __init__(self, name: str, mode: str) -> None:
        self.name = name
        self.mode = mode
        self.ledger: LedgerGauges = _NoLedger()
        self.events_relayed_post = self.events_relayed_get = self.events_relayed_resume = 0
        self.stream_bytes = self.sse_parse_errors = self.http_requests_in_flight = 0
        self.resume_attempts = self.events_lost = self.events_duplicated = 0
        self.requests_unanswered = self.quarantines = self.quarantine_rejected_requests = 0
        self.quarantines_ended: Counter[QuarantineEnd] = _zeros(QuarantineEnd)
        self.resume_verdicts: Counter[tuple[Verdict, Reason, Certainty]] = _zeros(PRODUCIBLE)
        self.verdict_exemplars: dict[tuple[str, ...], str] = {}
        """The hashed session last judged so; empty unless exemplars are on."""
        self.findings: Counter[Finding] = _zeros(Finding)
        self.policy_actions: Counter[Action] = _zeros(Action)
        self.sessions_opened: Counter[str] = _zeros(PROTOCOLS)
        self.sessions_closed: Counter[SessionCloseReason] = _zeros(SessionCloseReason)
        self.streams_open: Counter[AttachmentKind] = _zeros(AttachmentKind)
        self.streams_closed: Counter[tuple[AttachmentKind, CloseCause]] = _zeros(
            product(AttachmentKind, CloseCause)
        )
        self.upstream_errors: Counter[str] = _zeros(UPSTREAM_ERROR_REASONS)
        self.fail_open: Counter[str] = _zeros(COMPONENTS)
        self.http_requests: Counter[tuple[str, str]] = Counter()
        self.upstream_headers_seconds = {method: Tally(tally.HEADERS_SECONDS) for method in TIMED_METHODS}
        self.resume_gap_events = Tally(tally.GAP_EVENTS)
        self.resume_gap_seconds = Tally(tally.GAP_SECONDS)
        self.detection_seconds = Tally(tally.DETECTION_SECONDS)
        self.gate_seconds = Tally(tally.GATE_SECONDS)
        self.proxy_overhead_seconds = Tally(tally.OVERHEAD_SECONDS)
        self.reads_to_sample = OVERHEAD_EVERY
        """Counted down at every read; the read that brings it to 0 is timed."""

    def count_request(self, method: str, status: int) -> None:
        """One request answered with `status`, by the upstream or by the proxy itself."""
        key = (method if method in METHODS else OTHER, str(status))
        if key not in self.http_requests and len(self.http_requests) >= HTTP_CHILDREN:
            # An upstream chooses the status; it must not choose how many series there are.
            key = (key[0], OTHER)
        self.http_requests[key] += 1

    def observe_headers(self, method: str, seconds: float) -> None:
        """The response head came `seconds` after the request went out."""
        self.upstream_headers_seconds[method if method in TIMED_METHODS else OTHER].observe(seconds)

    def count_error(self, reason: str) -> None:
        """One failed exchange with the upstream, under a `ProxyError.reason`."""
        self.upstream_errors[reason if reason in UPSTREAM_ERROR_REASONS else OTHER] += 1

    def count_fail_open(self, component: str) -> None:
        """A part of the detector gave up; an unknown part counts as the detector as a whole."""
        self.fail_open[component if component in COMPONENTS else "detector"] += 1

    def count_session(self, protocol: str) -> None:
        """A session became known, speaking `protocol`."""
        self.sessions_opened[protocol if protocol in PROTOCOLS else OTHER] += 1

    def sample_overhead(self, seconds: float) -> None:
        """A read that was timed took `seconds`; the next one to be timed is a round of reads away."""
        self.reads_to_sample = OVERHEAD_EVERY
        self.proxy_overhead_seconds.observe(seconds)


class StoreCounters:
    """Everything counted for the state store, which is the process's and of no upstream.

    All stays 0 without a store outside the process. Keys are the `OPERATIONS`.
    """

    __slots__ = ("errors", "lag_s", "operation_seconds", "operations")

    def __init__(self) -> None:
        self.operations: Counter[str] = _zeros(OPERATIONS)
        """Begun, whatever came of them."""
        self.errors: Counter[str] = _zeros(OPERATIONS)
        self.operation_seconds = Tally(tally.STORE_SECONDS)
        self.lag_s: Callable[[], float] = float
        """Read at a scrape, so that it grows while a store hangs: the age of the oldest unsaved change."""


class Metrics:
    """The counters of one proxy process and the registry they are scraped from.

    `limits` are exported as they are, name by name. `ready`, `draining`, `event_loop_lag`, `store` and
    the two of the last reload are written by their owners. Raises ConfigError where `refuse_multiprocess` does.
    """

    def __init__(
        self,
        upstreams: Iterable[tuple[str, str]],
        *,
        version: str,
        limits: Mapping[str, float] | None = None,
        exemplars: bool = False,
        registry: CollectorRegistry | None = None,
    ) -> None:
        refuse_multiprocess(os.environ)
        # Importing the client library with that variable set can fail, so it waits for the check.
        from proxy import exposition

        self.version = version
        self.exemplars = exemplars
        self.limits = dict(limits or {})
        self.ready = False
        self.draining = False
        self.config_reload_ok = True
        self.config_reload_at = time.time()
        """Unix seconds of the last reload that succeeded; the start counts as one."""
        self.store = StoreCounters()
        self.requests_refused: Counter[str] = _zeros(REFUSALS)
        self.event_loop_lag = Tally(tally.LAG_SECONDS)
        self.log_messages_dropped: Callable[[], int] = int
        """Read at a scrape; the log's own count, once there is a log."""
        self.upstreams = {name: UpstreamCounters(name, mode) for name, mode in upstreams}
        self.registry = exposition.register(self, registry)
        self._render = exposition.render

    def count_refused(self, type: str) -> None:
        """A request was refused before it had an upstream, for a `ProxyError.type`."""
        self.requests_refused[type if type in REFUSALS else OTHER] += 1

    def upstream(self, name: str) -> UpstreamCounters:
        """The counters of a configured upstream. Raises KeyError for any other name."""
        return self.upstreams[name]

    def add(self, name: str, mode: str) -> bool:
        """Count for another upstream as well; whether it was not counted for before.

        What a reload takes out of the configuration keeps its counters, which must not go backwards.
        """
        if name in self.upstreams:
            return False
        # A new mapping: a scrape in another thread may be walking the old one.
        self.upstreams = {**self.upstreams, name: UpstreamCounters(name, mode)}
        return True

    def watch(self, name: str, ledger: LedgerGauges) -> None:
        """Read `ledger` at every scrape for the gauges of the upstream `name`."""
        self.upstreams[name].ledger = ledger

    def render(self, accept: str | None, names: list[str]) -> tuple[bytes, str]:
        """The exposition and its content type, in the format `accept` asks for.

        `names` restricts it to these families or series, empty means all. Takes milliseconds: call
        it in a thread, never on the event loop.
        """
        return self._render(self.registry, accept, names)


def refuse_multiprocess(env: Mapping[str, str]) -> None:
    """Raise ConfigError if the client library's multi-process mode is asked for.

    That mode loses exemplars and custom collectors without a word, and a missing directory fails the
    import of the library. Instances are scaled by scraping each.
    """
    problems = [
        Problem(
            name,
            None,
            "multi-process metrics are not supported, they would be silently incomplete",
            "unset the variable and scrape every instance",
        )
        for name in ("PROMETHEUS_MULTIPROC_DIR", "prometheus_multiproc_dir")
        if name in env
    ]
    if problems:
        raise ConfigError(problems)


def _zeros(keys: Iterable[_K]) -> Counter[_K]:
    return Counter(dict.fromkeys(keys, 0))
