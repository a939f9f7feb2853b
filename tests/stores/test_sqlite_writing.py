"""Group commit, the handshake, poisoned batches, lost answers and a store that can't write."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from nonbis.core.messages import Kind
from nonbis.errors import AnswerLost, StoreDamaged, StoreError, StoreUnavailable
from nonbis.ports import Advanced, Claimed, Verdict
from nonbis.stores import sqlite_writer
from tests.conformance.places import runs
from tests.conformance.workload import claimed, name, new_machine, replace
from tests.stores.stands import in_child, meddle, opened, said_by_child, sqlite_store


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


@runs
async def test_what_gathers_during_a_commit_is_one_transaction(tmp_path: Path, monkeypatch) -> None:
    counting = Counting()
    meddle(monkeypatch, counting)
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        counting.words.clear()
        counting.gate.clear()
        first = asyncio.create_task(store.claim([machine.claim(name(0))]))
        while not counting.words["commit"]:
            await asyncio.sleep(0)
        others = [asyncio.create_task(store.claim([machine.claim(name(n))])) for n in range(1, 65)]
        await asyncio.sleep(0)
        counting.gate.set()
        assert await first == [Claimed(None)]
        assert await asyncio.gather(*others) == [[Claimed(None)]] * 64
        assert counting.words["commit"] == 2
        # One statement of each kind for 64 claims, not 64.
        assert counting.words["insert"] == 4


async def _two_groups(path: Path, counting: Counting) -> int:
    """Ten callers claim, ten others come while that commits, each finishes as soon as it may.

    The number of the transaction in which the first finishes are.
    """
    async with sqlite_store(path) as store:
        machine = await new_machine(store)
        counting.words.clear()
        counting.gate.clear()

        async def caller(number: int) -> None:
            record = await claimed(store, machine, number)
            await asyncio.sleep(0)  # the rail of this caller
            [answer] = await store.advance([machine.advance(record, Kind.REPORT_APPLIED)])
            assert answer.verdict is Verdict.WON

        first = [asyncio.create_task(caller(number)) for number in range(10)]
        while not counting.words["commit"]:
            await asyncio.sleep(0)
        second = [asyncio.create_task(caller(number)) for number in range(10, 20)]
        await asyncio.sleep(0)
        counting.gate.set()
        await asyncio.gather(*first, *second)
        return counting.advanced_in


SETTLE = sqlite_writer._settle
LOOP_BUSY_SECONDS = 0.02


def _settle_on_a_busy_loop(loop: Any, pieces: list[sqlite_writer.Piece], event: threading.Event) -> None:
    time.sleep(LOOP_BUSY_SECONDS)
    SETTLE(loop, pieces, event)


def _settle_without_handshake(loop: Any, pieces: list[sqlite_writer.Piece], event: threading.Event) -> None:
    event.set()
    _settle_on_a_busy_loop(loop, pieces, event)


@pytest.mark.parametrize(
    ("settle", "transaction"),
    [(_settle_on_a_busy_loop, 2), (_settle_without_handshake, 3)],
    ids=["handshake", "planted: no handshake"],
)
@runs
async def test_finishes_join_the_next_transaction(tmp_path, monkeypatch, settle, transaction) -> None:
    counting = Counting()
    meddle(monkeypatch, counting)
    monkeypatch.setattr(sqlite_writer, "_settle", settle)
    assert await _two_groups(tmp_path / "s.db", counting) == transaction


@runs
async def test_a_lone_call_waits_for_no_timer(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        times = []
        for number in range(20):
            begun = time.perf_counter()
            await claimed(store, machine, number)
            times.append(time.perf_counter() - begun)
        assert sorted(times)[3] < sqlite_writer.HANDSHAKE_SECONDS


@runs
async def test_a_loop_that_stopped_does_not_hold_the_writer(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    machine = await new_machine(store)

    def other_loop() -> None:
        async def hand_in_and_leave() -> None:
            store._writer.hand_in(claims=[machine.claim(name(1))])

        asyncio.run(hand_in_and_leave())

    await asyncio.to_thread(other_loop)
    await claimed(store, machine, 2)
    assert await store.find(name(1)) is not None
    await store.close()


@runs
async def test_the_loop_goes_on_while_a_write_waits(tmp_path: Path, monkeypatch) -> None:
    counting = Counting()
    meddle(monkeypatch, counting)
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        counting.gate.clear()
        task = asyncio.create_task(claimed(store, machine, 1))
        for _ in range(1000):
            await asyncio.sleep(0)
        assert not task.done()
        assert await store.find(name(1)) is None
        counting.gate.set()
        await task


@runs
async def test_one_poisoned_piece_spoils_no_other(tmp_path: Path, monkeypatch) -> None:
    counting = Counting()
    meddle(monkeypatch, counting)
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        good = [machine.claim(name(number)) for number in range(1, 9)]
        bad = machine.claim(name(99))
        bad = replace(bad, record=replace(bad.record, attempt=0))
        record = await claimed(store, machine, 50)
        advance = machine.advance(record, Kind.REPORT_APPLIED)
        counting.gate.clear()
        first = asyncio.create_task(claimed(store, machine, 0))
        await asyncio.sleep(0.05)
        tasks = [asyncio.create_task(store.claim([claim])) for claim in (*good[:4], bad, *good[4:])]
        finish = asyncio.create_task(store.advance([advance]))
        await asyncio.sleep(0)
        counting.gate.set()
        await first
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [answer for answer in answers if answer != [Claimed(None)]] == [answers[4]]
        assert isinstance(answers[4], StoreError)
        assert "attempt_is_positive" in str(answers[4])
        assert f"{machine.number}:" in str(answers[4])
        assert await finish == [Advanced(Verdict.WON, advance.record)]
        assert await store.find(name(99)) is None
        assert await store.claim(good) == [Claimed(None)] * 8


@runs
async def test_a_batch_of_one_caller_stands_or_falls_as_one(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        good, bad = machine.claim(name(1)), machine.claim(name(2))
        bad = replace(bad, record=replace(bad.record, digest=b"short"))
        with pytest.raises(StoreError, match=r"one of 2 rows \(1:1 to 1:2\) was refused"):
            await store.claim([good, bad])
        assert await store.find(name(1)) is None
        assert await store.claim([good]) == [Claimed(None)]


@runs
async def test_a_value_that_does_not_fit_is_an_error_of_that_row(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        bad = machine.claim(name(2))
        bad = replace(bad, record=replace(bad.record, refusals=1 << 70))
        with pytest.raises(StoreError, match="the row 1:1 was refused") as caught:
            await store.claim([bad])
        assert type(caught.value) is StoreError
        await claimed(store, machine, 3)


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


@runs
async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    machine = await new_machine(store)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.claim([machine.claim(name(1))])
    with pytest.raises(StoreError, match="closed"):
        await store.find(name(1))


@runs
async def test_close_carries_out_what_was_handed_in(tmp_path: Path) -> None:
    store = await opened(tmp_path / "s.db")
    machine = await new_machine(store)
    tasks = [asyncio.create_task(store.claim([machine.claim(name(n))])) for n in range(30)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*tasks) == [[Claimed(None)]] * 30


@runs
async def test_a_caller_that_left_does_not_stop_the_write(tmp_path: Path, monkeypatch) -> None:
    counting = Counting()
    meddle(monkeypatch, counting)
    async with sqlite_store(tmp_path / "s.db") as store:
        machine = await new_machine(store)
        counting.gate.clear()
        left = asyncio.create_task(store.claim([machine.claim(name(1))]))
        stays = asyncio.create_task(store.claim([machine.claim(name(2))]))
        await asyncio.sleep(0.02)
        left.cancel()
        counting.gate.set()
        assert await stays == [Claimed(None)]
        assert left.cancelled() or await asyncio.gather(left, return_exceptions=True)
        assert await store.find(name(1)) is not None


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
