"""Docstrings, reasons beside every silenced check, a pure core, and tests that can fail."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tidy.source import files_under, functions_of, name_of, tree_of

Rule = Callable[[ast.Module, str], list[str]]


def public_nodes(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """The module and each public class, function and method that stands at the top or in a class."""
    yield tree, "the module"
    for node in tree.body:
        yield from _public(node)


def _public(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    if not named or node.name.startswith("_"):
        return
    yield node, node.name
    if isinstance(node, ast.ClassDef):
        for member in node.body:
            yield from _public(member)


def without_docstring(tree: ast.Module, text: str) -> list[str]:
    """Public things that don't say what they are."""
    return [name for node, name in public_nodes(tree) if not ast.get_docstring(node)]  # type: ignore[arg-type]  # ast's own types are too wide


SILENCED = re.compile(r"#\s*(?:type:\s*ignore|noqa)\b(.*)")
CODE_AND_REASON = re.compile(r"(\[[\w, -]+\]|:\s*[A-Z]+\d+\b(,\s*[A-Z]+\d+\b)*)[\s#(-]*\w+")


def silenced_without_reason(tree: ast.Module, text: str) -> list[str]:
    """``type: ignore`` and ``noqa`` need a code and, behind it, a reason."""
    return [
        f"line {token.start[0]}: {token.string}"
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
        and (mark := SILENCED.match(token.string))
        and not CODE_AND_REASON.match(mark[1])
    ]


def skips_without_reason(tree: ast.Module, text: str) -> list[str]:
    """``skip``, ``skipif`` and ``xfail`` say why, in at least three words."""
    return [
        f"line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.Attribute) and _skip_name(node) and not _has_reason(tree, node)
    ]


def _skip_name(node: ast.Call | ast.Attribute) -> str | None:
    target = node.func if isinstance(node, ast.Call) else node
    spelled = ast.unparse(target)
    return spelled if re.fullmatch(r"pytest\.(mark\.)?(skip|skipif|xfail|importorskip)", spelled) else None


def _has_reason(tree: ast.Module, node: ast.Call | ast.Attribute) -> bool:
    if isinstance(node, ast.Attribute):
        return any(isinstance(call, ast.Call) and call.func is node for call in ast.walk(tree))
    given = [keyword.value for keyword in node.keywords if keyword.arg in {"reason", "msg"}]
    if not str(_skip_name(node)).endswith("skipif"):
        given += node.args[-1:]
    return any(len(ast.unparse(value).split()) >= 3 for value in given)


# A case is one of a suite's checks, handed to the test that runs them all.
CHECKS = re.compile(r"^_?(assert|check|exercise|expect|run_state_machine|case$)")


def checks_something(node: ast.AST) -> bool:
    """An assertion, an expected error, or a call of something whose name says that it checks."""
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    spelled = ast.unparse(node.func)
    return spelled in {"pytest.raises", "pytest.fail", "pytest.warns"} or bool(
        CHECKS.match(spelled.rpartition(".")[2])
    )


def assertionless(tree: ast.Module, text: str) -> list[str]:
    """Test functions that can't fail but by accident."""
    return [
        function.name
        for function in functions_of(tree)
        if function.name.startswith("test_")
        and not any(checks_something(node) for node in ast.walk(function))
    ]


IMPURE_CALLS = {"open", "print", "input", "exec", "eval"}
IMPURE_METHODS = {"now", "utcnow", "today"}


def impure_calls(tree: ast.Module, text: str) -> list[str]:
    """Calls by which a pure module would read the world without an import that the contract sees."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            target = node.func
            direct = isinstance(target, ast.Name) and target.id in IMPURE_CALLS
            method = isinstance(target, ast.Attribute) and target.attr in IMPURE_METHODS
            if direct or method:
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


RULES: dict[str, tuple[Rule, tuple[str, ...], str]] = {
    "public things have a docstring": (without_docstring, ("src",), '"""m"""\ndef pay(): return 1\n'),
    "a silenced check has its reason": (
        silenced_without_reason,
        ("src", "tests", "bench", "docs"),
        "import os  # noqa: F401\n",
    ),
    "a skipped test has its reason": (
        skips_without_reason,
        ("tests",),
        "import pytest\n@pytest.mark.skip\ndef test_a(): assert 1\n",
    ),
    "a test asserts": (assertionless, ("tests",), "def test_a():\n    print(1)\n"),
    "the core is pure": (impure_calls, ("src/nonbis/core",), "import datetime\ndatetime.datetime.now()\n"),
}


def broken(rule: Rule, path: Path) -> list[str]:
    """What a rule finds in a file."""
    return [f"{name_of(path)}: {what}" for what in rule(tree_of(path), path.read_text())]


@pytest.mark.parametrize("name", RULES)
def test_the_rule_holds(name: str) -> None:
    rule, folders, _ = RULES[name]
    assert [line for path in files_under(*folders) for line in broken(rule, path)] == []


@pytest.mark.parametrize("name", RULES)
def test_the_rule_can_fail(name: str) -> None:
    rule, _, planted = RULES[name]
    assert len(rule(ast.parse(planted), planted)) == 1


def test_a_reason_satisfies() -> None:
    with_reason = "x = 1  # noqa: F401 - kept for its side effect\n"
    assert silenced_without_reason(ast.parse(with_reason), with_reason) == []
    skipped = "import pytest\n@pytest.mark.skip(reason='this kernel has no clone')\ndef test_a(): assert 1\n"
    assert skips_without_reason(ast.parse(skipped), skipped) == []
