"""`forkwatch check`: whether a configuration would run, what it says, and what may surprise."""

from __future__ import annotations

import argparse

from proxy.cli.loading import load_from
from proxy.config import Loaded, rows


def run(args: argparse.Namespace) -> int:
    """Print a summary and the warnings. Raises ConfigError, which `main` prints, with every problem."""
    loaded = load_from(args)
    for line in _explained(loaded) if args.explain else _summary(loaded):
        print(line)
    for warning in loaded.warnings:
        print(f"warning: {warning}")
    return 0


def _summary(loaded: Loaded) -> list[str]:
    settings = loaded.settings
    lines = [
        f"OK: {loaded.path or 'flags and environment'}",
        f"listen    {settings.listen}{' (TLS)' if settings.tls else ''}",
        f"status    {settings.status}",
        f"admin     {settings.admin or 'none'}{' (with a token)' if settings.admin_token_file else ''}",
        f"state     {settings.state}",
    ]
    for upstream in settings.upstreams:
        route = f"{upstream.match.host or ''}{upstream.match.path}"
        lines.append(
            f"upstream  {upstream.name}: {route} -> {upstream.url}, {upstream.mode}, ids {upstream.ids}"
        )
    return lines


def _explained(loaded: Loaded) -> list[str]:
    width = max(len(key) for key in loaded.sources)
    values = rows(loaded.settings)
    return [
        f"OK: {loaded.path or 'flags and environment'}",
        *(f"{key:<{width}}  {value}  ({loaded.sources[key]})" for key, value in values),
    ]
