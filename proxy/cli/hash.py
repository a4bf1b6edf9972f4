"""`forkwatch hash`: a session id as logs and metrics show it, to search them for it."""

from __future__ import annotations

import argparse

from proxy.engine.privacy import hash_session


def run(args: argparse.Namespace) -> int:
    """Print the hash of the id given, and nothing else."""
    print(hash_session(args.raw))
    return 0
