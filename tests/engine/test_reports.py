"""What a send reports, in time or late, and what contradicts what."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.messages import Kind, Reason, State
from nonbis.core.names import reference
from nonbis.core.payments import Receipt
from nonbis.engine.flights import Standing
from nonbis.engine.writing import Observation
from nonbis.errors import Declined, NotSent, OutcomeUnknown
from nonbis.upkeep.resolving import resolve
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world, rounds
from tests.simulation.rail import (
    Point,
    answer_lost,
    at_once,
    declined,
    message_lost,
    not_sent,
    raises_after,
    waits,
)

SAID = {"who": "operator", "because": "the bank says so"}


class Interrupt(BaseException):
    """Like KeyboardInterrupt, which would end the test's own loop."""


@in_world()
async def test_each_end_of_a_send_has_its_row(world: World) -> None:
    engine = await world.engine()
    for script, state, reason in (
        (at_once, State.APPLIED, None),
        (declined, State.FAILED, Reason.DECLINED),
        (not_sent, State.FAILED, Reason.NOT_SENT),
        (answer_lost, State.IN_DOUBT, None),
        (message_lost, State.IN_DOUBT, None),
        (raises_after(KeyError("a bug in the rail's client")), State.IN_DOUBT, None),
        (raises_after(TimeoutError()), State.IN_DOUBT, None),
        (raises_after(asyncio.CancelledError()), State.IN_DOUBT, None),
    ):
        name = f"{script!r}"[:100]
        world.rail.script(script)
        answer = await world.pay(engine, name)
        row = await world.row(name)
        assert (row.state, row.reason) == (state, reason), name
        assert answer.record == row
        assert (answer.standing is Standing.IN_DOUBT) == (state is State.IN_DOUBT)


@in_world()
async def test_what_is_in_doubt_is_never_sent_again_by_a_retry(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    world.rail.script(answer_lost)
    await world.pay(engine)
    for process in (engine, other, engine):
        assert (await world.pay(process)).standing is Standing.IN_DOUBT
    assert len(world.rail.calls) == 1
    assert await world.listed() == [(await world.row()).id]


@in_world()
async def test_an_interrupt_inside_the_rail_is_never_taken_for_never_sent(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    world.rail.script(raises_after(Interrupt()))
    with pytest.raises(Exception, match="before the outcome was known"):
        await world.pay(engine)
    assert (await world.row()).state is State.STARTED
    await rounds(sweeper, 10)
    assert (await world.row()).state is not State.FAILED
    await asyncio.sleep(31)
    assert (await world.row()).state is State.IN_DOUBT
    assert (await world.pay(engine)).standing is Standing.IN_DOUBT
    assert len(world.rail.calls) == 1


@in_world()
async def test_a_slow_effect_is_told_in_doubt_to_all_at_once_and_its_late_answer_settles(
    world: World,
) -> None:
    engine = await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    begun = world.clock.monotonic()
    calls = [asyncio.create_task(world.pay(engine, wait_seconds=1000)) for _ in range(5)]
    answers = await asyncio.gather(*calls)
    assert {answer.standing for answer in answers} == {Standing.IN_DOUBT}
    assert 30 <= world.clock.monotonic() - begun < 31
    wire.go.set()
    await asyncio.sleep(1)
    replay = await world.pay(engine)
    assert (replay.record.state, replay.replayed) == (State.APPLIED, True)
    assert replay.outcome.receipt is not None
    assert len(world.rail.calls) == 1


@pytest.mark.parametrize(
    ("late", "state", "reason"),
    [
        (at_once, State.APPLIED, None),
        (declined, State.FAILED, Reason.DECLINED),
        (not_sent, State.FAILED, Reason.NOT_SENT),
        (message_lost, State.IN_DOUBT, None),
    ],
)
def test_a_late_report_settles(late, state: State, reason: Reason | None) -> None:
    @in_world()
    async def test(world: World) -> None:
        engine = await world.engine()
        wire = Point()
        world.rail.script(waits(before_effect=wire, then=late))
        assert (await world.pay(engine)).standing is Standing.IN_DOUBT
        wire.go.set()
        await asyncio.sleep(1)
        row = await world.row()
        assert (row.state, row.reason) == (state, reason)

    test()


@in_world()
async def test_a_late_applied_corrects_a_settlement_as_failed(world: World) -> None:
    engine = await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    await world.pay(engine)
    row = await world.row()
    settled = await resolve(engine, row.id, "failed", force=True, **SAID)
    assert settled.stored.record.reason is Reason.SETTLED
    wire.go.set()
    await asyncio.sleep(1)
    assert (await world.row()).state is State.APPLIED
    assert await world.kinds() == ["in_doubt", "settled", "corrected"]
    assert (await world.pay(engine)).outcome.receipt is not None
    assert len(world.rail.effects) == 1


@in_world()
async def test_an_applied_of_an_earlier_attempt_flags_blocks_and_is_listed(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    wire = Point()
    world.rail.script(waits(before_effect=wire), declined)
    await world.pay(engine)
    await resolve(other, (await world.row()).id, "failed", force=True, **SAID)
    assert (await world.pay(other)).record.attempt == 2
    wire.go.set()
    await asyncio.sleep(1)
    row = await world.row()
    assert (row.contradicted, row.reason) == (True, Reason.DECLINED)
    assert await world.listed() == [row.id]
    for process in (engine, other):
        assert (await world.pay(process)).standing is Standing.IN_DOUBT
    assert len(world.rail.calls) == 2
    said = await resolve(other, row.id, "applied", **SAID)
    assert (said.stored.record.state, said.stored.record.contradicted) == (State.APPLIED, False)
    assert (await world.pay(engine)).standing is Standing.FINAL


@in_world()
async def test_a_not_sent_on_what_a_person_called_applied_is_a_contradiction(world: World) -> None:
    engine, other = await world.engine(), await world.engine()
    wire = Point()
    world.rail.script(waits(before_gate=wire))
    await world.pay(engine)
    await resolve(other, (await world.row()).id, "applied", **SAID)
    wire.go.set()
    await asyncio.sleep(1)
    row = await world.row()
    assert (row.state, row.contradicted) == (State.APPLIED, True)
    assert world.rail.effects == []


@in_world()
async def test_a_receipt_for_another_amount_is_not_applied(world: World) -> None:
    engine = await world.engine()

    async def another(rail, transfer, reference, gate):
        gate()
        return Receipt(reference=reference, amount=transfer.amount + 1)

    world.rail.script(another)
    assert (await world.pay(engine)).standing is Standing.IN_DOUBT
    (entry,) = await world.journal()
    assert "amount" in entry.because


@in_world()
async def test_what_the_sweeper_saw_is_not_held_against_a_newer_attempt(world: World) -> None:
    """Declined and retried at once, while the sweeper still holds the row as it was read before."""
    engine = await world.engine()
    sweeper = Sweeper(engine)
    first, second = Point(), Point()
    world.rail.script(waits(before_effect=first, then=declined), waits(before_effect=second))
    paying = asyncio.create_task(world.pay(engine))
    await first.reached.wait()
    seen = await world.row()
    first.go.set()
    await paying
    find = world.store.find
    retrying: list[asyncio.Task] = []

    async def meanwhile(digest):
        stored = await find(digest)
        if not retrying:
            retrying.append(asyncio.create_task(world.pay(engine)))
            await second.reached.wait()
        return stored

    world.store.find = meanwhile
    await sweeper._forgotten(seen)
    world.store.find = find
    assert (await world.row()).state is State.STARTED
    second.go.set()
    assert (await retrying[0]).record.state is State.APPLIED
    assert len(world.rail.effects) == 1


@in_world()
async def test_an_answer_of_the_rail_is_not_held_against_a_newer_attempt(world: World) -> None:
    first, second = await world.engine(), await world.engine()
    world.rail.script(message_lost)
    await world.pay(first)
    await resolve(first, (await world.row()).id, "failed", force=True, **SAID)
    settled = await world.row()
    assert (await world.pay(second)).record.attempt == 2
    found = Observation(kind=Kind.FOUND_APPLIED, attempt=1, seen=settled.stamp, facts=world.rail.facts)
    applied = await first.writer.apply(settled, found)
    assert not applied.won
    assert not (await world.row()).contradicted


@in_world(rail={"dedupes_for_seconds": 100_000.0})
async def test_references_rise_only_when_the_rail_refused(world: World) -> None:
    engine = await world.engine()
    digest = world.call().digest
    world.rail.script(not_sent, declined, answer_lost, at_once)
    for _ in range(3):
        await world.pay(engine)
    await resolve(engine, (await world.row()).id, "failed", force=True, **SAID)
    world.rail.effects.clear()
    answer = await world.pay(engine)
    assert answer.record.attempt == 4
    first, second = reference(digest, 0), reference(digest, 1)
    assert world.rail.calls == [first, first, second, second]
    assert second.endswith("-2")


def test_errors_are_sorted_by_what_they_say() -> None:
    from nonbis.engine.sends import report_of

    said = {
        Declined("no"): Kind.REPORT_DECLINED,
        NotSent("refused"): Kind.REPORT_NOT_SENT,
        OutcomeUnknown("time-out"): Kind.REPORT_UNKNOWN,
        ConnectionResetError(): Kind.REPORT_UNKNOWN,
        TimeoutError(): Kind.REPORT_UNKNOWN,
        Interrupt(): Kind.REPORT_UNKNOWN,
    }
    assert {error: report_of(error) for error in said} == said
