"""Beats, the store's age, and what a machine does that was declared lost."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.messages import Kind, Reason, State
from nonbis.engine.identity import Incarnation
from nonbis.engine.writing import Observation
from nonbis.errors import AnswerLost, StoreError
from nonbis.ports import MachineState
from nonbis.stores.memory import Fault
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world, rounds
from tests.simulation.rail import Point, waits


@in_world()
async def test_a_machine_that_was_declared_lost_resigns_and_registers_anew(world: World) -> None:
    engine = await world.engine()
    await world.pay(engine, "first")
    sweeper = Sweeper(engine)
    await sweeper.round()
    wire = Point()
    world.rail.script(waits(before_gate=wire))
    paying = asyncio.create_task(world.pay(engine))
    await wire.reached.wait()
    before = engine.presence.incarnation
    assert await world.store.lose(before.machine, before.beat, at_ms=0)
    await sweeper.round()
    assert engine.presence.incarnation is not before
    assert before.spent
    wire.go.set()
    assert (await paying).record.reason is Reason.NOT_SENT
    answer = await world.pay(engine, "later")
    assert answer.record.owner != before.machine
    assert len(world.rail.effects) == 2


@in_world()
async def test_a_machine_that_resigned_sweeps_what_it_left_behind(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    await world.pay(engine, "first")
    await rounds(sweeper, 2)
    world.always["claim"] = Fault.HELD_BACK
    with pytest.raises(AnswerLost):
        await world.pay(engine)
    del world.always["claim"]
    before = engine.presence.incarnation
    await world.store.lose(before.machine, before.beat, at_ms=0)
    await rounds(sweeper, 2)
    world.store.release()
    assert (await world.row()).state is State.STARTED
    await rounds(sweeper, 4)
    assert (await world.row()).state is State.IN_DOUBT


@in_world()
async def test_of_two_clones_one_loses_at_the_next_beat(world: World) -> None:
    engine, clone = await world.engine(), await world.engine()
    await world.pay(engine)
    twin = Incarnation(engine.presence.incarnation.machine)
    clone.presence._incarnation = twin
    assert await engine.presence.beat(None, None)
    world.clock.advance(1)
    assert not await clone.presence.beat(None, None)
    assert clone.presence.incarnation is None
    assert engine.presence.incarnation is not None


@pytest.mark.parametrize(
    "faults",
    [
        [Fault.DONE_ANSWER_LOST],
        [Fault.NOT_DONE_ANSWER_LOST],
        [Fault.UNAVAILABLE],
        [Fault.DONE_ANSWER_LOST, Fault.UNAVAILABLE, Fault.NOT_DONE_ANSWER_LOST],
    ],
)
def test_a_beat_whose_answer_is_lost_is_repeated_and_costs_nobody_its_number(faults: list[Fault]) -> None:
    @in_world()
    async def test(world: World) -> None:
        engine = await world.engine()
        await world.pay(engine)
        number = engine.presence.incarnation.machine
        sweeper = Sweeper(engine)
        await rounds(sweeper, 2)
        world.faults["beat"] = list(faults)
        for _ in faults:
            with pytest.raises(StoreError):
                await sweeper.round()
            await asyncio.sleep(2)
        await rounds(sweeper, 2)
        assert engine.presence.incarnation.machine == number
        (row,) = await world.store.machines()
        assert row.state is MachineState.LIVING
        assert row.beat == 2 + 2

    test()


@in_world()
async def test_the_age_grows_once_for_two_machines(world: World) -> None:
    engines = [await world.engine() for _ in range(2)]
    sweepers = [Sweeper(engine) for engine in engines]
    for number, engine in enumerate(engines):
        await world.pay(engine, f"n{number}")
    begun = world.clock.monotonic()
    for _ in range(50):
        for sweeper in sweepers:
            await sweeper.round()
            await asyncio.sleep(1)
    passed = (world.clock.monotonic() - begun) * 1000
    assert passed - 5000 <= await world.store.age_ms() <= passed


@in_world()
async def test_the_age_stands_still_while_nobody_runs(world: World) -> None:
    engine = await world.engine()
    await world.pay(engine)
    await rounds(Sweeper(engine), 5)
    before = await world.store.age_ms()
    assert before > 0
    world.clock.advance(100_000)
    later = await world.engine()
    await world.pay(later, "b")
    await rounds(Sweeper(later), 3)
    assert await world.store.age_ms() - before < 10_000


@in_world()
async def test_a_process_with_nothing_to_write_never_registers(world: World) -> None:
    engine = await world.engine()
    await rounds(Sweeper(engine), 30)
    record = (await world.pay(await world.engine(), "b")).record
    assert not await engine.writer.would_write(record, Observation(kind=Kind.OVERDUE))
    assert len(await world.store.machines()) == 1
    await engine.stop()
    assert len(await world.store.machines()) == 1


@in_world()
async def test_a_process_that_was_idle_for_days_does_not_date_its_rows_ahead_of_the_age(world: World) -> None:
    idle = Sweeper(await world.engine())
    await rounds(idle, 1)
    world.clock.advance(200_000)
    busy = await world.engine()
    await world.pay(busy, "b")
    await rounds(Sweeper(busy), 2)
    await rounds(idle, 2)
    await world.pay(idle._engine)
    row = await world.row()
    assert row.started.age_ms <= await world.store.age_ms() + 10_000
