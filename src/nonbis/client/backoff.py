"""How often to try and how long to wait in between: pure arithmetic, and the port to the real world."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import math
import os
import time
from typing import Protocol

import msgspec

TRIES_MAX = 100
_DIGITS_MAX = 12
"""A ``Retry-After`` with more digits is longer than any cap; it need not be read exactly."""


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How a client waits between its tries; raises ValueError for settings that make no sense.

    Attributes:
        tries: how often one call of ``pay`` posts at most, 1 to 100.
        first_seconds: the wait after the first try; it doubles after each further one.
        longest_seconds: where the doubling ends.
        retry_after_longest_seconds: a longer ``Retry-After`` counts as this.
    """

    tries: int = 6
    first_seconds: float = 0.5
    longest_seconds: float = 8.0
    retry_after_longest_seconds: float = 60.0

    def __post_init__(self) -> None:
        if not 1 <= self.tries <= TRIES_MAX:
            raise ValueError(f"tries must be 1 to {TRIES_MAX}, not {self.tries}")
        for name in ("first_seconds", "longest_seconds", "retry_after_longest_seconds"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                raise ValueError(f"{name} must be a finite number of seconds from 0 up, not {seconds}")

    def wait_seconds(self, tries_made: int, chance: float, asked_seconds: float | None) -> float:
        """Seconds until the next try.

        ``chance`` (0 up to 1) takes away at most half of the doubled wait, so that clients that
        failed together don't come back together. ``asked_seconds`` is what the service asked for: the
        wait is never shorter than that, up to ``retry_after_longest_seconds``.
        """
        whole = min(self.longest_seconds, self.first_seconds * 2.0 ** (tries_made - 1))
        wait = whole * (0.5 + chance / 2)
        if asked_seconds is None:
            return wait
        return max(wait, min(asked_seconds, self.retry_after_longest_seconds))


def retry_after_seconds(value: str | None, date: str | None, wall_seconds: float) -> float | None:
    """Seconds that a ``Retry-After`` field asks for: a number or an HTTP date; None if it is neither.

    A date is counted from the answer's own ``Date`` field where there is one, since both come from one
    clock; else from ``wall_seconds``, this machine's seconds since 1970.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:_DIGITS_MAX]) if len(text) <= _DIGITS_MAX else 10.0**_DIGITS_MAX
    until = _epoch_seconds(text)
    if until is None:
        return None
    now = _epoch_seconds(date or "")
    return max(0.0, until - (wall_seconds if now is None else now))


def _epoch_seconds(text: str) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
        return zoned.timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None  # an unreadable date asks for nothing


class Chance(Protocol):
    """What a wait needs of the world besides the waiting itself."""

    def chance(self) -> float:
        """A number from 0 up to but not including 1."""

    def wall_seconds(self) -> float:
        """Seconds since 1970."""


class Pause(Chance, Protocol):
    """Waiting for ``Client``; tests hand in one that doesn't wait."""

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds``."""


class AsyncPause(Chance, Protocol):
    """Waiting for ``AsyncClient``."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``; may be cancelled."""


class _SystemChance:
    def chance(self) -> float:
        # From the operating system each time: forked workers must not share one sequence.
        return (int.from_bytes(os.urandom(7), "big") >> 3) * 2.0**-53

    def wall_seconds(self) -> float:
        return time.time()


class SystemPause(_SystemChance):
    """Really waits."""

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


class AsyncSystemPause(_SystemChance):
    """Really waits, by the running asyncio loop."""

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run meanwhile."""
        await asyncio.sleep(seconds)
