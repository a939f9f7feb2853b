"""Everything beside the machines' own steps: rail, time, late commits, deaths, sweepers, people."""

from __future__ import annotations

from typing import Any

from nonbis.core.ids import machine_of
from nonbis.core.machine import SETTLED, situation
from nonbis.core.messages import Kind, Record, State
from tests.model.handling import STEPS
from tests.model.world import (
    PERSON,
    SWEEPER,
    Actions,
    Idle,
    Machine,
    Message,
    Question,
    Reporting,
    Seen,
    Situation,
    Waiting,
    World,
    Write,
    change,
    doing,
    index_of,
    number_of,
    phase_of,
    present_phase,
    spend,
    with_machine,
)

OPEN = (State.ACCEPTED, State.STARTED)


def successors(world: World, state: Situation) -> Actions:
    """Everything that can happen next."""
    actions: Actions = []
    for index, machine in enumerate(state.machines):
        if machine.alive:
            STEPS[type(machine.doing)](world, state, index, machine.doing, actions)
        _fate(world, state, index, machine, actions)
    for position, message in enumerate(state.messages):
        _arrival(world, state, position, message, actions)
    _time(state, actions)
    _late_commits(world, state, actions)
    if state.row is not None:
        _sweep(world, state, state.row, actions)
        _settle(world, state, state.row, actions)
    _cancel(world, state, actions)
    return actions


# -- the rail ------------------------------------------------------------------------------------------


def _arrival(world: World, state: Situation, position: int, message: Message, actions: Actions) -> None:
    """A message meets the rail: an effect, a refusal, a repeated answer, or nothing at all."""
    setup = world.setup
    base = change(state, messages=state.messages[:position] + state.messages[position + 1 :])
    if state.budget.lost_messages:
        actions.append(("a message is lost", False, spend(base, "lost_messages")))
    send = message.send
    if setup.honours_deadline and phase_of(state, send.attempt, send.number) > 0:
        _reply(base, message, Kind.REPORT_NOT_SENT, "rail: too late", actions)
        return
    known = _remembered(world, state, send.reference)
    if known is not None:
        _reply(base, message, known, f"rail repeats its answer for {send.reference}", actions)
        return
    _reply(
        _took_effect(world, base, message),
        message,
        Kind.REPORT_APPLIED,
        f"rail: effect of reference {send.reference} (attempt {send.attempt})",
        actions,
    )
    if state.budget.declines:
        declined = _remember(world, spend(base, "declines"), send.reference, Kind.REPORT_DECLINED)
        label = f"rail declines reference {send.reference}"
        _reply(declined, message, Kind.REPORT_DECLINED, label, actions, progress=False)


def _remembered(world: World, state: Situation, reference: int) -> Kind | None:
    """What the rail says again instead of acting: it dedupes, or its refusals hold for the reference."""
    if world.setup.dedupes and (reference, Kind.REPORT_APPLIED) in state.memory:
        return Kind.REPORT_APPLIED
    if world.setup.binds_refusals and (reference, Kind.REPORT_DECLINED) in state.memory:
        return Kind.REPORT_DECLINED
    return None


def _remember(world: World, state: Situation, reference: int, what: Kind) -> Situation:
    if not (world.setup.dedupes or world.setup.finds or world.setup.binds_refusals):
        return state
    return change(state, memory=tuple(sorted({*state.memory, (reference, what)})))


def _took_effect(world: World, state: Situation, message: Message) -> Situation:
    attempt = message.send.attempt
    effects = state.effects
    effects = (*effects[:attempt], effects[attempt] + 1, *effects[attempt + 1 :])
    return _remember(world, change(state, effects=effects), message.send.reference, Kind.REPORT_APPLIED)


def _reply(
    state: Situation, message: Message, kind: Kind, label: str, actions: Actions, *, progress: bool = True
) -> None:
    """The rail's answer reaches whoever still waits for it, or is lost."""
    machine = state.machines[message.machine]
    if machine.alive and machine.doing == Waiting(message.send):
        heard = doing(state, message.machine, Reporting(kind, message.send))
        actions.append((f"{label}, the answer arrives", progress, heard))
    actions.append((label, progress, state))


# -- time and the store --------------------------------------------------------------------------------


def _time(state: Situation, actions: Actions) -> None:
    """Deadlines and settle windows pass, in the order in which the sends were written."""
    before = 2
    for position, (attempt, number, phase) in enumerate(state.phases):
        if phase == 0 and before >= 1:
            actions.append((f"deadline of {attempt}.{number} passes", True, _later(state, position)))
        if phase == 1 and before == 2 and not _covered(state, attempt, number):
            actions.append((f"settle window of {attempt}.{number} passes", True, _later(state, position)))
        before = phase


def _covered(state: Situation, attempt: int, number: int) -> bool:
    return any(
        message.covered and message.send.attempt == attempt and message.send.number == number
        for message in state.messages
    )


def _later(state: Situation, position: int) -> Situation:
    attempt, number, phase = state.phases[position]
    phases = state.phases
    return change(state, phases=(*phases[:position], (attempt, number, phase + 1), *phases[position + 1 :]))


def _late_commits(world: World, state: Situation, actions: Actions) -> None:
    for position, write in enumerate(state.late):
        base = change(state, late=state.late[:position] + state.late[position + 1 :])
        actions.append(("the write under way is done now", True, world.apply(base, write)[0]))
        actions.append(("the write under way is rolled back", False, base))


# -- machines ------------------------------------------------------------------------------------------


def _fate(world: World, state: Situation, index: int, machine: Machine, actions: Actions) -> None:
    """A machine dies, or is declared lost, truly or falsely."""
    if machine.alive and state.budget.crashes and sum(other.alive for other in state.machines) > 1:
        dead = with_machine(spend(state, "crashes"), index, Machine(alive=False, lost=machine.lost))
        actions.append((f"m{index} dies", False, dead))
    if machine.lost or (machine.alive and not state.budget.false_losses):
        return
    seen = spend(state, "false_losses") if machine.alive else state
    lost = with_machine(seen, index, Machine(machine.alive, True, machine.doing))
    if world.has("loss swept once") and lost.row is not None and lost.row.owner == number_of(index):
        lost = _written(world, lost, lost.row, Kind.OWNER_LOST, owner_living=False) or lost
    actions.append((f"m{index} is declared lost", not machine.alive, lost))


def _written(
    world: World, state: Situation, row: Record, kind: Kind, me: int = SWEEPER, **facts: Any
) -> Situation | None:
    """The state after somebody read the row and wrote at once; None if there is nothing to write."""
    record = world.decision(row, kind, me, **facts).record
    return None if record is None else world.apply(state, Write(row, record))[0]


def _append(actions: Actions, label: str, following: Situation | None, *, progress: bool = True) -> None:
    if following is not None:
        actions.append((label, progress, following))


def _sweep(world: World, state: Situation, row: Record, actions: Actions) -> None:
    """What any living machine, or the owner itself, does about rows that nobody will finish."""
    if row.state not in OPEN:
        return
    owner = machine_of(row.id) if world.has("owner from the id") else row.owner
    machine = state.machines[index_of(owner)]
    if machine.lost and not world.has("loss swept once"):
        lost = _written(world, state, row, Kind.OWNER_LOST, owner_living=False)
        _append(actions, "sweeper: the owner is lost", lost)
    if machine.alive and not _knows(machine, row) and not world.has("own rows not compared"):
        forgot = _written(world, state, row, Kind.OWNER_FORGOT, owner)
        _append(actions, f"m{index_of(owner)} finds a row of its own that it does not know", forgot)
    if world.has("others' rows compared") and len(state.machines) > 1:
        other = number_of(1 - index_of(owner))
        forgot = _written(world, state, row, Kind.OWNER_FORGOT, other)
        _append(actions, f"m{index_of(other)} does not know the row", forgot)
    if (world.setup.never_returns or world.setup.overdue) and row.state is State.STARTED:
        if present_phase(state) > 0:
            overdue = _written(world, state, row, Kind.OVERDUE, overdue=True)
            _append(actions, "overdue: in doubt", overdue)


def _knows(machine: Machine, row: Record) -> bool:
    """Whether a machine has this row in its memory."""
    what = machine.doing
    if isinstance(what, Seen) and what.kind is not Kind.START:
        return what.row == row
    return not isinstance(what, Idle)


# -- settling ------------------------------------------------------------------------------------------


def _settle(world: World, state: Situation, row: Record, actions: Actions) -> None:
    if state.question is not None:
        _use_answer(world, state, row, state.question, actions)
    if row.state is State.IN_DOUBT:
        if world.setup.finds:
            _ask(world, state, row, actions)
        _say_failed(world, state, row, actions)
    elif situation(row) == SETTLED and world.setup.finds:
        kind, passed = _found(state, row), present_phase(state) == 2
        verified = _written(world, state, row, kind, attempt=row.attempt, may_settle=passed)
        _append(actions, f"asked again about a settled reference: {kind}", verified)
    if (row.state is State.IN_DOUBT or row.contradicted) and any(state.effects):
        said = _written(world, state, row, Kind.PERSON_APPLIED, PERSON)
        _append(actions, "person: applied", said, progress=False)


def _found(state: Situation, row: Record) -> Kind:
    """What the rail knows of the row's reference now."""
    if (row.refusals, Kind.REPORT_APPLIED) in state.memory:
        return Kind.FOUND_APPLIED
    if (row.refusals, Kind.REPORT_DECLINED) in state.memory:
        return Kind.FOUND_REFUSED
    return Kind.FOUND_NOTHING


def _ask(world: World, state: Situation, row: Record, actions: Actions) -> None:
    kind = _found(state, row)
    may_settle = present_phase(state) == 2
    settled = _written(
        world,
        state,
        row,
        kind,
        attempt=row.attempt,
        may_settle=may_settle,
        binds_refusals=world.trusts_refusals(),
    )
    _append(actions, f"asked: {kind}", settled)
    _postpone(state, row, kind, may_settle, actions)


def _postpone(state: Situation, row: Record, kind: Kind, may_settle: bool, actions: Actions) -> None:
    """Somebody keeps an answer in hand, and the row may move on meanwhile."""
    if state.budget.questions and state.question is None:
        question = Question(kind, row.stamp, row.attempt, may_settle)
        kept = change(spend(state, "questions"), question=question)
        actions.append((f"keeps in hand: {kind}", False, kept))


def _use_answer(world: World, state: Situation, row: Record, question: Question, actions: Actions) -> None:
    may_settle = question.may_settle
    if world.has("window counted from the answer"):
        may_settle = present_phase(state) == 2
    base = change(state, question=None)
    settled = _written(
        world,
        base,
        row,
        question.kind,
        attempt=question.attempt,
        seen=question.seen,
        may_settle=may_settle,
        binds_refusals=world.trusts_refusals(),
    )
    actions.append((f"uses what it had in hand: {question.kind}", True, settled or base))


def _say_failed(world: World, state: Situation, row: Record, actions: Actions) -> None:
    """A person who sees no effect says so, after the window or by force."""
    if any(state.effects):
        return
    passed = present_phase(state) == 2
    said = _written(world, state, row, Kind.PERSON_FAILED, PERSON, may_settle=passed)
    _append(actions, "person: failed", said, progress=False)
    if passed:
        _postpone(state, row, Kind.PERSON_FAILED, True, actions)
    elif state.budget.forces:
        forced = _written(world, spend(state, "forces"), row, Kind.PERSON_FAILED, PERSON, forced=True)
        _append(actions, "person: failed, by force", forced, progress=False)


def _cancel(world: World, state: Situation, actions: Actions) -> None:
    if not state.budget.cancels:
        return
    record = world.decision(state.row, Kind.CANCEL, PERSON).record
    if record is not None:
        cancelled, _ = world.apply(spend(state, "cancels"), Write(state.row, record))
        actions.append(("cancel by name", False, change(cancelled, cancelled=True)))
