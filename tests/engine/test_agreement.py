"""Processes of one store that are configured differently: nobody's window is cut short by another's."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from nonbis.core.messages import State
from nonbis.engine.effects import PaymentEffects
from nonbis.engine.engine import Engine
from nonbis.errors import StoreUnavailable, StoreUnsafe
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world
from tests.simulation.rail import Point, ScriptedRail, waits


async def sweeping(*engines: Engine) -> None:
    """Each of them beats and sweeps from now on."""
    for engine in engines:
        Sweeper(engine).start()


@in_world(rail={"finds": True, "settle_window_seconds": 1.0})
async def test_a_process_that_joins_with_a_shorter_send_deadline_brings_no_second_effect(
    world: World,
) -> None:
    slow = await world.engine()
    quick = await world.engine(world.rail, send_deadline_seconds=1.0, effect_timeout_seconds=1.0)
    gate = Point()
    world.rail.script(waits(before_gate=gate))
    asyncio.create_task(world.pay(slow))
    await gate.reached.wait()
    await sweeping(slow, quick)
    for _ in range(14):
        await asyncio.sleep(2)
        await world.pay(quick)
    assert world.rail.effects == []
    gate.go.set()
    await asyncio.sleep(1)
    assert (await world.row()).state is State.APPLIED
    assert len(world.rail.effects) == 1


@in_world(rail={"finds": True, "settle_window_seconds": 1.0})
async def test_a_process_that_joins_with_a_longer_settle_window_brings_no_second_effect(world: World) -> None:
    early = await world.engine()
    patient = ScriptedRail(finds=True, settle_window_seconds=900.0)
    patient.effects = world.rail.effects
    late = await world.engine(patient)
    wire = Point()
    patient.script(waits(before_effect=wire))
    asyncio.create_task(world.pay(late, rail=patient))
    await wire.reached.wait()
    await sweeping(early, late)
    for _ in range(90):
        await asyncio.sleep(10)
        with contextlib.suppress(StoreUnavailable):  # it has become the weaker one
            await world.pay(early)
    assert (await world.row()).state is State.IN_DOUBT
    assert world.rail.effects == []
    wire.go.set()
    await asyncio.sleep(1)
    assert (await world.row()).state is State.APPLIED
    assert len(world.rail.effects) == 1


async def outvoted(world: World) -> Engine:
    """A running process, when another has joined with a longer settle window."""
    engine = await world.engine()
    assert (await world.pay(engine, "before")).record.state is State.APPLIED
    await world.engine(ScriptedRail(settle_window_seconds=900.0))
    await Sweeper(engine).beat()
    return engine


@in_world()
async def test_a_running_process_that_became_the_weaker_one_takes_no_more_claims(world: World) -> None:
    engine = await outvoted(world)
    with pytest.raises(StoreUnavailable, match="settle_window"):
        await world.pay(engine)
    assert not await world.exists()
    assert len(world.rail.calls) == 1


@in_world()
async def test_it_takes_claims_again_as_soon_as_the_agreement_allows_it(world: World) -> None:
    engine = await outvoted(world)
    shorter = Engine(world.store, PaymentEffects(world.rail), clock=world.clock, policy=world.policy)
    with pytest.raises(StoreUnsafe):
        await shorter.start()
    await shorter.start(raise_config=True)
    await Sweeper(engine).beat()
    assert (await world.pay(engine)).record.state is State.APPLIED


@in_world()
async def test_a_process_that_is_not_the_weaker_one_goes_on(world: World) -> None:
    engine = await world.engine()
    await world.engine(ScriptedRail(name="another", settle_window_seconds=900.0))
    await Sweeper(engine).beat()
    assert (await world.pay(engine)).record.state is State.APPLIED
