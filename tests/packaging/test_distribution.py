"""What `pip install` brings: the package's other files too, which an editable install would not miss."""

from __future__ import annotations

import tomllib

from tests.packaging.tools import ROOT


def test_every_file_that_is_no_module_is_declared() -> None:
    """setuptools leaves out of the wheel what pyproject.toml does not name."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    found, named = set(), set()
    for package in {path.parent for path in (ROOT / "proxy").rglob("__init__.py")}:
        name = ".".join(package.relative_to(ROOT).parts)
        for pattern in declared.get("*", []) + declared.get(name, []):
            named |= {path for path in package.glob(pattern) if path.is_file()}
    for path in (ROOT / "proxy").rglob("*"):
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts:
            found.add(path)
    assert [str(path.relative_to(ROOT)) for path in sorted(found - named)] == []
