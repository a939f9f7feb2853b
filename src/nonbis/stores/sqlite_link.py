"""A connection to a SQLite file that is as safe as it was asked to be, and what its errors mean."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Final

import apsw

from nonbis.errors import (
    AnswerLost,
    NonbisError,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    StoreUnsafe,
)
from nonbis.stores.sqlite_files import DESCRIPTORS, Inode, inode_of

LIBRARY_MIN: Final = 3_051_003
"""Older ones can corrupt a log that two connections reset at the same moment."""
_PRAGMAS: Final[tuple[tuple[str, str, int | str], ...]] = (
    ("journal_mode", "wal", "wal"),
    ("synchronous", "full", 2),
    ("locking_mode", "normal", "normal"),
    ("wal_autocheckpoint", "4000", 4000),
    ("cache_size", "-65536", -65536),
    ("mmap_size", "0", 0),
    ("temp_store", "memory", 2),
    ("trusted_schema", "off", 0),
    ("cell_size_check", "on", 1),
    ("busy_timeout", "{busy_ms}", 0),
    ("query_only", "{query_only}", 0),
)
_STATEMENTS_KEPT: Final = 400


class Link:
    """One connection, opened when it is needed and opened anew after it had to be dropped.

    Attributes:
        path: the database file.
        busy_seconds: how long SQLite waits for a lock.
        query_only: refuse every write through this connection.
        check: called with each new connection; raises StoreError to refuse it.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_seconds: float,
        query_only: bool,
        check: Callable[[apsw.Connection], None],
    ) -> None:
        self.path = path
        self.busy_seconds = busy_seconds
        self.query_only = query_only
        self.check = check
        self._connection: apsw.Connection | None = None
        self._names = (str(path), f"{path}-wal")
        self._files: tuple[Inode, ...] = ()

    def connected(self, *, create: bool = False) -> apsw.Connection:
        """The connection. Raises StoreUnavailable, StoreUnsafe or StoreDamaged if it can't be opened."""
        if self._connection is None:
            self._connection = self._open(create=create)
        return self._connection

    def intact(self) -> bool:
        """Whether database and log still are the files that the connection has open.

        A stranger in this process that closes the database as its last user, for so it must seem to
        it, removes log and index: what is committed into them afterwards is lost.
        """
        return self._connection is None or self._files == self._present_files()

    def _present_files(self) -> tuple[Inode, ...]:
        return tuple([inode_of(name) for name in self._names])

    def drop(self) -> None:
        """Close the connection whatever state it is in.

        A connection whose log may be another one by now must not copy it into the database.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            with DESCRIPTORS.lock:
                if self._files != self._present_files():
                    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
                connection.close(force=True)

    def abandon(self) -> None:
        """In a forked child: never touch the connection again, not even to close it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

    def _open(self, *, create: bool) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        try:
            with DESCRIPTORS.adopting(self.path):
                connection = apsw.Connection(str(self.path), flags=flags, statementcachesize=_STATEMENTS_KEPT)
                self._settle(connection)
        except apsw.Error as error:
            raise translated(error, f"{self.path} can't be opened") from error
        try:
            self.check(connection)
        except BaseException:
            connection.close(force=True)
            raise
        self._files = self._present_files()
        return connection

    def _settle(self, connection: apsw.Connection) -> None:
        try:
            if connection.readonly("main"):
                raise StoreUnsafe(f"{self.path} can only be read; a store must be writable")
            refuse_foreign(connection, self.path)
            values = {
                "busy_ms": int(self.busy_seconds * 1000),
                "query_only": int(self.query_only),
            }
            for name, asked, wanted in _PRAGMAS:
                given = asked.format_map(values)
                set_pragma(connection, name, given, int(given) if "{" in asked else wanted)
            # The log and its index are opened by the first read; they belong to this connection too.
            connection.execute("select count(*) from sqlite_schema").fetchall()
        except BaseException:
            connection.close(force=True)
            raise


def set_pragma(connection: apsw.Connection, name: str, asked: str, wanted: int | str) -> None:
    """Set one pragma and read it back; raises StoreUnsafe if it did not take.

    An unfetched pragma can fail without a word, and a setting that is merely asked for is none.
    """
    connection.execute(f"pragma {name} = {asked}").fetchall()
    found = connection.execute(f"pragma {name}").get
    if found != wanted:
        raise StoreUnsafe(f"SQLite's {name} is {found!r} and not {wanted!r} as was asked for")


def refuse_old_library() -> None:
    """Raise StoreUnsafe if the SQLite library is older than the oldest one that is safe."""
    if apsw.SQLITE_VERSION_NUMBER < LIBRARY_MIN or _version_number() < LIBRARY_MIN:
        raise StoreUnsafe(
            f"SQLite {apsw.sqlite_lib_version()} is older than 3.51.3, which is the oldest safe one"
        )


def _version_number() -> int:
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split(".")[:3])
    return major * 1_000_000 + minor * 1000 + patch


APPLICATION_ID: Final = 0x6E6F6E62
"""In the file's header: this database is a Nonbis store."""


def refuse_foreign(connection: apsw.Connection, path: Path) -> None:
    """Raise StoreDamaged if the file is some other program's database."""
    mark = connection.execute("pragma application_id").get
    tables = connection.execute("select count(*) from sqlite_schema").get
    if mark != APPLICATION_ID and (mark or tables):
        raise StoreDamaged(f"{path} is a SQLite database, but not a Nonbis store")


_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
_OF_ONE_PIECE = (apsw.ConstraintError, apsw.TooBigError, apsw.MismatchError, apsw.RangeError)


def belongs_to_one_piece(error: Exception) -> bool:
    """Whether what failed was one caller's rows, and not the store for everyone."""
    if isinstance(error, apsw.Error):
        return isinstance(error, _OF_ONE_PIECE)
    return not isinstance(error, (AnswerLost, StoreUnavailable, StoreDamaged, StoreUnsafe, OSError))


def translated(error: Exception, doing: str) -> NonbisError:
    """An error of our tree, made anew for each caller, that says what it means for the write."""
    if isinstance(error, NonbisError):
        return type(error)(str(error))
    said = f"{doing}: {type(error).__name__}: {error}"
    if isinstance(error, _DAMAGE):
        return StoreDamaged(said)
    if isinstance(error, _OF_ONE_PIECE) or not isinstance(error, (apsw.Error, OSError)):
        return StoreError(said)
    return StoreUnavailable(said)
