"""An address to listen on, as text and taken apart.

Imports next to nothing, because `forkwatch healthcheck` starts with it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_ENDPOINT = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252})):(?P<port>[0-9]{1,5})"
)


class Endpoint(NamedTuple):
    """A host without brackets, and a port; 0 lets the system choose one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """`HOST:PORT`, an IPv6 host in brackets. Raises ValueError, which never repeats the text."""
        found = _ENDPOINT.fullmatch(text)
        if found is None:
            raise ValueError("not an address; write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080")
        port = int(found["port"])
        if port > 65535:
            raise ValueError("not an address; a port is at most 65535")
        return cls(found["v6"] or found["host"], port)

    def __str__(self) -> str:
        """As it is written: `127.0.0.1:8080`, `[::1]:8080`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
