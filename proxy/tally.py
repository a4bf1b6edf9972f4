"""A histogram as plain integers, and the bounds of each histogram of the metrics.

A bucket is a series of every upstream, and an upstream has 250 (`proxy.metrics`). So bounds are coarse:
one stands where something is decided, an alert or a timeout, and where readers tell good from bad. The
overhead came last and took the room of GAP_EVENTS' and DETECTION_SECONDS' finer steps, which told no
story that their neighbours do not tell.
"""

from __future__ import annotations

from bisect import bisect_left

GAP_EVENTS = (0, 1, 5, 20, 100, 1000)
GAP_SECONDS = (0.5, 1, 5, 10, 30, 60, 300, 3600)
DETECTION_SECONDS = (0.001, 0.01, 0.1, 0.5, 1, 5, 10)
GATE_SECONDS = (0.001, 0.01, 0.1, 1, 10)
HEADERS_SECONDS = (0.01, 0.05, 0.25, 1, 10)
OVERHEAD_SECONDS = (0.00005, 0.0001, 0.0005, 0.005, 0.025, 0.1)
STORE_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.25, 1, 5)
LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Tally:
    """A histogram of plain integers. `buckets` are the upper bounds, ascending, without +Inf."""

    __slots__ = ("buckets", "counts", "sum")

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count `value` in the first bucket whose bound is not below it."""
        self.counts[bisect_left(self.buckets, value)] += 1
        self.sum += value
