"""What the engine asks of the shell: values, in the order in which to perform them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.engine.findings import Reportable


@dataclass(frozen=True, slots=True)
class Report:
    """Count and log this."""

    item: Reportable


@dataclass(frozen=True, slots=True)
class WakeAfter:
    """Call `wake` once after so many seconds; it replaces an earlier wish of the same exchange."""

    seconds: float


Command = Report | WakeAfter

PASS: Sequence[Command] = ()
"""Nothing to do but let the bytes go as they came: the common case, one shared value."""
