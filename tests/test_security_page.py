"""docs/security.md names only what exists, and its limits are the code's; and what it says of code from data."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from pkgutil import resolve_name

import pytest

from proxy.config.settings import Limits

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "security.md"
TEXT = PAGE.read_text()
CODE = re.findall(r"`([^`\n]+)`", TEXT)
TESTS = sorted({name for name in CODE if re.fullmatch(r"[\w/]+\.py(::\w+)?", name) and "test_" in name})
FILES = sorted({name for name in CODE if re.fullmatch(r"(proxy|config|tests|docs)/[\w./-]+", name)})
LINKS = sorted(set(re.findall(r"\]\(([^)#:]+)\)", TEXT)))

CELL = re.compile(r"\| ([^|]+) " * 4 + r"\|$")
UNITS = {"": 1, " KiB": 1024, " MiB": 1024**2, " s": 1, " h": 3600}
SECONDS = "_s"


def rows() -> Iterator[tuple[str, str]]:
    """The value and the place of each limit in the table; two of a row are apart by a dot."""
    table = TEXT.partition("| what | value | where | test |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        found = CELL.fullmatch(line)
        assert found is not None, line
        yield from zip(found[2].split(" · "), found[3].replace("`", "").split(" · "), strict=True)


LIMITS = list(rows())


def value_of(text: str) -> float:
    """`64 KiB`, `1,024` or `2 h` as a number."""
    found = re.fullmatch(r"([0-9,]+)( KiB| MiB| s| h|)", text)
    assert found is not None, text
    return int(found[1].replace(",", "")) * UNITS[found[2]]


def limit_at(place: str) -> float:
    """The value of `limits.KEY` by default, of a constant, or of a parameter by default, `module.Class(name)`."""
    if place.startswith("limits."):
        key = place.removeprefix("limits.")
        limits = Limits()
        return float(getattr(limits, key, None) or getattr(limits, key + SECONDS))
    callee, _, parameter = place.removesuffix(")").partition("(")
    module, _, name = callee.rpartition(".")
    found = resolve_name(f"{module}:{name}")
    return float(inspect.signature(found).parameters[parameter].default if parameter else found)


@pytest.mark.parametrize("name", TESTS)
def test_every_test_it_names_exists(name: str) -> None:
    """`folder/test_x.py::test_y` is a function of that file below tests/."""
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / "tests" / path).read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert not function or function in defined


@pytest.mark.parametrize("name", FILES)
def test_every_file_it_names_exists(name: str) -> None:
    """From the root of the repository."""
    assert (ROOT / name).exists()


@pytest.mark.parametrize("target", LINKS)
def test_every_link_leads_somewhere(target: str) -> None:
    """From the page's own folder."""
    assert (PAGE.parent / target).exists()


def test_it_names_enough_for_these_tests_to_mean_something() -> None:
    """The page is read as it is written: most of it is found."""
    assert (len(TESTS) > 80, len(FILES) > 10, len(LINKS) >= 3, len(LIMITS) > 45) == (True, True, True, True)


@pytest.mark.parametrize(("value", "place"), [row for row in LIMITS if "/" not in row[1]])
def test_every_limit_is_the_code_s(value: str, place: str) -> None:
    """The value that the page gives is the one in force without a configuration."""
    assert limit_at(place) == value_of(value)


def test_every_limit_of_the_configuration_is_listed() -> None:
    """No key of `limits:` is missing."""
    keys = {f"limits.{field.name.removesuffix(SECONDS)}" for field in fields(Limits)}
    assert keys - {place for _, place in LIMITS} == set()


def test_it_is_short_enough_to_be_read() -> None:
    """150 lines."""
    assert len(TEXT.splitlines()) <= 150


# ---- no code comes from data

RUNS = frozenset({"eval", "exec", "compile", "__import__"})
MODULES = frozenset(
    {"pickle", "marshal", "shelve", "dill", "subprocess", "pty", "ctypes", "code", "runpy", "popen2"}
)
STARTS = re.compile(
    r"(?:system|popen|exec[lv]p?e?|spawn\w+|posix_spawnp?|fork|forkpty|create_subprocess_\w+)\Z"
)
LOADS = frozenset(
    {"load", "load_all", "full_load", "unsafe_load", "Loader", "UnsafeLoader", "FullLoader", "CLoader"}
)
ALLOWED = {
    "proxy/demo/children.py": {"asyncio.create_subprocess_exec"},
}
"""The demo alone starts processes: its own server and balancer, without a shell."""


def suspects(source: str) -> set[str]:
    """What in a module could make code or a process of data, as it is written there."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found |= {name.name for name in names if name.name.partition(".")[0] in MODULES}
            case ast.ImportFrom(module=str(module), names=names):
                inside = {f"{module}.{name.name}" for name in names}
                found |= {one for one in inside if module.partition(".")[0] in MODULES or _runs(one)}
            case ast.Attribute() if _runs(ast.unparse(node)):
                found.add(ast.unparse(node))
            case ast.Call(func=ast.Name(id=name)) if name in RUNS:
                found.add(name)
            case ast.keyword(arg="shell"):
                found.add("shell=")
            case _:
                pass
    return found


def _runs(dotted: str) -> bool:
    module, _, name = dotted.rpartition(".")
    if module == "yaml":
        return name in LOADS
    return module in ("os", "asyncio", "posix", "pty") and STARTS.match(name) is not None


@pytest.mark.parametrize(
    "path", sorted((ROOT / "proxy").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_code_comes_from_data(path: Path) -> None:
    """No module of the proxy evaluates text, unpickles, loads YAML into objects, or starts a process; the demo may."""
    assert suspects(path.read_text()) == ALLOWED.get(str(path.relative_to(ROOT)), set())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("eval(text)", {"eval"}),
        ("exec(compile(text, '', 'exec'))", {"exec", "compile"}),
        ("__import__(name)", {"__import__"}),
        ("import pickle", {"pickle"}),
        ("from pickle import loads", {"pickle.loads"}),
        ("import subprocess as s", {"subprocess"}),
        ("import os\nos.system(text)", {"os.system"}),
        ("from os import popen", {"os.popen"}),
        ("import os\nos.execvpe(a, b, c)", {"os.execvpe"}),
        ("import asyncio\nasyncio.create_subprocess_shell(t)", {"asyncio.create_subprocess_shell"}),
        ("import yaml\nyaml.load(text, yaml.FullLoader)", {"yaml.load", "yaml.FullLoader"}),
        ("run(text, shell=True)", {"shell="}),
        ("import re\nre.compile(text)", set()),
        ("import yaml\nyaml.parse(text, Loader=yaml.SafeLoader)", set()),
        ("import os\nos.fsync(f)\nos.forkwatch", set()),
    ],
)
def test_code_from_data_would_be_found(source: str, found: set[str]) -> None:
    """What the test above looks for, it finds; what only looks alike, it does not."""
    assert suspects(source) == found
