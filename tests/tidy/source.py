"""What the tidy tests read: the project's own files, each parsed once."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "nonbis"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def project_files() -> tuple[Path, ...]:
    """Every file of the project: what is tracked and what is new, without what is ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in listed.split("\0") if name)
    return tuple(sorted(path for path in paths if path.is_file()))


def files_under(*folders: str, suffix: str = ".py") -> tuple[Path, ...]:
    """The project's files with this suffix below any of these folders."""
    tops = [ROOT / folder for folder in folders]
    return tuple(
        path for path in project_files() if path.suffix == suffix and any(top in path.parents for top in tops)
    )


def name_of(path: Path) -> str:
    """The path as people write it."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions_of(tree: ast.AST) -> Iterator[Function]:
    """Every function of a tree, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def module_name(path: Path) -> str:
    """``nonbis.core.ids`` for ``src/nonbis/core/ids.py``; a package for its ``__init__.py``."""
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
