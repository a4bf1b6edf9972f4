"""The JSON-RPC reader and the digest against Python's own `json`: the same ids, methods, answers and equalities."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from proxy.engine.digest import (
    LARGE,
    PRIMING,
    UNKNOWN,
    digest,
    digest_asking,
    oversized_answers,
    read,
)
from proxy.engine.digest import same as same_words
from proxy.engine.jsonrpc import MAX_BATCH, RequestBody, requests, session_error_in_body
from proxy.engine.sse import HEAD_SIZE, TAIL_SIZE
from tests.fuzz.target import Target, bounded, chance, must, same

DEEP = 90
"""Levels that every parser follows; beyond it the reader may say that it does not know."""
WHOLE = (-(2**63), 2**64)
"""Integers that are read without loss."""


class Unreadable(ValueError):
    """Not JSON, or of a kind about which parsers are free to differ."""


def _constant(name: str) -> float:
    raise Unreadable(name)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise Unreadable(text)
    return value


def _unequal(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise Unreadable("duplicate names")
    return dict(pairs)


def loads(text: bytes) -> Any:
    """The value, by Python's parser. Raises Unreadable, also for duplicate names and what nests deeply."""
    try:
        value = json.loads(
            text.decode(), object_pairs_hook=_unequal, parse_constant=_constant, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    if depth(value) > DEEP:
        raise Unreadable("nested deeply")
    return value


def depth(value: Any) -> int:
    """How many levels a value has."""
    level, here = 0, [value]
    while here:
        level += 1
        here = [
            below
            for one in here
            if isinstance(one, dict | list)
            for below in (one.values() if isinstance(one, dict) else one)
        ]
    return level


def number(value: float) -> object:
    """A number as one that its other spellings equal; integers of more than 64 bits are floats to most parsers."""
    if isinstance(value, int) and not WHOLE[0] <= value < WHOLE[1]:
        try:
            value = float(value)
        except OverflowError:
            return value
    if isinstance(value, float) and value.is_integer() and WHOLE[0] <= value < WHOLE[1]:
        return int(value)
    return value


def canonical(value: Any) -> object:
    """A value such that two messages are the same exactly if these are."""
    match value:
        case dict():
            return {name: canonical(member) for name, member in value.items() if member is not None}
        case list():
            return [canonical(member) for member in value]
        case bool() | None | str():
            return ("word", value)
        case _:
            return ("number", number(value))


def key(value: Any) -> str | None:
    """The key of an id."""
    if isinstance(value, str):
        return f"s:{value}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    found = number(value)
    if isinstance(found, int) and not WHOLE[0] <= found < WHOLE[1]:
        return f"i:{found:x}"
    assert isinstance(found, int | float)
    if isinstance(found, float) and found.is_integer():
        return f"i:{int(found)}"
    return f"i:{found}" if isinstance(found, int) else f"f:{found!r}"


def members(value: Any) -> list[dict[str, Any]]:
    """The objects of a message or batch."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def answered(value: Any) -> tuple[str, ...]:
    """The keys a message answers."""
    keys = (
        key(one.get("id"))
        for one in members(value)
        if not isinstance(one.get("method"), str) and ("result" in one or one.get("error") is not None)
    )
    return tuple(found for found in keys if found is not None)


def asked(value: Any) -> list[tuple[str, Any]]:
    """The keys and ids of a body's requests, in order."""
    wanted = [one.get("id") for one in members(value) if isinstance(one.get("method"), str)]
    return [(found, id) for id in wanted if (found := key(id)) is not None]


def spelled(value: Any, draw: random.Random, level: int = 0) -> str:
    """The value written another way: order, white space, escapes, explicit nulls, `1.0` for `1`."""
    blank = draw.choice(["", " ", "\n", "\t "])
    if isinstance(value, dict):
        pairs = [
            (name, member) for name, member in value.items() if member is not None or draw.random() < 0.5
        ]
        if draw.random() < 0.3 and "fuzz-null" not in value:
            pairs.append(("fuzz-null", None))
        draw.shuffle(pairs)
        inner = f",{blank}".join(
            f"{spelled(n, draw)}{blank}:{blank}{spelled(m, draw, level + 1)}" for n, m in pairs
        )
        return f"{{{blank}{inner}{blank}}}"
    if isinstance(value, list):
        return f"[{blank}" + f"{blank},".join(spelled(one, draw, level + 1) for one in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=draw.random() < 0.5)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 and draw.random() < 0.5:
        return draw.choice([f"{value}.0", f"{value}e0", f"{value}.00"])
    return json.dumps(value)


def changed(value: Any, draw: random.Random) -> Any:
    """The value with one thing in it changed."""
    if isinstance(value, dict) and value:
        name = draw.choice(list(value))
        if draw.random() < 0.2:
            return {n: m for n, m in value.items() if n != name}
        return {**value, name: changed(value[name], draw)}
    if isinstance(value, list) and value:
        at = draw.randrange(len(value))
        return [*value[:at], changed(value[at], draw), *value[at + 1 :]]
    if isinstance(value, str):
        return value + "~"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
        return value + 1
    return "changed"


def digests(text: bytes, value: Any) -> None:
    """Equal messages share a word, different ones do not; a large payload can only be shown the same."""
    draw = chance(text)
    word = digest(text)
    for _ in range(3):
        other = spelled(value, draw).encode("utf-8", "surrogatepass")
        if len(text) <= LARGE and len(other) <= LARGE:
            same("the word of the same message", digest(other), word)
        different = json.dumps(changed(value, draw)).encode()
        if canonical(loads(different)) != canonical(value):
            must(same_words(word, digest(different)) is not True, "different words", text, different)
            if max(len(text), len(different)) <= LARGE:
                must(same_words(word, digest(different)) is False, "told apart", text, different)


def body_of(text: bytes, value: Any, found: RequestBody | None) -> None:
    """What the body of a POST asks for."""
    is_message = [
        one
        for one in members(value)
        if isinstance(one.get("method"), str) or "result" in one or "error" in one
    ]
    must((found is None) == (not 0 < len(is_message) <= MAX_BATCH), "a body with a message", text, found)
    if found is None:
        return
    pairs = asked(value)
    same("keys", found.request_keys, tuple(k for k, _ in pairs))
    same("ids", [(type(id), id) for id in found.request_ids], [(type(id), id) for _, id in pairs])
    names = {one["method"] for one in is_message if isinstance(one.get("method"), str)}
    same("initialize", found.is_initialize, "initialize" in names)
    same("batch", found.batch, isinstance(value, list))


def plainly_an_answer(value: dict[str, Any]) -> bool:
    """Whether it is a response as JSON-RPC has it: what is half one may be taken for either by its ends."""
    return not {"method", "params"} & value.keys() and ("result" in value or value.get("error") is not None)


def compared(text: bytes, value: Any) -> None:
    """All that is read of a text which both parsers take."""
    message = read(text)
    if message is None:
        must(False, "JSON is read", text)
        return
    same("answers", message.answers, answered(value) if len(text) <= LARGE else message.answers)
    same("the word that was read", message.word, digest(text))
    method = value.get("method") if isinstance(value, dict) else None
    if len(text) <= LARGE:
        same("method", message.method, method if isinstance(method, str) else None)
        same("is a request", message.is_request, bool(asked(value)))
        early = b'"method"' in text[:256]  # later, or written with escapes, it takes the longer way
        plain = (
            early and isinstance(value, dict) and "method" in value and not {"result", "error"} & value.keys()
        )
        same("word of one that asks", digest_asking(text), digest(text) if plain else UNKNOWN)
    ends = oversized_answers(text[:HEAD_SIZE], text[-TAIL_SIZE:])
    if ends is not None and isinstance(value, dict) and plainly_an_answer(value):
        same("answers by the two ends", ends, answered(value))
    body_of(text, value, requests(text))
    digests(text, value)


def check(text: bytes) -> None:
    """Any bytes are read without an error and in bounded time; JSON as the other parser reads it."""
    large = text + b" " * (LARGE - len(text) + 1) if chance(text).random() < 0.1 else text
    with bounded("reading a message"):
        message = read(large)
        word = digest(large)
        requests(large)
        session_error_in_body(large)
        digest_asking(large)
        oversized_answers(large[:HEAD_SIZE], large[-TAIL_SIZE:])
    must(word == UNKNOWN or word > PRIMING, "the range of words", word)
    must(message is None or message.word in (word, UNKNOWN), "one word for one payload", message, word)
    try:
        value = loads(large)
    except Unreadable:
        return
    compared(large, value)


TARGET = Target(
    check,
    [
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}',
        *b'"id": "method":"initialize" "method":"notifications/cancelled" "params":{"requestId":7}'.split(),
        *b'"protocolVersion":"2025-06-18" "method":"ping" {"result":{"id":5}} "code":-32005 "id":1.5'.split(),
        *b'"result":null "error":null "error":"x" "a":1,"a":2 [[[[[[[[[[[[[[[[ {"a":{"a":{"a": [] {} ,'.split(),
        *b"null true NaN Infinity -0 -0.0 1.0 1e400 1e16 1e22 0.1 1E5 1.5e-7 9007199254740993".split(),
        *b"18446744073709551615 18446744073709551616 -9223372036854775809 123456789012345678901234567890".split(),
        *rb'"\ud800" "\u0000" "\u00e9"'.split(),
        *b"\xed\xa0\x80 \xff \xe2\x80\xa8 \xc3\xa9".split(),
        b'"message":"no valid session"',
        b" ",
    ],
    largest=8192,
)
