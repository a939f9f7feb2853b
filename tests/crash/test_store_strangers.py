"""A second SQLite library on the file, in the same process: what it does, and what holds against it.

The store's write is stopped just before its COMMIT. There the stranger opens, reads and closes, which
silently removes the store's locks, and another process claims the same name. If nobody else has the
store open, the stranger's close removes the log as well; with a bystander it does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nonbis.errors import AnswerLost, StoreUnsafe
from nonbis.stores.sqlite_link import Link
from tests.conformance.places import runs
from tests.conformance.suite_machines import beat
from tests.conformance.workload import Machine, name, new_machine
from tests.stores.stands import in_child, meddle, sqlite_store

RIVAL = """
import asyncio, sys
from nonbis.stores.sqlite_files import LockFile
from tests.conformance.workload import Machine, name
from tests.stores.stands import sqlite_store
if sys.argv[2] == "without a lock of our own":
    LockFile.take = lambda self: True
async def main():
    print("ready", flush=True)
    async with sqlite_store(sys.argv[1]) as store:
        [answer] = await store.claim([Machine(9).claim(name(1))])
        print("acknowledged" if answer.existing is None else "known", flush=True)
asyncio.run(main())
"""


BYSTANDER = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("select count(*) from operation").fetchall()
print("ready", flush=True)
sys.stdin.read()
"""


class Stopped:
    """Stops the first COMMIT that it is armed for and lets the stranger and the rival in."""

    def __init__(self, path: Path, rival: str) -> None:
        self.path = path
        self.rival = rival
        self.armed = False
        self.child: subprocess.Popen[str] | None = None
        self.said = ""

    def __call__(self, statement: str, run: Callable[[], Any]) -> Any:
        if statement == "commit" and self.armed:
            self.armed = False
            stranger = sqlite3.connect(self.path)
            stranger.execute("select count(*) from operation").fetchone()
            stranger.close()
            self._let_rival_in()
        return run()

    def _let_rival_in(self) -> None:
        self.child = in_child(RIVAL, self.path, self.rival)
        assert self.child.stdout is not None
        assert self.child.stdout.readline() == "ready\n"
        if self.rival == "without a lock of our own":
            self.said = self.child.stdout.readline().strip()

    def end(self) -> str:
        """What the rival said of its claim."""
        assert self.child is not None
        rest, _ = self.child.communicate(timeout=60)
        return self.said or rest.strip()


@contextlib.contextmanager
def _bystander(path: Path, there: bool) -> Iterator[None]:
    if not there:
        yield
        return
    child = in_child(BYSTANDER, path)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    try:
        yield
    finally:
        child.communicate(timeout=60)


async def _both_claim(path: Path, patch: pytest.MonkeyPatch, rival: str, *, bystander: bool) -> list[str]:
    """What the store and its rival in another process are told about the same name."""
    stopped = Stopped(path, rival)
    async with sqlite_store(path):
        pass
    meddle(patch, stopped)
    with _bystander(path, bystander):
        async with sqlite_store(path) as store:
            stopped.armed = True
            claim = Machine(8).claim(name(1))
            try:
                [answer] = await store.claim([claim])
                mine = "acknowledged" if answer.existing is None else "known"
            except AnswerLost:
                mine = "lost"
                with pytest.raises(StoreUnsafe, match="restart the process"):
                    await store.claim([claim])
            return [mine, await asyncio.to_thread(stopped.end)]


@runs
async def test_planted_unprotected_a_name_is_acknowledged_twice(tmp_path, monkeypatch) -> None:
    """Why all this is needed: with our own lock and look taken away both hear that the name is theirs."""
    monkeypatch.setattr(Link, "intact", lambda self: True)
    told = await _both_claim(tmp_path / "s.db", monkeypatch, "without a lock of our own", bystander=False)
    assert told == ["acknowledged", "acknowledged"]


@runs
async def test_a_log_that_was_removed_is_noticed_before_anything_is_acknowledged(
    tmp_path, monkeypatch
) -> None:
    told = await _both_claim(tmp_path / "s.db", monkeypatch, "with it", bystander=False)
    assert told == ["lost", "acknowledged"]


@runs
async def test_the_lock_of_our_own_holds_where_sqlite_s_are_gone(tmp_path, monkeypatch) -> None:
    told = await _both_claim(tmp_path / "s.db", monkeypatch, "with it", bystander=True)
    assert told == ["acknowledged", "known"]


@runs
async def test_the_stranger_is_found_while_it_is_there_and_after_it_left(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with sqlite_store(path) as store:
        machine = await new_machine(store)
        await beat(store, machine.number, 0)
        stranger = sqlite3.connect(path)
        stranger.execute("select count(*) from operation").fetchone()
        with pytest.raises(StoreUnsafe, match="two SQLite libraries on one file"):
            await beat(store, machine.number, 1)
        with pytest.raises(StoreUnsafe):
            await store.claim([machine.claim(name(1))])
        stranger.close()
        with pytest.raises(StoreUnsafe, match="opened and closed"):
            await beat(store, machine.number, 1)
        with pytest.raises(StoreUnsafe):
            await store.claim([machine.claim(name(1))])
