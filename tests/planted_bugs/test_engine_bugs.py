"""Mistakes that an engine is easily built with, each planted and seen caught by a named test.

A test that can't fail proves nothing: here each rule of the engine is broken on purpose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from nonbis.core import windows
from nonbis.core.machine import decide
from nonbis.core.messages import Decision, Event, Kind, Reason, Record, State
from nonbis.engine import attempts, engine, sends, writing
from nonbis.engine.attempts import Attempts, Ready
from nonbis.engine.commits import Lane, _fail
from nonbis.engine.effects import PaymentEffect, PaymentEffects
from nonbis.engine.engine import Engine
from nonbis.engine.identity import Incarnation
from nonbis.engine.presence import Presence
from nonbis.engine.timekeeping import Deadline
from nonbis.engine.writing import Observation, Writer
from nonbis.errors import AnswerLost, StoreUnavailable
from nonbis.ports import Claimed
from nonbis.stores.memory import MemoryStore
from nonbis.upkeep import settling
from nonbis.upkeep.watching import DeadRounds, Observer
from tests.engine import (
    test_gate,
    test_identity,
    test_joining,
    test_lost_answers,
    test_reports,
    test_retries,
    test_stopping,
)
from tests.simulation.swarm import Broken, simulate
from tests.upkeep import test_beats, test_losses, test_settling

Plant = Callable[[pytest.MonkeyPatch], None]
replace = msgspec.structs.replace


class Mistake(NamedTuple):
    """A bug, and the test that must not pass with it."""

    name: str
    plant: Plant
    test: Callable[[], None]


def decides(change: Callable[[Record | None, Event, Decision], Decision]) -> Plant:
    """The core decides wrongly."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        def wrong(record: Record | None, event: Event) -> Decision:
            return change(record, event, decide(record, event))

        for module in (writing, engine):
            patch.setattr(module, "decide", wrong)

    return plant


def setting(owner: Any, name: str, value: Any) -> Plant:
    """Something of the engine is another thing."""
    return lambda patch: patch.setattr(owner, name, value)


def both(*plants: Plant) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for one in plants:
            one(patch)

    return plant


# -- the mistakes


def _run_again(record: Record | None, event: Event, decision: Decision) -> Decision:
    """A lost owner's send is taken for one that never was."""
    if event.kind is Kind.OWNER_LOST and decision.record is not None:
        failed = replace(decision.record, state=State.FAILED, reason=Reason.NOT_SENT)
        return Decision(failed, decision.expected, decision.journal, decision.rule)
    return decision


def _time_out_is_failed(error: BaseException) -> Kind:
    return Kind.REPORT_NOT_SENT if isinstance(error, TimeoutError) else sends_report_of(error)


def _cancelled_is_not_sent(error: BaseException) -> Kind:
    return Kind.REPORT_NOT_SENT if isinstance(error, asyncio.CancelledError) else sends_report_of(error)


sends_report_of = sends.report_of
store_advance = MemoryStore._advance
store_claim = MemoryStore._claim
engine_claim = Engine._claim
engine_retry = Engine._retry
presence_beat = Presence.beat
lane_commit = Lane._commit
decided = Writer._decided


def _without_stamp(self: MemoryStore, item: Any) -> Any:
    there = self._rows[item.record.digest].record
    return store_advance(self, replace(item, expected=there.stamp))


def _check_then_insert(self: MemoryStore, item: Any) -> Claimed:
    """Looks first, and then inserts whatever is there meanwhile: here, always too late."""
    self._rows.pop(item.record.digest, None)
    return store_claim(self, item)


async def _effect_first(self: Engine, flight: Any, call: Any, effect: Any) -> Any:
    ready = await engine_claim(self, flight, call, effect)
    if not isinstance(ready, Ready):
        from tests.simulation.rail import _Passed

        gate = _Passed(sends.SendGate("0:0", self.time.deadline(30)))
        await effect.send("again", gate)
    return ready


async def _deadline_from_the_answer(self: Engine, flight: Any, call: Any, effect: Any) -> Any:
    ready = await engine_claim(self, flight, call, effect)
    return ready._replace(deadline=self.time.deadline(30)) if isinstance(ready, Ready) else ready


async def _deadline_of_a_retry_from_the_answer(self: Engine, *arguments: Any) -> Any:
    ready = await engine_retry(self, *arguments)
    return ready._replace(deadline=self.time.deadline(30)) if isinstance(ready, Ready) else ready


async def _lost_is_done(self: Writer, lane: Any, item: Any, *more: Any, **named: Any) -> Any:
    try:
        return await lane.submit(item)
    except AnswerLost:
        return Claimed(None)


async def _lost_is_not_done(self: Writer, lane: Any, item: Any, *more: Any, **named: Any) -> Any:
    """A read in place of the repeat: what is not there yet is taken for never written."""
    try:
        return await lane.submit(item)
    except AnswerLost:
        if await self._store.find(item.record.digest) is None:
            raise StoreUnavailable("it is not there") from None
        return await decided(self, lane, item, *more, **named)


async def _runs_in_the_caller(self: Engine, call: Any, effect: Any, *, wait_seconds: Any = None) -> Any:
    return await self._carry_out(self._take_off(call.digest), call, effect)


async def _new_arguments_each_time(self: Presence, *arguments: Any) -> bool:
    self._unanswered = None
    return await presence_beat(self, *arguments)


async def _all_or_none(self: Any, batch: Any) -> None:
    try:
        results = await self._write([item for item, _ in batch])
    except Exception as error:
        _fail(batch, error)
    else:
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)


async def _resends_unwritten(self: Engine, flight: Any, record: Record, effect: Any) -> Any:
    deadline = self.time.deadline(30)
    return await self._told(await self._attempts.make(flight, effect, Ready(record, deadline)))


def _by_monotonic(self: Deadline) -> bool:
    return self._clock.monotonic() >= self._boottime


def _swept_once(self: DeadRounds, now: float) -> list[Any]:
    due = [row for row, at, _ in self._rows.values() if at == 0.0]
    for row in due:
        self._rows[row.id] = (row, 1e12, 1e12)
    return due


def _answered_when(**members: Any) -> Observation:
    """The moment of the answer in place of that of the question."""
    return Observation(**{**members, "asked": None})


def _any_rail(self: PaymentEffects, stored: Any) -> Any:
    from nonbis.core.payments import decode_transfer

    return PaymentEffect(next(iter(self._rails.values())), decode_transfer(stored.request))


def _by_wall_clock(since: Any, now: Any, seconds: float) -> bool:
    return bool(now.wall_ms - since.wall_ms >= seconds * 1000)


async def _unasked(self: Engine, record: Record, stored: Any, effect: Any) -> Record:
    return record


def _still(self: Observer, others: Any, asked: float, read: float) -> list[Any]:
    """Any count that was seen before and has not moved, however long ago."""
    before, self._first_seen = self._first_seen, {row.id: (row.beat, read) for row in others}
    return [row for row in others if row.id in before and before[row.id][0] == row.beat]


async def _dropped_first(self: Attempts, flight: Any, effect: Any, ready: Ready) -> Any:
    """The memory entry goes before the outcome is durable."""
    report = await self._send(ready.record, effect, sends.SendGate("0:0", ready.deadline))
    return await self._writer.apply(ready.record, report, effect.outcome)


async def _stop_at_once(self: Engine) -> None:
    self._stopping = True
    self._flights.clear()
    await self.presence.end()


def _no_shut(self: Any, why: str) -> None:
    return None


_unguarded = both(
    setting(Incarnation, "_forked", lambda self: None),
    lambda patch: patch.setattr("nonbis.engine.identity.os.getpid", lambda: 1),
)

MISTAKES = (
    Mistake(
        "the effect comes before the state",
        setting(Engine, "_claim", _effect_first),
        test_joining.test_a_second_process_is_told_in_progress_then_gets_the_replay,
    ),
    Mistake(
        "check, then insert",
        setting(MemoryStore, "_claim", _check_then_insert),
        test_joining.test_a_second_process_is_told_in_progress_then_gets_the_replay,
    ),
    Mistake(
        "a lost owner's operation runs again",
        decides(_run_again),
        test_losses.test_the_started_row_of_a_lost_machine_is_in_doubt_and_nobody_sends_it,
    ),
    Mistake(
        "no fingerprint",
        setting(engine, "matches", lambda call, record: True),
        test_joining.test_another_request_is_refused_while_the_first_is_running,
    ),
    Mistake(
        "advance without stamp",
        setting(MemoryStore, "_advance", _without_stamp),
        test_retries.test_two_processes_race_for_a_hundred_retries_and_each_is_sent_once,
    ),
    Mistake(
        "a lost answer is taken for done",
        setting(Writer, "_decided", _lost_is_done),
        test_lost_answers.test_a_claim_given_up_is_never_sent_and_its_late_row_becomes_not_sent,
    ),
    Mistake(
        "a read in place of the repeat",
        setting(Writer, "_decided", _lost_is_not_done),
        test_lost_answers.test_a_claim_given_up_is_never_sent_and_its_late_row_becomes_not_sent,
    ),
    Mistake(
        "a time-out is a failure",
        setting(attempts, "report_of", _time_out_is_failed),
        test_reports.test_each_end_of_a_send_has_its_row,
    ),
    Mistake(
        "a cancelled send was never sent",
        setting(attempts, "report_of", _cancelled_is_not_sent),
        test_reports.test_each_end_of_a_send_has_its_row,
    ),
    Mistake(
        "the deadline counts from the answer to the claim",
        setting(Engine, "_claim", _deadline_from_the_answer),
        lambda: test_gate.test_the_deadline_counts_from_before_the_write_that_permits_the_send(False),
    ),
    Mistake(
        "the deadline counts from the answer to the retry",
        setting(Engine, "_retry", _deadline_of_a_retry_from_the_answer),
        lambda: test_gate.test_the_deadline_counts_from_before_the_write_that_permits_the_send(True),
    ),
    Mistake(
        "the deadline is counted by the monotonic clock",
        setting(Deadline, "passed", _by_monotonic),
        lambda: test_gate.test_a_pause_before_the_gate_shuts_it_by_whichever_clock_knows("sleep_of_the_host"),
    ),
    Mistake(
        "a lost machine goes on sending",
        both(setting(Attempts, "shut", _no_shut), setting(Writer, "speaks_for", lambda self, machine: True)),
        test_gate.test_a_machine_declared_lost_between_claim_and_gate_does_not_send,
    ),
    Mistake(
        "a claim answered after the loss is sent",
        setting(Writer, "speaks_for", lambda self, machine: True),
        test_gate.test_a_claim_that_is_answered_after_its_machine_was_lost_does_not_send,
    ),
    Mistake(
        "what was seen of one row is held against the next",
        setting(writing, "REPORTS", frozenset(Kind)),
        test_reports.test_what_the_sweeper_saw_is_not_held_against_a_newer_attempt,
    ),
    Mistake(
        "a send is forgotten before its report is durable",
        both(
            setting(Attempts, "knows", lambda self, record: False),
            lambda patch: patch.setattr(Writer, "gave_up", lambda self, stamp: True, raising=False),
        ),
        test_reports.test_an_interrupt_inside_the_rail_is_never_taken_for_never_sent,
    ),
    Mistake(
        "no time-out for callers",
        setting(Attempts, "_end_the_wait", lambda self, flight, record: None),
        test_reports.test_a_slow_effect_is_told_in_doubt_to_all_at_once_and_its_late_answer_settles,
    ),
    Mistake(
        "callers wait for the store for ever",
        setting(
            Attempts,
            "_give_up_later",
            lambda self, flight: 0,
        ),
        test_lost_answers.test_a_slow_send_is_told_unknown_in_time_though_the_store_is_away,
    ),
    Mistake(
        "the effect runs in its caller",
        setting(Engine, "run", _runs_in_the_caller),
        test_joining.test_a_caller_who_is_cancelled_cancels_nothing,
    ),
    Mistake(
        "a new reference for every attempt",
        setting(attempts, "reference", lambda digest, refusals, count=iter(range(99)): f"r{next(count)}"),
        test_reports.test_references_rise_only_when_the_rail_refused,
    ),
    Mistake(
        "a batch stands or falls as one",
        setting(Lane, "_commit", _all_or_none),
        test_lost_answers.test_a_poisoned_name_does_not_stall_the_others_of_its_batch,
    ),
    Mistake(
        "a settled name is sent again unasked",
        setting(Engine, "_ask_before_retry", _unasked),
        test_retries.test_a_settled_name_is_asked_about_before_it_may_send_again,
    ),
    Mistake(
        "a beat that is repeated is another beat",
        setting(Presence, "beat", _new_arguments_each_time),
        lambda: test_beats.test_a_beat_whose_answer_is_lost_is_repeated_and_costs_nobody_its_number(
            [test_beats.Fault.DONE_ANSWER_LOST]
        ),
    ),
    Mistake(
        "an observer that can't beat declares others lost",
        setting(Observer, "forget_all", lambda self: None),
        test_losses.test_no_machine_is_lost_while_the_observer_can_not_beat_itself,
    ),
    Mistake(
        "one missed look and a machine is lost",
        setting(Observer, "standing_still", _still),
        test_losses.test_the_started_row_of_a_lost_machine_is_in_doubt_and_nobody_sends_it,
    ),
    Mistake(
        "a loss is swept once",
        setting(DeadRounds, "due", _swept_once),
        test_losses.test_a_claim_that_a_lost_machine_commits_late_is_found,
    ),
    Mistake(
        "the oldest open id knows nothing of claims under way",
        setting(Engine, "ids_at_work", lambda self: ([], [])),
        test_lost_answers.test_a_claim_given_up_is_never_sent_and_its_late_row_becomes_not_sent,
    ),
    Mistake(
        "not found counts by when it was answered",
        setting(settling, "Observation", _answered_when),
        test_settling.test_not_found_counts_by_when_it_was_asked_not_by_when_it_was_answered,
    ),
    Mistake(
        "the settle window is counted by the wall clock",
        setting(windows, "passed", _by_wall_clock),
        test_settling.test_a_wall_clock_that_jumps_opens_no_settle_window,
    ),
    Mistake(
        "a resend is no write",
        setting(Engine, "_send_again", _resends_unwritten),
        test_settling.test_resends_are_limited_and_each_is_durable_before_it_is_sent,
    ),
    Mistake(
        "resends without end",
        setting(windows, "may_resend", lambda record, now, policy, facts: bool(facts.dedupes_for_seconds)),
        test_settling.test_it_is_sent_again_only_while_the_rail_surely_remembers,
    ),
    Mistake(
        "any rail is asked",
        setting(PaymentEffects, "of", _any_rail),
        lambda: test_settling.test_a_rail_of_another_name_or_account_is_never_asked_nor_sent_to(
            "scripted", "other"
        ),
    ),
    Mistake(
        "a second send beside one that is under way",
        setting(Engine, "at_work", lambda self, digest: False),
        test_settling.test_no_second_send_while_one_is_under_way_here,
    ),
    Mistake(
        "a stop leaves without a word",
        setting(Engine, "stop", _stop_at_once),
        test_stopping.test_what_does_not_finish_in_time_ends_in_doubt_and_all_are_told,
    ),
    Mistake(
        "a forked child draws the same ids",
        _unguarded,
        test_identity.test_a_forked_child_draws_nothing_and_the_parent_goes_on,
    ),
)


def passes(test: Callable[[], None]) -> bool:
    """Whether a test passes; whatever it raises is a failure."""
    try:
        test()
    except (Exception, pytest.fail.Exception):
        return False
    return True


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_the_mistake_is_caught(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert passes(mistake.test), "the test fails without the mistake too"
    mistake.plant(monkeypatch)
    assert not passes(mistake.test)


# What the simulation must find by itself, with nobody pointing at it.
FOUND_BY_CHANCE = (
    "check, then insert",
    "a lost owner's operation runs again",
    "no fingerprint",
    "advance without stamp",
    "a read in place of the repeat",
    "a time-out is a failure",
    "no time-out for callers",
    "callers wait for the store for ever",
    "the effect runs in its caller",
    "a new reference for every attempt",
    "a resend is no write",
)
PLANTS = {mistake.name: mistake.plant for mistake in MISTAKES}


def first_broken(seeds: range) -> int | None:
    """The first seed that breaks a promise."""
    for seed in seeds:
        try:
            simulate(seed)
        except Broken:
            return seed
    return None


@pytest.mark.parametrize("name", FOUND_BY_CHANCE)
def test_the_simulation_finds_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS[name](monkeypatch)
    assert first_broken(range(100)) is not None
