"""The engine: the one place that carries out what the core decides.

One path for everything: an observation becomes an event, ``decide`` turns row and event into the next
row, the store writes it under the stamp that the decision was made from, and whoever asked is answered
from the row after that write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from nonbis.core.conditions import reference_was_used
from nonbis.core.ids import format_id
from nonbis.core.machine import decide
from nonbis.core.messages import Event, Kind, Reason, Record, State
from nonbis.core.names import reference
from nonbis.core.payments import Outcome, decode_outcome
from nonbis.core.policy import Agreement, Policy, joined, weaker
from nonbis.engine.attempts import CLAIM_GRACE_SECONDS, Attempts, Ready, claim_unanswered
from nonbis.engine.effects import Effect, Effects
from nonbis.engine.flights import Answer, Call, Flight, Standing, matches, standing_of
from nonbis.engine.presence import Presence
from nonbis.engine.tasks import Tasks
from nonbis.engine.timekeeping import Timekeeper
from nonbis.engine.writing import Applied, Describe, Observation, Writer
from nonbis.errors import AnswerLost, EngineStopping, NonbisError, StoreError, StoreUnavailable, StoreUnsafe
from nonbis.failpoints import Failpoint
from nonbis.ports import Clock, FoundKind, Store, Stored

_log = logging.getLogger("nonbis.engine")


class Engine:
    """Runs operations at most once over one store.

    Make it inside a running event loop; ``start`` before the first call, ``stop`` at the end.
    """

    def __init__(
        self,
        store: Store,
        effects: Effects,
        *,
        clock: Clock,
        policy: Policy | None = None,
        kind: str = "serve",
        failpoint: Failpoint | None = None,
    ) -> None:
        self.store = store
        self.effects = effects
        self.policy = policy or Policy()
        self.time = Timekeeper(clock)
        self.presence = Presence(store, self.policy, self.time, kind=kind, on_lost=self._lost)
        self._mine = Agreement(
            send_deadline_seconds=self.policy.send_deadline_seconds, rails=tuple(effects.facts)
        )
        self.outvoted = ""
        self.writer = Writer(store, self.presence, self.time, self.policy, self._mine)
        self.tasks = Tasks()
        self._attempts = Attempts(self.writer, self.policy, self.tasks, failpoint or Failpoint(None))
        self._flights: dict[bytes, Flight] = {}
        self._stopping = False

    async def start(self, *, raise_config: bool = False) -> None:
        """Agree on the windows with the other processes of this store, and learn its age.

        Raises StoreUnsafe where this process promises less than what is agreed, unless
        ``raise_config`` makes its settings the new agreement.
        """
        self.time.saw_age(await self.store.age_ms())
        await self._agree(raise_config=raise_config)
        await self.presence.refresh()

    async def _agree(self, *, raise_config: bool) -> None:
        while True:
            agreed = await self.store.agreement()
            less = weaker(agreed, self._mine) if agreed is not None else []
            if less and not raise_config:
                raise StoreUnsafe(
                    "this process is configured with less than the store's others have agreed on: "
                    + "; ".join(less)
                    + ". If no other process relies on it any more, start with --raise-config."
                )
            after = joined(agreed, self._mine, replaces=raise_config)
            if after == agreed or await self.store.agree(agreed, after):
                return

    async def keep_to_agreement(self) -> None:
        """Take no more claims if this process has become the weaker one; ask again at each beat."""
        agreed = await self.store.agreement()
        less = weaker(agreed, self._mine) if agreed is not None else []
        if less and not self.outvoted:
            _log.error("no more claims are taken here: %s", "; ".join(less))
        self.outvoted = f"this process promises less than is agreed: {'; '.join(less)}" if less else ""

    # -- one call ------------------------------------------------------------------------------------

    async def run(self, call: Call, effect: Effect, *, wait_seconds: float | None = None) -> Answer:
        """Have the call's operation done at most once, and tell what became of it.

        Raises StoreUnavailable and EngineStopping (nothing was sent), AnswerLost (the row can't be read:
        unknown to this caller). The operation goes on if the caller is cancelled.
        """
        flight = self._flights.get(call.digest)
        if flight is not None:
            return await self._join(flight, call, effect, wait_seconds)
        if self._stopping:
            raise EngineStopping("the service is being stopped")
        if self.outvoted:
            raise StoreUnavailable(self.outvoted)
        flight = self._take_off(call.digest)
        self.tasks.spawn(self._fly(flight, self._carry_out(flight, call, effect)))
        return await flight.result()

    async def _join(self, flight: Flight, call: Call, effect: Effect, wait_seconds: float | None) -> Answer:
        """A second call for a name in flight: compared with the row first, then told or made to wait."""
        record = flight.record or await self._entered(flight)
        if not matches(call, record):
            return Answer(standing=Standing.MISMATCH, record=record, request=flight.request)
        seconds = self.policy.wait_seconds if wait_seconds is None else wait_seconds
        answer = await flight.result_within(seconds)
        if answer is None:
            return Answer(standing=Standing.IN_PROGRESS, record=record)
        if answer.standing is Standing.MISMATCH:
            # the first caller's request was not the row's; this one's is, so it looks for itself
            return await self.run(call, effect, wait_seconds=wait_seconds)
        return Answer(standing=answer.standing, record=answer.record, outcome=answer.outcome, replayed=True)

    async def _entered(self, flight: Flight) -> Record:
        """The row of a flight whose claim is under way; a caller waits no longer for it than the first."""
        try:
            async with asyncio.timeout(self.policy.store_wait_seconds + CLAIM_GRACE_SECONDS):
                return await flight.entered()
        except TimeoutError:
            raise claim_unanswered() from None

    def _take_off(self, digest: bytes) -> Flight:
        flight = self._flights[digest] = Flight(lambda: self._flights.pop(digest, None))
        return flight

    async def _fly(self, flight: Flight, work: Coroutine[Any, Any, Answer]) -> None:
        """Carry out one operation apart from its caller, who may hang up or be cancelled."""
        try:
            answer = await work
        except NonbisError as error:
            # once there is a row, "nothing was sent" is what must not be read out of any error
            flight.fail(error if flight.record is None else AnswerLost(f"it can't be told now: {error}"))
        except Exception as error:  # noqa: BLE001  (it is the callers' to be told)
            flight.fail(error)
        except BaseException:
            why = "the service was stopped before the outcome was known"
            flight.fail(AnswerLost(why) if flight.claiming else EngineStopping(why))
            raise
        else:
            flight.finish(answer)

    async def _carry_out(self, flight: Flight, call: Call, effect: Effect) -> Answer:
        claimed = await self._claim(flight, call, effect)
        ready = claimed if isinstance(claimed, Ready) else await self._judge(flight, call, effect, claimed)
        if isinstance(ready, Answer):
            return ready
        return await self._told(await self._attempts.make(flight, effect, ready))

    async def _claim(self, flight: Flight, call: Call, effect: Effect) -> Ready | Stored:
        """Insert the row, or show the one that is there.

        The deadline of the send is counted from before that write.
        """
        present = self.presence.incarnation or await self.presence.present()
        deadline = self.time.deadline(self.policy.send_deadline_seconds)
        facts = effect.facts
        number = present.draw()
        event = Event(
            kind=Kind.CLAIM,
            me=present.machine,
            stamp=number,
            now=self.time.now(),
            digest=call.digest,
            fingerprint=call.fingerprint,
            fingerprint_version=call.fingerprint_version,
            rail=facts.name,
            account=facts.account,
        )
        flight.claiming = number
        decision = decide(None, event)
        with self._attempts.claiming(flight):
            existing = await self.writer.claim(decision, call)
        if existing is not None:
            if existing.record.id == number:
                existing = await self._disown(existing)
            flight.enter(existing.record, existing.request)
            return existing
        record = _written(decision.record)
        flight.enter(record, call.request)
        return Ready(record, deadline)

    async def _disown(self, stored: Stored) -> Stored:
        """My claim, but others moved it on before its answer reached me: I have not sent and will not."""
        report = Observation(
            kind=Kind.REPORT_NOT_SENT, attempt=1, send=1, because="the answer to the claim came too late"
        )
        try:
            async with asyncio.timeout(self.policy.store_wait_seconds):
                await self.writer.apply(stored.record, report, self.describe(stored))
                return await self.store.find(stored.record.digest) or stored
        except (TimeoutError, NonbisError):
            return stored

    async def _judge(self, flight: Flight, call: Call, effect: Effect, stored: Stored) -> Ready | Answer:
        """A row is there already: refuse another request, wake a dead one, retry a failed one."""
        record = stored.record
        if not matches(call, record):
            return Answer(standing=Standing.MISMATCH, record=record, request=stored.request)
        if standing_of(record) is Standing.IN_PROGRESS and not await self.presence.is_living(record.owner):
            record = (await self.writer.apply(record, Observation(kind=Kind.OWNER_LOST))).record
        if record.state is State.FAILED:
            retried = await self._retry(flight, record, stored, effect)
            if not isinstance(retried, Record):
                return retried
            record = retried
        return await self.answer_of(record, stored)

    async def _retry(
        self, flight: Flight, record: Record, stored: Stored, effect: Effect
    ) -> Ready | Answer | Record:
        """Another attempt where the table allows one; else the row as it is now."""
        observation = Observation(kind=Kind.RETRY, facts=effect.facts)
        if not await self.writer.would_write(record, observation):
            return record
        if effect.facts.finds and (record.reason is Reason.SETTLED or reference_was_used(record)):
            asked = await self._ask_before_retry(record, stored, effect)
            if asked is not record:
                return asked
        deadline = self.time.deadline(self.policy.send_deadline_seconds)
        applied = await self.writer.apply(record, observation)
        if not applied.won or applied.record.state is not State.STARTED:
            return applied.record
        flight.record = applied.record
        return Ready(applied.record, deadline)

    async def _ask_before_retry(self, record: Record, stored: Stored, effect: Effect) -> Record | Answer:
        """A reference that an earlier attempt bore is asked about once more before it is sent again."""
        try:
            async with asyncio.timeout(self.policy.effect_timeout_seconds):
                found = await effect.find(reference(record.digest, record.refusals))
        except Exception as error:  # noqa: BLE001  (whatever the rail's client raises, it is no answer)
            _log.warning("%s: the rail can't be asked before a retry: %r", format_id(record.id), error)
            return Answer(standing=Standing.IN_DOUBT, record=record)
        if found.kind is FoundKind.PENDING:
            return Answer(standing=Standing.IN_DOUBT, record=record)
        if found.kind is not FoundKind.APPLIED:
            return record
        if found.receipt is not None and (member := effect.differs(found.receipt)) is not None:
            because = f"asked before a retry, it shows another {member}: {found.receipt!r}"
            await self.writer.note_once(record, who=f"rail {record.rail}/{record.account}", because=because)
            return Answer(standing=Standing.IN_DOUBT, record=record)
        observation = Observation(
            kind=Kind.FOUND_APPLIED, attempt=record.attempt, facts=effect.facts, receipt=found.receipt
        )
        return (await self.writer.apply(record, observation, self.describe(stored))).record

    # -- answers -------------------------------------------------------------------------------------

    async def _told(self, applied: Applied) -> Answer:
        if applied.outcome is None:
            return await self.answer_of(applied.record, None)
        return Answer(standing=standing_of(applied.record), record=applied.record, outcome=applied.outcome)

    async def answer_of(self, record: Record, stored: Stored | None) -> Answer:
        """The answer to a caller who did not bring this row about."""
        if standing_of(record) is not Standing.FINAL:
            return Answer(standing=standing_of(record), record=record)
        if stored is None or stored.record.stamp != record.stamp:
            stored = await self.store.find(record.digest)
        if stored is None:
            return Answer(standing=Standing.IN_DOUBT, record=record)
        standing = standing_of(stored.record)
        if standing is not Standing.FINAL:
            return Answer(standing=standing, record=stored.record)
        return Answer(
            standing=standing, record=stored.record, outcome=self._kept_outcome(stored), replayed=True
        )

    def _kept_outcome(self, stored: Stored) -> Outcome | None:
        """What was kept; made anew for a row that ended without a caller. None for a tombstone."""
        if stored.outcome is not None:
            return decode_outcome(stored.outcome)
        return self.effects.outcome(stored, stored.record, None) if stored.request else None

    def describe(self, stored: Stored) -> Describe:
        """Makes the outcome of a stored operation, no rail needed."""
        return lambda record, receipt: self.effects.outcome(stored, record, receipt)

    # -- what upkeep asks ----------------------------------------------------------------------------

    def knows(self, record: Record) -> bool:
        """Whether this process is at work on the row, or has a send of it under way."""
        return record.digest in self._flights or self._attempts.knows(record)

    def at_work(self, digest: bytes) -> bool:
        """Whether a call or a send under this name is under way here."""
        return digest in self._flights or self._attempts.at_work(digest)

    def ids_at_work(self) -> tuple[list[int], list[int]]:
        """Ids of operations under way here, and ids drawn for claims whose answer is not known."""
        known, claiming = [], self.writer.unsure_ids()
        for flight in self._flights.values():
            if flight.record is not None:
                known.append(flight.record.id)
            elif flight.claiming:
                claiming.append(flight.claiming)
        return known, claiming

    def resend(self, stored: Stored, effect: Effect) -> None:
        """Send an operation in doubt once more under the same reference, if nobody here is at it."""
        digest = stored.record.digest
        if self.at_work(digest) or self._stopping:
            return
        flight = self._take_off(digest)
        flight.enter(stored.record, stored.request)
        self.tasks.spawn(self._fly(flight, self._send_again(flight, stored.record, effect)))

    async def _send_again(self, flight: Flight, record: Record, effect: Effect) -> Answer:
        deadline = self.time.deadline(self.policy.send_deadline_seconds)
        applied = await self.writer.apply(record, Observation(kind=Kind.RESEND, facts=effect.facts))
        flight.record = applied.record
        if not applied.won:
            return await self.answer_of(applied.record, None)
        return await self._told(await self._attempts.make(flight, effect, Ready(applied.record, deadline)))

    def _lost(self) -> None:
        self._attempts.shut("this machine was declared lost")

    # -- the end -------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Take no new claims, let running effects finish, and leave in doubt what still runs."""
        self._stopping = True
        await self.tasks.finish(self.policy.stop_seconds)
        await self._leave_in_doubt()
        await self.tasks.cancel()
        try:
            await self.presence.end()
        except StoreError as error:
            _log.warning("the end of this machine is not written; others will find it lost: %s", error)

    async def _leave_in_doubt(self) -> None:
        """Put what still is being sent here in doubt, as far as the store takes it in time."""
        doubts = [
            self._attempts.doubt(flight, flight.record, "the service was stopped")
            for flight in self._flights.values()
            if flight.record is not None and self._attempts.knows(flight.record)
        ]
        try:
            async with asyncio.timeout(self.policy.store_wait_seconds):
                await asyncio.gather(*doubts)
        except (TimeoutError, NonbisError) as error:
            _log.warning("not all that was under way could be put in doubt: %r", error)


def _written(record: Record | None) -> Record:
    if record is None:
        raise AssertionError("a claim is always a row")
    return record
