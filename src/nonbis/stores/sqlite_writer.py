"""The one thread that writes: all that is queued goes into one transaction.

While one transaction is being made durable the next gathers, so there is no timer and no delay for a
lone call. The event loop is woken once per transaction. After that the thread waits until the loop has
gone round a few times: what follows from the answers (a finish after a claim) then joins the very next
transaction instead of waiting for a whole foreign one.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import apsw

from nonbis.core.ids import format_id
from nonbis.errors import AnswerLost, StoreUnavailable, StoreUnsafe
from nonbis.ports import Advance, Claim
from nonbis.stores import sqlite_rows
from nonbis.stores.sqlite_files import LockFile
from nonbis.stores.sqlite_link import Link, belongs_to_one_piece, translated

HOPS: Final = 4
"""Rounds of the loop from an answer to the write that follows from it."""
HANDSHAKE_SECONDS: Final = 0.05
"""A loop that is busy or has stopped holds the writer no longer than this."""


_CONNECTION_BROKEN: Final = (
    apsw.IOError,
    apsw.FullError,
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.NotADBError,
)


class Piece:
    """What one caller handed in: some claims, some advances, or another write."""

    __slots__ = ("advances", "answer", "claims", "future", "work")

    def __init__(
        self,
        future: asyncio.Future[Any],
        *,
        claims: Sequence[Claim] = (),
        advances: Sequence[Advance] = (),
        work: Callable[[apsw.Connection], Any] | None = None,
    ) -> None:
        self.future = future
        self.claims = claims
        self.advances = advances
        self.work = work
        self.answer: Any = None

    def describe(self) -> str:
        """Which rows it is about."""
        numbers = [item.record.id for item in self.claims] + [item.record.id for item in self.advances]
        if not numbers:
            return "the write was refused"
        if len(numbers) == 1:
            return f"the row {format_id(numbers[0])} was refused"
        first, last = format_id(min(numbers)), format_id(max(numbers))
        return f"one of {len(numbers)} rows ({first} to {last}) was refused, so none was written"

    def settle(self) -> None:
        """Give the answer to the caller, on the caller's loop."""
        if self.future.done():
            return
        if isinstance(self.answer, BaseException):
            self.future.set_exception(self.answer)
        else:
            self.future.set_result(self.answer)


class Writer:
    """A queue and the thread that empties it.

    Attributes:
        unsafe: why nothing may be written any more, or None.
    """

    def __init__(self, link: Link, write_lock: LockFile) -> None:
        self.unsafe: str | None = None
        self._link = link
        self._write_lock = write_lock
        self._queue: deque[Piece] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="nonbis-sqlite-writer", daemon=True)
        self._thread.start()

    def hand_in(
        self,
        *,
        claims: Sequence[Claim] = (),
        advances: Sequence[Advance] = (),
        work: Callable[[apsw.Connection], Any] | None = None,
    ) -> asyncio.Future[Any]:
        """Queue one piece; the answer comes through the future."""
        if self._closing:
            raise StoreUnavailable("the store is closed")
        future = asyncio.get_running_loop().create_future()
        self._queue.append(Piece(future, claims=claims, advances=advances, work=work))
        self._wake.set()
        return future

    def close(self) -> None:
        """Carry out what is queued and end the thread. Blocks; not for the event loop."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            closing = self._closing
            pieces = self._drain()
            if pieces:
                self._carry_out(pieces)
                _deliver(pieces)
            elif closing:
                return
            if closing:
                self._wake.set()

    def _drain(self) -> list[Piece]:
        pieces = []
        while self._queue:
            pieces.append(self._queue.popleft())
        return pieces

    def _carry_out(self, pieces: list[Piece]) -> None:
        """Give every piece its answer: in one transaction, or in one each where one spoils it."""
        try:
            self._transaction(pieces)
        except Exception as error:  # noqa: BLE001 - every piece must get an answer, whatever happens
            if len(pieces) > 1 and belongs_to_one_piece(error):
                for piece in pieces:
                    self._carry_out([piece])
                return
            for piece in pieces:
                piece.answer = translated(error, piece.describe())

    def _transaction(self, pieces: list[Piece]) -> None:
        connection = self._link.connected()
        with self._write_lock.held(self._link.busy_seconds):
            if self.unsafe is not None:
                raise StoreUnsafe(self.unsafe)
            try:
                connection.execute("begin immediate")
                answers = _answers(connection, pieces)
            except BaseException as error:
                self._roll_back(connection, error)
                raise
            self._commit(connection)
        for piece, answer in zip(pieces, answers, strict=True):
            piece.answer = answer

    def _roll_back(self, connection: apsw.Connection, error: BaseException) -> None:
        """Nothing was committed; a connection that failed in itself, or can't say so, is dropped."""
        try:
            if connection.in_transaction:
                connection.execute("rollback")
        except apsw.Error:
            self._link.drop()
        if isinstance(error, _CONNECTION_BROKEN):
            self._link.drop()

    def _refuse_replaced(self) -> None:
        """Raise StoreUnsafe, for good, if what was written went into files that nobody else sees."""
        if not self._link.intact():
            self.unsafe = (
                f"the files of {self._link.path} were replaced or removed while they were open (by a second"
                " SQLite library in this process?); restart the process"
            )
            raise StoreUnsafe(self.unsafe)

    def _commit(self, connection: apsw.Connection) -> None:
        """Whatever COMMIT raises, its frames may be in the log: the connection is never used again."""
        try:
            connection.execute("commit")
            self._refuse_replaced()
        except Exception as error:
            self._link.drop()
            raise AnswerLost(
                f"COMMIT raised {type(error).__name__}: {error}; repeat the same write"
            ) from error


def _answers(connection: apsw.Connection, pieces: list[Piece]) -> list[Any]:
    """The answers of all pieces, from one statement for all claims and one for all advances."""
    claims = [item for piece in pieces for item in piece.claims]
    advances = [item for piece in pieces for item in piece.advances]
    claimed = iter(sqlite_rows.claim(connection, claims) if claims else ())
    advanced = iter(sqlite_rows.advance(connection, advances) if advances else ())
    answers: list[Any] = []
    for piece in pieces:
        if piece.work is not None:
            answers.append(piece.work(connection))
        elif piece.claims:
            answers.append([next(claimed) for _ in piece.claims])
        else:
            answers.append([next(advanced) for _ in piece.advances])
    return answers


def _deliver(pieces: list[Piece]) -> None:
    """Wake each loop once and wait until it had time to hand in what follows."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Piece]] = {}
    for piece in pieces:
        by_loop.setdefault(piece.future.get_loop(), []).append(piece)
    acknowledged = []
    for loop, own in by_loop.items():
        event = threading.Event()
        try:
            loop.call_soon_threadsafe(_settle, loop, own, event)
        except RuntimeError:
            continue  # the loop is closed; nobody waits for the answer
        acknowledged.append(event)
    for event in acknowledged:
        event.wait(HANDSHAKE_SECONDS)


def _settle(loop: asyncio.AbstractEventLoop, pieces: list[Piece], event: threading.Event) -> None:
    try:
        for piece in pieces:
            piece.settle()
    finally:
        _hop(loop, event, HOPS)


def _hop(loop: asyncio.AbstractEventLoop, event: threading.Event, left: int) -> None:
    if left == 0:
        event.set()
    else:
        loop.call_soon(_hop, loop, event, left - 1)
