"""The last check before the first byte: deadlines, pauses and lost machines."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.messages import Kind, Reason, State
from nonbis.engine.flights import Standing
from nonbis.engine.writing import Observation
from nonbis.errors import AnswerLost
from nonbis.stores.memory import Fault
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world
from tests.simulation.rail import Point, waits


@pytest.mark.parametrize("clock", ["jump", "sleep_of_the_host", "advance"])
def test_a_pause_before_the_gate_shuts_it_by_whichever_clock_knows(clock: str) -> None:
    @in_world()
    async def test(world: World) -> None:
        engine = await world.engine()
        connecting = Point()
        world.rail.script(waits(before_gate=connecting))
        paying = asyncio.create_task(world.pay(engine))
        await connecting.reached.wait()
        getattr(world.clock, clock)(30.5)
        connecting.go.set()
        await paying
        await asyncio.sleep(1)
        assert (await world.row()).reason is Reason.NOT_SENT
        assert world.rail.effects == []

    test()


@in_world()
async def test_within_the_deadline_the_gate_is_open(world: World) -> None:
    engine = await world.engine()
    connecting = Point()
    world.rail.script(waits(before_gate=connecting))
    paying = asyncio.create_task(world.pay(engine))
    await connecting.reached.wait()
    world.clock.jump(29)
    connecting.go.set()
    assert (await paying).record.state is State.APPLIED


@pytest.mark.parametrize("retry", [False, True])
def test_the_deadline_counts_from_before_the_write_that_permits_the_send(retry: bool) -> None:
    @in_world(store_wait_seconds=100.0)
    async def test(world: World) -> None:
        engine = await world.engine()
        if retry:
            from tests.simulation.rail import declined

            world.rail.script(declined)
            await world.pay(engine)
        before = len(world.rail.effects)
        slow = "advance" if retry else "claim"
        write = getattr(world.store, slow)

        async def slow_write(items):
            await asyncio.sleep(31)
            return await write(items)

        lane = engine.writer._advances if retry else engine.writer._claims
        lane._write = slow_write
        paying = asyncio.create_task(world.pay(engine))
        await asyncio.sleep(40)
        lane._write = write
        await paying
        await asyncio.sleep(40)
        row = await world.row()
        assert (row.reason, row.attempt) == (Reason.NOT_SENT, 2 if retry else 1)
        assert len(world.rail.effects) == before

    test()


@in_world()
async def test_the_deadline_of_a_resend_counts_from_before_its_write(world: World) -> None:
    world.rail.facts = _resending(world)
    engine = await world.engine()
    from tests.simulation.rail import message_lost

    world.rail.script(message_lost)
    await world.pay(engine)
    write = world.store.advance

    async def slow_write(items):
        await asyncio.sleep(31)
        return await write(items)

    engine.writer._advances._write = slow_write
    effect = engine.effects.of(await world.stored())
    assert effect is not None
    engine.resend(await world.stored(), effect)
    await asyncio.sleep(100)
    assert (await world.row()).sends == 2
    assert (await world.row()).state is State.IN_DOUBT
    assert world.rail.effects == []


def _resending(world: World):
    import msgspec

    return msgspec.structs.replace(world.rail.facts, dedupes_for_seconds=100_000.0)


@in_world()
async def test_a_machine_declared_lost_between_claim_and_gate_does_not_send(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    sweeper = Sweeper(engine)
    connecting = Point()
    world.rail.script(waits(before_gate=connecting))
    paying = asyncio.create_task(world.pay(engine))
    await connecting.reached.wait()
    row = await world.row()
    assert await world.store.lose(row.owner, 0, at_ms=0)
    await other.presence.refresh()
    assert (await world.pay(other)).standing is Standing.IN_DOUBT
    await sweeper.round()
    connecting.go.set()
    await paying
    settled = await world.row()
    assert (settled.state, settled.reason) == (State.FAILED, Reason.NOT_SENT)
    assert world.rail.effects == []


@in_world()
async def test_a_claim_that_is_answered_after_its_machine_was_lost_does_not_send(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    await world.pay(engine, "first")
    await sweeper.round()
    world.faults["claim"] = [Fault.DONE_ANSWER_LOST]
    claim = world.store.claim
    waiting, go = asyncio.Event(), asyncio.Event()

    async def slow(claims):
        waiting.set()
        await go.wait()
        return await claim(claims)

    engine.writer._claims._write = slow
    paying = asyncio.create_task(world.pay(engine))
    await waiting.wait()
    machine = engine.presence.incarnation.machine
    assert await world.store.lose(machine, 1, at_ms=0)
    await sweeper.round()
    go.set()
    answer = await paying
    assert answer.record.reason is Reason.NOT_SENT
    assert (await world.row()).owner == machine
    assert len(world.rail.effects) == 1


@in_world()
async def test_a_claim_that_others_put_in_doubt_before_its_answer_came_is_disowned(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    claim = world.store.claim
    calls = 0

    async def lost_then_doubted(claims):
        nonlocal calls
        calls += 1
        answers = await claim(claims)
        if calls == 1:
            row = claims[0].record
            doubt = Observation(kind=Kind.REPORT_UNKNOWN, attempt=1, send=1)
            await other.writer.apply(row, doubt)
            world.faults["claim"] = [Fault.DONE_ANSWER_LOST]
            return await claim(claims)
        return answers

    engine.writer._claims._write = lost_then_doubted
    answer = await world.pay(engine)
    assert (answer.record.state, answer.record.attempt) == (State.APPLIED, 2)
    assert len(world.rail.effects) == 1


@in_world()
async def test_a_claim_that_can_not_be_disowned_yet_is_told_as_it_stands(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    claim = world.store.claim
    calls = 0

    async def lost_then_doubted(claims):
        nonlocal calls
        calls += 1
        if calls == 1:
            await claim(claims)
            doubt = Observation(kind=Kind.REPORT_UNKNOWN, attempt=1, send=1)
            await other.writer.apply(claims[0].record, doubt)
            world.always["advance"] = Fault.UNAVAILABLE
            raise AnswerLost("cut")
        return await claim(claims)

    engine.writer._claims._write = lost_then_doubted
    answer = await asyncio.wait_for(world.pay(engine), 30)
    assert answer.standing is Standing.IN_DOUBT
    assert world.rail.calls == []
