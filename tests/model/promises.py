"""What must hold in every state, and in every state from which only faults can lead on."""

from __future__ import annotations

from collections.abc import Iterator

from nonbis.core.machine import needs_attention
from nonbis.core.messages import Record, State
from tests.model.surroundings import OPEN
from tests.model.world import Situation, World, index_of


def violations(world: World, state: Situation) -> Iterator[str]:
    """Every way in which this state breaks the promise."""
    total = sum(state.effects)
    if total > 1:
        yield f"DOUBLE: effects per attempt {state.effects[1:]}"
    row = state.row
    if _unguarded(state, row):
        yield "UNGUARDED: a message whose send no durable row speaks of"
    if row is None:
        return
    yield from _reports_kept(state, row)
    if total == 0 and (state.told_applied or row.state is State.APPLIED):
        yield "FALSE: applied, but there was no effect"
    if not _surprises(world, state):
        yield from _false_failures(state, row, total)


def _unguarded(state: Situation, row: Record | None) -> bool:
    if row is None:
        return bool(state.messages)
    present = (row.attempt, row.sends)
    return any((message.send.attempt, message.send.number) > present for message in state.messages)


def _reports_kept(state: Situation, row: Record) -> Iterator[str]:
    heard = state.heard_applied_at
    if heard is None:
        return
    if row.state is not State.APPLIED and not row.contradicted:
        yield "DROPPED: a send was reported applied, and the row does not know"
    if (row.attempt, row.sends) > heard:
        yield "REPEATED: another send was begun after one was reported applied"


def _false_failures(state: Situation, row: Record, total: int) -> Iterator[str]:
    if row.contradicted:
        yield "CONTRADICTED: in a run without force or pause"
    if state.cancelled and total:
        yield "CANCELLED: the name ran"
    if any(state.effects[1 : state.told_failed + 1]):
        yield "FALSE: told failed, but there was an effect"
    if row.state is State.FAILED and total:
        yield "FALSE: recorded failed, but there was an effect"


def _surprises(world: World, state: Situation) -> bool:
    """Whether somebody has used force, or a pause may hide behind the gate: then all may be otherwise."""
    return world.setup.pause_after_gate or state.budget.forces < world.setup.budget.forces


def stuck(world: World, state: Situation) -> str:
    """Why a state in which only faults are left may not be left so, or ""."""
    row, happened = state.row, any(state.effects)
    if row is None:
        return "SILENT: an effect and no row" if happened else ""
    if row.state in OPEN:
        return f"WEDGE: {row.state} for ever, owner m{index_of(row.owner)}, on no list"
    if (row.state is State.IN_DOUBT or row.contradicted) and not needs_attention(row):
        return "SILENT: in doubt or contradicted, and on no list"
    if row.state is State.FAILED and happened and not row.contradicted and not _surprises(world, state):
        return "SILENT: an effect, but the row says failed"
    return ""
