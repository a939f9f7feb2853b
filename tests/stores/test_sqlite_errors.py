"""Lost answers, and a store that can't write: what each error says of the write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from nonbis.core.messages import Kind
from nonbis.errors import AnswerLost, StoreDamaged, StoreError, StoreUnavailable
from nonbis.ports import Advanced, Claimed, Verdict
from tests.conformance.places import runs
from tests.conformance.workload import claimed, name, new_machine
from tests.stores.stands import Counting, FailingCommit, in_child, meddle, said_by_child, sqlite_store

COMMIT_ERRORS = [
    apsw.IOError("disk I/O error"),
    apsw.FullError("database or disk is full"),
    apsw.BusyError("database is locked"),
    apsw.ConstraintError("constraint failed"),
    apsw.NoMemError("out of memory"),
    apsw.CorruptError("malformed"),
    MemoryError(),
]


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("error", COMMIT_ERRORS, ids=lambda error: type(error).__name__)
@runs
async def test_any_error_of_commit_is_a_lost_answer(tmp_path: Path, monkeypatch, error, done) -> None:
    failing = FailingCommit(error, done=done)
    meddle(monkeypatch, failing)
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        connection = store._links[0]._connection
        claim = machine.claim(name(1))
        failing.arm()
        with pytest.raises(AnswerLost):
            await store.claim([claim])
        assert store._links[0]._connection is None
        assert (await store.find(name(1)) is not None) == done
        assert await store.claim([claim]) == [Claimed(None)]
        assert store._links[0]._connection is not connection
        advance = machine.advance(claim.record, Kind.REPORT_UNKNOWN)
        failing.arm()
        with pytest.raises(AnswerLost):
            await store.advance([advance])
        assert await store.advance([advance]) == [Advanced(Verdict.WON, advance.record)]
        assert await store.journal(claim.record.id) == [advance.journal]
        failing.arm()
        with pytest.raises(AnswerLost):
            await store.beat(1, 0, oldest_open=1, lowest_in_flight=1, seen_age_ms=0, elapsed_ms=9, at_ms=1)
        answer = await store.beat(
            1, 0, oldest_open=1, lowest_in_flight=1, seen_age_ms=0, elapsed_ms=9, at_ms=1
        )
        assert (answer.beat, answer.age_ms) == (1, 9)


@runs
async def test_a_lost_answer_is_lost_for_every_piece(tmp_path: Path, monkeypatch) -> None:
    counting = Counting()
    lost = FailingCommit(apsw.IOError("disk I/O error"), done=True)
    meddle(monkeypatch, lambda statement, run: counting(statement, lambda: lost(statement, run)))
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        counting.gate.clear()
        tasks = [asyncio.create_task(store.claim([machine.claim(name(number))])) for number in range(5)]
        await asyncio.sleep(0.05)
        lost.arm()
        counting.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [AnswerLost] * 5
        assert len(set(map(id, answers))) == 5


STATEMENT_ERRORS = [
    (apsw.FullError("database or disk is full"), StoreUnavailable),
    (apsw.IOError("disk I/O error"), StoreUnavailable),
    (apsw.ReadOnlyError("readonly"), StoreUnavailable),
    (apsw.CantOpenError("unable to open"), StoreUnavailable),
    (apsw.BusyError("database is locked"), StoreUnavailable),
    (apsw.CorruptError("malformed"), StoreDamaged),
    (apsw.NotADBError("not a database"), StoreDamaged),
]


@pytest.mark.parametrize(("error", "expected"), STATEMENT_ERRORS, ids=lambda item: str(item)[:20])
@runs
async def test_an_error_before_commit_surely_did_nothing(tmp_path, monkeypatch, error, expected) -> None:
    armed: list[Exception] = []

    def plan(statement: str, run: Callable[[], Any]) -> Any:
        if statement.startswith("insert into request") and armed:
            raise armed.pop()
        return run()

    meddle(monkeypatch, plan)
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        claim = machine.claim(name(1))
        armed.append(error)
        with pytest.raises(StoreError) as caught:
            await store.claim([claim])
        assert type(caught.value) is expected
        assert await store.find(name(1)) is None
        assert await store.claim([claim]) == [Claimed(None)]


HOLDER = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
"""


@runs
async def test_a_store_that_stays_busy_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with sqlite_store(path, busy_seconds=0.2) as store:
        machine = await new_machine(store)
        holder = in_child(HOLDER, path)
        assert holder.stdout is not None
        await asyncio.to_thread(holder.stdout.readline)
        claim = machine.claim(name(1))
        with pytest.raises(StoreUnavailable):
            await store.claim([claim])
        assert await store.find(name(1)) is None
        await asyncio.to_thread(holder.communicate)
        assert await store.claim([claim]) == [Claimed(None)]


LOCK_HOLDER = """
import fcntl, os, sys
number = os.open(sys.argv[1] + ".nonbis-lock", os.O_RDWR)
fcntl.flock(number, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@runs
async def test_writers_exclude_each_other_by_a_lock_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with sqlite_store(path, busy_seconds=0.2) as store:
        machine = await new_machine(store)
        holder = in_child(LOCK_HOLDER, path)
        assert holder.stdout is not None
        await asyncio.to_thread(holder.stdout.readline)
        with pytest.raises(StoreUnavailable, match="another process has been writing"):
            await claimed(store, machine, 1)
        assert await store.find(name(1)) is None
        await asyncio.to_thread(holder.communicate)
        await claimed(store, machine, 2)


REOPEN = """
import apsw, sys
print(apsw.Connection(sys.argv[1]).execute("select count(*) from operation").get)
"""


@runs
async def test_a_store_whose_file_is_gone_is_not_made_anew(tmp_path: Path, monkeypatch) -> None:
    """After a lost answer the connection is opened anew, and never onto a fresh empty file."""
    failing = FailingCommit(apsw.IOError("disk I/O error"), done=True)
    meddle(monkeypatch, failing)
    path = tmp_path / "s.db"
    async with sqlite_store(path) as store:
        machine = await new_machine(store)
        claim = machine.claim(name(1))
        failing.arm()
        with pytest.raises(AnswerLost):
            await store.claim([claim])
        moved = tmp_path / "moved.db"
        path.rename(moved)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.claim([claim])
        assert not path.exists()
        moved.rename(path)
        assert await store.claim([claim]) == [Claimed(None)]
        assert said_by_child(REOPEN, path) == "1"
