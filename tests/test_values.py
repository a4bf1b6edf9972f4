"""Reading single values of the configuration, and showing them again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config import locations, schema, values
from proxy.config.document import Place, Scalar, Source
from proxy.config.values import Kind, Rejected

FILE = Place(Source.FILE, 1)


def read(kind: Kind, text: str, *, quoted: bool = False, place: Place = FILE) -> object:
    """What `kind` makes of a text."""
    return kind.read(Scalar(text, place, quoted))


def rejection(kind: Kind, text: str, *, quoted: bool = False) -> str:
    """Message and remedy with which `kind` rejects a text."""
    with pytest.raises(Rejected) as raised:
        read(kind, text, quoted=quoted)
    return "; ".join(part for part in (raised.value.message, raised.value.remedy) if part)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300ms", 0.3),
        ("5s", 5.0),
        ("1.5s", 1.5),
        ("10m", 600.0),
        ("1m30s", 90.0),
        ("2h", 7200.0),
        ("1d2h3m4s5ms", 93784.005),
        ("365d", 31_536_000.0),
    ],
)
def test_duration(text: str, seconds: float) -> None:
    """A duration is numbers with units, the largest first."""
    assert read(values.DURATION, text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "'5' has no unit; write 5s"),
        ("0", "'0' has no unit; write 0s"),
        ("0s", "must be longer than 0s"),
        ("-5s", "'-5s' is not a duration; write 300ms, 5s, 1m30s or 2h"),
        ("30s1m", "'30s1m' is not a duration; write 300ms, 5s, 1m30s or 2h"),
        ("1m30", "'1m30' is not a duration; write 300ms, 5s, 1m30s or 2h"),
        ("5 s", "'5 s' is not a duration; write 300ms, 5s, 1m30s or 2h"),
        ("5S", "'5S' is not a duration; write 300ms, 5s, 1m30s or 2h"),
        ("\u0665s", "'\u0665s' is not a duration; write 300ms, 5s, 1m30s or 2h"),
        ("366d", "is longer than a year"),
        ("soon", "'soon' is not a duration; write 300ms, 5s, 1m30s or 2h"),
    ],
)
def test_no_duration(text: str, message: str) -> None:
    """What is not a duration is answered with what to write."""
    assert rejection(values.DURATION, text) == message


def test_zero_duration_where_it_makes_sense() -> None:
    """A drain may take no time."""
    assert read(values.DURATION_OR_ZERO, "0s") == 0.0


@given(st.integers(min_value=0, max_value=31_536_000_000))
def test_duration_reads_what_it_writes(ms: int) -> None:
    """Every duration of whole milliseconds is shown as what it is."""
    assert values.duration_s(values.duration_text(ms / 1000)) == ms / 1000


@given(st.integers(min_value=1, max_value=2**40))
def test_size_reads_what_it_writes(size: int) -> None:
    """Every size is shown as what it is."""
    assert read(values.SIZE, values.size_text(size)) == size


@pytest.mark.parametrize(("text", "size"), [("1B", 1), ("4KiB", 4096), ("256MiB", 2**28), ("2GiB", 2**31)])
def test_size(text: str, size: int) -> None:
    """A size is a whole number with a unit."""
    assert read(values.SIZE, text) == size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("99", "'99' has no unit; write 99B, or use KiB, MiB or GiB"),
        ("1MB", "'MB' is not a unit of size; write 1MiB"),
        ("1kib", "'kib' is not a unit of size; write 1KiB"),
        ("1TiB", "'TiB' is not a unit of size; use B, KiB, MiB or GiB"),
        ("1.5MiB", "'1.5MiB' is not a size; write 4096B, 512KiB, 1MiB or 2GiB"),
        ("0B", "must be from 1B to 1024GiB"),
        ("1025GiB", "must be from 1B to 1024GiB"),
    ],
)
def test_no_size(text: str, message: str) -> None:
    """What is not a size is answered with what to write."""
    assert rejection(values.SIZE, text) == message


@pytest.mark.parametrize(
    ("kind", "text", "quoted", "message"),
    [
        (values.BOOL, "true", True, "is a text; write true or false without quotes"),
        (values.BOOL, "yes", False, "'yes' is not a truth value; write true or false"),
        (values.COUNT, "5", True, "is a text, not a number; write it without quotes"),
        (values.COUNT, "0", False, "must be from 1 to 1000000000"),
        (values.COUNT, "1e3", False, "'1e3' is not a whole number"),
        (values.COUNT, "-1", False, "'-1' is not a whole number"),
        (values.COUNT, "9" * 5000, False, f"{'9' * 40!r}... is not a whole number"),
        (values.HEADER_NAME, "X Pod", False, "'X Pod' is not the name of a header"),
        (values.HEADER_NAME, "no", False, "is a truth value, not a text; put it in quotes"),
        (
            values.UPSTREAM_NAME,
            "-a",
            False,
            "'-a' cannot be a metric label here; "
            "use up to 63 letters, digits, - _ and . and begin with a letter or digit",
        ),
        (values.UPSTREAM_NAME, "12", False, "is a number, not a text; put it in quotes"),
        (values.UPSTREAM_NAME, "2026-01-01", False, "is a date, not a text; put it in quotes"),
        (schema.MODE, "Observe", False, "'Observe' is not a mode; use observe, annotate or enforce"),
        (schema.MODE, "a@b", False, "this value is not a mode; use observe, annotate or enforce"),
        (schema.MODE, "\x1b[31m", False, r"'\x1b[31m' is not a mode; use observe, annotate or enforce"),
    ],
)
def test_wrong_type(kind: Kind, text: str, quoted: bool, message: str) -> None:
    """A value of another type is refused rather than converted, and shown short and escaped."""
    assert rejection(kind, text, quoted=quoted) == message


def test_quotes_make_a_text() -> None:
    """A number in quotes is a name, and so is one from a variable, which cannot be quoted."""
    assert read(values.UPSTREAM_NAME, "12", quoted=True) == "12"
    assert read(values.UPSTREAM_NAME, "12", place=Place(Source.ENV, name="X")) == "12"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("HTTP://Example.COM/", "http://example.com"),
        ("https://h:443", "https://h"),
        ("http://[::1]:9000", "http://[::1]:9000"),
        ("unix:/run/mcp@1.sock", "unix:/run/mcp@1.sock"),
    ],
)
def test_url(text: str, url: str) -> None:
    """An upstream's URL is kept in its shortest form."""
    assert read(locations.URL, text) == url


@pytest.mark.parametrize(
    "text",
    ["http:h:1", "ftp://h", "h:1", "http://", "http://h:0", "http://h:x", "http://h/p", "http://h?q",
     "unix:x", "http://u@h", "http://[::1", "http://h h", "-", ""],
)  # fmt: skip
def test_no_url(text: str) -> None:
    """What no request can be sent to is refused."""
    assert rejection(locations.URL, text)


@pytest.mark.parametrize(
    ("text", "path"), [("/", "/"), ("/mcp/", "/mcp"), ("/a/b", "/a/b"), ("/caf%C3%A9", "/caf%C3%A9")]
)
def test_match_path(text: str, path: str) -> None:
    """A path is kept as on the wire, without a trailing slash."""
    assert read(locations.MATCH_PATH, text) == path


@pytest.mark.parametrize("text", ["mcp", "/a//b", "/a?b", "/a#b", "/caf\u00e9", "/%zz", "/a b", "//"])
def test_no_match_path(text: str) -> None:
    """What no request line can carry is refused."""
    assert rejection(locations.MATCH_PATH, text)


@pytest.mark.parametrize(
    ("text", "host"),
    [("MCP.Example.", "mcp.example"), ("h:81", "h:81"), ("[::1]", "[::1]"), ("[::1]:81", "[::1]:81")],
)
def test_match_host(text: str, host: str) -> None:
    """A host is compared in lower case."""
    assert read(locations.MATCH_HOST, text) == host


@pytest.mark.parametrize("text", ["*.example", "http://h", "h:", "a b", "::1"])
def test_no_match_host(text: str) -> None:
    """What no Host header can be is refused."""
    assert rejection(locations.MATCH_HOST, text)


@pytest.mark.parametrize("text", ["auto", "unix:/run/a.sock", "127.0.0.1:0", "[::1]:9"])
def test_admin(text: str) -> None:
    """An admin address stays the text it is."""
    assert read(locations.ADMIN, text) == text


@pytest.mark.parametrize("text", ["unix:a", "unix:/" + "a" * 107, "on", ":1", "127.0.0.1"])
def test_no_admin(text: str) -> None:
    """What nothing can listen on is refused."""
    assert rejection(locations.ADMIN, text)
