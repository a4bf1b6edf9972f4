"""The families of metrics that each upstream has, as a table.

Each row is a family's name, its help, its labels and how to read its children off an `UpstreamCounters`.
Children are copied in one step, since the event loop goes on counting while a scrape walks them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from proxy.metrics import UpstreamCounters
from proxy.tally import Tally

_S = TypeVar("_S", bound=str)
_T = TypeVar("_T", bound=tuple[str, ...])
_V = TypeVar("_V")
_Read = Callable[[UpstreamCounters], Mapping[tuple[str, ...], _V]]


@dataclass(frozen=True, slots=True)
class Family(Generic[_V]):
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


VERDICTS: Family[int] = Family(
    "resume_verdicts",
    "Resumes judged. Sums to resume_attempts once each has its verdict.",
    ("verdict", "reason", "certainty"),
    lambda c: _by_all(c.resume_verdicts),
)

COUNTERS: tuple[Family[int], ...] = (
    Family("resume_attempts", "GETs with a Last-Event-ID.", (), lambda c: {(): c.resume_attempts}),
    VERDICTS,
    Family("findings", "What was noticed outside a verdict.", ("finding",), lambda c: _by(c.findings)),
    Family(
        "policy_actions",
        "What was done about a judgement; would_cut is what enforce would have done.",
        ("action",),
        lambda c: _by(c.policy_actions),
    ),
    Family("events_relayed", "Server-sent events relayed.", ("attachment",), _relayed),
    Family(
        "events_lost",
        "Events a client will not get. A lower bound: only what was relayed before is known.",
        (),
        lambda c: {(): c.events_lost},
    ),
    Family("events_duplicated", "Events a client got twice.", (), lambda c: {(): c.events_duplicated}),
    Family(
        "requests_unanswered",
        "JSON-RPC requests whose stream ended for good without their response.",
        (),
        lambda c: {(): c.requests_unanswered},
    ),
    Family(
        "sessions_opened",
        "Sessions that became known, by protocol revision.",
        ("protocol",),
        lambda c: _by(c.sessions_opened),
    ),
    Family(
        "sessions_closed", "Sessions that left the ledger.", ("reason",), lambda c: _by(c.sessions_closed)
    ),
    Family("quarantines", "Sessions put under quarantine.", (), lambda c: {(): c.quarantines}),
    Family(
        "quarantine_rejected_requests",
        "Requests of quarantined sessions that the proxy answered.",
        (),
        lambda c: {(): c.quarantine_rejected_requests},
    ),
    Family(
        "quarantines_ended",
        "Quarantines lifted, and why.",
        ("cause",),
        lambda c: _by(c.quarantines_ended),
    ),
    Family(
        "http_requests",
        "Requests answered, by status; the code is 'other' beyond a fixed number of pairs.",
        ("method", "code"),
        lambda c: _by_all(c.http_requests),
    ),
    Family(
        "upstream_errors",
        "Failed exchanges with the upstream.",
        ("reason",),
        lambda c: _by(c.upstream_errors),
    ),
    Family(
        "streams_closed",
        "Event streams that ended, and why.",
        ("attachment", "cause"),
        lambda c: _by_all(c.streams_closed),
    ),
    Family("stream_bytes", "Bytes of event streams relayed.", (), lambda c: {(): c.stream_bytes}),
    Family(
        "fail_open",
        "Times a part of the detector failed and the bytes flowed on unjudged.",
        ("component",),
        lambda c: _by(c.fail_open),
    ),
    Family(
        "sse_parse_errors",
        "Lines of event streams that made no sense.",
        (),
        lambda c: {(): c.sse_parse_errors},
    ),
)

GAUGES: tuple[Family[int], ...] = (
    Family(
        "requests_in_flight",
        "JSON-RPC requests without their answer yet.",
        (),
        lambda c: {(): c.ledger.requests_in_flight},
    ),
    Family("sessions", "Sessions in the ledger.", ("state",), _sessions),
    Family(
        "http_requests_in_flight",
        "HTTP requests being served.",
        (),
        lambda c: {(): c.http_requests_in_flight},
    ),
    Family("streams_open", "Event streams open now.", ("attachment",), lambda c: _by(c.streams_open)),
    Family("upstream_info", "The policy in force.", ("mode",), lambda c: {(c.mode,): 1}),
)

HISTOGRAMS: tuple[Family[Tally], ...] = (
    Family(
        "resume_gap_events",
        "Relayed events after the cursor of a resume: the known part of its gap.",
        (),
        lambda c: {(): c.resume_gap_events},
    ),
    Family(
        "resume_gap_seconds",
        "Time a client was away before it resumed.",
        (),
        lambda c: {(): c.resume_gap_seconds},
    ),
    Family(
        "detection_seconds",
        "From the first byte of a resumed stream to its verdict.",
        (),
        lambda c: {(): c.detection_seconds},
    ),
    Family(
        "gate_seconds",
        "Time the frames of a resumed stream were held back until its verdict, in enforce.",
        (),
        lambda c: {(): c.gate_seconds},
    ),
    Family(
        "upstream_headers_seconds",
        "Time until the upstream's response head.",
        ("method",),
        lambda c: _by(c.upstream_headers_seconds),
    ),
    Family(
        "proxy_overhead_seconds",
        "Time the proxy spent on one read of the upstream until it was written on; one read in 16 is timed.",
        (),
        lambda c: {(): c.proxy_overhead_seconds},
    ),
)
