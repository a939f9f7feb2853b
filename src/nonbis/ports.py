"""All that touches the world: Store, Rail, Clock and Entropy. Each has a simulated twin.

A store changes operations by two writes only, ``claim`` and ``advance``; machines by ``register``,
``beat``, ``lose`` and ``end``. Every write is atomic and durable when it returns. A write that raises
AnswerLost may have happened: it is repeated as it is, with the same ids and stamps, and is then mine if
and only if the row bears my stamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from nonbis.core.messages import JournalKind, Record, State
from nonbis.core.payments import Receipt, Transfer
from nonbis.core.policy import Agreement, RailFacts

# -- what goes into a store and comes out ------------------------------------------------------------


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One thing out of the ordinary. ``who`` and ``because`` are a person's words, or ""."""

    id: int
    kind: JournalKind
    machine: int
    stamp: int
    at_ms: int
    state: State
    reason: str = ""
    attempt: int = 1
    rule: str = ""
    who: str = ""
    because: str = ""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A new row with its side row, to be inserted unless the digest is known."""

    record: Record
    tenant: str
    scope: str
    request: bytes
    attention: bool = False
    journal: JournalEntry | None = None


class Advance(msgspec.Struct, frozen=True, kw_only=True):
    """A row's next state, to be written if the row still bears ``expected``.

    Attributes:
        record: the row as it will be, with a fresh stamp.
        expected: the stamp that it was decided from.
        outcome: what is kept of the end, or None to leave what is there.
        attention: True to put the row into the side table, False to take it out, None to leave it.
    """

    record: Record
    expected: int
    outcome: bytes | None = None
    attention: bool | None = None
    journal: JournalEntry | None = None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A row with its side row as a store keeps them."""

    record: Record
    tenant: str
    scope: str
    request: bytes
    outcome: bytes | None


class Claimed(msgspec.Struct, frozen=True):
    """The answer to a claim. ``existing`` is None exactly if the row bears the claim's stamp now."""

    existing: Stored | None


class Verdict(StrEnum):
    """The answer to an advance."""

    WON = "won"
    LOST = "lost"
    UNSEEN = "unseen"


class Advanced(msgspec.Struct, frozen=True):
    """WON: the row is as I wrote it. LOST: ``record`` is the row that is there. UNSEEN: none can be read."""

    verdict: Verdict
    record: Record | None


class MachineState(StrEnum):
    """Whether a machine may still act."""

    LIVING = "living"
    LOST = "lost"
    ENDED = "ended"


class MachineRow(msgspec.Struct, frozen=True, kw_only=True):
    """One process incarnation.

    Attributes:
        beat: the count of its beats.
        oldest_open: no operation of its own below this id is accepted or started.
        lowest_in_flight: every id that it drew below this one is committed or never will be.
    """

    id: int
    node: str
    pid: int
    kind: str
    state: MachineState
    beat: int
    oldest_open: int
    lowest_in_flight: int
    registered_at_ms: int
    changed_at_ms: int


class Beat(msgspec.Struct, frozen=True):
    """The answer to a beat: the new count and the store's age in milliseconds."""

    beat: int
    age_ms: int


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which operations to list, in id order.

    ``after`` and ``before`` are exclusive bounds on the id. ``newest_first`` takes the ``limit``
    greatest ids instead of the smallest; the answer is in ascending order either way.
    """

    tenant: str | None = None
    scope: str | None = None
    machine: int | None = None
    state: State | None = None
    after: int | None = None
    before: int | None = None
    limit: int = 100
    newest_first: bool = False


class Store(Protocol):
    """Durable rows. All methods raise StoreError (see errors) when the store can't do its part."""

    @property
    def url(self) -> str:
        """Where it is, without any secret."""

    @property
    def key(self) -> bytes:
        """The secret under which names are digested: 32 bytes, made with the schema."""

    @property
    def shared(self) -> bool:
        """Whether other processes may have it open too."""

    async def claim(self, claims: Sequence[Claim]) -> list[Claimed]:
        """Insert each row whose digest is not there; the answers are in the order of the claims."""

    async def advance(self, advances: Sequence[Advance]) -> list[Advanced]:
        """Write each row that still bears the expected stamp, or bears the new one already."""

    async def note(self, entries: Sequence[JournalEntry]) -> None:
        """Write journal rows alone."""

    async def register(self, *, node: str, pid: int, kind: str, at_ms: int) -> MachineRow:
        """A new living machine with the next number of the store's counter; its beat is 0."""

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
        """Count one beat, if ``count`` was the last one and the machine is living; else MachineLost.

        The age grows by ``elapsed_ms`` if it still is ``seen_age_ms``. A beat repeated after a lost
        answer (the row has ``count + 1`` by the same call) must not be refused: the caller passes the
        same arguments again and gets the same answer.
        """

    async def lose(self, machine: int, count: int, *, at_ms: int) -> bool:
        """Declare a living machine lost, if its beat still is ``count``. True if it is lost now."""

    async def end(self, machine: int, *, at_ms: int) -> None:
        """Mark my own machine as ended; nothing happens if it was declared lost."""

    async def vanished(self) -> list[MachineRow]:
        """Living machines whose process is known to be gone without waiting for missed beats."""

    async def machines(self, *, living: bool | None = None) -> list[MachineRow]:
        """All machines, or those that are (not) living, by number."""

    async def agreement(self) -> Agreement | None:
        """What all processes on this store have agreed on; None for a new store."""

    async def agree(self, before: Agreement | None, after: Agreement) -> bool:
        """Replace the agreement if it still is ``before``."""

    async def age_ms(self) -> int:
        """The store's age as written by the last beat of any machine."""

    async def find(self, digest: bytes) -> Stored | None:
        """The operation of this digest."""

    async def show(self, number: int) -> Stored | None:
        """The operation with this id."""

    async def select(self, selection: Selection) -> list[Stored]:
        """Operations in ascending id order."""

    async def open_of(self, machine: int, from_id: int) -> list[Record]:
        """Accepted and started rows whose *id* is of this machine, from this id on."""

    async def attention(self, *, after: int = 0, limit: int = 1000) -> list[Record]:
        """Rows of the side table, by id: in doubt, contradicted, adopted or re-tried and not final."""

    async def journal(self, number: int) -> list[JournalEntry]:
        """The journal of one operation, oldest first."""

    async def doctor(self) -> dict[str, str]:
        """What an operator should know about this store: versions, settings, file system."""

    async def close(self) -> None:
        """Finish what was handed in and let go of everything."""


# -- rails --------------------------------------------------------------------------------------------


class Gate(Protocol):
    """The last check before the first byte of a send.

    Attributes:
        operation: the operation id as printed, to travel beside the reference.
        deadline_ms: the wall clock's moment, in milliseconds, after which the send must not begin.
    """

    operation: str
    deadline_ms: int

    def __call__(self) -> None:
        """Raise NotSent if the send may not begin any more."""


class FoundKind(StrEnum):
    """What a rail says of a reference when asked."""

    APPLIED = "applied"
    REFUSED = "refused"
    PENDING = "pending"
    NOT_FOUND = "not_found"


class Found(msgspec.Struct, frozen=True):
    """The answer of a rail that was asked; ``receipt`` with APPLIED."""

    kind: FoundKind
    receipt: Receipt | None = None


class Rail(Protocol):
    """What carries out transfers. ``reference`` is its idempotency key."""

    @property
    def facts(self) -> RailFacts:
        """What it says of itself."""

    async def send(self, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        """Make the transfer once, calling ``gate()`` as the last thing before the first byte.

        Raises Declined (surely no effect), NotSent (surely no byte left). Anything else that it
        raises, a bug in the rail's own code included, means that the outcome is unknown.
        """

    async def find(self, reference: str) -> Found:
        """What became of a reference; only called where ``facts.finds``."""

    async def close(self) -> None:
        """Let go of connections and files."""


# -- clocks and chance -----------------------------------------------------------------------------------


class Clock(Protocol):
    """Readings of time. Only differences of one and the same clock mean anything."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""

    def monotonic(self) -> float:
        """Seconds that never go back; may stand still while the machine sleeps."""

    def boottime(self) -> float:
        """Seconds that go on while the machine sleeps (CLOCK_BOOTTIME)."""


class Entropy(Protocol):
    """Chance, from the operating system on each call: a fork or clone must not repeat it."""

    def token(self, length: int) -> bytes:
        """Random bytes."""

    def uniform(self) -> float:
        """A number from 0 up to but not including 1."""
