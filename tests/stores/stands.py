"""What the tests of the SQLite store share: a store for a test, children, and a connection that fails."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.stores.sqlite import SqliteStore
from nonbis.stores.sqlite_link import Link

ROOT = Path(__file__).parents[2]


async def opened(path: Path, **settings: Any) -> SqliteStore:
    """The store in this file; the caller closes it."""
    return await SqliteStore.open(path, clock=SystemClock(), entropy=SystemEntropy(), **settings)


@contextlib.asynccontextmanager
async def sqlite_store(path: Path, **settings: Any) -> AsyncIterator[SqliteStore]:
    """The store in this file, closed at the end."""
    store = await opened(path, **settings)
    try:
        yield store
    finally:
        await store.close()


def in_child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another Python process; its arguments are in ``sys.argv[1:]``."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def said_by_child(code: str, *arguments: object) -> str:
    """What another Python process prints; it must end well."""
    child = in_child(code, *arguments)
    said, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    return said.strip()


class Meddling:
    """A connection whose statements can be made to fail. ``plan`` is asked before each one."""

    def __init__(self, real: apsw.Connection, plan: Callable[[str, Callable[[], Any]], Any]) -> None:
        self._real = real
        self._plan = plan

    def execute(self, statement: str, *parameters: Any) -> Any:
        return self._plan(statement, lambda: self._real.execute(statement, *parameters))

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._real, attribute)


def meddle(monkeypatch: pytest.MonkeyPatch, plan: Callable[[str, Callable[[], Any]], Any]) -> None:
    """Every connection that a store asks for from now on goes through ``plan``."""
    connected = Link.connected

    def meddled(self: Link, *, create: bool = False) -> Any:
        return Meddling(connected(self, create=create), plan)

    monkeypatch.setattr(Link, "connected", meddled)


class Counting:
    """Counts statements by their first word and holds commits back while the gate is shut."""

    def __init__(self) -> None:
        self.words: Counter[str] = Counter()
        self.advanced_in = 0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, statement: str, run: Callable[[], Any]) -> Any:
        self.words[statement.split()[0]] += 1
        if "update operation" in statement and not self.advanced_in:
            self.advanced_in = self.words["begin"]
        if statement == "commit":
            assert self.gate.wait(20)
        return run()


class FailingCommit:
    """The next COMMIT raises: after it was done, or instead of it."""

    def __init__(self, error: Exception, *, done: bool) -> None:
        self.error: Exception | None = None
        self.planned = error
        self.done = done

    def arm(self) -> None:
        self.error = self.planned

    def __call__(self, statement: str, run: Callable[[], Any]) -> Any:
        if statement != "commit" or self.error is None:
            return run()
        error, self.error = self.error, None
        if self.done:
            run()
        raise error
