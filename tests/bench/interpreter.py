"""Which Python runs forkwatch while it is measured: by default the distribution's, where that is new enough.

Distributions and container images build theirs with profile-guided optimisation; what `pyenv install` builds has
none, and relays a quarter dearer. What it needs is installed under `.bench/`, from the project's own pins.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DISTRIBUTION = Path("/usr/bin/python3")
HOME = ROOT / ".bench" / "python"
INSTALL_S = 300.0


def chosen(wanted: str | None) -> str:
    """The interpreter to measure with: `wanted`, else the distribution's, else this one; it has all it needs.

    RuntimeError, with pip's words, if `wanted` cannot be had.
    """
    if wanted is not None:
        return _prepared(Path(wanted))
    if not _new_enough(DISTRIBUTION):
        return sys.executable
    try:
        return _prepared(DISTRIBUTION)
    except RuntimeError as error:
        print(f"bench: without {DISTRIBUTION}: {error}", file=sys.stderr)
        return sys.executable


def described(python: str) -> str:
    """Its version and where it comes from, for people."""
    words = "import platform, sys; print(platform.python_version(), sys.base_prefix)"
    done = subprocess.run([python, "-c", words], capture_output=True, text=True, check=True)
    version, prefix = done.stdout.split(maxsplit=1)
    return f"Python {version} of {prefix.strip()}"


def _new_enough(python: Path) -> bool:
    least = _project()["requires-python"].removeprefix(">=")
    words = f"import sys; sys.exit(sys.version_info < ({least.replace('.', ', ')}))"
    return python.exists() and subprocess.run([python, "-c", words]).returncode == 0


def _prepared(python: Path) -> str:
    home = HOME / python.resolve().name
    return install(python, home, _project()["dependencies"], ROOT / "constraints.txt")


def install(python: Path, home: Path, wanted: list[str], constraints: Path | None) -> str:
    """An environment of `python` at `home` with these packages, made unless it is there; its interpreter.

    RuntimeError, with pip's words, if that fails.
    """
    ours, mark = str(home / "bin" / "python"), home / ".installed"
    versions = "\n".join([str(python), *wanted, constraints.read_text() if constraints else ""])
    if mark.exists() and mark.read_text() == versions:
        return ours
    print(f"bench: installing {wanted[0]} … into {home.relative_to(ROOT)}", file=sys.stderr, flush=True)
    pip = [sys.executable, "-m", "pip", "--python", ours, "install", "--quiet", "--disable-pip-version-check"]
    pip += ["-c", str(constraints)] if constraints else []
    try:
        # Without pip of its own: Debian has that in another package.
        for argv in ([str(python), "-m", "venv", "--clear", "--without-pip", str(home)], [*pip, *wanted]):
            subprocess.run(argv, check=True, capture_output=True, text=True, timeout=INSTALL_S)
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise RuntimeError(next((line for line in said if line.startswith("ERROR")), said[-1])) from error
    mark.write_text(versions)
    return ours


def _project() -> dict[str, Any]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])
