"""Start the proxy with a wall clock that steps: `python -m tests.load.stepping run --config FILE`.

As where somebody sets the clock of a machine, or its time service does: an hour back, an hour ahead.
"""

from __future__ import annotations

import sys
import time

EVERY_S = 0.7
STEPS_S = (0.0, -3600.0, 3600.0)

_wall = time.time


def stepping() -> float:
    """The Unix time, as it is wrongly told."""
    now = _wall()
    return now + STEPS_S[int(now / EVERY_S) % len(STEPS_S)]


if __name__ == "__main__":
    time.time = stepping  # before the proxy takes it
    from proxy.cli import main

    sys.exit(main(sys.argv[1:]))
