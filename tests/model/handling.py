"""One machine's way through an operation: claim, start, retry, take over, send, wait, report."""

from __future__ import annotations

from collections.abc import Callable

from nonbis.core.messages import Kind, Record, State
from tests.model.world import (
    Actions,
    AtGate,
    Doing,
    Idle,
    Message,
    PastGate,
    Reporting,
    Seen,
    Send,
    Situation,
    Unsure,
    Waiting,
    World,
    Write,
    answer,
    change,
    doing,
    living,
    number_of,
    phase_of,
    send_of,
    spend,
    tell,
)

Then = Callable[[Situation, bool], Situation]


def issue(
    world: World,
    state: Situation,
    index: int,
    write: Write,
    then: Then,
    label: str,
    actions: Actions,
    *,
    progress: bool = True,
    report: Reporting | None = None,
) -> None:
    """Hand a write to the store: it is answered, or its answer is lost (done, not done, under way)."""
    after, won = world.apply(state, write)
    actions.append((f"m{index} {label}: {'won' if won else 'lost'}", progress, then(after, won)))
    if not state.budget.lost_answers:
        return
    unsure = Unsure(write, report)
    poorer = doing(spend(state, "lost_answers"), index, unsure)
    if won:
        actions.append((f"m{index} {label}: done, answer lost", False, world.apply(poorer, write)[0]))
    actions.append((f"m{index} {label}: not done, answer lost", False, poorer))
    if state.budget.late_commits:
        late = change(spend(poorer, "late_commits"), late=(*poorer.late, write))
        actions.append((f"m{index} {label}: under way in the store, answer lost", False, late))


def call(world: World, state: Situation, index: int, idle: Doing, actions: Actions) -> None:
    """A client calls this machine."""
    if not state.budget.calls:
        return
    called = spend(state, "calls")
    if world.has("effect before state") and state.row is None:
        begun = doing(called, index, AtGate(Send(1, 1, 0)))
        actions.append((f"call to m{index}: the effect first", False, begun))
        return
    write = world.claim(number_of(index), state.budget.calls)

    def then(after: Situation, won: bool) -> Situation:
        return _go_on(world, after, index, write)

    issue(world, called, index, write, then, "claims", actions, progress=False)


def _go_on(world: World, state: Situation, index: int, write: Write, *, reread: bool = False) -> Situation:
    """After a definite answer: the effect may begin only if the row is as I wrote it, and started."""
    row = state.row
    if row is None or not world.mine(row, write):
        return _judge(world, state, index) if write.base is None else answer(state, index)
    if row.state is State.STARTED:
        moved = world.has("deadline from the answer") or (reread and world.has("deadline from the re-read"))
        return doing(state, index, AtGate(send_of(row), moved))
    if row.state is State.ACCEPTED:
        return doing(state, index, Seen(Kind.START, row))
    return _judge(world, state, index)


def _judge(world: World, state: Situation, index: int) -> Situation:
    """A row is there already: try again, take over, or say what it says."""
    row = state.row
    if row is None:
        return doing(state, index, Idle())
    for kind in (Kind.RETRY, Kind.TAKE_OVER):
        if _attempted(world, state, index, kind, row) is not None:
            return doing(state, index, Seen(kind, row))
    return answer(state, index)


def _attempted(world: World, state: Situation, index: int, kind: Kind, row: Record) -> Record | None:
    return world.decision(
        row,
        kind,
        number_of(index),
        given_up=state.budget.give_ups,
        bounded=world.setup.bounded,
        may_retry=row.attempt < world.setup.attempts_max,
        owner_living=living(state, row.owner),
    ).record


def try_seen(world: World, state: Situation, index: int, seen: Seen, actions: Actions) -> None:
    """Write what follows from the row that was read; the stamp says whether it still stands."""
    if seen.kind is Kind.START and world.has("start without a write"):
        begun = doing(state, index, AtGate(Send(seen.row.attempt, 1, seen.row.refusals)))
        actions.append((f"m{index} starts without a write", True, begun))
        return
    record = _attempted(world, state, index, seen.kind, seen.row)
    if record is None:
        actions.append((f"m{index} gives way", True, answer(state, index)))
        return
    _advance(world, state, index, Write(seen.row, record), f"writes {seen.kind}", actions)
    if seen.kind is Kind.START and state.budget.handler_ends:
        _end_early(world, spend(state, "handler_ends"), index, seen, actions)


def _advance(
    world: World,
    state: Situation,
    index: int,
    write: Write,
    label: str,
    actions: Actions,
    *,
    progress: bool = True,
) -> None:
    def then(after: Situation, won: bool) -> Situation:
        return _go_on(world, after, index, write) if won else answer(after, index)

    issue(world, state, index, write, then, label, actions, progress=progress)


def _end_early(world: World, state: Situation, index: int, seen: Seen, actions: Actions) -> None:
    for kind in (Kind.HANDLER_ENDED, Kind.HANDLER_RETURNED):
        record = world.decision(seen.row, kind, number_of(index)).record
        if record is not None:
            _advance(world, state, index, Write(seen.row, record), kind, actions, progress=False)


def resend(world: World, state: Situation, index: int, actions: Actions) -> None:
    """An idle machine takes an operation in doubt and sends once more under the same reference."""
    row = state.row
    if row is None or row.state is not State.IN_DOUBT or not state.budget.resends:
        return
    tried = spend(state, "resends")
    if world.has("resend without a write"):
        if world.setup.dedupes:
            begun = doing(tried, index, PastGate(Send(row.attempt, row.sends + 1, row.refusals)))
            actions.append((f"m{index} decides to send again", False, begun))
        return
    record = world.decision(
        row,
        Kind.RESEND,
        number_of(index),
        given_up=state.budget.give_ups,
        may_resend=world.setup.dedupes,
    ).record
    if record is not None:
        _advance(world, tried, index, Write(row, record), "writes a resend", actions, progress=False)


def idle(world: World, state: Situation, index: int, what: Doing, actions: Actions) -> None:
    """A machine with nothing in hand takes a call or an operation in doubt."""
    call(world, state, index, what, actions)
    resend(world, state, index, actions)


def settle_answer(world: World, state: Situation, index: int, unsure: Unsure, actions: Actions) -> None:
    """A lost answer is settled by repeating the same write, and only then by the row."""
    if world.has("read instead of repeat"):
        after, label = state, "reads the row"
    else:
        after, label = world.apply(state, unsure.write)[0], "repeats its write"
    if unsure.report is None:
        following = _go_on(world, after, index, unsure.write, reread=True)
    elif world.mine(after.row, unsure.write):
        following = _told(world, after, index, unsure.report)
    else:
        following = doing(after, index, unsure.report)
    actions.append((f"m{index} {label}", True, following))
    if state.budget.give_ups and unsure.report is None:
        given_up = doing(spend(state, "give_ups"), index, Idle())
        actions.append((f"m{index} can't reach the store and gives up", False, given_up))


def gate(world: World, state: Situation, index: int, at: AtGate, actions: Actions) -> None:
    """The last check before the first byte."""
    send = at.send
    in_time = phase_of(state, send.attempt, send.number) == 0
    if in_time or at.deadline_moved or world.has("no send deadline"):
        if world.setup.pause_after_gate:
            actions.append((f"m{index} passes the gate", True, doing(state, index, PastGate(send))))
        else:
            actions.append((f"m{index} sends {_said(send)}", True, _depart(state, index, send)))
        if state.budget.not_sent:
            refused = doing(spend(state, "not_sent"), index, Reporting(Kind.REPORT_NOT_SENT, send))
            actions.append((f"m{index} cannot connect", False, refused))
    else:
        late = doing(state, index, Reporting(Kind.REPORT_NOT_SENT, send))
        actions.append((f"m{index} is past its deadline: not sent", True, late))


def past_gate(world: World, state: Situation, index: int, past: PastGate, actions: Actions) -> None:
    """The first byte leaves after a pause that nobody can see."""
    departed = _depart(state, index, past.send)
    actions.append((f"m{index} sends {_said(past.send)} after a pause", True, departed))


def _depart(state: Situation, index: int, send: Send) -> Situation:
    covered = phase_of(state, send.attempt, send.number) == 0
    messages = tuple(sorted((*state.messages, Message(send, index, covered))))
    return doing(change(state, messages=messages), index, Waiting(send))


def _said(send: Send) -> str:
    return f"reference {send.reference} (attempt {send.attempt}, send {send.number})"


def wait(world: World, state: Situation, index: int, waiting: Waiting, actions: Actions) -> None:
    """The answer may take too long."""
    if not world.setup.never_returns:
        unknown = doing(state, index, Reporting(Kind.REPORT_UNKNOWN, waiting.send))
        actions.append((f"m{index} gives up waiting", True, unknown))


def report(world: World, state: Situation, index: int, reporting: Reporting, actions: Actions) -> None:
    """Record how the send ended, judged from the row as it is now."""
    row = state.row
    if row is None:
        _record_after_effect(world, state, index, reporting, actions)
        return
    record = world.decision(
        row,
        reporting.kind,
        number_of(index),
        attempt=reporting.send.attempt,
        send=reporting.send.number,
        binds_refusals=world.trusts_refusals(),
    ).record
    label = f"says {reporting.kind}"
    if record is None:
        actions.append((f"m{index} {label}: nothing to write", True, _told(world, state, index, reporting)))
        return

    def then(after: Situation, won: bool) -> Situation:
        return _told(world, after, index, reporting)

    issue(world, state, index, Write(row, record), then, label, actions, report=reporting)


def _told(world: World, state: Situation, index: int, reporting: Reporting) -> Situation:
    """Answer the client from the row after the write, never from what memory believed."""
    if reporting.kind is Kind.REPORT_APPLIED and state.row is not None and not state.heard_applied_at:
        state = change(state, heard_applied_at=(state.row.attempt, state.row.sends))
    if world.has("told from memory"):
        if reporting.kind is Kind.REPORT_APPLIED:
            return doing(change(state, told_applied=True), index, Idle())
        if reporting.kind in (Kind.REPORT_DECLINED, Kind.REPORT_NOT_SENT):
            told = max(state.told_failed, reporting.send.attempt)
            return doing(change(state, told_failed=told), index, Idle())
    return answer(state, index)


def _record_after_effect(
    world: World, state: Situation, index: int, reporting: Reporting, actions: Actions
) -> None:
    """Only where the effect came before the state: the row is made afterwards."""
    started = world.claim(number_of(index), 0).record
    record = world.decision(started, reporting.kind, number_of(index), attempt=1, send=1).record
    assert record is not None
    after, _ = world.apply(state, Write(None, record))
    actions.append((f"m{index} records after the effect", True, doing(tell(after, record), index, Idle())))


STEPS: dict[type, Callable[..., None]] = {
    Idle: idle,
    Unsure: settle_answer,
    Seen: try_seen,
    AtGate: gate,
    PastGate: past_gate,
    Waiting: wait,
    Reporting: report,
}
