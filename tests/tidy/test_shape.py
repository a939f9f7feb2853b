"""Functions are short and files are small, so that each can be held in the head at once."""

from __future__ import annotations

import ast
import statistics

from tests.tidy.source import Function, files_under, functions_of, name_of, tree_of

FUNCTION_LINES_MAX = 70
FUNCTION_LINES_MEDIAN_MAX = 10
FILE_LINES_MAX = 400
FILE_LINES_HARD_MAX = 600

# File -> why it is longer than FILE_LINES_MAX.
LONG_FILES: dict[str, str] = {}


def body_lines(function: Function) -> int:
    """The length of a function from its ``def`` to its end, without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is None:
        return lines
    docstring = function.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def long_functions(tree: ast.Module, where: str) -> list[str]:
    """The functions of a file that are longer than the house allows."""
    return [
        f"{where}:{function.lineno} {function.name} has {body_lines(function)} lines"
        for function in functions_of(tree)
        if body_lines(function) > FUNCTION_LINES_MAX
    ]


def file_lengths() -> dict[str, int]:
    """The number of lines of each file of the package."""
    return {name_of(path): len(path.read_text().splitlines()) for path in files_under("src")}


def long_files(lengths: dict[str, int], excepted: dict[str, str]) -> list[str]:
    """The files that are longer than they may be."""
    return [
        f"{name} has {lines} lines"
        for name, lines in lengths.items()
        if lines > (FILE_LINES_HARD_MAX if name in excepted else FILE_LINES_MAX)
    ]


def test_no_function_is_long() -> None:
    found = [
        line
        for path in files_under("src", "tests", "bench", "docs")
        for line in long_functions(tree_of(path), name_of(path))
    ]
    assert found == []


def test_a_long_function_is_found() -> None:
    planted = "def long():\n" + "    x = 1\n" * FUNCTION_LINES_MAX
    assert long_functions(ast.parse(planted), "planted") == ["planted:1 long has 71 lines"]
    assert long_functions(ast.parse(planted.replace("    x = 1\n", "", 1)), "planted") == []


def test_most_functions_are_short() -> None:
    lengths = [
        body_lines(function) for path in files_under("src") for function in functions_of(tree_of(path))
    ]
    assert len(lengths) > 50
    assert statistics.median(lengths) < FUNCTION_LINES_MEDIAN_MAX


def test_no_file_is_long() -> None:
    assert long_files(file_lengths(), LONG_FILES) == []


def test_a_long_file_is_found() -> None:
    lengths = {"short.py": 400, "long.py": 401, "table.py": 600, "huge.py": 601}
    excepted = {"table.py": "one table", "huge.py": "one table"}
    assert long_files(lengths, excepted) == ["long.py has 401 lines", "huge.py has 601 lines"]


def test_each_exception_is_still_one_and_says_why() -> None:
    lengths = file_lengths()
    assert [name for name in LONG_FILES if lengths.get(name, 0) <= FILE_LINES_MAX] == []
    assert all(len(reason.split()) >= 3 for reason in LONG_FILES.values())
