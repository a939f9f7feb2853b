"""Stores with known operations in them, made through the engine with a rail that does as it is told."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.core.messages import Record
from nonbis.core.names import Digester
from nonbis.core.payments import SCOPE, Receipt, Transfer, encode_transfer, transfer_fingerprint
from nonbis.core.policy import Policy, RailFacts
from nonbis.engine.effects import PaymentEffect, PaymentEffects
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Answer, Call
from nonbis.errors import Declined, NotSent, OutcomeUnknown
from nonbis.ports import Clock, Found, FoundKind, Gate, Store
from nonbis.stores.memory import MemoryStore
from nonbis.stores.sqlite import SqliteStore

PAID, LOST, NO, AWAY = "paid", "lost", "no", "away"


def run(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a coroutine function as a test."""

    @functools.wraps(test)
    def in_a_loop(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))  # type: ignore[arg-type]  # it is a coroutine

    return in_a_loop


class ToldRail:
    """Answers as it is told, and counts what was sent."""

    def __init__(self, name: str = "double", settle_window_seconds: float = 900.0) -> None:
        self.facts = RailFacts(name=name, settle_window_seconds=settle_window_seconds)
        self.answers: list[str] = []
        self.sent: list[str] = []
        self.going_on = asyncio.Event()

    async def send(self, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        answer = self.answers.pop(0) if self.answers else PAID
        if answer == AWAY:
            raise NotSent("nobody listens")
        gate()
        self.sent.append(reference)
        if answer == "hang":
            await self.going_on.wait()
        if answer == NO:
            raise Declined("no cover")
        if answer == LOST:
            raise OutcomeUnknown("the connection was reset")
        return Receipt(reference=reference, amount=transfer.amount, id=f"t{len(self.sent)}")

    async def find(self, reference: str) -> Found:
        return Found(FoundKind.NOT_FOUND)

    async def close(self) -> None: ...


class HandClock:
    """Moves only by hand."""

    def __init__(self, wall_ms: int = 1_800_000_000_000) -> None:
        self.wall = wall_ms
        self.elapsed = 1000.0

    def wall_ms(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self.elapsed

    def boottime(self) -> float:
        return self.elapsed

    def forward(self, seconds: float) -> None:
        self.wall += int(seconds * 1000)
        self.elapsed += seconds


class Bench:
    """A store, a clock and a rail, and as many engines as a test wants."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.clock = clock
        self.rail = ToldRail()
        self.engines: list[Engine] = []

    @classmethod
    def in_memory(cls) -> Bench:
        return cls(MemoryStore(entropy=SystemEntropy()), HandClock())

    @classmethod
    async def in_file(cls, path: Path) -> Bench:
        clock = SystemClock()
        return cls(await SqliteStore.open(path, clock=clock, entropy=SystemEntropy()), clock)

    @property
    def hand(self) -> HandClock:
        assert isinstance(self.clock, HandClock)
        return self.clock

    @property
    def memory(self) -> MemoryStore:
        assert isinstance(self.store, MemoryStore)
        return self.store

    async def engine(self, kind: str = "serve", **settings: Any) -> Engine:
        """A started engine of its own machine; one of kind ``cli`` has no rail."""
        effects = PaymentEffects() if kind == "cli" else PaymentEffects(self.rail)
        engine = Engine(self.store, effects, clock=self.clock, policy=Policy(**settings), kind=kind)
        await engine.start()
        self.engines.append(engine)
        return engine

    async def pay(self, engine: Engine, name: str, answer: str = PAID, **members: Any) -> Answer:
        """One payment whose rail answers so."""
        self.rail.answers = [answer]
        return await engine.run(*self.call(name, **members))

    def call(self, name: str, **members: Any) -> tuple[Call, PaymentEffect]:
        """What a face would make of a post."""
        given = {"amount": 1250, "currency": "EUR", "destination": f"to-{name}"} | members
        transfer = Transfer(**given)
        call = Call(
            tenant="",
            scope=SCOPE,
            digest=Digester(self.store.key, "", SCOPE).digest(name),
            fingerprint=transfer_fingerprint(transfer),
            request=encode_transfer(transfer),
        )
        return call, PaymentEffect(self.rail, transfer)

    async def hang(self, engine: Engine, name: str) -> Record:
        """A payment whose send is under way and stays so."""
        self.rail.answers = ["hang"]
        sent = len(self.rail.sent)
        task = asyncio.create_task(engine.run(*self.call(name)))
        while len(self.rail.sent) == sent:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await self.row(name)

    async def row(self, name: str) -> Record:
        """The row of a name."""
        stored = await self.store.find(self.call(name)[0].digest)
        assert stored is not None
        return stored.record

    async def later(self, engine: Engine, seconds: float) -> None:
        """Time passes on every clock and in the store."""
        self.hand.forward(seconds)
        assert await engine.presence.beat(None, None)

    async def close(self) -> None:
        """Let go of everything as a crash would: nobody ends a machine, what hangs reports nothing."""
        await self.store.close()
        for engine in self.engines:
            await engine.tasks.cancel()
