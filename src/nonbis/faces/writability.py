"""Whether the store takes writes, from what real writes have shown: beats, registrations, payments.

Reads go on where a disk is full or a file was replaced, so they show nothing.
"""

from __future__ import annotations

from nonbis.engine.presence import Presence
from nonbis.errors import StoreUnavailable
from nonbis.upkeep.sweeper import Sweeper


class Writability:
    """What is known of one process's store."""

    def __init__(self, presence: Presence, sweeper: Sweeper) -> None:
        self._presence = presence
        self._sweeper = sweeper
        self._in_trouble = False
        self._shown_before: tuple[int, int] | None = None

    def failed(self) -> None:
        """The store did not do its part in a payment."""
        self._in_trouble = True
        self._shown_before = self._shown()

    def _shown(self) -> tuple[int, int] | None:
        """Grows with every write of this machine that keeps it among the living."""
        current = self._presence.incarnation
        return None if current is None else (current.machine, current.beat)

    async def check(self) -> None:
        """Raise StoreError if the last beat failed, or a payment's write did and none succeeded since.

        Where a payment failed because this process could not even be registered, that is tried again.
        """
        if self._sweeper.last_round_failed is not None:
            raise StoreUnavailable(self._sweeper.last_round_failed)
        if not self._in_trouble:
            return
        await self._presence.present()
        if self._shown() == self._shown_before:
            raise StoreUnavailable("a payment's write failed, and no beat has succeeded since")
        self._in_trouble = False
