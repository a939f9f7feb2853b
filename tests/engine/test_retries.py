"""Another attempt under the same name: when, by whom, and under which reference."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.messages import Kind, Reason, State
from nonbis.core.payments import Receipt
from nonbis.engine.flights import Standing
from nonbis.engine.writing import Observation
from nonbis.errors import OutcomeUnknown
from nonbis.ports import Found, FoundKind
from nonbis.upkeep.resolving import resolve
from tests.engine.world import World, in_world
from tests.simulation.rail import Point, answer_lost, declined, message_lost, not_sent, waits

SAID = {"who": "operator", "because": "the bank says so", "force": True}


async def settled_as_failed(world: World, engine) -> None:
    world.rail.script(message_lost)
    await world.pay(engine)
    await resolve(engine, (await world.row()).id, "failed", **SAID)
    assert (await world.row()).reason is Reason.SETTLED


@in_world(attempts_max=3)
async def test_attempts_are_limited(world: World) -> None:
    engine = await world.engine()
    world.rail.script(declined, declined, declined)
    attempts = [(await world.pay(engine)).record.attempt for _ in range(5)]
    assert attempts == [1, 2, 3, 3, 3]
    assert len(world.rail.calls) == 3


@in_world(retry_within_seconds=3600.0)
async def test_after_the_retry_window_a_failure_is_only_replayed(world: World) -> None:
    engine = await world.engine()
    world.rail.script(declined)
    first = await world.pay(engine)
    world.clock.advance(3601)
    replay = await world.pay(engine)
    assert replay.replayed
    assert replay.outcome.body == first.outcome.body
    assert len(world.rail.calls) == 1


@in_world(retry_failed=False)
async def test_where_failures_are_replayed_only_what_was_not_sent_is_tried_again(world: World) -> None:
    engine = await world.engine()
    world.rail.script(not_sent, declined)
    assert (await world.pay(engine)).record.reason is Reason.NOT_SENT
    assert (await world.pay(engine)).record.reason is Reason.DECLINED
    replay = await world.pay(engine)
    assert (replay.record.attempt, replay.replayed) == (2, True)
    assert len(world.rail.calls) == 2


@in_world()
async def test_who_loses_the_race_for_a_retry_is_told_in_progress(world: World) -> None:
    first, second = await world.engine(), await world.engine()
    wire = Point()
    world.rail.script(declined, waits(before_effect=wire))
    await world.pay(first)
    races = [asyncio.create_task(world.pay(engine)) for engine in (first, second)]
    await wire.reached.wait()
    await asyncio.sleep(1)
    (loser,) = (race for race in races if race.done())
    assert loser.result().standing is Standing.IN_PROGRESS
    wire.go.set()
    answers = await asyncio.gather(*races)
    assert sorted(answer.standing for answer in answers) == [Standing.FINAL, Standing.IN_PROGRESS]
    assert len(world.rail.calls) == 2


@in_world()
async def test_two_processes_race_for_a_hundred_retries_and_each_is_sent_once(world: World) -> None:
    first, second = await world.engine(), await world.engine()
    advance = world.store.advance

    async def slowly(advances):
        await asyncio.sleep(0.01)
        return await advance(advances)

    for engine in (first, second):
        engine.writer._advances._write = slowly
    for number in range(100):
        name = f"n{number}"
        world.rail.script(declined)
        await world.pay(first, name)
        await asyncio.gather(*(world.pay(engine, name) for engine in (first, second) for _ in range(3)))
        assert (await world.row(name)).attempt == 2
        assert len(world.rail.effects) == number + 1
    assert len(world.rail.calls) == 200


@in_world(rail={"finds": True})
async def test_a_settled_name_is_asked_about_before_it_may_send_again(world: World) -> None:
    engine = await world.engine()
    world.rail.script(answer_lost)
    await world.pay(engine)
    await resolve(engine, (await world.row()).id, "failed", **SAID)
    world.rail.asked.clear()
    answer = await world.pay(engine)
    assert (answer.record.state, answer.record.attempt) == (State.APPLIED, 1)
    assert answer.outcome.receipt is not None
    assert len(world.rail.asked) == 1
    assert len(world.rail.calls) == 1
    assert "corrected" in await world.kinds()


@in_world(rail={"finds": True})
async def test_a_settled_name_that_the_rail_does_not_know_is_sent_again(world: World) -> None:
    engine = await world.engine()
    await settled_as_failed(world, engine)
    answer = await world.pay(engine)
    assert (answer.record.state, answer.record.attempt) == (State.APPLIED, 2)
    assert world.rail.calls[0] == world.rail.calls[1]


@pytest.mark.parametrize("says", ["pending", "unreachable", "hangs"])
def test_a_settled_name_whose_rail_gives_no_answer_is_unknown_and_not_sent(says: str) -> None:
    @in_world(rail={"finds": True})
    async def test(world: World) -> None:
        engine = await world.engine()
        await settled_as_failed(world, engine)

        async def hangs() -> Found:
            await asyncio.Event().wait()
            raise AssertionError

        world.rail.answers.append(
            {
                "pending": Found(FoundKind.PENDING),
                "unreachable": OutcomeUnknown("no route"),
                "hangs": hangs,
            }[says]
        )
        answer = await asyncio.wait_for(world.pay(engine), 60)
        assert answer.standing is Standing.IN_DOUBT
        assert len(world.rail.calls) == 1
        assert (await world.row()).reason is Reason.SETTLED

    test()


@in_world(rail={"finds": True})
async def test_a_settled_name_under_which_the_rail_shows_another_transfer_is_not_sent(world: World) -> None:
    engine = await world.engine()
    await settled_as_failed(world, engine)
    world.rail.answers.extend([Found(FoundKind.APPLIED, Receipt(reference="r", amount=7))] * 2)
    for _ in range(2):
        assert (await world.pay(engine)).standing is Standing.IN_DOUBT
    assert (await world.row()).reason is Reason.SETTLED
    assert len(world.rail.calls) == 1
    noted = [entry for entry in await world.journal() if entry.kind == "noted"]
    assert ["amount" in entry.because for entry in noted] == [True]


@in_world(rail={"finds": True})
async def test_a_name_that_is_settled_while_another_retry_is_judged_is_asked_about_too(world: World) -> None:
    """A retry is of the row that was seen: one that was settled meanwhile is not sent unasked."""
    engine = await world.engine()
    world.rail.script(not_sent)
    await world.pay(engine)
    seen = await world.row()
    await world.pay(engine)
    assert (await world.row()).state is State.APPLIED
    applied = await engine.writer.apply(seen, Observation(kind=Kind.RETRY, facts=world.rail.facts))
    assert not applied.won
    assert applied.record.state is State.APPLIED


@in_world()
async def test_a_settled_name_is_not_retried_over_another_rail(world: World) -> None:
    from tests.simulation.rail import ScriptedRail

    engine = await world.engine()
    await settled_as_failed(world, engine)
    elsewhere = ScriptedRail(name="elsewhere")
    other = await world.engine(elsewhere)
    answer = await world.pay(other, rail=elsewhere)
    assert answer.record.reason is Reason.SETTLED
    assert elsewhere.calls == []
