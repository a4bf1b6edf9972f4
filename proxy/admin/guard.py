"""Who may use the admin interface, decided from the head of a request alone.

Against other machines there is the address it listens on, or a token. Against web pages that the same
person has open: a Host that is not this machine's name is refused (DNS rebinding), so is every Origin,
and what changes something needs a header that no form or link can send. (The same three guards as the
admin interfaces of Caddy and Envoy.)
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

HEADER = "X-Forkwatch-Admin"
"""Required, with any value, on requests that change something."""

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not served: a status, the problem's type and a sentence with the remedy."""

    status: int
    type: str
    detail: str


class Guard:
    """What is asked of every request. `token` is None where only this machine can connect."""

    def __init__(self, token: str | None, own_host: str = "") -> None:
        """`own_host` is the host the interface was told to listen on, '' for a Unix socket."""
        self._token = token
        self._names = LOCAL_NAMES | ({own_host.lower()} if own_host else set())

    def at(self, own_host: str) -> Guard:
        """The same guard, where the interface listens on `own_host`."""
        return Guard(self._token, own_host)

    def refuses(self, method: str, headers: Mapping[str, str], *, public: bool = False) -> Refusal | None:
        """Why this request is refused, or None. `public`: the page itself, which holds no data."""
        if self._token is None and not self._is_local(headers.get("Host", "")):
            return Refusal(
                403, "foreign-host", "the Host header is not a name of this machine: use localhost"
            )
        foreign = headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        if "Origin" in headers or (foreign and not public):  # a link in a chat may lead to the page
            return Refusal(403, "foreign-origin", "requests made by other web pages are refused")
        if self._token is not None and not public and not self._authorized(headers.get("Authorization", "")):
            return Refusal(
                401, "unauthorized", "send Authorization: Bearer with the token of admin_token_file"
            )
        if method not in READS and not headers.get(HEADER):
            return Refusal(403, "header-missing", f"send {HEADER}: 1 with requests that change something")
        return None

    def _is_local(self, host: str) -> bool:
        name, separator, port = host.lower().rpartition(":")
        if not separator or not port.isdigit() or host.endswith("]"):
            name = host.lower()
        return name in self._names

    def _authorized(self, value: str) -> bool:
        assert self._token is not None
        scheme, _, given = value.partition(" ")
        same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token.encode())
        return same and scheme.lower() == "bearer"
