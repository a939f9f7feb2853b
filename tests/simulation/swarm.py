"""Several engines over one store, with faults drawn by seed: what may happen, and what must never.

A process is an engine whose every way to the world, store and rail, can be paused or cut for good. Each
seed draws how likely each fault is at all, so that some runs know only one kind of trouble. After the
faults comes a time without any, at whose end every name has ended or stands on the operator's list.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nonbis.core.messages import Kind, Record, State
from nonbis.core.names import Digester
from nonbis.core.payments import SCOPE, Transfer, encode_transfer, transfer_fingerprint
from nonbis.engine.attempts import Attempts
from nonbis.engine.effects import Effect, PaymentEffect, PaymentEffects
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Answer, Call, Standing
from nonbis.engine.sends import SendGate
from nonbis.engine.writing import Observation
from nonbis.errors import AnswerLost, EngineStopping, StoreError
from nonbis.stores.memory import Fault, MemoryStore
from nonbis.upkeep.sweeper import Sweeper
from tests.simulation.clock import OffsetClock, SeededEntropy, SimulatedClock, cancel_all, run_virtually
from tests.simulation.reach import SENDING, Power, ProcessRail, ProcessStore, SwarmRail
from tests.simulation.trouble import CLOCK_JUMP_SECONDS, POLICY, Broken, Odds

AMOUNT, OTHER_AMOUNT = 100, 999
CLIENT_TIMEOUT_SECONDS = 40.0
LONGEST_RUN_SECONDS = 10_000.0


class Process:
    """One engine with its sweeper, and the power it runs on."""

    def __init__(self, swarm: Swarm, clock: OffsetClock) -> None:
        self.clock = clock
        self.power = Power()
        self.rail = ProcessRail(swarm.rail, self.power)
        store: Any = ProcessStore(swarm, self.power)
        self.engine = Engine(store, PaymentEffects(self.rail), clock=clock, policy=POLICY)
        self.sweeper = Sweeper(self.engine)

    async def start(self) -> None:
        await self.engine.start()
        self.sweeper.start()

    async def stop(self) -> None:
        await self.sweeper.stop()
        await self.engine.stop()


class Swarm:
    """One run by one seed.

    Attributes:
        told: how often which answer was given.
        trace: everything that happened, in order; the same for the same seed.
    """

    def __init__(self, clock: SimulatedClock, seed: int) -> None:
        self.clock = clock
        self.seed = seed
        self.chance = random.Random(seed)
        self.odds = Odds.drawn(self.chance)
        self.store = MemoryStore(entropy=SeededEntropy(seed))
        self.store.fault = self._fault
        self.rail = SwarmRail(self)
        self.quiet = False
        self.outage: Fault | None = None
        self.told: Counter[str] = Counter()
        self.trace: list[str] = []
        self.processes: list[Process] = []
        self.dead: list[Process] = []
        digester = Digester(self.store.key, "", SCOPE)
        self.names = [f"n{number}" for number in range(self.odds.names)]
        self.digests = {name: digester.digest(name) for name in self.names}
        self.name_of = {digest: name for name, digest in self.digests.items()}
        self.bodies: dict[str, set[bytes]] = {name: set() for name in self.names}
        self.failed: dict[str, int] = dict.fromkeys(self.names, 0)
        self.ids: set[int] = set()

    def note(self, what: str) -> None:
        self.trace.append(f"{self.clock.monotonic():.3f} {what}")

    def fingerprint(self) -> str:
        """Of the whole run: equal for equal seeds."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()

    async def travels(self, power: Power) -> None:
        await power.wait()
        if not self.quiet:
            await asyncio.sleep(self.chance.choice((0.0, 0.001, 0.01, 0.05)))
            await power.wait()

    def _fault(self, name: str, arguments: tuple[Any, ...]) -> Fault:
        if self.quiet:
            return Fault.NONE
        if self.outage is not None:
            return self.outage
        draw, odds = self.chance.random(), self.odds
        if draw < odds.store_lost:
            return self.chance.choice((Fault.DONE_ANSWER_LOST, Fault.NOT_DONE_ANSWER_LOST))
        if draw < odds.store_lost + odds.store_late:
            return Fault.HELD_BACK if name in ("claim", "advance") else Fault.NOT_DONE_ANSWER_LOST
        return Fault.UNAVAILABLE if draw < odds.store_lost + odds.store_late + odds.store_away else Fault.NONE

    # -- what must hold

    def check_effect(self, name: str, record: Record) -> None:
        """At most one effect per name, and none for an attempt that was told as failed."""
        if sum(done.name == name for done in self.rail.effects) > 1:
            self.broken(f"{name} took effect twice")
        if record.attempt <= self.failed[name]:
            self.broken(f"{name}: attempt {record.attempt} took effect after it was told as failed")

    def check_answer(self, name: str, call: Call, transfer: Transfer, answer: Answer) -> None:
        """Every answer agrees with the rail's books and with every other answer under this name."""
        record = answer.record
        if (answer.standing is Standing.MISMATCH) != (record.fingerprint != call.fingerprint):
            self.broken(f"{name}: another request's answer, or refused as another request though it is not")
        done = [effect for effect in self.rail.effects if effect.name == name]
        if record.contradicted:
            self.broken(f"{name} is contradicted, though nobody forced anything")
        if answer.standing is not Standing.FINAL:
            return
        if answer.outcome is None:
            self.broken(f"{name}: an end without an outcome")
        if record.state is State.APPLIED:
            self.bodies[name].add(answer.outcome.body)
            if [effect.receipt.amount for effect in done] != [transfer.amount]:
                self.broken(f"{name} is told as applied and never happened")
            if len(self.bodies[name]) > 1:
                self.broken(f"{name}: two different final answers")
        else:
            self.failed[name] = max(self.failed[name], record.attempt)
            if any(effect.attempt <= record.attempt for effect in done):
                self.broken(f"{name}: attempt {record.attempt} is told as failed and took effect")

    def broken(self, why: str) -> None:
        raise_later(Broken(f"seed {self.seed}: {why}\n{self.odds}\n" + "\n".join(self.trace[-60:])))

    # -- the run

    async def run(self) -> None:
        for _ in range(self.odds.engines):
            await self._new_process()
        troubles = [self._calls() for _ in range(6)]
        await asyncio.gather(*troubles, self._powers(), self._late_writes(), self._people())
        await self._heal()

    async def _new_process(self) -> None:
        process = Process(self, OffsetClock(self.clock))
        if self.chance.random() < self.odds.clock_jumps:
            process.clock.wrong_by_seconds = self.chance.uniform(-3, 3)
        for _ in range(20):
            try:
                await process.start()
            except StoreError:
                continue
            self.processes.append(process)
            return

    def _call(self, name: str, amount: int) -> tuple[Call, Transfer]:
        transfer = Transfer(amount=amount, currency="USD", destination=name)
        call = Call(
            tenant="",
            scope=SCOPE,
            digest=self.digests[name],
            fingerprint=transfer_fingerprint(transfer),
            request=encode_transfer(transfer),
        )
        return call, transfer

    async def _calls(self) -> None:
        for _ in range(self.chance.randint(2, self.odds.calls)):
            await asyncio.sleep(self.chance.expovariate(1 / self.odds.think_seconds))
            name = self.chance.choice(self.names)
            wait_seconds = self.chance.choice((0.0, 2.0))
            answer = await self._ask(self.chance.choice(self.processes), name, wait_seconds=wait_seconds)
            if answer is not None and answer.record.state is State.FAILED and self.chance.random() < 0.7:
                await self._ask(self.chance.choice(self.processes), name, wait_seconds=wait_seconds)

    async def _ask(
        self, process: Process, name: str, *, wait_seconds: float, amount: int | None = None
    ) -> Answer | None:
        """One request; its client gives up when the process died or was paused under it."""
        call, transfer = self._call(name, amount or self.chance.choice((AMOUNT,) * 9 + (OTHER_AMOUNT,)))
        effect = PaymentEffect(process.rail, transfer)
        ran, pauses = process.power.runs, process.power.pauses
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_SECONDS):
                answer = await process.engine.run(call, effect, wait_seconds=wait_seconds)
        except AnswerLost:
            self._tell(name, "unknown")
        except (StoreError, EngineStopping):
            self._tell(name, "refused")
        except TimeoutError:
            if ran and not process.power.cut and process.power.pauses == pauses:
                self.broken(f"{name}: a caller of a running process was not answered in time")
            self._tell(name, "no answer")
        else:
            self._tell(name, answer.record.state if answer.standing is Standing.FINAL else answer.standing)
            self.check_answer(name, call, transfer, answer)
            return answer
        return None

    def _tell(self, name: str, what: str) -> None:
        self.told[str(what)] += 1
        self.note(f"told {name} {what}")

    async def _powers(self) -> None:
        for _ in range(8):
            await asyncio.sleep(self.chance.uniform(1, 5))
            if self.chance.random() < self.odds.pauses:
                power = self.chance.choice(self.processes).power
                self.note("pause")
                power.off()
                await asyncio.sleep(self.chance.uniform(0.5, self.odds.pause_seconds))
                power.on()
            if self.chance.random() < self.odds.clock_jumps:
                self.note("clock jump")
                self.chance.choice(self.processes).clock.wrong_by_seconds = self.chance.uniform(
                    -CLOCK_JUMP_SECONDS, CLOCK_JUMP_SECONDS
                )
            if self.chance.random() < self.odds.outages:
                await self._outage()
            if self.chance.random() < self.odds.crashes:
                await self._crash(self.chance.choice(self.processes))

    async def _outage(self) -> None:
        """The store is away for everybody; whether a write was done is known or not."""
        self.note("outage")
        self.outage = self.chance.choice(
            (Fault.UNAVAILABLE, Fault.NOT_DONE_ANSWER_LOST, Fault.DONE_ANSWER_LOST)
        )
        await asyncio.sleep(self.chance.uniform(1, 60))
        self.outage = None

    async def _crash(self, process: Process) -> None:
        self.note("crash")
        process.power.kill()
        self.processes.remove(process)
        self.dead.append(process)
        current = process.engine.presence.incarnation
        if current is not None and self.chance.random() < 0.5:
            self.store.vanish(current.machine)
        await self._new_process()

    async def _late_writes(self) -> None:
        for _ in range(10):
            await asyncio.sleep(self.chance.uniform(1, 5))
            self.store.release()

    async def _people(self) -> None:
        """An operator who waits for the settle window, and says what the rail's books say then."""
        for _ in range(3):
            await asyncio.sleep(self.chance.uniform(5, 40))
            for record in await self.store.attention():
                if record.state is State.IN_DOUBT and self.chance.random() < 0.5:
                    await self._person(record)

    async def _person(self, record: Record) -> None:
        process = self.chance.choice(self.processes)
        stored = await self.store.show(record.id)
        assert stored is not None
        name = self.name_of[record.digest]
        done = any(effect.name == name for effect in self.rail.effects)
        observation = Observation(
            kind=Kind.PERSON_APPLIED if done else Kind.PERSON_FAILED,
            seen=record.stamp,
            facts=self.rail.facts,
            who="operator",
            because="the rail's books",
        )
        try:
            async with asyncio.timeout(30):
                applied = await process.engine.writer.apply(
                    record, observation, process.engine.describe(stored)
                )
            self.note(f"person {name} {observation.kind} {applied.won}")
        except (StoreError, EngineStopping, TimeoutError):
            self.note(f"person {name} had no answer")

    async def _heal(self) -> None:
        self.note("heal")
        self.quiet = self.rail.quiet = True
        self.store.release()
        for process in self.processes:
            process.power.on()
            process.clock.wrong_by_seconds = 0.0
        # what a clock that was hours ahead has written must have passed by the right one too
        self.clock.jump(2 * CLOCK_JUMP_SECONDS)
        await asyncio.sleep(160)
        for name in self.names:
            await self._healed(name)
        for process in self.processes:
            await process.stop()
        await self._all_machines_ended()

    async def _healed(self, name: str) -> None:
        stored = await self.store.find(self.digests[name])
        if stored is not None:
            listed = {record.id for record in await self.store.attention()}
            if stored.record.state in (State.STARTED, State.ACCEPTED):
                self.broken(f"{name} is {stored.record.state} for ever")
            if stored.record.state is State.IN_DOUBT and stored.record.id not in listed:
                self.broken(f"{name} is in doubt and on no list")
            if stored.record.state is State.IN_DOUBT and self.odds.finds:
                self.broken(f"{name} is in doubt for ever though the rail can be asked")
        answer = await self._ask(self.processes[0], name, wait_seconds=10, amount=AMOUNT)
        if answer is not None and answer.standing is Standing.MISMATCH:
            answer = await self._ask(self.processes[0], name, wait_seconds=10, amount=OTHER_AMOUNT)
        if answer is None:
            self.broken(f"{name} has no answer though all is well")
        elif answer.standing is Standing.IN_DOUBT:
            self.told["listed"] += 1

    async def _all_machines_ended(self) -> None:
        living = [row.id for row in await self.store.machines(living=True)]
        if living:
            self.broken(f"machines {living} are living after all have stopped")


_FIRST: contextvars.ContextVar[list[Broken]] = contextvars.ContextVar("first")


def raise_later(error: Broken) -> None:
    """A broken promise ends the run, in whichever task it was seen."""
    _FIRST.get().append(error)
    raise error


@contextlib.contextmanager
def _knowing_who_sends() -> Iterator[None]:
    """Let the rail know which attempt a send is of."""
    original = Attempts._send

    async def sending(self: Attempts, record: Record, effect: Effect, gate: SendGate) -> Observation:
        SENDING.set(record)
        return await original(self, record, effect, gate)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Attempts, "_send", sending)
        yield


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """The engine's warnings of thousands of faults are of no use to anybody."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def simulate(seed: int, plant: Callable[[Swarm], None] | None = None) -> Swarm:
    """One run. Raises Broken with the end of its trace if a promise was broken."""
    found: list[Broken] = []
    swarms: list[Swarm] = []

    async def work(clock: SimulatedClock) -> None:
        _FIRST.set(found)
        swarm = Swarm(clock, seed)
        swarms.append(swarm)
        if plant is not None:
            plant(swarm)
        running = asyncio.create_task(swarm.run())
        done, _ = await asyncio.wait({running}, timeout=LONGEST_RUN_SECONDS)
        await cancel_all()
        if not done:
            swarm.broken("the run never came to an end")
        await running

    with _knowing_who_sends(), _silence():
        try:
            run_virtually(work)
        except Exception:
            if not found:
                raise
    if found:
        raise found[0]
    return swarms[0]
