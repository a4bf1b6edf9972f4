"""Session ids as they may be shown: hashed, so that a log or metric cannot be replayed as a credential.

The hash has no key on purpose: `forkwatch hash` finds a known id in any log, across hosts and restarts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from hashlib import blake2b
from typing import TypeVar

_CACHED_LENGTH = 256

_HASHED = re.compile("s_[0-9a-f]{12}")


Id = TypeVar("Id", str, bytes, str | bytes)
Result = TypeVar("Result")


def cached_if_short(entries: int) -> Callable[[Callable[[Id], Result]], Callable[[Id], Result]]:
    """Remember what a function made of so many ids; a peer controls their length, so long ones are not kept."""

    def decorated(make: Callable[[Id], Result]) -> Callable[[Id], Result]:
        kept = lru_cache(maxsize=entries)(make)

        @wraps(make)
        def remembered(raw: Id) -> Result:
            return make(raw) if len(raw) > _CACHED_LENGTH else kept(raw)

        return remembered

    return decorated


@cached_if_short(8192)
def hash_session(raw: str | bytes) -> str:
    """`s_` and 12 hex digits of BLAKE2b over the raw session id; text counts as its UTF-8 bytes."""
    data = raw.encode("utf-8", "surrogateescape") if isinstance(raw, str) else raw
    return f"s_{blake2b(data, digest_size=6).hexdigest()}"


def of_hash(hashed: str) -> Callable[[bytes], bool] | None:
    """Whether a raw session id has this hash, as a test for many of them; None if `hashed` is none."""
    if not _HASHED.fullmatch(hashed):
        return None
    wanted = bytes.fromhex(hashed[2:])
    return lambda raw: blake2b(raw, digest_size=6).digest() == wanted
