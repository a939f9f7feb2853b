"""Operations as rows of SQLite: how a batch of claims or advances becomes a few statements.

Few steps, not few rows: each step of a statement gives up the interpreter's lock and takes it again,
so a batch is one statement. After it the number of rows that changed is compared with the number that
was meant; only where they differ is each one looked up.

All functions here work inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import apsw

from nonbis.core.ids import MACHINE_BITS, SEQUENCE_BITS, format_id
from nonbis.core.messages import JournalKind, Moment, Reason, Record, State
from nonbis.errors import StoreError
from nonbis.ports import (
    Advance,
    Advanced,
    Claim,
    Claimed,
    JournalEntry,
    Selection,
    Stored,
    Verdict,
)
from nonbis.stores.statements import Statement, load

Row = tuple[Any, ...]

SQL = load("sqlite", "operations.sql")
_STATES = {state.value: state for state in State}
_REASONS: dict[str | None, Reason | None] = {None: None, **{reason.value: reason for reason in Reason}}
_COLUMNS = 23
_ID_MAX = (1 << (MACHINE_BITS + SEQUENCE_BITS)) - 1
_by_digest = attrgetter("record.digest")


# -- rows and records -------------------------------------------------------------------------------


def row_of(record: Record) -> Row:
    """The columns of ``operation``, in the order of the statements; states are text as they are."""
    started, referenced = record.started, record.referenced
    created, changed = record.created, record.changed
    return (
        record.id,
        record.digest,
        record.fingerprint,
        record.fingerprint_version,
        record.state,
        record.reason,
        record.attempt,
        record.sends,
        record.open_sends,
        record.refusals,
        record.owner,
        record.stamp,
        record.rail,
        record.account,
        record.contradicted,
        created.wall_ms,
        created.age_ms,
        None if started is None else started.wall_ms,
        None if started is None else started.age_ms,
        None if referenced is None else referenced.wall_ms,
        None if referenced is None else referenced.age_ms,
        changed.wall_ms,
        changed.age_ms,
    )


def record_of(row: Row) -> Record:
    """The record of a row of ``operation``; further columns are left alone."""
    return Record(
        id=row[0],
        digest=row[1],
        fingerprint=row[2],
        fingerprint_version=row[3],
        state=_STATES[row[4]],
        reason=_REASONS[row[5]],
        attempt=row[6],
        sends=row[7],
        open_sends=row[8],
        refusals=row[9],
        owner=row[10],
        stamp=row[11],
        rail=row[12],
        account=row[13],
        contradicted=bool(row[14]),
        created=Moment(row[15], row[16]),
        started=None if row[17] is None else Moment(row[17], row[18]),
        referenced=None if row[19] is None else Moment(row[19], row[20]),
        changed=Moment(row[21], row[22]),
    )


def _stored_of(row: Row) -> Stored:
    tenant, scope, request, outcome = row[_COLUMNS:]
    return Stored(record=record_of(row), tenant=tenant, scope=scope, request=request, outcome=outcome)


def _journal_row(entry: JournalEntry) -> Row:
    return (
        entry.id,
        entry.kind.value,
        entry.machine,
        entry.stamp,
        entry.at_ms,
        entry.state.value,
        entry.reason,
        entry.attempt,
        entry.rule,
        entry.who,
        entry.because,
    )


def _entry_of(row: Row) -> JournalEntry:
    number, kind, machine, stamp, at_ms, state, reason, attempt, rule, who, because = row
    return JournalEntry(
        id=number,
        kind=JournalKind(kind),
        machine=machine,
        stamp=stamp,
        at_ms=at_ms,
        state=_STATES[state],
        reason=reason,
        attempt=attempt,
        rule=rule,
        who=who,
        because=because,
    )


# -- statements over many rows ------------------------------------------------------------------------


def _write(connection: apsw.Connection, statement: Statement, rows: Sequence[Row]) -> int:
    """Execute a statement for all rows and return how many rows of the table changed."""
    changed = 0
    for part in statement.chunks(len(rows)):
        values = [value for row in rows[part] for value in row]
        connection.execute(statement.rows(part.stop - part.start), values)
        changed += connection.changes()
    return changed


def _read(connection: apsw.Connection, statement: Statement, values: Sequence[Any]) -> Iterator[Row]:
    for part in statement.chunks(len(values)):
        yield from connection.execute(statement.rows(part.stop - part.start), tuple(values[part]))


# -- the two writes -----------------------------------------------------------------------------------


def claim(connection: apsw.Connection, claims: Sequence[Claim]) -> list[Claimed]:
    """Insert the rows whose digest is not there; answers in the order of ``claims``.

    Raises StoreError where an id or a stamp was drawn twice, and apsw's ConstraintError for an id that
    is in use or a row that can't be.
    """
    ordered = sorted(claims, key=_by_digest)
    inserted = _write(connection, SQL.insert_operations, [row_of(item.record) for item in ordered])
    if inserted == len(claims):
        _write_claim_sides(connection, ordered)
        return [_INSERTED] * len(claims)
    _refuse_foreign_ids(connection, ordered)
    there = _records(connection, ordered)
    _write_claim_sides(connection, [item for item in ordered if _is_written(item, there)])
    others = {item.record.digest for item in ordered if not _is_written(item, there)}
    stored = {row[1]: _stored_of(row) for row in _read(connection, SQL.stored_by_digests, list(others))}
    return [_INSERTED if _is_written(item, there) else Claimed(stored[item.record.digest]) for item in claims]


_INSERTED = Claimed(None)


def advance(connection: apsw.Connection, advances: Sequence[Advance]) -> list[Advanced]:
    """Write the rows that bear the expected stamp; answers in the order of ``advances``.

    Several writes to one row are carried out one after the other, as if each had come alone.
    """
    answers: list[Advanced | None] = [None] * len(advances)
    for wave in _waves(advances):
        ordered = sorted((advances[place] for place in wave), key=_by_digest)
        found = _advance_distinct(connection, ordered)
        for place in wave:
            answers[place] = found[advances[place].record.digest]
    return [answer for answer in answers if answer is not None]


def _waves(advances: Sequence[Advance]) -> Iterator[list[int]]:
    """Places in ``advances``, so that no wave holds a digest twice."""
    if len({item.record.digest for item in advances}) == len(advances):
        yield list(range(len(advances)))
        return
    counts: dict[bytes, int] = {}
    waves: list[list[int]] = []
    for place, item in enumerate(advances):
        turn = counts.get(item.record.digest, 0)
        counts[item.record.digest] = turn + 1
        if turn == len(waves):
            waves.append([])
        waves[turn].append(place)
    yield from waves


def _advance_distinct(connection: apsw.Connection, advances: list[Advance]) -> dict[bytes, Advanced]:
    rows = [(item.expected, *row_of(item.record)) for item in advances]
    if _write(connection, SQL.advance_operations, rows) == len(advances):
        _write_advance_sides(connection, advances)
        return {item.record.digest: Advanced(Verdict.WON, item.record) for item in advances}
    there = _records(connection, advances)
    _write_advance_sides(connection, [item for item in advances if _is_written(item, there)])
    return {item.record.digest: _verdict(item, there) for item in advances}


def _verdict(item: Advance, there: dict[bytes, Record]) -> Advanced:
    record = there.get(item.record.digest)
    if record is None:
        return Advanced(Verdict.UNSEEN, None)
    return Advanced(Verdict.WON if _is_written(item, there) else Verdict.LOST, record)


def _is_written(item: Claim | Advance, there: dict[bytes, Record]) -> bool:
    """Whether the row bears the stamp of this write, which then is in it with all its side rows."""
    record = there.get(item.record.digest)
    if record is None or record.stamp != item.record.stamp:
        return False
    if record != item.record:
        raise StoreError(
            f"the stamp {format_id(record.stamp)} was drawn twice: the row {format_id(record.id)} bears it"
            " and is not the row that was to be written"
        )
    return True


def _records(connection: apsw.Connection, items: Sequence[Claim | Advance]) -> dict[bytes, Record]:
    digests = list({item.record.digest for item in items})
    return {row[1]: record_of(row) for row in _read(connection, SQL.records_by_digests, digests)}


def _refuse_foreign_ids(connection: apsw.Connection, claims: Sequence[Claim]) -> None:
    """Where a digest was there already, its claim's id was not tried: look whether another row has it."""
    wanted = {item.record.id: item.record.digest for item in claims}
    for number, digest in _read(connection, SQL.ids_in_use, list(wanted)):
        if wanted[number] != digest:
            raise StoreError(f"the operation id {format_id(number)} was drawn twice: another name has it")


def _write_claim_sides(connection: apsw.Connection, claims: Sequence[Claim]) -> None:
    rows = [(item.record.id, item.record.digest, item.tenant, item.scope, item.request) for item in claims]
    _write(connection, SQL.insert_requests, rows)
    _write_sides(connection, claims)


def _write_advance_sides(connection: apsw.Connection, advances: Sequence[Advance]) -> None:
    outcomes = [(item.record.id, item.outcome) for item in advances if item.outcome is not None]
    _write(connection, SQL.write_outcomes, outcomes)
    _write_sides(connection, advances)
    _write(
        connection, SQL.drop_attention, [(item.record.id,) for item in advances if item.attention is False]
    )


def _write_sides(connection: apsw.Connection, written: Sequence[Claim | Advance]) -> None:
    note(connection, [item.journal for item in written if item.journal is not None])
    raised = [(item.record.id, item.record.digest) for item in written if item.attention]
    _write(connection, SQL.put_attention, raised)


def note(connection: apsw.Connection, entries: Iterable[JournalEntry]) -> None:
    """Write journal rows; one that is there already, the same in every part, is a repeat."""
    _write(connection, SQL.insert_journal, [_journal_row(entry) for entry in dict.fromkeys(entries)])


# -- reads --------------------------------------------------------------------------------------------


def find(connection: apsw.Connection, digest: bytes) -> Stored | None:
    """The operation of this digest."""
    return next(map(_stored_of, connection.execute(SQL.stored_by_digests.rows(1), (digest,))), None)


def show(connection: apsw.Connection, number: int) -> Stored | None:
    """The operation with this id."""
    return next(map(_stored_of, connection.execute(str(SQL.stored_by_id), (number,))), None)


def select(connection: apsw.Connection, selection: Selection) -> list[Stored]:
    """Operations in ascending id order."""
    low, high = 0, _ID_MAX
    if selection.machine is not None:
        low, high = machine_range(selection.machine)
    if selection.after is not None:
        low = max(low, selection.after + 1)
    if selection.before is not None:
        high = min(high, selection.before - 1)
    if low > high:
        # also: one above the largest id is no 64-bit integer any more
        return []
    parameters = {
        "low": low,
        "high": high,
        "state": None if selection.state is None else selection.state.value,
        "tenant": selection.tenant,
        "scope": selection.scope,
        "limit": selection.limit,
    }
    statement = SQL.select_newest if selection.newest_first else SQL.select_oldest
    found = [_stored_of(row) for row in connection.execute(str(statement), parameters)]
    return found[::-1] if selection.newest_first else found


def machine_range(machine: int) -> tuple[int, int]:
    """The smallest and the largest id of a machine."""
    return machine << SEQUENCE_BITS, (machine + 1 << SEQUENCE_BITS) - 1


def open_of(connection: apsw.Connection, machine: int, from_id: int) -> list[Record]:
    """Accepted and started rows whose id is of this machine, from this id on."""
    low, high = machine_range(machine)
    return [record_of(row) for row in connection.execute(str(SQL.open_of), (max(low, from_id), high))]


def attention(connection: apsw.Connection, after: int, limit: int) -> list[Record]:
    """Rows of the side table, by id."""
    return [record_of(row) for row in connection.execute(str(SQL.attention), (after, limit))]


def journal(connection: apsw.Connection, number: int) -> list[JournalEntry]:
    """The journal of one operation, oldest first."""
    return [_entry_of(row) for row in connection.execute(str(SQL.journal), (number,))]
