"""What an installation of the proxy brings: its runtime packages, and the licences they are under.

    python -m tests.supply.runtime > docs/licenses.md

Everything is read from what is installed here, which is what constraints.txt pins.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "licenses.md"
OLDEST = "3.11"
"""The oldest supported Python needs the most packages: newer ones have more in their standard library."""

ALLOWED = frozenset({"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "MPL-2.0", "PSF-2.0"})
"""All may be used and passed on beside Apache-2.0 code; of MPL-2.0 the files themselves stay under it."""
_SPDX = {"Apache 2.0": "Apache-2.0", "MIT License": "MIT"}
"""What some packages write in place of an SPDX identifier."""
_OPERATORS = frozenset({"AND", "OR", "WITH"})

_HEAD = """\
# Licences of what an installation brings

forkwatch is under Apache-2.0. `pip install .` brings these packages, for any of the supported Pythons; their exact
versions are in [constraints.txt](../constraints.txt), and `make sbom` writes them as CycloneDX JSON. Allowed are
{allowed};
of a package with several licences, each of them.

| package | licence | needed by |
|---|---|---|
"""
_TAIL = """
Wheels hold native code of their own: llhttp (MIT) in aiohttp and httptools, libuv (MIT) in uvloop, libyaml (MIT) in
pyyaml, xxHash (BSD-2-Clause) in xxhash, and Rust crates in orjson, which lists them in its own `sboms/` folder.
The demo and the developers' tools are not installed with the proxy and not listed.

This page is made by `python -m tests.supply.runtime`, and `tests/test_licenses.py` holds it to what is installed.
"""


@dataclass(slots=True)
class Package:
    """A distribution, by its normalised name."""

    name: str
    needed_by: set[str] = field(default_factory=set)

    @property
    def version(self) -> str:
        """The installed version."""
        return metadata.version(self.name)

    @property
    def licence(self) -> str:
        """Its SPDX expression; what it says instead if that is none."""
        found = metadata.metadata(self.name)
        declared = found.get_all("License-Expression") or found.get_all("License") or ["none declared"]
        said = str(declared[0])
        return _SPDX.get(said, said)


def runtime(python: str) -> dict[str, Package]:
    """The packages that the proxy needs on that Python (`3.11`), all of them, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    found: dict[str, Package] = {}
    waiting = [("forkwatch", text) for text in project["dependencies"]]
    while waiting:
        needed_by, text = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate(environment):
            continue
        name = canonicalize_name(requirement.name)
        if name not in found:
            found[name] = Package(name)
            waiting += [(name, needed) for needed in metadata.requires(name) or []]
        found[name].needed_by.add(needed_by)
    return dict(sorted(found.items()))


def pins() -> dict[str, str]:
    """The exact versions in constraints.txt, by normalised name. Raises ValueError for a line that is none."""
    found = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, operator, version = line.partition("==")
        if not (
            operator and re.fullmatch(r"[A-Za-z0-9._-]+", name) and re.fullmatch(r"[0-9][0-9a-z.]*", version)
        ):
            raise ValueError(f"constraints.txt: {line!r} pins no exact version")
        found[str(canonicalize_name(name))] = version
    return found


def refused(licence: str) -> list[str]:
    """What an SPDX expression names that is not allowed, also where another might be chosen."""
    words = re.sub(r"[()]", " ", licence).split()
    return [word for word in words if word not in _OPERATORS and word not in ALLOWED]


def page() -> str:
    """The text of docs/licenses.md."""
    head = _HEAD.format(allowed=", ".join(sorted(ALLOWED)))
    rows = [
        f"| {one.name} | {one.licence} | {', '.join(sorted(one.needed_by))} |\n"
        for one in runtime(OLDEST).values()
    ]
    return head + "".join(rows) + _TAIL


if __name__ == "__main__":
    sys.stdout.write(page())
