"""What a person settled as failed may still take effect: the rail is asked before anyone relies on it."""

from __future__ import annotations

from collections.abc import Callable

from nonbis.core.messages import Reason, State
from nonbis.core.payments import Receipt, Transfer
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Standing
from nonbis.errors import OutcomeUnknown
from nonbis.ports import Gate
from nonbis.upkeep.resolving import resolve
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world, rounds
from tests.simulation.rail import ScriptedRail, not_sent

Arrive = Callable[[], Receipt]


async def settled_by_force(world: World, engine: Engine) -> Arrive:
    """A send that is still on its way when somebody calls it failed; returns what lets it arrive."""
    late: list[Arrive] = []

    async def on_its_way(rail: ScriptedRail, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        gate()
        late.append(lambda: rail.take_effect(transfer, reference, gate))
        raise OutcomeUnknown("the connection was reset")

    world.rail.script(on_its_way)
    assert (await world.pay(engine)).standing is Standing.IN_DOUBT
    number = (await world.row()).id
    resolution = await resolve(engine, number, "failed", who="operator", because="sure of it", force=True)
    assert resolution.refused is None
    return late[0]


async def then_not_sent(world: World, engine: Engine) -> None:
    """The next attempt asks, hears of nothing, and does not get through."""
    world.rail.script(not_sent)
    answer = await world.pay(engine)
    assert (answer.record.reason, answer.record.attempt) == (Reason.NOT_SENT, 2)
    assert len(world.rail.asked) == 1


@in_world(rail={"finds": True})
async def test_the_rail_is_asked_before_every_attempt_under_a_reference_that_was_used(world: World) -> None:
    engine = await world.engine()
    arrives = await settled_by_force(world, engine)
    await then_not_sent(world, engine)
    arrives()
    third = await world.pay(engine)
    assert len(world.rail.asked) == 2
    assert len(world.rail.calls) == 2
    assert len(world.rail.effects) == 1
    assert third.standing is not Standing.IN_PROGRESS
    row = await world.row()
    assert (row.attempt, row.contradicted or row.state is State.APPLIED) == (2, True)


@in_world(rail={"finds": True})
async def test_a_process_with_another_rail_makes_no_attempt_for_a_reference_that_was_used(
    world: World,
) -> None:
    engine = await world.engine()
    arrives = await settled_by_force(world, engine)
    await then_not_sent(world, engine)
    arrives()
    other = ScriptedRail(name="other", finds=True)
    elsewhere = await world.engine(other)
    answer = await world.pay(elsewhere, rail=other)
    assert (answer.record.reason, answer.record.attempt) == (Reason.NOT_SENT, 2)
    assert (other.calls, other.asked) == ([], [])
    assert len(world.rail.effects) == 1


@in_world(rail={"finds": True})
async def test_a_first_attempt_that_was_not_sent_may_go_over_another_rail(world: World) -> None:
    engine = await world.engine()
    world.rail.script(not_sent)
    await world.pay(engine)
    other = ScriptedRail(name="other")
    answer = await world.pay(await world.engine(other), rail=other)
    assert answer.record.attempt == 2
    assert answer.record.state is State.APPLIED


@in_world(rail={"finds": True, "settle_window_seconds": 60.0})
async def test_what_was_settled_as_failed_is_asked_about_once_more_after_a_restart(world: World) -> None:
    engine = await world.engine()
    arrives = await settled_by_force(world, engine)
    assert (await world.row()).reason is Reason.SETTLED
    arrives()
    assert engine.presence.incarnation is not None
    world.store.vanish(engine.presence.incarnation.machine)
    later = await world.engine()
    await later.presence.present()
    world.rail.asked.clear()
    await rounds(Sweeper(later), 120)
    assert (await world.row()).state is State.APPLIED
    assert len(world.rail.asked) == 1
    assert (await world.kinds())[-1] == "corrected"


@in_world(rail={"finds": True, "settle_window_seconds": 60.0})
async def test_it_is_asked_about_until_the_rail_answers_and_then_no_more(world: World) -> None:
    engine = await world.engine()
    await settled_by_force(world, engine)
    world.rail.answers.extend([OutcomeUnknown("not now")] * 2)
    await rounds(Sweeper(engine), 300)
    assert len(world.rail.asked) == 3
    row = await world.row()
    assert (row.reason, row.open_sends) == (Reason.SETTLED, 0)
    assert await world.listed() == []
