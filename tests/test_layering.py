"""Who may import whom: the engine stands on its own, tools stand on the engine, and nothing goes round."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENGINE = "proxy.engine."

MAY_IMPORT: dict[str, str] = {
    "findings": "",
    "sse": "",
    "ids": "",
    "headers": "",
    "jsonrpc": "",
    "privacy": "",
    "digest": "jsonrpc",
    "commands": "findings",
    "policy": "findings",
    "seeds": "ids",
    "terminal": "findings jsonrpc privacy",
    "heads": "",
    "log": "digest",
    "owners": "",
    "timeline": "findings",
    "hints": "findings",
    "ledger": "commands digest findings ids jsonrpc log owners policy sse timeline",
    "sessions": "findings ids ledger owners",
    "continuity": "digest findings ids ledger log",
    "attachment": "continuity digest findings ids ledger log",
    "outlet": "sse terminal",
    "quarantine": "commands findings jsonrpc ledger terminal",
    "relay": "attachment commands continuity digest findings ids ledger log outlet policy quarantine sessions"
    " sse terminal timeline",
    "loops": "commands digest findings ledger",
    "exchange": (
        "commands continuity digest findings heads ids jsonrpc ledger loops policy quarantine relay sessions terminal"
    ),
}
"""Of the engine's own modules, from the ground up; a module without a row may not exist."""

BEYOND: dict[str, str] = {
    "array": "packed words: two arrays are a stream's whole log",
    "base64": "session tags that ids carry",
    "binascii": "what base64 raises",
    "collections": "least recently used first, and bounded queues",
    "collections.abc": "types",
    "contextlib": "errors that are an answer",
    "dataclasses": "values",
    "enum": "closed sets",
    "functools": "a cache of hashed names",
    "hashlib": "names of sessions in logs",
    "itertools": "tables over all combinations",
    "json": "what orjson refuses, and exact integers",
    "orjson": "reads a message and writes its canonical text in a microsecond",
    "re": "forms of ids, and the scanner's hot path",
    "sys": "the byte order of packed words",
    "typing": "types",
    "urllib.parse": "percent-encoding in annotations",
    "xxhash": "words that are equal across processes",
}
"""What the engine imports beyond itself, each with its reason. No clock, no log, no random, no I/O."""

TOOLS = ("proxy.probe", "proxy.audit", "proxy.demo")
"""They reuse the engine and run beside the proxy; only the command line knows them."""


def modules() -> dict[str, Path]:
    """Every module of the package, by its dotted name; a package by its own."""
    found = {}
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(name: str, *, while_loading: bool = False) -> set[str]:
    """What a module imports: dotted names, those of this package down to the module.

    `while_loading` leaves out what a function imports, or only a type checker.
    """
    tree = ast.parse(MODULES[name].read_text())
    found: set[str] = set()
    for node in tree.body if while_loading else ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively"
            assert node.module is not None
            found.update(_targets(node.module, (alias.name for alias in node.names)))
    return found - {"__future__"}


def _targets(module: str, members: Iterable[str]) -> set[str]:
    inside = {f"{module}.{member}" for member in members} & MODULES.keys()
    return inside or {module}


ENGINE_MODULES = [name.removeprefix(ENGINE) for name in MODULES if name.startswith(ENGINE)]


@pytest.mark.parametrize("name", ENGINE_MODULES)
def test_an_engine_module_imports_what_its_row_allows(name: str) -> None:
    """Its own lower modules, and the short list beyond."""
    got = imports(ENGINE + name)
    own = {each.removeprefix(ENGINE) for each in got if each.startswith("proxy")}
    assert own <= set(MAY_IMPORT[name].split())
    assert got - {each for each in got if each.startswith("proxy")} <= BEYOND.keys()


def test_the_tables_have_no_row_too_many() -> None:
    """Every row is a module, every name beyond is used by one."""
    assert set(MAY_IMPORT) == set(ENGINE_MODULES)
    used = {each for name in ENGINE_MODULES for each in imports(ENGINE + name)}
    assert [name for name in BEYOND if name not in used] == []
    assert imports("proxy.engine") == set()


def test_rows_name_lower_rows_only() -> None:
    """The table reads from the ground up."""
    rows = list(MAY_IMPORT)
    wrong = [
        (name, each)
        for at, name in enumerate(rows)
        for each in MAY_IMPORT[name].split()
        if each not in rows[:at]
    ]
    assert wrong == []


def test_nothing_goes_round() -> None:
    """No module of the package needs itself, by way of others, in order to be loaded."""
    graph = {name: imports(name, while_loading=True) & MODULES.keys() for name in MODULES}
    assert set(TopologicalSorter(graph).static_order()) == set(MODULES)


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_are_known_to_the_command_line_alone(tool: str) -> None:
    """Neither the proxy nor another tool depends on one."""
    users = {name for name in MODULES for each in imports(name) if f"{each}.".startswith(f"{tool}.")}
    assert {name for name in users if not f"{name}.".startswith((f"{tool}.", "proxy.cli."))} == set()


def test_the_engine_needs_no_event_loop() -> None:
    """All of it, imported in a fresh interpreter, brings no loop, socket, thread or HTTP library."""
    names = ["proxy.engine", *(ENGINE + name for name in ENGINE_MODULES)]
    unwanted = {"asyncio", "aiohttp", "uvloop", "socket", "ssl", "threading", "logging", "random", "sqlite3"}
    script = (
        f"import sys\nfor name in {names!r}: __import__(name)\n"
        f"print(sorted({unwanted!r} & sys.modules.keys()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True
    )
    assert ran.stdout.strip() == "[]"
