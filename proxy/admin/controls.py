"""What an operator may look at and do: the parts of the running process behind the admin interface."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from proxy.admin.feed import Feed
from proxy.admin.views import Lens
from proxy.drain import Drain
from proxy.engine import quarantine
from proxy.engine.commands import Command, Elsewhere, Report
from proxy.engine.findings import QuarantineEnd
from proxy.engine.ledger import Session
from proxy.engine.sessions import Ledger
from proxy.forward import Forward
from proxy.logs import Log
from proxy.metrics import Metrics
from proxy.modes import Modes
from proxy.reload import Reload
from proxy.reporting import Reporter
from proxy.server import Listener
from proxy.status import Readiness


@dataclass(slots=True)
class Controls:
    """One process, as its operator sees it."""

    ledger: Ledger
    metrics: Metrics
    reporter: Reporter
    log: Log
    modes: Modes
    reload: Reload
    drain: Drain
    ready: Readiness
    listener: Listener
    feed: Feed
    clock: Callable[[], float]
    """Monotonic seconds."""
    started_at: float = field(default_factory=time.time)
    where: dict[str, str] = field(default_factory=dict)
    """Each listener's address, by the key that configures it."""
    ending: bool = False
    """The process was told to stop: no drain can be undone any more."""

    def lens(self) -> Lens:
        """How things are shown now."""
        hashed = self.reload.loaded.settings.log.event_ids == "hash"
        return Lens(time.time() - self.clock(), hashed)

    def quarantine(self, session: Session) -> int:
        """Cut a session that is neither quarantined nor ended; returns how many exchanges that ended."""
        commands = quarantine.ordered(session, self.clock())
        self._perform(session.upstream.name, commands)
        return sum(isinstance(command, Elsewhere) for command in commands)

    def release(self, session: Session) -> None:
        """Let a quarantined session go."""
        lifted = self.ledger.release(session, QuarantineEnd.ADMIN)
        self.reporter.report(session.upstream.name, lifted, self.clock())

    def _perform(self, upstream: str, commands: Sequence[Command]) -> None:
        for command in commands:
            if isinstance(command, Report):
                self.reporter.report(upstream, command.item, self.clock())
            elif isinstance(command, Elsewhere):
                assert isinstance(command.party.handle, Forward)
                command.party.handle.perform(command.commands)
