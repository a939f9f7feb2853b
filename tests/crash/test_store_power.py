"""Power cuts under the SQLite store: what was acknowledged is there afterwards.

``NONBIS_LONG=1`` makes 10,000 cuts.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import apsw
import pytest

from nonbis.core.messages import Kind, Record
from nonbis.stores import sqlite_link
from tests.conformance.places import runs
from tests.conformance.workload import name, new_machine
from tests.crash.lossy import Disk, LossyVfs
from tests.stores.stands import sqlite_store

CUTS = 10_000 if os.environ.get("NONBIS_LONG") else 200
OPERATIONS = 120 if os.environ.get("NONBIS_LONG") else 40


class Life:
    """A store on a disk whose power is cut again and again, after each answer and inside each commit.

    Attributes:
        cuts: how often the power was cut.
        lost: how often something that was acknowledged was not there afterwards.
        corrupt: how often the file was not sound afterwards.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.disk = Disk()
        self.acknowledged: dict[int, int] = {}
        self.images: list[tuple[dict[str, bytes], dict[int, int]]] = []
        self.cuts = self.lost = self.corrupt = 0

    async def live(self, operations: int, cuts_each: int) -> tuple[int, int]:
        """Claim and finish one by one, with some cuts inside each commit; returns (lost, corrupt)."""
        vfs = LossyVfs(self.disk)
        try:
            async with sqlite_store(self.folder / "s.db") as store:
                machine = await new_machine(store)
                self.disk.before_sync = lambda: self._cut_power(cuts_each)
                for number in range(operations):
                    claim = machine.claim(name(number))
                    finish = machine.advance(claim.record, Kind.REPORT_APPLIED, outcome=bytes(300))
                    await store.claim([claim])
                    self._answered(claim.record)
                    await store.advance([finish])
                    self._answered(finish.record)
                self.disk.before_sync = None
        finally:
            vfs.unregister()
        return self.lost, self.corrupt

    def _cut_power(self, times: int) -> None:
        """Keep what would be found on the disk now, so or so, and what had been acknowledged."""
        for _ in range(times):
            self.images.append((self.disk.after_power_cut(self.chance), dict(self.acknowledged)))

    def _answered(self, record: Record) -> None:
        self.acknowledged[record.id] = record.stamp
        self._cut_power(1)
        for image, acknowledged in self.images:
            self._judge(image, acknowledged)
        self.images.clear()

    def _judge(self, image: dict[str, bytes], acknowledged: dict[int, int]) -> None:
        for suffix in ("", "-wal", "-shm"):
            (self.folder / f"cut.db{suffix}").unlink(missing_ok=True)
        for file, content in image.items():
            if not file.endswith("-shm"):
                (self.folder / file.replace("s.db", "cut.db")).write_bytes(content)
        found, sound = _recovered(self.folder / "cut.db")
        self.cuts += 1
        self.lost += any(found.get(number, 0) < stamp for number, stamp in acknowledged.items())
        self.corrupt += not sound


def _recovered(path: Path) -> tuple[dict[int, int], bool]:
    """The stamps that a start after the cut finds, and whether the file is sound."""
    connection = apsw.Connection(str(path), vfs="unix")
    try:
        found = dict(connection.execute("select id, stamp from operation").fetchall())
        return found, connection.execute("pragma integrity_check").get == "ok"
    except apsw.Error:
        return {}, False
    finally:
        connection.close()


@runs
async def test_what_was_acknowledged_survives_power_cuts(tmp_path: Path) -> None:
    life = Life(tmp_path, seed=1)
    assert await life.live(OPERATIONS, CUTS // OPERATIONS // 2) == (0, 0)
    assert life.cuts >= CUTS


def _with_pragma(monkeypatch: pytest.MonkeyPatch, name: str, asked: str, wanted: object) -> None:
    given = tuple((n, asked, wanted) if n == name else (n, a, w) for n, a, w in sqlite_link._PRAGMAS)
    monkeypatch.setattr(sqlite_link, "_PRAGMAS", given)


@runs
async def test_planted_synchronous_normal_loses_acknowledged_rows(tmp_path: Path, monkeypatch) -> None:
    _with_pragma(monkeypatch, "synchronous", "normal", 1)
    life = Life(tmp_path, seed=1)
    await life.live(30, 1)
    assert life.lost > life.cuts // 2


@runs
async def test_power_cuts_across_checkpoints(tmp_path: Path, monkeypatch) -> None:
    """The log is copied into the database every few pages, so cuts also fall into that."""
    _with_pragma(monkeypatch, "wal_autocheckpoint", "8", 8)
    life = Life(tmp_path, seed=2)
    assert await life.live(30, 2) == (0, 0)


def test_the_disk_keeps_what_was_synced_and_half_of_the_rest() -> None:
    disk = Disk()
    disk.write("a", 0, b"x" * SECTORS * 512)
    disk.sync("a")
    disk.write("a", 0, b"y" * SECTORS * 512)
    after = disk.after_power_cut(random.Random(1))["a"]
    kept = sum(after[start] == ord("y") for start in range(0, len(after), 512))
    assert len(after) == SECTORS * 512
    assert 0.3 * SECTORS < kept < 0.7 * SECTORS
    disk.sync("a")
    assert disk.after_power_cut(random.Random(2))["a"] == b"y" * SECTORS * 512


SECTORS = 200
