"""What the proxy runs with: frozen values with their defaults, one attribute for each key of the file.

Names are the keys of `config/forkwatch.yaml`; a duration becomes float seconds (`_s`), a size becomes
int bytes. `proxy.config.load` makes these from a file, the environment and flags, and refuses what makes
no sense. A `Settings` never changes once made; a reload makes a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from proxy.endpoint import Endpoint

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

LISTEN = Endpoint("127.0.0.1", 8080)
STATUS = Endpoint("127.0.0.1", 9464)

Mode = Literal["observe", "annotate", "enforce"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """What the metrics page shows."""

    exemplars: bool = False
    """Whether verdict counters carry the hashed session as an exemplar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which requests an upstream takes: a path of whole segments, and a Host or None for any.

    `path` is percent-encoded and has no trailing slash unless it is `/`. `host` is lower case; with a
    port, the request's must be the same.
    """

    path: str = "/"
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """When a connection is given up, in seconds. None is never. None of them ends a healthy stream."""

    connect_s: float | None = 5.0
    headers_s: float | None = None
    """From the start of a request to the upstream's response head."""
    body_idle_s: float | None = None
    """Between two reads of a response body."""
    client_keepalive_s: float | None = 75.0
    """How long an idle client connection is kept."""
    upstream_keepalive_s: float | None = 4.0
    """How long an idle upstream connection is kept: less than the upstream keeps it, or a request is lost."""
    tcp_keepalive_s: float | None = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotate:
    """What `annotate` adds besides its comment line."""

    notify: bool = False
    """Whether a `notifications/message` follows the deciding frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Enforce:
    """When `enforce` cuts, and how long a cut session stays quarantined."""

    when: Literal["always", "in_flight"] = "always"
    cut_on: Literal["proven", "suspected"] = "proven"
    quarantine_ttl_s: float = 600.0
    """Runs from the last request that carried the session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamTls:
    """How an https upstream is verified, and the client certificate shown to it. All are file paths."""

    ca: str | None = None
    """Authorities to trust instead of the system's."""
    cert: str | None = None
    key: str | None = None
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamSettings:
    """One MCP server. `name` is its label in metrics and logs; `url` has no path and no credentials."""

    name: str = "default"
    url: str
    match: Match = field(default_factory=Match)
    strip_prefix: bool = False
    host_header: Literal["preserve", "rewrite"] = "preserve"
    forwarded: Literal["append", "none"] = "append"
    replica_header: str | None = None
    mode: Mode = "observe"
    ids: str = "auto"
    """`auto`, `integer`, `opaque`, a dialect's name, or a pattern such as `epoch:seq`."""
    replay_deadline_s: float = 5.0
    timeouts: Timeouts = field(default_factory=Timeouts)
    annotate: Annotate = field(default_factory=Annotate)
    enforce: Enforce = field(default_factory=Enforce)
    actions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Overrides: `verdict` or `verdict/reason` to `pass`, `annotate` or `cut`. Read-only."""
    tls: UpstreamTls | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The bounds on memory and connections. At each, the least recently used goes first."""

    sessions_per_upstream: int = 20_000
    streams_per_session: int = 64
    ids_per_stream: int = 1024
    ledger_bytes: int = 256 * MIB
    session_idle_s: float = 7200.0
    request_inspect_bytes: int = MIB
    """How much of a request body is read for JSON-RPC ids."""
    gate_bytes: int = MIB
    """The largest frame held back while it is judged."""
    max_connections: int = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """How log lines look and what they may show."""

    format: Literal["auto", "json", "console"] = "auto"
    """`auto` is `console` on a terminal and `json` elsewhere."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    session_ids: Literal["hash", "raw"] = "hash"
    event_ids: Literal["raw", "hash"] = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """The drain, in seconds from its start: readiness off, `delay`, streams end over `spread`, `deadline`."""

    delay_s: float = 5.0
    spread_s: float = 5.0
    deadline_s: float = 25.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """The listener's certificate chain and private key, as paths of PEM files."""

    cert: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything the proxy runs with."""

    listen: Endpoint = LISTEN
    status: Endpoint = STATUS
    admin: str | None = "auto"
    """`auto`, `unix:PATH`, `HOST:PORT`, or None for no admin interface."""
    admin_token_file: str | None = None
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    upstreams: tuple[UpstreamSettings, ...]
    """Never empty; the first that matches a request takes it."""
    state: str = "memory://"
    limits: Limits = field(default_factory=Limits)
    log: LogSettings = field(default_factory=LogSettings)
    shutdown: Shutdown = field(default_factory=Shutdown)
    tls: TlsSettings | None = None
