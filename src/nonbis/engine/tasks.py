"""Work that goes on apart from the caller who asked for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_log = logging.getLogger("nonbis.tasks")


class Tasks:
    """Keeps a hold on running tasks, so that none is collected or forgotten at the end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it on the present loop; an error that escapes it is logged with its trace."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task ended with an error", exc_info=error)

    async def finish(self, seconds: float) -> None:
        """Wait for all that run, at most so long."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=seconds)

    async def cancel(self) -> None:
        """End what still runs: first the sends, which report so, then what can't even report."""
        for _ in range(2):
            running = set(self._running)
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running, timeout=1.0)
