"""Session ids as they may be shown."""

from __future__ import annotations

import pytest

from proxy.engine.privacy import hash_session, of_hash


def test_a_session_has_one_name_whatever_its_length_and_type() -> None:
    """Text and its UTF-8 bytes are one id, also where it is too long to be kept in the cache."""
    for raw in ("abc", "x" * 10_000, "ü"):
        assert hash_session(raw) == hash_session(raw.encode())
    assert hash_session("abc") != hash_session("abd")
    assert len(hash_session("x" * 10_000)) == len("s_") + 12


def test_a_hash_finds_its_id() -> None:
    """The raw id is not kept anywhere: it is found by trying."""
    matches = of_hash(hash_session(b"abc"))
    assert matches is not None
    assert [matches(raw) for raw in (b"abc", b"abcd")] == [True, False]


@pytest.mark.parametrize("text", ["abc", "s_12", "s_13c9497c2425 ", "S_13C9497C2425", ""])
def test_what_is_no_hash(text: str) -> None:
    """A raw session id, for one."""
    assert of_hash(text) is None
