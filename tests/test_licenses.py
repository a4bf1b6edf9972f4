"""What an installation brings is pinned, under allowed licences, and listed in docs/licenses.md."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.supply import runtime
from tests.supply.runtime import OLDEST, PAGE, ROOT
from tests.supply.sbom import problems

NEEDED = runtime.runtime(OLDEST)


def test_the_page_lists_what_is_installed() -> None:
    """docs/licenses.md is what `python -m tests.supply.runtime` writes."""
    assert PAGE.read_text() == runtime.page()


def test_the_direct_dependencies_are_among_them() -> None:
    """The list begins with pyproject.toml and follows what each package needs: aiohttp needs yarl, that idna."""
    assert {"aiohttp", "yarl", "idna"} <= NEEDED.keys()
    assert (NEEDED["aiohttp"].needed_by, NEEDED["idna"].needed_by) == ({"forkwatch"}, {"yarl"})


def test_what_only_an_extra_needs_is_not_among_them() -> None:
    """The demo's SDK and the developers' tools are not installed with the proxy."""
    assert not {"mcp", "pytest", "mypy", "aiodns"} & NEEDED.keys()


@pytest.mark.parametrize("name", NEEDED)
def test_every_licence_is_allowed(name: str) -> None:
    """A new dependency, or a new version of one, brings no licence that nobody has looked at."""
    assert runtime.refused(NEEDED[name].licence) == []


@pytest.mark.parametrize(
    ("licence", "refused"),
    [
        ("MIT", []),
        ("(Apache-2.0 OR MIT) AND BSD-3-Clause", []),
        ("GPL-3.0-only", ["GPL-3.0-only"]),
        ("Apache-2.0 AND AGPL-3.0-or-later", ["AGPL-3.0-or-later"]),
        ("MIT OR GPL-2.0-only", ["GPL-2.0-only"]),
        ("MIT WITH Foo-exception", ["Foo-exception"]),
        ("none declared", ["none", "declared"]),
    ],
)
def test_what_is_not_allowed_is_found(licence: str, refused: list[str]) -> None:
    """Whatever an expression names must be on the list."""
    assert runtime.refused(licence) == refused


@pytest.mark.parametrize("name", NEEDED)
def test_every_runtime_package_is_pinned(name: str) -> None:
    """constraints.txt names the exact version, and that is the one the tests run with."""
    assert runtime.pins()[name] == NEEDED[name].version


@pytest.mark.parametrize("line", ["orjson>=3", "orjson==3.*", "orjson", "orjson==3 ; python_version < '4'"])
def test_a_line_that_pins_nothing_is_found(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A range, a wildcard or a condition is no pin."""
    (tmp_path / "constraints.txt").write_text(f"# words\naiohttp==3.14.5\n{line}\n")
    monkeypatch.setattr(runtime, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="pins no exact version"):
        runtime.pins()


def test_the_proxy_itself_is_under_apache_2() -> None:
    """The licence that pyproject.toml declares is the text that is shipped."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()


def sbom(**changed: str | None) -> str:
    """An SBOM of the runtime packages, with other versions of some, or without them."""
    versions: dict[str, str | None] = {name: one.version for name, one in NEEDED.items()}
    versions |= changed
    components = [{"name": name, "version": version} for name, version in versions.items() if version]
    return json.dumps({"components": components})


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({}, []),
        ({"orjson": "0"}, [f"orjson: 0 is described, {NEEDED['orjson'].version} is needed and tested"]),
        (
            {"orjson": None},
            [f"orjson: nothing is described, {NEEDED['orjson'].version} is needed and tested"],
        ),
        ({"left-pad": "1"}, ["left-pad: 1 is described, nothing is needed and tested"]),
    ],
    ids=["whole", "another-version", "one-too-few", "one-too-many"],
)
def test_an_sbom_is_held_to_what_is_pinned(changed: dict[str, str | None], wrong: list[str]) -> None:
    """It describes every runtime package at the tested version, and nothing else."""
    assert problems(sbom(**changed), OLDEST) == wrong


def test_an_sbom_is_held_to_the_allowed_licences(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make sbom` fails on a licence that is not on the list."""
    monkeypatch.setattr(runtime, "ALLOWED", runtime.ALLOWED - {"PSF-2.0"})
    said = "PSF-2.0: PSF-2.0 is not on the list of allowed licences"
    assert problems(sbom(), OLDEST) == [f"aiohappyeyeballs: {said}", f"typing-extensions: {said}"]
