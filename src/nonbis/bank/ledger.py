"""The bank's durable journal: every transfer really made, and every refusal that is bound.

SQLite in WAL with full sync, held exclusively: a second bank on the same file is refused, since what is
under way is known to one process only. All calls here block; the bank makes them in one thread.
"""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import apsw
import msgspec


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asks the bank for. ``amount`` is an integer in the currency's minor unit."""

    reference: str
    amount: int
    currency: str
    destination: str
    operation: str = ""
    description: str = ""
    metadata: str = ""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A transfer that was made."""

    reference: str
    amount: int
    currency: str
    destination: str
    at: str


class Refused(msgspec.Struct, frozen=True):
    """The reference was declined before."""


class LedgerUnusable(Exception):
    """The file can't be the bank's ledger: damaged, foreign, read-only, or held by another bank."""


_SCHEMA = """
create table if not exists transfers (
    number integer primary key,
    reference text not null,
    amount integer not null check (amount > 0),
    currency text not null,
    destination text not null,
    operation text not null,
    description text not null,
    metadata text not null,
    at text not null
) strict;
create index if not exists transfers_by_reference on transfers (reference);
create table if not exists refusals (
    reference text primary key,
    at text not null
) strict, without rowid;
"""
_COLUMNS = "reference, amount, currency, destination, at"
_APPLICATION_ID = 0x6E62616E
"""Marks the file as a bank's ledger, so that another database is never taken for one."""


class Ledger:
    """The bank's file. Raises LedgerUnusable when made for a file that it can't use."""

    def __init__(self, path: Path) -> None:
        try:
            self._connection = apsw.Connection(str(path))
            self._open()
        except apsw.Error as error:
            raise LedgerUnusable(f"{path} can't be used as the bank's ledger: {error}") from error

    def _open(self) -> None:
        self._connection.set_busy_timeout(0)
        self._pragma("locking_mode", "exclusive")
        self._refuse_foreign()
        self._pragma("journal_mode", "wal")
        self._pragma("synchronous", "full", 2)
        with self._connection:
            self._connection.execute(f"pragma application_id = {_APPLICATION_ID}")
            self._connection.execute(_SCHEMA)

    def _pragma(self, name: str, value: str, reads_as: object = None) -> None:
        self._connection.pragma(name, value)
        found = self._connection.pragma(name)
        if found != (reads_as or value):
            raise apsw.SQLError(f"{name} is {found}, not {value}")

    def _refuse_foreign(self) -> None:
        tables = self._connection.execute("select count(*) from sqlite_schema").get
        if tables and self._connection.pragma("application_id") != _APPLICATION_ID:
            raise apsw.NotADBError("it is another program's database")

    def make(self, transfer: Transfer) -> Made:
        """Make one more transfer. Durable on return."""
        made = _made(transfer, time.time())
        self._connection.execute(
            "insert into transfers (reference, amount, currency, destination, operation, description,"
            " metadata, at) values (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                transfer.reference,
                transfer.amount,
                transfer.currency,
                transfer.destination,
                transfer.operation,
                transfer.description,
                transfer.metadata,
                made.at,
            ),
        )
        return made

    def refuse(self, reference: str) -> None:
        """Bind a refusal to the reference."""
        self._connection.execute("insert into refusals values (?, ?)", (reference, _moment(time.time())))

    def find(self, reference: str) -> Made | Refused | None:
        """What became of a reference: its first transfer, its refusal, or nothing."""
        row = self._connection.execute(
            f"select {_COLUMNS} from transfers where reference = ? order by number limit 1",  # noqa: S608 - a constant
            (reference,),
        ).fetchone()
        if row is not None:
            return _of_row(row)
        refused = self._connection.execute("select 1 from refusals where reference = ?", (reference,)).get
        return None if refused is None else Refused()

    def journal(self) -> list[Made]:
        """Every transfer really made, in order."""
        rows = self._connection.execute(f"select {_COLUMNS} from transfers order by number")  # noqa: S608 - a constant
        return [_of_row(row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _made(transfer: Transfer, now: float) -> Made:
    return Made(
        reference=transfer.reference,
        amount=transfer.amount,
        currency=transfer.currency,
        destination=transfer.destination,
        at=_moment(now),
    )


def _of_row(row: tuple[object, ...]) -> Made:
    return msgspec.convert(dict(zip(Made.__struct_fields__, row, strict=True)), Made)


def _moment(seconds: float) -> str:
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
