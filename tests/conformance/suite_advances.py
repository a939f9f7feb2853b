"""The suite's cases for advances, outcomes, the journal and rows as they come back."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from nonbis.core.messages import Kind, State
from nonbis.ports import Advance, Advanced, Claimed, Verdict
from tests.conformance.places import Place
from tests.conformance.walks import lives
from tests.conformance.workload import advanced, claimed, name, new_machine, replace


async def advance_under_the_expected_stamp_wins(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1)
    done = await advanced(store, machine.advance(record, Kind.REPORT_APPLIED, outcome=b"receipt"))
    stored = await store.find(name(1))
    assert stored is not None
    assert stored.record == done
    assert stored.outcome == b"receipt"
    assert stored.request == b"request of " + name(1)


async def advance_under_another_stamp_loses_and_shows_the_row(place: Place) -> None:
    store = await place.open()
    machine, other = await new_machine(store), await new_machine(store)
    record = await claimed(store, machine, 1)
    lost = await advanced(store, other.advance(record, Kind.OWNER_LOST, owner_living=False))
    late = machine.advance(record, Kind.REPORT_DECLINED, outcome=b"late")
    assert await store.advance([late]) == [Advanced(Verdict.LOST, lost)]
    stored = await store.find(name(1))
    assert stored is not None
    assert stored.record == lost
    assert stored.outcome is None


async def a_lost_advance_writes_no_side_row(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1)
    done = await advanced(store, machine.advance(record, Kind.REPORT_APPLIED))
    late = machine.advance(record, Kind.REPORT_UNKNOWN)
    assert late.attention
    assert late.journal is not None
    assert await store.advance([late]) == [Advanced(Verdict.LOST, done)]
    assert await store.attention() == []
    assert await store.journal(record.id) == []


async def repeated_advance_counts_as_won(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1)
    advance = machine.advance(record, Kind.REPORT_UNKNOWN, outcome=b"what is known")
    for _ in range(3):
        assert await store.advance([advance]) == [Advanced(Verdict.WON, advance.record)]
    assert await store.journal(record.id) == [advance.journal]
    assert await store.attention() == [advance.record]


async def repeated_advance_of_a_row_that_moved_on_loses(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1)
    doubt = machine.advance(record, Kind.REPORT_UNKNOWN)
    await advanced(store, doubt)
    done = await advanced(store, machine.advance(doubt.record, Kind.PERSON_APPLIED))
    assert await store.advance([doubt]) == [Advanced(Verdict.LOST, done)]


async def advance_of_an_unknown_row_is_unseen(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    claim = machine.claim(name(1))
    advance = machine.advance(claim.record, Kind.REPORT_APPLIED, outcome=b"receipt")
    assert await store.advance([advance]) == [Advanced(Verdict.UNSEEN, None)]
    assert await store.find(name(1)) is None


async def advance_with_a_foreign_id_changes_nothing(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    first, second = await claimed(store, machine, 1), await claimed(store, machine, 2)
    advance = machine.advance(first, Kind.REPORT_APPLIED)
    crossed = replace(advance, record=replace(advance.record, digest=name(2)))
    [answer] = await store.advance([crossed])
    assert answer == Advanced(Verdict.LOST, second)
    found = [await store.find(name(number)) for number in (1, 2)]
    assert [stored and stored.record for stored in found] == [first, second]


async def advances_in_one_batch_are_judged_one_by_one(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    records = {number: await claimed(store, machine, number) for number in (4, 8, 15, 16, 23, 42)}
    moved = await advanced(store, machine.advance(records[8], Kind.REPORT_UNKNOWN))
    unknown = machine.claim(name(77)).record
    order = [records[42], records[8], unknown, records[4], records[23]]
    batch = [machine.advance(record, Kind.REPORT_APPLIED, outcome=record.digest) for record in order]
    answers = await store.advance(batch)
    assert [answer.verdict.value for answer in answers] == ["won", "lost", "unseen", "won", "won"]
    assert answers[1].record == moved
    for number in (42, 4, 23):
        stored = await store.find(name(number))
        assert stored is not None
        assert stored.record.state is State.APPLIED
        assert stored.outcome == name(number)
    for number in (15, 16):
        stored = await store.find(name(number))
        assert stored is not None
        assert stored.record == records[number]


async def writes_to_one_row_in_one_batch_are_done_in_turn(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1)
    doubt = machine.advance(record, Kind.REPORT_UNKNOWN)
    rival = machine.advance(record, Kind.REPORT_APPLIED, outcome=b"rival")
    settled = machine.advance(doubt.record, Kind.PERSON_APPLIED, outcome=b"person")
    answers = await store.advance([doubt, rival, settled])
    assert answers == [
        Advanced(Verdict.WON, doubt.record),
        Advanced(Verdict.LOST, doubt.record),
        Advanced(Verdict.WON, settled.record),
    ]
    stored = await store.find(name(1))
    assert stored is not None
    assert stored.record == settled.record
    assert stored.outcome == b"person"
    assert await store.attention() == []


async def an_outcome_stays_until_another_is_written(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1)
    doubt = await advanced(store, machine.advance(record, Kind.REPORT_UNKNOWN, outcome=b"first"))
    settled = machine.advance(doubt, Kind.PERSON_FAILED, forced=True)
    await advanced(store, settled)
    stored = await store.find(name(1))
    assert stored is not None
    assert stored.outcome == b"first"
    await advanced(store, machine.advance(settled.record, Kind.REPORT_APPLIED, outcome=b"second"))
    stored = await store.find(name(1))
    assert stored is not None
    assert stored.outcome == b"second"


async def every_row_that_can_be_comes_back(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    for decisions in lives(seed=11, count=60, steps=12):
        first, *later = [decision.record for decision in decisions if decision.record is not None]
        claim = replace(machine.claim(first.digest), record=first, attention=False, journal=None)
        assert await store.claim([claim]) == [Claimed(None)]
        for before, after in pairwise([first, *later]):
            await advanced(store, Advance(record=after, expected=before.stamp))
            stored = await store.show(after.id)
            assert stored is not None
            assert stored.record == after


async def text_and_bytes_of_any_kind_come_back(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    claim = replace(
        machine.claim(name(1), tenant="zażółć ☃ 'quoted' \"so\""), request=bytes(range(256)) * 500
    )
    await store.claim([claim])
    await advanced(store, machine.advance(claim.record, Kind.REPORT_APPLIED, outcome=b"\0" + bytes(200_000)))
    stored = await store.find(name(1))
    assert stored is not None
    assert stored.tenant == claim.tenant
    assert stored.request == claim.request
    assert stored.outcome == b"\0" + bytes(200_000)


async def a_large_batch_is_one_write(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    claims = [machine.claim(name(number * 7919 % 4001)) for number in range(3000)]
    answers = await store.claim(claims)
    assert all(answer.existing is None for answer in answers)
    batch = [machine.advance(claim.record, Kind.REPORT_APPLIED, outcome=b"o") for claim in claims]
    assert all(answer.verdict is Verdict.WON for answer in await store.advance(batch))
    assert await store.open_of(machine.number, 0) == []
    for place_in_batch in (0, 1, 1499, 2999):
        stored = await store.show(claims[place_in_batch].record.id)
        assert stored is not None
        assert stored.record == batch[place_in_batch].record


async def of_racing_advances_exactly_one_wins(place: Place) -> None:
    stores = [await place.open() for _ in range(2)]
    machines = [await new_machine(store) for store in stores]
    records = [await claimed(stores[0], machines[0], number) for number in range(40)]

    async def race(number: int) -> int:
        kinds = (Kind.REPORT_APPLIED, Kind.REPORT_UNKNOWN)
        answers = await asyncio.gather(
            *(
                store.advance([machine.advance(records[number], kind)])
                for store, machine in zip(stores, machines, strict=True)
                for kind in kinds
            )
        )
        return sum(answer.verdict is Verdict.WON for [answer] in answers)

    assert await asyncio.gather(*(race(number) for number in range(40))) == [1] * 40


async def what_one_handle_wrote_another_reads(place: Place) -> None:
    first, second = await place.open(), await place.open()
    assert first.key == second.key
    assert len(first.key) == 32
    machine = await new_machine(first)
    record = await claimed(first, machine, 1)
    stored = await second.find(name(1))
    assert stored is not None
    assert stored.record == record
    [answer] = await second.claim([(await new_machine(second)).claim(name(1))])
    assert answer.existing == stored


async def the_journal_keeps_its_order_and_drops_repeats_only(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1)
    doubt = machine.advance(record, Kind.REPORT_UNKNOWN)
    await advanced(store, doubt)
    assert doubt.journal is not None
    noted = [
        replace(doubt.journal, stamp=machine.stamp(), who="ann", because=because)
        for because in ("b", "a", "c")
    ]
    await store.note(noted[:2])
    await store.note([noted[1], noted[2], noted[2]])
    assert await store.journal(record.id) == [doubt.journal, *noted]
    other = replace(noted[0], because="another reason under the same stamp")
    await store.note([other])
    assert await store.journal(record.id) == [doubt.journal, *noted, other]
    assert await store.journal(record.id + 1) == []


ADVANCE_CASES = (
    advance_under_the_expected_stamp_wins,
    advance_under_another_stamp_loses_and_shows_the_row,
    a_lost_advance_writes_no_side_row,
    repeated_advance_counts_as_won,
    repeated_advance_of_a_row_that_moved_on_loses,
    advance_of_an_unknown_row_is_unseen,
    advance_with_a_foreign_id_changes_nothing,
    advances_in_one_batch_are_judged_one_by_one,
    writes_to_one_row_in_one_batch_are_done_in_turn,
    an_outcome_stays_until_another_is_written,
    every_row_that_can_be_comes_back,
    text_and_bytes_of_any_kind_come_back,
    a_large_batch_is_one_write,
    of_racing_advances_exactly_one_wins,
    what_one_handle_wrote_another_reads,
    the_journal_keeps_its_order_and_drops_repeats_only,
)
