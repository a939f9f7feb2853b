"""``nonbis serve`` with one of its rules broken: ``python planted_server.py PLANT [OPTIONS]``.

Each plant is what others do, run for run: the effect before its state, a second run when the owner is
gone, a replay for whoever knows the name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import msgspec

from nonbis.core.messages import Kind, Record, State
from nonbis.core.names import reference
from nonbis.engine import engine as engine_room
from nonbis.engine.attempts import Ready
from nonbis.engine.effects import Effect
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Answer, Call, Flight
from nonbis.engine.sends import SendGate
from nonbis.engine.writing import Observation
from nonbis.operations.cli import main
from nonbis.ports import Advance, Stored, Verdict


async def _effect_before_state(self: Engine, flight: Flight, call: Call, effect: Effect) -> Answer:
    """The transfer first, the row afterwards: nothing is lost but a crash in between."""
    gate = SendGate("0:0", self.time.deadline(self.policy.send_deadline_seconds))
    known = await self.store.find(call.digest)
    if known is not None:
        flight.enter(known.record, known.request)
        return await self.answer_of(known.record, known)
    receipt = await effect.send(reference(call.digest, 0), gate)
    await self._attempts._failpoint.reach("sent")
    claimed = await self._claim(flight, call, effect)
    assert isinstance(claimed, Ready)
    report = Observation(kind=Kind.REPORT_APPLIED, attempt=1, send=1, receipt=receipt, facts=effect.facts)
    return await self._told(await self.writer.apply(claimed.record, report, effect.outcome))


def plant_effect_before_state() -> None:
    """State after effect."""
    setattr(Engine, "_carry_out", _effect_before_state)


_honest_judge = Engine._judge


async def _run_again(
    self: Engine, flight: Flight, call: Call, effect: Effect, stored: Stored
) -> Ready | Answer:
    """A row whose machine is gone belongs to whoever comes next, who sends once more."""
    record = stored.record
    gone = not await self.presence.is_living(record.owner)
    if gone and record.state in (State.STARTED, State.IN_DOUBT):
        deadline = self.time.deadline(self.policy.send_deadline_seconds)
        present = await self.presence.present()
        mine: Record = msgspec.structs.replace(
            record,
            state=State.STARTED,
            owner=present.machine,
            stamp=present.draw(),
            attempt=record.attempt + 1,
        )
        (advanced,) = await self.store.advance([Advance(record=mine, expected=record.stamp, attention=True)])
        if advanced.verdict is Verdict.WON:
            flight.record = mine
            return Ready(mine, deadline)
    return await _honest_judge(self, flight, call, effect, stored)


def plant_second_run_of_a_lost_machines_row() -> None:
    """Lease re-run: a started row of a machine that is not living is sent again."""
    setattr(Engine, "_judge", _run_again)


def plant_no_fingerprint() -> None:
    """The name alone decides: another request under it is told the outcome of the first."""
    setattr(engine_room, "matches", lambda call, record: True)


async def _without_joining(self: Engine, call: Call, effect: Effect, **_: Any) -> Answer:
    """Look, and if nothing is there, pay: two calls that look at the same time both pay."""
    known = await self.store.find(call.digest)
    if known is not None:
        return await self.answer_of(known.record, known)
    flight = Flight(lambda: None)
    return await _effect_before_state(self, flight, call, effect)


def plant_check_then_act() -> None:
    """Two concurrent calls both find nothing."""
    setattr(Engine, "run", _without_joining)


PLANTS: dict[str, Callable[[], None]] = {
    "effect before state": plant_effect_before_state,
    "second run of a lost machine's row": plant_second_run_of_a_lost_machines_row,
    "no fingerprint": plant_no_fingerprint,
    "check, then act": plant_check_then_act,
}

if __name__ == "__main__":
    PLANTS[sys.argv[1]]()
    main(["serve", *sys.argv[2:]], prog_name="nonbis")
