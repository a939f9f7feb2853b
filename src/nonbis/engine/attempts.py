"""One attempt at an effect: send once, report what is known, and never guess."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from nonbis.core.ids import format_id
from nonbis.core.messages import Kind, Record
from nonbis.core.names import reference
from nonbis.core.payments import Receipt
from nonbis.core.policy import Policy
from nonbis.engine.effects import Effect
from nonbis.engine.flights import Flight
from nonbis.engine.sends import SendGate, report_of
from nonbis.engine.tasks import Tasks
from nonbis.engine.timekeeping import Deadline
from nonbis.engine.writing import Applied, Observation, Writer
from nonbis.failpoints import Failpoint

_log = logging.getLogger("nonbis.attempts")


class Ready(NamedTuple):
    """A row that this process made ``started`` just now, and until when its send may begin."""

    record: Record
    deadline: Deadline


class Attempts:
    """The sends that are under way in this process."""

    def __init__(self, writer: Writer, policy: Policy, tasks: Tasks, failpoint: Failpoint) -> None:
        self._writer = writer
        self._policy = policy
        self._tasks = tasks
        self._failpoint = failpoint
        self._sending: dict[tuple[bytes, int, int], SendGate] = {}

    def knows(self, record: Record) -> bool:
        """Whether the row's present send is under way here, or its report not yet durable."""
        return (record.digest, record.attempt, record.sends) in self._sending

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
        timer = asyncio.get_running_loop().call_later(
            self._policy.effect_timeout_seconds, self._end_the_wait, flight, record
        )
        report = await self._send(record, effect, gate)
        timer.cancel()
        applied = await self._writer.apply(flight.record or record, report, effect.outcome)
        flight.record = applied.record
        del self._sending[key]
        await self._failpoint.reach("recorded")
        return applied

    async def _send(self, record: Record, effect: Effect, gate: SendGate) -> Observation:
        """Have the effect done and say how it ended; whatever is raised is sorted by one table."""
        began = False
        receipt: Receipt | None = None
        because = ""
        try:
            await self._failpoint.reach("claimed")
            began = True
            receipt = await effect.send(reference(record.digest, record.refusals), gate)
            await self._failpoint.reach("sent")
            kind = Kind.REPORT_APPLIED
            if (member := effect.differs(receipt)) is not None:
                kind = Kind.REPORT_UNKNOWN
                because = f"the receipt is for another {member}: {receipt!r}"
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  (one table sorts them all)
            kind = report_of(error) if began else Kind.REPORT_NOT_SENT
            because = f"{type(error).__name__}: {error}"
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

    def _end_the_wait(self, flight: Flight, record: Record) -> None:
        """The effect's time-out ends the wait, never the send: a late report still counts."""
        self._tasks.spawn(self.doubt(flight, record, "the effect has not answered within its time-out"))

    async def doubt(self, flight: Flight, record: Record, because: str) -> None:
        """Put a send that is still under way in doubt, and tell its callers so at once."""
        observation = Observation(
            kind=Kind.REPORT_UNKNOWN, attempt=record.attempt, send=record.sends, because=because
        )
        applied = await self._writer.apply(record, observation)
        flight.doubted(applied.record)
