"""Settling what is in doubt by the rail: asking it, or sending again under the same reference.

Asked or resent at once, then after 2 s, doubling to 5 minutes, for as long as the row is in doubt; and
once more about what a person has settled as failed, after its settle window. Only
a rail of the row's name and account may do either; without one, or where the rail neither dedupes nor
can be asked, the row waits for a late report or a person.
"""

from __future__ import annotations

import asyncio
import logging

from nonbis.core.ids import format_id
from nonbis.core.messages import Kind, Record
from nonbis.core.names import reference
from nonbis.engine.effects import Effect
from nonbis.engine.engine import Engine
from nonbis.engine.writing import Observation
from nonbis.errors import StoreError
from nonbis.ports import Found, FoundKind, Stored

_log = logging.getLogger("nonbis.settling")

DELAY_FIRST_SECONDS = 2.0
DELAY_MAX_SECONDS = 300.0
AT_ONCE_MAX = 16
_SAYS = {
    FoundKind.APPLIED: Kind.FOUND_APPLIED,
    FoundKind.REFUSED: Kind.FOUND_REFUSED,
    FoundKind.NOT_FOUND: Kind.FOUND_NOTHING,
}


class Settler:
    """Knows for each operation in doubt when its rail is to be asked next."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._next: dict[int, tuple[float, float]] = {}
        self._busy: set[int] = set()
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)

    def consider(self, record: Record) -> None:
        """Ask or resend now if it is this operation's time: in doubt, or settled with a send open."""
        if not record.contradicted and self._is_due(record.id):
            self._engine.tasks.spawn(self._settle(record.id))

    def _is_due(self, number: int) -> bool:
        now = self._engine.time.monotonic()
        due, delay = self._next.get(number, (now, DELAY_FIRST_SECONDS))
        if due > now or number in self._busy:
            return False
        self._next[number] = (now + delay, min(2 * delay, DELAY_MAX_SECONDS))
        self._busy.add(number)
        return True

    def keep_only(self, numbers: set[int]) -> None:
        """Forget the operations that need no settling any more."""
        for number in self._next.keys() - numbers - self._busy:
            del self._next[number]

    async def _settle(self, number: int) -> None:
        try:
            async with self._slots:
                stored = await self._engine.store.show(number)
                if stored is not None:
                    await self._settle_by_rail(stored)
        except StoreError as error:
            _log.warning("%s stays as it is for now: %s", format_id(number), error)
        finally:
            self._busy.discard(number)

    async def _settle_by_rail(self, stored: Stored) -> None:
        effect = self._engine.effects.of(stored)
        if effect is None:
            return
        resend = Observation(kind=Kind.RESEND, facts=effect.facts)
        if not self._engine.at_work(stored.record.digest) and await self._engine.writer.would_write(
            stored.record, resend
        ):
            self._engine.resend(stored, effect)
        elif effect.facts.finds:
            await self._ask(stored, effect)

    async def _ask(self, stored: Stored, effect: Effect) -> None:
        """Ask the rail, and settle by its answer under the stamp that was read before asking."""
        record = stored.record
        asked = self._engine.time.now()
        found = await self._question(record, effect)
        if found is None or found.kind is FoundKind.PENDING:
            return
        who = f"rail {effect.facts.name}/{effect.facts.account}"
        if found.receipt is not None and (member := effect.differs(found.receipt)) is not None:
            _log.error("%s: the rail shows another %s under its reference", format_id(record.id), member)
            because = f"asked, it shows another {member} under this reference: {found.receipt!r}"
            await self._engine.writer.note_once(record, who=who, because=because)
            return
        observation = Observation(
            kind=_SAYS[found.kind],
            attempt=record.attempt,
            seen=record.stamp,
            asked=asked,
            facts=effect.facts,
            receipt=found.receipt,
            who=who,
            because=f"asked, it says: {found.kind.value}",
        )
        await self._engine.writer.apply(record, observation, self._engine.describe(stored))

    async def _question(self, record: Record, effect: Effect) -> Found | None:
        try:
            async with asyncio.timeout(self._engine.policy.effect_timeout_seconds):
                return await effect.find(reference(record.digest, record.refusals))
        except Exception as error:  # noqa: BLE001  (whatever the rail's client raises, it is no answer)
            _log.warning("%s: the rail gave no answer: %r", format_id(record.id), error)
            return None
