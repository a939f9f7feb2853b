"""Warnings that would otherwise come with every request."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

EVERY_SECONDS = 30.0


class RepeatingWarning:
    """Tells the first of many like warnings at once, and then one each 30 seconds with a count.

    ``monotonic`` gives seconds that never go back.
    """

    def __init__(self, log: logging.Logger, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._monotonic = monotonic
        self._told: float | None = None
        self._kept_back = 0

    def warn(self, words: str) -> None:
        """Tell it now, or count it."""
        now = self._monotonic()
        if self._told is not None and now - self._told < EVERY_SECONDS:
            self._kept_back += 1
            return
        more = f" (and {self._kept_back} more like it since)" if self._kept_back else ""
        self._log.warning("%s%s", words, more)
        self._told, self._kept_back = now, 0
