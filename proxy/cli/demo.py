"""`forkwatch demo`: a fork happening, and being caught, with nothing else needed."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from importlib import metadata

INSTALL = "pip install '.[demo]' in a checkout (make demo does it)"
_SDK_GENERATION = "2"
_ENDED_BY = (signal.SIGTERM, signal.SIGHUP)
"""Besides Ctrl-C: what ends a terminal or a job. The demo's processes end with it."""


def run(args: argparse.Namespace) -> int:
    """Play the demo. 0 if the fork was caught, 1 if not, 2 without the SDK, 128 + N if signal N ended it."""
    if (missing := _missing()) is not None:
        print(f"forkwatch: {missing}; install it with: {INSTALL}", file=sys.stderr)
        return 2
    try:
        return asyncio.run(_play(args.mode or "observe", plain=args.plain, keep=args.keep))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _missing() -> str | None:
    """What of the official SDK is missing, None if it is there. It is not imported: that takes a second."""
    try:
        found = metadata.version("mcp")
    except metadata.PackageNotFoundError:
        return "the demo needs the official MCP SDK (the package mcp)"
    if found.partition(".")[0] != _SDK_GENERATION:
        return f"the demo needs mcp {_SDK_GENERATION}.x, and {found} is installed"
    return None


async def _play(mode: str, *, plain: bool, keep: bool) -> int:
    from proxy.demo.children import DemoFailed
    from proxy.demo.screen import Screen
    from proxy.demo.story import failures, tell

    ended_by: list[int] = []
    screen = Screen(plain=plain)
    loop, playing = asyncio.get_running_loop(), asyncio.create_task(tell(mode, screen, keep=keep))

    def end(number: int) -> None:
        ended_by.append(number)
        playing.cancel()

    for number in _ENDED_BY:
        loop.add_signal_handler(number, end, number)
    try:
        problems = await playing
    except asyncio.CancelledError:
        if not ended_by:
            raise
        return 128 + ended_by[0]
    except (DemoFailed, ExceptionGroup) as error:
        problems = failures(error)
    finally:
        screen.progress("")
    for problem in problems:
        print(f"forkwatch: not caught: {problem}", file=sys.stderr)
    return 1 if problems else 0
