"""The memory store's faults: what a simulation can do to a write, and what is true afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from nonbis.clocks import SystemEntropy
from nonbis.core.messages import Kind
from nonbis.errors import AnswerLost, StoreUnavailable
from nonbis.ports import Advanced, Claimed, Verdict
from nonbis.stores.memory import Fault, MemoryStore
from tests.conformance.places import runs
from tests.conformance.workload import Machine, name, new_machine


def faulty(*faults: Fault) -> MemoryStore:
    """A store whose next writes meet these faults, and no others after them."""
    store = MemoryStore(entropy=SystemEntropy())
    planned = list(faults)
    store.fault = lambda method, arguments: planned.pop(0) if planned else Fault.NONE
    return store


@pytest.mark.parametrize(
    ("fault", "error", "there"),
    [
        (Fault.DONE_ANSWER_LOST, AnswerLost, True),
        (Fault.NOT_DONE_ANSWER_LOST, AnswerLost, False),
        (Fault.HELD_BACK, AnswerLost, False),
        (Fault.UNAVAILABLE, StoreUnavailable, False),
    ],
)
@runs
async def test_each_fault_says_what_became_of_the_write(fault, error, there) -> None:
    store = faulty(fault)
    claim = Machine(1).claim(name(1))
    with pytest.raises(error):
        await store.claim([claim])
    assert (await store.find(name(1)) is not None) == there
    assert await store.claim([claim]) == [Claimed(None)]
    store.release()
    assert await store.claim([claim]) == [Claimed(None)]


@runs
async def test_a_write_that_was_held_back_comes_late() -> None:
    """A read finds nothing, another claims the name, and then the late write must change nothing."""
    store = faulty(Fault.HELD_BACK)
    late, other = Machine(1).claim(name(1)), Machine(2).claim(name(1))
    with pytest.raises(AnswerLost):
        await store.claim([late])
    assert await store.find(name(1)) is None
    assert await store.claim([other]) == [Claimed(None)]
    store.release()
    assert store.held == []
    stored = await store.find(name(1))
    assert stored is not None
    assert stored.record == other.record


@runs
async def test_an_advance_that_was_held_back_may_lose() -> None:
    machine = Machine(1)
    claim = machine.claim(name(1))
    store = faulty(Fault.NONE, Fault.HELD_BACK)
    await store.claim([claim])
    late = machine.advance(claim.record, Kind.REPORT_UNKNOWN)
    with pytest.raises(AnswerLost):
        await store.advance([late])
    done = machine.advance(claim.record, Kind.REPORT_APPLIED)
    assert await store.advance([done]) == [Advanced(Verdict.WON, done.record)]
    store.release()
    assert await store.advance([late]) == [Advanced(Verdict.LOST, done.record)]
    assert await store.attention() == []


@runs
async def test_the_fault_is_told_which_write_it_is() -> None:
    store = MemoryStore(entropy=SystemEntropy())
    asked: list[tuple[str, tuple[Any, ...]]] = []

    def remember(method: str, arguments: tuple[Any, ...]) -> Fault:
        asked.append((method, arguments))
        return Fault.NONE

    store.fault = remember
    machine = await new_machine(store)
    claim = machine.claim(name(1))
    await store.claim([claim])
    await store.end(machine.number, at_ms=5)
    assert [method for method, _ in asked] == ["register", "claim", "end"]
    assert asked[1][1] == ((claim,),)


@runs
async def test_a_machine_can_vanish() -> None:
    store = MemoryStore(entropy=SystemEntropy())
    machines = [await new_machine(store) for _ in range(3)]
    store.vanish(machines[1].number)
    assert [row.id for row in await store.vanished()] == [machines[1].number]
    assert await store.lose(machines[1].number, 0, at_ms=1)
    assert await store.vanished() == []
    assert not store.shared
    assert store.url == "memory:"
