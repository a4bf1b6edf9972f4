"""The programs that the tests start, skipped by name where they are not installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PACKAGES = {
    "promtool": "prometheus",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "node": "nodejs",
}
TOOL_TIMEOUT_S = 180


def program(name: str) -> str:
    """The path of a program; skips the test, and says which Debian package brings it, where there is none."""
    if (found := shutil.which(name)) is None:
        pytest.skip(f"{name} is not installed: apt-get install {PACKAGES[name]}, or make ops as root")
    return found


def ran(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with what it wrote; AssertionError if it takes too long."""
    name, *arguments = map(str, command)
    return subprocess.run(
        [program(name), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
