"""Stores with a planted bug: the conformance suite sees each of them, and passes the sound one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nonbis.clocks import SystemEntropy
from nonbis.ports import Advance, Advanced, Claim, Claimed, Stored, Verdict
from nonbis.stores import sqlite_machines, sqlite_rows
from nonbis.stores.memory import MemoryStore
from nonbis.stores.statements import Statement
from tests.conformance.places import MemoryPlace, Place, SqlitePlace, runs
from tests.conformance.suite import CASES, OPERATION_CASES, exercise_store
from tests.conformance.suite_lists import LIST_CASES
from tests.conformance.suite_machines import MACHINE_CASES
from tests.conformance.workload import replace
from tests.crash.test_store_kill import race
from tests.stores.stands import opened


def memory_place(store: type[MemoryStore]) -> Callable[[], Place]:
    """Places of a variant of the memory store."""

    def make() -> Place:
        place = MemoryPlace(Path())
        place.store = store(entropy=SystemEntropy())
        return place

    return make


def sqlite_places(folder: Path) -> Callable[[], Place]:
    """A fresh SQLite file for each case."""
    counter = iter(range(10_000))

    def make() -> Place:
        own = folder / str(next(counter))
        own.mkdir()
        return SqlitePlace(own)

    return make


class CheckThenInsert(MemoryStore):
    """Looks whether the name is there, and inserts in a second step."""

    async def claim(self, claims: Sequence[Claim]) -> list[Claimed]:
        found = [self._rows.get(item.record.digest) for item in claims]
        await asyncio.sleep(0)
        answers = []
        for item, there in zip(claims, found, strict=True):
            if there is not None and there.record.stamp != item.record.stamp:
                answers.append(Claimed(there))
                continue
            self._rows.pop(item.record.digest, None)
            answers.append(self._claim(item))
        return answers


class AdvanceWithoutStamp(MemoryStore):
    """Writes whatever the row bears."""

    def _advance(self, item: Advance) -> Advanced:
        there = self._rows.get(item.record.digest)
        if there is not None and there.record.stamp != item.record.stamp:
            item = replace(item, expected=there.record.stamp)
        return super()._advance(item)


class AdvanceByState(MemoryStore):
    """Guards by state and attempt, which two writers can both believe to have seen."""

    def _advance(self, item: Advance) -> Advanced:
        there = self._rows.get(item.record.digest)
        if there is not None and there.record.attempt == item.record.attempt:
            if there.record.state.value in ("started", "in_doubt"):
                item = replace(item, expected=there.record.stamp)
        return super()._advance(item)


class ReadInsteadOfRepeat(MemoryStore):
    """Takes a row that it finds for another's: its own repeated claim is told to be a duplicate."""

    def _claim(self, item: Claim) -> Claimed:
        there = self._rows.get(item.record.digest)
        return super()._claim(item) if there is None else Claimed(there)


class RepeatedAdvanceLoses(MemoryStore):
    """Knows only the expected stamp: a repeated write hears that it lost."""

    def _advance(self, item: Advance) -> Advanced:
        there = self._rows.get(item.record.digest)
        if there is not None and there.record.stamp == item.record.stamp:
            return Advanced(Verdict.LOST, there.record)
        return super()._advance(item)


class NewIdOverwrites(MemoryStore):
    """Doesn't look whether an id is in use."""

    def _refuse_ids_in_use(self, claims: tuple[Claim, ...]) -> None:
        return


class SortedAnswers(MemoryStore):
    """Answers in the order in which the rows were written."""

    def _claim_all(self, claims: tuple[Claim, ...]) -> list[Claimed]:
        return super()._claim_all(tuple(sorted(claims, key=lambda item: item.record.digest)))


class LoserWritesSides(MemoryStore):
    """The side rows of a lost advance are written all the same."""

    def _advance(self, item: Advance) -> Advanced:
        answer = super()._advance(item)
        if answer.verdict is Verdict.LOST:
            self._write_sides(item)
        return answer


class ForgetsOutcome(MemoryStore):
    """An advance without an outcome takes the earlier one away."""

    def _advance(self, item: Advance) -> Advanced:
        answer = super()._advance(item)
        if answer.verdict is Verdict.WON and item.outcome is None:
            there = self._rows[item.record.digest]
            self._rows[item.record.digest] = replace(there, outcome=None)
        return answer


class AgeCountedTwice(MemoryStore):
    """Every beat lets the age grow."""

    def _beat(self, machine: int, arguments: tuple[int, ...]) -> Any:
        seen = (*arguments[:3], self._age_ms, *arguments[4:])
        return super()._beat(machine, seen)


class BeatAfterLoss(MemoryStore):
    """A machine that was declared lost beats on."""

    def _lose(self, machine: int, count: int, at_ms: int) -> bool:
        row = self._machines.get(machine)
        lost = super()._lose(machine, count, at_ms)
        if row is not None and lost:
            self._machines[machine] = replace(self._machines[machine], state=row.state)
        return lost


class LoseWithoutBeat(MemoryStore):
    """Declares a machine lost although it has beaten since."""

    def _lose(self, machine: int, count: int, at_ms: int) -> bool:
        row = self._machines.get(machine)
        return super()._lose(machine, count if row is None else row.beat, at_ms)


class NumbersUsedAgain(MemoryStore):
    """Gives an ended machine's number to the next."""

    def _end(self, machine: int, at_ms: int) -> None:
        super()._end(machine, at_ms)
        self._machines.pop(machine, None)


class InclusiveBounds(MemoryStore):
    """``after`` shows the last row of the page before once more."""

    async def select(self, selection: Any) -> list[Stored]:
        after = None if selection.after is None else selection.after - 1
        return await super().select(replace(selection, after=after))


class AgreesWithAnything(MemoryStore):
    """Replaces the agreement without a look."""

    def _agree(self, before: Any, after: Any) -> bool:
        return super()._agree(self._agreement, after)


MEMORY_BUGS = (
    CheckThenInsert,
    AdvanceWithoutStamp,
    AdvanceByState,
    ReadInsteadOfRepeat,
    RepeatedAdvanceLoses,
    NewIdOverwrites,
    SortedAnswers,
    LoserWritesSides,
    ForgetsOutcome,
    AgeCountedTwice,
    BeatAfterLoss,
    LoseWithoutBeat,
    NumbersUsedAgain,
    InclusiveBounds,
    AgreesWithAnything,
)


@runs
async def test_the_sound_store_passes() -> None:
    assert await exercise_store(memory_place(MemoryStore)) == []
    assert len(CASES) > 50


@pytest.mark.parametrize("bug", MEMORY_BUGS, ids=lambda bug: bug.__name__)
@runs
async def test_the_suite_sees(bug: type[MemoryStore]) -> None:
    failed = await exercise_store(memory_place(bug))
    assert failed
    assert len(failed) < len(CASES) // 2, "a planted bug is one bug, not a broken store"


def _without(statement: Statement, clause: str) -> Statement:
    """The statement with one clause taken out; it must have been in it."""
    sized = statement.rows(1) if statement.sizes else str(statement)
    assert clause in sized
    changed = Statement(statement.name, "")
    changed._head = statement._head.replace(clause, "")
    changed._tail = statement._tail.replace(clause, "")
    changed._row, changed.sizes = statement._row, statement.sizes
    return changed


ROWS, MACHINES = sqlite_rows.SQL, sqlite_machines.SQL
SQL_BUGS = [
    (ROWS, "advance_operations", " and operation.stamp = next.expected", OPERATION_CASES),
    (ROWS, "advance_operations", " and operation.digest = next.digest", OPERATION_CASES),
    (ROWS, "open_of", " and state in ('accepted', 'started')", LIST_CASES),
    (MACHINES, "count_beat", " and beat = :count", MACHINE_CASES),
    (MACHINES, "count_beat", " and state = 'living'", MACHINE_CASES),
    (MACHINES, "beat_of_token", " and beat_token = :beat_token", MACHINE_CASES),
    (MACHINES, "grow_age", " where age_ms = :seen_age_ms", MACHINE_CASES),
    (MACHINES, "lose", " and beat = :count", MACHINE_CASES),
    (MACHINES, "end", " and state = 'living'", MACHINE_CASES),
]


@pytest.mark.parametrize(("sql", "which", "clause", "cases"), SQL_BUGS, ids=lambda item: str(item)[:40])
@runs
async def test_each_guard_in_sql_carries_weight(tmp_path, monkeypatch, sql, which, clause, cases) -> None:
    """Take one guard out of a statement and the suite fails."""
    monkeypatch.setattr(sql, which, _without(getattr(sql, which), clause))
    assert await exercise_store(sqlite_places(tmp_path), cases)


CARELESS = """
import asyncio, sys
from nonbis.stores import sqlite_rows
from tests.conformance.workload import name, new_machine
from tests.stores.stands import sqlite_store

def put(connection, claim):
    for table in ("operation", "request"):
        connection.execute(f"delete from {table} where digest = ?", (claim.record.digest,))
    return sqlite_rows.claim(connection, [claim])

async def main(path, names):
    async with sqlite_store(path) as store:
        machine = await new_machine(store)
        found = [await store.find(name(number)) for number in range(names)]
        print("ready", flush=True)
        sys.stdin.readline()
        for number, there in enumerate(found):
            if there is None:
                claim = machine.claim(name(number))
                await store._write(lambda connection: put(connection, claim))
                print(number)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def test_a_race_of_two_processes_sees_check_then_insert(tmp_path: Path) -> None:
    """Look first, insert later: both processes believe to have won every name."""

    async def make() -> None:
        await (await opened(tmp_path / "s.db")).close()

    asyncio.run(make())
    assert sorted(race(CARELESS, tmp_path / "s.db", 30)) == sorted([*range(30), *range(30)])
