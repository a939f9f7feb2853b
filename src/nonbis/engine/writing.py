"""Decisions made durable: every change of every operation goes through ``Writer.apply``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import msgspec

from nonbis.core import windows
from nonbis.core.ids import format_id
from nonbis.core.machine import decide, needs_attention
from nonbis.core.messages import Decision, Event, JournalKind, Kind, Moment, Reason, Record, State
from nonbis.core.payments import Outcome, Receipt, decode_outcome, encode_outcome
from nonbis.core.policy import Agreement, Policy, RailFacts, settle_seconds
from nonbis.engine.commits import Lane
from nonbis.engine.flights import Call
from nonbis.engine.presence import Presence
from nonbis.engine.timekeeping import Timekeeper
from nonbis.errors import AnswerLost, StoreError, StoreUnavailable
from nonbis.ports import Advance, Advanced, Claim, Claimed, JournalEntry, Store, Stored, Verdict

_log = logging.getLogger("nonbis.writing")

REPORTS = frozenset({Kind.REPORT_APPLIED, Kind.REPORT_DECLINED, Kind.REPORT_NOT_SENT, Kind.REPORT_UNKNOWN})
_PERSON = frozenset({Kind.PERSON_APPLIED, Kind.PERSON_FAILED})
_FOUND = frozenset({Kind.FOUND_APPLIED, Kind.FOUND_REFUSED, Kind.FOUND_NOTHING})
_OF_THE_OWNER = frozenset({Kind.OWNER_LOST, Kind.TAKE_OVER})
_LOOKED_UP = _OF_THE_OWNER | _FOUND | _PERSON
_ENDS = frozenset({State.APPLIED, State.FAILED})
_PAUSE_FIRST_SECONDS = 0.02
_PAUSE_MAX_SECONDS = 1.0
_UNSURE_FOR_SECONDS = 600.0
"""No store keeps a transaction under way for longer: its statement and idle time-outs end it."""

Describe = Callable[[Record, Receipt | None], Outcome]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What someone saw or wants, before it is judged against the row.

    Attributes:
        kind: what it is.
        attempt, send: which send a report is of.
        seen: the stamp that it was seen under; answers of the rail and of people.
        asked: when the rail was asked; None means now.
        forced: a person insists before the settle window has passed.
        receipt: the rail's, with an applied.
        facts: of the rail at hand, where one is.
        who, because: words for the journal.
    """

    kind: Kind
    attempt: int = 0
    send: int = 0
    seen: int = 0
    asked: Moment | None = None
    forced: bool = False
    receipt: Receipt | None = None
    facts: RailFacts | None = None
    who: str = ""
    because: str = ""


class Applied(NamedTuple):
    """The row after an observation; whether this process's write made it so; the outcome it wrote."""

    record: Record
    won: bool
    outcome: Outcome | None


class Writer:
    """Turns observations into writes and repeats what must be repeated."""

    def __init__(
        self, store: Store, presence: Presence, time: Timekeeper, policy: Policy, mine: Agreement
    ) -> None:
        loop = asyncio.get_running_loop()
        self._store = store
        self._presence = presence
        self._time = time
        self._policy = policy
        self._mine = mine
        self._unsure: dict[int, float] = {}
        self.on_doubt: Callable[[Record], None] | None = None
        self._claims: Lane[Claim, Claimed] = Lane(store.claim, policy.batch_max, loop)
        self._advances: Lane[Advance, Advanced] = Lane(store.advance, policy.batch_max, loop)

    async def claim(self, decision: Decision, call: Call) -> Stored | None:
        """Insert the row; None if it is mine, else what is there already.

        Raises StoreUnavailable if the row surely is not there, AnswerLost if that can't be found out in
        time. In the latter case it may still appear; this process never sends for it, but one that finds
        it in doubt may, where the rail dedupes.
        """
        record = decision.record
        if record is None:
            raise AssertionError("a claim is always a row")
        claim = Claim(
            record=record,
            tenant=call.tenant,
            scope=call.scope,
            request=call.request,
            attention=needs_attention(record),
            journal=self._journal(record, decision, None),
        )
        return (await self._decided(self._claims, claim, record.stamp)).existing

    def gave_up(self, stamp: int) -> bool:
        """Whether this process gave up waiting for the answer to the write that draws this stamp."""
        return stamp in self._unsure

    def unsure_ids(self) -> list[int]:
        """Stamps of writes that were given up unanswered not long ago: they may still be done."""
        now = self._time.monotonic()
        self._unsure = {
            number: since for number, since in self._unsure.items() if now - since < _UNSURE_FOR_SECONDS
        }
        return list(self._unsure)

    async def apply(
        self, record: Record, observation: Observation, describe: Describe | None = None
    ) -> Applied:
        """Judge the observation against the row.

        A report of a send is judged anew as often as the row moves on meanwhile, and its write repeated
        until it is decided, for as long as the process lives, whatever error the store has. All else
        was seen or wanted of exactly this row: it loses to a row that has moved on, and raises
        StoreError when the store can't do its part.
        """
        pause = _PAUSE_FIRST_SECONDS
        while True:
            try:
                return await self._apply(record, observation, describe)
            except StoreError as error:
                if observation.kind not in REPORTS:
                    raise
                _log.warning("%s: %s can't be written yet: %s", format_id(record.id), observation.kind, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_SECONDS)

    async def would_write(self, record: Record, observation: Observation) -> bool:
        """Whether ``apply`` would write something now. Draws no stamp and needs no machine."""
        event = await self._event(record, observation, self._machine(), stamp=0)
        return decide(record, event).record is not None

    async def _apply(self, record: Record, observation: Observation, describe: Describe | None) -> Applied:
        while True:
            present = self._presence.incarnation or await self._presence.present()
            event = await self._event(record, observation, present.machine, present.draw())
            decision = decide(record, event)
            after = decision.record
            if after is None:
                if decision.journal is not None:
                    await self._note(record, decision, observation)
                return Applied(record, won=False, outcome=None)
            outcome = None
            if describe is not None and after.state in _ENDS and after.state is not record.state:
                outcome = describe(after, observation.receipt)
            advanced = await self._decided(
                self._advances,
                self._advance(record, decision, after, observation, outcome),
                after.stamp,
                for_ever=observation.kind in REPORTS,
            )
            if advanced.verdict is Verdict.WON:
                if after.state is State.IN_DOUBT and self.on_doubt is not None:
                    self.on_doubt(after)
                return Applied(after, won=True, outcome=outcome)
            if advanced.record is None:
                raise AssertionError("a store that says lost shows the row")
            if observation.kind not in REPORTS:
                return Applied(advanced.record, won=False, outcome=None)
            record = advanced.record

    async def _decided(
        self, lane: Lane[Item, Result], item: Item, stamp: int, *, for_ever: bool = False
    ) -> Result:
        """The answer to one write, as it can be had in time.

        Whatever ends the wait for it, a cancelled caller included, the write may still be under way; so
        its stamp is remembered.
        """
        try:
            return await self._answered(lane, item, for_ever=for_ever)
        except StoreUnavailable:
            raise
        except BaseException:
            self._unsure[stamp] = self._time.monotonic()
            raise

    async def _answered(self, lane: Lane[Item, Result], item: Item, *, for_ever: bool) -> Result:
        """A lost answer is settled by repeating the same write, never by a read."""
        pause = _PAUSE_FIRST_SECONDS
        begun = self._time.monotonic()
        unsure = False
        while True:
            try:
                result = await lane.submit(item)
                if not (isinstance(result, Advanced) and result.verdict is Verdict.UNSEEN):
                    return result
                unsure = True
            except AnswerLost:
                unsure = True
            except StoreUnavailable:
                if not unsure and not for_ever:
                    raise
            except StoreError as error:
                if not for_ever:
                    raise
                _log.warning("a write is repeated until it is decided: %s", error)
            if not for_ever and self._time.monotonic() - begun > self._policy.store_wait_seconds:
                raise AnswerLost("the store has not answered; the write may or may not have happened")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_SECONDS)

    def _advance(
        self,
        before: Record,
        decision: Decision,
        after: Record,
        observation: Observation,
        outcome: Outcome | None,
    ) -> Advance:
        attention = needs_attention(after)
        return Advance(
            record=after,
            expected=before.stamp,
            outcome=None if outcome is None else encode_outcome(outcome),
            attention=attention if attention is not needs_attention(before) else None,
            journal=self._journal(after, decision, observation),
        )

    async def note_once(self, record: Record, *, who: str, because: str) -> None:
        """Put words into the journal of an operation, unless they stand there already. Raises StoreError."""
        if any(entry.because == because for entry in await self._store.journal(record.id)):
            return
        noted = Decision(None, None, JournalKind.NOTED, "")
        words = Observation(kind=Kind.REPORT_UNKNOWN, who=who, because=because)
        await self._note(record, noted, words)

    async def _note(self, record: Record, decision: Decision, observation: Observation) -> None:
        entry = self._journal(record, decision, observation)
        if entry is not None:
            await self._store.note([entry])

    def _journal(
        self, record: Record, decision: Decision, observation: Observation | None
    ) -> JournalEntry | None:
        if decision.journal is None:
            return None
        return JournalEntry(
            id=record.id,
            kind=decision.journal,
            machine=self._machine(),
            stamp=record.stamp,
            at_ms=self._time.wall_ms(),
            state=record.state,
            reason=record.reason or "",
            attempt=record.attempt,
            rule=decision.rule,
            who=observation.who if observation else "",
            because=writable(observation.because) if observation else "",
        )

    def speaks_for(self, machine: int) -> bool:
        """Whether this process still is that machine."""
        return self._machine() == machine

    def _machine(self) -> int:
        current = self._presence.incarnation
        return 0 if current is None else current.machine

    async def _event(self, record: Record, observation: Observation, me: int, stamp: int) -> Event:
        now = self._time.now()
        return Event(
            kind=observation.kind,
            me=me,
            stamp=stamp,
            now=now,
            attempt=observation.attempt,
            send=observation.send,
            seen=observation.seen,
            forced=observation.forced,
            **self._judgements(record, observation, now),
            **await self._looked_up(record, observation) if self._must_look_up(record, observation) else {},
        )

    @staticmethod
    def _must_look_up(record: Record, observation: Observation) -> bool:
        return observation.kind in _LOOKED_UP or (
            record.state is State.APPLIED and observation.receipt is not None
        )

    async def _looked_up(self, record: Record, observation: Observation) -> dict[str, Any]:
        """What of the event only the store knows."""
        found: dict[str, Any] = {}
        if observation.kind in _OF_THE_OWNER:
            found["owner_living"] = await self._presence.is_living(record.owner)
        elif observation.kind in _LOOKED_UP:
            found["may_settle"] = await self._may_settle(record, observation.asked or self._time.now())
        if observation.receipt is not None and record.state is State.APPLIED:
            found["receipt_differs"] = await self._receipt_differs(record, observation.receipt)
        return found

    def _judgements(self, record: Record, observation: Observation, now: Moment) -> dict[str, Any]:
        """What of the event depends on the row, the clocks and the rail at hand."""
        kind, facts = observation.kind, observation.facts
        found: dict[str, Any] = {}
        if facts is not None:
            found["binds_refusals"] = facts.binds_refusals
            if kind in REPORTS:
                return found
            found["same_rail"] = (facts.name, facts.account) == (record.rail, record.account)
            found["rail"], found["account"] = facts.name, facts.account
        if kind is Kind.RETRY:
            allowed = self._policy.retry_failed or record.reason is Reason.NOT_SENT
            found["may_retry"] = allowed and windows.may_retry(record, now, self._policy)
        elif kind is Kind.RESEND and facts is not None:
            found["may_resend"] = windows.may_resend(record, now, self._policy, facts)
        elif kind is Kind.OVERDUE:
            found["overdue"] = windows.overdue(record, now, self._policy)
        return found

    async def _may_settle(self, record: Record, asked: Moment) -> bool:
        """Whether the settle window had passed, by what all processes of this store have agreed on.

        The agreement is read anew: another process may have joined with a longer window meanwhile.
        """
        agreed = await self._store.agreement()
        seconds = settle_seconds(agreed, self._mine, record.rail, record.account)
        return seconds is not None and windows.may_settle(record, asked, seconds)

    async def _receipt_differs(self, record: Record, receipt: Receipt) -> bool:
        """Whether two receipts of one reference name two transfers: then there were two effects."""
        stored = await self._store.find(record.digest)
        if stored is None or stored.outcome is None:
            return False
        before = decode_outcome(stored.outcome).receipt
        return before is not None and any(
            getattr(before, name) is not None
            and getattr(receipt, name) is not None
            and getattr(before, name) != getattr(receipt, name)
            for name in ("id", "at", "reference")
        )


def writable(text: str) -> str:
    """Words of errors may hold what no store can write: lone surrogates, NUL."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
