"""Session ids as they may be shown."""

from __future__ import annotations

from proxy.engine.privacy import hash_session


def test_a_session_has_one_name_whatever_its_length_and_type() -> None:
    """Text and its UTF-8 bytes are one id, also where it is too long to be kept in the cache."""
    for raw in ("abc", "x" * 10_000, "ü"):
        assert hash_session(raw) == hash_session(raw.encode())
    assert hash_session("abc") != hash_session("abd")
    assert len(hash_session("x" * 10_000)) == len("s_") + 12
