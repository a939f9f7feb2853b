"""Many calls for one name in one process: one send, and each caller told what the row says."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.messages import State
from nonbis.engine.flights import Standing
from nonbis.errors import AnswerLost
from nonbis.stores.memory import Fault
from tests.engine.world import World, in_world, transfer_of
from tests.simulation.rail import Point, declined, waits


@in_world()
async def test_fifty_calls_at_once_send_once_and_afterwards_all_get_the_same_body(world: World) -> None:
    engine = await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    calls = [asyncio.create_task(world.pay(engine)) for _ in range(50)]
    await wire.reached.wait()
    await asyncio.sleep(1)
    told = [call.result().standing for call in calls if call.done()]
    assert told == [Standing.IN_PROGRESS] * 49
    wire.go.set()
    answers = [await call for call in calls]
    first = [answer for answer in answers if answer.standing is Standing.FINAL]
    assert len(first) == 1
    assert not first[0].replayed
    replays = await asyncio.gather(*(world.pay(engine) for _ in range(50)))
    assert {replay.outcome.body for replay in replays} == {first[0].outcome.body}
    assert all(replay.replayed for replay in replays)
    assert len(world.rail.calls) == 1


@in_world()
async def test_those_who_wait_get_the_outcome(world: World) -> None:
    engine = await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    calls = [asyncio.create_task(world.pay(engine, wait_seconds=10)) for _ in range(50)]
    await wire.reached.wait()
    wire.go.set()
    answers = await asyncio.gather(*calls)
    assert {answer.standing for answer in answers} == {Standing.FINAL}
    assert len({answer.outcome.body for answer in answers}) == 1
    assert sum(not answer.replayed for answer in answers) == 1
    assert len(world.rail.calls) == 1


@in_world()
async def test_who_waits_longer_than_asked_for_is_told_in_progress(world: World) -> None:
    engine = await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    first = asyncio.create_task(world.pay(engine))
    await wire.reached.wait()
    begun = world.clock.monotonic()
    assert (await world.pay(engine, wait_seconds=3)).standing is Standing.IN_PROGRESS
    assert 3 <= world.clock.monotonic() - begun < 3.1
    wire.go.set()
    assert (await first).standing is Standing.FINAL


@in_world()
async def test_a_caller_who_is_cancelled_cancels_nothing(world: World) -> None:
    engine = await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    first = asyncio.create_task(world.pay(engine))
    await wire.reached.wait()
    joiner = asyncio.create_task(world.pay(engine, wait_seconds=10))
    await asyncio.sleep(0.1)
    first.cancel()
    await asyncio.sleep(0.1)
    joiner_too = asyncio.create_task(world.pay(engine, wait_seconds=10))
    joiner.cancel()
    await asyncio.sleep(0.1)
    wire.go.set()
    assert (await joiner_too).standing is Standing.FINAL
    assert (await world.row()).state is State.APPLIED
    assert len(world.rail.effects) == 1


@in_world()
async def test_a_caller_who_is_cancelled_during_the_claim_cancels_nothing(world: World) -> None:
    engine = await world.engine()
    world.faults["claim"] = [Fault.NOT_DONE_ANSWER_LOST]
    first = asyncio.create_task(world.pay(engine))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(1)
    assert (await world.row()).state is State.APPLIED


@in_world()
async def test_another_request_is_refused_while_the_first_is_running(world: World) -> None:
    engine = await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    first = asyncio.create_task(world.pay(engine))
    await wire.reached.wait()
    other = await world.pay(engine, transfer=transfer_of(999), wait_seconds=10)
    assert other.standing is Standing.MISMATCH
    assert other.request == world.call().request
    wire.go.set()
    assert (await first).standing is Standing.FINAL
    assert (await world.pay(engine, transfer=transfer_of(999))).standing is Standing.MISMATCH
    assert len(world.rail.calls) == 1


@pytest.mark.parametrize("wait_seconds", [0.0, 10.0])
def test_a_first_caller_with_another_request_makes_no_honest_joiner_a_mismatch(wait_seconds: float) -> None:
    @in_world()
    async def test(world: World) -> None:
        engine = await world.engine()
        honest = await world.pay(engine)
        world.faults["claim"] = [Fault.NOT_DONE_ANSWER_LOST]
        wrong = asyncio.create_task(world.pay(engine, transfer=transfer_of(999)))
        await asyncio.sleep(0)
        joiner = await world.pay(engine, wait_seconds=wait_seconds)
        assert (await wrong).standing is Standing.MISMATCH
        assert joiner.standing in (Standing.FINAL, Standing.IN_PROGRESS)
        if wait_seconds:
            assert joiner.outcome.body == honest.outcome.body

    test()


@in_world()
async def test_joiners_of_a_claim_without_an_answer_are_told_that_it_is_unknown(world: World) -> None:
    engine = await world.engine()
    world.always["claim"] = Fault.NOT_DONE_ANSWER_LOST
    calls = [asyncio.create_task(world.pay(engine)) for _ in range(3)]
    told = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in told] == [AnswerLost] * 3
    assert world.rail.calls == []


@in_world()
async def test_one_failed_attempt_answers_all_its_waiters_and_starts_no_retry(world: World) -> None:
    engine = await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire, then=declined))
    calls = [asyncio.create_task(world.pay(engine, wait_seconds=10)) for _ in range(5)]
    await wire.reached.wait()
    wire.go.set()
    answers = await asyncio.gather(*calls)
    assert {(answer.record.state, answer.record.attempt) for answer in answers} == {(State.FAILED, 1)}
    assert len(world.rail.calls) == 1


@in_world()
async def test_many_names_at_once_share_few_commits(world: World) -> None:
    engine = await world.engine()
    await asyncio.gather(*(world.pay(engine, f"n{number}") for number in range(300)))
    assert len(world.rail.effects) == 300
    assert world.written.count("claim") + world.written.count("advance") < 60


@in_world()
async def test_a_second_process_is_told_in_progress_then_gets_the_replay(world: World) -> None:
    first, second = await world.engine(), await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    paying = asyncio.create_task(world.pay(first))
    await wire.reached.wait()
    assert (await world.pay(second)).standing is Standing.IN_PROGRESS
    wire.go.set()
    body = (await paying).outcome.body
    assert (await world.pay(second)).outcome.body == body
    assert len(world.rail.calls) == 1


@in_world()
async def test_two_processes_that_have_just_started_do_not_take_each_other_for_dead(world: World) -> None:
    """The second registers under a higher number before it has read that the first one lives."""
    first, second = await world.engine(), await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    paying = asyncio.create_task(world.pay(first))
    await wire.reached.wait()
    await world.pay(second, "b")
    assert (await world.pay(second)).standing is Standing.IN_PROGRESS
    wire.go.set()
    assert (await paying).standing is Standing.FINAL
    assert await world.kinds() == []


@in_world()
async def test_the_rows_of_machines_read_out_of_order_make_nobody_dead(world: World) -> None:
    first, second = await world.engine(), await world.engine()
    await world.pay(second, "b")
    held, go = asyncio.Event(), asyncio.Event()
    machines = world.store.machines

    class Slow:
        """The first read is answered late, with what it saw when it was asked."""

        def __getattr__(self, name):
            return getattr(world.store, name)

        async def machines(self, **named):
            rows = await machines(**named)
            if not held.is_set():
                held.set()
                await go.wait()
            return rows

    second.presence._store = Slow()
    slow = asyncio.create_task(second.presence.refresh_living())
    await held.wait()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    paying = asyncio.create_task(world.pay(first))
    await wire.reached.wait()
    quick = asyncio.create_task(second.presence.refresh())
    await asyncio.sleep(0.1)
    go.set()
    await asyncio.gather(slow, quick)
    owner = (await world.row()).owner
    assert await second.presence.is_living(owner)
    wire.go.set()
    await paying
