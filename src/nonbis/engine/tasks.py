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
        self._running.add(asyncio.get_running_loop().create_task(self._run(work)))

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:  # noqa: BLE001  (it must not be lost without a word)
            _log.exception("a task ended with an error")
        except asyncio.CancelledError:
            self._forget()
            raise
        self._forget()

    def _forget(self) -> None:
        """No ``finally``: a task that is destroyed has no loop any more that could say which one it is."""
        task = asyncio.current_task()
        if task is not None:
            self._running.discard(task)

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
