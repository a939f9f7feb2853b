"""Settling by a person: the same transition function as for reports, rails and sweepers.

A person says what they found on the rail's side. Their word holds only for the row that they saw: it
carries the stamp of that row, and one that has moved on meanwhile is shown anew instead.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from nonbis.core import windows
from nonbis.core.ids import format_id
from nonbis.core.messages import Kind, Record, State
from nonbis.core.payments import timestamp
from nonbis.core.policy import Agreement, RailFacts
from nonbis.engine.engine import Engine
from nonbis.engine.writing import Observation
from nonbis.ports import Stored

Verdict = Literal["applied", "failed"]
_SAYS = {"applied": Kind.PERSON_APPLIED, "failed": Kind.PERSON_FAILED}
_SEEN = {Kind.OWNER_LOST: "its machine is not living", Kind.OVERDUE: "past its send deadline and time-out"}
FORCE_RISK = (
    "--force says that you know that nothing is under way any more. If you are wrong, and the rail does not"
    " refuse a repeated reference, a send that arrives late and the next attempt under this name both take"
    " effect: it is paid twice."
)


class Refused(StrEnum):
    """Why a settlement was not written."""

    MOVED = "moved"
    TOO_EARLY = "too_early"
    RUNNING = "running"
    FINAL = "final"


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """How it went.

    Attributes:
        stored: the row as it is now.
        refused: why nothing was settled, or None if the verdict is written.
        detail: one or more sentences for the person.
    """

    stored: Stored
    refused: Refused | None
    detail: str


class _Person(msgspec.Struct, frozen=True):
    """What somebody says of an operation."""

    verdict: Verdict
    who: str
    because: str
    force: bool


async def resolve(
    engine: Engine,
    number: int,
    verdict: Verdict,
    *,
    who: str,
    because: str,
    stamp: int | None = None,
    force: bool = False,
) -> Resolution:
    """Settle an operation that is in doubt or contradicted, by a person's word.

    ``stamp`` is that of the row which the person saw; None: the row as it is read here. ``force`` takes
    "failed" before the settle window has passed. Raises LookupError if there is no such operation,
    StoreError if the store can't do its part.
    """
    stored = await engine.store.show(number)
    if stored is None:
        raise LookupError(f"there is no operation {format_id(number)}")
    if stamp is not None and stamp != stored.record.stamp:
        return _moved(stored, stamp)
    person = _Person(verdict, who, because, force)
    record = await _without_its_owner(engine, stored.record)
    if record is None:
        return _moved(await _anew(engine, stored), stored.record.stamp)
    return await _settle(engine, stored, record, person)


async def _settle(engine: Engine, stored: Stored, record: Record, person: _Person) -> Resolution:
    agreement = await engine.store.agreement()
    observation = Observation(
        kind=_SAYS[person.verdict],
        attempt=record.attempt,
        seen=record.stamp,
        forced=person.force,
        facts=agreement.rail(record.rail, record.account) if agreement else None,
        who=person.who,
        because=person.because,
    )
    applied = await engine.writer.apply(record, observation, engine.describe(stored))
    now = await _anew(engine, stored)
    if applied.won:
        return Resolution(stored=now, refused=None, detail=_done(now.record, person))
    if applied.record.stamp != record.stamp:
        return _moved(now, record.stamp)
    refused, detail = _why_not(engine, record, agreement, observation.facts)
    if record.stamp != stored.record.stamp:
        detail = f"It is in doubt now, with the stamp {record.stamp}; your verdict was not taken. {detail}"
    return Resolution(stored=now, refused=refused, detail=detail)


async def _anew(engine: Engine, stored: Stored) -> Stored:
    return await engine.store.find(stored.record.digest) or stored


async def _without_its_owner(engine: Engine, record: Record) -> Record | None:
    """The row, put in doubt if it is started and nobody will report; None if it has moved meanwhile.

    This step is the command's and not the person's, who may yet be refused: it bears no name. That the
    owner is gone or overdue is no news to the person who saw the row, so their word still
    holds for what comes out, but only if it was made of exactly the row that they saw.
    """
    if record.state is not State.STARTED:
        return record
    await _lose_vanished(engine, record.owner)
    for kind in (Kind.OWNER_LOST, Kind.OVERDUE):
        observation = Observation(kind=kind, because=f"{_SEEN[kind]}; seen when somebody wanted to settle it")
        if await engine.writer.would_write(record, observation):
            after = (await engine.writer.apply(record, observation)).record
            same = msgspec.structs.replace(
                after, state=record.state, stamp=record.stamp, changed=record.changed
            )
            return after if same == record and after.state is State.IN_DOUBT else None
    return record


async def _lose_vanished(engine: Engine, owner: int) -> None:
    """Declare the owner lost if its process is known to be gone: no sweeper may be running."""
    for row in await engine.store.vanished():
        if row.id == owner:
            await engine.store.lose(row.id, row.beat, at_ms=engine.time.wall_ms())
    await engine.presence.refresh()


# -- words ---------------------------------------------------------------------------------------------


def _done(record: Record, person: _Person) -> str:
    name = format_id(record.id)
    if record.state is State.APPLIED:
        return f"{name} is applied: every retry under its name is told so from now on"
    if record.state is State.FAILED and record.reason == "settled":
        return f"{name} is failed, settled by {person.who}: a retry under its name is a new attempt"
    return f"{name} is {record.state.value}; the contradiction is cleared"


def _moved(stored: Stored, seen: int) -> Resolution:
    record = stored.record
    detail = (
        f"{format_id(record.id)} has changed since it was seen: its stamp was {seen} and is"
        f" {record.stamp} now. Look at it again before you decide."
    )
    return Resolution(stored=stored, refused=Refused.MOVED, detail=detail)


def _why_not(
    engine: Engine, record: Record, agreement: Agreement | None, facts: RailFacts | None
) -> tuple[Refused, str]:
    name = format_id(record.id)
    if record.state is State.IN_DOUBT:
        return Refused.TOO_EARLY, f"{name}: {_until_when(engine, record, agreement, facts)} {FORCE_RISK}"
    if record.state is State.STARTED:
        return Refused.RUNNING, (
            f"{name} is being sent by machine {record.owner}, which is alive: it is that machine's turn to"
            " report. When it is lost, or its time-out has passed, the operation is in doubt."
        )
    if record.state is State.ACCEPTED:
        return Refused.RUNNING, (
            f"{name} is accepted and nothing was sent for it: there is nothing to settle. Its machine goes"
            " on with it; if that machine is gone, the service or the next retry ends it as not sent."
        )
    if record.state is State.APPLIED:
        return Refused.FINAL, f"{name} is applied and nothing contradicts that: there is nothing to settle."
    return Refused.FINAL, (
        f"{name} is failed ({record.reason}), surely without an effect: there is nothing to settle."
    )


def _until_when(engine: Engine, record: Record, agreement: Agreement | None, facts: RailFacts | None) -> str:
    """Which of the two clocks says that the send, or its effect, may still be on its way."""
    if agreement is None or facts is None or record.started is None:
        return (
            f"it is too early: the store has no agreed settle window for the rail {record.rail}/"
            f"{record.account}, so nobody can say from when on nothing is under way."
        )
    seconds = windows.settle_seconds(agreement.send_deadline_seconds, facts)
    now = engine.time.now()
    end_ms = record.started.wall_ms + int(seconds * 1000)
    if now.wall_ms < end_ms:
        return (
            f"it is too early to call it failed: the rail may act on what was sent until {timestamp(end_ms)}."
        )
    lacking = seconds + windows.AGE_GRAIN_SECONDS - (now.age_ms - record.started.age_ms) / 1000
    return (
        f"it is too early to call it failed: the wall clock says that the rail's time was over at"
        f" {timestamp(end_ms)}, but the store has been served for {max(lacking, 0):.0f} s less than that,"
        " and the slower of the two counts. Keep the service running for so long."
    )
