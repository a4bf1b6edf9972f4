"""The kept inputs of every fuzzer: each passes, and each fuzzer's check notices what it is there for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.__main__ import NAMES
from tests.fuzz.campaign import load
from tests.fuzz.listener import close_stage
from tests.fuzz.target import CORPUS

MOST_FILES = 200
MOST_BYTES = 300_000


@pytest.fixture(scope="module", autouse=True)
def _one_listener() -> Iterator[None]:
    """The listener that the inputs share ends with them."""
    yield
    close_stage()


def kept(name: str) -> list[Path]:
    """The inputs of one fuzzer."""
    return sorted((CORPUS / name).iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_every_kept_input_passes(name: str) -> None:
    """What a fuzzer found once, and what its inputs are made of, holds to its laws."""
    check = load(name).check
    files = kept(name)
    assert files
    for file in files:
        try:
            check(file.read_bytes())
        except Exception as error:
            error.add_note(f"input: {file}")
            raise


def test_the_corpus_is_small_and_each_directory_has_a_fuzzer() -> None:
    """It is read by people and replayed by every test run."""
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(NAMES)
    sizes = [file.stat().st_size for name in NAMES for file in kept(name)]
    assert len(sizes) <= MOST_FILES
    assert sum(sizes) <= MOST_BYTES
