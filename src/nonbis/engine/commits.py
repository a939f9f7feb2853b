"""Group commit: while one batch commits, the next gathers. No timer, no delay for a lone call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nonbis.errors import AnswerLost, StoreUnavailable

Item = TypeVar("Item")
Result = TypeVar("Result")

_log = logging.getLogger("nonbis.commits")


class Lane(Generic[Item, Result]):
    """One kind of write, in batches, one batch at a time.

    A batch that fails because the store is away, or whose answer is lost, fails for each of its items
    alike: each caller repeats its own write. A batch that fails for any other reason is split and
    tried one by one beside the lane, so that one poisoned or contested name can't stall the others.
    """

    def __init__(
        self,
        write: Callable[[list[Item]], Awaitable[list[Result]]],
        batch_max: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._write = write
        self._batch_max = batch_max
        self._loop = loop
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._running: asyncio.Task[None] | None = None
        self._side: set[asyncio.Task[None]] = set()

    def submit(self, item: Item) -> asyncio.Future[Result]:
        """Hand in one write; its answer, or its error, comes with the batch that it falls into."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self._waiting.append((item, future))
        if self._running is None:
            self._running = self._loop.create_task(self._run())
        return future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[: self._batch_max]
                del self._waiting[: self._batch_max]
                await self._commit(batch)
        finally:
            self._running = None

    async def _commit(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._write([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001  (passed on to each caller, or tried one by one)
            if len(batch) == 1 or isinstance(error, (AnswerLost, StoreUnavailable)):
                _fail(batch, error)
                return
            _log.warning("a batch of %d writes failed and is tried one by one: %s", len(batch), error)
            task = self._loop.create_task(self._one_by_one(batch))
            self._side.add(task)
            task.add_done_callback(self._side.discard)
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)

    async def _one_by_one(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        for item in batch:
            await self._commit([item])


def _fail(batch: list[tuple[Item, asyncio.Future[Result]]], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
