"""Session ids as they may be shown: hashed, so that a log or metric cannot be replayed as a credential.

The hash has no key on purpose: `forkwatch hash` finds a known id in any log, across hosts and restarts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

_CACHED_LENGTH = 256
"""Longer ids are hashed anew each time: a peer controls their length, and the cache must stay bounded."""

_HASHED = re.compile("s_[0-9a-f]{12}")


def hash_session(raw: str | bytes) -> str:
    """`s_` and 12 hex digits of BLAKE2b over the raw session id; text counts as its UTF-8 bytes."""
    if len(raw) > _CACHED_LENGTH:
        return _hash(raw)
    return _hash_cached(raw)


def of_hash(hashed: str) -> Callable[[bytes], bool] | None:
    """Whether a raw session id has this hash, as a test for many of them; None if `hashed` is none."""
    if not _HASHED.fullmatch(hashed):
        return None
    wanted = bytes.fromhex(hashed[2:])
    return lambda raw: blake2b(raw, digest_size=6).digest() == wanted


def _hash(raw: str | bytes) -> str:
    data = raw.encode("utf-8", "surrogateescape") if isinstance(raw, str) else raw
    return f"s_{blake2b(data, digest_size=6).hexdigest()}"


_hash_cached = lru_cache(maxsize=8192)(_hash)
