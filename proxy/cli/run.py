"""`forkwatch run`: the proxy, from a checked configuration to the end of its drain."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import signal
from collections.abc import Callable
from functools import partial

from proxy.cli.loading import load_from
from proxy.logs import open_log
from proxy.process import Process


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT and drain; a second signal ends at once. 0 after a drain, 1 on failure.

    SIGHUP reads the configuration again; SIGUSR1 shows where every thread stands, also while the loop does.
    """
    faulthandler.register(signal.SIGUSR1)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read anew
    read = partial(load_from, args)
    loaded = read()
    log = open_log(loaded.settings.log)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(Process(loaded, read, log).run())
    finally:
        log.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where it is installed: a third of the cost of a chunk; else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
