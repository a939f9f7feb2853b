"""The SQLite store: one file, one writer thread, any number of processes on one host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import apsw

from nonbis.core.messages import Record
from nonbis.core.policy import Agreement
from nonbis.errors import AnswerLost, MachineLost, StoreDamaged, StoreError, StoreUnavailable, StoreUnsafe
from nonbis.ports import (
    Advance,
    Advanced,
    Beat,
    Claim,
    Claimed,
    Clock,
    Entropy,
    JournalEntry,
    MachineRow,
    Selection,
    Stored,
)
from nonbis.stores import sqlite_machines, sqlite_rows
from nonbis.stores.sqlite_doctor import examine
from nonbis.stores.sqlite_files import (
    DESCRIPTORS,
    LockFile,
    MachineLocks,
    inode_of,
    locked_files,
    make_private,
    refuse_network,
)
from nonbis.stores.sqlite_link import Link, refuse_old_library, translated
from nonbis.stores.sqlite_schema import Identity, identify, prepare
from nonbis.stores.sqlite_writer import Writer

Answer = TypeVar("Answer")
BUSY_SECONDS = 5.0


class SqliteStore:
    """Durable rows in one SQLite file. Made by ``open``; see ``ports.Store`` for what each method does.

    All methods raise StoreUnavailable (surely not done), AnswerLost (repeat the same write),
    StoreDamaged, StoreUnsafe (something else in this process has the file open), or plain StoreError
    (a row that can't be, a forked child).
    """

    def __init__(self, path: Path, identity: Identity, writer: Link, reader: Link, entropy: Entropy) -> None:
        self._path = path
        self._identity = identity
        self._entropy = entropy
        self._pid = os.getpid()
        self._closed = False
        self._unsafe: str | None = None
        self._inode = inode_of(path)
        self._locked = locked_files(path)
        self._machine_locks = MachineLocks(path)
        self._beats: dict[int, tuple[tuple[int, ...], bytes]] = {}
        self._links = (writer, reader)
        self._write_lock = LockFile(_lock_path(path))
        self._writer = Writer(writer, self._write_lock)
        self._readers = ThreadPoolExecutor(1, "nonbis-sqlite-reader")
        _STORES.add(self)

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        clock: Clock,
        entropy: Entropy,
        busy_seconds: float = BUSY_SECONDS,
    ) -> SqliteStore:
        """Open the store in this file, or make it.

        ``busy_seconds`` is how long a write waits for the writers of other processes.

        Raises StoreUnsafe (network file system, read-only, old SQLite library, a pragma that did not
        take, a second library on the file), StoreDamaged, SchemaNewer or StoreUnavailable.
        """
        return await asyncio.to_thread(cls._open, Path(path), clock, entropy, busy_seconds)

    @classmethod
    def _open(cls, path: Path, clock: Clock, entropy: Entropy, busy_seconds: float) -> SqliteStore:
        refuse_old_library()
        refuse_network(path.parent)
        try:
            lock_file = LockFile(_lock_path(path))
        except OSError as error:
            raise StoreUnsafe(f"{path} can't be a store: {error}") from error
        try:
            with lock_file.held(busy_seconds):
                return cls._open_locked(path, clock, entropy, busy_seconds)
        finally:
            lock_file.close()

    @classmethod
    def _open_locked(cls, path: Path, clock: Clock, entropy: Entropy, busy_seconds: float) -> SqliteStore:
        known: list[Identity] = []

        def check(connection: apsw.Connection) -> None:
            if known and identify(connection).store_id != known[0].store_id:
                raise StoreDamaged(f"{path} is another store now than the one that was opened")

        writer = Link(path, busy_seconds=busy_seconds, query_only=False, check=check)
        reader = Link(path, busy_seconds=busy_seconds, query_only=True, check=check)
        try:
            make_private(path)
            known.append(prepare(writer.connected(create=True), entropy, clock.wall_ms()))
            reader.connected()
            return cls(path, known[0], writer, reader, entropy)
        except Exception as error:
            writer.drop()
            reader.drop()
            raise translated(error, f"{path} can't be opened") from error

    # -- what it is

    @property
    def url(self) -> str:
        """Where it is."""
        return f"sqlite:///{self._path}"

    @property
    def key(self) -> bytes:
        """The secret under which names are digested: 32 bytes."""
        return self._identity.key

    @property
    def shared(self) -> bool:
        """Other processes may have it open too."""
        return True

    # -- operations

    async def claim(self, claims: Sequence[Claim]) -> list[Claimed]:
        """Insert each row whose digest is not there; the answers are in the order of the claims."""
        self._check_write()
        if not claims:
            return []
        answers: list[Claimed] = await self._writer.hand_in(claims=claims)
        return answers

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        """Write each row that still bears the expected stamp, or bears the new one already."""
        self._check_write()
        if not advances:
            return []
        answers: list[Advanced] = await self._writer.hand_in(advances=advances)
        return answers

    async def note(self, entries: Sequence[JournalEntry]) -> None:
        """Write journal rows alone; the same entry twice is one."""
        if entries:
            await self._write(lambda connection: sqlite_rows.note(connection, entries))

    async def find(self, digest: bytes) -> Stored | None:
        """The operation of this digest."""
        return await self._read(sqlite_rows.find, digest)

    async def show(self, number: int) -> Stored | None:
        """The operation with this id."""
        return await self._read(sqlite_rows.show, number)

    async def select(self, selection: Selection) -> list[Stored]:
        """Operations in ascending id order."""
        return await self._read(sqlite_rows.select, selection)

    async def open_of(self, machine: int, from_id: int) -> list[Record]:
        """Accepted and started rows whose id is of this machine, from this id on."""
        return await self._read(sqlite_rows.open_of, machine, from_id)

    async def attention(self, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """Rows of the side table, by id."""
        return await self._read(sqlite_rows.attention, after, limit)

    async def journal(self, number: int) -> list[JournalEntry]:
        """The journal of one operation, oldest first."""
        return await self._read(sqlite_rows.journal, number)

    # -- machines

    async def register(self, *, node: str, pid: int, kind: str, at_ms: int) -> MachineRow:
        """A new living machine, whose lock file is held before its number is drawn."""
        token = self._entropy.token(16).hex()
        lock_file = await asyncio.to_thread(self._machine_locks.take, token)
        try:
            row = await self._write(
                lambda connection: sqlite_machines.register(
                    connection, node=node, pid=pid, kind=kind, token=token, at_ms=at_ms
                )
            )
        except BaseException as error:
            lock_file.close()
            if isinstance(error, StoreError) and not isinstance(error, AnswerLost):
                self._machine_locks.remove(token)
            raise
        self._machine_locks.own[row.id] = lock_file
        return row

    async def beat(
        self,
        machine: int,
        count: int,
        *,
        oldest_open: int,
        lowest_in_flight: int,
        seen_age_ms: int,
        elapsed_ms: int,
        at_ms: int,
    ) -> Beat:
        """Count one beat; also looks whether the file still is ours alone, else StoreUnsafe."""
        await self._read(self._watch)
        arguments = (count, oldest_open, lowest_in_flight, seen_age_ms, elapsed_ms, at_ms)
        if machine not in self._beats or self._beats[machine][0] != arguments:
            self._beats[machine] = (arguments, self._entropy.token(16))
        token = self._beats[machine][1]
        try:
            return await self._write(
                lambda connection: sqlite_machines.beat(
                    connection,
                    machine,
                    count,
                    token=token,
                    oldest_open=oldest_open,
                    lowest_in_flight=lowest_in_flight,
                    seen_age_ms=seen_age_ms,
                    elapsed_ms=elapsed_ms,
                    at_ms=at_ms,
                )
            )
        except MachineLost:
            self._let_go(machine)
            raise

    async def lose(self, machine: int, count: int, *, at_ms: int) -> bool:
        """Declare a living machine lost, if its beat still is ``count``. True if it is lost now."""
        lost = await self._write(
            lambda connection: sqlite_machines.lose(connection, machine, count, at_ms=at_ms)
        )
        if lost:
            await self._remove_lock_file(machine)
        return lost

    async def end(self, machine: int, *, at_ms: int) -> None:
        """Mark my own machine as ended; nothing happens if it was declared lost."""
        await self._write(lambda connection: sqlite_machines.end(connection, machine, at_ms=at_ms))
        self._let_go(machine)
        await self._remove_lock_file(machine)

    async def vanished(self) -> list[MachineRow]:
        """Living machines whose lock file nobody holds."""
        return await self._read(self._vanished)

    async def machines(self, *, living: bool | None = None) -> list[MachineRow]:
        """All machines, or those that are (not) living, by number."""
        return await self._read(sqlite_machines.machines, living)

    async def agreement(self) -> Agreement | None:
        """What all processes on this store have agreed on; None for a new store."""
        return await self._read(sqlite_machines.agreement)

    async def agree(self, before: Agreement | None, after: Agreement) -> bool:
        """Replace the agreement if it still is ``before``."""
        return await self._write(lambda connection: sqlite_machines.agree(connection, before, after))

    async def age_ms(self) -> int:
        """The store's age as written by the last beat of any machine."""
        return await self._read(sqlite_machines.age_ms)

    # -- the store itself

    async def doctor(self) -> dict[str, str]:
        """What an operator should know: versions, settings, file system. Raises StoreUnsafe as beat does."""
        await self._read(self._watch)
        return await self._read(examine, self._path)

    async def close(self) -> None:
        """Carry out what was handed in, then close connections and lock files."""
        self._check_process()
        if not self._closed:
            self._closed = True
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        self._readers.shutdown()
        # The last connection to close empties the log; a process that opens the file now must wait for it.
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(StoreUnavailable):
                stack.enter_context(self._write_lock.held(BUSY_SECONDS))
            for link in self._links:
                link.drop()
        self._machine_locks.let_all_go()
        self._write_lock.close()

    # -- how

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise StoreError("this store was opened before a fork; open it anew in the child")

    def _check_write(self) -> None:
        self._check_process()
        if self._closed:
            raise StoreError("the store is closed")
        if self._unsafe is not None or self._writer.unsafe is not None:
            raise StoreUnsafe(self._unsafe or self._writer.unsafe)

    async def _write(self, work: Callable[[apsw.Connection], Answer]) -> Answer:
        self._check_write()
        answer: Answer = await self._writer.hand_in(work=work)
        return answer

    async def _read(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        self._check_process()
        if self._closed:
            raise StoreError("the store is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read_now, work, arguments)

    def _read_now(self, work: Callable[..., Answer], arguments: tuple[Any, ...]) -> Answer:
        link = self._links[1]
        try:
            return work(link.connected(), *arguments)
        except apsw.Error as error:
            link.drop()
            raise translated(error, "the read failed") from error

    def _watch(self, _: apsw.Connection) -> None:
        """Whether the file is where it was, and nothing else in this process has it open."""
        self._unsafe = self._writer.unsafe
        try:
            DESCRIPTORS.refuse_strangers(self._path)
            if inode_of(self._path) != self._inode:
                raise StoreUnsafe(f"{self._path} was removed or replaced while it was open")
            if not self._locked <= locked_files(self._path):
                raise StoreUnsafe(
                    f"something in this process opened and closed {self._path} (a second SQLite library or a"
                    " plain open()) and so removed the store's locks; restart the process"
                )
        except StoreUnsafe as error:
            self._unsafe = str(error)
            raise

    # -- lock files of machines

    def _let_go(self, machine: int) -> None:
        self._beats.pop(machine, None)
        self._machine_locks.let_go(machine)

    async def _remove_lock_file(self, machine: int) -> None:
        with contextlib.suppress(StoreError):
            token = await self._read(sqlite_machines.token, machine)
            if token is not None:
                self._machine_locks.remove(token)

    def _vanished(self, connection: apsw.Connection) -> list[MachineRow]:
        gone = self._machine_locks.gone(sqlite_machines.tokens_living(connection))
        return [row for row in sqlite_machines.machines(connection, True) if row.id in gone]

    def abandon(self) -> None:
        """In a forked child: the parent's connections are never touched, not even to close them."""
        for link in self._links:
            link.abandon()


def _lock_path(path: Path) -> Path:
    return Path(f"{path}.nonbis-lock")


_STORES: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


def _abandon_stores() -> None:
    for store in list(_STORES):
        store.abandon()


os.register_at_fork(after_in_child=_abandon_stores)
