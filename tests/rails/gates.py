"""Gates for tests of rails."""

from __future__ import annotations

import time

from nonbis.core.payments import Transfer
from nonbis.errors import NotSent

COFFEE = Transfer(amount=350, currency="EUR", destination="roastery")


class CountingGate:
    """Lets everything through and counts."""

    def __init__(self, *, seconds_left: float = 30.0, operation: str = "7:1", shut: bool = False) -> None:
        self.operation = operation
        self.deadline_ms = int((time.time() + seconds_left) * 1000)
        self.shut = shut
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.shut:
            raise NotSent("the gate is shut")
