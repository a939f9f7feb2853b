"""The suite's cases for claims."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.messages import Kind
from nonbis.errors import StoreError
from nonbis.ports import Claimed, Stored
from tests.conformance.places import Place
from tests.conformance.workload import advanced, claimed, entry_of, name, new_machine, replace


async def claim_of_a_new_name_is_inserted(place: Place) -> None:
    store = await place.open()
    claim = (await new_machine(store)).claim(name(1))
    assert await store.claim([claim]) == [Claimed(None)]
    stored = Stored(record=claim.record, tenant="t", scope="s", request=claim.request, outcome=None)
    assert await store.find(name(1)) == stored
    assert await store.show(claim.record.id) == stored
    assert await store.find(name(2)) is None
    assert await store.show(claim.record.id + 1) is None


async def claim_of_a_known_name_gets_the_row_that_is_there(place: Place) -> None:
    store = await place.open()
    first, second = await new_machine(store), await new_machine(store)
    record = await claimed(store, first, 1)
    done = await advanced(store, first.advance(record, Kind.REPORT_APPLIED, outcome=b"receipt"))
    [answer] = await store.claim([second.claim(name(1), tenant="other")])
    assert answer.existing is not None
    assert answer.existing.record == done
    assert answer.existing.outcome == b"receipt"
    assert answer.existing.tenant == "t"
    assert answer.existing.request == b"request of " + name(1)


async def repeated_claim_counts_as_inserted(place: Place) -> None:
    store = await place.open()
    claim = (await new_machine(store)).claim(name(1))
    for _ in range(3):
        assert await store.claim([claim]) == [Claimed(None)]
    assert len(await store.open_of(1, 0)) == 1


async def repeated_claim_of_a_row_that_moved_on_gets_the_row(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    claim = machine.claim(name(1))
    await store.claim([claim])
    lost = await advanced(store, machine.advance(claim.record, Kind.OWNER_LOST, owner_living=False))
    [answer] = await store.claim([claim])
    assert answer.existing is not None
    assert answer.existing.record == lost


async def answers_come_in_the_order_of_the_claims(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    known = {number: await claimed(store, machine, number) for number in (3, 7, 50)}
    order = [50, 2, 7, 99, 1, 3, 60]
    answers = await store.claim([machine.claim(name(number)) for number in order])
    found = [None if answer.existing is None else answer.existing.record for answer in answers]
    assert found == [known.get(number) for number in order]


async def a_name_twice_in_one_batch_is_claimed_by_the_first(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    claims = [machine.claim(name(number)) for number in (9, 1, 9, 9)]
    answers = await store.claim(claims)
    assert [answer.existing is None for answer in answers] == [True, True, False, False]
    for answer in answers[2:]:
        assert answer.existing is not None
        assert answer.existing.record == claims[0].record
        assert answer.existing.request == claims[0].request


async def the_same_claim_twice_in_one_batch_is_one_row(place: Place) -> None:
    store = await place.open()
    claim = (await new_machine(store)).claim(name(1))
    assert await store.claim([claim, claim]) == [Claimed(None), Claimed(None)]
    assert [record.id for record in await store.open_of(1, 0)] == [claim.record.id]


async def an_empty_batch_is_nothing(place: Place) -> None:
    store = await place.open()
    assert await store.claim([]) == []
    assert await store.advance([]) == []
    await store.note([])


async def an_id_in_use_is_an_error_and_not_a_duplicate(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    first = machine.claim(name(1))
    await store.claim([first])
    clone = replace(machine.claim(name(2)), record=replace(first.record, digest=name(2)))
    with pytest.raises(StoreError):
        await store.claim([clone])
    assert await store.find(name(2)) is None


async def an_id_in_use_is_an_error_even_if_the_name_is_known_too(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    first, second = machine.claim(name(1)), machine.claim(name(2))
    await store.claim([first, second])
    both = replace(first, record=replace(first.record, digest=name(2)))
    with pytest.raises(StoreError):
        await store.claim([both])


async def an_id_twice_in_one_batch_is_an_error(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    first = machine.claim(name(1))
    second = replace(first, record=replace(first.record, digest=name(2)))
    with pytest.raises(StoreError):
        await store.claim([first, second])
    assert await store.find(name(1)) is None
    assert await store.find(name(2)) is None


async def a_clone_with_my_stamp_and_another_row_is_an_error(place: Place) -> None:
    store = await place.open()
    claim = (await new_machine(store)).claim(name(1))
    await store.claim([claim])
    moment = replace(claim.record.created, wall_ms=claim.record.created.wall_ms + 1)
    clone = replace(claim, record=replace(claim.record, created=moment))
    with pytest.raises(StoreError):
        await store.claim([clone])


async def a_batch_with_an_id_in_use_inserts_nothing(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    first = machine.claim(name(1))
    await store.claim([first])
    good = machine.claim(name(5))
    bad = replace(first, record=replace(first.record, digest=name(6)))
    with pytest.raises(StoreError):
        await store.claim([good, bad])
    assert await store.find(name(5)) is None
    assert await store.claim([good]) == [Claimed(None)]


async def of_racing_claims_exactly_one_wins(place: Place) -> None:
    stores = [await place.open() for _ in range(2)]
    machines = [await new_machine(store) for store in stores]

    async def race(number: int) -> int:
        answers = await asyncio.gather(
            *(
                store.claim([machine.claim(name(number))])
                for store, machine in zip(stores, machines, strict=True)
                for _ in range(3)
            )
        )
        return sum(answer.existing is None for [answer] in answers)

    assert await asyncio.gather(*(race(number) for number in range(40))) == [1] * 40


async def a_claim_writes_its_journal_and_attention(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    claim = machine.claim(name(1), fenced=True)
    assert claim.attention
    assert claim.journal == entry_of(claim.record, claim.journal.kind if claim.journal else None)
    for _ in range(2):
        await store.claim([claim])
    assert await store.journal(claim.record.id) == [claim.journal]
    assert await store.attention() == [claim.record]


async def a_claim_that_loses_writes_no_side_row(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1)
    late = machine.claim(name(1), fenced=True)
    await store.claim([late])
    assert await store.attention() == []
    assert await store.journal(late.record.id) == []
    assert await store.journal(record.id) == []
    assert await store.show(late.record.id) is None


CLAIM_CASES = (
    claim_of_a_new_name_is_inserted,
    claim_of_a_known_name_gets_the_row_that_is_there,
    repeated_claim_counts_as_inserted,
    repeated_claim_of_a_row_that_moved_on_gets_the_row,
    answers_come_in_the_order_of_the_claims,
    a_name_twice_in_one_batch_is_claimed_by_the_first,
    the_same_claim_twice_in_one_batch_is_one_row,
    an_empty_batch_is_nothing,
    an_id_in_use_is_an_error_and_not_a_duplicate,
    an_id_in_use_is_an_error_even_if_the_name_is_known_too,
    an_id_twice_in_one_batch_is_an_error,
    a_clone_with_my_stamp_and_another_row_is_an_error,
    a_batch_with_an_id_in_use_inserts_nothing,
    of_racing_claims_exactly_one_wins,
    a_claim_writes_its_journal_and_attention,
    a_claim_that_loses_writes_no_side_row,
)
