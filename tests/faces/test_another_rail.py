"""A payment that failed over one rail, asked for again at a process that has another one."""

from __future__ import annotations

import json

from nonbis.engine.engine import Engine
from nonbis.faces.payments import PaymentRoutes
from nonbis.faces.wire import REPLAYED, Reply
from tests.engine.world import World, in_world
from tests.simulation.clock import SeededEntropy
from tests.simulation.rail import ScriptedRail, not_sent
from tests.upkeep.test_settlements import settled_by_force, then_not_sent


async def post(engine: Engine, rail: ScriptedRail) -> Reply:
    """The payment named "a", as a client asks for it."""
    routes = PaymentRoutes(engine, rail, SeededEntropy(2), currency="USD", simulate_failures=0.0)
    return await routes.post_payments(
        [(b"idempotency-key", b"a")], b'{"amount": 100, "destination": "alice"}'
    )


async def elsewhere(world: World) -> tuple[Engine, ScriptedRail]:
    rail = ScriptedRail(name="other", finds=True)
    return await world.engine(rail), rail


@in_world(rail={"finds": True})
async def test_what_can_not_be_retried_here_is_replayed_as_failed(world: World) -> None:
    """Else this process tells its client to ask again, and never can do anything about it."""
    engine = await world.engine()
    await settled_by_force(world, engine)
    await then_not_sent(world, engine)
    for _ in range(2):
        reply = await post(*await elsewhere(world))
        payment = json.loads(reply.body)
        assert (reply.status, payment["state"], payment["reason"]) == (201, "failed", "not_sent")
        assert payment["attempt"] == 2
        assert REPLAYED in reply.headers


@in_world(rail={"finds": True})
async def test_the_rows_own_rail_still_asks_for_a_retry(world: World) -> None:
    engine = await world.engine()
    await settled_by_force(world, engine)
    await then_not_sent(world, engine)
    world.rail.script(not_sent)
    reply = await post(engine, world.rail)
    assert (reply.status, json.loads(reply.body)["code"]) == (503, "rail-unreachable")
    reply = await post(engine, world.rail)
    assert (reply.status, json.loads(reply.body)["state"]) == (201, "applied")


@in_world(rail={"finds": True})
async def test_a_first_attempt_that_was_not_sent_is_retried_over_the_other_rail(world: World) -> None:
    world.rail.script(not_sent)
    await world.pay(await world.engine())
    engine, rail = await elsewhere(world)
    rail.script(not_sent)
    reply = await post(engine, rail)
    assert (reply.status, json.loads(reply.body)["code"]) == (503, "rail-unreachable")
    assert len(rail.calls) == 1
