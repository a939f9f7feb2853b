"""The core touches nothing of the world: no clock, no chance, no socket, no file, nothing else of ours."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "src" / "nonbis" / "core"
FILES = sorted(CORE.glob("*.py"))
ALLOWED = {
    "__future__",
    "base64",
    "collections.abc",
    "datetime",
    "enum",
    "functools",
    "hashlib",
    "struct",
    "json",
    "msgspec",
    "re",
    "rfc8785",
    "typing",
}
READS_THE_WORLD = {"now", "today", "utcnow", "open", "print", "input", "exec", "eval", "getenv", "urandom"}


def imports(tree: ast.AST) -> set[str]:
    """Every module that a file imports, wherever the import stands."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def calls(tree: ast.AST) -> set[str]:
    """The last name of everything that a file calls."""
    functions = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {
        function.id if isinstance(function, ast.Name) else function.attr
        for function in functions
        if isinstance(function, ast.Name | ast.Attribute)
    }


def foreign(tree: ast.AST) -> set[str]:
    """What a file of the core imports or calls and must not."""
    modules = {name for name in imports(tree) if name not in ALLOWED and not name.startswith("nonbis.core.")}
    return modules | (calls(tree) & READS_THE_WORLD)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_of_the_core_is_pure(path: Path) -> None:
    assert foreign(ast.parse(path.read_text())) == set()


def test_there_are_files_to_look_at() -> None:
    assert {"machine.py", "messages.py", "names.py", "ids.py", "windows.py"} <= {path.name for path in FILES}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", {"time"}),
        ("def f():\n    import random", {"random"}),
        ("from nonbis.ports import Store", {"nonbis.ports"}),
        ("from . import ids", {"."}),
        ("import datetime\ndatetime.datetime.now()", {"now"}),
        ("open('x')", {"open"}),
        ("import asyncio.events", {"asyncio.events"}),
        ("import json, socket", {"socket"}),
    ],
)
def test_what_is_not_pure_is_seen(source: str, found: set[str]) -> None:
    assert foreign(ast.parse(source)) == found


def test_importing_the_core_starts_nothing() -> None:
    """In a fresh interpreter: no event loop, no socket, no TLS, and none of our own rooms."""
    modules = ", ".join(f"nonbis.core.{path.stem}" for path in FILES if path.stem != "__init__")
    script = (
        f"import sys; before = set(sys.modules); import {modules}; "
        "loaded = set(sys.modules) - before; "
        "print(*sorted(name for name in loaded if name.split('.')[0] in ('asyncio', 'socket', 'ssl', 'apsw')"
        " or (name.startswith('nonbis.') and not name.startswith('nonbis.core'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
