"""Many waits of one length: whoever began first runs out first, so one timer serves them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple


class _Wait(NamedTuple):
    until: float
    run_out: Callable[[], None]


class Patience:
    """Calls back when a wait was not ended within a fixed number of seconds.

    A timer of the loop for every payment would be made and cancelled ten thousand times a second.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._waits: dict[int, _Wait] = {}
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, run_out: Callable[[], None]) -> int:
        """Begin a wait; ``run_out`` is called unless ``end`` comes first."""
        self._next += 1
        until = self._loop.time() + self._seconds
        self._waits[self._next] = _Wait(until, run_out)
        if self._timer is None:
            self._timer = self._loop.call_at(until, self._look)
        return self._next

    def end(self, number: int) -> None:
        """The wait has ended, or has run out already."""
        self._waits.pop(number, None)

    def _look(self) -> None:
        """Run out what is due, and look again when the next one may be."""
        self._timer = None
        now = self._loop.time()
        while self._waits:
            number, wait = next(iter(self._waits.items()))
            if wait.until > now:
                self._timer = self._loop.call_at(wait.until, self._look)
                return
            del self._waits[number]
            wait.run_out()
