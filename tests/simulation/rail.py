"""A rail that does what a test tells it, one send after the other, and counts what really took effect."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from nonbis.core.payments import Receipt, Transfer
from nonbis.core.policy import RailFacts
from nonbis.errors import Declined, NotSent, OutcomeUnknown
from nonbis.ports import Found, FoundKind, Gate

Script = Callable[["ScriptedRail", Transfer, str, Gate], Awaitable[Receipt]]


class Point:
    """A place where a send waits for the test."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await self.go.wait()


class Effected(NamedTuple):
    """One transfer that really happened."""

    reference: str
    transfer: Transfer
    operation: str


class ScriptedRail:
    """Without a script a send takes effect and is answered at once.

    Attributes:
        effects: all transfers that happened, in order.
        calls: references of all sends that were begun.
        asked: references that ``find`` was asked about.
        answers: what ``find`` says next; empty: the truth.
    """

    def __init__(
        self,
        *,
        name: str = "scripted",
        account: str = "main",
        settle_window_seconds: float = 60.0,
        dedupes_for_seconds: float | None = None,
        binds_refusals: bool = False,
        finds: bool = False,
    ) -> None:
        self.facts = RailFacts(
            name=name,
            account=account,
            settle_window_seconds=settle_window_seconds,
            dedupes_for_seconds=dedupes_for_seconds,
            binds_refusals=binds_refusals,
            finds=finds,
        )
        self.effects: list[Effected] = []
        self.calls: list[str] = []
        self.asked: list[str] = []
        self.answers: deque[Found | BaseException | Callable[[], Awaitable[Found]]] = deque()
        self._scripts: deque[Script] = deque()

    def script(self, *scripts: Script) -> None:
        """What the next sends do, one each."""
        self._scripts.extend(scripts)

    def take_effect(self, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        """The transfer happens, unless this rail dedupes and has it already."""
        if self.facts.dedupes_for_seconds is not None:
            for effected in self.effects:
                if effected.reference == reference:
                    return receipt_of(effected)
        effected = Effected(reference, transfer, gate.operation)
        self.effects.append(effected)
        return receipt_of(effected)

    async def send(self, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        self.calls.append(reference)
        script = self._scripts.popleft() if self._scripts else at_once
        return await script(self, transfer, reference, gate)

    async def find(self, reference: str) -> Found:
        self.asked.append(reference)
        if self.answers:
            answer = self.answers.popleft()
            if isinstance(answer, BaseException):
                raise answer
            return answer if isinstance(answer, Found) else await answer()
        for effected in self.effects:
            if effected.reference == reference:
                return Found(FoundKind.APPLIED, receipt_of(effected))
        return Found(FoundKind.NOT_FOUND)

    async def close(self) -> None:
        pass


class _Passed:
    """A gate that was passed before."""

    def __init__(self, gate: Gate) -> None:
        self.operation = gate.operation
        self.deadline_ms = gate.deadline_ms

    def __call__(self) -> None:
        pass


def receipt_of(effected: Effected) -> Receipt:
    transfer = effected.transfer
    return Receipt(
        reference=effected.reference,
        amount=transfer.amount,
        currency=transfer.currency,
        destination=transfer.destination,
    )


async def at_once(rail: ScriptedRail, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
    gate()
    return rail.take_effect(transfer, reference, gate)


async def declined(rail: ScriptedRail, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
    gate()
    raise Declined("no money")


async def not_sent(rail: ScriptedRail, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
    raise NotSent("connection refused")


async def answer_lost(rail: ScriptedRail, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
    gate()
    rail.take_effect(transfer, reference, gate)
    raise OutcomeUnknown("the connection was reset")


async def message_lost(rail: ScriptedRail, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
    gate()
    raise OutcomeUnknown("time-out")


def waits(
    *,
    before_gate: Point | None = None,
    before_effect: Point | None = None,
    after_effect: Point | None = None,
    then: Script | None = None,
) -> Script:
    """A send that waits at these places, and then ends like ``then`` (by default with the effect)."""

    async def script(rail: ScriptedRail, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        if before_gate is not None:
            await before_gate.wait()
        gate()
        if before_effect is not None:
            await before_effect.wait()
        if then is not None:
            return await then(rail, transfer, reference, _Passed(gate))
        receipt = rail.take_effect(transfer, reference, gate)
        if after_effect is not None:
            await after_effect.wait()
        return receipt

    return script


def raises_after(error: BaseException) -> Script:
    """The transfer happens, and then this is raised."""

    async def script(rail: ScriptedRail, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        gate()
        rail.take_effect(transfer, reference, gate)
        raise error

    return script
