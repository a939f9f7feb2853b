"""The simulated rail: in this process, with a durable ledger of its own and faults on demand.

It does what its facts say and nothing more: a rail made with ``finds=False`` can't be asked, one
without ``dedupes_for_seconds`` makes another transfer each time. So a test that wants a weaker rail
describes it, and behaviour and description can't come apart.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import StrEnum
from functools import lru_cache

import msgspec

from nonbis.core.payments import Receipt, Transfer, timestamp
from nonbis.core.policy import RailFacts
from nonbis.errors import Declined, NotSent, OutcomeUnknown
from nonbis.ports import Found, FoundKind, Gate
from nonbis.rails.simulated_ledger import (
    Entry,
    EntryKind,
    FileLedger,
    Ledger,
    MemoryLedger,
    WallClock,
    wall_ms,
)

FOR_EVER_SECONDS = 100 * 365 * 86_400.0
"""It dedupes as long as its ledger lives; a number, since infinity has no JSON."""
SETTLE_WINDOW_SECONDS = 5.0
"""The deadline is checked under the ledger's lock, so only a step of the clock is left to be covered."""

__all__ = ["Fault", "FaultKind", "FileLedger", "Hold", "MemoryLedger", "SimulatedFault", "SimulatedRail"]


class SimulatedFault(RuntimeError):
    """Stands for a bug in a rail's code that strikes after the effect."""


class FaultKind(StrEnum):
    """What goes wrong with a send."""

    NONE = "none"
    DECLINE = "decline"
    NOT_SENT = "not_sent"
    LOSE_ANSWER = "lose_answer"
    RAISE_AFTER = "raise_after"


class Hold:
    """A point at which a send waits until it is released."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._released = asyncio.Event()

    async def wait(self) -> None:
        """Say that the send is here, and wait."""
        self.reached.set()
        await self._released.wait()

    def release(self) -> None:
        """Let the send go on."""
        self._released.set()


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to one send.

    Attributes:
        kind: what goes wrong.
        before_gate: where it waits before the last check, as for a connection.
        before_effect: where it waits after the last check, as on the wire.
        before_answer: where it waits when the transfer has been made.
    """

    kind: FaultKind = FaultKind.NONE
    before_gate: Hold | None = None
    before_effect: Hold | None = None
    before_answer: Hold | None = None


class SimulatedRail:
    """A rail without a world outside. ``ledger`` is where its transfers are; see FileLedger.

    The account is the ledger's identity by default: another ledger knows nothing of this one's
    references and must not be asked about them.
    """

    def __init__(self, ledger: Ledger, *, facts: RailFacts | None = None, clock: WallClock = wall_ms) -> None:
        self.facts = facts or RailFacts(
            name="simulated",
            account=ledger.identity,
            settle_window_seconds=SETTLE_WINDOW_SECONDS,
            dedupes_for_seconds=FOR_EVER_SECONDS,
            binds_refusals=True,
            honours_deadline=True,
            finds=True,
        )
        self._dedupes = self.facts.dedupes_for_seconds is not None
        self._ledger = ledger
        self._clock = clock
        self._faults: deque[Fault] = deque()

    def plan(self, *faults: Fault | FaultKind) -> None:
        """Let the next sends meet these faults, one each, in this order."""
        self._faults.extend(Fault(kind=fault) if isinstance(fault, FaultKind) else fault for fault in faults)

    async def send(self, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        """See Rail. Raises what the next planned fault asks for."""
        if self._faults:
            return await self._send_with(self._faults.popleft(), transfer, reference, gate)
        gate()
        return await self._make(transfer, reference, gate)

    async def find(self, reference: str) -> Found:
        """See Rail. Raises OutcomeUnknown if the facts say that it can't be asked."""
        if not self.facts.finds:
            raise OutcomeUnknown("this simulated rail can't be asked")
        entry = await self._ledger.find(reference)
        if entry is None:
            return Found(FoundKind.NOT_FOUND)
        if entry.kind is EntryKind.REFUSAL:
            return Found(FoundKind.REFUSED)
        return Found(FoundKind.APPLIED, _receipt(entry))

    async def transfers(self) -> list[Receipt]:
        """Every transfer really made, in order; for tests and demonstrations."""
        return [_receipt(entry) for entry in await self._ledger.entries() if entry.kind is EntryKind.TRANSFER]

    async def close(self) -> None:
        """Close the ledger."""
        await self._ledger.close()

    async def _make(self, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        entry = await self._record(EntryKind.TRANSFER, transfer, reference, gate)
        if entry.kind is EntryKind.REFUSAL:
            raise Declined("the simulated rail refused this reference before")
        return _receipt(entry)

    async def _record(self, kind: EntryKind, transfer: Transfer, reference: str, gate: Gate) -> Entry:
        return await self._ledger.record(
            Entry(
                kind=kind,
                reference=reference,
                amount=transfer.amount,
                currency=transfer.currency,
                destination=transfer.destination,
                operation=gate.operation,
                at_ms=self._clock(),
            ),
            dedupes=self._dedupes,
            deadline_ms=gate.deadline_ms if self.facts.honours_deadline else None,
        )

    async def _send_with(self, fault: Fault, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        await _pass(fault.before_gate)
        if fault.kind is FaultKind.NOT_SENT:
            raise NotSent("simulated: nothing was sent")
        gate()
        await _pass(fault.before_effect)
        if fault.kind is FaultKind.DECLINE:
            return await self._decline(transfer, reference, gate)
        receipt = await self._make(transfer, reference, gate)
        await _pass(fault.before_answer)
        if fault.kind is FaultKind.LOSE_ANSWER:
            raise OutcomeUnknown("simulated: the answer was lost")
        if fault.kind is FaultKind.RAISE_AFTER:
            raise SimulatedFault("simulated: an exception after the effect")
        return receipt

    async def _decline(self, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        if self.facts.binds_refusals:
            entry = await self._record(EntryKind.REFUSAL, transfer, reference, gate)
            if entry.kind is EntryKind.TRANSFER:
                return _receipt(entry)
        raise Declined("simulated: declined")


async def _pass(hold: Hold | None) -> None:
    if hold is not None:
        await hold.wait()


def _receipt(entry: Entry) -> Receipt:
    return Receipt(
        reference=entry.reference,
        amount=entry.amount,
        currency=entry.currency,
        destination=entry.destination,
        at=f"{_second(entry.at_ms // 1000)}{entry.at_ms % 1000:03d}Z",
    )


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    """A timestamp up to its milliseconds: half of the cost of a receipt, and the same for a whole second."""
    return timestamp(seconds * 1000).removesuffix("000Z")
