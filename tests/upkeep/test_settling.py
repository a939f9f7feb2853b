"""In doubt: asked, sent again, or left for a person; and what each answer of the rail is worth when."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from nonbis.core.messages import Reason, State
from nonbis.core.payments import Receipt
from nonbis.engine.flights import Standing
from nonbis.errors import AnswerLost, OutcomeUnknown
from nonbis.ports import Found, FoundKind
from nonbis.stores.memory import Fault
from nonbis.upkeep.resolving import resolve
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world
from tests.simulation.rail import Point, ScriptedRail, answer_lost, at_once, declined, message_lost, waits

SAID = {"who": "operator", "because": "the bank says so"}
NOT_FOUND = Found(FoundKind.NOT_FOUND)


async def in_doubt(world: World, engine, script=message_lost) -> None:
    world.rail.script(script)
    assert (await world.pay(engine)).standing is Standing.IN_DOUBT


@in_world(rail={"finds": True})
async def test_an_answer_that_was_lost_is_asked_for_at_once(world: World) -> None:
    engine = await world.engine()
    Sweeper(engine)
    await in_doubt(world, engine, answer_lost)
    await asyncio.sleep(0.1)
    assert (await world.row()).state is State.APPLIED
    replay = await world.pay(engine)
    assert replay.outcome.receipt is not None
    assert await world.kinds() == ["in_doubt", "settled"]


@in_world(rail={"finds": True, "settle_window_seconds": 5000.0})
async def test_it_is_asked_at_once_then_after_two_seconds_doubling_to_five_minutes(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    asked: list[float] = []
    find = world.rail.find

    async def noting(reference):
        asked.append(world.clock.monotonic() - begun)
        return await find(reference)

    world.rail.find = noting
    begun = world.clock.monotonic()
    sweeper.start()
    await in_doubt(world, engine)
    await asyncio.sleep(2000)
    await sweeper.stop()
    gaps = [later - sooner for sooner, later in zip(asked, asked[1:], strict=False)]
    assert asked[0] < 0.1
    for gap, least in zip(gaps, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300], strict=False):
        assert least <= gap <= least + 2.1, gaps
    assert len(gaps) >= 9


@in_world(rail={"finds": True, "settle_window_seconds": 60.0})
async def test_not_found_counts_only_when_asked_after_the_window(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    sweeper.start()
    await in_doubt(world, engine)
    started = world.clock.monotonic()
    while (await world.row()).state is State.IN_DOUBT:
        await asyncio.sleep(1)
        assert world.clock.monotonic() - started < 400
    assert world.clock.monotonic() - started >= 90
    row = await world.row()
    assert row.reason is Reason.SETTLED
    await sweeper.stop()


@in_world(rail={"finds": True, "settle_window_seconds": 60.0})
async def test_not_found_counts_by_when_it_was_asked_not_by_when_it_was_answered(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)

    async def slowly() -> Found:
        await asyncio.sleep(25)
        return NOT_FOUND

    await in_doubt(world, engine)
    await asyncio.sleep(0.1)
    sweeper.start()
    await asyncio.sleep(80)
    assert (await world.row()).state is State.IN_DOUBT
    stored = await world.stored()
    effect = engine.effects.of(stored)
    assert effect is not None
    world.rail.answers.append(slowly)
    await sweeper._settler._ask(stored, effect)
    assert (await world.row()).state is State.IN_DOUBT
    await sweeper.stop()


@in_world(rail={"finds": True, "settle_window_seconds": 60.0})
async def test_a_wall_clock_that_jumps_opens_no_settle_window(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    sweeper.start()
    await in_doubt(world, engine)
    world.clock.jump(100_000)
    await asyncio.sleep(30)
    assert (await world.row()).state is State.IN_DOUBT
    refused = await resolve(engine, (await world.row()).id, "failed", **SAID)
    assert refused.refused is not None
    await sweeper.stop()


@in_world(rail={"finds": True})
async def test_what_the_rail_does_not_answer_stays_in_doubt(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    world.rail.answers.extend(
        [Found(FoundKind.PENDING), OutcomeUnknown("no"), TimeoutError(), KeyError("bug")]
    )
    await in_doubt(world, engine, answer_lost)
    sweeper.start()
    await asyncio.sleep(10)
    assert (await world.row()).state is State.IN_DOUBT
    await asyncio.sleep(60)
    assert (await world.row()).state is State.APPLIED
    await sweeper.stop()


@pytest.mark.parametrize(("binds", "state"), [(True, State.FAILED), (False, State.IN_DOUBT)])
def test_a_refusal_settles_at_once_only_where_it_can_be_no_earlier_ones(binds: bool, state: State) -> None:
    @in_world(rail={"finds": True, "binds_refusals": binds})
    async def test(world: World) -> None:
        engine = await world.engine()
        world.rail.script(message_lost)
        await world.pay(engine)
        await resolve(engine, (await world.row()).id, "failed", force=True, **SAID)
        world.rail.script(message_lost)
        await world.pay(engine)
        world.rail.answers.append(Found(FoundKind.REFUSED))
        sweeper = Sweeper(engine)
        await sweeper.sweep()
        await asyncio.sleep(0.1)
        row = await world.row()
        assert (row.attempt, row.state) == (2, state)

    test()


@in_world(rail={"finds": True})
async def test_a_receipt_for_another_amount_stays_in_doubt_with_words_in_the_journal(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    wrong = Found(FoundKind.APPLIED, Receipt(reference="r", amount=7))
    world.rail.answers.extend([wrong] * 100)
    await in_doubt(world, engine)
    sweeper.start()
    await asyncio.sleep(300)
    assert (await world.row()).state is State.IN_DOUBT
    assert len(world.rail.asked) > 3
    noted = [entry for entry in await world.journal() if entry.kind == "noted"]
    assert len(noted) == 1
    assert "amount" in noted[0].because
    assert noted[0].who == "rail scripted/main"
    await sweeper.stop()


@pytest.mark.parametrize(("name", "account"), [("scripted", "other"), ("elsewhere", "main")])
def test_a_rail_of_another_name_or_account_is_never_asked_nor_sent_to(name: str, account: str) -> None:
    @in_world(rail={"finds": True, "dedupes_for_seconds": 100_000.0})
    async def test(world: World) -> None:
        engine = await world.engine()
        await in_doubt(world, engine)
        elsewhere = ScriptedRail(name=name, account=account, finds=True, dedupes_for_seconds=100_000.0)
        later = await world.engine(elsewhere)
        sweeper = Sweeper(later)
        sweeper.start()
        assert (await world.pay(later, rail=elsewhere)).standing is Standing.IN_DOUBT
        await asyncio.sleep(1000)
        assert (elsewhere.asked, elsewhere.calls) == ([], [])
        assert (await world.row()).state is State.IN_DOUBT
        await sweeper.stop()

    test()


@in_world(rail={"finds": True})
async def test_a_rail_that_hangs_when_asked_stops_nothing_else(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)

    async def hangs() -> Found:
        await asyncio.Event().wait()
        raise AssertionError

    world.rail.answers.extend([hangs] * 3)
    await in_doubt(world, engine)
    sweeper.start()
    await asyncio.sleep(200)
    assert (await world.store.machines())[0].beat >= 95
    assert (await world.row()).reason is Reason.SETTLED
    await sweeper.stop()


# -- resending


@in_world(rail={"dedupes_for_seconds": 100_000.0})
async def test_a_rail_that_dedupes_is_sent_the_same_reference_again(world: World) -> None:
    engine = await world.engine()
    Sweeper(engine)
    await in_doubt(world, engine, answer_lost)
    await asyncio.sleep(0.1)
    row = await world.row()
    assert (row.state, row.attempt, row.sends) == (State.APPLIED, 1, 2)
    assert len(set(world.rail.calls)) == 1
    assert len(world.rail.effects) == 1
    assert await world.kinds() == ["in_doubt", "resent"]


@in_world(rail={"dedupes_for_seconds": 100_000.0}, resends_max=3)
async def test_resends_are_limited_and_each_is_durable_before_it_is_sent(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    sends: list[tuple[State, int]] = []

    async def noting(rail, transfer, reference, gate):
        row = await world.row()
        sends.append((row.state, row.sends))
        raise OutcomeUnknown("time-out")

    world.rail.script(*[noting] * 10)
    sweeper.start()
    await world.pay(engine)
    await asyncio.sleep(1000)
    assert sends == [(State.STARTED, number) for number in (1, 2, 3, 4)]
    assert (await world.row()).state is State.IN_DOUBT
    await sweeper.stop()


@in_world(rail={"dedupes_for_seconds": 200.0, "settle_window_seconds": 60.0}, resends_max=60)
async def test_it_is_sent_again_only_while_the_rail_surely_remembers(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    world.rail.script(*[message_lost] * 50)
    begun = world.clock.monotonic()
    last = begun

    async def noting(rail, transfer, reference, gate):
        nonlocal last
        last = world.clock.monotonic()
        return await message_lost(rail, transfer, reference, gate)

    world.rail._scripts.clear()
    world.rail.script(*[noting] * 50)
    sweeper.start()
    await world.pay(engine)
    await asyncio.sleep(2000)
    assert 2 < len(world.rail.calls) < 50
    assert last - begun < 200 - 30 - 60
    await sweeper.stop()


@in_world(
    rail={"dedupes_for_seconds": 100_000.0, "finds": True, "settle_window_seconds": 60.0}, resends_max=1
)
async def test_a_resend_begins_the_settle_window_anew(world: World) -> None:
    engine = await world.engine()
    world.rail.script(message_lost, message_lost)
    await world.pay(engine)
    before = await world.row()
    await asyncio.sleep(80)
    sweeper = Sweeper(engine)
    sweeper.start()
    await asyncio.sleep(20)
    row = await world.row()
    assert (row.sends, row.state) == (2, State.IN_DOUBT)
    assert row.started.wall_ms - before.started.wall_ms >= 80_000
    assert row.referenced == before.referenced
    await sweeper.stop()


@in_world(rail={"dedupes_for_seconds": 100_000.0, "finds": True})
async def test_no_second_send_while_one_is_under_way_here(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    sweeper.start()
    wire = Point()
    world.rail.script(waits(before_effect=wire))
    assert (await world.pay(engine)).standing is Standing.IN_DOUBT
    await asyncio.sleep(20)
    assert len(world.rail.calls) == 1
    assert world.rail.asked
    wire.go.set()
    await asyncio.sleep(1)
    assert (await world.row()).state is State.APPLIED
    await sweeper.stop()


@in_world(rail={"dedupes_for_seconds": 100_000.0})
async def test_a_resend_that_is_declined_leaves_the_first_send_open(world: World) -> None:
    engine = await world.engine()
    Sweeper(engine)
    world.rail.script(message_lost, declined, at_once)
    await world.pay(engine)
    await asyncio.sleep(0.5)
    row = await world.row()
    assert (row.state, row.open_sends) == (State.IN_DOUBT, 0b01)


@in_world(rail={"dedupes_for_seconds": 100_000.0})
async def test_who_waits_for_a_resend_that_can_not_be_written_is_not_told_that_nothing_was_sent(
    world: World,
) -> None:
    engine = await world.engine()
    world.rail.script(answer_lost)
    await world.pay(engine)
    stored = await world.stored()
    effect = engine.effects.of(stored)
    assert effect is not None
    world.always["advance"] = Fault.NOT_DONE_ANSWER_LOST
    engine.resend(stored, effect)
    with pytest.raises(AnswerLost):
        await world.pay(engine, wait_seconds=100)
    world.always["advance"] = Fault.UNAVAILABLE
    engine.resend(stored, effect)
    joiner = asyncio.create_task(world.pay(engine, wait_seconds=100))
    with pytest.raises(AnswerLost):
        await joiner


# -- a person's word is verified


@in_world(rail={"finds": True, "settle_window_seconds": 60.0})
async def test_what_a_person_settled_as_failed_is_asked_about_once_more_after_the_window(
    world: World,
) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    sweeper.start()
    world.rail.answers.append(OutcomeUnknown("not now"))
    await in_doubt(world, engine, answer_lost)
    await asyncio.sleep(0.5)
    await resolve(engine, (await world.row()).id, "failed", force=True, **SAID)
    world.rail.asked.clear()
    await asyncio.sleep(60)
    assert (await world.row()).reason is Reason.SETTLED
    assert world.rail.asked == []
    await asyncio.sleep(60)
    assert (await world.row()).state is State.APPLIED
    assert len(world.rail.asked) == 1
    assert (await world.kinds())[-1] == "corrected"
    await sweeper.stop()


@in_world(rail={"finds": True, "settle_window_seconds": 60.0})
async def test_a_rail_that_hangs_then_costs_no_beat(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    sweeper.start()

    async def hangs() -> Found:
        await asyncio.Event().wait()
        raise AssertionError

    world.rail.answers.append(OutcomeUnknown("not now"))
    await in_doubt(world, engine)
    await asyncio.sleep(0.5)
    await resolve(engine, (await world.row()).id, "failed", force=True, **SAID)
    world.rail.answers.extend([hangs] * 50)
    await asyncio.sleep(200)
    assert (await world.store.machines())[0].beat >= 95
    world.rail.script(message_lost)
    await world.pay(engine, "b")
    await sweeper.stop()


@in_world(rail={"finds": True})
async def test_the_settlement_of_sweeper_and_person_leaves_the_same_trace(world: World) -> None:
    engine = await world.engine()
    sweeper = Sweeper(engine)
    for name in ("by rail", "by person"):
        world.rail.script(answer_lost)
        world.rail.answers.append(OutcomeUnknown("not now"))
        await world.pay(engine, name)
        await asyncio.sleep(0.1)
    await resolve(engine, (await world.row("by person")).id, "applied", **SAID)
    await asyncio.sleep(3)
    await sweeper.sweep()
    await asyncio.sleep(0.1)
    for name in ("by rail", "by person"):
        assert (await world.row(name)).state is State.APPLIED
        assert await world.kinds(name) == ["in_doubt", "settled"]
        settled = (await world.journal(name))[1]
        assert settled.who
        assert settled.because
        views = msgspec.json.decode((await world.pay(engine, name)).outcome.body)
        assert views["state"] == "applied"
