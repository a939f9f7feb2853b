"""Where the conformance suite finds its stores: one place for each kind of store.

A place opens any number of handles on the same data. To put another store under the whole suite, add
its place to ``PLACES``.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.ports import Store
from nonbis.stores.memory import MemoryStore
from nonbis.stores.sqlite import SqliteStore


class Place(Protocol):
    """One set of data and its handles."""

    async def open(self) -> Store:
        """A handle on the data of this place; every call gives another one where the store can."""

    async def close(self) -> None:
        """Close all handles."""


class MemoryPlace:
    """One store in memory: all handles are the same."""

    def __init__(self, _: Path) -> None:
        self.store = MemoryStore(entropy=SystemEntropy())

    async def open(self) -> Store:
        return self.store

    async def close(self) -> None:
        await self.store.close()


class SqlitePlace:
    """One SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self.handles: list[SqliteStore] = []

    async def open(self) -> Store:
        store = await SqliteStore.open(self.path, clock=SystemClock(), entropy=SystemEntropy())
        self.handles.append(store)
        return store

    async def close(self) -> None:
        for store in self.handles:
            await store.close()


PLACES: dict[str, Callable[[Path], Place]] = {"memory": MemoryPlace, "sqlite": SqlitePlace}


def runs(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A plain test of a coroutine."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run
