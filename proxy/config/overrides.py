"""Environment and flags, laid over the tree of the file before anything is read from it.

`FORKWATCH__SECTION__KEY` sets one key; a list is entered by index, `FORKWATCH__UPSTREAMS__0__MODE`, and an
override of an action by `FORKWATCH__UPSTREAMS__0__ACTIONS__GAP__FORWARD_JUMP`. A value is the text of a
plain YAML scalar; empty is null. Two underscores follow the prefix because orchestrators inject
`FORKWATCH_PORT` and the like for a service of that name; those are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.config.document import Array, Node, Place, Scalar, Source, Table
from proxy.errors import Problem

PREFIX = "FORKWATCH__"

FLAGS: Mapping[str, tuple[str, ...]] = {
    "upstream": ("upstreams",),
    "listen": ("listen",),
    "status": ("status",),
    "mode": ("upstreams", "mode"),
    "state": ("state",),
    "log_format": ("log", "format"),
}
"""Every flag that sets something, and the key it sets. `mode` sets that of every upstream."""


def variable(path: str) -> str:
    """The variable that sets the key at `path`, such as `upstreams[0].actions.gap/forward_jump`."""
    return PREFIX + re.sub(r"\]?[.\[/]|\]", "__", path).strip("_").upper()


@dataclass(frozen=True, slots=True)
class LaidOver:
    """What came of it: variables that are no setting, and one line for each value that is not used."""

    problems: list[Problem]
    warnings: list[str]


def lay_over(root: Table, flags: Mapping[str, object], env: Mapping[str, str]) -> LaidOver:
    """Put the values of `env`, then of `flags`, into `root`.

    A flag that is None is not given; one that is not in `FLAGS` is a ValueError.
    """
    given = {name: str(value) for name, value in flags.items() if value is not None}
    if unknown := given.keys() - FLAGS.keys():
        raise ValueError(f"not flags of the configuration: {sorted(unknown)}")
    if "upstream" in given:  # first, so that the environment may add to it what the flag does not say
        _replace_upstreams(root, given.pop("upstream"))
    variables = _Variables(root)
    for name in sorted(env):
        if name.startswith(PREFIX):
            variables.set(name, env[name].strip())
    for name, value in given.items():
        _set_flag(root, name, value)
    return LaidOver(variables.problems, variables.warnings)


def _replace_upstreams(root: Table, url: str) -> None:
    place = Place(Source.FLAG, name="--upstream")
    upstream = Table(place)
    upstream.put("url", Scalar(url, place), place)
    root.put("upstreams", Array(place, [upstream]), place)


def _set_flag(root: Table, name: str, value: str) -> None:
    place = Place(Source.FLAG, name=f"--{name.replace('_', '-')}")
    section, *rest = FLAGS[name]
    if not rest:
        root.put(section, Scalar(value, place), place)
        return
    node = root.entries.get(section)
    if section != "upstreams" and (node is None or _is_null(node)):
        node = Table(place)
        root.put(section, node, place)
    for table in node.items if isinstance(node, Array) else [node]:
        if isinstance(table, Table):
            table.put(rest[0], Scalar(value, place), place)


class _Variables:
    """Lays one variable after another over the tree, making the sections and entries it names."""

    def __init__(self, root: Table) -> None:
        self._root = root
        self.problems: list[Problem] = []
        self.warnings: list[str] = []

    def set(self, name: str, text: str) -> None:
        place = Place(Source.ENV, name=name)
        parts = name.removeprefix(PREFIX).lower().split("__")
        if not all(parts):
            self.problems.append(place.problem("", "is not a setting", f"write {PREFIX}SECTION__KEY"))
            return
        if parts[0] == "upstreams" and parts[2:3] == ["actions"]:
            parts[3:] = ["/".join(parts[3:])] if parts[3:] else []
        node: Node | None = self._root
        for i, part in enumerate(parts):
            leaf = i == len(parts) - 1
            below = Scalar(text, place) if leaf else _container(parts[i + 1], place)
            match node:
                case Table():
                    node = self._enter_table(node, part, below, place)
                case Array():
                    node = self._enter_array(node, part, below, place)
                case _:
                    return  # not used, or below a text where a section belongs, which is reported when read

    def _enter_table(self, table: Table, key: str, below: Node, place: Place) -> Node | None:
        held = table.entries.get(key)
        if isinstance(held, Scalar) and held.place.source is Source.FLAG:
            self._unused(place, held.place)
            return None
        if held is None or isinstance(below, Scalar) or _is_null(held):
            table.put(key, below, place)
            return below
        return held

    def _enter_array(self, array: Array, part: str, below: Node, place: Place) -> Node | None:
        if not part.isdecimal() or len(part) > 6:
            remedy = f"put an index before {part.upper()}, such as 0__{part.upper()}"
            self.problems.append(place.problem("", "names a key of a list", remedy))
            return None
        index, size = int(part), len(array.items)
        if index > 0 and array.place.source is Source.FLAG:
            self._unused(place, array.place)
            return None
        if index > size:
            message = f"names entry {index} of a list of {size}"
            self.problems.append(place.problem("", message, f"the next index is {size}"))
            return None
        if index == size:
            array.items.append(below)
        elif isinstance(below, Scalar) or _is_null(array.items[index]):
            array.items[index] = below
        return array.items[index]

    def _unused(self, place: Place, winner: Place) -> None:
        self.warnings.append(f"{place.name}: not used, because {winner.name} is given")


def _container(next_part: str, place: Place) -> Node:
    return Array(place) if next_part.isdecimal() else Table(place)


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.null
