"""What runs beside the calls: beats, lost machines, rows that nobody is at work on, and settling.

Loss is a standing condition and not an event: any accepted or started row whose owner is not living is
abandoned or in doubt, whenever it is seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from nonbis.core.ids import format_id, machine_of
from nonbis.core.messages import Kind, Record, State
from nonbis.engine.engine import Engine
from nonbis.engine.writing import Observation
from nonbis.errors import EngineStopping, StoreError, StoreUnavailable
from nonbis.ports import MachineRow, MachineState
from nonbis.upkeep.settling import Settler
from nonbis.upkeep.watching import DeadRounds, Observer

_log = logging.getLogger("nonbis.sweeper")

PAGE = 1000
OVERDUE_EVERY_ROUNDS = 8
_OPEN = (State.ACCEPTED, State.STARTED)


class Sweeper:
    """One per serving process; every process sweeps, the stamp decides who wins.

    Attributes:
        last_round_failed: why the last beat failed, or None if it did not.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._settler = Settler(engine)
        self._observer = Observer(engine.policy.lost_after_seconds)
        self._dead = DeadRounds(engine.policy.beat_seconds)
        self._oldest: int | None = None
        self._rounds = 0
        self._beats = 0
        self._stopping = asyncio.Event()
        self._knows_dead = False
        self._tasks: list[asyncio.Task[None]] = []
        self.last_round_failed: str | None = None
        engine.writer.on_doubt = self._settler.consider

    def start(self) -> None:
        """Begin with a round at once: what an earlier process left is found at start.

        Beats have a task of their own: however long a sweep takes, this machine is not lost over it.
        """
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._repeat(work)) for work in (self.beat, self.sweep)]

    async def stop(self) -> None:
        """Finish the round that is under way, at most as long as one waits for a store."""
        self._stopping.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._engine.policy.store_wait_seconds)
            for task in late:
                task.cancel()

    async def _repeat(self, work: Callable[[], Awaitable[None]]) -> None:
        while not self._stopping.is_set():
            try:
                await work()
            except StoreError as error:
                _log.warning("the store did not take part in this round: %s", error)
            except EngineStopping:
                return
            except Exception:  # noqa: BLE001  (a fault in one round must not end all later ones)
                _log.exception("a round failed")
            try:
                await asyncio.wait_for(self._stopping.wait(), self._engine.policy.beat_seconds)
            except TimeoutError:
                pass

    async def round(self) -> None:
        """One beat and one look at everything that may need a hand."""
        await self.beat()
        await self.sweep()

    async def beat(self) -> None:
        """Count one beat, and look whose count stands still. Raises StoreError."""
        self._beats += 1
        try:
            await self._engine.keep_to_agreement()
            await self._beat()
            await self._watch_others()
        except BaseException as error:
            self.last_round_failed = str(error) or type(error).__name__
            self._observer.forget_all()
            raise
        self.last_round_failed = None

    async def sweep(self) -> None:
        """Look at every row that may need a hand. Raises StoreError."""
        self._rounds += 1
        if not self._knows_dead or self._rounds % OVERDUE_EVERY_ROUNDS == 0:
            await self._read_dead()
        await self._sweep_dead()
        await self._own_rows()
        await self._rows_that_need_attention()
        if self._rounds % OVERDUE_EVERY_ROUNDS == 0:
            await self._overdue()

    # -- beats and losses ----------------------------------------------------------------------------

    async def _beat(self) -> None:
        presence = self._engine.presence
        before = presence.incarnation
        if before is None:
            self._oldest = None
            self._observer.forget_all()
            # others make it grow meanwhile, and moments that run ahead of it would open windows too late
            self._engine.time.saw_age(await self._engine.store.age_ms())
            return
        next_id = before.next_id
        known, claiming = self._engine.ids_at_work()
        mine = [number for number in (*known, *claiming) if machine_of(number) == before.machine]
        left = await self._engine.store.open_of(before.machine, self._oldest or 0)
        oldest = min([next_id, *mine, *(record.id for record in left)])
        if await presence.beat(oldest, min([next_id, *claiming])):
            self._oldest = oldest
        else:
            self._oldest = None
            self._observer.forget_all()

    async def _watch_others(self) -> None:
        """Declare those lost whose lock is free, or whose count has stood still for too long."""
        engine = self._engine
        for row in await engine.store.vanished():
            await self._lose(row)
        asked = engine.time.monotonic()
        for row in await engine.presence.refresh_living():
            self._dead.add(row)
        read = engine.time.monotonic()
        me = engine.presence.incarnation
        others = [row for row in engine.presence.living.values() if me is None or row.id != me.machine]
        if me is None:
            if others and self._beats > 1:
                await engine.presence.present()
            return
        for row in self._observer.standing_still(others, asked, read):
            await self._lose(row)

    async def _read_dead(self) -> None:
        """All machines that are gone, those that came and went between two looks included."""
        for row in await self._engine.presence.refresh():
            if row.state is not MachineState.LIVING:
                self._dead.add(row)
        self._knows_dead = True

    async def _lose(self, row: MachineRow) -> None:
        if await self._engine.store.lose(row.id, row.beat, at_ms=self._engine.time.wall_ms()):
            _log.warning("machine %d on %s is lost", row.id, row.node)
            self._engine.presence.living.pop(row.id, None)
            self._dead.add(row)

    async def _sweep_dead(self) -> None:
        for row in self._dead.due(self._engine.time.monotonic()):
            for record in await self._engine.store.open_of(row.id, row.oldest_open):
                await self._owner_lost(record)

    async def _owner_lost(self, record: Record) -> None:
        if not await self._engine.presence.is_living(record.owner):
            await self._apply(record, Observation(kind=Kind.OWNER_LOST, because="its machine is not living"))

    # -- rows ----------------------------------------------------------------------------------------

    async def _own_rows(self) -> None:
        """Compare my own open rows with memory: one that is not known here was never sent by me."""
        me = self._engine.presence.incarnation
        if me is None or self._oldest is None:
            return
        for record in await self._engine.store.open_of(me.machine, self._oldest):
            await self._forgotten(record)

    async def _forgotten(self, record: Record) -> None:
        """A row of mine that nobody here is at work on.

        Where it bears the stamp of a write that was given up, it surely was never sent. Another one
        may be that of a clone with my number, which may be sending right now: it goes in doubt.
        """
        engine = self._engine
        me = engine.presence.incarnation
        if me is None or record.owner != me.machine or engine.knows(record):
            return
        if engine.writer.gave_up(record.stamp):
            observation = Observation(kind=Kind.OWNER_FORGOT, because="its write was given up; never sent")
        else:
            observation = Observation(
                kind=Kind.REPORT_UNKNOWN,
                attempt=record.attempt,
                send=record.sends,
                because="its owner does not know it",
            )
        await self._apply(record, observation)

    async def _rows_that_need_attention(self) -> None:
        to_settle = set()
        async for record in self._attention():
            if record.state in _OPEN:
                await self._owner_lost(record)
                await self._forgotten(record)
                await self._if_overdue(record)
            elif record.state is State.IN_DOUBT or await self._is_to_be_verified(record):
                to_settle.add(record.id)
                self._settler.consider(record)
        self._settler.keep_only(to_settle)

    async def _is_to_be_verified(self, record: Record) -> bool:
        """What a person settled as failed is asked about once more when its settle window has passed."""
        return await self._engine.writer.would_write(
            record, Observation(kind=Kind.FOUND_NOTHING, seen=record.stamp)
        )

    async def _overdue(self) -> None:
        """Started rows past send deadline and effect time-out, whoever owns them."""
        for row in list(self._engine.presence.living.values()):
            for record in await self._engine.store.open_of(row.id, row.oldest_open):
                await self._if_overdue(record)

    async def _if_overdue(self, record: Record) -> None:
        observation = Observation(kind=Kind.OVERDUE, because="past its send deadline and time-out")
        if record.state is State.STARTED and await self._engine.writer.would_write(record, observation):
            await self._apply(record, observation)

    async def _apply(self, record: Record, observation: Observation) -> None:
        stored = await self._engine.store.find(record.digest)
        if stored is None:
            return
        try:
            await self._engine.writer.apply(record, observation, self._engine.describe(stored))
        except (StoreUnavailable, EngineStopping):
            raise
        except Exception:  # noqa: BLE001  (one row that can't be written must not keep all others waiting)
            _log.exception("%s stays as it is for now", format_id(record.id))

    async def _attention(self) -> AsyncIterator[Record]:
        after = 0
        while True:
            page = await self._engine.store.attention(after=after, limit=PAGE)
            for record in page:
                yield record
            if len(page) < PAGE:
                return
            after = page[-1].id
