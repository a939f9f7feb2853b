"""An http rail for one test."""

from __future__ import annotations

import asyncio
import functools

from nonbis.core.policy import RailFacts
from nonbis.rails.http import HttpRail
from tests.rails.gates import COFFEE, CountingGate

MADE = {"reference": "r1", "amount": 350, "currency": "EUR", "destination": "roastery", "at": "now"}


def run(test):
    @functools.wraps(test)
    def wrapped(*arguments, **named):
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 30))

    return wrapped


class Opened:
    """A rail that is closed at the end of its block."""

    def __init__(self, url, *, answer_seconds=10.0, **facts):
        self.rail = HttpRail(
            url,
            RailFacts(name="bank", settle_window_seconds=0.0, **facts),
            send_deadline_seconds=answer_seconds,
        )

    async def __aenter__(self):
        return self.rail

    async def __aexit__(self, *_):
        await self.rail.close()


async def send(rail, gate=None, reference="r1"):
    return await rail.send(COFFEE, reference, gate or CountingGate())


async def answer_all(connection):
    while True:
        headers, _ = await connection.read_request()
        await connection.answer(201, {**MADE, "reference": headers["reference"]})
