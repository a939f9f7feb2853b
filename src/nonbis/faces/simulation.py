"""Failures made on purpose, at three points of a payment, so that clients learn to ask again.

The process lives, so what is known is recorded all the same: only the reply is lost.
"""

from __future__ import annotations

from nonbis.core.messages import Record
from nonbis.core.payments import Outcome, Receipt
from nonbis.core.policy import RailFacts
from nonbis.engine.effects import Effect
from nonbis.errors import NotSent
from nonbis.ports import Entropy, Found, Gate

AFTER_CLAIM, BEFORE_SEND, AFTER_SEND = 1, 2, 3


class SimulatedFailures:
    """An effect that fails with the given probability at each point.

    Attributes:
        struck: the number of the point that struck, or 0.
    """

    __slots__ = ("_effect", "_entropy", "_probability", "struck")

    def __init__(self, effect: Effect, probability: float, entropy: Entropy) -> None:
        self._effect = effect
        self._probability = probability
        self._entropy = entropy
        self.struck = 0

    @property
    def facts(self) -> RailFacts:
        """Of the rail behind it."""
        return self._effect.facts

    def _strikes(self, point: int) -> bool:
        if self._entropy.uniform() < self._probability:
            self.struck = point
        return self.struck == point

    async def send(self, reference: str, gate: Gate) -> Receipt:
        """Send, unless a failure strikes before; one after the send takes only the reply away."""
        if self._strikes(AFTER_CLAIM):
            raise NotSent("Simulated failure 1")
        receipt = await self._effect.send(reference, _Gate(gate, self))
        self._strikes(AFTER_SEND)
        return receipt

    async def find(self, reference: str) -> Found:
        """Ask the rail behind it."""
        return await self._effect.find(reference)

    def differs(self, receipt: Receipt) -> str | None:
        """As the effect behind it says."""
        return self._effect.differs(receipt)

    def outcome(self, record: Record, receipt: Receipt | None) -> Outcome:
        """As the effect behind it says."""
        return self._effect.outcome(record, receipt)

    def check_before_send(self) -> None:
        """Raise NotSent if the failure before the send strikes."""
        if self._strikes(BEFORE_SEND):
            raise NotSent("Simulated failure 2")


class _Gate:
    """The engine's gate, with the failure before the send behind it."""

    def __init__(self, gate: Gate, failures: SimulatedFailures) -> None:
        self.operation = gate.operation
        self.deadline_ms = gate.deadline_ms
        self._gate = gate
        self._failures = failures

    def __call__(self) -> None:
        self._failures.check_before_send()
        self._gate()
