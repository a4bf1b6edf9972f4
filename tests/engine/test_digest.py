"""The digest of a message: what must not change it, what must, and the ends of a payload too large."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from proxy.engine.digest import (
    LARGE,
    PRIMING,
    UNKNOWN,
    digest,
    digest_asking,
    id_word,
    oversized_answers,
    read,
    same,
)
from proxy.engine.sse import HEAD_SIZE, TAIL_SIZE

SAME: dict[str, tuple[str, str]] = {
    "key order": ('{"a":1,"b":{"c":2,"d":3}}', '{"b":{"d":3,"c":2},"a":1}'),
    "white space": ('{"a":[1,2]}', ' {\t"a" :\r\n[ 1 , 2 ] } '),
    "escapes": ('{"ä/\\"":"€\\n😀"}', '{"\\u00e4\\/\\u0022":"\\u20AC\\u000a\\ud83d\\ude00"}'),
    "a null member": ('{"method":"m"}', '{"method":"m","params":null}'),
    "null members inside": ('{"a":[{}],"b":{"c":1}}', '{"a":[{"x":null}],"b":{"c":1,"d":null}}'),
    "a null in odd spacing": ('{"method":"m"}', '{"params" : \n null,"method":"m"}'),
    "an integral float": ('{"progress":1}', '{"progress":1.0}'),
    "a bare float": ("1", "1.0"),
    "a float in a list": ("[1,2,-3]", "[1.0,2.00,-3e0]"),
    "an exponent": ("[100000]", "[1e5]"),
    "a large float": ("[1700000000000000000]", "[1.7e18]"),
    "a large float without a point": ("[100000000000000000]", "[1E+17]"),
    "a bare large float": ("10000000000000000", "1e16"),
    "the largest of 64 bits": ("[9223372036854775808]", "[9.223372036854775808e18]"),
    "beyond 64 bits": ("[100000000000000000000000]", "[1e23]"),
    "minus zero": ("[0]", "[-0.0]"),
    "an explicit plus in text": ('{"a":"+","b":2}', '{"b":2.0,"a":"\\u002b"}'),
    "lone surrogates": ('{"a":"\\ud800","b":1.0}', '{"b":1,"a":"\\uD800","c":null}'),
    "deep nesting": (
        '{"a":1,"b":' + "[" * 300 + "]" * 300 + "}",
        '{"b":' + "[ " * 300 + "]" * 300 + ',"a":1.0}',
    ),
    "beyond 64 bits, beside a surrogate": (
        '["\\ud800",18446744073709551616]',
        '["\\ud800",1.8446744073709551616e19]',
    ),
    "beyond every float": ("[" + "9" * 400 + "]", "[ " + "9" * 400 + "]"),
    "a duplicate key": ('{"a":2}', '{"a":1,"a":2}'),
}

DIFFERENT: dict[str, tuple[str, str]] = {
    "another value": ('{"a":1}', '{"a":2}'),
    "another key": ('{"a":1}', '{"b":1}'),
    "another type": ('{"a":1}', '{"a":"1"}'),
    "true and one": ('{"a":1}', '{"a":true}'),
    "list order": ("[1,2]", "[2,1]"),
    "a null element": ("[1]", "[1,null]"),
    "a fraction": ("[1]", "[1.5]"),
    "text that looks like a float": ('["1.0"]', '["1"]'),
    "the text null": ('{"a":"null"}', '{"a":null}'),
    "the text of a null member": ('{"a":":null"}', '{"a":":"}'),
    "an empty list and object": ("[]", "{}"),
    "null and an empty object": ("null", "{}"),
    "neighbours in 64 bits": ("9007199254740993", "9007199254740992"),
    "lone surrogates": ('"\\ud800"', '"\\ud801"'),
    "case": ('{"a":"x"}', '{"a":"X"}'),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_equal_messages_have_equal_words(one: str, other: str) -> None:
    """A message keeps its word however a server writes it."""
    words = digest(one.encode()), digest(other.encode())
    assert words[0] == words[1] > max(UNKNOWN, PRIMING)
    assert same(*words) is True


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_different_messages_have_different_words(one: str, other: str) -> None:
    """Messages that differ have words that differ."""
    assert same(digest(one.encode()), digest(other.encode())) is False


@pytest.mark.parametrize(
    "payload",
    [None, b"", b"{", b"hello", b"NaN", b"\xff", b"[" * 5000, b"[" * 5000 + b"]" * 5000, b"9" * 10_000],
    ids=lambda payload: repr(payload)[:12],
)
def test_what_cannot_be_read_is_unknown(payload: bytes | None) -> None:
    """No payload, no JSON, and nesting beyond reason have no word, and compare with nothing."""
    assert digest(payload) == UNKNOWN
    assert payload is None or read(payload) is None
    assert same(UNKNOWN, digest(b"{}")) is same(digest(b"{}"), UNKNOWN) is same(UNKNOWN, UNKNOWN) is None


def test_what_can_be_read_but_not_walked_is_unknown() -> None:
    """A payload the parser just follows has no word where the walk cannot follow; its facts are read."""
    payload = b'{"id":1,"result":' + b"[" * 1010 + b"]" * 1010 + b"}"
    found = read(payload)
    assert found is not None
    assert (found.word, found.answers, digest(payload)) == (UNKNOWN, ("i:1",), UNKNOWN)


def test_words_are_equal_across_processes() -> None:
    """Another process, with another hash seed, finds the same words."""
    script = (
        "from proxy.engine.digest import digest, id_word; print(digest(b'{\"b\":1,\"a\":2}'), id_word(b'7'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": "."},
        capture_output=True,
        check=True,
    )
    assert done.stdout.split() == [b"%d" % digest(b'{"a":2,"b":1}'), b"%d" % id_word(b"7")]


@pytest.mark.parametrize(
    ("one", "other", "equal"), [(b"7", b" 7\t", True), (b"7", b"07", False), (b"", b" ", True)]
)
def test_id_word(one: bytes, other: bytes, equal: bool) -> None:
    """Ids are compared with the blanks around them trimmed, and by nothing else."""
    assert (id_word(one) == id_word(other)) is equal


def test_read_gives_word_and_facts() -> None:
    """One reading gives the digest and what the message is."""
    payload = b'{"jsonrpc":"2.0","id":"a","error":{"code":-32001,"message":"Session not found"}}'
    found = read(payload)
    assert found is not None
    assert (found.word, found.answers, found.session_error) == (digest(payload), ("s:a",), True)
    blank = read(b" {} ")
    assert blank is not None
    assert (blank.trivial, blank.word) == (True, digest(b"{}"))


TEXT = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ["1.0", "null", ":null", "e+17", "2.0,", "\ud800"]
)
NUMBERS = (
    st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-9, 9).map(float)
)
VALUES = st.recursive(
    st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=16,
)


def rewritten(value: Any, chance: random.Random) -> Any:
    """Return an equal value: keys in another order, null members added, integers and floats exchanged."""
    if isinstance(value, dict):
        members = [(name, rewritten(member, chance)) for name, member in value.items()]
        chance.shuffle(members)
        absent = {} if chance.random() < 0.5 else {"\x00absent": None}
        return absent | dict(members)
    if isinstance(value, list):
        return [rewritten(member, chance) for member in value]
    if (
        isinstance(value, int)
        and not isinstance(value, bool)
        and float(value) == value
        and chance.random() < 0.5
    ):
        return float(value)
    if isinstance(value, float) and value.is_integer() and chance.random() < 0.5:
        return int(value)
    return value


@given(VALUES, st.randoms(use_true_random=False), st.booleans(), st.sampled_from([None, 1, "\t"]))
@example([1e17], random.Random(0), True, None)
@example([-0.0], random.Random(0), True, None)
def test_a_word_survives_any_server(value: Any, chance: random.Random, ascii_only: bool, indent: Any) -> None:
    """However a value is written again, its word stays."""
    first = json.dumps(value).encode()
    again = json.dumps(rewritten(value, chance), ensure_ascii=ascii_only, indent=indent)
    assert digest(first) == digest(again.encode("utf-8", "surrogatepass")) >= 2


def plain(value: Any) -> Any:
    """Return what of a value makes it another message: types kept apart, numbers as they compare."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items() if member is not None}
    if isinstance(value, list):
        return [plain(member) for member in value]
    return ("bool", value) if isinstance(value, bool) else value


@given(VALUES, VALUES)
def test_other_messages_have_other_words(one: Any, other: Any) -> None:
    """Values that differ have words that differ."""
    assume(plain(one) != plain(other))
    assert digest(json.dumps(one).encode()) != digest(json.dumps(other).encode())


@given(st.binary())
def test_no_payload_raises(payload: bytes) -> None:
    """Whatever a payload holds, it has a word or none."""
    found = read(payload)
    assert digest(payload) == (UNKNOWN if found is None else found.word)
    oversized_answers(payload, payload)


BIG = '{"content":[{"type":"text","text":"' + "x" * 70_000 + '"}]}'
OVERSIZED: dict[str, tuple[str, tuple[str, ...] | None]] = {
    "id first": ('{"jsonrpc":"2.0","id":4,"result":' + BIG + "}", ("i:4",)),
    "id first, text": ('{ "id" : "4\\u0041\\"" , "result" : ' + BIG + "}", ('s:4A"',)),
    "id last": ('{"jsonrpc":"2.0","result":' + BIG + ',"id":4}', ("i:4",)),
    "id last but one": ('{"result":' + BIG + ' , "id" : "a-1" , "jsonrpc" : "2.0" }\n', ("s:a-1",)),
    "id and version last": ('{"result":' + BIG + ',"jsonrpc":"2.0","id":-7}', ("i:-7",)),
    "id last, a float": ('{"result":' + BIG + ',"id":1.5}', ("f:1.5",)),
    "id last, broken": ('{"result":' + BIG + ',"id":1.5.5}', None),
    "id last, null": ('{"result":' + BIG + ',"id":null}', None),
    "id null": ('{"id":null,"error":{"message":"' + BIG[:1] + "x" * 70_000 + '"}}', ()),
    "an id of the result": ('{"jsonrpc":"2.0","result":{"x":"' + "x" * 70_000 + '","id":4}}', None),
    "an id in a text": ('{"jsonrpc":"2.0","result":"' + "x" * 70_000 + ',\\"id\\":4}"}', None),
    "no id in sight": ('{"result":' + BIG + ',"id":4,"_meta":{"a":1}}', None),
    "an error": ('{"jsonrpc":"2.0","id":4,"error":{"code":1,"message":"' + "x" * 70_000 + '"}}', ("i:4",)),
    "a small error after the id": ('{"id":4,"error":{"code":1},"x":"' + "x" * 70_000 + '"}', ("i:4",)),
    "a notification": ('{"jsonrpc":"2.0","method":"notifications/message","params":' + BIG + "}", ()),
    "a request": ('{"jsonrpc":"2.0","id":4,"method":"sampling/createMessage","params":' + BIG + "}", ()),
    "a request, method last": ('{"id":4,"params":' + BIG + ',"method":"x"}', ()),
    "a long id": ('{"id":"' + "i" * 70_000 + '","result":1}', None),
    "an unknown member": ('{"_meta":"' + "x" * 70_000 + '","id":4,"result":1}', None),
    "a batch": ('[{"jsonrpc":"2.0","id":4,"result":' + BIG + "}]", None),
    "text": ('"' + "x" * 70_000 + '"', None),
    "deep": ('{"id":4,"result":' + "[" * 70_000, ("i:4",)),
    "deep before the id": ('{"_meta":' + "[" * 70_000, None),
    "no JSON": ("x" * 70_000, None),
    "a broken name": ('{"\\q":1,"id":4,"result":' + BIG + "}", None),
    "no name": ("{" + " " * 70_000 + "}", None),
    "members without a comma": ('{"id":4 "result":' + BIG + "}", None),
}


@pytest.mark.parametrize(("payload", "expected"), OVERSIZED.values(), ids=OVERSIZED)
def test_oversized_answers(payload: str, expected: tuple[str, ...] | None) -> None:
    """What a payload too large to keep answers is read from its ends, or not told."""
    raw = payload.encode()
    assert oversized_answers(raw[:HEAD_SIZE], raw[-TAIL_SIZE:]) == expected


@pytest.mark.parametrize(
    "payload",
    [b'{"jsonrpc":"2.0","id":1234567,"result":{"a":1}}', b'{"result":{},"id":1234567,"jsonrpc":"2.0"}'],
    ids=["id first", "id after the result"],
)
@pytest.mark.parametrize("upto", range(1, 40))
def test_a_head_cut_anywhere_tells_no_wrong_id(payload: bytes, upto: int) -> None:
    """An id of which only a part is at hand is not taken for the whole."""
    assert oversized_answers(payload[:upto], b"x") in (None, ("i:1234567",))


def _large(text: str, id: str = "7") -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"result":{"text":"%b"}}' % (id.encode(), text.encode() * LARGE)


def test_a_large_payload_is_known_by_its_bytes() -> None:
    """Above the limit equal bytes are the same message; other bytes may still be it, written otherwise."""
    first, again, other = digest(_large("a")), digest(_large("a")), digest(_large("b"))
    assert same(first, again) is True
    assert same(first, other) is None
    assert same(first, digest(b'{"jsonrpc":"2.0"}')) is None


def test_a_large_payload_still_says_what_it_answers() -> None:
    """The id of a large response is read from its ends, or by a whole parse where they do not tell."""
    found = read(_large("a"))
    assert found is not None
    assert found.answers == ("i:7",)
    assert found.word == digest(_large("a"))
    hidden = b'{"result":{"text":"%b"},"id":"x","extra":"%b"}' % (b"a" * LARGE, b"b" * LARGE)
    found = read(hidden)
    assert found is not None
    assert found.answers == ("s:x",)
    assert read(b"[" + b" " * LARGE * 2) is None


@pytest.mark.parametrize(
    ("payload", "asks"),
    [
        (b'{"jsonrpc":"2.0","method":"note","params":{"n":1}}', True),
        (b'{"params":{"n":1},"method":"note"}', True),
        (b'{"jsonrpc":"2.0","id":1,"result":{"method":"note"}}', False),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1},"method":"note"}', False),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', False),
        (b'{"params":"' + b"x" * 256 + b'","method":"note"}', False),
        (b'{"method":"note"', False),
        (b'["method"]', False),
    ],
    ids=["request", "method last", "answer", "both", "plain answer", "late", "broken", "no object"],
)
def test_the_digest_of_what_asks(payload: bytes, asks: bool) -> None:
    """It is the digest, of a request or notification that says so early; of all else nothing is said."""
    assert digest_asking(payload) == (digest(payload) if asks else UNKNOWN)
