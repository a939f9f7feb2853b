"""Readings of time for decisions, and the deadlines of sends."""

from __future__ import annotations

from nonbis.core.messages import Moment
from nonbis.ports import Clock


class Timekeeper:
    """Moments on the store's two clocks, as this process knows them.

    The wall clock is this host's. The age is the one last read from the store plus what this
    process's monotonic clock has measured since: the store's own age can't have grown by more.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._age_ms = 0
        self._age_seen_at = clock.monotonic()

    def saw_age(self, age_ms: int) -> None:
        """Take the age as just read from the store, or written to it."""
        self._age_ms = age_ms
        self._age_seen_at = self._clock.monotonic()

    def growth(self) -> tuple[int, int]:
        """The age that was last seen, and the milliseconds measured here since then."""
        return self._age_ms, int((self._clock.monotonic() - self._age_seen_at) * 1000)

    def now(self) -> Moment:
        """The present moment."""
        age_ms, elapsed_ms = self.growth()
        return Moment(self._clock.wall_ms(), age_ms + elapsed_ms)

    def wall_ms(self) -> int:
        """The wall clock alone, for journal rows and people."""
        return self._clock.wall_ms()

    def monotonic(self) -> float:
        """Seconds for measuring waits inside this process."""
        return self._clock.monotonic()

    def deadline(self, seconds: float) -> Deadline:
        """A deadline counted from now. Take it before the write that permits the send."""
        return Deadline(self._clock, seconds)


class Deadline:
    """A moment that passes by the faster of wall clock and CLOCK_BOOTTIME.

    The monotonic clock won't do: it stands still while a machine sleeps.
    """

    __slots__ = ("_boottime", "_clock", "wall_ms")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._boottime = clock.boottime() + seconds
        self.wall_ms = clock.wall_ms() + int(seconds * 1000)

    def passed(self) -> bool:
        """Whether either clock says so."""
        return self._clock.boottime() >= self._boottime or self._clock.wall_ms() >= self.wall_ms
