"""This process among the machines: its number, its beats, and who else is living."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable

from nonbis.core.policy import Policy
from nonbis.engine.identity import Incarnation
from nonbis.engine.timekeeping import Timekeeper
from nonbis.errors import AnswerLost, EngineStopping, MachineLost, StoreUnavailable
from nonbis.ports import MachineRow, Store

_log = logging.getLogger("nonbis.presence")


class Presence:
    """Registers at the first write, beats, and notices when it was declared lost.

    A machine is numbered at its first write and not at start: a crash loop must not eat the numbers.
    """

    def __init__(
        self, store: Store, policy: Policy, time: Timekeeper, *, kind: str, on_lost: Callable[[], None]
    ) -> None:
        self._store = store
        self._policy = policy
        self._time = time
        self._kind = kind
        self._on_lost = on_lost
        self._registering = asyncio.Lock()
        # one read after the other: an older answer taken after a newer one would make machines dead
        self._reading = asyncio.Lock()
        self._incarnation: Incarnation | None = None
        self._unanswered: dict[str, int] | None = None
        self._resigned: list[MachineRow] = []
        self._closed = False
        self.living: dict[int, MachineRow] = {}
        self._newest = 0

    @property
    def incarnation(self) -> Incarnation | None:
        """The present machine, or None before the first write and after a loss."""
        current = self._incarnation
        if current is not None and current.spent:
            self._resign("its sequence is spent or the process was forked")
            return None
        return current

    async def present(self) -> Incarnation:
        """The present machine, registered if need be.

        Raises StoreError if that can't be done, EngineStopping after ``end``.
        """
        return self.incarnation or await self._register()

    async def _register(self) -> Incarnation:
        async with self._registering:
            if (current := self.incarnation) is not None:
                return current
            if self._closed:
                raise EngineStopping("this process has ended its machine and registers no other")
            row = await self._registered()
            self._incarnation = Incarnation(row.id)
            # _newest stays: machines registered before this one may not have been read yet
            self.living[row.id] = row
            _log.info("registered as machine %d", row.id)
            return self._incarnation

    async def _registered(self) -> MachineRow:
        try:
            return await self._store.register(
                node=socket.gethostname(), pid=os.getpid(), kind=self._kind, at_ms=self._time.wall_ms()
            )
        except AnswerLost as error:
            # a number may be wasted on a machine that never beats; nothing was claimed under it
            raise StoreUnavailable(f"the store has not answered a registration: {error}") from error

    def _resign(self, why: str) -> None:
        current, self._incarnation = self._incarnation, None
        self._unanswered = None
        if current is not None:
            current.retire()
            row = self.living.pop(current.machine, None)
            if row is not None:
                self._resigned.append(row)
            _log.warning("machine %d is no more: %s; the next write registers anew", current.machine, why)
            self._on_lost()

    async def beat(self, oldest_open: int | None, lowest_in_flight: int | None) -> bool:
        """Count one beat. False if there is no machine, or it was lost; StoreError if unreachable.

        A beat without an answer is repeated with the same arguments, so that the store can tell the
        repeat from the beat of a clone.
        """
        current = self.incarnation
        if current is None:
            return False
        if self._unanswered is None:
            seen_age_ms, elapsed_ms = self._time.growth()
            self._unanswered = {
                "oldest_open": oldest_open or current.next_id,
                "lowest_in_flight": lowest_in_flight or current.next_id,
                "seen_age_ms": seen_age_ms,
                "elapsed_ms": elapsed_ms,
                "at_ms": self._time.wall_ms(),
            }
        try:
            answer = await self._store.beat(current.machine, current.beat, **self._unanswered)
        except MachineLost as error:
            self._resign(str(error))
            return False
        self._unanswered = None
        current.beat = answer.beat
        self._time.saw_age(answer.age_ms)
        return True

    async def refresh(self) -> list[MachineRow]:
        """Read all machines anew; returns them."""
        async with self._reading:
            rows = await self._store.machines()
            self._take(rows)
        return rows

    async def refresh_living(self) -> list[MachineRow]:
        """Read the living machines anew; returns those that were living before and are not now."""
        async with self._reading:
            rows = await self._store.machines(living=True)
            before = self.living
            self._take(rows)
        resigned, self._resigned = self._resigned, []
        return [*resigned, *(row for number, row in before.items() if number not in self.living)]

    def _take(self, rows: list[MachineRow]) -> None:
        self.living = {row.id: row for row in rows if row.state == "living"}
        self._newest = max([self._newest, *(row.id for row in rows)])

    async def is_living(self, machine: int) -> bool:
        """Whether a machine may still act, as last read from the store."""
        if machine in self.living:
            return True
        if machine > self._newest:
            await self.refresh()
        return machine in self.living

    async def end(self) -> None:
        """Mark the machine as ended; this process registers no other. Raises StoreError."""
        self._closed = True
        current, self._incarnation = self._incarnation, None
        if current is not None:
            current.retire()
            await self._store.end(current.machine, at_ms=self._time.wall_ms())
