"""What of a head a proxy may forward, and what the engine needs to know of it, in one pass.

Fields keep their order, duplicates and spelling. Left out are the hop-by-hop fields (RFC 9110,
7.6.1) and what `Connection` names; changed are only `Accept-Encoding` where an event stream is
accepted, the `X-Forwarded-*` fields, `Host` if configured so, and the framing.
"""

from __future__ import annotations

from dataclasses import dataclass

Fields = list[tuple[bytes, bytes]]

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_HOP_BY_HOP = frozenset({b"mcp-session-id", b"last-event-id", b"content-length", b"host"})
"""What a `Connection` field cannot take away: the session, and the framing, rest on them."""


_NOTED = frozenset(
    {
        b"accept",
        b"content-length",
        b"host",
        b"last-event-id",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"origin",
        b"transfer-encoding",
    }
)
"""The request fields that say something to the proxy itself."""
_TOLD = frozenset({b"content-encoding", b"content-type", b"mcp-session-id", b"x-accel-buffering"})
"""The response fields that do, beside the one that names the replica."""


@dataclass(slots=True)
class RequestHead:
    """A request's fields as they go upstream, and what they say.

    `session` and `cursor` are None if absent or empty; several session fields are one joined value,
    which names another session: nothing is merged or guessed.
    """

    fields: Fields
    session: bytes | None = None
    cursor: bytes | None = None
    protocol: str | None = None
    host: bytes | None = None
    origin: bytes | None = None
    content_length: int | None = None
    chunked: bool = False
    accepts_stream: bool = False


@dataclass(slots=True)
class ResponseFields:
    """A response's fields as they go to the client, without transfer coding, and what they say."""

    fields: Fields
    session: bytes | None = None
    is_stream: bool = False
    is_json: bool = False
    encoded: bool = False
    replica: str | None = None


@dataclass(frozen=True, slots=True)
class Forwarding:
    """How one upstream wants its requests: a `Host` in place of the client's, `X-Forwarded-*` or not."""

    host: bytes | None = None
    """The value of a rewritten `Host`; None preserves the client's."""
    append: bool = True
    scheme: bytes = b"http"
    """How the client reached this proxy."""


def request_head(raw: Fields, names: list[bytes], peer: bytes | None, forwarding: Forwarding) -> RequestHead:
    """The fields to send upstream for `raw`, sent by a client at address `peer` (None: unknown).

    `names` are those of the fields, in lower case.
    """
    head = RequestHead([])
    for key, (_, value) in zip(names, raw, strict=True):
        if key in _NOTED:
            _note(head, key, value)
    head.session = head.session or None
    head.fields, keys = _end_to_end(raw, list(names))
    if head.accepts_stream:
        _replace(head.fields, keys, b"accept-encoding", b"Accept-Encoding", b"identity")
    if forwarding.host is not None:
        _replace(head.fields, keys, b"host", b"Host", forwarding.host)
    if forwarding.append:
        _forwarded(head.fields, keys, peer, head.host, forwarding.scheme)
    if head.chunked:
        head.fields.append((b"Transfer-Encoding", b"chunked"))
    return head


def _note(head: RequestHead, key: bytes, value: bytes) -> None:
    """Read what a field says; `key` is its name in lower case, one of `_NOTED`."""
    match key:
        case b"mcp-session-id":
            head.session = value if head.session is None else head.session + b", " + value
        case b"last-event-id":
            head.cursor = value.strip(b" \t") or None
        case b"mcp-protocol-version":
            head.protocol = value.decode("latin-1")
        case b"host":
            head.host = value
        case b"origin":
            head.origin = value
        case b"content-length":
            head.content_length = int(value) if value.isdigit() else None
        case b"transfer-encoding":
            head.chunked = b"chunked" in value.lower()
        case _:
            head.accepts_stream = head.accepts_stream or b"text/event-stream" in value.lower()


def response_fields(raw: Fields, replica_header: bytes | None) -> ResponseFields:
    """The fields to send to the client for `raw`; `replica_header` is in lower case, None for none."""
    fields, keys = _end_to_end(raw, [name.lower() for name, _ in raw])
    head = ResponseFields(fields)
    buffering = False
    for key, (_, value) in zip(keys, fields, strict=True):
        if key not in _TOLD and key != replica_header:
            continue
        if key == b"content-type":
            kind = value.partition(b";")[0].strip().lower()
            head.is_stream = kind == b"text/event-stream"
            head.is_json = kind == b"application/json"
        elif key == b"content-encoding":
            head.encoded = value.strip().lower() not in (b"", b"identity")
        elif key == b"mcp-session-id":
            head.session = value or None
        elif key == b"x-accel-buffering":
            buffering = True
        if key == replica_header:
            head.replica = value.decode("utf-8", "backslashreplace")[:128]
    if head.is_stream and not buffering:
        head.fields.append((b"X-Accel-Buffering", b"no"))
    return head


def _end_to_end(raw: Fields, keys: list[bytes]) -> tuple[Fields, list[bytes]]:
    """The fields without the hop-by-hop ones and those that `Connection` names, and their `keys`: the list given."""
    if _HOP_BY_HOP.isdisjoint(keys):
        return list(raw), keys
    dropped: frozenset[bytes] = _HOP_BY_HOP
    for key, (_, value) in zip(keys, raw, strict=True) if b"connection" in keys else ():
        if key == b"connection":
            named = {option.strip().lower() for option in value.split(b",")}
            dropped = dropped | (named - _NOT_HOP_BY_HOP)
    fields = list(raw)
    for i in range(len(keys) - 1, -1, -1):
        if keys[i] in dropped:
            del fields[i], keys[i]
    return fields, keys


def _replace(fields: Fields, keys: list[bytes], key: bytes, name: bytes, value: bytes) -> None:
    """Give the field `key` one value, in the place of its first line; at the end if there is none."""
    if key not in keys:
        fields.append((name, value))
        keys.append(key)
        return
    at = keys.index(key)
    fields[at] = (fields[at][0], value)
    for i in range(len(keys) - 1, at, -1):
        if keys[i] == key:
            del fields[i], keys[i]


def _forwarded(
    fields: Fields, keys: list[bytes], peer: bytes | None, host: bytes | None, scheme: bytes
) -> None:
    """Append the client to `X-Forwarded-For`; set `-Proto` and `-Host` where nobody has."""
    if peer is not None:
        if b"x-forwarded-for" in keys:
            last = len(keys) - 1 - keys[::-1].index(b"x-forwarded-for")
            fields[last] = (fields[last][0], fields[last][1] + b", " + peer)
        else:
            fields.append((b"X-Forwarded-For", peer))
    if b"x-forwarded-proto" not in keys:
        fields.append((b"X-Forwarded-Proto", scheme))
    if host is not None and b"x-forwarded-host" not in keys:
        fields.append((b"X-Forwarded-Host", host))
