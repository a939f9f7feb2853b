"""One attempt at an effect: send once, report what is known, and never guess."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from nonbis.core.ids import format_id
from nonbis.core.messages import Kind, Record
from nonbis.core.names import reference
from nonbis.core.payments import Receipt
from nonbis.core.policy import Policy
from nonbis.engine.effects import Effect
from nonbis.engine.flights import Flight, Standing, standing_of
from nonbis.engine.patience import Patience
from nonbis.engine.sends import SendGate, report_of
from nonbis.engine.tasks import Tasks
from nonbis.engine.timekeeping import Deadline
from nonbis.engine.writing import Applied, Observation, Writer, writable
from nonbis.errors import AnswerLost, NonbisError
from nonbis.failpoints import Failpoint

_log = logging.getLogger("nonbis.attempts")

CLAIM_GRACE_SECONDS = 2.0
"""A store that does answer, however badly, is given up by the writer first, which knows more: whether
nothing was sent at all. Its last pause and an error that comes just in time fit in here."""


class Ready(NamedTuple):
    """A row that this process made ``started`` just now, and until when its send may begin."""

    record: Record
    deadline: Deadline


class Attempts:
    """The sends that are under way in this process."""

    def __init__(self, writer: Writer, policy: Policy, tasks: Tasks, failpoint: Failpoint) -> None:
        self._writer = writer
        self._tasks = tasks
        self._failpoint = failpoint
        self._sending: dict[tuple[bytes, int, int], SendGate] = {}
        loop = asyncio.get_running_loop()
        self._for_the_effect = Patience(loop, policy.effect_timeout_seconds)
        self._for_the_store = Patience(loop, policy.store_wait_seconds)
        self._for_the_claim = Patience(loop, policy.store_wait_seconds + CLAIM_GRACE_SECONDS)

    def knows(self, record: Record) -> bool:
        """Whether the row's present send is under way here, or its report not yet durable."""
        return (record.digest, record.attempt, record.sends) in self._sending

    def at_work(self, digest: bytes) -> bool:
        """Whether any send under this name is under way here."""
        return any(key[0] == digest for key in self._sending)

    def shut(self, why: str) -> None:
        """Let no send begin any more."""
        for gate in self._sending.values():
            gate.shut(why)

    async def make(self, flight: Flight, effect: Effect, ready: Ready) -> Applied:
        """Send and report. The row is durable and bears my stamp; the caller may be gone.

        The entry that says "this send is mine" goes only after the report is durable: until then a
        row that nobody here seems to know would be taken for one that was never sent.
        """
        record = ready.record
        key = (record.digest, record.attempt, record.sends)
        gate = self._sending[key] = SendGate(format_id(record.id), ready.deadline)
        if not self._writer.speaks_for(record.owner):
            gate.shut("this machine was declared lost")
        wait = self._for_the_effect.begin(lambda: self._end_the_wait(flight, record))
        report = await self._send(record, effect, gate)
        self._for_the_effect.end(wait)
        wait = self._give_up_later(flight)
        applied = await self._reported(flight.record or record, report, effect)
        self._for_the_store.end(wait)
        flight.record = applied.record
        del self._sending[key]
        if self._failpoint.armed:
            await self._failpoint.reach("recorded")
        return applied

    async def _send(self, record: Record, effect: Effect, gate: SendGate) -> Observation:
        """Have the effect done and say how it ended; whatever is raised is sorted by one table."""
        began = False
        receipt: Receipt | None = None
        because = ""
        try:
            if self._failpoint.armed:
                await self._failpoint.reach("claimed")
            began = True
            receipt = await effect.send(reference(record.digest, record.refusals), gate)
            if self._failpoint.armed:
                await self._failpoint.reach("sent")
            kind = Kind.REPORT_APPLIED
            if (member := effect.differs(receipt)) is not None:
                kind = Kind.REPORT_UNKNOWN
                because = f"the receipt is for another {member}: {receipt!r}"
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (one table sorts them all)
            kind = report_of(error) if began else Kind.REPORT_NOT_SENT
            because = writable(f"{type(error).__name__}: {error}")
        if kind is Kind.REPORT_UNKNOWN:
            receipt = None
            _log.warning("%s: the outcome is unknown: %s", gate.operation, because)
        return Observation(
            kind=kind,
            attempt=record.attempt,
            send=record.sends,
            receipt=receipt,
            facts=effect.facts,
            because=because[:500],
        )

    async def _reported(self, record: Record, report: Observation, effect: Effect) -> Applied:
        """The report, written; in doubt where what is to be kept of it can't even be made."""
        try:
            return await self._writer.apply(record, report, effect.outcome)
        except NonbisError:
            raise
        except Exception as error:  # noqa: BLE001  (a bug in what is kept must not undo what is known)
            _log.exception("%s: its outcome can't be stored", format_id(record.id))
            unknown = Observation(
                kind=Kind.REPORT_UNKNOWN,
                attempt=report.attempt,
                send=report.send,
                because=f"{report.kind.value}, but its outcome can't be stored: {error!r}"[:500],
            )
            return await self._writer.apply(record, unknown)

    def _give_up_later(self, flight: Flight) -> int:
        """Callers wait for the store only so long; the write goes on without them."""
        return self._for_the_store.begin(lambda: flight.give_up(_not_taken_yet()))

    @contextmanager
    def claiming(self, flight: Flight) -> Iterator[None]:
        """Callers wait only so long for the answer to a claim; the claim itself goes on without them."""
        wait = self._for_the_claim.begin(lambda: flight.give_up(claim_unanswered()))
        try:
            yield
        finally:
            self._for_the_claim.end(wait)

    def _end_the_wait(self, flight: Flight, record: Record) -> None:
        """The effect's time-out ends the wait, never the send: a late report still counts."""
        self._tasks.spawn(self.doubt(flight, record, "the effect has not answered within its time-out"))

    async def doubt(self, flight: Flight, record: Record, because: str) -> None:
        """Put a send that is still under way in doubt, and tell its callers so at once.

        A row that has ended meanwhile was ended by this send's own report, which is about to be told, or
        by another process: then callers are let go to look at the row, however long the send hangs.
        """
        wait = self._give_up_later(flight)
        observation = Observation(
            kind=Kind.REPORT_UNKNOWN, attempt=record.attempt, send=record.sends, because=because
        )
        applied = await self._writer.apply(record, observation)
        self._for_the_store.end(wait)
        if standing_of(applied.record) is Standing.FINAL:
            self._for_the_store.begin(lambda: flight.fail(_not_taken_yet()))
        else:
            flight.doubted(applied.record)


def _not_taken_yet() -> AnswerLost:
    return AnswerLost("the store has not taken the outcome yet; it is unknown to this caller")


def claim_unanswered() -> AnswerLost:
    """What callers are told whose claim is neither done nor surely not done."""
    return AnswerLost("the store has not answered the claim; what becomes of it is unknown to this caller")
