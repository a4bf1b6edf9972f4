"""Where an upstream listens: its URL, checked and taken apart."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import unquote, urlsplit

Scheme = Literal["http", "https", "unix"]

_DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\.?")


@dataclass(frozen=True, slots=True)
class Address:
    """Where an upstream listens. For `unix`, `path` is the socket, and host and port are "" and 0."""

    scheme: Scheme
    host: str
    port: int
    path: str = ""
    authority: bytes = field(init=False, compare=False)
    """What a rewritten Host field holds: the default port is left out, `localhost` for a Unix socket."""

    def __post_init__(self) -> None:
        """Derive `authority`."""
        host = f"[{self.host}]" if ":" in self.host else self.host or "localhost"
        default = self.scheme == "unix" or self.port == _DEFAULT_PORTS[self.scheme]
        object.__setattr__(self, "authority", (host if default else f"{host}:{self.port}").encode("ascii"))

    def __str__(self) -> str:
        """For people: the URL."""
        return f"unix:{self.path}" if self.scheme == "unix" else f"{self.scheme}://{self.authority.decode()}"

    @classmethod
    def parse(cls, url: str) -> Address:
        """From `http://host[:port]`, `https://host[:port]`, `unix:/path` or `http+unix://%2Fpath`.

        Raises ValueError with a sentence for people; it repeats no user name and no password.
        """
        parts = urlsplit(url)
        if parts.scheme in ("unix", "http+unix"):
            return cls("unix", "", 0, _socket_path(url.partition(":")[2]))
        if parts.scheme not in _DEFAULT_PORTS:
            raise ValueError("an upstream URL starts with http://, https:// or unix:/")
        if "@" in parts.netloc:
            raise ValueError("an upstream URL holds no user name or password")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("an upstream URL has no path: the request's own path is sent")
        try:
            port = parts.port
        except ValueError:
            raise ValueError("the port of an upstream URL is a number from 1 to 65535") from None
        if port == 0 or (port is None and parts.netloc.endswith(":")):
            raise ValueError("the port of an upstream URL is a number from 1 to 65535")
        scheme = cast(Scheme, parts.scheme)
        return cls(scheme, _host(parts.hostname or ""), port or _DEFAULT_PORTS[scheme])


def _host(host: str) -> str:
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host))
        except ValueError:
            raise ValueError(f"{host!r} is not an IPv6 address") from None
    if not _HOST_NAME.fullmatch(host):
        raise ValueError(
            f"{host!r} is not a host name or address; write international names in their xn-- form"
        )
    return host


def _socket_path(rest: str) -> str:
    path = unquote(rest.removeprefix("//"))
    if not path.startswith("/") or path.endswith("/") or "\0" in path:
        raise ValueError("a Unix socket is given with its whole path, such as unix:/run/server.sock")
    return path
