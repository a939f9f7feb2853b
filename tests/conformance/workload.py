"""Claims and advances for tests, made by ``decide`` as the engine makes them."""

from __future__ import annotations

import msgspec

from nonbis.core.ids import machine_of, pack_id
from nonbis.core.machine import decide, needs_attention
from nonbis.core.messages import Event, JournalKind, Kind, Moment, Record
from nonbis.ports import Advance, Advanced, Claim, JournalEntry, Store, Verdict

replace = msgspec.structs.replace
FINGERPRINT = b"f" * 16


def name(number: int) -> bytes:
    """The digest of the name with this number; the order of names is that of numbers."""
    return number.to_bytes(16, "big")


class Machine:
    """A registered machine that draws stamps and decides."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sequence = 0

    def stamp(self) -> int:
        self.sequence += 1
        return pack_id(self.number, self.sequence)

    def claim(self, digest: bytes, *, tenant: str = "t", scope: str = "s", **facts: object) -> Claim:
        event = Event(
            kind=Kind.CLAIM,
            me=self.number,
            stamp=self.stamp(),
            now=Moment(1_700_000_000_000, 5_000),
            digest=digest,
            fingerprint=FINGERPRINT,
            rail="bank",
            account="main",
            **facts,
        )
        decision = decide(None, event)
        assert decision.record is not None
        return Claim(
            record=decision.record,
            tenant=tenant,
            scope=scope,
            request=b"request of " + digest,
            attention=needs_attention(decision.record),
            journal=entry_of(decision.record, decision.journal),
        )

    def advance(
        self, record: Record, kind: Kind, *, outcome: bytes | None = None, **facts: object
    ) -> Advance:
        facts.setdefault("attempt", record.attempt)
        facts.setdefault("send", record.sends)
        facts.setdefault("seen", record.stamp)
        event = Event(
            kind=kind, me=self.number, stamp=self.stamp(), now=Moment(1_700_000_001_000, 6_000), **facts
        )
        decision = decide(record, event)
        assert decision.record is not None, f"{kind} does not fit {record.state}"
        return Advance(
            record=decision.record,
            expected=record.stamp,
            outcome=outcome,
            attention=needs_attention(decision.record),
            journal=entry_of(decision.record, decision.journal),
        )


def entry_of(record: Record, kind: JournalKind | None) -> JournalEntry | None:
    """The journal entry of a decision, or None where nothing out of the ordinary happened."""
    if kind is None:
        return None
    return JournalEntry(
        id=record.id,
        kind=kind,
        machine=machine_of(record.stamp),
        stamp=record.stamp,
        at_ms=record.changed.wall_ms,
        state=record.state,
        reason="" if record.reason is None else record.reason.value,
        attempt=record.attempt,
        rule="a rule",
    )


async def new_machine(store: Store, node: str = "here") -> Machine:
    """A machine of its own for a test."""
    row = await store.register(node=node, pid=100, kind="test", at_ms=7)
    return Machine(row.id)


async def claimed(store: Store, machine: Machine, number: int, **facts: object) -> Record:
    """The record of a fresh name, durably claimed."""
    claim = machine.claim(name(number), **facts)
    [answer] = await store.claim([claim])
    assert answer.existing is None
    return claim.record


async def advanced(store: Store, advance: Advance) -> Record:
    """The record after an advance that must win."""
    answers = await store.advance([advance])
    assert answers == [Advanced(Verdict.WON, advance.record)]
    return advance.record
