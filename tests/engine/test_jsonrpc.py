"""JSON-RPC bodies as MCP carries them: tables of requests and answers, and any bytes at all."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.jsonrpc import (
    MAX_BATCH,
    RequestBody,
    message,
    parse,
    parse_exactly,
    request_key,
    requests,
    session_error_in_body,
)

NOTHING_ASKED = RequestBody((), (), False, None, (), False)

BOMBS = {
    "arrays": b"[" * 100_000 + b"]" * 100_000,
    "open arrays": b"[" * 100_000,
    "objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a deep id": b'{"method":"ping","id":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a long integer": b'{"method":"ping","id":' + b"9" * 100_000 + b"}",
}


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (1, "i:1"),
        ("1", "s:1"),
        ("", "s:"),
        (1.5, "f:1.5"),
        (1.0, "i:1"),
        (-0.0, "i:0"),
        (0, "i:0"),
        (2**53 + 1, "i:9007199254740993"),
        (2**64 - 1, "i:18446744073709551615"),
        (2**64 + 1, "i:18446744073709551616"),
        (float("inf"), "f:inf"),
        (16**400, "i:1" + "0" * 400),
        (True, None),
        (None, None),
        ([1], None),
        ({}, None),
    ],
    ids=repr,
)
def test_request_key(value: object, key: str | None) -> None:
    """A key keeps the type of an id, takes `1.0` for `1`, and exists only for what may be an id."""
    assert request_key(value) == key


@given(st.integers() | st.floats(allow_nan=False) | st.text().filter(lambda text: "Infinity" not in text))
def test_a_key_survives_the_wire(value: float | str) -> None:
    """The key of an id is that of the id read back, by either parser."""
    text = json.dumps({"id": value}).replace("Infinity", "1e999").encode()
    assert request_key(value) == request_key(parse(text)["id"]) == request_key(parse_exactly(text)["id"])


@pytest.mark.parametrize(
    "text", [b"", b"{", b"NaN", b"[-Infinity]", b"\xff", b"'a'", b"[1,]", b"\xef\xbb\xbf{}", *BOMBS.values()]
)
def test_parse_refuses(text: bytes) -> None:
    """What is no JSON, or too deep to be read, is a ValueError and nothing worse."""
    with pytest.raises(ValueError, match=r".*"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "value"), [(b'"\\ud800"', "\ud800"), (b"1e999", float("inf")), (b" null ", None)]
)
def test_parse_accepts(text: bytes, value: object) -> None:
    """What most parsers accept is read, though a strict one refuses it."""
    assert parse(text) == value


REQUESTS: dict[str, tuple[object, dict[str, Any] | None]] = {
    "a request": (
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"name": "x"}},
        {"request_keys": ("i:4",), "request_ids": (4,)},
    ),
    "a text id": (
        {"id": "4", "method": "ping"},
        {"request_keys": ("s:4",), "request_ids": ("4",)},
    ),
    "a fraction": (
        {"id": 1.5, "method": "ping"},
        {"request_keys": ("f:1.5",), "request_ids": (1.5,)},
    ),
    "an integer beyond 64 bits": (
        {"id": 2**70 + 1, "method": "ping"},
        {"request_keys": (f"i:{2**70}",), "request_ids": (2**70 + 1,)},
    ),
    "a lone surrogate": (
        {"id": 4, "method": "tools/call", "params": {"x": "\ud800"}},
        {"request_keys": ("i:4",), "request_ids": (4,)},
    ),
    "a notification": (
        {"method": "notifications/initialized"},
        {},
    ),
    "a null id": ({"id": None, "method": "ping"}, {}),
    "an id that is none": ({"id": {}, "method": "ping"}, {}),
    "an answer": ({"id": 1, "result": {}}, {}),
    "an error": ({"id": 1, "error": {"code": 1}}, {}),
    "initialize": (
        {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
        {
            "request_keys": ("i:0",),
            "request_ids": (0,),
            "is_initialize": True,
            "protocol_version": "2025-11-25",
        },
    ),
    "initialize without parameters": (
        {"id": 0, "method": "initialize"},
        {
            "request_keys": ("i:0",),
            "request_ids": (0,),
            "is_initialize": True,
        },
    ),
    "initialize with odd parameters": (
        {"id": 0, "method": "initialize", "params": {"protocolVersion": 7}},
        {
            "request_keys": ("i:0",),
            "request_ids": (0,),
            "is_initialize": True,
        },
    ),
    "a cancellation": (
        {"method": "notifications/cancelled", "params": {"requestId": 7}},
        {"cancelled": ("i:7",)},
    ),
    "a cancellation of nothing": (
        {"method": "notifications/cancelled", "params": [7]},
        {},
    ),
    "a batch": (
        [{"id": 2, "method": "b"}, {"method": "n"}, {"id": "1", "method": "a"}, {"id": 3, "result": 0}, 5],
        {
            "request_keys": ("i:2", "s:1"),
            "request_ids": (2, "1"),
            "batch": True,
        },
    ),
    "an empty batch": ([], None),
    "an empty object": ({}, None),
    "another object": ({"id": 1, "method": 5}, None),
    "text": ("initialize", None),
    "null": (None, None),
}


@pytest.mark.parametrize(("body", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_requests(body: object, expected: dict[str, Any] | None) -> None:
    """A body tells what it asks for; a body without a JSON-RPC message tells nothing."""
    found = requests(json.dumps(body).encode())
    if expected is None:
        assert found is None
    else:
        want = {name: getattr(NOTHING_ASKED, name) for name in RequestBody.__slots__} | expected
        assert found == RequestBody(**want)


def test_the_type_of_an_id_is_kept() -> None:
    """An id is given back as it was written: `1.0` is no `1`."""
    found = requests(b'[{"id":1.0,"method":"a"},{"id":1,"method":"b"}]')
    assert found is not None
    assert [repr(one) for one in found.request_ids] == ["1.0", "1"]


def test_an_id_too_deep_to_be_read_exactly_is_read_at_all() -> None:
    """Where only the lenient parser can follow, the ids are as it read them."""
    found = requests(b'{"id":1.5,"method":"a","params":' + b"[" * 1010 + b"]" * 1010 + b"}")
    assert found is not None
    assert found.request_ids == (1.5,)


ANSWERS: dict[str, tuple[object, tuple[str, ...]]] = {
    "a result": ({"id": 1, "result": {}}, ("i:1",)),
    "a null result": ({"id": 1, "result": None}, ("i:1",)),
    "an error": ({"id": "a", "error": {"code": -32603, "message": "no"}}, ("s:a",)),
    "an error without id": ({"id": None, "error": {"code": -32700}}, ()),
    "a request": ({"id": 1, "method": "ping"}, ()),
    "a batch": (
        [{"id": 1, "result": 1}, {"id": 2, "error": {}}, {"id": 3, "method": "m"}, 4],
        ("i:1", "i:2"),
    ),
    "an empty object": ({}, ()),
    "a number": (5, ()),
}


@pytest.mark.parametrize(("body", "keys"), ANSWERS.values(), ids=ANSWERS)
def test_what_a_message_answers(body: object, keys: tuple[str, ...]) -> None:
    """An answer names the requests it answers."""
    assert message(body).answers == keys


SESSION_ERRORS: dict[str, tuple[object, bool]] = {
    "TypeScript SDK": ({"id": None, "error": {"code": -32001, "message": "Session not found"}}, True),
    "Python SDK": ({"id": "server-error", "error": {"code": -32600, "message": "Session not found"}}, True),
    "Python SDK, ended": (
        {
            "id": "server-error",
            "error": {"code": -32600, "message": "Not Found: Session has been terminated"},
        },
        True,
    ),
    "tower-mcp": ({"id": 5, "error": {"code": -32005, "message": "?"}}, True),
    "any code, expired": ({"id": 5, "error": {"code": 1, "message": "session EXPIRED"}}, True),
    "any code, invalid": ({"id": 5, "error": {"code": 1, "message": "Invalid or missing session ID"}}, True),
    "any code, none valid": (
        {"id": 5, "error": {"message": "Bad Request: No valid session ID provided"}},
        True,
    ),
    "bare text": ({"error": "Session not found"}, True),
    "bare text, other": ({"error": "rate limited"}, False),
    "in a batch": ([{"id": 1, "result": 1}, {"id": 2, "error": {"code": -32005}}], True),
    "without id, other code": ({"error": {"code": -32603, "message": "Internal error"}}, True),
    "without id, a parse error": ({"id": None, "error": {"code": -32700, "message": "Parse error"}}, False),
    "without id, no request": ({"id": None, "error": {"code": -32600, "message": "Invalid Request"}}, False),
    "a request timeout": ({"id": 5, "error": {"code": -32001, "message": "Request timed out"}}, False),
    "a tool's error": ({"id": 5, "error": {"code": -32602, "message": "Unknown tool"}}, False),
    "odd members": ({"id": 5, "error": {"code": [], "message": {}}}, False),
    "an odd error": ({"id": 5, "error": [1]}, False),
    "a null error": ({"id": 5, "error": None}, False),
    "a result": ({"id": 5, "result": {"message": "Session not found"}}, False),
    "a request": ({"id": 5, "method": "m", "error": "Session not found"}, False),
}


@pytest.mark.parametrize(("body", "expected"), SESSION_ERRORS.values(), ids=SESSION_ERRORS)
def test_session_error_in_body(body: object, expected: bool) -> None:
    """An error that says the session is gone is told from every other error."""
    assert session_error_in_body(json.dumps(body).encode()) is expected


MESSAGES: dict[str, tuple[object, dict[str, Any]]] = {
    "a notification": ({"method": "notifications/progress"}, {"method": "notifications/progress"}),
    "a request": ({"id": 1, "method": "roots/list"}, {"method": "roots/list", "is_request": True}),
    "a ping": ({"id": 1, "method": "ping"}, {"method": "ping", "is_request": True, "is_ping": True}),
    "a ping without id": ({"method": "ping"}, {"method": "ping"}),
    "a ping with a null id": ({"id": None, "method": "ping"}, {"method": "ping"}),
    "an answer": ({"id": 1, "result": {}}, {"answers": ("i:1",)}),
    "an empty object": ({}, {"trivial": True}),
    "null": (None, {"trivial": True}),
    "an empty batch": ([], {}),
    "another object": ({"a": 1}, {}),
    "text": ("", {}),
    "a batch of pings": ([{"id": 1, "method": "ping"}] * 2, {"is_request": True, "is_ping": True}),
    "a mixed batch": (
        [{"id": 1, "method": "ping"}, {"id": 2, "result": 1}],
        {"answers": ("i:2",), "is_request": True},
    ),
}


@pytest.mark.parametrize(("value", "expected"), MESSAGES.values(), ids=MESSAGES)
def test_message(value: object, expected: dict[str, Any]) -> None:
    """A parsed value is told as a message: what it answers, asks, or is."""
    found = message(value)
    nothing = {
        "answers": (),
        "method": None,
        "is_request": False,
        "is_ping": False,
        "session_error": False,
        "trivial": False,
        "word": 0,
    }
    assert {name: getattr(found, name) for name in found.__slots__} == nothing | expected


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
def test_bombs_are_no_bodies(body: bytes) -> None:
    """A body nested or long beyond reason says nothing, and harms nobody."""
    assert (requests(body), session_error_in_body(body)) == (None, False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["id", "method", "params", "result", "error", "code", "message"]), inner
        )
    ),
    max_leaves=20,
)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_no_body_raises(body: bytes) -> None:
    """Whatever a body holds, reading it raises nothing, and each request has one key and one id."""
    found = requests(body)
    assert found is None or [request_key(one) for one in found.request_ids] == list(found.request_keys)
    session_error_in_body(body)


@pytest.mark.parametrize(("size", "known"), [(MAX_BATCH, True), (MAX_BATCH + 1, False)])
def test_a_batch_beyond_reason_has_no_known_ids(size: int, known: bool) -> None:
    """To follow tens of thousands of requests would hold up everybody else."""
    batch = json.dumps([{"jsonrpc": "2.0", "id": n, "method": "m"} for n in range(size)]).encode()
    assert (requests(batch) is not None) == known
