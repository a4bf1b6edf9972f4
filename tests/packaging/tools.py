"""The programs that the tests of this folder run, and the files they run on."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
OPS_TOOLS = ROOT / ".venv/ops/bin"
"""Where `make ops` installs the linters and schemas."""
TOOL_TIMEOUT_S = 120

DOCKERFILE = ROOT / "Dockerfile"
UNIT = ROOT / "config/systemd/forkwatch.service"
KUBERNETES = ROOT / "config/kubernetes"
COMPOSE = ROOT / "dashboards/compose.yaml"


def program(name: str, source: str) -> str:
    """The path of a program; skips the test, and says what brings it, where there is none."""
    found = shutil.which(name, path=str(OPS_TOOLS)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: {source} brings it")
    return found


def ran(
    *command: str | Path, timeout_s: float = TOOL_TIMEOUT_S, **settings: Any
) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with what it wrote; TimeoutExpired if it takes too long."""
    return subprocess.run(
        [str(each) for each in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        **settings,
    )


def documents(path: Path) -> list[dict[str, Any]]:
    """The YAML documents of a file."""
    return list(yaml.safe_load_all(path.read_text()))
