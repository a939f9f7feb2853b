"""What the engine is asked to have done: an effect on a rail, and what is kept of its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nonbis.core.messages import Record
from nonbis.core.payments import Outcome, Receipt, Transfer, decode_transfer, payment_outcome
from nonbis.core.policy import RailFacts
from nonbis.ports import Found, Gate, Rail, Stored


class Effect(Protocol):
    """One operation's effect."""

    @property
    def facts(self) -> RailFacts:
        """Of the rail that it goes over."""

    async def send(self, reference: str, gate: Gate) -> Receipt:
        """Have it done once; see ports.Rail.send."""

    async def find(self, reference: str) -> Found:
        """Ask what became of it; see ports.Rail.find."""

    def differs(self, receipt: Receipt) -> str | None:
        """The member in which a receipt is for another request, or None."""

    def outcome(self, record: Record, receipt: Receipt | None) -> Outcome:
        """What is kept once the operation has ended in the state that ``record`` tells."""


class PaymentEffect:
    """A transfer over a rail."""

    __slots__ = ("_rail", "_transfer")

    def __init__(self, rail: Rail, transfer: Transfer) -> None:
        self._rail = rail
        self._transfer = transfer

    @property
    def facts(self) -> RailFacts:
        """The rail's own."""
        return self._rail.facts

    async def send(self, reference: str, gate: Gate) -> Receipt:
        """Hand the transfer to the rail."""
        return await self._rail.send(self._transfer, reference, gate)

    async def find(self, reference: str) -> Found:
        """Ask the rail."""
        return await self._rail.find(reference)

    def differs(self, receipt: Receipt) -> str | None:
        """Compare amount, currency and destination where the receipt repeats them."""
        return receipt.contradicts(self._transfer)

    def outcome(self, record: Record, receipt: Receipt | None) -> Outcome:
        """The receipt and the reply's body."""
        return payment_outcome(record, self._transfer, receipt)


class Effects(Protocol):
    """Makes the effect of a stored operation again: for asking, resending and settling."""

    @property
    def facts(self) -> tuple[RailFacts, ...]:
        """Of all rails at hand."""

    def of(self, stored: Stored) -> Effect | None:
        """The effect, or None if no rail of the row's name and account is at hand."""

    def outcome(self, stored: Stored, record: Record, receipt: Receipt | None) -> Outcome:
        """What is kept of an end that no rail at hand is needed for."""


class PaymentEffects:
    """Payments over the rails that this process has."""

    def __init__(self, *rails: Rail) -> None:
        self._rails: Mapping[tuple[str, str], Rail] = {
            (rail.facts.name, rail.facts.account): rail for rail in rails
        }

    @property
    def facts(self) -> tuple[RailFacts, ...]:
        """Of all rails at hand."""
        return tuple(rail.facts for rail in self._rails.values())

    def of(self, stored: Stored) -> Effect | None:
        """The stored transfer over the rail that its row names."""
        rail = self._rails.get((stored.record.rail, stored.record.account))
        return None if rail is None else PaymentEffect(rail, decode_transfer(stored.request))

    def outcome(self, stored: Stored, record: Record, receipt: Receipt | None) -> Outcome:
        """The reply's body, from the stored transfer."""
        return payment_outcome(record, decode_transfer(stored.request), receipt)

    async def close(self) -> None:
        """Close every rail."""
        for rail in self._rails.values():
            await rail.close()
