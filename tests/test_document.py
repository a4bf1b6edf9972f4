"""Files as trees: positions, and what is refused before anything is read from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from proxy.config import document
from proxy.config.document import MAX_BYTES, Array, Place, Scalar, Source, Table, read_file, read_text
from proxy.errors import ConfigError


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def _parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of the parsers that may be installed."""
    monkeypatch.setattr(document, "LOADER", getattr(yaml, request.param))


def refusal(text: str) -> str:
    """The one line that `text` is refused with."""
    with pytest.raises(ConfigError) as raised:
        read_text(text, file="f")
    (line,) = raised.value.lines()
    return line


@pytest.mark.usefixtures("_parser")
def test_everything_knows_its_line() -> None:
    """Keys, values and entries carry the line they stand on, and scalars stay text."""
    root, duplicates = read_text("a: no\nb:\n  - 'null'\n  - 0x10\nc: {d: }\n", file="f")

    def at(line: int) -> Place:
        return Place(Source.FILE, line)

    assert not duplicates
    assert root == Table(
        at(1),
        {
            "a": Scalar("no", at(1)),
            "b": Array(at(3), [Scalar("null", at(3), quoted=True), Scalar("0x10", at(4))]),
            "c": Table(at(5), {"d": Scalar("", at(5))}, {"d": at(5)}),
        },
        {"a": at(1), "b": at(2), "c": at(5)},
    )


@pytest.mark.usefixtures("_parser")
def test_null_is_only_without_quotes() -> None:
    """`null`, `~` and nothing are null; the same in quotes are texts."""
    root, _ = read_text("a: null\nb: ~\nc:\nd: 'null'\ne: ''\nf: |\n  null\n", file="f")
    assert [node.null for node in root.entries.values() if isinstance(node, Scalar)] == [True] * 3 + [
        False
    ] * 3


@pytest.mark.usefixtures("_parser")
def test_duplicate_keys_are_all_found() -> None:
    """The first of two counts; each further one is a problem with both lines."""
    root, duplicates = read_text("a: 1\nb: {c: 1, c: 2}\na: 2\n", file="f")
    assert root.entries["a"] == Scalar("1", Place(Source.FILE, 1))
    assert [problem.render("f") for problem in duplicates] == [
        "f:2: b.c: is given a second time; the first is on line 2; keep one",
        "f:3: a: is given a second time; the first is on line 1; keep one",
    ]


@pytest.mark.usefixtures("_parser")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "f:1: is empty; name at least one upstream under upstreams:"),
        ("# nothing\n", "f:1: is empty; name at least one upstream under upstreams:"),
        ("---\n", "f:1: is empty; name at least one upstream under upstreams:"),
        ("null", "f:1: is empty; name at least one upstream under upstreams:"),
        ("- a\n", "f:1: is a list, not a mapping; write KEY: VALUE lines"),
        ("a", "f:1: is a text, not a mapping; write KEY: VALUE lines"),
        ("a: &x 1\nb: *x\n", "f:2: b: aliases are not supported; write the value out"),
        ("a: &x [*x]\n", "f:1: a[0]: aliases are not supported; write the value out"),
        ("a: !!str 1\n", "f:1: a: tags are not supported; write the plain value"),
        ("a: !!python/name:os.system ''\n", "f:1: a: tags are not supported; write the plain value"),
        ("a: 1\n---\nb: 2\n", "f:2: a second document begins here; keep one"),
        ("? [a]\n: b\n", "f:1: a key must be a plain word"),
        ("a:\n  b: 1\n c: 2\n", "f:3: is not YAML: "),
        ("a: 1\nb: [1\n", "f:3: is not YAML: "),
        ("a: 1\nb: \x01\n", "f:2: is not YAML: a character that is not allowed"),
    ],
)
def test_refused(text: str, line: str) -> None:
    """What is no configuration is one problem with its line."""
    assert refusal(text).startswith(line)


@pytest.mark.usefixtures("_parser")
@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "{a: " * 100_000, "a: " + "{? " * 50_000])
def test_deep_nesting_is_refused_without_recursion(text: str) -> None:
    """A deep file ends at a limit, ours or the parser's own, and never at the interpreter's."""
    assert re.search(r"nested more than 16 levels|maximum nesting depth", refusal(text))


@pytest.mark.usefixtures("_parser")
def test_nesting_is_limited() -> None:
    """The deepest configuration fits; one level beyond the limit does not."""
    assert read_text("a: " + "[" * 15 + "]" * 15, file="f")
    assert refusal("a: " + "[" * 16 + "]" * 16).endswith("is nested more than 16 levels deep")


@pytest.mark.usefixtures("_parser")
@pytest.mark.parametrize(
    "value", ["!hunter2!x y", "*hunter2", "!hunter2 y", "'hunter2", "@hunter2", '"\\hunter2"']
)
def test_no_parser_repeats_what_it_choked_on(value: str) -> None:
    """A password that is no YAML stays out of the error, whichever parser words it."""
    assert "hunter2" not in refusal(f"password: {value}\n")


def test_strange_keys_are_shown_escaped_and_short() -> None:
    """A key cannot write to the terminal of whoever reads the error."""
    _, duplicates = read_text(f'"\\e[31m{"x" * 100}": 1\n"\\e[31m{"x" * 100}": 2\n', file="f")
    assert duplicates[0].path == repr("\x1b[31m" + "x" * 35)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Missing, unreadable, too large and undecodable files are problems, each naming the file."""
    large, latin = tmp_path / "large", tmp_path / "latin"
    large.write_bytes(b"#" * (MAX_BYTES + 1))
    latin.write_bytes("a: 1\nb: caf\u00e9\n".encode("latin-1"))
    expected = {
        tmp_path / "none": f"{tmp_path}/none: cannot be read: No such file or directory",
        tmp_path: f"{tmp_path}: cannot be read: Is a directory",
        large: f"{large}: is larger than 1048576 bytes",
        latin: f"{latin}:2: is not UTF-8 text",
    }
    for path, line in expected.items():
        with pytest.raises(ConfigError) as raised:
            read_file(path)
        assert raised.value.lines() == [line]


def test_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    """A file saved with a byte order mark is the same file."""
    file = tmp_path / "f"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert list(read_file(file)[0].entries) == ["a"]
