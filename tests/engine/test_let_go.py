"""Nobody waits for ever: callers are let go, and what is under way goes on without them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from nonbis.core.messages import State
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Standing
from nonbis.errors import AnswerLost
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world, rounds, until
from tests.simulation.rail import Point, waits


def hang(engine: Engine, point: Point) -> None:
    """The store takes no claim before the test lets it, and gives no answer and no error."""
    write = engine.writer._claims._write

    async def claim(claims: Any) -> Any:
        await point.wait()
        return await write(claims)

    engine.writer._claims._write = claim


async def told_within(call: asyncio.Task[Any], seconds: float) -> type[BaseException] | None:
    """The kind of error that a call ends with in time."""
    await asyncio.wait({call}, timeout=seconds)
    assert call.done(), f"it still waits after {seconds:g} s"
    error = call.exception()
    return None if error is None else type(error)


@in_world(store_wait_seconds=5.0)
async def test_callers_of_a_claim_that_the_store_never_answers_are_let_go(world: World) -> None:
    engine = await world.engine()
    hang(engine, Point())
    calls = [asyncio.create_task(world.pay(engine, wait_seconds=seconds)) for seconds in (0, 0, 100)]
    assert [await told_within(call, 8) for call in calls] == [AnswerLost] * 3
    later = asyncio.create_task(world.pay(engine))
    assert await told_within(later, 8) is AnswerLost
    assert world.rail.calls == []


@in_world(store_wait_seconds=5.0)
async def test_a_claim_answered_after_its_callers_were_let_go_is_carried_out_once(world: World) -> None:
    engine = await world.engine()
    store = Point()
    hang(engine, store)
    call = asyncio.create_task(world.pay(engine))
    assert await told_within(call, 8) is AnswerLost
    store.go.set()
    await asyncio.sleep(1)
    replay = await world.pay(engine)
    assert (replay.standing, replay.replayed) == (Standing.FINAL, True)
    assert (replay.record.state, len(world.rail.calls)) == (State.APPLIED, 1)


@in_world(store_wait_seconds=5.0)
async def test_a_claim_answered_after_its_send_deadline_is_not_sent(world: World) -> None:
    engine = await world.engine()
    store = Point()
    hang(engine, store)
    call = asyncio.create_task(world.pay(engine))
    assert await told_within(call, 8) is AnswerLost
    await asyncio.sleep(100)
    store.go.set()
    await asyncio.sleep(1)
    assert ((await world.row()).reason, world.rail.effects) == ("not_sent", [])


@in_world(rail={"finds": True})
async def test_a_row_that_another_process_has_ended_lets_the_callers_of_a_hanging_send_go(
    world: World,
) -> None:
    hanging, other = await world.engine(), await world.engine()
    world.rail.script(waits(after_effect=Point()))
    calls = [asyncio.create_task(world.pay(hanging))]
    await asyncio.sleep(0.1)
    calls += [asyncio.create_task(world.pay(hanging, wait_seconds=1000)) for _ in range(2)]
    await other.presence.present()
    # the first process stands still: nobody beats for it
    await rounds(Sweeper(other), 9)
    assert (await world.row()).state is State.APPLIED
    assert [await told_within(call, 40) for call in calls] == [AnswerLost] * 3
    replay = await world.pay(hanging)
    assert (replay.standing, replay.replayed, replay.outcome is not None) == (Standing.FINAL, True, True)
    assert len(world.rail.effects) == 1


@in_world(store_wait_seconds=5.0)
async def test_a_claim_that_is_answered_in_time_gives_nobody_up(world: World) -> None:
    engine = await world.engine()
    store, wire = Point(), Point()
    hang(engine, store)
    world.rail.script(waits(before_effect=wire))
    call = asyncio.create_task(world.pay(engine))
    await asyncio.sleep(4)
    store.go.set()
    await wire.reached.wait()
    await asyncio.sleep(10)
    assert not call.done()
    wire.go.set()
    assert (await call).record.state is State.APPLIED


@in_world()
async def test_a_caller_who_is_let_go_can_be_cancelled_meanwhile(world: World) -> None:
    engine = await world.engine()
    store = Point()
    hang(engine, store)
    first, joiner = (asyncio.create_task(world.pay(engine)) for _ in range(2))
    await store.reached.wait()
    joiner.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joiner
    store.go.set()
    assert (await first).record.state is State.APPLIED

    async def forgotten() -> bool:
        return not engine.at_work(world.call().digest)

    await until(forgotten)
