"""How a process of the swarm reaches the world: the store, the rail, and the power that it runs on."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from nonbis.core.messages import Record
from nonbis.core.payments import Receipt, Transfer
from nonbis.core.policy import RailFacts
from nonbis.errors import Declined, NotSent, OutcomeUnknown
from nonbis.ports import Found, FoundKind, Gate
from nonbis.stores.memory import MemoryStore
from tests.simulation.trouble import SETTLE_WINDOW_SECONDS, Odds

SENDING: contextvars.ContextVar[Record | None] = contextvars.ContextVar("sending", default=None)


class Surroundings(Protocol):
    """What a way to the world needs of the run that it is part of."""

    chance: random.Random
    odds: Odds
    store: MemoryStore
    name_of: dict[bytes, str]

    async def travels(self, power: Power) -> None: ...

    def note(self, what: str) -> None: ...

    def check_effect(self, name: str, record: Record) -> None: ...


class Power:
    """Whether a process may go on: it can be paused for a while, or be cut for good."""

    def __init__(self) -> None:
        self._on = asyncio.Event()
        self._on.set()
        self.cut = False
        self.pauses = 0

    def off(self) -> None:
        self.pauses += 1
        self._on.clear()

    def on(self) -> None:
        if not self.cut:
            self._on.set()

    def kill(self) -> None:
        self.cut = True
        self._on.clear()

    @property
    def runs(self) -> bool:
        return self._on.is_set()

    async def wait(self) -> None:
        await self._on.wait()


class ProcessStore:
    """The one store as one process reaches it: each call takes time on the way there and back."""

    def __init__(self, swarm: Surroundings, power: Power) -> None:
        self._swarm = swarm
        self._power = power
        self.key = swarm.store.key
        self.url, self.shared = swarm.store.url, True

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._swarm.store, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            await self._swarm.travels(self._power)
            try:
                return await method(*arguments, **named)
            finally:
                await self._swarm.travels(self._power)

        return call


class Effected(msgspec.Struct, frozen=True):
    """One transfer that really happened, and the attempt that it was of."""

    name: str
    reference: str
    attempt: int
    receipt: Receipt


class SwarmRail:
    """A rail whose messages go on without their sender, for at most half of the settle window."""

    def __init__(self, swarm: Surroundings) -> None:
        odds = swarm.odds
        self._swarm = swarm
        self.facts = RailFacts(
            name="swarm",
            settle_window_seconds=SETTLE_WINDOW_SECONDS,
            dedupes_for_seconds=100_000.0 if odds.dedupes else None,
            binds_refusals=odds.binds_refusals and odds.dedupes,
            finds=odds.finds,
        )
        self.effects: list[Effected] = []
        self.refused: set[str] = set()
        self.quiet = False
        self._messages: set[asyncio.Task[Receipt]] = set()

    async def send(self, power: Power, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        chance, odds = self._swarm.chance, self._swarm.odds
        await self._swarm.travels(power)
        if not self.quiet and chance.random() < odds.rail_not_sent:
            raise NotSent("connection refused")
        gate()
        record = SENDING.get()
        assert record is not None
        fate = "done" if self.quiet else self._fate(chance, odds)
        message = asyncio.get_running_loop().create_task(self._arrive(fate, transfer, reference, record))
        self._messages.add(message)
        message.add_done_callback(self._gone)
        receipt = await asyncio.shield(message)
        await self._swarm.travels(power)
        if fate == "hangs":
            await asyncio.Event().wait()
        if fate == "answer lost":
            raise chance.choice((OutcomeUnknown("reset"), TimeoutError()))
        if fate == "bug":
            raise KeyError("a bug of the rail's client")
        return receipt

    def _gone(self, message: asyncio.Task[Receipt]) -> None:
        self._messages.discard(message)
        if not message.cancelled():
            message.exception()

    @staticmethod
    def _fate(chance: random.Random, odds: Odds) -> str:
        for share, fate in (
            (odds.rail_declines, "declined"),
            (odds.rail_lost, chance.choice(("answer lost", "message lost"))),
            (odds.rail_slow, "slow"),
            (odds.rail_bug, "bug"),
            (odds.rail_hangs, "hangs"),
        ):
            if chance.random() < share:
                return fate
        return "done"

    async def _arrive(self, fate: str, transfer: Transfer, reference: str, record: Record) -> Receipt:
        chance = self._swarm.chance
        await asyncio.sleep(chance.uniform(4, SETTLE_WINDOW_SECONDS - 2) if fate == "slow" else 0.01)
        if fate == "message lost":
            raise OutcomeUnknown("time-out")
        known = self._known(reference)
        if known is not None:
            return known.receipt
        if fate == "declined" or (self.facts.binds_refusals and reference in self.refused):
            if self.facts.binds_refusals:
                self.refused.add(reference)
            raise Declined("no")
        return self._take_effect(transfer, reference, record)

    def _known(self, reference: str) -> Effected | None:
        if self.facts.dedupes_for_seconds is None:
            return None
        return next((done for done in self.effects if done.reference == reference), None)

    def _take_effect(self, transfer: Transfer, reference: str, record: Record) -> Receipt:
        receipt = Receipt(
            reference=reference,
            amount=transfer.amount,
            currency=transfer.currency,
            destination=transfer.destination,
            id=f"t{len(self.effects)}",
        )
        name = self._swarm.name_of[record.digest]
        self.effects.append(Effected(name, reference, record.attempt, receipt))
        self._swarm.note(f"effect {name} attempt {record.attempt} send {record.sends}")
        self._swarm.check_effect(name, record)
        return receipt

    async def find(self, power: Power, reference: str) -> Found:
        await self._swarm.travels(power)
        if not self.quiet and self._swarm.chance.random() < 0.2:
            raise OutcomeUnknown("no answer")
        done = next((done for done in self.effects if done.reference == reference), None)
        await self._swarm.travels(power)
        if done is not None:
            return Found(FoundKind.APPLIED, done.receipt)
        return Found(FoundKind.REFUSED if reference in self.refused else FoundKind.NOT_FOUND)


class ProcessRail:
    """The rail as one process reaches it."""

    def __init__(self, rail: SwarmRail, power: Power) -> None:
        self._rail = rail
        self._power = power
        self.facts = rail.facts

    async def send(self, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        return await self._rail.send(self._power, transfer, reference, gate)

    async def find(self, reference: str) -> Found:
        return await self._rail.find(self._power, reference)

    async def close(self) -> None:
        pass
