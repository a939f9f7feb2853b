"""Several engines over one store, with faults drawn by seed: what may happen, and what must never.

A process is an engine whose every way to the world, store and rail, can be paused or cut for good. Each
seed draws how likely each fault is at all, so that some runs know only one kind of trouble. After the
faults comes a time without any, at whose end every name has ended or stands on the operator's list.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from nonbis.core.messages import Kind, Record, State
from nonbis.core.names import Digester
from nonbis.core.payments import SCOPE, Receipt, Transfer, encode_transfer, transfer_fingerprint
from nonbis.core.policy import Policy, RailFacts
from nonbis.engine.attempts import Attempts
from nonbis.engine.effects import Effect, PaymentEffect, PaymentEffects
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Answer, Call, Standing
from nonbis.engine.sends import SendGate
from nonbis.engine.writing import Observation
from nonbis.errors import AnswerLost, Declined, EngineStopping, NotSent, OutcomeUnknown, StoreError
from nonbis.ports import Found, FoundKind, Gate
from nonbis.stores.memory import Fault, MemoryStore
from nonbis.upkeep.sweeper import Sweeper
from tests.simulation.clock import OffsetClock, SeededEntropy, SimulatedClock, cancel_all, run_virtually

SENDING: contextvars.ContextVar[Record | None] = contextvars.ContextVar("sending", default=None)
POLICY = Policy(
    send_deadline_seconds=10.0,
    effect_timeout_seconds=8.0,
    store_wait_seconds=3.0,
    attempts_max=6,
    resends_max=3,
    stop_seconds=5.0,
)
SETTLE_WINDOW_SECONDS = 16.0
CLOCK_JUMP_SECONDS = 5000.0
STORE_METHODS = ("claim", "advance", "note", "register", "beat", "lose", "end")


class Broken(AssertionError):
    """A promise was broken."""


class Odds(msgspec.Struct, frozen=True):
    """How likely each kind of trouble is in one run."""

    store_lost: float
    store_late: float
    store_away: float
    rail_declines: float
    rail_not_sent: float
    rail_lost: float
    rail_slow: float
    rail_bug: float
    pauses: float
    crashes: float
    outages: float
    clock_jumps: float
    dedupes: bool
    finds: bool
    binds_refusals: bool
    engines: int
    names: int
    calls: int
    think_seconds: float

    @classmethod
    def drawn(cls, chance: random.Random) -> Odds:
        def some(largest: float) -> float:
            return chance.uniform(0, largest) if chance.random() < 0.6 else 0.0

        return cls(
            store_lost=some(0.3),
            store_late=some(0.2),
            store_away=some(0.2),
            rail_declines=some(0.7),
            rail_not_sent=some(0.7),
            rail_lost=some(0.7),
            rail_slow=some(0.7),
            rail_bug=some(0.5),
            pauses=some(0.8),
            crashes=some(0.6),
            outages=some(0.4),
            clock_jumps=some(0.4),
            dedupes=chance.random() < 0.5,
            finds=chance.random() < 0.5,
            binds_refusals=chance.random() < 0.5,
            engines=chance.randint(2, 3),
            names=chance.randint(1, 4),
            calls=chance.choice((3, 5, 12)),
            think_seconds=chance.choice((0.1, 1.0, 3.0)),
        )


class Power:
    """Whether a process may go on: it can be paused for a while, or be cut for good."""

    def __init__(self) -> None:
        self._on = asyncio.Event()
        self._on.set()
        self.cut = False

    def off(self) -> None:
        self._on.clear()

    def on(self) -> None:
        if not self.cut:
            self._on.set()

    def kill(self) -> None:
        self.cut = True
        self._on.clear()

    async def wait(self) -> None:
        await self._on.wait()


class ProcessStore:
    """The one store as one process reaches it: each call takes time on the way there and back."""

    def __init__(self, swarm: Swarm, power: Power) -> None:
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

    def __init__(self, swarm: Swarm) -> None:
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
        if fate == "answer lost":
            raise OutcomeUnknown("reset")
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

    def check_answer(self, name: str, answer: Answer) -> None:
        record = answer.record
        done = [effect for effect in self.rail.effects if effect.name == name]
        if record.contradicted:
            self.broken(f"{name} is contradicted, though nobody forced anything")
        if answer.standing is not Standing.FINAL:
            return
        if answer.outcome is None:
            self.broken(f"{name}: an end without an outcome")
        if record.state is State.APPLIED:
            self.bodies[name].add(answer.outcome.body)
            if not done:
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
        troubles = [self._calls(number) for number in range(6)]
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

    def _call(self, name: str, amount: int = 100) -> tuple[Call, Transfer]:
        transfer = Transfer(amount=amount, currency="USD", destination=name)
        call = Call(
            tenant="",
            scope=SCOPE,
            digest=self.digests[name],
            fingerprint=transfer_fingerprint(transfer),
            request=encode_transfer(transfer),
        )
        return call, transfer

    async def _calls(self, number: int) -> None:
        for _ in range(self.chance.randint(2, self.odds.calls)):
            await asyncio.sleep(self.chance.expovariate(1 / self.odds.think_seconds))
            process = self.chance.choice(self.processes)
            name = self.chance.choice(self.names)
            await self._ask(process, name, wait_seconds=self.chance.choice((0.0, 2.0)))

    async def _ask(self, process: Process, name: str, *, wait_seconds: float) -> Answer | None:
        """One request; its client gives up when the process died under it."""
        call, transfer = self._call(name)
        effect = PaymentEffect(process.rail, transfer)
        try:
            async with asyncio.timeout(60):
                answer = await process.engine.run(call, effect, wait_seconds=wait_seconds)
        except AnswerLost:
            self._tell(name, "unknown")
        except (StoreError, EngineStopping):
            self._tell(name, "refused")
        except TimeoutError:
            if not process.power.cut:
                self.broken(f"{name}: a caller of a living process was never answered")
            self._tell(name, "no answer")
        else:
            self._tell(name, answer.record.state if answer.standing is Standing.FINAL else answer.standing)
            self.check_answer(name, answer)
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
                await asyncio.sleep(self.chance.uniform(0.5, 20))
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
        await asyncio.sleep(self.chance.uniform(1, 20))
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
        answer = await self._ask(self.processes[0], name, wait_seconds=10)
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
        try:
            await swarm.run()
        finally:
            await cancel_all()

    original = Attempts._send

    async def sending(self: Attempts, record: Record, effect: Effect, gate: SendGate) -> Observation:
        SENDING.set(record)
        return await original(self, record, effect, gate)

    Attempts._send = sending  # type: ignore[method-assign]
    logging.disable(logging.CRITICAL)
    try:
        run_virtually(work)
    except Exception:
        if not found:
            raise
    finally:
        logging.disable(logging.NOTSET)
        Attempts._send = original  # type: ignore[method-assign]
    if found:
        raise found[0]
    return swarms[0]
