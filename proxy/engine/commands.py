"""What the engine asks of the shell: values, in the order in which to perform them.

An input that wants nothing returns `PASS`. The bytes of a stream are sent as they come, before the
engine sees them; only of a stream that it rewrites (`Relay.rewrites`) leaves what `Send` says, and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.engine.findings import Judgement, Reportable


class Party(Protocol):
    """Another exchange of the same session, which the shell can reach."""

    handle: object
    """What the shell attached to it."""


@dataclass(frozen=True, slots=True)
class Report:
    """Count and log this."""

    item: Reportable


@dataclass(frozen=True, slots=True)
class WakeAfter:
    """Call `wake` once after so many seconds; it replaces an earlier wish of the same exchange."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes of the response's body."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Finish:
    """End the response cleanly, now, and give up the upstream's."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Break the response off, so that the client sees it is not whole, and give up the upstream's."""


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Give up the upstream's part of a request whose body is still coming; an answer of ours follows."""


@dataclass(frozen=True, slots=True)
class Respond:
    """Answer with a head and a whole body of our own; whatever the upstream says is dropped.

    `media_type` None is no body. The shell adds `Forkwatch-Verdict` and the CORS fields. `judgement`
    is None where no verdict but an operator cut the session.
    """

    status: int
    media_type: str | None
    body: bytes
    judgement: Judgement | None


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Perform these on another exchange of the session, in this same turn of the loop."""

    party: Party
    commands: Sequence[Command]


Command = Report | WakeAfter | Send | Finish | Abort | Withdraw | Respond | Elsewhere

PASS: Sequence[Command] = ()
"""Nothing to do: the common case, one shared value."""
