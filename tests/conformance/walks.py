"""Random lives of operations: every row that ``decide`` can make, reached by random events."""

from __future__ import annotations

import random
from collections.abc import Iterator

from nonbis.core.ids import pack_id
from nonbis.core.machine import decide
from nonbis.core.messages import Decision, Event, Kind, Moment, Record

MACHINES = 3


class Walk:
    """One operation that random events happen to. ``decisions`` are those that write."""

    def __init__(self, chance: random.Random, digest: bytes, first_sequence: int = 1) -> None:
        self.chance = chance
        self.digest = digest
        self.record: Record | None = None
        self.sequence = first_sequence

    def stamp(self, machine: int) -> int:
        self.sequence += 1
        return pack_id(machine, self.sequence)

    def maybe(self) -> bool:
        return self.chance.random() < 0.5

    def event(self) -> Event:
        """An event that may or may not fit the row; reports are mostly of sends that exist."""
        chance, record = self.chance, self.record
        machine = chance.randint(1, MACHINES)
        kinds = (Kind.CLAIM, Kind.CLAIM, Kind.CLAIM, Kind.CANCEL) if record is None else tuple(Kind)
        kind = chance.choice(kinds)
        tombstone = kind is Kind.CANCEL
        attempt = 0 if record is None else record.attempt + chance.choice((0, 0, 0, 0, -1))
        sends = 0 if record is None else record.sends
        return Event(
            kind=kind,
            me=machine,
            stamp=self.stamp(machine),
            now=Moment(chance.randint(0, 10**13), chance.randint(0, 10**10)),
            digest=self.digest,
            fingerprint=None if tombstone else chance.randbytes(16),
            rail="" if tombstone else "bank",
            account="" if tombstone else "main",
            bounded=self.maybe(),
            attempt=attempt,
            send=chance.randint(max(1, sends - 2), max(1, sends)),
            seen=record.stamp if record and chance.random() < 0.9 else 1,
            owner_living=self.maybe(),
            same_rail=chance.random() < 0.9,
            binds_refusals=self.maybe(),
            receipt_differs=self.maybe(),
            overdue=self.maybe(),
            may_settle=self.maybe(),
            may_resend=sends < 60 and self.maybe(),
            may_retry=self.maybe(),
            forced=self.maybe(),
            fenced=chance.random() < 0.1,
        )

    def step(self) -> Decision | None:
        """The next decision that writes a row, or None if this event wrote none."""
        decision = decide(self.record, self.event())
        if decision.record is None:
            return None
        self.record = decision.record
        return decision


def lives(seed: int, count: int, steps: int) -> Iterator[list[Decision]]:
    """``count`` operations, each with the decisions of up to ``steps`` events."""
    chance = random.Random(seed)
    sequence = 0
    for number in range(count):
        walk = Walk(chance, number.to_bytes(16, "big"), sequence)
        yield [decision for decision in (walk.step() for _ in range(steps)) if decision is not None]
        sequence = walk.sequence
