"""Group commit, the handshake, poisoned batches, callers that leave."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nonbis.core.messages import Kind
from nonbis.errors import StoreError
from nonbis.ports import Advanced, Claimed, Verdict
from nonbis.stores import sqlite_writer
from tests.conformance.places import runs
from tests.conformance.workload import claimed, name, new_machine, replace
from tests.stores.stands import Counting, meddle, opened, sqlite_store


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
