"""The suite's cases for machines, the store's age and the agreement."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.ids import pack_id
from nonbis.core.policy import Agreement, RailFacts
from nonbis.errors import MachineLost
from nonbis.ports import Beat, MachineState, Store
from tests.conformance.places import Place


async def beat(store: Store, machine: int, count: int, **given: int) -> Beat:
    """A beat whose arguments don't matter but for those that are given."""
    arguments = {"oldest_open": 1, "lowest_in_flight": 2, "seen_age_ms": 0, "elapsed_ms": 0, "at_ms": 9}
    return await store.beat(machine, count, **(arguments | given))


async def machines_are_numbered_upwards(place: Place) -> None:
    first, second = await place.open(), await place.open()
    rows = [
        await store.register(node="here", pid=41, kind="serve", at_ms=5) for store in (first, second, first)
    ]
    assert [row.id for row in rows] == [1, 2, 3]
    assert await second.machines() == rows
    row = rows[1]
    assert (row.node, row.pid, row.kind, row.beat) == ("here", 41, "serve", 0)
    assert (row.state, row.registered_at_ms) == (MachineState.LIVING, 5)


async def registrations_at_once_get_different_numbers(place: Place) -> None:
    stores = [await place.open() for _ in range(2)]
    rows = await asyncio.gather(
        *(store.register(node="n", pid=1, kind="k", at_ms=0) for store in stores for _ in range(10))
    )
    assert sorted(row.id for row in rows) == list(range(1, 21))


async def a_number_is_never_used_again(place: Place) -> None:
    store = await place.open()
    for expected in range(1, 5):
        row = await store.register(node="n", pid=1, kind="k", at_ms=0)
        assert row.id == expected
        await store.end(row.id, at_ms=1)


async def a_beat_counts_and_tells(place: Place) -> None:
    store = await place.open()
    machine = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    low, open_from = pack_id(machine, 7), pack_id(machine, 3)
    assert await beat(
        store, machine, 0, oldest_open=open_from, lowest_in_flight=low, elapsed_ms=2000, at_ms=44
    ) == Beat(1, 2000)
    assert await beat(store, machine, 1, seen_age_ms=2000, elapsed_ms=1900) == Beat(2, 3900)
    assert await store.age_ms() == 3900
    [row] = await store.machines()
    assert (row.beat, row.oldest_open, row.lowest_in_flight, row.changed_at_ms) == (2, 1, 2, 9)


async def a_beat_writes_its_marks(place: Place) -> None:
    store = await place.open()
    machine = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    low, open_from = pack_id(machine, 7), pack_id(machine, 3)
    await beat(store, machine, 0, oldest_open=open_from, lowest_in_flight=low, at_ms=44)
    [row] = await store.machines()
    assert (row.beat, row.oldest_open, row.lowest_in_flight, row.changed_at_ms) == (1, open_from, low, 44)


async def a_repeated_beat_gets_the_same_answer(place: Place) -> None:
    store = await place.open()
    machine = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    other = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    first = await beat(store, machine, 0, elapsed_ms=500)
    await beat(store, other, 0, seen_age_ms=500, elapsed_ms=300)
    assert await beat(store, machine, 0, elapsed_ms=500) == first == Beat(1, 500)
    assert await store.age_ms() == 800
    assert await beat(store, machine, 1, seen_age_ms=800) == Beat(2, 800)


async def a_beat_under_a_wrong_count_is_refused(place: Place) -> None:
    store = await place.open()
    machine = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    for count in (1, 2):
        with pytest.raises(MachineLost):
            await beat(store, machine, count)
    assert await beat(store, machine, 0) == Beat(1, 0)
    await beat(store, machine, 1)
    with pytest.raises(MachineLost):
        await beat(store, machine, 0)


async def of_two_clones_one_beat_is_refused(place: Place) -> None:
    first, second = await place.open(), await place.open()
    machine = (await first.register(node="n", pid=1, kind="k", at_ms=0)).id
    await beat(first, machine, 0, at_ms=100)
    with pytest.raises(MachineLost):
        await beat(second, machine, 0, at_ms=101)
    assert await beat(first, machine, 1) == Beat(2, 0)


async def an_unknown_machine_may_not_beat(place: Place) -> None:
    store = await place.open()
    with pytest.raises(MachineLost):
        await beat(store, 1, 0)


async def two_machines_do_not_count_the_age_twice(place: Place) -> None:
    store = await place.open()
    first = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    second = (await store.register(node="n", pid=2, kind="k", at_ms=0)).id
    assert await beat(store, first, 0, elapsed_ms=2000) == Beat(1, 2000)
    assert await beat(store, second, 0, elapsed_ms=2000) == Beat(1, 2000)
    assert await beat(store, second, 1, seen_age_ms=2000, elapsed_ms=2000) == Beat(2, 4000)
    assert await beat(store, first, 1, seen_age_ms=2000, elapsed_ms=2000) == Beat(2, 4000)
    assert await store.age_ms() == 4000


async def losing_is_guarded_by_the_beat(place: Place) -> None:
    store, observer = await place.open(), await place.open()
    machine = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    await beat(store, machine, 0)
    assert not await observer.lose(machine, 0, at_ms=50)
    assert await beat(store, machine, 1) == Beat(2, 0)
    assert await observer.lose(machine, 2, at_ms=60)
    assert await observer.lose(machine, 2, at_ms=61)
    with pytest.raises(MachineLost):
        await beat(store, machine, 2)
    [row] = await store.machines()
    assert (row.state, row.beat, row.changed_at_ms) == (MachineState.LOST, 2, 60)
    assert not await observer.lose(99, 0, at_ms=1)


async def a_repeated_beat_of_a_lost_machine_is_refused(place: Place) -> None:
    store = await place.open()
    machine = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    await beat(store, machine, 0)
    assert await store.lose(machine, 1, at_ms=5)
    with pytest.raises(MachineLost):
        await beat(store, machine, 0)


async def ending_is_final(place: Place) -> None:
    store = await place.open()
    machine = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    await store.end(machine, at_ms=70)
    await store.end(machine, at_ms=71)
    with pytest.raises(MachineLost):
        await beat(store, machine, 0)
    assert not await store.lose(machine, 0, at_ms=72)
    [row] = await store.machines()
    assert (row.state, row.changed_at_ms) == (MachineState.ENDED, 70)


async def ending_a_lost_machine_changes_nothing(place: Place) -> None:
    store = await place.open()
    machine = (await store.register(node="n", pid=1, kind="k", at_ms=0)).id
    await store.lose(machine, 0, at_ms=5)
    await store.end(machine, at_ms=6)
    [row] = await store.machines()
    assert (row.state, row.changed_at_ms) == (MachineState.LOST, 5)


async def machines_are_listed_by_life(place: Place) -> None:
    store = await place.open()
    numbers = [(await store.register(node="n", pid=1, kind="k", at_ms=0)).id for _ in range(4)]
    await store.lose(numbers[1], 0, at_ms=1)
    await store.end(numbers[2], at_ms=1)
    assert [row.id for row in await store.machines()] == numbers
    assert [row.id for row in await store.machines(living=True)] == [numbers[0], numbers[3]]
    assert [row.id for row in await store.machines(living=False)] == [numbers[1], numbers[2]]


async def who_lives_has_not_vanished(place: Place) -> None:
    first, second = await place.open(), await place.open()
    for store in (first, second):
        await store.register(node="n", pid=1, kind="k", at_ms=0)
    assert await first.vanished() == []
    assert await second.vanished() == []


async def an_agreement_is_compared_and_set(place: Place) -> None:
    store, other = await place.open(), await place.open()
    facts = RailFacts(name="bank", dedupes_for_seconds=86_400.0, finds=True)
    one = Agreement(send_deadline_seconds=30.0)
    two = Agreement(send_deadline_seconds=30.5, rails=(facts,))
    assert await store.agreement() is None
    assert not await store.agree(one, two)
    assert await store.agree(None, one)
    assert await store.agree(None, one)
    assert await other.agreement() == one
    assert not await other.agree(None, two)
    assert await other.agree(one, two)
    assert not await store.agree(one, Agreement(send_deadline_seconds=1.0))
    assert await store.agreement() == two


async def of_racing_agreements_one_wins(place: Place) -> None:
    stores = [await place.open() for _ in range(2)]
    wanted = [Agreement(send_deadline_seconds=float(number)) for number in range(1, 9)]
    won = await asyncio.gather(
        *(stores[place % 2].agree(None, agreement) for place, agreement in enumerate(wanted))
    )
    assert sum(won) == 1
    assert await stores[0].agreement() == wanted[won.index(True)]


MACHINE_CASES = (
    machines_are_numbered_upwards,
    registrations_at_once_get_different_numbers,
    a_number_is_never_used_again,
    a_beat_counts_and_tells,
    a_beat_writes_its_marks,
    a_repeated_beat_gets_the_same_answer,
    a_beat_under_a_wrong_count_is_refused,
    of_two_clones_one_beat_is_refused,
    an_unknown_machine_may_not_beat,
    two_machines_do_not_count_the_age_twice,
    losing_is_guarded_by_the_beat,
    a_repeated_beat_of_a_lost_machine_is_refused,
    ending_is_final,
    ending_a_lost_machine_changes_nothing,
    machines_are_listed_by_life,
    who_lives_has_not_vanished,
    an_agreement_is_compared_and_set,
    of_racing_agreements_one_wins,
)
