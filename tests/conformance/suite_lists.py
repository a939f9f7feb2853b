"""The suite's cases for lists: select, open rows, attention."""

from __future__ import annotations

from nonbis.core.ids import pack_id
from nonbis.core.messages import Kind, Record, State
from nonbis.ports import Selection, Store
from tests.conformance.places import Place
from tests.conformance.workload import Machine, advanced, claimed, name, new_machine


async def ids(store: Store, **chosen: object) -> list[int]:
    """The ids of a selection."""
    return [stored.record.id for stored in await store.select(Selection(**chosen))]


async def _filled(store: Store) -> tuple[list[Machine], list[Record]]:
    """Two machines with five operations each, alternating; tenants and states differ."""
    machines = [await new_machine(store), await new_machine(store)]
    records = []
    for number in range(10):
        tenant, scope = ("red", "pay") if number % 3 else ("blue", "mail")
        machine = machines[number % 2]
        record = await claimed(store, machine, number, tenant=tenant, scope=scope)
        if number >= 6:
            record = await advanced(store, machine.advance(record, Kind.REPORT_APPLIED))
        records.append(record)
    return machines, sorted(records, key=lambda record: record.id)


async def select_is_in_id_order(place: Place) -> None:
    store = await place.open()
    _, records = await _filled(store)
    everything = [record.id for record in records]
    assert await ids(store) == everything
    assert [stored.record for stored in await store.select(Selection())] == records
    assert await ids(store, limit=3) == everything[:3]
    assert await ids(store, limit=3, newest_first=True) == everything[-3:]
    assert await ids(store, limit=0) == []
    assert await ids(store, limit=0, newest_first=True) == []
    assert await ids(store, newest_first=True) == everything


async def select_filters(place: Place) -> None:
    store = await place.open()
    machines, records = await _filled(store)
    second = [record.id for record in records if record.owner == machines[1].number]
    assert await ids(store, machine=machines[1].number) == second
    assert await ids(store, machine=99) == []
    applied = [record.id for record in records if record.state is State.APPLIED]
    assert len(applied) == 4
    assert await ids(store, state=State.APPLIED) == applied
    assert await ids(store, state=State.FAILED) == []
    blue = [record.id for record in records if int.from_bytes(record.digest, "big") % 3 == 0]
    assert await ids(store, tenant="blue") == await ids(store, scope="mail") == blue
    assert await ids(store, tenant="blue", scope="pay") == []
    both = [number for number in blue if number in second and number in applied]
    assert both
    assert await ids(store, tenant="blue", machine=machines[1].number, state=State.APPLIED) == both


async def select_bounds_are_exclusive(place: Place) -> None:
    store = await place.open()
    machines, records = await _filled(store)
    everything = [record.id for record in records]
    assert await ids(store, after=everything[2]) == everything[3:]
    assert await ids(store, before=everything[2]) == everything[:2]
    assert await ids(store, after=everything[2], before=everything[6]) == everything[3:6]
    assert await ids(store, after=everything[2], before=everything[6], limit=2) == everything[3:5]
    newest = {"after": everything[2], "before": everything[6], "limit": 2, "newest_first": True}
    assert await ids(store, **newest) == everything[4:6]
    assert await ids(store, after=everything[-1]) == []
    assert await ids(store, before=everything[0]) == []
    assert await ids(store, after=0, before=1 << 62) == everything
    first = [record.id for record in records if record.owner == machines[0].number]
    assert await ids(store, machine=machines[0].number, after=first[1], before=first[4]) == first[2:4]
    assert await ids(store, machine=machines[0].number, after=first[-1]) == []


async def select_shows_what_came_of_it(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1, tenant="red")
    done = await advanced(store, machine.advance(record, Kind.REPORT_APPLIED, outcome=b"out"))
    [stored] = await store.select(Selection())
    assert (stored.record, stored.tenant, stored.outcome) == (done, "red", b"out")
    assert stored.request == b"request of " + name(1)


async def ten_thousand_can_be_listed(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    claims = [machine.claim(name(number)) for number in range(10_001)]
    await store.claim(claims)
    everything = [claim.record.id for claim in claims]
    assert await ids(store, limit=10_000) == everything[:10_000]
    assert await ids(store, limit=10_000, newest_first=True) == everything[1:]


async def open_rows_are_those_of_the_id(place: Place) -> None:
    store = await place.open()
    machine, other = await new_machine(store), await new_machine(store)
    bounded = await claimed(store, machine, 1, bounded=True)
    started = await claimed(store, machine, 2)
    done = await claimed(store, machine, 3)
    await advanced(store, machine.advance(done, Kind.REPORT_APPLIED))
    doubt = await claimed(store, machine, 4)
    await advanced(store, machine.advance(doubt, Kind.REPORT_UNKNOWN))
    foreign = await claimed(store, other, 5)
    adopted = await claimed(store, machine, 6, bounded=True)
    adopted = await advanced(store, other.advance(adopted, Kind.TAKE_OVER, owner_living=False))
    assert await store.open_of(machine.number, 0) == [bounded, started, adopted]
    assert await store.open_of(machine.number, started.id) == [started, adopted]
    assert await store.open_of(machine.number, adopted.id + 1) == []
    assert await store.open_of(other.number, 0) == [foreign]
    assert await store.open_of(other.number, pack_id(machine.number, 1)) == [foreign]
    assert await store.open_of(99, 0) == []


async def attention_follows_the_rows(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    records = [await claimed(store, machine, number) for number in range(6)]
    doubts = [await advanced(store, machine.advance(record, Kind.REPORT_UNKNOWN)) for record in records]
    assert await store.attention() == doubts
    assert await store.attention(limit=2) == doubts[:2]
    assert await store.attention(after=doubts[1].id, limit=3) == doubts[2:5]
    assert await store.attention(after=doubts[-1].id) == []
    await advanced(store, machine.advance(doubts[2], Kind.PERSON_APPLIED))
    assert await store.attention() == doubts[:2] + doubts[3:]
    resent = await advanced(store, machine.advance(doubts[3], Kind.RESEND, may_resend=True))
    assert await store.attention() == [*doubts[:2], resent, *doubts[4:]]


async def attention_is_left_alone_where_nothing_is_said(place: Place) -> None:
    store = await place.open()
    machine = await new_machine(store)
    record = await claimed(store, machine, 1)
    doubt = await advanced(store, machine.advance(record, Kind.REPORT_UNKNOWN))
    silent = machine.advance(doubt, Kind.PERSON_APPLIED)
    silent = type(silent)(record=silent.record, expected=silent.expected, attention=None)
    assert await store.attention() == [doubt]
    await advanced(store, silent)
    assert await store.attention() == [silent.record]


LIST_CASES = (
    select_is_in_id_order,
    select_filters,
    select_bounds_are_exclusive,
    select_shows_what_came_of_it,
    ten_thousand_can_be_listed,
    open_rows_are_those_of_the_id,
    attention_follows_the_rows,
    attention_is_left_alone_where_nothing_is_said,
)
