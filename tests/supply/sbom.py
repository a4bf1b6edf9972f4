"""Writes build/sbom.json: what an installation brings, as CycloneDX JSON; and checks the licences.

    make sbom

The packages are installed at their pinned versions into an environment of their own, which is what is
described. Exits with 1 if it holds anything that constraints.txt does not pin, or a licence that is not allowed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.utils import canonicalize_name

from tests.supply.runtime import ROOT, refused, runtime

TOOLS = ROOT / ".venv" / "supply" / "bin"
WRITTEN = ROOT / "build" / "sbom.json"


def main() -> int:
    """Write the file, and say what is wrong with it."""
    WRITTEN.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        python = _install(Path(folder))
        _run(
            *(str(TOOLS / "cyclonedx-py"), "environment", "--pyproject", str(ROOT / "pyproject.toml")),
            *("--mc-type", "application", "--output-reproducible", "--short-PURLs"),
            *("--of", "JSON", "-o", str(WRITTEN), str(python)),
        )
    wrong = problems(WRITTEN.read_text(), f"{sys.version_info.major}.{sys.version_info.minor}")
    for line in wrong:
        print(f"sbom: {line}", file=sys.stderr)
    if not wrong:
        print(f"sbom: wrote {WRITTEN.relative_to(ROOT)}; every licence is allowed")
    return 1 if wrong else 0


def problems(text: str, python: str) -> list[str]:
    """What is wrong with an SBOM made on that Python: one line each."""
    described = {
        str(canonicalize_name(one["name"])): one["version"] for one in json.loads(text)["components"]
    }
    needed = runtime(python)
    wrong = []
    for name in sorted({*described, *needed}):
        here = needed[name].version if name in needed else "nothing"
        if described.get(name, "nothing") != here:
            wrong.append(
                f"{name}: {described.get(name, 'nothing')} is described, {here} is needed and tested"
            )
    for name, package in needed.items():
        if words := refused(package.licence):
            wrong.append(
                f"{name}: {package.licence}: {', '.join(words)} is not on the list of allowed licences"
            )
    return wrong


def _install(folder: Path) -> Path:
    """The runtime packages alone, in a new environment; returns its interpreter."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    python = folder / "env" / "bin" / "python"
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "env"))
    _run(
        *(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"),
        *("--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"), *needed),
    )
    return python


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
