"""`forkwatch version`: which forkwatch this is."""

from __future__ import annotations

import argparse

from proxy import __version__


def run(args: argparse.Namespace) -> int:
    """Print the version."""
    print(f"forkwatch {__version__}")
    return 0
