"""A claim without an answer is unknown to its caller, in the engine and over HTTP: never "not done"."""

from __future__ import annotations

import asyncio
import json

import pytest

from nonbis.core.messages import State
from nonbis.engine.engine import Engine
from nonbis.errors import AnswerLost
from nonbis.faces.payments import PaymentRoutes
from nonbis.faces.wire import Reply
from nonbis.stores.memory import Fault
from nonbis.upkeep.sweeper import Sweeper
from tests.engine.world import World, in_world, rounds
from tests.simulation.clock import SeededEntropy

RESENDS = {"dedupes_for_seconds": 100_000.0, "finds": True, "binds_refusals": True}


async def post(world: World, engine: Engine) -> Reply:
    """The payment named "a", as a client asks for it."""
    routes = PaymentRoutes(engine, world.rail, SeededEntropy(2), currency="USD", simulate_failures=0.0)
    return await routes.post_payments(
        [(b"idempotency-key", b"a")], b'{"amount": 100, "destination": "alice"}'
    )


def said(reply: Reply) -> tuple[int, str, str]:
    problem = json.loads(reply.body)
    return reply.status, problem["code"], problem["effect"]


UNKNOWN = (503, "store-unavailable", "unknown")


def written_but_unanswered(world: World) -> None:
    world.faults["claim"] = [Fault.DONE_ANSWER_LOST]
    world.always["claim"] = Fault.UNAVAILABLE


@in_world(rail=RESENDS)
async def test_a_claim_without_an_answer_is_unknown_for_another_process_may_send_it(world: World) -> None:
    engine = await world.engine()
    written_but_unanswered(world)
    with pytest.raises(AnswerLost):
        await world.pay(engine)
    assert engine.presence.incarnation is not None
    world.store.vanish(engine.presence.incarnation.machine)
    world.always.clear()
    await rounds(Sweeper(await world.engine()), 3)
    row = await world.row()
    assert (row.state, row.sends, len(world.rail.effects)) == (State.APPLIED, 2, 1)


@in_world()
async def test_over_http_it_is_503_with_the_effect_unknown(world: World) -> None:
    engine = await world.engine()
    written_but_unanswered(world)
    assert said(await post(world, engine)) == UNKNOWN


@in_world(stop_seconds=1.0, store_wait_seconds=100.0)
async def test_a_stop_during_the_claim_is_unknown(world: World) -> None:
    engine = await world.engine()
    world.always["claim"] = Fault.HELD_BACK
    paying = asyncio.create_task(world.pay(engine))
    await asyncio.sleep(0.1)
    await engine.stop()
    with pytest.raises(AnswerLost):
        await paying
    assert world.rail.calls == []


@in_world(stop_seconds=1.0, store_wait_seconds=100.0)
async def test_a_stop_during_the_claim_is_503_with_the_effect_unknown(world: World) -> None:
    engine = await world.engine()
    world.always["claim"] = Fault.HELD_BACK
    posting = asyncio.create_task(post(world, engine))
    await asyncio.sleep(0.1)
    await engine.stop()
    assert said(await posting) == UNKNOWN


@in_world()
async def test_a_store_that_surely_took_nothing_is_told_as_not_done(world: World) -> None:
    engine = await world.engine()
    world.always["claim"] = Fault.UNAVAILABLE
    assert said(await post(world, engine)) == (503, "store-unavailable", "not_done")
