"""Waits of one length share one timer and run out in order."""

from __future__ import annotations

import asyncio

from nonbis.engine.patience import Patience


def test_a_wait_that_is_not_ended_runs_out_and_one_that_is_does_not() -> None:
    async def scene() -> list[str]:
        ran: list[str] = []
        patience = Patience(asyncio.get_running_loop(), 0.02)
        first = patience.begin(lambda: ran.append("first"))
        patience.begin(lambda: ran.append("second"))
        done = asyncio.Event()
        patience.begin(lambda: (ran.append("third"), done.set()))
        patience.end(first)
        await asyncio.wait_for(done.wait(), 5)
        return ran

    assert asyncio.run(scene()) == ["second", "third"]


def test_a_wait_begun_later_runs_out_later_and_ending_twice_is_harmless() -> None:
    async def scene() -> list[float]:
        loop = asyncio.get_running_loop()
        patience = Patience(loop, 0.03)
        began, ran = [], []
        done = asyncio.Event()
        for _ in range(3):
            began.append(loop.time())
            patience.begin(lambda: (ran.append(loop.time()), len(ran) == 3 and done.set()))
            await asyncio.sleep(0.01)
        await asyncio.wait_for(done.wait(), 5)
        ended = patience.begin(lambda: ran.append(0.0))
        patience.end(ended)
        patience.end(ended)
        await asyncio.sleep(0.05)
        return [end - begin for begin, end in zip(began, ran, strict=True)]

    assert all(waited >= 0.03 for waited in asyncio.run(scene()))
