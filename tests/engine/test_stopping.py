"""The end of a process: nothing new, nothing forgotten, and everyone told."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.messages import State
from nonbis.engine.flights import Standing
from nonbis.errors import AnswerLost, EngineStopping, MachineLost
from nonbis.ports import MachineState
from nonbis.stores.memory import Fault
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world
from tests.simulation.clock import SimulatedClock, VirtualLoop, run_virtually
from tests.simulation.rail import Point, waits


async def hanging(world: World, engine, **where: Point):
    (point,) = where.values()
    world.rail.script(waits(**where))
    paying = asyncio.create_task(world.pay(engine))
    await point.reached.wait()
    return paying


@in_world()
async def test_a_running_effect_finishes_and_a_new_name_is_refused(world: World) -> None:
    engine = await world.engine()
    wire = Point()
    paying = await hanging(world, engine, before_effect=wire)
    joiner = asyncio.create_task(world.pay(engine, wait_seconds=20))
    stopping = asyncio.create_task(engine.stop())
    await asyncio.sleep(1)
    with pytest.raises(EngineStopping):
        await world.pay(engine, "new")
    wire.go.set()
    await stopping
    assert (await paying).record.state is State.APPLIED
    assert (await joiner).record.state is State.APPLIED
    assert not await world.exists("new")
    assert [row.state for row in await world.store.machines()] == [MachineState.ENDED]


@in_world(stop_seconds=5.0)
async def test_what_does_not_finish_in_time_ends_in_doubt_and_all_are_told(world: World) -> None:
    engine = await world.engine()
    calls = [await hanging(world, engine, before_effect=Point())]
    calls += [asyncio.create_task(world.pay(engine, wait_seconds=100)) for _ in range(3)]
    await asyncio.sleep(0.1)
    await engine.stop()
    assert {(await call).standing for call in calls} == {Standing.IN_DOUBT}
    assert (await world.row()).state is State.IN_DOUBT
    assert [row.state for row in await world.store.machines()] == [MachineState.ENDED]
    later = await world.engine()
    assert (await world.pay(later)).standing is Standing.IN_DOUBT
    assert len(world.rail.calls) == 1


@in_world(stop_seconds=5.0)
async def test_a_stop_puts_nothing_in_doubt_that_another_process_is_sending(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    wire = Point()
    paying = await hanging(world, engine, before_effect=wire)
    find = other.presence.is_living

    async def slow(machine):
        await asyncio.sleep(20)
        return await find(machine)

    other.presence.is_living = slow
    judging = asyncio.create_task(world.pay(other))
    await asyncio.sleep(0.1)
    await other.stop()
    assert (await world.row()).state is State.STARTED
    with pytest.raises(AnswerLost):
        await judging
    wire.go.set()
    assert (await paying).standing is Standing.FINAL


@in_world(stop_seconds=5.0)
async def test_a_stop_ends_though_the_store_is_away_and_tells_unknown(world: World) -> None:
    engine = await world.engine()
    paying = await hanging(world, engine, after_effect=Point())
    world.always.update(dict.fromkeys(("advance", "end", "note"), Fault.UNAVAILABLE))
    begun = world.clock.monotonic()
    await engine.stop()
    assert world.clock.monotonic() - begun < 20
    with pytest.raises(AnswerLost):
        await paying
    assert len(world.rail.effects) == 1
    assert (await world.row()).state is State.STARTED
    world.always.clear()
    await asyncio.sleep(60)
    assert len(await world.store.machines()) == 1
    later = await world.engine()
    world.store.vanish(1)
    await Sweeper(later).round()
    assert (await world.row()).state is State.IN_DOUBT


@in_world(stop_seconds=1.0)
async def test_a_stop_after_the_effect_never_says_that_nothing_was_sent(world: World) -> None:
    engine = await world.engine()
    sent = Point()
    paying = await hanging(world, engine, after_effect=sent)
    world.always["advance"] = Fault.NOT_DONE_ANSWER_LOST
    sent.go.set()
    await asyncio.sleep(0.1)
    await engine.stop()
    with pytest.raises(AnswerLost):
        await paying


@in_world(stop_seconds=1.0)
async def test_a_stop_during_the_claim_says_that_it_is_unknown_and_its_late_row_is_found(
    world: World,
) -> None:
    engine = await world.engine(store_wait_seconds=100.0)
    world.always["claim"] = Fault.HELD_BACK
    paying = asyncio.create_task(world.pay(engine))
    await asyncio.sleep(0.1)
    await engine.stop()
    with pytest.raises(AnswerLost):
        await paying
    world.always.clear()
    world.store.release()
    later = await world.engine()
    await Sweeper(later).round()
    assert (await world.row()).state is State.IN_DOUBT
    assert world.rail.calls == []


@in_world(stop_seconds=25.0, lost_after_seconds=10.0)
async def test_a_process_that_is_stopping_goes_on_beating(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    sweepers = [Sweeper(engine), Sweeper(other)]
    wire = Point()
    paying = await hanging(world, engine, before_effect=wire)
    await world.pay(other, "b")
    for sweeper in sweepers:
        sweeper.start()
    stopping = asyncio.create_task(engine.stop())
    await asyncio.sleep(22)
    assert (await world.row()).state is State.STARTED
    wire.go.set()
    await stopping
    assert (await paying).standing is Standing.FINAL
    await asyncio.sleep(10)
    assert [row.state for row in await world.store.machines()] == [MachineState.ENDED, MachineState.LIVING]
    for sweeper in sweepers:
        await sweeper.stop()


@in_world()
async def test_after_the_end_no_other_machine_is_registered(world: World) -> None:
    engine = await world.engine()
    await world.pay(engine)
    await engine.stop()
    with pytest.raises(EngineStopping):
        await engine.presence.present()
    assert len(await world.store.machines()) == 1


@in_world()
async def test_a_number_that_was_retired_draws_no_more(world: World) -> None:
    engine = await world.engine()
    await world.pay(engine)
    incarnation = engine.presence.incarnation
    await engine.stop()
    with pytest.raises(MachineLost):
        incarnation.draw()


def test_a_loop_that_ends_without_a_stop_leaves_the_send_in_doubt() -> None:
    """The task is cancelled at the end of the loop: what it was sending may have happened."""
    worlds: list[World] = []

    async def work(clock: SimulatedClock) -> None:
        world = World(clock)
        worlds.append(world)
        await hanging(world, await world.engine(), before_effect=Point())

    run_virtually(work)
    (stored,) = worlds[0].store._rows.values()
    assert stored.record.state is State.IN_DOUBT


def test_a_send_whose_task_is_destroyed_is_in_doubt_for_the_next_process() -> None:
    """Nothing is written any more by the one that was sending, and nobody takes it for never sent."""
    clock = SimulatedClock()
    worlds: list[World] = []

    async def sends() -> None:
        world = World(clock)
        worlds.append(world)
        task = await hanging(world, await world.engine(), before_effect=Point())
        assert not task.done()

    loop = VirtualLoop(clock)
    sending = loop.create_task(sends())
    loop.run_until_complete(sending)
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False
        task.get_coro().close()
    loop.close()
    world = worlds[0]
    (stored,) = world.store._rows.values()
    assert stored.record.state is State.STARTED

    async def next_process(_: SimulatedClock) -> None:
        world.store.vanish(1)
        await Sweeper(await world.engine()).round()
        assert (await world.row()).state is State.IN_DOUBT

    run_virtually(next_process)
