"""SQL statements from named files: ``-- name: xyz`` starts one; ``{rows: (?, ?)}`` is repeated.

A row group stands for as many rows as a call needs, so that a batch is one statement and not one
statement per row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from types import SimpleNamespace
from typing import Final

_NAME: Final = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)
_ROWS: Final = re.compile(r"\{rows: (\([?, ]+\))\}")
_SIZES: Final = (*range(1, 9), *(step * 2**power for power in range(1, 9) for step in (5, 6, 7, 8)))
"""Rows of one execution: 1 to 8, then four sizes for each doubling. A few texts serve every batch, so
that their prepared form is kept; each batch needs two or three executions at most."""
_TEXT_MAX: Final = 12_000
"""Longer statements take longer per row again (measured), and apsw keeps none beyond 16 KiB prepared."""
_PARAMETERS_MAX: Final = 32_766
"""The most parameters of one SQLite statement."""


class Statement:
    """One statement, whose row group, if it has one, is written out for a number of rows."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        group = _ROWS.search(text)
        self._head = text[: group.start()] if group else text
        self._tail = text[group.end() :] if group else ""
        self._row = group.group(1).replace(" ", "") if group else ""
        self.sizes = tuple(size for size in reversed(_SIZES) if self._fits(size)) if group else ()
        self._texts: dict[int, str] = {}

    def __str__(self) -> str:
        return self._head

    def rows(self, count: int) -> str:
        """The statement with its group repeated ``count`` times."""
        text = self._texts.get(count)
        if text is None:
            text = self._texts[count] = self._head + ",".join([self._row] * count) + self._tail
        return text

    def chunks(self, count: int) -> Iterator[slice]:
        """``count`` rows cut into as few executions as the kept texts allow."""
        start = 0
        for size in self.sizes:
            while count - start >= size:
                yield slice(start, start + size)
                start += size

    def _fits(self, size: int) -> bool:
        text = len(self._head) + len(self._tail) + size * (len(self._row) + 1)
        return text <= _TEXT_MAX and size * self._row.count("?") <= _PARAMETERS_MAX


def parse(source: str) -> dict[str, Statement]:
    """The statements of one file by name; raises ValueError where a name stands twice."""
    parts = _NAME.split(source)
    if parts[0].strip():
        raise ValueError("a statement file begins with a name")
    found: dict[str, Statement] = {}
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        if name in found:
            raise ValueError(f"the statement {name} stands twice")
        found[name] = Statement(name, text.strip())
    return found


def load(dialect: str, *files: str) -> SimpleNamespace:
    """The statements of some files of one dialect, as attributes."""
    folder = resources.files("nonbis.stores") / "sql" / dialect
    found: dict[str, Statement] = {}
    for file in files:
        found.update(parse((folder / file).read_text("utf-8")))
    return SimpleNamespace(**found)
