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
_FRAMING = b"transfer-encoding"
_NOT_HOP_BY_HOP = frozenset({b"mcp-session-id", b"last-event-id", b"content-length", b"host", _FRAMING})
"""What a `Connection` field cannot take away: the session, and the framing, rest on them."""

_MERE_OPTIONS = frozenset({b"keep-alive", b"close", b""})
"""What `Connection` says beside names of fields; the field `Keep-Alive` goes anyway."""

_ASKS = {
    b"accept": "accept",
    b"accept-encoding": "coding",
    b"host": "host",
    b"last-event-id": "cursor",
    b"mcp-protocol-version": "protocol",
    b"mcp-session-id": "session",
    b"origin": "origin",
    b"x-forwarded-for": "forwarded",
    b"x-forwarded-host": "forwarded",
    b"x-forwarded-proto": "forwarded",
}
"""The request fields that say something to the proxy itself, and what."""
_TELLS = {
    b"content-encoding": "coding",
    b"content-type": "type",
    b"mcp-session-id": "session",
    b"x-accel-buffering": "buffering",
}
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
    if b"connection" in names and (named := _named(raw, names)):
        raw = _without(named, raw)
        names = [name.lower() for name, _ in raw]
    fields: Fields = []
    head = RequestHead(fields)
    coded = forwarded = False
    for key, field in zip(names, raw, strict=True):
        if key in _HOP_BY_HOP:
            if key == _FRAMING and b"chunked" in field[1].lower():
                head.chunked = True
            continue
        fields.append(field)
        value = field[1]
        match _ASKS.get(key):
            case None:
                pass
            case "session":
                head.session = value if head.session is None else head.session + b", " + value
            case "host":
                head.host = value
            case "accept":
                head.accepts_stream = head.accepts_stream or b"text/event-stream" in value.lower()
            case "protocol":
                head.protocol = value.decode("latin-1")
            case "coding":
                coded = True
            case "cursor":
                head.cursor = value.strip(b" \t") or None
            case "origin":
                head.origin = value
            case _:
                forwarded = True
    head.session = head.session or None
    if head.accepts_stream:
        _set(fields, b"accept-encoding", b"Accept-Encoding", b"identity", new=not coded)
    if forwarding.host is not None:
        _set(fields, b"host", b"Host", forwarding.host, new=head.host is None)
    if forwarding.append:
        _forwarded(fields, forwarded, peer, head.host, forwarding.scheme)
    if head.chunked:
        fields.append((b"Transfer-Encoding", b"chunked"))
    return head


def response_fields(raw: Fields, replica_header: bytes | None) -> ResponseFields:
    """The fields to send to the client for `raw`; `replica_header` is in lower case, None for none."""
    fields: Fields = []
    head = ResponseFields(fields)
    buffering = False
    for field in raw:
        key = field[0].lower()
        if key in _HOP_BY_HOP:
            if key == b"connection" and (named := _named(raw, [name.lower() for name, _ in raw])):
                return response_fields(_without(named, raw), replica_header)
            continue
        fields.append(field)
        if key == replica_header:
            head.replica = field[1].decode("utf-8", "backslashreplace")[:128]
        value = field[1]
        match _TELLS.get(key):
            case None:
                pass
            case "type":
                kind = value.partition(b";")[0].strip().lower()
                head.is_stream = kind == b"text/event-stream"
                head.is_json = kind == b"application/json"
            case "session":
                head.session = value or None
            case "coding":
                head.encoded = value.strip().lower() not in (b"", b"identity")
            case _:
                buffering = True
    if head.is_stream and not buffering:
        fields.append((b"X-Accel-Buffering", b"no"))
    return head


def _named(raw: Fields, names: list[bytes]) -> set[bytes]:
    """What the `Connection` fields name that goes with them; `names` are those of `raw`, in lower case."""
    named: set[bytes] = set()
    for key, (_, value) in zip(names, raw, strict=True):
        if key == b"connection":
            named |= {option.strip().lower() for option in value.split(b",")}
    return named - _NOT_HOP_BY_HOP - _MERE_OPTIONS


def _without(named: set[bytes], raw: Fields) -> Fields:
    """The fields but for those `named` and for `Connection`."""
    return [field for field in raw if (key := field[0].lower()) not in named and key != b"connection"]


def _set(fields: Fields, key: bytes, name: bytes, value: bytes, *, new: bool) -> None:
    """Give the field `key` one value, in the place of its first line; at the end if it is `new`."""
    if new:
        fields.append((name, value))
        return
    places = [i for i, field in enumerate(fields) if field[0].lower() == key]
    fields[places[0]] = (fields[places[0]][0], value)
    for i in reversed(places[1:]):
        del fields[i]


def _forwarded(
    fields: Fields, forwarded: bool, peer: bytes | None, host: bytes | None, scheme: bytes
) -> None:
    """Append the client to `X-Forwarded-For`; set `-Proto` and `-Host` where nobody has.

    `forwarded`: there is one of these fields.
    """
    keys = [name.lower() for name, _ in fields] if forwarded else ()
    if peer is not None:
        if b"x-forwarded-for" in keys:
            last = max(i for i, key in enumerate(keys) if key == b"x-forwarded-for")
            fields[last] = (fields[last][0], fields[last][1] + b", " + peer)
        else:
            fields.append((b"X-Forwarded-For", peer))
    if b"x-forwarded-proto" not in keys:
        fields.append((b"X-Forwarded-Proto", scheme))
    if host is not None and b"x-forwarded-host" not in keys:
        fields.append((b"X-Forwarded-Host", host))
