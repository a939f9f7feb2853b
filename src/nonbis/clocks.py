"""The real clock and the real entropy."""

from __future__ import annotations

import os
import time


class SystemClock:
    """This host's clocks."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC in seconds."""
        return time.monotonic()

    def boottime(self) -> float:
        """CLOCK_BOOTTIME in seconds; goes on while the machine sleeps."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class SystemEntropy:
    """The operating system's random source, asked anew each time."""

    def token(self, length: int) -> bytes:
        """Random bytes from the kernel."""
        return os.urandom(length)

    def uniform(self) -> float:
        """53 random bits as a fraction."""
        return (int.from_bytes(os.urandom(7), "big") >> 3) * 2.0**-53
