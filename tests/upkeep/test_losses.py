"""Machines that are lost, that end, that come too late, and that only look so."""

from __future__ import annotations

import asyncio
import random

import pytest

from nonbis.core.machine import needs_attention
from nonbis.core.messages import Record, State
from nonbis.engine.flights import Standing
from nonbis.errors import StoreError, StoreUnavailable
from nonbis.ports import MachineRow, MachineState
from nonbis.stores.memory import Fault
from nonbis.upkeep.sweeper import OVERDUE_EVERY_ROUNDS, Sweeper
from nonbis.upkeep.watching import DeadRounds, Observer
from tests.engine.world import World, in_world, rounds
from tests.simulation.rail import Point, declined, waits


def machine(number: int, beat: int = 5) -> MachineRow:
    return MachineRow(
        id=number,
        node="n",
        pid=1,
        kind="serve",
        state=MachineState.LIVING,
        beat=beat,
        oldest_open=0,
        lowest_in_flight=0,
        registered_at_ms=0,
        changed_at_ms=0,
    )


async def hanging(world: World, engine, name: str = "a"):
    """A payment whose send never ends."""
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    task = asyncio.create_task(world.pay(engine, name))
    await wire.reached.wait()
    return task, wire


# -- who is lost


def test_a_count_that_stands_still_for_long_enough_is_lost() -> None:
    observer = Observer(10.0)
    assert observer.standing_still([machine(1)], 100.0, 100.0) == []
    assert observer.standing_still([machine(1)], 105.0, 105.0) == []
    assert observer.standing_still([machine(1)], 109.9, 109.9) == []
    assert observer.standing_still([machine(1)], 110.0, 110.0) == [machine(1)]


def test_a_count_that_moves_begins_anew() -> None:
    observer = Observer(10.0)
    for second in range(0, 100, 6):
        assert observer.standing_still([machine(1, beat=second)], second, second) == []
    assert observer.standing_still([machine(1, beat=96)], 102.0, 102.0) == []
    assert observer.standing_still([machine(1, beat=96)], 106.0, 106.0) == [machine(1, beat=96)]


def test_a_failed_beat_of_ones_own_ends_all_observations() -> None:
    observer = Observer(10.0)
    observer.standing_still([machine(1)], 100.0, 100.0)
    observer.standing_still([machine(1)], 108.0, 108.0)
    observer.forget_all()
    assert observer.standing_still([machine(1)], 112.0, 112.0) == []


def test_a_host_that_stood_still_makes_no_other_lost() -> None:
    observer = Observer(10.0)
    observer.standing_still([machine(1)], 100.0, 100.0)
    assert observer.standing_still([machine(1)], 160.0, 160.0) == []


def test_a_pause_between_the_read_and_the_clock_makes_no_other_lost() -> None:
    observer = Observer(10.0)
    observer.standing_still([machine(1)], 100.0, 100.0)
    assert observer.standing_still([machine(1)], 102.0, 160.0) == []


def test_dead_machines_are_looked_at_again_and_again_but_ever_rarer() -> None:
    dead = DeadRounds(2.0)
    dead.add(machine(1))
    looks = [second for second in range(3000) if dead.due(float(second))]
    assert looks[:6] == [0, 2, 6, 14, 30, 62]
    assert looks[-1] - looks[-2] == 600


@in_world()
async def test_the_started_row_of_a_lost_machine_is_in_doubt_and_nobody_sends_it(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    await hanging(world, engine)
    sweeper = Sweeper(other)
    await world.pay(other, "b")
    await rounds(sweeper, 3)
    assert (await world.row()).state is State.STARTED
    await rounds(sweeper, 5)
    assert (await world.row()).state is State.IN_DOUBT
    assert (await world.pay(other)).standing is Standing.IN_DOUBT
    assert len(world.rail.calls) == 2


@in_world()
async def test_a_machine_whose_lock_is_free_is_lost_at_once(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    await hanging(world, engine)
    world.store.vanish((await world.row()).owner)
    await Sweeper(other).round()
    assert (await world.row()).state is State.IN_DOUBT


@in_world()
async def test_no_machine_is_lost_while_the_observer_can_not_beat_itself(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    await world.pay(engine)
    await world.pay(other, "b")
    sweeper = Sweeper(other)
    await rounds(sweeper, 2)
    world.always["beat"] = Fault.UNAVAILABLE
    for _ in range(10):
        with pytest.raises(StoreUnavailable):
            await sweeper.round()
        await asyncio.sleep(2)
    del world.always["beat"]
    await rounds(sweeper, 3)
    assert [row.state for row in await world.store.machines()] == [MachineState.LIVING] * 2
    await rounds(sweeper, 4)
    assert [row.state for row in await world.store.machines()] == [MachineState.LOST, MachineState.LIVING]


@in_world()
async def test_a_machine_that_beats_is_never_lost(world: World) -> None:
    engines = [await world.engine() for _ in range(2)]
    sweepers = [Sweeper(engine) for engine in engines]
    for number, engine in enumerate(engines):
        await world.pay(engine, f"n{number}")
    for _ in range(30):
        for sweeper in sweepers:
            await sweeper.round()
        await asyncio.sleep(2)
    assert [row.state for row in await world.store.machines()] == [MachineState.LIVING] * 2


# -- loss is a condition


@in_world()
async def test_a_claim_that_a_lost_machine_commits_late_is_found(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    await world.pay(engine, "first")
    await world.pay(other, "b")
    sweeper = Sweeper(other)
    await rounds(sweeper, 8)
    assert (await world.store.machines())[0].state is MachineState.LOST
    await hanging(world, engine)
    assert (await world.row()).state is State.STARTED
    await rounds(sweeper, 10)
    assert (await world.row()).state is State.IN_DOUBT


@in_world()
async def test_a_caller_sees_the_loss_without_any_sweeper(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    await hanging(world, engine)
    owner = (await world.row()).owner
    await world.store.lose(owner, 0, at_ms=0)
    await other.presence.refresh()
    assert (await world.pay(other)).standing is Standing.IN_DOUBT


@in_world()
async def test_what_an_earlier_process_left_is_found_at_start(world: World) -> None:
    engine = await world.engine()
    await hanging(world, engine)
    await world.store.end((await world.row()).owner, at_ms=0)
    later = await world.engine()
    await Sweeper(later).round()
    assert (await world.row()).state is State.IN_DOUBT


@in_world()
async def test_a_first_round_without_the_store_forgets_no_dead_machine(world: World) -> None:
    engine = await world.engine()
    await hanging(world, engine)
    await world.store.end((await world.row()).owner, at_ms=0)
    later = await world.engine()
    sweeper = Sweeper(later)
    machines = world.store.machines

    async def away(**_):
        raise StoreUnavailable("away")

    world.store.machines = away
    with pytest.raises(StoreError):
        await sweeper.round()
    world.store.machines = machines
    await rounds(sweeper, 2)
    assert (await world.row()).state is State.IN_DOUBT


@in_world()
async def test_a_machine_that_came_and_went_between_two_looks_is_swept(world: World) -> None:
    other = await world.engine()
    await world.pay(other, "b")
    sweeper = Sweeper(other)
    await rounds(sweeper, 2)
    engine = await world.engine()
    await hanging(world, engine)
    await world.store.end((await world.row()).owner, at_ms=0)
    await rounds(sweeper, OVERDUE_EVERY_ROUNDS)
    assert (await world.row()).state is State.IN_DOUBT


# -- rows


@in_world()
async def test_an_effect_that_never_returns_is_overdue_for_anybody(world: World) -> None:
    engine, other = await world.engine(effect_timeout_seconds=10_000.0), await world.engine()
    await hanging(world, engine)
    await world.pay(other, "b")
    sweepers = [Sweeper(other), Sweeper(engine)]
    for _ in range(4):
        for sweeper in sweepers:
            for _ in range(OVERDUE_EVERY_ROUNDS // 2):
                await sweeper.round()
                await asyncio.sleep(1)
    assert (await world.row()).state is State.STARTED
    for _ in range(10):
        for sweeper in sweepers:
            for _ in range(OVERDUE_EVERY_ROUNDS // 2):
                await sweeper.round()
                await asyncio.sleep(1)
    assert (await world.row()).state is State.IN_DOUBT
    assert [row.state for row in await world.store.machines()] == [MachineState.LIVING] * 2


@in_world()
async def test_a_retry_owned_by_another_machine_is_swept_when_that_one_is_lost(world: World) -> None:
    engine, other, third = await world.engine(), await world.engine(), await world.engine()
    world.rail.script(declined)
    await world.pay(engine)
    await hanging(world, other)
    row = await world.row()
    assert (row.attempt, row.owner == row.id >> 40) == (2, False)
    await world.store.lose(row.owner, 0, at_ms=0)
    await rounds(Sweeper(third), 1)
    assert (await world.row()).state is State.IN_DOUBT


@in_world()
async def test_one_row_that_can_not_be_written_stops_no_other(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    tasks = [await hanging(world, engine, name) for name in ("a", "b", "c")]
    assert len(tasks) == 3
    poison = (await world.row("a")).digest
    advance = world.store.advance

    async def poisoned(advances):
        if any(item.record.digest == poison for item in advances):
            raise StoreError("a row that can't be")
        return await advance(advances)

    other.writer._advances._write = poisoned
    world.store.vanish((await world.row()).owner)
    await Sweeper(other).round()
    states = [(await world.row(name)).state for name in ("a", "b", "c")]
    assert states == [State.STARTED, State.IN_DOUBT, State.IN_DOUBT]


@in_world()
async def test_a_long_sweep_costs_no_beats(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    await hanging(world, engine)
    await world.pay(other, "b")
    find = world.store.find

    async def slow(digest):
        await asyncio.sleep(60)
        return await find(digest)

    world.store.find = slow
    world.store.vanish((await world.store.machines())[0].id)
    sweeper = Sweeper(other)
    sweeper.start()
    await asyncio.sleep(50)
    mine = (await world.store.machines())[1]
    assert mine.beat >= 20
    await sweeper.stop()


@pytest.mark.parametrize("seed", range(20))
def test_the_oldest_open_id_never_passes_an_open_row(seed: int) -> None:
    @in_world()
    async def test(world: World) -> None:
        chance = random.Random(seed)
        engine = await world.engine()
        sweeper = Sweeper(engine)
        wires: list[Point] = []
        tasks = []
        for number in range(60):
            if chance.random() < 0.3:
                world.faults["claim"] = [chance.choice((Fault.HELD_BACK, Fault.NOT_DONE_ANSWER_LOST))] * 9
            if chance.random() < 0.5:
                wire = Point()
                wires.append(wire)
                world.rail.script(waits(before_effect=wire, then=chance.choice((None, declined))))
            tasks.append(asyncio.create_task(_quietly(world.pay(engine, f"n{chance.randint(0, 30)}"))))
            await asyncio.sleep(chance.uniform(0, 3))
            if chance.random() < 0.3:
                world.store.release()
            if wires and chance.random() < 0.5:
                wires.pop(chance.randrange(len(wires))).go.set()
            if chance.random() < 0.7:
                await sweeper.beat()
                assert await _open_below(world) == []
            if chance.random() < 0.5:
                await sweeper.sweep()
        for wire in wires:
            wire.go.set()
        await asyncio.gather(*tasks)

    test()


async def _quietly(work) -> None:
    try:
        await work
    except StoreError:
        return


async def _open_below(world: World) -> list[Record]:
    """Rows that nobody would find: open, below the oldest open id, and not in the side table."""
    return [
        record
        for row in await world.store.machines()
        for record in await world.store.open_of(row.id, 0)
        if record.id < row.oldest_open and not needs_attention(record)
    ]
