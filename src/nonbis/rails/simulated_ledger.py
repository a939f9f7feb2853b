"""What the simulated rail remembers: an append-only file, or the memory of one process.

The effect of a simulated transfer is its line in the ledger. Several processes may share one file: who
decides about a reference holds the file's lock from the look to the sync, so that two of them can't
both make the transfer, and nobody who asks can miss a line that another one is about to write.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from nonbis.errors import NotSent, OutcomeUnknown, RailError

WallClock = Callable[[], int]


def wall_ms() -> int:
    """Milliseconds since 1970 by this host's clock."""
    return time.time_ns() // 1_000_000


class EntryKind(StrEnum):
    """What a line of the ledger says."""

    TRANSFER = "transfer"
    REFUSAL = "refusal"


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One transfer that was made, or one refusal that is bound to its reference."""

    kind: EntryKind
    reference: str
    amount: int
    currency: str
    destination: str
    operation: str
    at_ms: int


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: who this ledger is. A new file is another ledger and knows nothing."""

    ledger: str


class Ledger(Protocol):
    """Where entries live."""

    @property
    def identity(self) -> str:
        """A random name that no other ledger has."""

    async def record(self, entry: Entry, *, dedupes: bool, deadline_ms: int | None) -> Entry:
        """Write the entry and return it, or return the one that its reference has already.

        Raises NotSent if ``deadline_ms`` (wall clock) has passed: nothing was written.
        """

    async def find(self, reference: str) -> Entry | None:
        """The first entry of this reference."""

    async def entries(self) -> list[Entry]:
        """All entries in the order in which they were made."""

    async def close(self) -> None:
        """Let go of the file."""


class _Book:
    """The entries in memory, and the rule by which one is added."""

    def __init__(self, clock: WallClock) -> None:
        self.entries: list[Entry] = []
        self.by_reference: dict[str, Entry] = {}
        self._clock = clock

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.by_reference.setdefault(entry.reference, entry)

    def earlier(self, entry: Entry, *, dedupes: bool, deadline_ms: int | None) -> Entry | None:
        """The entry to answer with, or None if a new one may be written now."""
        known = self.by_reference.get(entry.reference) if dedupes else None
        if known is None and deadline_ms is not None and self._clock() > deadline_ms:
            raise NotSent("the simulated rail got the transfer after its deadline and did not make it")
        return known


def _new_identity() -> str:
    return os.urandom(8).hex()


class MemoryLedger:
    """Entries that live and die with this object. For benchmarks and tests."""

    def __init__(self, *, clock: WallClock = wall_ms) -> None:
        self.identity = f"memory-{_new_identity()}"
        self._book = _Book(clock)

    async def record(self, entry: Entry, *, dedupes: bool, deadline_ms: int | None) -> Entry:
        """See Ledger. Never suspends."""
        earlier = self._book.earlier(entry, dedupes=dedupes, deadline_ms=deadline_ms)
        if earlier is not None:
            return earlier
        self._book.add(entry)
        return entry

    async def find(self, reference: str) -> Entry | None:
        """See Ledger."""
        return self._book.by_reference.get(reference)

    async def entries(self) -> list[Entry]:
        """See Ledger."""
        return list(self._book.entries)

    async def close(self) -> None:
        """Nothing to let go of."""


class _Wish:
    """An entry that waits for its turn at the file, and what became of it."""

    __slots__ = ("deadline_ms", "dedupes", "entry", "error", "result")

    def __init__(self, entry: Entry, dedupes: bool, deadline_ms: int | None) -> None:
        self.entry = entry
        self.dedupes = dedupes
        self.deadline_ms = deadline_ms
        self.result: Entry | None = None
        self.error: RailError | None = None


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)
_HEADER = msgspec.json.Decoder(Header)
_READ_BYTES = 1 << 20


class LedgerDamaged(ValueError):
    """The file is not a ledger of the simulated rail."""


class FileLedger:
    """JSON lines, appended and synced before a transfer counts as made.

    One thread does all work at the file; one sync covers every entry that waited for it. Once a write
    or sync has failed nothing more is known of the file, so this object takes no further entries.
    Raises LedgerDamaged or OSError when made for a file that it can't use.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: WallClock = wall_ms) -> None:
        self.path = Path(path)
        self._book = _Book(clock)
        self._wishes: deque[_Wish] = deque()
        self._broken: OSError | None = None
        self._offset_bytes = 0
        self.identity = ""
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            with self._locked():
                self._begin()
        except BaseException:
            os.close(self._file)
            raise
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simulated-ledger")

    async def record(self, entry: Entry, *, dedupes: bool, deadline_ms: int | None) -> Entry:
        """See Ledger. Raises OutcomeUnknown if writing failed half way."""
        wish = _Wish(entry, dedupes, deadline_ms)
        self._wishes.append(wish)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._grant)
        if wish.error is not None:
            raise wish.error
        assert wish.result is not None
        return wish.result

    async def find(self, reference: str) -> Entry | None:
        """See Ledger. Raises OutcomeUnknown if the file can't be read."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        return self._book.by_reference.get(reference)

    async def entries(self) -> list[Entry]:
        """See Ledger."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        return list(self._book.entries)

    async def close(self) -> None:
        """Finish what waits and close the file."""
        self._thread.shutdown(wait=True)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # -- in the ledger's own thread --------------------------------------------------------------------

    def _grant(self) -> None:
        """Decide every wish that waits; an earlier turn may have taken this one's along."""
        wishes = [self._wishes.popleft() for _ in range(len(self._wishes))]
        if not wishes:
            return
        if self._broken is not None:
            _refuse(wishes, NotSent(f"the simulated rail's ledger failed before: {self._broken}"))
            return
        try:
            with self._locked():
                self._refresh()
                self._write([wish for wish in wishes if self._is_new(wish)])
        except OSError as error:
            self._broken = error
            _refuse(wishes, OutcomeUnknown(f"the simulated rail's ledger failed: {error}"))

    def _is_new(self, wish: _Wish) -> bool:
        try:
            earlier = self._book.earlier(wish.entry, dedupes=wish.dedupes, deadline_ms=wish.deadline_ms)
        except NotSent as error:
            wish.error = error
            return False
        wish.result = earlier or wish.entry
        if earlier is None:
            # Seen by the next wish of this turn; if the sync fails, the whole object is given up.
            self._book.add(wish.entry)
        return earlier is None

    def _write(self, wishes: list[_Wish]) -> None:
        if wishes:
            self._append(b"".join(_ENCODER.encode(wish.entry) + b"\n" for wish in wishes))

    def _append(self, lines: bytes) -> None:
        view = memoryview(lines)
        while view:
            view = view[os.write(self._file, view) :]
        os.fsync(self._file)
        self._offset_bytes += len(lines)

    def _look(self) -> None:
        if self._broken is not None:
            raise OutcomeUnknown(f"the simulated rail's ledger failed before: {self._broken}")
        try:
            with self._locked():
                self._refresh()
        except OSError as error:
            raise OutcomeUnknown(f"the simulated rail's ledger can't be read: {error}") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _begin(self) -> None:
        """Read the ledger's identity, or give it one."""
        if os.fstat(self._file).st_size == 0:
            self._append(_ENCODER.encode(Header(ledger=_new_identity())) + b"\n")
            _sync_folder(self.path.parent)
            self._offset_bytes = 0
        self._refresh()
        if not self.identity:
            raise LedgerDamaged(f"{self.path} is not a ledger of the simulated rail")

    def _refresh(self) -> None:
        """Take in what other processes wrote; the lock is held, so a torn last line is nobody's."""
        fresh = self._read_tail()
        whole = fresh.rfind(b"\n") + 1
        if whole < len(fresh):
            if not self.identity and not whole:
                raise LedgerDamaged(f"{self.path} is not a ledger of the simulated rail")
            os.ftruncate(self._file, self._offset_bytes + whole)
        if whole:
            # Its writer may have died before the sync; whoever answers from a line has synced it.
            os.fsync(self._file)
        for line in fresh[:whole].splitlines():
            self._take(line)
        self._offset_bytes += whole

    def _read_tail(self) -> bytes:
        parts: list[bytes] = []
        position = self._offset_bytes
        while part := os.pread(self._file, _READ_BYTES, position):
            parts.append(part)
            position += len(part)
        return b"".join(parts)

    def _take(self, line: bytes) -> None:
        try:
            if self.identity:
                self._book.add(_DECODER.decode(line))
            else:
                self.identity = _HEADER.decode(line).ledger
        except msgspec.MsgspecError as error:
            raise LedgerDamaged(f"{self.path} is not a ledger of the simulated rail: {error}") from error


def _refuse(wishes: list[_Wish], error: RailError) -> None:
    for wish in wishes:
        if wish.error is None:
            wish.error = error


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
