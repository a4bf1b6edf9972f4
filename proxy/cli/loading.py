"""From parsed arguments to loaded settings, the same for every command that needs a configuration."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from proxy.config import Loaded, load
from proxy.config.overrides import FLAGS


def load_from(args: argparse.Namespace) -> Loaded:
    """What the arguments, the process's environment and the file say. Raises ConfigError."""
    flags = {name: getattr(args, name) for name in FLAGS}
    return load(Path(args.config) if args.config is not None else None, flags=flags, env=os.environ)
