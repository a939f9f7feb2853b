"""The store in memory: the reference model of every other one, and the twin for simulations.

Everything is lost with the process. Tests can make a write be done with its answer lost, be lost
itself, be refused, or be held back and done later; and they can let a machine vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, TypeVar

import msgspec

from nonbis.core.ids import MACHINE_MAX, format_id, machine_of
from nonbis.core.messages import Record, State
from nonbis.core.names import STORE_KEY_BYTES
from nonbis.core.policy import Agreement
from nonbis.errors import AnswerLost, MachineLost, StoreError, StoreUnavailable
from nonbis.ports import (
    Advance,
    Advanced,
    Beat,
    Claim,
    Claimed,
    Entropy,
    JournalEntry,
    MachineRow,
    MachineState,
    Selection,
    Stored,
    Verdict,
)

Answer = TypeVar("Answer")
_replace = msgspec.structs.replace


class Fault(Enum):
    """What happens to a write."""

    NONE = auto()
    DONE_ANSWER_LOST = auto()
    NOT_DONE_ANSWER_LOST = auto()
    UNAVAILABLE = auto()
    HELD_BACK = auto()


class MemoryStore:
    """Rows in dictionaries; see ``ports.Store`` for what each method does.

    Attributes:
        fault: asked before each write with the method's name and its arguments; None: no faults.
        held: writes that were held back; ``release`` does them.
    """

    def __init__(self, *, entropy: Entropy) -> None:
        self.fault: Callable[[str, tuple[Any, ...]], Fault] | None = None
        self.held: list[Callable[[], Any]] = []
        self._key = entropy.token(STORE_KEY_BYTES)
        self._rows: dict[bytes, Stored] = {}
        self._digests: dict[int, bytes] = {}
        self._attention: set[int] = set()
        self._journal: dict[int, list[JournalEntry]] = {}
        self._machines: dict[int, MachineRow] = {}
        self._beats: dict[int, tuple[tuple[int, ...], Beat]] = {}
        self._vanished: set[int] = set()
        self._age_ms = 0
        self._agreement: Agreement | None = None

    # -- what it is

    @property
    def url(self) -> str:
        """Where it is."""
        return "memory:"

    @property
    def key(self) -> bytes:
        """The secret under which names are digested: 32 bytes."""
        return self._key

    @property
    def shared(self) -> bool:
        """No other process can have it."""
        return False

    # -- operations

    async def claim(self, claims: Sequence[Claim]) -> list[Claimed]:
        """Insert each row whose digest is not there; the answers are in the order of the claims."""
        return self._write("claim", self._claim_all, tuple(claims))

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        """Write each row that still bears the expected stamp, or bears the new one already."""
        return self._write("advance", self._advance_all, tuple(advances))

    async def note(self, entries: Sequence[JournalEntry]) -> None:
        """Write journal rows alone; the same entry twice is one."""
        self._write("note", self._note_all, tuple(entries))

    async def find(self, digest: bytes) -> Stored | None:
        """The operation of this digest."""
        return self._rows.get(digest)

    async def show(self, number: int) -> Stored | None:
        """The operation with this id."""
        digest = self._digests.get(number)
        return None if digest is None else self._rows[digest]

    async def select(self, selection: Selection) -> list[Stored]:
        """Operations in ascending id order."""
        found = [stored for stored in self._in_order() if _is_selected(stored, selection)]
        if selection.newest_first:
            return found[max(0, len(found) - selection.limit) :]
        return found[: selection.limit]

    async def open_of(self, machine: int, from_id: int) -> list[Record]:
        """Accepted and started rows whose id is of this machine, from this id on."""
        records = (stored.record for stored in self._in_order())
        return [
            record
            for record in records
            if machine_of(record.id) == machine
            and record.id >= from_id
            and record.state in (State.ACCEPTED, State.STARTED)
        ]

    async def attention(self, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """Rows of the side table, by id."""
        numbers = sorted(number for number in self._attention if number > after)
        return [self._rows[self._digests[number]].record for number in numbers[:limit]]

    async def journal(self, number: int) -> list[JournalEntry]:
        """The journal of one operation, oldest first."""
        return list(self._journal.get(number, ()))

    # -- machines

    async def register(self, *, node: str, pid: int, kind: str, at_ms: int) -> MachineRow:
        """A new living machine with the next number."""
        return self._write("register", self._register, node, pid, kind, at_ms)

    async def beat(
        self,
        machine: int,
        count: int,
        *,
        oldest_open: int,
        lowest_in_flight: int,
        seen_age_ms: int,
        elapsed_ms: int,
        at_ms: int,
    ) -> Beat:
        """Count one beat; the same call again gets the same answer."""
        arguments = (count, oldest_open, lowest_in_flight, seen_age_ms, elapsed_ms, at_ms)
        return self._write("beat", self._beat, machine, arguments)

    async def lose(self, machine: int, count: int, *, at_ms: int) -> bool:
        """Declare a living machine lost, if its beat still is ``count``. True if it is lost now."""
        return self._write("lose", self._lose, machine, count, at_ms)

    async def end(self, machine: int, *, at_ms: int) -> None:
        """Mark my own machine as ended; nothing happens if it was declared lost."""
        self._write("end", self._end, machine, at_ms)

    async def vanished(self) -> list[MachineRow]:
        """Living machines that a test let vanish."""
        return [row for row in await self.machines(living=True) if row.id in self._vanished]

    async def machines(self, *, living: bool | None = None) -> list[MachineRow]:
        """All machines, or those that are (not) living, by number."""
        rows = [self._machines[number] for number in sorted(self._machines)]
        return [row for row in rows if living is None or (row.state is MachineState.LIVING) == living]

    async def agreement(self) -> Agreement | None:
        """What all processes on this store have agreed on; None for a new store."""
        return self._agreement

    async def agree(self, before: Agreement | None, after: Agreement) -> bool:
        """Replace the agreement if it still is ``before``; also true if ``after`` is there already."""
        return self._write("agree", self._agree, before, after)

    async def age_ms(self) -> int:
        """The store's age as written by the last beat of any machine."""
        return self._age_ms

    async def doctor(self) -> dict[str, str]:
        """What an operator should know about this store."""
        return {"memory": "everything is lost with the process", "operations": str(len(self._rows))}

    async def close(self) -> None:
        """Nothing to let go of."""

    # -- faults

    def vanish(self, machine: int) -> None:
        """Let the process of a machine be known to be gone."""
        self._vanished.add(machine)

    def release(self) -> None:
        """Do the writes that were held back, in their order; nobody hears their answers."""
        held, self.held = self.held, []
        for work in held:
            work()

    def _write(self, name: str, work: Callable[..., Answer], *arguments: Any) -> Answer:
        fault = Fault.NONE if self.fault is None else self.fault(name, arguments)
        if fault is Fault.UNAVAILABLE:
            raise StoreUnavailable(f"{name}: the store was told to be unavailable")
        if fault is Fault.HELD_BACK:
            self.held.append(lambda: work(*arguments))
        if fault in (Fault.HELD_BACK, Fault.NOT_DONE_ANSWER_LOST):
            raise AnswerLost(f"{name}: the answer was lost")
        answer = work(*arguments)
        if fault is Fault.DONE_ANSWER_LOST:
            raise AnswerLost(f"{name}: the answer was lost")
        return answer

    # -- the writes

    def _claim_all(self, claims: tuple[Claim, ...]) -> list[Claimed]:
        self._refuse_ids_in_use(claims)
        return [self._claim(item) for item in claims]

    def _refuse_ids_in_use(self, claims: tuple[Claim, ...]) -> None:
        digests = dict(self._digests)
        for item in claims:
            number = item.record.id
            if digests.setdefault(number, item.record.digest) != item.record.digest:
                raise StoreError(f"the operation id {format_id(number)} was drawn twice")
            if (there := self._rows.get(item.record.digest)) is not None:
                _refuse_stamp_twice(there.record, item.record)

    def _claim(self, item: Claim) -> Claimed:
        digest = item.record.digest
        there = self._rows.get(digest)
        if there is not None:
            return Claimed(None if there.record.stamp == item.record.stamp else there)
        self._digests[item.record.id] = digest
        self._rows[digest] = Stored(
            record=item.record, tenant=item.tenant, scope=item.scope, request=item.request, outcome=None
        )
        self._write_sides(item)
        return Claimed(None)

    def _advance_all(self, advances: tuple[Advance, ...]) -> list[Advanced]:
        return [self._advance(item) for item in advances]

    def _advance(self, item: Advance) -> Advanced:
        there = self._rows.get(item.record.digest)
        if there is None:
            return Advanced(Verdict.UNSEEN, None)
        _refuse_stamp_twice(there.record, item.record)
        if there.record.stamp == item.record.stamp:
            return Advanced(Verdict.WON, there.record)
        if there.record.stamp != item.expected or there.record.id != item.record.id:
            return Advanced(Verdict.LOST, there.record)
        outcome = there.outcome if item.outcome is None else item.outcome
        self._rows[item.record.digest] = _replace(there, record=item.record, outcome=outcome)
        self._write_sides(item)
        return Advanced(Verdict.WON, item.record)

    def _write_sides(self, item: Claim | Advance) -> None:
        if item.attention:
            self._attention.add(item.record.id)
        elif item.attention is False:
            self._attention.discard(item.record.id)
        if item.journal is not None:
            self._note_all((item.journal,))

    def _note_all(self, entries: tuple[JournalEntry, ...]) -> None:
        for entry in entries:
            written = self._journal.setdefault(entry.id, [])
            if entry not in written:
                written.append(entry)

    def _in_order(self) -> list[Stored]:
        return [self._rows[self._digests[number]] for number in sorted(self._digests)]

    def _register(self, node: str, pid: int, kind: str, at_ms: int) -> MachineRow:
        number = len(self._machines) + 1
        if number > MACHINE_MAX:
            raise StoreError(f"the store has given out all {MACHINE_MAX} machine numbers")
        self._machines[number] = MachineRow(
            id=number,
            node=node,
            pid=pid,
            kind=kind,
            state=MachineState.LIVING,
            beat=0,
            oldest_open=0,
            lowest_in_flight=0,
            registered_at_ms=at_ms,
            changed_at_ms=at_ms,
        )
        return self._machines[number]

    def _beat(self, machine: int, arguments: tuple[int, ...]) -> Beat:
        count, oldest_open, lowest_in_flight, seen_age_ms, elapsed_ms, at_ms = arguments
        row = self._machines.get(machine)
        if row is None or row.state is not MachineState.LIVING:
            raise MachineLost(f"machine {machine} was declared lost or has ended")
        if row.beat != count:
            if self._beats.get(machine, (None,))[0] == arguments:
                return self._beats[machine][1]
            raise MachineLost(f"another one beats for machine {machine}")
        if self._age_ms == seen_age_ms:
            self._age_ms += elapsed_ms
        self._machines[machine] = _replace(
            row,
            beat=count + 1,
            oldest_open=oldest_open,
            lowest_in_flight=lowest_in_flight,
            changed_at_ms=at_ms,
        )
        self._beats[machine] = (arguments, Beat(count + 1, self._age_ms))
        return self._beats[machine][1]

    def _lose(self, machine: int, count: int, at_ms: int) -> bool:
        row = self._machines.get(machine)
        if row is None:
            return False
        if row.state is MachineState.LIVING and row.beat == count:
            row = self._machines[machine] = _replace(row, state=MachineState.LOST, changed_at_ms=at_ms)
        return row.state is MachineState.LOST

    def _end(self, machine: int, at_ms: int) -> None:
        row = self._machines.get(machine)
        if row is not None and row.state is MachineState.LIVING:
            self._machines[machine] = _replace(row, state=MachineState.ENDED, changed_at_ms=at_ms)

    def _agree(self, before: Agreement | None, after: Agreement) -> bool:
        if self._agreement == after:
            return True
        if self._agreement != before:
            return False
        self._agreement = after
        return True


def _refuse_stamp_twice(there: Record, mine: Record) -> None:
    if there.stamp == mine.stamp and there != mine:
        raise StoreError(f"the stamp {format_id(mine.stamp)} was drawn twice")


def _is_selected(stored: Stored, selection: Selection) -> bool:
    record = stored.record
    return (
        selection.tenant in (None, stored.tenant)
        and selection.scope in (None, stored.scope)
        and selection.machine in (None, machine_of(record.id))
        and selection.state in (None, record.state)
        and (selection.after is None or record.id > selection.after)
        and (selection.before is None or record.id < selection.before)
    )
