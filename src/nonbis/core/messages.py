"""What the core is told and what it says: records, events and decisions, all frozen.

Every moment is kept twice: by the store's wall clock and by the store's **age**, milliseconds that
grow only while some machine beats. Both are integers in milliseconds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class State(StrEnum):
    """Where an operation stands."""

    ACCEPTED = "accepted"
    STARTED = "started"
    IN_DOUBT = "in_doubt"
    APPLIED = "applied"
    FAILED = "failed"


class Reason(StrEnum):
    """Why a failed operation failed. A closed set: each says that there was no effect."""

    DECLINED = "declined"
    NOT_SENT = "not_sent"
    SETTLED = "settled"
    REJECTED = "rejected"
    CANCELLED = "cancelled"


class Moment(msgspec.Struct, frozen=True, gc=False):
    """One instant on two clocks, in milliseconds: wall since 1970, and the age of the store."""

    wall_ms: int
    age_ms: int


ZERO = Moment(0, 0)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One operation's row.

    Attributes:
        digest: 16 bytes that stand for the name; unique.
        id: the operation id, drawn by the claiming machine; never changes.
        fingerprint: identity of the request; None on a tombstone, which every request matches.
        attempt: 1, 2, ...
        sends: sends of this attempt in all.
        open_sends: bit n-1 for send n whose fate is not known.
        refusals: refusals by the rail under this name: the suffix of the reference.
        owner: the machine now responsible; never derived from the id.
        stamp: fresh for every write; the only guard. At the claim it equals the id.
        rail, account: which rail may resend, be asked, or settle.
        contradicted: evidence that can't be reconciled.
        created, started, referenced, changed: claim, last send, first send under the present
            reference, last write.
    """

    digest: bytes
    id: int
    fingerprint: bytes | None
    fingerprint_version: int = 1
    state: State
    reason: Reason | None = None
    attempt: int = 1
    sends: int = 0
    open_sends: int = 0
    refusals: int = 0
    owner: int
    stamp: int
    rail: str = ""
    account: str = ""
    contradicted: bool = False
    created: Moment = ZERO
    started: Moment | None = None
    referenced: Moment | None = None
    changed: Moment = ZERO


class Kind(StrEnum):
    """What can happen to an operation."""

    CLAIM = "claim"
    CANCEL = "cancel"
    START = "start"
    TAKE_OVER = "take over"
    HANDLER_ENDED = "handler ended before the effect"
    HANDLER_RETURNED = "handler returned without an effect"
    OWNER_LOST = "owner not living"
    OWNER_FORGOT = "owner does not know it"
    OVERDUE = "overdue"
    REPORT_APPLIED = "report applied"
    REPORT_DECLINED = "report declined"
    REPORT_NOT_SENT = "report not sent"
    REPORT_UNKNOWN = "report unknown"
    FOUND_APPLIED = "rail says applied"
    FOUND_REFUSED = "rail says refused"
    FOUND_NOTHING = "rail says not found"
    PERSON_APPLIED = "person says applied"
    PERSON_FAILED = "person says failed"
    RESEND = "resend"
    RETRY = "retry"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, with all that the core needs to judge it.

    Attributes:
        me: the machine that will write.
        stamp: a fresh stamp for that write.
        now: the present moment by the store's clocks, read before the write.
        digest, fingerprint, rail, account: of the request (claim, cancel).
        bounded: the handler marks its effect boundary: claim to accepted, start later.
        attempt, send: which send a report is of.
        seen: the stamp that the reporter acted under (start, person, answers of the rail).
        owner_living: False once the row's owner is lost or ended.
        same_rail: the rail at hand has the row's name and account.
        binds_refusals: the rail's refusal holds for the reference, not only for that send.
        receipt_differs: the receipt names another transfer than the one that is stored.
        overdue: past send deadline and effect time-out.
        may_settle: the settle window had passed when the rail was asked or the person acted.
        may_resend: the rail dedupes, the dedupe window surely lasts, resends are left.
        may_retry: policy, time and number of attempts allow another attempt.
        forced: the person gave --force and a reason.
        fenced: a recovery fence is open.
    """

    kind: Kind
    me: int
    stamp: int
    now: Moment = ZERO
    digest: bytes = b""
    fingerprint: bytes | None = None
    fingerprint_version: int = 1
    rail: str = ""
    account: str = ""
    bounded: bool = False
    attempt: int = 0
    send: int = 0
    seen: int = 0
    owner_living: bool = True
    same_rail: bool = True
    binds_refusals: bool = False
    receipt_differs: bool = False
    overdue: bool = False
    may_settle: bool = False
    may_resend: bool = False
    may_retry: bool = False
    forced: bool = False
    fenced: bool = False


class JournalKind(StrEnum):
    """What is out of the ordinary and therefore gets a row of its own."""

    IN_DOUBT = "in_doubt"
    SETTLED = "settled"
    RETRIED = "retried"
    RESENT = "resent"
    TAKEN_OVER = "taken_over"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    CORRECTED = "corrected"
    CONTRADICTED = "contradicted"
    NOTED = "noted"


class Decision(msgspec.Struct, frozen=True):
    """What to do about an event.

    Attributes:
        record: the row to write, complete; None if nothing is to be written.
        expected: the stamp that the row must still bear; None for a claim.
        journal: the kind of journal row to write with it (or alone), or None.
        rule: the name of the transition that applied, or "" where none did.
    """

    record: Record | None
    expected: int | None
    journal: JournalKind | None
    rule: str
