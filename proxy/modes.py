"""Which mode is in force on each upstream: the configured one, or an operator's switch for a time.

A switch survives a reload and ends by its time, never silently. Only `enforce` puts sessions in
quarantine by itself, so an upstream that leaves it lets all of its own go: whoever switches to `observe`
in an incident wants the proxy out of the way at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from proxy.config.settings import UpstreamSettings
from proxy.engine.findings import Action, QuarantineEnd
from proxy.engine.policy import Mode, Policy
from proxy.engine.sessions import Ledger
from proxy.logs import Log
from proxy.metrics import Metrics
from proxy.reporting import Reporter

TTL_S = 3600.0
"""How long a switch lasts unless it is said."""


@dataclass(frozen=True, slots=True)
class Switch:
    """An operator's choice of a mode, until a moment of the monotonic clock."""

    mode: Mode
    until: float


@dataclass(frozen=True, slots=True)
class Change:
    """A mode that another one has taken the place of. `released` counts quarantines that ended by it."""

    upstream: str
    mode: Mode
    previous_mode: Mode
    until: float | None
    """When it ends by itself, monotonic seconds; None if it is the configured one."""
    released: int


class Modes:
    """The modes of one process. Whatever takes effect here does so for resumes being judged as well."""

    def __init__(self, ledger: Ledger, metrics: Metrics, reporter: Reporter, log: Log) -> None:
        self._ledger = ledger
        self._metrics = metrics
        self._reporter = reporter
        self._log = log
        self._configured: dict[str, Policy] = {}
        self._switches: dict[str, Switch] = {}

    def configure(self, upstreams: Iterable[UpstreamSettings], now: float) -> None:
        """The policies of the configuration, at the start and after each reload. Switches stay."""
        self._configured = {upstream.name: policy_of(upstream) for upstream in upstreams}
        for name in self._configured:
            self._apply(name, now)

    def configured(self, upstream: str) -> Mode:
        """The mode that the configuration gives. Raises KeyError for another name."""
        return self._configured[upstream].mode

    def in_force(self, upstream: str) -> Mode:
        """The mode in force. Raises KeyError for a name that is not configured."""
        switch = self._switches.get(upstream)
        return self._configured[upstream].mode if switch is None else switch.mode

    def until(self, upstream: str) -> float | None:
        """When the switch in force ends, monotonic seconds; None if there is none."""
        switch = self._switches.get(upstream)
        return None if switch is None else switch.until

    def switch(
        self, upstreams: Iterable[str], mode: Mode | None, ttl_s: float, now: float, *, by: str
    ) -> list[Change]:
        """Put `mode` in force for `ttl_s`; None ends a switch. Raises KeyError for an unknown name.

        `by` says in the log who did it.
        """
        names = list(upstreams)
        previous = {name: self.in_force(name) for name in names}
        changes = []
        for name in names:
            if mode is None:
                self._switches.pop(name, None)
            else:
                self._switches[name] = Switch(mode, now + ttl_s)
            changes.append(self._changed(name, previous[name], now, by))
        return changes

    def expire(self, now: float) -> None:
        """End the switches whose time is over."""
        for name in [name for name, switch in self._switches.items() if switch.until <= now]:
            previous = self._switches.pop(name).mode
            if name in self._configured:
                self._changed(name, previous, now, "ttl")

    def _changed(self, name: str, previous: Mode, now: float, by: str) -> Change:
        switch = self._switches.get(name)
        released = self._apply(name, now)
        change = Change(name, self.in_force(name), previous, self.until(name), released)
        self._log.event(
            "policy.changed",
            level="warning",
            upstream=name,
            mode=change.mode,
            previous_mode=previous,
            by=by,
            ttl_s=None if switch is None else round(switch.until - now, 3),
            released=released,
        )
        return change

    def _apply(self, name: str, now: float) -> int:
        """Give the engine the policy in force; returns how many quarantines ended by it."""
        policy = replace(self._configured[name], mode=self.in_force(name))
        upstream = self._ledger.upstreams[name]
        before, upstream.policy = upstream.policy.mode, policy
        self._metrics.upstream(name).mode = policy.mode
        if before is not Mode.ENFORCE or policy.mode is Mode.ENFORCE:
            return 0  # what an operator quarantined in another mode stays so
        kept = list(upstream.quarantined.values())
        for session in kept:
            self._reporter.report(name, self._ledger.release(session, QuarantineEnd.ADMIN), now)
        return len(kept)


def policy_of(upstream: UpstreamSettings) -> Policy:
    """What the configuration says of an upstream, as the engine takes it."""
    return Policy(
        mode=Mode(upstream.mode),
        cut_on_suspected=upstream.enforce.cut_on == "suspected",
        only_in_flight=upstream.enforce.when == "in_flight",
        notify=upstream.annotate.notify,
        quarantine_ttl_s=upstream.enforce.quarantine_ttl_s,
        actions={key: Action(action) for key, action in upstream.actions.items()},
    )
