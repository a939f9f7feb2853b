"""A new store is its owner's alone, whatever the umask; one that is there keeps its modes."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from nonbis.errors import StoreUnsafe
from nonbis.stores import sqlite_files
from tests.stores.stands import opened

FILES = {"s.db", "s.db-wal", "s.db-shm", "s.db.nonbis-lock"}


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """What the process takes away from the modes of new files."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """The modes of all files and folders in a folder, by their path in it."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in sorted(folder.rglob("*"))
    }


async def modes_of_a_store_in_use(folder: Path) -> dict[str, int]:
    """The modes while a machine is registered."""
    store = await opened(folder / "s.db")
    try:
        await store.register(node="n", pid=1, kind="serve", at_ms=1)
        return modes(folder)
    finally:
        await store.close()


def test_what_is_new_is_private(umask: int, tmp_path: Path) -> None:
    found = asyncio.run(modes_of_a_store_in_use(tmp_path))
    assert set(found) > {*FILES, "s.db.machines"}
    assert {name: mode for name, mode in found.items() if name.endswith(".machines")} == {
        "s.db.machines": 0o700
    }
    assert {mode for name, mode in found.items() if name != "s.db.machines"} == {0o600}


def test_a_store_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    asyncio.run(modes_of_a_store_in_use(tmp_path))
    (tmp_path / "s.db").chmod(0o640)
    found = asyncio.run(modes_of_a_store_in_use(tmp_path))
    assert {found[name] for name in ("s.db", "s.db-wal", "s.db-shm")} == {0o640}


def test_a_mode_that_lets_others_read_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sqlite_files, "PRIVATE_FILE", 0o644)
    before = os.umask(0o022)
    try:
        found = asyncio.run(modes_of_a_store_in_use(tmp_path))
    finally:
        os.umask(before)
    assert {found[name] for name in FILES} == {0o644}


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_gone_is_told_as_such(tmp_path: Path, replaced: bool) -> None:
    async def watched() -> None:
        store = await opened(tmp_path / "s.db")
        (tmp_path / "s.db").rename(tmp_path / "away.db")
        if replaced:
            (tmp_path / "s.db").touch()
        try:
            await store.doctor()
        finally:
            await store.close()

    with pytest.raises(StoreUnsafe, match=r"s\.db was removed or replaced while it was open"):
        asyncio.run(watched())
