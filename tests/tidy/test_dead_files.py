"""Every module is reached from an entry point, every SQL file is named by its loader."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.tidy.source import ROOT, files_under, module_name, name_of, tree_of

# Reached by something other than an import, each with its reason.
ENTRY_POINTS = {
    "nonbis": "what a user imports",
    "nonbis.client": "what a user of the client imports",
}


def imports_of(tree: ast.Module, module: str, known: frozenset[str]) -> set[str]:
    """The modules of ours that a module imports, or names in full in a string (lazy imports)."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module)
            found |= {base} | {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.partition(":")[0])
    return found & known


def _absolute(node: ast.ImportFrom, module: str) -> str:
    if node.level == 0:
        return node.module or ""
    base = ".".join(module.split(".")[: -node.level])
    return f"{base}.{node.module}" if node.module else base


def unreached(graph: Mapping[str, set[str]], roots: set[str]) -> list[str]:
    """The modules that no root leads to; a package is reached with any of its modules."""
    reached: set[str] = set()
    waiting = [root for root in roots if root in graph]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            parent = module.rpartition(".")[0]
            waiting += [*graph[module], *([parent] if parent in graph else [])]
    return sorted(set(graph) - reached)


def script_modules() -> set[str]:
    """The modules of the commands that pyproject.toml declares."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {target.partition(":")[0] for target in project.get("scripts", {}).values()}


def package_graph() -> dict[str, set[str]]:
    """Who imports whom in the package."""
    modules = {module_name(path): path for path in files_under("src")}
    known = frozenset(modules)
    return {module: imports_of(tree_of(path), module, known) for module, path in modules.items()}


def entry_points(modules: Iterable[str]) -> set[str]:
    """Where a run of the package can begin: scripts, ``python -m``, and what users import."""
    runnable = {module for module in modules if module.endswith(".__main__")}
    return {*ENTRY_POINTS, *script_modules(), *runnable}


def test_every_module_is_reached() -> None:
    graph = package_graph()
    assert unreached(graph, entry_points(graph)) == []


def test_a_dead_module_is_found() -> None:
    graph = {"nonbis": {"nonbis.a"}, "nonbis.a": set(), "nonbis.dead": {"nonbis.a"}}
    assert unreached(graph, {"nonbis"}) == ["nonbis.dead"]


def test_lazy_and_relative_imports_are_seen() -> None:
    known = frozenset({"nonbis.a", "nonbis.b", "nonbis.c"})
    planted = ast.parse("from . import a\nLAZY = 'nonbis.b:app'\ndef f():\n    import nonbis.c\n")
    assert imports_of(planted, "nonbis.d", known) == known


def sql_files() -> tuple[Path, ...]:
    return files_under("src", suffix=".sql")


def is_loaded(path: Path, sources: str) -> bool:
    """Whether a loader names the file, or its folder as a whole (numbered migrations)."""
    by_name = rf"""["'/]{re.escape(path.stem)}(\.sql)?["']"""
    numbered = re.match(r"\d{3,}", path.stem) and "migrations" in sources
    return bool(numbered or re.search(by_name, sources))


def test_every_sql_file_is_loaded() -> None:
    sources = "\n".join(path.read_text() for path in files_under("src"))
    assert [name_of(path) for path in sql_files() if not is_loaded(path, sources)] == []


def test_a_dead_sql_file_is_found() -> None:
    assert not is_loaded(Path("sql/forgotten.sql"), 'load("claim"); load("advance.sql")')
    assert is_loaded(Path("sql/claim.sql"), 'load("claim")')
    assert is_loaded(Path("sql/advance.sql"), 'load("sqlite/advance.sql")')
