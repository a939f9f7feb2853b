"""A clock that only moves when a test moves it, and an event loop that lives by it."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Answer = TypeVar("Answer")
BEGINNING_MS = 1_700_000_000_000


class SimulatedClock:
    """Wall, monotonic and boottime, each to be moved alone or all together."""

    def __init__(self, beginning_ms: int = BEGINNING_MS) -> None:
        self.wall_seconds = beginning_ms / 1000
        self.monotonic_seconds = 1000.0
        self.boottime_seconds = 1000.0

    def wall_ms(self) -> int:
        return int(self.wall_seconds * 1000)

    def monotonic(self) -> float:
        return self.monotonic_seconds

    def boottime(self) -> float:
        return self.boottime_seconds

    def advance(self, seconds: float) -> None:
        """Time passes on all three."""
        self.wall_seconds += seconds
        self.monotonic_seconds += seconds
        self.boottime_seconds += seconds

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self.wall_seconds += seconds

    def sleep_of_the_host(self, seconds: float) -> None:
        """The host was suspended: only the monotonic clock does not know."""
        self.wall_seconds += seconds
        self.boottime_seconds += seconds


class OffsetClock:
    """The clock of another host: the same time, with a wall clock that may be wrong."""

    def __init__(self, base: SimulatedClock) -> None:
        self._base = base
        self.wrong_by_seconds = 0.0

    def wall_ms(self) -> int:
        return self._base.wall_ms() + int(self.wrong_by_seconds * 1000)

    def monotonic(self) -> float:
        return self._base.monotonic()

    def boottime(self) -> float:
        return self._base.boottime()


class SeededEntropy:
    """Chance that a seed repeats."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token(self, length: int) -> bytes:
        return self._random.randbytes(length)

    def uniform(self) -> float:
        return self._random.random()


class Standstill(AssertionError):
    """Everything waits for something that no timer will bring."""


class _Selector(selectors.SelectSelector):
    """Instead of waiting, lets the clock go on to the next timer. Nothing outside can wake it."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise Standstill("nothing is due and nobody will call")
        if timeout > 0:
            self._clock.advance(timeout + 1e-6)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the simulated clock's."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(_Selector(clock))
        self._clock = clock

    def time(self) -> float:
        return self._clock.monotonic()


async def cancel_all() -> None:
    """End every other task. A send that is cancelled reports so, and a report is cancelled in its turn."""
    for _ in range(3):
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.sleep(0.01)


def run_virtually(work: Callable[[SimulatedClock], Coroutine[Any, Any, Answer]]) -> Answer:
    """Run a coroutine in virtual time: hours pass in milliseconds, and always in the same way."""
    clock = SimulatedClock()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(work(clock))
