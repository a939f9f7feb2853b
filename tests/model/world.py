"""What the model is made of: the store's one row, machines, messages, the rail's memory, and budgets.

Only what surrounds the core is modelled. Which row follows from which, and under which conditions, is
asked of ``nonbis.core.machine.decide`` each time; nothing of it is repeated here.

Time has no numbers. A send is in phase 0 while it may still begin, 1 after its deadline, 2 after the
settle window; phases pass in the order in which sends were written. A window can pass only when no
message that began before its deadline is still under way: exactly this is the assumption on a rail.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import msgspec

from nonbis.core.ids import pack_id, sequence_of
from nonbis.core.machine import decide, situation
from nonbis.core.messages import Decision, Event, Kind, Moment, Record, State
from tests.model.explorer import Action

NAME_DIGEST = b"one name's digest"[:16]
NOW = Moment(1, 1)
SWEEPER, PERSON = 7, 6
"""Writers beside the machines, which are numbered from 1."""
_STAMPS_PER_REVISION = 8

Actions = list[Action["Situation"]]


class Budget(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """How often each fault, and each thing that somebody outside may want, can still happen."""

    calls: int = 2
    crashes: int = 0
    false_losses: int = 0
    lost_answers: int = 0
    late_commits: int = 0
    declines: int = 0
    not_sent: int = 0
    lost_messages: int = 0
    resends: int = 0
    forces: int = 0
    cancels: int = 0
    handler_ends: int = 0
    questions: int = 0
    give_ups: int = 0


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """One run: how many machines, what kind of handler and rail, which budgets, which mistakes.

    Attributes:
        bounded: the handler marks its effect boundary, so a claim is only accepted.
        pause_after_gate: a process may stop between its last check and the first byte.
        never_returns: a send without an answer waits for ever.
        overdue: anyone who sees a send past its deadline and time-out says so.
        dedupes, binds_refusals, finds, honours_deadline: what the rail does.
        mistakes: names of planted mistakes, see ``plants``.
    """

    machines: int = 2
    attempts_max: int = 3
    bounded: bool = False
    pause_after_gate: bool = False
    never_returns: bool = False
    overdue: bool = False
    dedupes: bool = False
    binds_refusals: bool = False
    finds: bool = False
    honours_deadline: bool = False
    mistakes: frozenset[str] = frozenset()
    budget: Budget = Budget()


class Write(msgspec.Struct, frozen=True, cache_hash=True):
    """A claim (no base) or an advance: the row that it was decided from, and the row to write."""

    base: Record | None
    record: Record


class Send(msgspec.Struct, frozen=True, cache_hash=True, order=True):
    """One send: its attempt, its number in the attempt, and the rail's reference."""

    attempt: int
    number: int
    reference: int


class Message(msgspec.Struct, frozen=True, cache_hash=True, order=True):
    """A request under way to the rail. ``covered``: it began before its deadline."""

    send: Send
    machine: int
    covered: bool


class Idle(msgspec.Struct, frozen=True, cache_hash=True):
    """The machine has nothing in hand."""


class Unsure(msgspec.Struct, frozen=True, cache_hash=True):
    """The answer to this write was lost. ``report`` is what it was to report, if it was a report."""

    write: Write
    report: Reporting | None = None


class Seen(msgspec.Struct, frozen=True, cache_hash=True):
    """It has read this row, perhaps a while ago, and will now try this."""

    kind: Kind
    row: Record


class AtGate(msgspec.Struct, frozen=True, cache_hash=True):
    """Its write is durable; the last check before the first byte comes next."""

    send: Send
    deadline_moved: bool = False


class PastGate(msgspec.Struct, frozen=True, cache_hash=True):
    """It has passed the check and stands still before the first byte."""

    send: Send


class Waiting(msgspec.Struct, frozen=True, cache_hash=True):
    """The message has left."""

    send: Send


class Reporting(msgspec.Struct, frozen=True, cache_hash=True):
    """It knows how its send ended, or that it does not know."""

    kind: Kind
    send: Send


Doing = Idle | Unsure | Seen | AtGate | PastGate | Waiting | Reporting


class Machine(msgspec.Struct, frozen=True, cache_hash=True):
    """One process. ``lost`` is what the store says of it, which may be false."""

    alive: bool = True
    lost: bool = False
    doing: Doing = Idle()


class Question(msgspec.Struct, frozen=True, cache_hash=True):
    """What the rail answered or a person saw, to be used later: under which stamp, and when."""

    kind: Kind
    seen: int
    attempt: int
    may_settle: bool


class Situation(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """A state of the whole model.

    Attributes:
        effects: how many effects each attempt had, by the number of the attempt.
        told_applied, told_failed: what clients heard; up to which attempt they heard "failed".
        heard_applied_at: the attempt and send of the row when a send was first reported applied.
        cancelled: somebody was told that the name is cancelled.
        late: writes under way in the store, of which nobody has an answer.
    """

    row: Record | None
    machines: tuple[Machine, ...]
    phases: tuple[tuple[int, int, int], ...] = ()
    messages: tuple[Message, ...] = ()
    late: tuple[Write, ...] = ()
    memory: tuple[tuple[int, Kind], ...] = ()
    effects: tuple[int, ...]
    told_applied: bool = False
    told_failed: int = 0
    heard_applied_at: tuple[int, int] | None = None
    cancelled: bool = False
    question: Question | None = None
    budget: Budget


change = msgspec.structs.replace


@cache
def _poorer(budget: Budget, name: str) -> Budget:
    return change(budget, **{name: getattr(budget, name) - 1})


def spend(state: Situation, name: str) -> Situation:
    """The state with one less of this budget."""
    return change(state, budget=_poorer(state.budget, name))


def with_machine(state: Situation, index: int, machine: Machine) -> Situation:
    """The state with this machine in its place."""
    machines = state.machines
    return change(state, machines=(*machines[:index], machine, *machines[index + 1 :]))


def doing(state: Situation, index: int, what: Doing) -> Situation:
    """The state in which this machine does something else."""
    machine = state.machines[index]
    return with_machine(state, index, Machine(machine.alive, machine.lost, what))


def number_of(index: int) -> int:
    """The machine number of a position."""
    return index + 1


def index_of(owner: int) -> int:
    """The position of a machine number."""
    return owner - 1


def living(state: Situation, owner: int) -> bool:
    """Whether the store takes this machine for living; people's machines are."""
    index = index_of(owner)
    return index >= len(state.machines) or not state.machines[index].lost


class World:
    """A setup, with the core's decisions remembered, and a note of every rule that was used."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.decide: Callable[[Record | None, Event], Decision] = lru_cache(maxsize=None)(self._asked)
        self.used: set[tuple[str, str]] = set()

    def _asked(self, record: Record | None, event: Event) -> Decision:
        decision = decide(record, event)
        if decision.rule:
            self.used.add((situation(record), decision.rule))
        return decision

    def initial(self) -> Situation:
        """No row yet, all machines alive and idle."""
        return Situation(
            row=None,
            machines=(Machine(),) * self.setup.machines,
            effects=(0,) * (self.setup.attempts_max + 1),
            budget=self.setup.budget,
        )

    def has(self, mistake: str) -> bool:
        """Whether this mistake is planted."""
        return mistake in self.setup.mistakes

    def trusts_refusals(self) -> bool:
        """Whether the engine takes a refusal as holding for the reference."""
        return self.setup.binds_refusals or self.has("refusals taken as bound")

    def decision(
        self, row: Record | None, kind: Kind, me: int, *, given_up: int = 0, **facts: Any
    ) -> Decision:
        """What the core says about an event, with a stamp that no other write has."""
        facts.setdefault("seen", 0 if row is None else row.stamp)
        stamp = _fresh(row, me, given_up)
        return self.decide(row, Event(kind=kind, me=me, stamp=stamp, now=NOW, **facts))

    def claim(self, me: int, calls_left: int) -> Write:
        """The write of a call that found nothing in memory."""
        stamp = pack_id(me, calls_left)
        event = Event(
            kind=Kind.CLAIM, me=me, stamp=stamp, now=NOW, digest=NAME_DIGEST, bounded=self.setup.bounded
        )
        record = self.decide(None, event).record
        assert record is not None
        return Write(None, record)

    def apply(self, state: Situation, write: Write) -> tuple[Situation, bool]:
        """The store's side of one write: the state after it, and whether it was won."""
        if not self._admits(state.row, write.base):
            return state, False
        record = write.record
        phases = state.phases
        if record.state is State.STARTED and not any(
            phase[0] == record.attempt and phase[1] == record.sends for phase in phases
        ):
            phases = (*phases, (record.attempt, record.sends, 0))
        return change(state, row=record, phases=phases), True

    def _admits(self, row: Record | None, base: Record | None) -> bool:
        if row is None or base is None:
            return row is base
        if self.has("guarded by state and attempt"):
            return (row.state, row.attempt) == (base.state, base.attempt)
        return row.stamp == base.stamp

    def mine(self, row: Record | None, write: Write) -> bool:
        """Whether the row is as this write made it."""
        if row is None:
            return False
        if self.has("guarded by state and attempt"):
            if write.base is None:
                return row.id == write.record.id
            return (row.state, row.attempt) == (write.record.state, write.record.attempt)
        return row.stamp == write.record.stamp


def _fresh(row: Record | None, me: int, given_up: int) -> int:
    """A stamp for a write decided from ``row``.

    The number of the row's revision, the writer, and how often writes were given up: of all writes from
    one revision only one can be won, and a machine has one write in hand at a time, so no two different
    writes ever share it.
    """
    revision = 0 if row is None else sequence_of(row.stamp) // _STAMPS_PER_REVISION + 1
    return pack_id(me, revision * _STAMPS_PER_REVISION + given_up)


def phase_of(state: Situation, attempt: int, number: int) -> int:
    """0 while this send may begin, 1 after its deadline, 2 after its settle window."""
    for phase in state.phases:
        if phase[0] == attempt and phase[1] == number:
            return phase[2]
    return 0


def present_phase(state: Situation) -> int:
    """The phase of the send that the row speaks of."""
    assert state.row is not None
    return phase_of(state, state.row.attempt, state.row.sends)


def send_of(record: Record) -> Send:
    """The send that this row allows."""
    return Send(record.attempt, record.sends, record.refusals)


def answer(state: Situation, index: int) -> Situation:
    """Tell the client what the row says; the machine has nothing in hand any more."""
    return doing(tell(state, state.row), index, Idle())


def tell(state: Situation, row: Record | None) -> Situation:
    """The state in which a client has heard what this row says."""
    if row is not None and row.state is State.APPLIED:
        return change(state, told_applied=True)
    if row is not None and row.state is State.FAILED and not row.contradicted:
        return change(state, told_failed=max(state.told_failed, row.attempt))
    return state
