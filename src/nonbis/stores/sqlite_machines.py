"""Machines, the store's age and the agreement as rows of SQLite, inside the caller's transaction."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from nonbis.core.ids import MACHINE_MAX
from nonbis.core.policy import Agreement
from nonbis.errors import MachineLost, StoreError
from nonbis.ports import Beat, MachineRow
from nonbis.stores.statements import Statement, load

SQL = load("sqlite", "machines.sql")
_AGREEMENT = msgspec.json.Decoder(Agreement)


def _row(row: Any) -> MachineRow:
    names = MachineRow.__struct_fields__
    return msgspec.convert(dict(zip(names, row, strict=True)), MachineRow)


def register(
    connection: apsw.Connection, *, node: str, pid: int, kind: str, token: str, at_ms: int
) -> MachineRow:
    """A new living machine with the next number. Raises StoreError at the end of the numbers."""
    drawn = connection.execute(str(SQL.draw_machine), {"largest": MACHINE_MAX}).get
    if drawn is None:
        raise StoreError(f"the store has given out all {MACHINE_MAX} machine numbers")
    connection.execute(
        str(SQL.insert_machine),
        {"id": drawn, "node": node, "pid": pid, "kind": kind, "token": token, "at_ms": at_ms},
    )
    return _row(connection.execute(str(SQL.machine), (drawn,)).fetchone())


def beat(
    connection: apsw.Connection,
    machine: int,
    count: int,
    *,
    token: bytes,
    oldest_open: int,
    lowest_in_flight: int,
    seen_age_ms: int,
    elapsed_ms: int,
    at_ms: int,
) -> Beat:
    """Count one beat and let the age grow; ``token`` tells a repeat from the beat of a clone."""
    who: dict[str, Any] = {"id": machine, "count": count, "beat_token": token}
    told = {"oldest_open": oldest_open, "lowest_in_flight": lowest_in_flight, "at_ms": at_ms}
    connection.execute(str(SQL.count_beat), who | told)
    if connection.changes() == 0:
        return _repeated_beat(connection, who)
    connection.execute(str(SQL.grow_age), {"elapsed_ms": elapsed_ms, "seen_age_ms": seen_age_ms})
    age = age_ms(connection)
    connection.execute(str(SQL.keep_beat_age), {"age_ms": age, "id": machine})
    return Beat(count + 1, age)


def _repeated_beat(connection: apsw.Connection, who: dict[str, Any]) -> Beat:
    row = connection.execute(str(SQL.beat_of_token), who).fetchone()
    if row is None:
        raise MachineLost(f"machine {who['id']} was declared lost, has ended, or another one beats for it")
    return Beat(*row)


def lose(connection: apsw.Connection, machine: int, count: int, *, at_ms: int) -> bool:
    """Declare a living machine lost, if its beat still is ``count``. True if it is lost now."""
    connection.execute(str(SQL.lose), {"id": machine, "count": count, "at_ms": at_ms})
    return connection.execute(str(SQL.is_lost), (machine,)).fetchone() is not None


def end(connection: apsw.Connection, machine: int, *, at_ms: int) -> None:
    """Mark a living machine as ended."""
    connection.execute(str(SQL.end), {"id": machine, "at_ms": at_ms})


def token(connection: apsw.Connection, machine: int) -> str | None:
    """The name of a machine's lock file."""
    found: str | None = connection.execute(str(SQL.token), (machine,)).get
    return found


def tokens_living(connection: apsw.Connection) -> dict[int, str]:
    """The names of the lock files of living machines."""
    rows: Any = connection.execute(str(SQL.tokens_living)).fetchall()
    return dict(rows)


def machines(connection: apsw.Connection, living: bool | None) -> list[MachineRow]:
    """All machines, or those that are (not) living, by number."""
    statement: Statement = {None: SQL.machines, True: SQL.machines_living, False: SQL.machines_gone}[living]
    return [_row(row) for row in connection.execute(str(statement))]


def age_ms(connection: apsw.Connection) -> int:
    """The store's age in milliseconds."""
    age: int = connection.execute(str(SQL.age)).get
    return age


def agreement(connection: apsw.Connection) -> Agreement | None:
    """What all processes on this store have agreed on."""
    text: str | None = connection.execute(str(SQL.agreement)).get
    return None if text is None else _AGREEMENT.decode(text)


def agree(connection: apsw.Connection, before: Agreement | None, after: Agreement) -> bool:
    """Replace the agreement if it still is ``before``; also true if ``after`` is there already."""
    present = agreement(connection)
    if present == after:
        return True
    if present != before:
        return False
    connection.execute(str(SQL.write_agreement), (msgspec.json.encode(after).decode(),))
    return True
