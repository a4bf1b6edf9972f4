"""Every key of the configuration: its attribute in the settings, and the kind of value it takes.

One table for each section. Defaults live in `proxy.config.settings` alone; an attribute without one is a
required key. A test holds these tables, the settings and `config/forkwatch.yaml` to each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from proxy.config import settings
from proxy.config.document import Scalar
from proxy.config.locations import (
    ADMIN,
    CERTIFICATE_FILE,
    ENDPOINT,
    MATCH_HOST,
    MATCH_PATH,
    SECRET_FILE,
    STATE,
    TOKEN_FILE,
    URL,
)
from proxy.config.values import (
    BOOL,
    COUNT,
    DURATION,
    DURATION_OR_ZERO,
    HEADER_NAME,
    SIZE,
    UPSTREAM_NAME,
    Kind,
    Rejected,
    choice,
    optional,
    plain,
    shown,
)
from proxy.engine import ids
from proxy.engine.findings import REASONS


@dataclass(frozen=True, slots=True)
class Key:
    """One scalar key, and the attribute it sets."""

    attribute: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Choices:
    """A mapping from a closed set of keys to values of one kind: `actions`."""

    attribute: str
    names: frozenset[str]
    kind: Kind
    what: str


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping that becomes one dataclass. `nullable` sections may be null, for None."""

    attribute: str
    make: Callable[..., Any]
    keys: Mapping[str, Entry]
    nullable: bool = False

    def required(self) -> frozenset[str]:
        """The attributes that have no default."""
        bare = (f for f in fields(self.make) if f.default is MISSING and f.default_factory is MISSING)  # type: ignore[arg-type]
        return frozenset(f.name for f in bare)


@dataclass(frozen=True, slots=True)
class Sections:
    """A list of sections of one form: `upstreams`. It may not be empty."""

    attribute: str
    item: Section


Entry = Key | Choices | Section | Sections


def _read_ids(scalar: Scalar) -> str:
    text = plain(scalar)
    if not ids.known(text):
        remedy = f"use auto, a pattern such as epoch:seq, or one of {', '.join(sorted(ids.names()))}"
        raise Rejected(f"{shown(text)} is not a form of event ids", remedy)
    return text


MODE = choice("a mode", "observe", "annotate", "enforce")
ACTIONS = frozenset(
    name
    for verdict, reasons in REASONS.items()
    for name in (verdict.value, *(f"{verdict.value}/{reason.value}" for reason in reasons))
)
"""What `actions` may override: every verdict, and every verdict with one of its reasons."""

_MATCH = {"path": Key("path", MATCH_PATH), "host": Key("host", optional(MATCH_HOST))}
_TIMEOUTS = {
    name: Key(f"{name}_s", optional(DURATION))
    for name in ("connect", "headers", "body_idle", "client_keepalive", "upstream_keepalive", "tcp_keepalive")
}
_ENFORCE = {
    "when": Key("when", choice("a time to cut", "always", "in_flight")),
    "cut_on": Key("cut_on", choice("a certainty", "proven", "suspected")),
    "quarantine_ttl": Key("quarantine_ttl_s", DURATION),
}
_UPSTREAM_TLS = {
    "ca": Key("ca", optional(CERTIFICATE_FILE)),
    "cert": Key("cert", optional(CERTIFICATE_FILE)),
    "key": Key("key", optional(SECRET_FILE)),
    "verify": Key("verify", BOOL),
}
_UPSTREAM: dict[str, Entry] = {
    "name": Key("name", UPSTREAM_NAME),
    "url": Key("url", URL),
    "match": Section("match", settings.Match, _MATCH),
    "strip_prefix": Key("strip_prefix", BOOL),
    "host_header": Key("host_header", choice("a way to send Host", "preserve", "rewrite")),
    "forwarded": Key("forwarded", choice("a way to send X-Forwarded-*", "append", "none")),
    "replica_header": Key("replica_header", optional(HEADER_NAME)),
    "mode": Key("mode", MODE),
    "ids": Key("ids", Kind(_read_ids)),
    "replay_deadline": Key("replay_deadline_s", DURATION),
    "timeouts": Section("timeouts", settings.Timeouts, _TIMEOUTS),
    "annotate": Section("annotate", settings.Annotate, {"notify": Key("notify", BOOL)}),
    "enforce": Section("enforce", settings.Enforce, _ENFORCE),
    "actions": Choices("actions", ACTIONS, choice("an action", "pass", "annotate", "cut"), "verdict"),
    "tls": Section("tls", settings.UpstreamTls, _UPSTREAM_TLS, nullable=True),
}
_LIMITS = {
    "sessions_per_upstream": Key("sessions_per_upstream", COUNT),
    "streams_per_session": Key("streams_per_session", COUNT),
    "ids_per_stream": Key("ids_per_stream", COUNT),
    "ledger_bytes": Key("ledger_bytes", SIZE),
    "session_idle": Key("session_idle_s", DURATION),
    "request_inspect_bytes": Key("request_inspect_bytes", SIZE),
    "gate_bytes": Key("gate_bytes", SIZE),
    "max_connections": Key("max_connections", COUNT),
}
_LOG = {
    "format": Key("format", choice("a log format", "auto", "json", "console")),
    "level": Key("level", choice("a log level", "debug", "info", "warning", "error")),
    "session_ids": Key("session_ids", choice("a way to show session ids", "hash", "raw")),
    "event_ids": Key("event_ids", choice("a way to show event ids", "raw", "hash")),
}
_SHUTDOWN = {name: Key(f"{name}_s", DURATION_OR_ZERO) for name in ("delay", "spread", "deadline")}
_TLS = {"cert": Key("cert", CERTIFICATE_FILE), "key": Key("key", SECRET_FILE)}

ROOT = Section(
    "",
    settings.Settings,
    {
        "listen": Key("listen", ENDPOINT),
        "status": Key("status", ENDPOINT),
        "admin": Key("admin", optional(ADMIN)),
        "admin_token_file": Key("admin_token_file", optional(TOKEN_FILE)),
        "metrics": Section("metrics", settings.MetricsSettings, {"exemplars": Key("exemplars", BOOL)}),
        "upstreams": Sections("upstreams", Section("", settings.UpstreamSettings, _UPSTREAM)),
        "state": Key("state", STATE),
        "limits": Section("limits", settings.Limits, _LIMITS),
        "log": Section("log", settings.LogSettings, _LOG),
        "shutdown": Section("shutdown", settings.Shutdown, _SHUTDOWN),
        "tls": Section("tls", settings.TlsSettings, _TLS, nullable=True),
    },
)
"""The whole file."""
