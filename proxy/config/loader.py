"""A file, the environment and flags become frozen settings, or every reason why they cannot.

Flags win over environment, over the file, over defaults, key by key. The file is read into a tree, the
other two are laid over it, and one pass over the schema turns the tree into dataclasses; so every value
is checked in the same way, wherever it came from, and every problem knows its line or variable.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from proxy.config.document import Array, Node, Place, Scalar, Source, Table, child_path, read_file
from proxy.config.overrides import lay_over, variable
from proxy.config.plausibility import Places, cautions, contradictions
from proxy.config.schema import ROOT, Choices, Entry, Key, Section, Sections
from proxy.config.settings import Settings
from proxy.config.values import Kind, Rejected
from proxy.errors import ConfigError, Problem

_FEW = 20


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, where each came from, and what a person should know about them.

    `sources` maps every scalar key (`upstreams[0].mode`) to its source. `path` is the file read, None
    without one. `warnings` are single lines; none of them holds a secret.
    """

    settings: Settings
    sources: Mapping[str, Source]
    path: Path | None
    warnings: tuple[str, ...]


def load(path: Path | None, *, flags: Mapping[str, object], env: Mapping[str, str]) -> Loaded:
    """Read and check everything. Raises ConfigError with every problem found, in the order of the file.

    `flags` are the keys of `proxy.config.overrides.FLAGS`; None is a flag not given. Of `env` only variables
    that begin with `FORKWATCH__` are read.
    """
    nowhere = Place(Source.DEFAULT)
    problems: list[Problem] = []
    root = Table(nowhere)
    if path is not None:
        root, problems = read_file(path)
    laid = lay_over(root, flags, env)
    problems += laid.problems
    if path is None and "upstreams" not in root.entries:
        problems.append(
            Problem("", None, "no upstream is configured", "give --config FILE or --upstream URL")
        )
        root.put("upstreams", Array(nowhere), nowhere)
    reading = _Reading(problems)
    settings: Settings = reading.section(ROOT, root, "")
    places = Places(reading.places, frozenset(reading.rejected))
    found = [*reading.problems, *contradictions(settings, places)]
    if found:
        raise ConfigError(sorted(found, key=_order), file=str(path or ""))
    sources = {key: reading.sources.get(key, Source.DEFAULT) for key, _ in rows(settings)}
    return Loaded(settings, MappingProxyType(sources), path, (*laid.warnings, *cautions(settings)))


def rows(settings: Settings) -> list[tuple[str, str]]:
    """Every scalar key with its value as the file would have it, in the order of the schema."""
    return list(_rows(ROOT, settings, ""))


def _order(problem: Problem) -> tuple[bool, int]:
    return problem.line is None, problem.line or 0


def _rows(entry: Entry, value: Any, path: str) -> Iterable[tuple[str, str]]:
    match entry:
        case Key(kind=kind):
            yield path, "null" if value is None else kind.write(value)
        case Choices() if not value:
            yield path, "{}"
        case Choices():
            yield from ((child_path(path, name), action) for name, action in value.items())
        case Sections(item=item):
            for i, each in enumerate(value):
                yield from _rows(item, each, f"{path}[{i}]")
        case Section(keys=keys):
            if value is None:
                yield path, "null"
                return
            for key, below in keys.items():
                yield from _rows(below, getattr(value, below.attribute), child_path(path, key))


class _Rejection(Enum):
    """What a reader returns for a node it rejected: the default, or a placeholder, then stands in."""

    REJECTED = 1


class _Reading:
    """One pass over the tree. It never stops at a problem, so that all of them are found."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.sources: dict[str, Source] = {}
        self.places: dict[str, Place] = {}
        self.rejected: set[str] = set()

    def section(self, schema: Section, table: Table, path: str) -> Any:
        self._unknown(table, schema.keys, path)
        required = schema.required()
        values: dict[str, Any] = {}
        for key, entry in schema.keys.items():
            node = table.entries.get(key)
            below = child_path(path, key)
            value: Any = _Rejection.REJECTED
            if node is not None:
                self.places[below] = table.places[key]
                value = self._value(entry, node, below)
            elif entry.attribute in required:
                self._missing(table.place, below)
            if value is not _Rejection.REJECTED:
                values[entry.attribute] = value
            elif entry.attribute in required:
                values[entry.attribute] = () if isinstance(entry, Sections) else ""
        return schema.make(**values)

    def _missing(self, place: Place, path: str) -> None:
        if place.source is Source.ENV:
            self._reject(place, path, "is not enough", f"set {variable(path)} too")
        else:
            self._reject(place, path, "is required")

    def _value(self, entry: Entry, node: Node, path: str) -> Any:
        match entry:
            case Key(kind=kind):
                return self._scalar(kind, node, path)
            case Choices():
                return self._choices(entry, node, path)
            case Sections(item=item):
                return self._sections(item, node, path)
            case Section():
                return self._nested(entry, node, path)

    def _scalar(self, kind: Kind, node: Node, path: str) -> Any:
        if not isinstance(node, Scalar):
            what = "a list" if isinstance(node, Array) else "a mapping"
            return self._reject(node.place, path, f"is {what}, not a single value")
        self.sources[path] = node.place.source
        if node.null:
            if kind.nullable:
                return None
            return self._reject(node.place, path, "must not be empty", "remove the key to use its default")
        try:
            return kind.read(node)
        except Rejected as rejected:
            return self._reject(node.place, path, rejected.message, rejected.remedy)

    def _choices(self, schema: Choices, node: Node, path: str) -> Any:
        if _heading_only(node):
            return MappingProxyType({})
        if not isinstance(node, Table):
            return self._reject(node.place, path, "is not a mapping", f"write {schema.what}: VALUE")
        self._unknown(node, schema.names, path)
        values = {
            name: self._scalar(schema.kind, below, child_path(path, name))
            for name, below in node.entries.items()
            if name in schema.names
        }
        return MappingProxyType(values)

    def _sections(self, item: Section, node: Node, path: str) -> Any:
        if not isinstance(node, Array):
            empty = isinstance(node, Scalar) and node.null
            message = "is empty" if empty else "is not a list"
            return self._reject(node.place, path, message, "begin each entry with -")
        if not node.items and node.place.source is not Source.DEFAULT:
            return self._reject(node.place, path, "is empty", "name at least one upstream")
        return tuple(self._item(item, each, f"{path}[{i}]") for i, each in enumerate(node.items))

    def _item(self, item: Section, node: Node, path: str) -> Any:
        self.places[path] = node.place
        if isinstance(node, Table):
            return self.section(item, node, path)
        self._reject(node.place, path, "is not a mapping", "write at least url: http://HOST:PORT")
        return item.make(**dict.fromkeys(item.required(), ""))

    def _nested(self, schema: Section, node: Node, path: str) -> Any:
        if isinstance(node, Scalar) and node.null and schema.nullable:
            self.sources[path] = node.place.source
            return None
        if _heading_only(node):
            return schema.make()
        if not isinstance(node, Table):
            remedy = f"its keys are {', '.join(schema.keys)}"
            return self._reject(node.place, path, "is not a mapping", remedy)
        return self.section(schema, node, path)

    def _unknown(self, table: Table, known: Collection[str], path: str) -> None:
        for key, place in table.places.items():
            if key not in known:
                remedy = _suggestion(place, path, key, known)
                self._reject(place, child_path(path, key), "is not a known key", remedy)

    def _reject(self, place: Place, path: str, message: str, remedy: str = "") -> _Rejection:
        self.rejected.add(path)
        self.problems.append(place.problem(path, message, remedy))
        return _Rejection.REJECTED


def _heading_only(node: Node) -> bool:
    """Whether this is a heading whose keys are all commented out."""
    return isinstance(node, Scalar) and node.null and not node.text


def _suggestion(place: Place, path: str, key: str, known: Collection[str]) -> str:
    """The nearest key, as it would be written in the same place; without one, all if they are few."""
    near = difflib.get_close_matches(key[:64], known, n=1, cutoff=0.5)
    if near:
        return (
            f"did you mean {variable(child_path(path, near[0])) if place.source is Source.ENV else near[0]}?"
        )
    return f"use {', '.join(known)}" if len(known) <= _FEW else ""
