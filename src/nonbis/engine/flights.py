"""Operations under way in this process, and what their callers are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum

import msgspec

from nonbis.core.messages import Record, State
from nonbis.core.payments import Outcome


class Standing(StrEnum):
    """What an answer means for the caller."""

    FINAL = "final"
    IN_PROGRESS = "in_progress"
    IN_DOUBT = "in_doubt"
    MISMATCH = "mismatch"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller is told: always from the row, never from what memory believed before it.

    Attributes:
        standing: how to read it.
        record: the row.
        outcome: what is kept of its end; only with FINAL.
        replayed: this call did not bring that end about.
        request: the stored request, where the caller's is another one (MISMATCH).
    """

    standing: Standing
    record: Record
    outcome: Outcome | None = None
    replayed: bool = False
    request: bytes | None = None


def standing_of(record: Record) -> Standing:
    """A contradicted row that is not applied is as unknown as one in doubt."""
    if record.state is State.APPLIED:
        return Standing.FINAL
    if record.contradicted or record.state is State.IN_DOUBT:
        return Standing.IN_DOUBT
    return Standing.FINAL if record.state is State.FAILED else Standing.IN_PROGRESS


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One physical request for a name.

    Attributes:
        digest: of the name, under the store's key.
        fingerprint: of the request, in the version that this release writes.
        request: the bytes that are kept, from which the effect can be made again.
    """

    tenant: str
    scope: str
    digest: bytes
    fingerprint: bytes
    fingerprint_version: int = 1
    request: bytes


def matches(call: Call, record: Record) -> bool:
    """The one comparison of a request with the row of its name. A tombstone matches every request."""
    return record.fingerprint is None or (
        record.fingerprint == call.fingerprint and record.fingerprint_version == call.fingerprint_version
    )


class Flight:
    """One operation being carried out here. Later calls for its name join it.

    Attributes:
        record: the row as this process last wrote or read it; None until the claim is answered.
        request: the stored request, for telling a joiner what differs.
        claiming: the id drawn for its claim.
    """

    __slots__ = (
        "_answer",
        "_ended",
        "_entered",
        "_error",
        "_land",
        "_waiters",
        "claiming",
        "record",
        "request",
    )

    def __init__(self, land: Callable[[], object]) -> None:
        self.record: Record | None = None
        self.request: bytes | None = None
        self.claiming = 0
        self._land = land
        self._ended = False
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        self._entered: list[asyncio.Future[None]] = []
        self._waiters: list[asyncio.Future[None]] = []

    def enter(self, record: Record, request: bytes) -> None:
        """The row is known: joiners can be judged against it."""
        self.record = record
        self.request = request
        _wake(self._entered)

    def finish(self, answer: Answer) -> None:
        """Tell all waiters, once; later calls look at the row for themselves."""
        self._end(answer, None)

    def fail(self, error: BaseException) -> None:
        """Tell all waiters that there is no answer."""
        self._end(None, error)

    def give_up(self, error: BaseException) -> None:
        """Tell those who wait now that there is no answer. The operation stays under way here."""
        self._error = error
        _wake(self._waiters)

    def doubted(self, record: Record) -> None:
        """The outcome is not known in time. The send may go on and report to ``record`` later."""
        self.record = record
        self.finish(Answer(standing=standing_of(record), record=record))

    def _end(self, answer: Answer | None, error: BaseException | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._answer = answer
        self._error = error
        self._land()
        _wake(self._entered)
        _wake(self._waiters)

    async def entered(self) -> Record:
        """The row, as soon as it is known. Raises the flight's error if it ended before."""
        if self.record is None and not self._ended:
            await _wait(self._entered)
        if self.record is None:
            raise self._error or AssertionError("a flight without a row has an error")
        return self.record

    async def result(self) -> Answer:
        """Wait for the answer. A caller that is cancelled leaves the flight as it is."""
        if not self._ended:
            await _wait(self._waiters)
        if self._answer is None:
            raise self._error or AssertionError("a flight ends with an answer or an error")
        return self._answer

    async def result_within(self, seconds: float) -> Answer | None:
        """The answer if it comes within so many seconds, else None."""
        if self._ended:
            return await self.result()
        if seconds <= 0:
            return None
        try:
            return await asyncio.wait_for(self.result(), seconds)
        except TimeoutError:
            return None


async def _wait(waiters: list[asyncio.Future[None]]) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiters.append(future)
    await future


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    for future in waiters:
        if not future.done():
            future.set_result(None)
    waiters.clear()
