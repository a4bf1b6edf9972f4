"""The digest of a message: one 64-bit word by which two payloads are compared, and what the message is.

Laws: equal messages have equal words in every process, however a server serialises them on replay: key
order, white space, string escapes, explicit nulls and `1.0` for `1` change nothing. Two messages that
differ share a word by chance only, once in 2^62. `UNKNOWN` compares with nothing. A payload over
`LARGE` is not taken apart: its word is that of its bytes, which can show it the same, never different.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import orjson
import xxhash

from proxy.engine.jsonrpc import Message, message, parse, request_key

__all__ = [
    "LARGE",
    "PRIMING",
    "UNKNOWN",
    "Message",
    "digest",
    "digest_asking",
    "id_word",
    "oversized_answers",
    "read",
    "same",
]

UNKNOWN = 0  # too large, not JSON, or not readable here
PRIMING = 1  # an id without a message; no message has this word

# Part of the format of stored ledgers: a change makes every stored word another one.
_SEED = 0x666F726B77617463
_KNOWN = 2  # a bit that every word has, so that none is `UNKNOWN` or `PRIMING`
_RAW = 1 << 63  # a bit of the words that are of bytes rather than of messages

LARGE = 32 * 1024
"""Above it the parse and its canonical text cost more than the relay itself (60 µs at 64 KiB)."""
_HEAD_SIZE = 4096
_TAIL_SIZE = 256
_SOON = 256
"""Within so many bytes of a request's text stands its `method`, as everybody writes it."""

# How the canonical text shows an integral float: a number stands before one of `,]}` or ends the text.
_SMALL_FLOAT = re.compile(rb"\.0(?:[,\]}]|\Z)")
_LARGE_FLOAT = re.compile(rb"e\+1[6-9](?:[,\]}]|\Z)")
# Before each, a part of it is looked for, which is ten times cheaper.
_PLUS = 0x2B
_INT_RANGE = (-(2**63), 2**64)  # what `parse` reads as an integer, if it is written as one


def read(payload: bytes) -> Message | None:
    """Return what a payload is, with its digest, parsed once; None if it is not JSON."""
    if len(payload) > LARGE:
        return _read_large(payload)
    try:
        value = parse(payload)
    except ValueError:
        return None
    found = message(value)
    found.word = _word(value)
    return found


def digest_asking(payload: bytes) -> int:
    """As `digest`, for a small payload that is one request or notification and soon says so.

    `UNKNOWN` for any other, of which most are not even parsed.
    """
    if payload.find(b'"method"', 0, _SOON) < 0:
        return UNKNOWN
    try:
        value = parse(payload)
    except ValueError:
        return UNKNOWN
    if type(value) is not dict or "method" not in value or "result" in value or "error" in value:
        return UNKNOWN
    return _word(value)


def _read_large(payload: bytes) -> Message | None:
    answers = oversized_answers(payload[:_HEAD_SIZE], payload[-_TAIL_SIZE:])
    if answers is None:
        try:
            found = message(parse(payload))
        except ValueError:
            return None
    else:
        found = Message(answers)
    found.word = _raw_word(payload)
    return found


def digest(payload: bytes | None) -> int:
    """Return the word of a payload, at least 2; `UNKNOWN` for None and for what is not JSON."""
    if payload is None:
        return UNKNOWN
    if len(payload) > LARGE:
        return _raw_word(payload)
    try:
        return _word(parse(payload))
    except ValueError:
        return UNKNOWN


def same(a: int, b: int) -> bool | None:
    """Whether two words stand for the same message; None where that cannot be told."""
    if a == UNKNOWN or b == UNKNOWN:
        return None
    if a == b:
        return True
    return None if (a | b) & _RAW else False


def _raw_word(payload: bytes) -> int:
    return xxhash.xxh3_64_intdigest(payload, _SEED) | _KNOWN | _RAW


def id_word(raw: bytes) -> int:
    """Return the word of an event id, white space around it ignored. Any 64-bit word may come."""
    return xxhash.xxh3_64_intdigest(raw.strip(b" \t"), _SEED)


def _word(value: object) -> int:
    """Return the word of a parsed message; `UNKNOWN` if it is nested too deeply to be walked."""
    try:
        text = orjson.dumps(value, None, orjson.OPT_SORT_KEYS)
        if (
            text.find(b":null") >= 0
            or (text.find(b".0") >= 0 and _SMALL_FLOAT.search(text) is not None)
            or (_PLUS in text and _LARGE_FLOAT.search(text) is not None)
        ):
            text = orjson.dumps(_plain(value), None, orjson.OPT_SORT_KEYS)
    except TypeError:
        # A lone surrogate, an integer beyond 64 bits, more than 254 levels: what causes it is part of the
        # message, so its equals come here too.
        try:
            text = json.dumps(_plain(value), sort_keys=True, separators=(",", ":")).encode()
        except RecursionError:
            return UNKNOWN
    return (xxhash.xxh3_64_intdigest(text, _SEED) | _KNOWN) & ~_RAW


def _plain(value: Any) -> Any:
    """Return the value without null members; its numbers as integers where 64 bits hold them, else floats."""
    kind = type(value)
    if kind is dict:
        return {name: _plain(member) for name, member in value.items() if member is not None}
    if kind is list:
        return [_plain(member) for member in value]
    if kind is float and value.is_integer() and _INT_RANGE[0] <= value < _INT_RANGE[1]:
        return int(value)
    if kind is int and not _INT_RANGE[0] <= value < _INT_RANGE[1]:
        with suppress(OverflowError):
            return float(value)
    return value


_MEMBER = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*:\s*')
_NEXT = re.compile(r"\s*([,}])")
_ID_AT_END = re.compile(
    r',\s*"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z'
)
_decode = json.JSONDecoder().raw_decode


def oversized_answers(head: bytes, tail: bytes) -> tuple[str, ...] | None:
    """Return the key of the request that a payload too large to keep answers, read from its two ends.

    `()` if it is visibly a request or notification, None if its ends do not tell.
    """
    text = head.decode("utf-8", "replace")
    found = _top_level(text)
    if found is None:
        return None
    names, members = found
    if "method" in names or "params" in names:
        return ()
    if "result" not in names and "error" not in names:
        return None
    if "id" in members:
        key = request_key(members["id"])
        return () if key is None else (key,)
    at_end = _ID_AT_END.search(tail.decode("utf-8", "replace"))
    if at_end is None:
        return None
    try:
        key = request_key(json.loads(at_end[1]))
    except ValueError:
        return None
    return None if key is None else (key,)


def _top_level(text: str) -> tuple[list[str], dict[str, Any]] | None:
    """Return the names of the object a cut text begins, and those members whose value it holds whole.

    None if it does not begin an object. The last name may be one whose value was cut.
    """
    begins = re.match(r"\s*\{", text)
    if begins is None:
        return None
    names: list[str] = []
    members: dict[str, Any] = {}
    at = begins.end()
    while name := _MEMBER.match(text, at):
        try:
            names.append(json.loads(name[1]))
            value, at = _decode(text, name.end())
        except (ValueError, RecursionError):
            break
        follows = _NEXT.match(text, at)
        if follows is None:
            break  # the text may have been cut inside a number
        members[names[-1]] = value
        at = follows.end()
    return names, members
