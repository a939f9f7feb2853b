"""What operators ask of a store: which operations there are, what became of one, and who is at work.

Reads alone; nothing here changes a row. A list may be read while others write: each element is true of
one moment, the list as a whole need not be.
"""

from __future__ import annotations

from typing import Any

import msgspec

from nonbis.core import windows
from nonbis.core.ids import format_id, machine_of, pack_id
from nonbis.core.messages import Reason, Record, State
from nonbis.core.names import Digester, check_name, reference
from nonbis.core.payments import SCOPE, Receipt, Transfer, decode_outcome, decode_transfer, timestamp
from nonbis.core.policy import Agreement, Policy
from nonbis.ports import JournalEntry, MachineRow, MachineState, Selection, Store, Stored

LIST_LIMIT = 100
LIST_LIMIT_MAX = 10_000
AROUND_SPAN = 10
_PAGE = 1000
_OPEN = (State.ACCEPTED, State.STARTED)


class Element(msgspec.Struct, frozen=True, kw_only=True):
    """One operation in a list. The order of the members is that of the printed JSON.

    Attributes:
        id: the operation id, ``machine:sequence``.
        machine: the machine in the id, which claimed the name; see ``Detail.owner`` for whose it is now.
        node: the host of that machine; None if the store does not know the machine.
        reference: the rail's idempotency key under which the last send went, to look for on its side.
        amount, currency, destination: of the payment; None where the operation is none.
        started_at: begin of the last send; None if nothing was ever sent.
        settle_after: from then on "failed" may be said without force, if the store's age agrees; None
            where nothing was sent or the store does not know the rail.
        stamp: of the last write; ``resolve`` takes it to say which row was seen.
    """

    id: str
    state: str
    reason: str | None
    attempt: int
    sends: int
    machine: int
    node: str | None
    rail: str
    account: str
    reference: str
    amount: int | None
    currency: str | None
    destination: str | None
    created_at: str
    started_at: str | None
    changed_at: str
    settle_after: str | None
    contradicted: bool
    stamp: int


class JournalLine(msgspec.Struct, frozen=True, kw_only=True):
    """One thing out of the ordinary that happened to an operation. ``machine`` wrote it."""

    at: str
    kind: str
    state: str
    reason: str | None
    attempt: int
    machine: int
    node: str | None
    rule: str
    who: str | None
    because: str | None
    stamp: int


class Detail(Element, frozen=True, kw_only=True):
    """One operation with all that is kept of it.

    Attributes:
        owner: the machine that is responsible for it now.
        owner_state: living, lost or ended; a process that is known to be gone counts as lost.
        open_sends: sends of the present attempt whose fate is not known.
        refusals: how often the rail has refused under this name.
        description, metadata: further members of the payment.
        receipt: what the rail said of the transfer that it made, or None.
        by_itself: what the service does with its rail while the row stands so, without anybody: it
            ``asks``, or it ``resends`` under the same reference (as long as the rail remembers it, and
            asks then if it can); None: nothing.
        journal: what was out of the ordinary, oldest first.
    """

    owner: int
    owner_state: str | None
    open_sends: int
    by_itself: str | None
    refusals: int
    tenant: str
    scope: str
    description: str | None
    metadata: dict[str, str] | None
    receipt: Receipt | None
    journal: list[JournalLine]


class MachineElement(msgspec.Struct, frozen=True, kw_only=True):
    """One machine in a list. ``state`` is ``lost`` also if its process is known to be gone.

    Attributes:
        oldest_open: no operation of its own below this id is accepted or started; None before its
            first beat.
        changed_at: its last beat, or the moment at which it was lost or ended.
    """

    id: int
    node: str
    pid: int
    kind: str
    state: str
    beat: int
    oldest_open: str | None
    registered_at: str
    changed_at: str


class Surroundings:
    """What the elements of one answer have in common: the machines and the agreement."""

    def __init__(
        self, machines: list[MachineRow], vanished: list[MachineRow], agreement: Agreement | None
    ) -> None:
        gone = {row.id for row in vanished}
        self.agreement = agreement
        self.machines = {
            row.id: msgspec.structs.replace(row, state=MachineState.LOST) if row.id in gone else row
            for row in machines
        }

    @classmethod
    async def read(cls, store: Store) -> Surroundings:
        """As they are now. Raises StoreError."""
        return cls(await store.machines(), await store.vanished(), await store.agreement())

    def is_gone(self, machine: int) -> bool:
        """Whether a machine can't act any more. One that is not known here registered after the reading."""
        row = self.machines.get(machine)
        return row is not None and row.state is not MachineState.LIVING

    def gone(self) -> list[MachineRow]:
        """The machines that can't act any more, by number."""
        return [row for row in self.machines.values() if self.is_gone(row.id)]

    def node(self, machine: int) -> str | None:
        """The host of a machine, or None."""
        row = self.machines.get(machine)
        return None if row is None else row.node

    def settle_seconds(self, record: Record) -> float | None:
        """From the last send until "failed" may be said; None if the rail is not known here."""
        facts = self.agreement.rail(record.rail, record.account) if self.agreement else None
        if self.agreement is None or facts is None:
            return None
        return windows.settle_seconds(self.agreement.send_deadline_seconds, facts)

    def settle_after(self, record: Record) -> str | None:
        """The wall clock's end of the settle window as RFC 3339, or None."""
        seconds = self.settle_seconds(record)
        moment = None if seconds is None else windows.settle_after_ms(record, seconds)
        return None if moment is None else timestamp(moment)

    def by_itself(self, record: Record) -> str | None:
        """What the service does about the row with its rail; None: nothing, or its rail is not known."""
        facts = self.agreement.rail(record.rail, record.account) if self.agreement else None
        if self.agreement is None or facts is None or record.contradicted:
            return None
        if record.state in (State.STARTED, State.IN_DOUBT):
            remembers = facts.dedupes(self.agreement.send_deadline_seconds)
            if remembers and record.sends <= Policy().resends_max:
                return "resends"
        elif record.reason is not Reason.SETTLED or not record.open_sends:
            return None
        return "asks" if facts.finds else None


def transfer_of(stored: Stored) -> Transfer | None:
    """The payment that a row is about; None for a cancelled name and for other operations."""
    return decode_transfer(stored.request) if stored.scope == SCOPE and stored.request else None


def last_reference(record: Record) -> str:
    """The reference of the last send. Once it is refused, the row counts for the next one already."""
    refused = record.reason is Reason.DECLINED or record.refusals == record.attempt
    return reference(record.digest, record.refusals - 1 if refused else record.refusals)


def _members(stored: Stored, around: Surroundings) -> dict[str, Any]:
    record, transfer = stored.record, transfer_of(stored)
    machine = machine_of(record.id)
    return {
        "id": format_id(record.id),
        "state": record.state.value,
        "reason": record.reason.value if record.reason else None,
        "attempt": record.attempt,
        "sends": record.sends,
        "machine": machine,
        "node": around.node(machine),
        "rail": record.rail,
        "account": record.account,
        "reference": last_reference(record),
        "amount": transfer.amount if transfer else None,
        "currency": transfer.currency if transfer else None,
        "destination": transfer.destination if transfer else None,
        "created_at": timestamp(record.created.wall_ms),
        "started_at": timestamp(record.started.wall_ms) if record.started else None,
        "changed_at": timestamp(record.changed.wall_ms),
        "settle_after": around.settle_after(record),
        "contradicted": record.contradicted,
        "stamp": record.stamp,
    }


def element(stored: Stored, around: Surroundings) -> Element:
    """A row as it stands in lists."""
    return Element(**_members(stored, around))


def detail(stored: Stored, journal: list[JournalEntry], around: Surroundings) -> Detail:
    """A row with all that is kept of it."""
    record, transfer = stored.record, transfer_of(stored)
    owner = around.machines.get(record.owner)
    outcome = decode_outcome(stored.outcome) if stored.outcome is not None else None
    more: dict[str, Any] = {
        "owner": record.owner,
        "owner_state": owner.state.value if owner else None,
        "open_sends": record.open_sends.bit_count(),
        "by_itself": around.by_itself(record),
        "refusals": record.refusals,
        "tenant": stored.tenant,
        "scope": stored.scope,
        "description": transfer.description if transfer else None,
        "metadata": transfer.metadata if transfer else None,
        "receipt": outcome.receipt if outcome else None,
        "journal": [_journal_line(entry, around) for entry in journal],
    }
    return Detail(**_members(stored, around), **more)


def _journal_line(entry: JournalEntry, around: Surroundings) -> JournalLine:
    return JournalLine(
        at=timestamp(entry.at_ms),
        kind=entry.kind.value,
        state=entry.state.value,
        reason=entry.reason or None,
        attempt=entry.attempt,
        machine=entry.machine,
        node=around.node(entry.machine),
        rule=entry.rule,
        who=entry.who or None,
        because=entry.because or None,
        stamp=entry.stamp,
    )


# -- the questions -------------------------------------------------------------------------------------


async def list_operations(
    store: Store, *, machine: int | None = None, state: State | None = None, last: int = LIST_LIMIT
) -> list[Element]:
    """The last operations in ascending id order, at most LIST_LIMIT_MAX. Raises StoreError."""
    selection = Selection(machine=machine, state=state, limit=min(last, LIST_LIMIT_MAX), newest_first=True)
    around = await Surroundings.read(store)
    return [element(stored, around) for stored in await store.select(selection)]


async def around_operation(store: Store, number: int, *, span: int = AROUND_SPAN) -> list[Element]:
    """The operation with this id and up to ``span`` on either side, all of the same machine.

    The number need not be an operation's (ids and stamps come from one sequence): then only its
    neighbours are listed. Raises StoreError.
    """
    machine = machine_of(number)
    span = min(span, LIST_LIMIT_MAX)
    before = Selection(machine=machine, before=number, limit=span, newest_first=True)
    after = Selection(machine=machine, after=number, limit=span)
    middle = await store.show(number)
    found = [
        *await store.select(before),
        *([middle] if middle is not None else []),
        *await store.select(after),
    ]
    around = await Surroundings.read(store)
    return [element(stored, around) for stored in found]


async def by_id(store: Store, number: int) -> Detail | None:
    """The operation with this id, or None. Raises StoreError."""
    return await _in_detail(store, await store.show(number))


async def by_name(store: Store, name: str, *, tenant: str = "", scope: str = SCOPE) -> Detail | None:
    """The operation that a client calls by this name, or None. Raises NameMalformed, StoreError."""
    digest = Digester(store.key, tenant, scope).digest(check_name(name))
    return await _in_detail(store, await store.find(digest))


async def _in_detail(store: Store, stored: Stored | None) -> Detail | None:
    if stored is None:
        return None
    journal = await store.journal(stored.record.id)
    return detail(stored, journal, await Surroundings.read(store))


async def in_doubt(store: Store) -> list[Element]:
    """What is not settled and won't be by whoever began it: contradicted first, then by id.

    In doubt, contradicted, and accepted or started under a machine that can't act any more.
    Raises StoreError.
    """
    around = await Surroundings.read(store)
    found = []
    for number in await _suspects(store, around):
        stored = await store.show(number)
        if stored is not None and is_unsettled(stored.record, around):
            found.append(stored)
    found.sort(key=lambda stored: (not stored.record.contradicted, stored.record.id))
    return [element(stored, around) for stored in found]


def is_unsettled(record: Record, around: Surroundings) -> bool:
    """Whether the row waits for someone else than the process that began it."""
    if record.contradicted or record.state is State.IN_DOUBT:
        return True
    return record.state in _OPEN and around.is_gone(record.owner)


async def _suspects(store: Store, around: Surroundings) -> list[int]:
    """Ids of rows to look at, in no order.

    The open rows are read before the side table: a row that goes in doubt in between is then seen
    twice, and not in neither.
    """
    numbers: set[int] = set()
    for row in around.gone():
        first = max(row.oldest_open, pack_id(row.id, 0))
        numbers.update(record.id for record in await store.open_of(row.id, first))
    after = 0
    while page := await store.attention(after=after, limit=_PAGE):
        numbers.update(record.id for record in page)
        after = page[-1].id
    return list(numbers)


async def list_machines(store: Store, *, living: bool = False) -> list[MachineElement]:
    """All machines, or the living ones, by number. Raises StoreError."""
    around = await Surroundings.read(store)
    return [_machine(row) for row in around.machines.values() if not (living and around.is_gone(row.id))]


def _machine(row: MachineRow) -> MachineElement:
    return MachineElement(
        id=row.id,
        node=row.node,
        pid=row.pid,
        kind=row.kind,
        state=row.state.value,
        beat=row.beat,
        oldest_open=format_id(row.oldest_open) if row.oldest_open else None,
        registered_at=timestamp(row.registered_at_ms),
        changed_at=timestamp(row.changed_at_ms),
    )
