"""A row of mine that I do not know: a write that I gave up, or that of a clone with my number."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.messages import Reason, State
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Standing
from nonbis.engine.identity import Incarnation
from nonbis.errors import AnswerLost
from nonbis.stores.memory import Fault
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world, rounds
from tests.simulation.rail import Point, declined, waits


async def pair(world: World) -> tuple[Engine, Engine, Sweeper]:
    """A process, and one that was copied from it with its memory: the machine, its count, its sweeper."""
    engine, clone = await world.engine(), await world.engine()
    await world.pay(engine, "before")
    sweeper, copied = Sweeper(engine), Sweeper(clone)
    await sweeper.round()
    mine = engine.presence.incarnation
    assert mine is not None
    twin = Incarnation(mine.machine)
    # it has drawn some numbers since: the very next one would be refused as drawn twice
    twin._next, twin.beat = mine._next + 9, mine.beat
    clone.presence._incarnation = twin
    clone.presence.living = dict(engine.presence.living)
    clone.presence._newest = engine.presence._newest
    copied._oldest, copied._rounds, copied._knows_dead = sweeper._oldest, sweeper._rounds, True
    return engine, clone, copied


@in_world()
async def test_what_a_clone_is_sending_goes_in_doubt_and_never_to_not_sent(world: World) -> None:
    engine, clone, sweeper = await pair(world)
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    paying = asyncio.create_task(world.pay(engine))
    await wire.reached.wait()
    await rounds(sweeper, 1)
    row = await world.row()
    assert (row.state, row.reason) == (State.IN_DOUBT, None)
    assert (await world.journal())[-1].because == "its owner does not know it"
    assert (await world.pay(clone)).standing is Standing.IN_DOUBT
    wire.go.set()
    await paying
    assert (await world.row()).state is State.APPLIED
    assert len(world.rail.calls) == len(world.rail.effects) == 2


async def one_whose_write_was_given_up(world: World, engine: Engine, method: str) -> None:
    world.always[method] = Fault.HELD_BACK
    with pytest.raises(AnswerLost):
        await world.pay(engine)
    world.always.clear()
    world.store.held[0]()
    world.store.held.clear()
    assert (await world.row()).state is State.STARTED


@in_world()
async def test_a_row_whose_claim_was_given_up_was_never_sent(world: World) -> None:
    engine = await world.engine()
    await one_whose_write_was_given_up(world, engine, "claim")
    await rounds(Sweeper(engine), 2)
    assert (await world.row()).reason is Reason.NOT_SENT
    again = await world.pay(engine)
    assert (again.record.state, again.record.attempt, len(world.rail.calls)) == (State.APPLIED, 2, 1)


@in_world()
async def test_a_row_whose_retry_was_given_up_was_never_sent(world: World) -> None:
    engine = await world.engine()
    world.rail.script(declined)
    await world.pay(engine)
    await one_whose_write_was_given_up(world, engine, "advance")
    await rounds(Sweeper(engine), 2)
    row = await world.row()
    assert (row.reason, row.attempt) == (Reason.NOT_SENT, 2)
    assert (await world.journal())[-1].because == "its write was given up; never sent"
