"""A YAML or JSON file as a small tree in which everything knows where it was written.

Scalars stay the text that was written; what a text means is decided by the key it stands under, so
`no`, `1:30` and `0x10` never turn into something else on the way. Refused, since a configuration has
no use for them and they make a small file large: aliases, tags, several documents, nesting beyond
`MAX_DEPTH`, more than `MAX_BYTES`. A syntax error names its line and never quotes the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import yaml

from proxy.errors import ConfigError, Problem

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 16

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_./-]{1,64}")
_QUOTED = re.compile(r"(['\"]).{2,}\1")


class Source(StrEnum):
    """Where a value comes from; a later one wins over an earlier one."""

    DEFAULT = "default"
    FILE = "file"
    ENV = "env"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written: a line of the file, or the name of a variable or flag."""

    source: Source
    line: int | None = None
    name: str = ""

    def problem(self, path: str, message: str, remedy: str = "") -> Problem:
        """A problem found here; `path` is the key it concerns."""
        return Problem(path if self.source is Source.FILE else self.name, self.line, message, remedy)


@dataclass(slots=True)
class Scalar:
    """A text as written. `quoted` texts are never null, a number or a truth value."""

    text: str
    place: Place
    quoted: bool = False

    @property
    def null(self) -> bool:
        """Whether this stands for nothing: empty, `~` or `null`, without quotes."""
        return not self.quoted and self.text in _NULLS


@dataclass(slots=True)
class Array:
    """A list."""

    place: Place
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Table:
    """A mapping, in the order written. `places` holds where each key stands."""

    place: Place
    entries: dict[str, Node] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)

    def put(self, key: str, node: Node, place: Place) -> None:
        """Set `key`, replacing what it held."""
        self.entries[key] = node
        self.places[key] = place


Node = Scalar | Array | Table


def child_path(parent: str, key: str) -> str:
    """`key` under `parent` as a person writes it; a key of other characters is shown escaped and short."""
    shown = key if _PLAIN_KEY.fullmatch(key) else f"{key[:40]!r}"
    return f"{parent}.{shown}" if parent else shown


def read_file(path: Path) -> tuple[Table, list[Problem]]:
    """The tree of one file, and its duplicate keys (the first of which counts).

    Raises ConfigError when the file cannot be read, is not YAML, or is not a mapping.
    """
    return read_text(_text_of(path), file=str(path))


def read_text(text: str, *, file: str) -> tuple[Table, list[Problem]]:
    """As `read_file`, for a text already at hand; `file` is its name in errors."""
    if text.lstrip().startswith("{"):
        # JSON may be indented by tabs, which YAML refuses; inside JSON's strings a tab is illegal.
        text = text.replace("\t", " ")
    try:
        return _Builder().document(text)
    except _Refused as refused:
        raise ConfigError([refused.problem], file=file) from None
    except yaml.YAMLError as error:
        raise ConfigError([_syntax_problem(text, error)], file=file) from None


def _text_of(path: Path) -> str:
    file = str(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError([Problem(file, None, f"cannot be read: {reason}")]) from error
    if len(data) > MAX_BYTES:
        raise ConfigError([Problem(file, None, f"is larger than {MAX_BYTES} bytes")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem("", line, "is not UTF-8 text")], file=file) from error


def _syntax_problem(text: str, error: yaml.YAMLError) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        # The parser may name what it choked on, which may be a part of a password.
        what = _QUOTED.sub("a token", error.problem or "the file is malformed")
        return Problem("", mark.line + 1 if mark else 1, f"is not YAML: {what}")
    position = getattr(error, "position", 0)
    return Problem("", text.count("\n", 0, position) + 1, "is not YAML: a character that is not allowed")


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class _Builder:
    """Builds the tree from parser events: the depth is checked before anything recurses."""

    def __init__(self) -> None:
        self._duplicates: list[Problem] = []
        self._events: Iterator[yaml.Event] = iter(())

    def document(self, text: str) -> tuple[Table, list[Problem]]:
        self._events = yaml.parse(text, Loader=LOADER)
        root: Table | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    raise _Refused(_place(event).problem("", "a second document begins here", "keep one"))
                root = self._root(next(self._events))
        if root is None:
            raise _Refused(Problem("", 1, "is empty", "name at least one upstream under upstreams:"))
        return root, self._duplicates

    def _root(self, event: yaml.Event) -> Table:
        node = self._node(event, "", 1)
        if isinstance(node, Table):
            return node
        if isinstance(node, Scalar) and node.null:
            raise _Refused(Problem("", 1, "is empty", "name at least one upstream under upstreams:"))
        kind = "a list" if isinstance(node, Array) else "a text"
        raise _Refused(node.place.problem("", f"is {kind}, not a mapping", "write KEY: VALUE lines"))

    def _node(self, event: yaml.Event, path: str, depth: int) -> Node:
        place = _place(event)
        if isinstance(event, yaml.AliasEvent):
            raise _Refused(place.problem(path, "aliases are not supported", "write the value out"))
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) is not None:
            raise _Refused(place.problem(path, "tags are not supported", "write the plain value"))
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(event.value, place, quoted=not event.implicit[0])
        if depth > MAX_DEPTH:
            raise _Refused(place.problem(path, f"is nested more than {MAX_DEPTH} levels deep"))
        if isinstance(event, yaml.SequenceStartEvent):
            return self._array(place, path, depth)
        return self._table(place, path, depth)

    def _array(self, place: Place, path: str, depth: int) -> Array:
        array = Array(place)
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            array.items.append(self._node(event, f"{path}[{len(array.items)}]", depth + 1))
        return array

    def _table(self, place: Place, path: str, depth: int) -> Table:
        table = Table(place)
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._node(event, path, depth + 1)
            if not isinstance(key, Scalar):
                raise _Refused(key.place.problem(path, "a key must be a plain word"))
            below = child_path(path, key.text)
            value = self._node(next(self._events), below, depth + 1)
            if key.text in table.entries:
                first = table.places[key.text].line
                message = f"is given a second time; the first is on line {first}"
                self._duplicates.append(key.place.problem(below, message, "keep one"))
            else:
                table.put(key.text, value, key.place)
        return table


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    return Place(Source.FILE, mark.line + 1 if mark else 1)
