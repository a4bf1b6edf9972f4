"""The Dockerfile as it is written: the linter is content, and what it copies is in the build context."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.packaging.tools import DOCKERFILE, ROOT, program, ran

IGNORED = (ROOT / ".dockerignore").read_text().splitlines()


@pytest.mark.ops
def test_hadolint_finds_nothing() -> None:
    """No rule is broken and none is switched off."""
    linted = ran(program("hadolint", "make ops"), "--no-color", DOCKERFILE)
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, "", "")
    assert "hadolint" not in DOCKERFILE.read_text()


@pytest.mark.ops
def test_hadolint_would_find_something(tmp_path: Path) -> None:
    """The test before this one can fail."""
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(DOCKERFILE.read_text().replace("USER 10001:10001", "USER root"))
    linted = ran(program("hadolint", "make ops"), "--no-color", wrong)
    assert linted.returncode == 1
    assert "DL3002" in linted.stdout


def test_what_is_copied_is_all_that_is_sent() -> None:
    """The build context is an allow-list, and each entry of it is used."""
    copied: set[str] = set()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE):
        copied |= {*sources.split()}
    assert all((ROOT / name).exists() for name in copied)
    assert {line[1:] for line in IGNORED if line.startswith("!")} == copied
    assert IGNORED[1] == "*"
