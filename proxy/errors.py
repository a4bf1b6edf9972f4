"""What can fail outside the engine, as exceptions named for what happened.

What a peer *says* is a value and never raises; these are for what did not work. A `ProxyError` has the
HTTP status and problem type the client is answered with, and the metric label it is counted under. A
foreign exception is mapped to one of these in one place, with `raise ... from`. Messages go to clients
and logs: they hold no credentials, no query strings and no bodies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

UPSTREAM_ERROR_REASONS: tuple[str, ...] = (
    "connect",
    "connect_timeout",
    "dns",
    "tls",
    "header_timeout",
    "idle_timeout",
    "reset",
    "truncated",
    "protocol",
    "other",
)
"""The closed set of `ProxyError.reason`: the label of `upstream_errors_total`."""


class ProxyError(Exception):
    """The proxy could not do what a request asked for.

    `status` is the HTTP status of the answer, `type` its problem type in kebab-case, `reason` a member
    of `UPSTREAM_ERROR_REASONS`. Raises ValueError for a reason outside that set.
    """

    status: ClassVar[int] = 502
    type: ClassVar[str] = "proxy-error"
    reason: str = "other"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        """`message` is one sentence for people; `reason` refines the class's own."""
        super().__init__(message)
        if reason is not None:
            if reason not in UPSTREAM_ERROR_REASONS:
                raise ValueError(f"{reason!r} is not one of {', '.join(UPSTREAM_ERROR_REASONS)}")
            self.reason = reason


class UpstreamUnreachable(ProxyError):
    """No connection could be made: refused, unroutable, unresolvable (`dns`), or TLS failed (`tls`)."""

    type = "upstream-unreachable"
    reason = "connect"


class UpstreamTimeout(ProxyError):
    """The upstream did not accept a connection, or sent no response head (`header_timeout`), in time."""

    status = 504
    type = "upstream-timeout"
    reason = "connect_timeout"


class UpstreamIdle(ProxyError):
    """The upstream sent nothing of a started body for longer than the configured limit."""

    status = 504
    type = "upstream-idle"
    reason = "idle_timeout"


class UpstreamReset(ProxyError):
    """The connection was lost before or inside the response head, or reset within the body."""

    type = "upstream-reset"
    reason = "reset"


class UpstreamTruncated(ProxyError):
    """The connection ended before the body its framing had promised."""

    type = "upstream-truncated"
    reason = "truncated"


class UpstreamMalformed(ProxyError):
    """The upstream's bytes are not an acceptable HTTP/1.1 response."""

    type = "upstream-malformed"
    reason = "protocol"


class OverLimit(ProxyError):
    """A configured limit of the proxy is reached."""

    status = 503
    type = "over-limit"


class Draining(ProxyError):
    """The proxy is shutting down and takes no new work."""

    status = 503
    type = "draining"


class HeaderTooLarge(ProxyError):
    """The client's request head is larger than the proxy reads."""

    status = 431
    type = "header-too-large"


class BadRequest(ProxyError):
    """The client's bytes are not an acceptable HTTP/1.1 request."""

    status = 400
    type = "bad-request"


class NoUpstream(ProxyError):
    """No configured upstream matches the request."""

    status = 404
    type = "no-upstream"


class Problem(NamedTuple):
    """One thing wrong with the configuration, and what to do about it.

    `path` names the key (`upstreams[0].mode`), the environment variable or the flag, or is '' for the
    file as a whole. `line` counts from 1 and is None outside a file. `remedy` is '' when the message
    says it all. None of them holds a secret.
    """

    path: str
    line: int | None
    message: str
    remedy: str = ""

    def render(self, file: str) -> str:
        """One line for a person: `FILE:LINE: PATH: MESSAGE; REMEDY`, without the parts that are unknown."""
        place = f"{file}:{self.line}" if file and self.line is not None else file
        head = ": ".join(part for part in (place, self.path) if part)
        text = f"{self.message}; {self.remedy}" if self.remedy else self.message
        return f"{head}: {text}" if head else text


class ConfigError(Exception):
    """The configuration cannot be used: every problem found, in the order of the file. Exits 2.

    `file` is the configuration file the problems with a line refer to, '' if there is none. Problems
    without a line (flags, environment, nothing given) are rendered without it.
    """

    exit_code: ClassVar[int] = 2

    def __init__(self, problems: Iterable[Problem], *, file: str = "") -> None:
        """Keep `problems` in the order given."""
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.file = file
        super().__init__("\n".join(self.lines()))

    def lines(self) -> list[str]:
        """Every problem as one line, in order."""
        return [p.render(self.file if p.line is not None else "") for p in self.problems]


class ListenFailed(Exception):
    """A listener's address cannot be bound: in use, not on this machine, or not permitted. Exits 1."""

    exit_code: ClassVar[int] = 1
