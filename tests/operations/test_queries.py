"""What operators are shown, over the store in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from nonbis.core.ids import SEQUENCE_BITS, format_id, machine_of
from nonbis.core.messages import Kind, State
from nonbis.core.names import reference
from nonbis.core.refusals import NameMalformed
from nonbis.engine.writing import Observation
from nonbis.upkeep import queries
from tests.operations.prepared import LOST, NO, PAID, Bench, run

MEMBERS = [
    *("id", "state", "reason", "attempt", "sends", "machine", "node", "rail", "account", "reference"),
    *("amount", "currency", "destination", "created_at", "started_at", "changed_at", "settle_after"),
    *("contradicted", "stamp"),
]


async def contradict(bench: Bench, engine: Any, name: str) -> None:
    """A confirmation after a refusal."""
    await bench.pay(engine, name, NO)
    record = await bench.row(name)
    await engine.writer.apply(record, Observation(kind=Kind.REPORT_APPLIED, attempt=1, send=1))
    assert (await bench.row(name)).contradicted


def names_of(rows: list[queries.Element]) -> list[str]:
    return [str(row.destination).removeprefix("to-") for row in rows]


@run
async def test_an_element_is_what_the_contract_says() -> None:
    bench = Bench.in_memory()
    engine = await bench.engine()
    await bench.pay(engine, "a", LOST)
    (row,) = await queries.list_operations(bench.store)
    record = await bench.row("a")
    assert list(msgspec.to_builtins(row)) == MEMBERS
    assert row == queries.Element(
        id=format_id(record.id),
        state="in_doubt",
        reason=None,
        attempt=1,
        sends=1,
        machine=1,
        node=(await bench.store.machines())[0].node,
        rail="double",
        account="main",
        reference=reference(record.digest, 0),
        amount=1250,
        currency="EUR",
        destination="to-a",
        created_at="2027-01-15T08:00:00.000Z",
        started_at="2027-01-15T08:00:00.000Z",
        changed_at="2027-01-15T08:00:00.000Z",
        settle_after="2027-01-15T08:15:30.000Z",
        contradicted=False,
        stamp=record.stamp,
    )


@run
async def test_nothing_sent_has_no_settle_window() -> None:
    bench = Bench.in_memory()
    engine = await bench.engine()
    await bench.pay(engine, "a")
    around = await queries.Surroundings.read(bench.store)
    stored = await bench.store.find((await bench.row("a")).digest)
    assert stored is not None
    unsent = msgspec.structs.replace(stored.record, state=State.ACCEPTED, started=None, sends=0)
    row = queries.element(msgspec.structs.replace(stored, record=unsent), around)
    assert (row.started_at, row.settle_after) == (None, None)
    other = msgspec.structs.replace(stored.record, rail="another")
    assert queries.element(msgspec.structs.replace(stored, record=other), around).settle_after is None


@run
async def test_a_name_without_a_request_is_shown() -> None:
    bench = Bench.in_memory()
    engine = await bench.engine()
    await bench.pay(engine, "a")
    stored = await bench.store.find((await bench.row("a")).digest)
    assert stored is not None
    tombstone = msgspec.structs.replace(stored, request=b"", outcome=None)
    row = queries.element(tombstone, await queries.Surroundings.read(bench.store))
    assert (row.amount, row.currency, row.destination) == (None, None, None)


@run
async def test_the_last_ones_are_listed_in_ascending_order() -> None:
    bench = Bench.in_memory()
    engine = await bench.engine()
    for name in "abcde":
        await bench.pay(engine, name, LOST if name == "c" else PAID)
    assert names_of(await queries.list_operations(bench.store)) == list("abcde")
    assert names_of(await queries.list_operations(bench.store, last=2)) == ["d", "e"]
    assert names_of(await queries.list_operations(bench.store, state=State.IN_DOUBT)) == ["c"]
    assert await queries.list_operations(bench.store, machine=2) == []


@run
async def test_around_stays_with_one_machine() -> None:
    bench = Bench.in_memory()
    one, two = await bench.engine(), await bench.engine()
    for name in "abc":
        await bench.pay(one, name)
    for name in "xyz":
        await bench.pay(two, name)
    middle = (await bench.row("b")).id
    assert names_of(await queries.around_operation(bench.store, middle)) == ["a", "b", "c"]
    assert names_of(await queries.around_operation(bench.store, middle, span=0)) == ["b"]
    last = (await bench.row("z")).id
    assert names_of(await queries.around_operation(bench.store, last, span=1)) == ["y", "z"]


@run
async def test_around_a_number_that_is_no_operation() -> None:
    bench = Bench.in_memory()
    engine = await bench.engine()
    await bench.pay(engine, "a")
    await bench.pay(engine, "b")
    stamp = (await bench.row("a")).stamp
    assert (await bench.row("a")).id < stamp < (await bench.row("b")).id
    assert names_of(await queries.around_operation(bench.store, stamp)) == ["a", "b"]
    assert await queries.around_operation(bench.store, 9 << SEQUENCE_BITS) == []


@run
async def test_in_doubt_lists_exactly_what_waits() -> None:
    bench = Bench.in_memory()
    alive, dead = await bench.engine(), await bench.engine()
    await bench.pay(alive, "paid")
    await bench.pay(alive, "declined", NO)
    await bench.pay(alive, "unknown", LOST)
    await contradict(bench, alive, "contradicted")
    await bench.hang(alive, "under way")
    orphan = await bench.hang(dead, "orphan")
    assert names_of(await queries.in_doubt(bench.store)) == ["contradicted", "unknown"]
    bench.memory.vanish(machine_of(orphan.id))
    rows = await queries.in_doubt(bench.store)
    assert names_of(rows) == ["contradicted", "unknown", "orphan"]
    assert [row.state for row in rows] == ["failed", "in_doubt", "started"]
    await bench.close()


@run
async def test_a_retry_by_a_machine_that_is_gone_is_listed() -> None:
    bench = Bench.in_memory()
    first, second = await bench.engine(), await bench.engine()
    await bench.pay(first, "a", NO)
    record = await bench.hang(second, "a")
    assert machine_of(record.id) != record.owner
    assert await queries.in_doubt(bench.store) == []
    assert await bench.store.lose(record.owner, 0, at_ms=1)
    assert names_of(await queries.in_doubt(bench.store)) == ["a"]
    await bench.close()


@run
async def test_a_row_of_a_dead_machine_that_lives_on_elsewhere_is_not_listed() -> None:
    bench = Bench.in_memory()
    first, second = await bench.engine(), await bench.engine()
    await bench.pay(first, "a", NO)
    record = await bench.hang(second, "a")
    assert await bench.store.lose(machine_of(record.id), 0, at_ms=1)
    assert await queries.in_doubt(bench.store) == []
    await bench.close()


@run
async def test_an_owner_that_registered_meanwhile_is_alive() -> None:
    bench = Bench.in_memory()
    engine = await bench.engine()
    record = await bench.hang(engine, "a")
    nobody = queries.Surroundings([], [], None)
    assert not queries.is_unsettled(record, nobody)
    await bench.close()


@run
async def test_all_pages_of_the_side_table_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "_PAGE", 2)
    bench = Bench.in_memory()
    engine = await bench.engine()
    for name in "abcde":
        await bench.pay(engine, name, LOST)
    assert names_of(await queries.in_doubt(bench.store)) == list("abcde")


class Between:
    """A store in which something happens after the first of two reads."""

    def __init__(self, store: Any, happens: Callable[[], Awaitable[Any]]) -> None:
        self._store = store
        self._happens: Callable[[], Awaitable[Any]] | None = happens

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in {"open_of", "attention"}:
            return method

        async def read(*arguments: Any, **named: Any) -> Any:
            found = await method(*arguments, **named)
            if self._happens is not None:
                happens, self._happens = self._happens, None
                await happens()
            return found

        return read


@run
async def test_a_row_that_goes_in_doubt_between_two_reads_is_seen() -> None:
    bench = Bench.in_memory()
    alive, dead = await bench.engine(), await bench.engine()
    record = await bench.hang(dead, "a")
    assert await bench.store.lose(record.owner, 0, at_ms=1)
    await alive.presence.refresh()

    async def swept() -> None:
        await alive.writer.apply(record, Observation(kind=Kind.OWNER_LOST))

    rows = await queries.in_doubt(Between(bench.store, swept))  # type: ignore[arg-type]  # a store but for one read
    assert [(row.destination, row.state) for row in rows] == [("to-a", "in_doubt")]
    await bench.close()


@run
async def test_a_row_is_found_by_its_name() -> None:
    bench = Bench.in_memory()
    engine = await bench.engine()
    await bench.pay(engine, "a", description="rent", metadata={"month": "May"})
    found = await queries.by_name(bench.store, "a")
    assert found is not None
    assert (found.description, found.metadata) == ("rent", {"month": "May"})
    assert found.receipt is not None
    assert (found.receipt.id, found.receipt.amount) == ("t1", 1250)
    assert (found.owner, found.owner_state, found.tenant, found.scope) == (1, "living", "", "payments")
    assert found == await queries.by_id(bench.store, (await bench.row("a")).id)
    assert await queries.by_name(bench.store, "b") is None
    assert await queries.by_name(bench.store, "a", tenant="another") is None
    with pytest.raises(NameMalformed):
        await queries.by_name(bench.store, "a b")


@run
async def test_detail_has_the_journal_and_extends_the_element() -> None:
    bench = Bench.in_memory()
    engine = await bench.engine()
    await bench.pay(engine, "a", LOST)
    found = await queries.by_name(bench.store, "a")
    assert found is not None
    assert list(msgspec.to_builtins(found))[: len(MEMBERS)] == MEMBERS
    (line,) = found.journal
    assert (line.kind, line.state, line.machine, line.attempt) == ("in_doubt", "in_doubt", 1, 1)
    assert line.because == "OutcomeUnknown: the connection was reset"
    assert found.open_sends == 1
    assert found.receipt is None


@run
async def test_machines_that_vanished_count_as_lost() -> None:
    bench = Bench.in_memory()
    for _ in range(3):
        await (await bench.engine()).presence.present()
    await bench.store.end(2, at_ms=5)
    bench.memory.vanish(3)
    rows = await queries.list_machines(bench.store)
    assert [(row.id, row.state) for row in rows] == [(1, "living"), (2, "ended"), (3, "lost")]
    assert [row.id for row in await queries.list_machines(bench.store, living=True)] == [1]
    assert rows[0].oldest_open is None
    await bench.later(bench.engines[0], 1)
    assert (await queries.list_machines(bench.store))[0].oldest_open == "1:1"
