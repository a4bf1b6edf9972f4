"""Which upstream takes a request: the first whose path and host match.

Paths are compared as they are on the wire, percent-encoding and case included, by whole segments:
`/mcp` takes `/mcp`, `/mcp/` and `/mcp/x`, never `/mcps`. Nothing is decoded or normalised, because the
upstream is sent the raw target and must see the path that was matched.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.config.settings import Match, Settings, UpstreamSettings


def find_upstream(settings: Settings, host: str | None, raw_path: bytes) -> UpstreamSettings | None:
    """The first upstream that matches, or None.

    `host` is the Host header as sent, None without one. `raw_path` is the request target: a query is
    ignored, of an absolute target only the path counts, and `*` matches what matches every path.
    """
    path = _path_of(raw_path)
    name = None if host is None else host.lower()
    for upstream in settings.upstreams:
        match = upstream.match
        if _takes_path(match.path, path) and (match.host is None or _takes_host(match.host, name)):
            return upstream
    return None


def shadowed_by(upstreams: Sequence[UpstreamSettings], index: int) -> int | None:
    """The place of the earlier upstream that leaves none for the one at `index`; None if it can match."""
    match = upstreams[index].match
    for earlier in range(index):
        if _covers(upstreams[earlier].match, match):
            return earlier
    return None


def _path_of(target: bytes) -> bytes:
    path = target.partition(b"?")[0]
    if path.startswith(b"/"):
        return path
    scheme, separator, rest = path.partition(b"://")
    if scheme and separator:
        return b"/" + rest.partition(b"/")[2]
    return path


def _takes_path(prefix: str, path: bytes) -> bool:
    if prefix == "/":
        return True
    raw = prefix.encode("ascii")
    return path.startswith(raw) and (len(path) == len(raw) or path[len(raw)] == 0x2F)


def _takes_host(wanted: str, host: str | None) -> bool:
    return host is not None and wanted in (host, _without_port(host))


def _covers(earlier: Match, later: Match) -> bool:
    """Whether every request that `later` matches is matched by `earlier`."""
    if not _takes_path(earlier.path, later.path.encode("ascii")):
        return False
    return earlier.host is None or (later.host is not None and _takes_host(earlier.host, later.host))


def _without_port(host: str) -> str:
    """`host` without its port, and without the dot of a fully qualified name; brackets stay."""
    name = host.rpartition(":")[0] if _has_port(host) else host
    return name.removesuffix(".")


def _has_port(host: str) -> bool:
    name, separator, port = host.rpartition(":")
    return bool(separator and name) and port.isdigit() and (name.endswith("]") or ":" not in name)
