"""Configuration text: settings or a list of problems that name lines of the file, and nothing else, whatever it is."""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path

import yaml

from proxy.config import load
from proxy.config.document import LOADER, MAX_DEPTH, Array, Node, Scalar, Table, read_text
from proxy.config.loader import Loaded, rows
from proxy.errors import ConfigError
from tests.fuzz.target import Target, bounded, must, same

FILE = Path(tempfile.gettempdir()) / f"forkwatch-fuzz-{os.getpid()}.yaml"
atexit.register(FILE.unlink, missing_ok=True)
NOT_LINES = "\x85\u2028\u2029"
"""Line ends to YAML that are none to an editor: where they occur lines are not compared."""

Plain = str | list["Plain"] | dict[str, "Plain"]


def plain(node: Node) -> Plain:
    """A tree of the document as plain values."""
    match node:
        case Scalar():
            return node.text
        case Array():
            return [plain(item) for item in node.items]
        case Table():
            return {key: plain(value) for key, value in node.entries.items()}


def depth(value: Plain) -> int:
    """How many levels a value has."""
    if isinstance(value, str):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


def composed(node: yaml.Node) -> Plain:
    """What PyYAML's own composer makes of the text; the first of equal keys counts."""
    match node:
        case yaml.SequenceNode():
            return [composed(item) for item in node.value]
        case yaml.MappingNode():
            found: dict[str, Plain] = {}
            for key, value in node.value:
                found.setdefault(key.value, composed(value))
            return found
        case _:
            return str(node.value)


def tree(text: str) -> None:
    """The document's tree is the parser's, wherever it takes the text at all."""
    try:
        table, duplicates = read_text(text, file="f.yaml")
    except ConfigError as error:
        explained(error, text)
        return
    shown = text.replace("\t", " ") if text.lstrip().startswith("{") else text
    root = yaml.compose(shown, Loader=LOADER)
    assert root is not None
    same("tree", plain(table), composed(root))
    must(depth(plain(table)) <= MAX_DEPTH, "bounded nesting", text)
    for problem in duplicates:
        must(problem.line is not None, "a duplicate has a line", problem)


def explained(error: ConfigError, text: str) -> None:
    """Every problem has words and, if it is of the file, a line of it; each is shown as one line."""
    must(bool(error.problems), "an error has problems", text)
    most = len(text.splitlines()) + 1
    for problem in error.problems:
        must(bool(problem.message), "a problem says what is wrong", problem)
        must(problem.line is None or 1 <= problem.line <= most, "a line of the file", problem, most)
    for line in error.lines():
        must(line.isprintable(), "a problem is one printable line", line)


def written(loaded: Loaded) -> str:
    """The settings as a file: flow style, one quoted scalar for each key."""
    lines = []
    for path, value in rows(loaded.settings):
        lines.append(f"{path}={value}")
    return "\n".join(lines)


def settings(data: bytes) -> None:
    """The whole way from the file's bytes to settings, twice: the same each time, and hashable values."""
    FILE.write_bytes(data)
    try:
        loaded = load(FILE, flags={}, env={})
    except ConfigError as error:
        explained(error, data.decode("utf-8-sig", "replace"))
        return
    again = load(FILE, flags={}, env={})
    same("the second reading", again, loaded)
    same("the rows of it", written(again), written(loaded))
    must(bool(loaded.settings.upstreams), "settings have an upstream", loaded)
    for line in loaded.warnings:
        must(line.isprintable(), "a warning is one printable line", line)


def check(data: bytes) -> None:
    """The tree, then the settings."""
    with bounded("a configuration"):
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = None  # `load` has to say so itself
        if text is not None:
            tree(text)
        settings(data)


TARGET = Target(
    check,
    [
        b"upstreams:\n  - name: a\n    url: http://127.0.0.1:9\n",
        b"url: ",
        b"listen: ",
        b"127.0.0.1:8080",
        b"limits:",
        b"  gate_bytes: 1MiB\n",
        b"timeouts: {connect: 5s}",
        b"match: {path: /, host: null}",
        b"ids: epoch:seq",
        b"actions: {rewound: cut}",
        b"gap/forward_jump",
        b"mode: enforce",
        b"*a",
        b"&a ",
        b"!!str ",
        b"--- ",
        b"...",
        b"|\n",
        b">-\n",
        b"? ",
        b"<<: ",
        b"[[[[[[[[",
        b"{a: {a: {a: ",
        b"'",
        b'"',
        b"\\u0000",
        b"null",
        b"~",
        b"\t",
        b"\xc2\x85",
        b"\xe2\x80\xa8",
        b"\xef\xbb\xbf",
        b"%YAML 1.1\n",
        b"unix:/run/s.sock",
        b"tls: {cert: a, key: b}",
        b"enforce: {cut_on: suspected}",
        b'{"upstreams": [{"name": "a", "url": "http://a"}]}',
        b"1e999",
        b"-1",
        b"99999999999999999999GiB",
        b"status: null",
        b"admin: auto",
        b"log: {format: json}",
        b"shutdown:",
        b"1h",
        b"https://",
    ],
)
