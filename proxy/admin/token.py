"""The token that guards an admin interface others can reach, as its file holds it."""

from __future__ import annotations

import os

MIN_CHARS = 16
"""A shorter one could be guessed."""
_MAX_BYTES = 4096


def read_token(path: str | None) -> str | None:
    """The token in the file, without the white space around it; None without a file.

    Raises OSError if it cannot be read, ValueError, which never repeats it, if it is none.
    """
    if path is None:
        return None
    # Without waiting: a pipe that nobody writes to holds no token.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        token = file.read(_MAX_BYTES + 1).strip()
    if len(token) > _MAX_BYTES:
        raise ValueError(f"is larger than {_MAX_BYTES} bytes")
    if len(token) < MIN_CHARS or not token.isascii() or not token.decode().isprintable() or b" " in token:
        raise ValueError(f"holds no token: one line of at least {MIN_CHARS} printable characters")
    return token.decode()
