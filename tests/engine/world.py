"""An engine in virtual time over a store and a rail that do what a test tells them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from nonbis.core.messages import Record
from nonbis.core.names import Digester
from nonbis.core.payments import SCOPE, Transfer, encode_transfer, transfer_fingerprint
from nonbis.core.policy import Policy
from nonbis.engine.effects import PaymentEffect, PaymentEffects
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Answer, Call
from nonbis.ports import JournalEntry, Stored
from nonbis.stores.memory import Fault, MemoryStore
from nonbis.upkeep.sweeper import Sweeper
from tests.simulation.clock import SeededEntropy, SimulatedClock, cancel_all, run_virtually
from tests.simulation.rail import ScriptedRail


def transfer_of(amount: int = 100, destination: str = "alice") -> Transfer:
    return Transfer(amount=amount, currency="USD", destination=destination)


class World:
    """One store and one rail, and as many engines as a test makes.

    Attributes:
        faults: what meets the next writes, by the store's method; "advance" and "claim" mostly.
        always: what meets all writes of a method while it stands there.
        written: the names of the store's write methods, in the order of their calls.
    """

    def __init__(self, clock: SimulatedClock, rail: ScriptedRail | None = None, **policy: Any) -> None:
        self.clock = clock
        self.rail = rail or ScriptedRail()
        self.policy = Policy(**policy)
        self.store = MemoryStore(entropy=SeededEntropy(1))
        self.store.fault = self._fault
        self.faults: dict[str, list[Fault]] = {}
        self.always: dict[str, Fault] = {}
        self.written: list[str] = []
        self.engines: list[Engine] = []
        self._digester = Digester(self.store.key, "", SCOPE)

    def _fault(self, name: str, arguments: tuple[Any, ...]) -> Fault:
        self.written.append(name)
        planned = self.faults.get(name)
        if planned:
            return planned.pop(0)
        return self.always.get(name, Fault.NONE)

    async def engine(self, *rails: ScriptedRail, **policy: Any) -> Engine:
        """Another process."""
        effects = PaymentEffects(*(rails or (self.rail,)))
        engine = Engine(
            self.store, effects, clock=self.clock, policy=Policy(**policy) if policy else self.policy
        )
        self.engines.append(engine)
        await engine.start()
        return engine

    def call(self, name: str = "a", transfer: Transfer | None = None) -> Call:
        transfer = transfer or transfer_of()
        return Call(
            tenant="",
            scope=SCOPE,
            digest=self._digester.digest(name),
            fingerprint=transfer_fingerprint(transfer),
            request=encode_transfer(transfer),
        )

    async def pay(
        self,
        engine: Engine,
        name: str = "a",
        *,
        transfer: Transfer | None = None,
        rail: ScriptedRail | None = None,
        wait_seconds: float | None = None,
    ) -> Answer:
        transfer = transfer or transfer_of()
        effect = PaymentEffect(rail or self.rail, transfer)
        return await engine.run(self.call(name, transfer), effect, wait_seconds=wait_seconds)

    async def stored(self, name: str = "a") -> Stored:
        stored = await self.store.find(self._digester.digest(name))
        assert stored is not None, f"there is no row for {name!r}"
        return stored

    async def row(self, name: str = "a") -> Record:
        return (await self.stored(name)).record

    async def exists(self, name: str = "a") -> bool:
        return await self.store.find(self._digester.digest(name)) is not None

    async def journal(self, name: str = "a") -> list[JournalEntry]:
        return await self.store.journal((await self.row(name)).id)

    async def kinds(self, name: str = "a") -> list[str]:
        return [entry.kind.value for entry in await self.journal(name)]

    async def listed(self) -> list[int]:
        return [record.id for record in await self.store.attention()]


def in_world(**options: Any) -> Callable[[Callable[[World], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Run a test in a world of its own, in virtual time. ``rail`` holds the facts of its rail."""
    facts = options.pop("rail", {})

    def decorate(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def work(clock: SimulatedClock) -> None:
            try:
                await asyncio.wait_for(test(World(clock, ScriptedRail(**facts), **options)), 1e6)
            finally:
                await cancel_all()

        @functools.wraps(test)
        def run() -> None:
            run_virtually(work)

        # pytest would look for a fixture named world
        vars(run).pop("__wrapped__")
        return run

    return decorate


async def until(question: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    """Let virtual time pass until it is so."""
    for _ in range(int(seconds * 20)):
        if await question():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come so")


async def rounds(sweeper: Sweeper, count: int, seconds: float = 2.0) -> None:
    """So many rounds, with a beat's time between them."""
    for _ in range(count):
        await sweeper.round()
        await asyncio.sleep(seconds)
