"""The engine over a real file: threads, locks and commits that no virtual time knows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.core.messages import Reason, State
from nonbis.core.names import Digester
from nonbis.core.payments import SCOPE, encode_transfer, transfer_fingerprint
from nonbis.core.policy import Policy
from nonbis.engine.effects import PaymentEffect, PaymentEffects
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Answer, Call, Standing
from nonbis.errors import StoreUnavailable
from nonbis.stores.sqlite import SqliteStore
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import transfer_of
from tests.simulation.rail import Point, ScriptedRail, declined, waits


class Process:
    """One engine with a store of its own on the shared file."""

    def __init__(self, store: SqliteStore, rail: ScriptedRail, policy: Policy) -> None:
        self.store = store
        self.rail = rail
        self.engine = Engine(store, PaymentEffects(rail), clock=SystemClock(), policy=policy)
        self._digester = Digester(store.key, "", SCOPE)

    @classmethod
    async def open(cls, path: Path, rail: ScriptedRail, **policy: float) -> Process:
        store = await SqliteStore.open(path, clock=SystemClock(), entropy=SystemEntropy())
        process = cls(store, rail, Policy(**policy))
        await process.engine.start()
        return process

    async def pay(self, name: str = "a", *, wait_seconds: float = 0.0) -> Answer:
        transfer = transfer_of()
        call = Call(
            tenant="",
            scope=SCOPE,
            digest=self._digester.digest(name),
            fingerprint=transfer_fingerprint(transfer),
            request=encode_transfer(transfer),
        )
        return await self.engine.run(call, PaymentEffect(self.rail, transfer), wait_seconds=wait_seconds)

    async def row(self, name: str = "a"):
        stored = await self.store.find(self._digester.digest(name))
        assert stored is not None
        return stored.record

    async def close(self) -> None:
        await self.engine.stop()
        await self.store.close()


def on_file(test: Callable[[Path], Awaitable[None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        asyncio.run(asyncio.wait_for(test(tmp_path / "store.db"), 60))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_file
async def test_fifty_calls_in_each_of_two_processes_send_once(path: Path) -> None:
    rail = ScriptedRail()
    processes = [await Process.open(path, rail) for _ in range(2)]
    answers = await asyncio.gather(*(process.pay() for process in processes for _ in range(50)))
    assert len(rail.calls) == 1
    told = {answer.standing for answer in answers}
    assert told <= {Standing.FINAL, Standing.IN_PROGRESS}
    replays = await asyncio.gather(*(process.pay() for process in processes for _ in range(50)))
    assert len({replay.outcome.body for replay in replays}) == 1
    assert len(rail.calls) == 1
    for process in processes:
        await process.close()


@on_file
async def test_two_processes_race_for_retries_and_each_is_sent_once(path: Path) -> None:
    rail = ScriptedRail()
    processes = [await Process.open(path, rail) for _ in range(2)]
    for number in range(40):
        name = f"n{number}"
        rail.script(declined)
        assert (await processes[0].pay(name)).record.reason is Reason.DECLINED
        await asyncio.gather(*(process.pay(name) for process in processes for _ in range(3)))
        assert len(rail.effects) == number + 1
    for process in processes:
        await process.close()


@on_file
async def test_many_names_at_once_share_commits_and_all_end(path: Path) -> None:
    rail = ScriptedRail()
    process = await Process.open(path, rail)
    answers = await asyncio.gather(*(process.pay(f"n{number}") for number in range(1000)))
    assert {answer.record.state for answer in answers} == {State.APPLIED}
    assert len(rail.effects) == len({effect.reference for effect in rail.effects}) == 1000
    assert len({answer.record.id for answer in answers}) == 1000
    await process.close()


@on_file
async def test_the_send_of_a_process_that_died_is_in_doubt_for_the_next_one(path: Path) -> None:
    rail = ScriptedRail()
    first = await Process.open(path, rail, store_wait_seconds=0.5, stop_seconds=0.1)
    wire = Point()
    rail.script(waits(before_effect=wire))
    paying = asyncio.create_task(first.pay())
    await wire.reached.wait()
    await first.store.close()
    later = await Process.open(path, rail)
    sweeper = Sweeper(later.engine)
    await sweeper.round()
    row = await later.row()
    assert row.state is State.IN_DOUBT
    assert (await later.pay()).standing is Standing.IN_DOUBT
    assert [row.state for row in await later.store.machines()] == ["lost", "living"]
    await first.engine.stop()
    with pytest.raises(Exception, match="unknown|told|known"):
        await paying
    await later.close()
    assert len(rail.calls) == 1


@on_file
async def test_a_cancelled_call_says_nothing_about_its_commit(path: Path) -> None:
    """Time-outs at every moment of claim and outcome; a retry finds the one row, whatever it is."""
    rail = ScriptedRail()
    process = await Process.open(path, rail)
    chance = random.Random(1)
    for number in range(300):
        name = f"n{number}"
        try:
            await asyncio.wait_for(process.pay(name), chance.uniform(0, 0.003))
        except TimeoutError:
            pass
        answer = await process.pay(name, wait_seconds=10)
        assert answer.record.state is State.APPLIED
        assert len(rail.effects) == number + 1
    await process.close()


@on_file
async def test_a_store_that_is_closed_under_the_engine_sends_nothing(path: Path) -> None:
    rail = ScriptedRail()
    process = await Process.open(path, rail)
    await process.pay()
    await process.store.close()
    with pytest.raises(Exception, match="closed"):
        await process.pay("b")
    assert len(rail.calls) == 1


@on_file
async def test_a_file_that_another_writer_holds_is_told_as_away_and_served_again(path: Path) -> None:
    rail = ScriptedRail()
    process = await Process.open(path, rail)
    await process.pay()
    other = apsw.Connection(str(path))
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailable):
        await process.pay("b")
    other.execute("rollback")
    other.close()
    assert len(rail.calls) == 1
    await process.close()


@on_file
async def test_rounds_on_a_file_beat_and_find_nothing_to_do(path: Path) -> None:
    process = await Process.open(path, ScriptedRail())
    sweeper = Sweeper(process.engine)
    await process.pay()
    for _ in range(10):
        await sweeper.round()
    (row,) = await process.store.machines()
    assert row.beat == 10
    assert row.oldest_open > (await process.row()).id
    assert (await process.row()).state is State.APPLIED
    await process.close()
