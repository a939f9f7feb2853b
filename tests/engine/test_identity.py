"""Ids and stamps: in order, never twice, not in a forked child."""

from __future__ import annotations

import os
import threading

import pytest

from nonbis.core.ids import SEQUENCE_MAX, machine_of, sequence_of
from nonbis.core.messages import Reason, State
from nonbis.engine.identity import Incarnation
from nonbis.errors import MachineLost
from tests.engine.world import World, in_world


def test_draws_are_in_order_and_carry_the_machine() -> None:
    incarnation = Incarnation(7)
    drawn = [incarnation.draw() for _ in range(1000)]
    assert drawn == sorted(set(drawn))
    assert {machine_of(number) for number in drawn} == {7}
    assert sequence_of(drawn[0]) == 1
    incarnation.retire()


def test_threads_draw_no_number_twice() -> None:
    incarnation = Incarnation(7)
    drawn: list[int] = []
    threads = [
        threading.Thread(target=lambda: drawn.extend(incarnation.draw() for _ in range(2000)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(drawn)) == 8000
    incarnation.retire()


def in_child(work) -> int:
    """The exit code of a forked child that does the work: 0 if it returns True."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_draws_nothing_and_the_parent_goes_on() -> None:
    incarnation = Incarnation(7)
    before = incarnation.draw()

    def refused() -> bool:
        try:
            incarnation.draw()
        except MachineLost:
            return incarnation.spent
        return False

    assert in_child(refused) == 0
    assert incarnation.draw() == before + 1
    incarnation.retire()


def test_a_forked_child_is_refused_by_its_process_id_alone() -> None:
    incarnation = Incarnation(7)
    incarnation._pid = -1
    with pytest.raises(MachineLost):
        incarnation.draw()
    incarnation.retire()


@in_world()
async def test_the_child_of_a_process_that_serves_has_no_machine(world: World) -> None:
    engine = await world.engine()
    await world.pay(engine)
    assert in_child(lambda: engine.presence.incarnation is None) == 0
    assert engine.presence.incarnation is not None
    assert (await world.pay(engine, "b")).record.state is State.APPLIED


@in_world()
async def test_at_the_end_of_the_sequence_the_process_registers_anew(world: World) -> None:
    engine = await world.engine()
    await world.pay(engine)
    engine.presence.incarnation._next = SEQUENCE_MAX
    first = (await world.pay(engine, "b")).record
    assert first.reason is Reason.NOT_SENT
    assert (machine_of(first.id), sequence_of(first.id)) == (1, SEQUENCE_MAX)
    assert machine_of((await world.pay(engine, "c")).record.id) == 2
    assert (await world.pay(engine, "b")).record.owner == 2
    assert len(world.rail.effects) == 3
