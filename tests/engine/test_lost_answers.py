"""Answers of the store that are lost, late or never come: effect at most once, and nobody is told a guess."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.messages import Reason, State
from nonbis.engine.flights import Standing
from nonbis.errors import AnswerLost, StoreError, StoreUnavailable
from nonbis.stores.memory import Fault
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world, rounds, until
from tests.simulation.rail import Point, declined, not_sent, waits


@in_world()
async def test_a_claim_whose_answer_is_lost_is_repeated_and_sent_once(world: World) -> None:
    engine = await world.engine()
    world.faults["claim"] = [Fault.DONE_ANSWER_LOST, Fault.NOT_DONE_ANSWER_LOST]
    answer = await world.pay(engine)
    assert answer.record.state is State.APPLIED
    assert len(world.rail.effects) == 1
    assert world.written.count("claim") == 3


@in_world()
async def test_a_claim_that_was_not_done_is_done_by_its_repeat(world: World) -> None:
    engine = await world.engine()
    world.faults["claim"] = [Fault.NOT_DONE_ANSWER_LOST, Fault.UNAVAILABLE]
    answer = await world.pay(engine)
    assert answer.record.state is State.APPLIED
    assert len(world.rail.effects) == 1


@in_world()
async def test_a_store_that_is_surely_away_is_told_at_once_and_nothing_is_sent(world: World) -> None:
    engine = await world.engine()
    world.faults["claim"] = [Fault.UNAVAILABLE]
    before = world.clock.monotonic()
    with pytest.raises(StoreUnavailable):
        await world.pay(engine)
    assert world.clock.monotonic() - before < 1
    assert world.rail.calls == []
    assert not await world.exists()


@in_world()
async def test_a_claim_given_up_is_never_sent_and_its_late_row_becomes_not_sent(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    world.always["claim"] = Fault.HELD_BACK
    with pytest.raises(AnswerLost):
        await world.pay(engine)
    del world.always["claim"]
    await rounds(sweeper, 3)
    await world.pay(engine, "another, so that ids go on")
    await rounds(sweeper, 3)
    world.store.release()
    assert (await world.row()).state is State.STARTED
    await rounds(sweeper, 1)
    row = await world.row()
    assert (row.state, row.reason) == (State.FAILED, Reason.NOT_SENT)
    assert len(world.rail.effects) == 1
    answer = await world.pay(engine)
    assert (answer.record.state, answer.record.attempt) == (State.APPLIED, 2)
    assert len(world.rail.effects) == 2


@in_world()
async def test_a_claim_that_ends_in_another_error_after_a_lost_answer_is_found_too(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    await world.pay(engine, "first")
    world.faults["claim"] = [Fault.HELD_BACK]
    plain, store_claim = StoreError("a row that can't be"), world.store.claim
    calls = 0

    async def claim(claims):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise plain
        return await store_claim(claims)

    engine.writer._claims._write = claim
    with pytest.raises(StoreError):
        await world.pay(engine)
    await rounds(sweeper, 2)
    world.store.release()
    await rounds(sweeper, 1)
    assert (await world.row()).reason is Reason.NOT_SENT
    assert len(world.rail.calls) == 1


@in_world()
async def test_an_outcome_whose_answer_is_lost_is_written_again_and_the_effect_is_not(world: World) -> None:
    engine = await world.engine()
    world.faults["advance"] = [Fault.DONE_ANSWER_LOST, Fault.NOT_DONE_ANSWER_LOST, Fault.UNAVAILABLE]
    answer = await world.pay(engine)
    assert answer.standing is Standing.FINAL
    assert answer.outcome is not None
    assert not answer.replayed
    assert len(world.rail.calls) == 1


@in_world()
async def test_the_outcome_is_repeated_under_the_same_stamp_for_as_long_as_it_takes(world: World) -> None:
    engine = await world.engine()
    stamps = set()
    store_advance = world.store.advance

    async def advance(advances):
        stamps.update(item.record.stamp for item in advances if item.record.state is State.APPLIED)
        return await store_advance(advances)

    engine.writer._advances._write = advance
    world.always["advance"] = Fault.NOT_DONE_ANSWER_LOST
    paying = asyncio.create_task(world.pay(engine))
    with pytest.raises(AnswerLost):
        await paying
    await asyncio.sleep(60)
    del world.always["advance"]
    await until(lambda: _is(world, State.APPLIED))
    assert len(stamps) == 1
    assert len(world.rail.calls) == 1


@pytest.mark.parametrize("fault", [Fault.UNAVAILABLE, Fault.NOT_DONE_ANSWER_LOST, Fault.DONE_ANSWER_LOST])
def test_callers_are_told_unknown_though_the_store_is_away_for_long(fault: Fault) -> None:
    @in_world(effect_timeout_seconds=30.0)
    async def test(world: World) -> None:
        engine = await world.engine()
        sent = Point()
        world.rail.script(waits(after_effect=sent))
        first = asyncio.create_task(world.pay(engine))
        await sent.reached.wait()
        joiner = asyncio.create_task(world.pay(engine, wait_seconds=600))
        world.always["advance"] = fault
        begun = world.clock.monotonic()
        sent.go.set()
        for waiting in (first, joiner):
            with pytest.raises(AnswerLost):
                await waiting
        assert world.clock.monotonic() - begun < 45
        # the name is still at work here: nobody is told that nothing was sent
        again = await world.pay(engine)
        assert again.standing is not Standing.FINAL
        await asyncio.sleep(600)
        del world.always["advance"]
        await until(lambda: _is(world, State.APPLIED))
        assert len(world.rail.calls) == 1
        await asyncio.sleep(2)
        replay = await world.pay(engine)
        assert (replay.standing, replay.replayed) == (Standing.FINAL, True)
        assert replay.outcome is not None

    test()


async def _is(world: World, state: State) -> bool:
    return (await world.row()).state is state


@in_world(effect_timeout_seconds=30.0)
async def test_a_slow_send_is_told_unknown_in_time_though_the_store_is_away(world: World) -> None:
    engine = await world.engine()
    sent = Point()
    world.rail.script(waits(before_effect=sent))
    first = asyncio.create_task(world.pay(engine))
    await sent.reached.wait()
    world.always["advance"] = Fault.UNAVAILABLE
    with pytest.raises(AnswerLost):
        await asyncio.wait_for(first, 45)
    sent.go.set()
    await asyncio.sleep(100)
    del world.always["advance"]
    await until(lambda: _is(world, State.APPLIED))
    assert len(world.rail.effects) == 1


@in_world()
async def test_whatever_error_keeps_the_outcome_from_being_stored_it_is_never_told_as_not_done(
    world: World,
) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    store_advance = world.store.advance
    broken = True

    async def advance(advances):
        if broken:
            raise StoreError("the row can't be stored")
        return await store_advance(advances)

    engine.writer._advances._write = advance
    with pytest.raises(AnswerLost):
        await world.pay(engine)
    assert len(world.rail.effects) == 1
    await rounds(sweeper, 3)
    broken = False
    await until(lambda: _is(world, State.APPLIED))


@in_world()
async def test_an_outcome_that_can_not_be_made_leaves_the_name_in_doubt(world: World) -> None:
    engine = await world.engine()

    class Unkept(type(_effect(world))):
        __slots__ = ()

        def outcome(self, record, receipt):
            raise TypeError("no bytes for this")

    effect = Unkept(world.rail, _transfer())
    answer = await engine.run(world.call(), effect)
    assert answer.standing is Standing.IN_DOUBT
    assert len(world.rail.effects) == 1
    assert (await world.row()).state is State.IN_DOUBT


def _transfer():
    from tests.engine.world import transfer_of

    return transfer_of()


def _effect(world: World):
    from nonbis.engine.effects import PaymentEffect

    return PaymentEffect(world.rail, _transfer())


@in_world()
async def test_a_time_out_that_meets_a_finished_row_does_not_answer_without_the_outcome(world: World) -> None:
    engine = await world.engine()
    sent = Point()
    world.rail.script(waits(before_effect=sent))
    first = asyncio.create_task(world.pay(engine))
    await sent.reached.wait()
    await asyncio.sleep(29.99)
    world.faults["advance"] = [Fault.DONE_ANSWER_LOST]
    sent.go.set()
    answer = await first
    assert answer.standing is Standing.FINAL
    assert answer.outcome is not None


@in_world()
async def test_a_report_that_contradicts_an_end_is_answered_with_what_was_kept(world: World) -> None:
    first, second = await world.engine(), await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire, then=not_sent))
    paying = asyncio.create_task(world.pay(first))
    await wire.reached.wait()
    row = await world.row()
    await _settled_by_a_person(world, second, row)
    wire.go.set()
    answer = await paying
    assert answer.standing is Standing.FINAL
    assert answer.outcome is not None
    assert (await world.row()).contradicted


async def _settled_by_a_person(world: World, engine, row) -> None:
    from nonbis.core.messages import Kind
    from nonbis.engine.writing import Observation

    doubt = Observation(kind=Kind.REPORT_UNKNOWN, attempt=row.attempt, send=row.sends)
    doubted = (await engine.writer.apply(row, doubt)).record
    said = Observation(kind=Kind.PERSON_APPLIED, seen=doubted.stamp, who="op", because="seen at the bank")
    assert (await engine.writer.apply(doubted, said, engine.describe(await world.stored()))).won


@in_world()
async def test_a_poisoned_name_does_not_stall_the_others_of_its_batch(world: World) -> None:
    engine = await world.engine()
    poison = world.call("poison").digest
    store_claim = world.store.claim

    async def claim(claims):
        await asyncio.sleep(0.01)
        if any(item.record.digest == poison for item in claims):
            raise StoreError("a NUL in the wrong place")
        return await store_claim(claims)

    engine.writer._claims._write = claim
    names = ["warm", *(f"n{number}" for number in range(20)), "poison"]
    answers = await asyncio.gather(*(world.pay(engine, name) for name in names), return_exceptions=True)
    assert isinstance(answers[-1], StoreError)
    assert all(answer.record.state is State.APPLIED for answer in answers[:-1])
    assert len(world.rail.effects) == 21


@in_world()
async def test_a_retry_whose_answer_is_lost_for_good_is_unknown_and_ends_as_not_sent(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    world.rail.script(declined)
    assert (await world.pay(engine)).record.reason is Reason.DECLINED
    world.always["advance"] = Fault.HELD_BACK
    with pytest.raises(AnswerLost):
        await world.pay(engine)
    world.always.clear()
    held = world.store.held[:1]
    world.store.held.clear()
    held[0]()
    assert ((await world.row()).state, (await world.row()).attempt) == (State.STARTED, 2)
    await rounds(sweeper, 1)
    assert (await world.row()).reason is Reason.NOT_SENT
    assert (await world.pay(engine)).record.attempt == 3
    assert len(world.rail.effects) == 1


@in_world()
async def test_a_registration_whose_answer_is_lost_sent_nothing(world: World) -> None:
    engine = await world.engine()
    world.faults["register"] = [Fault.DONE_ANSWER_LOST]
    with pytest.raises(StoreUnavailable):
        await world.pay(engine)
    assert world.rail.calls == []
    assert (await world.pay(engine)).record.state is State.APPLIED
