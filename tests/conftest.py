"""What all tests share: how Hypothesis searches, here and in continuous integration, and that Ctrl-C works."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

# A shell ignores Ctrl-C for what it starts in the background, and children inherit that: tests that interrupt a process
# must not depend on how they were started.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: a law is about values, and a busy machine is slow without being wrong.
settings.register_profile("default", deadline=None)
# Continuous integration repeats itself, so that a failure there is one of the change and can be repeated.
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
