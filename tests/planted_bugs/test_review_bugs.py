"""Faults that a review found in the engine, each put back and seen caught by a named test."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nonbis.core import conditions, windows
from nonbis.core.machine import needs_attention
from nonbis.core.messages import Kind, Reason, Record
from nonbis.core.policy import Agreement, joined, settle_seconds
from nonbis.engine import attempts, engine, writing
from nonbis.engine.attempts import Attempts
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Standing, standing_of
from nonbis.engine.writing import Observation, Writer
from nonbis.errors import AnswerLost, EngineStopping, StoreUnavailable
from nonbis.faces import answers
from tests.engine import test_agreement, test_error_texts, test_let_go, test_unanswered_claims
from tests.faces import test_another_rail
from tests.upkeep import test_clones, test_settlements

writer_claim = Writer.claim
keep_to_agreement = Engine.keep_to_agreement


class Fault(NamedTuple):
    """What was wrong, where, and the test that must not pass with it."""

    name: str
    owner: Any
    member: str
    wrong: Any
    test: Callable[[], None]


def _with_my_deadline(agreed: Agreement | None, mine: Agreement, *, replaces: bool = False) -> Agreement:
    return joined(agreed, mine, replaces=True)


async def _by_own_policy_alone(self: Writer, record: Record, asked: Any) -> bool:
    seconds = settle_seconds(None, self._mine, record.rail, record.account)
    return seconds is not None and windows.may_settle(record, asked, seconds)


async def _keeps_on(self: Engine) -> None:
    pass


async def _outvoted_for_good(self: Engine) -> None:
    if not self.outvoted:
        await keep_to_agreement(self)


async def _unanswered_is_not_done(self: Writer, decision: Any, call: Any) -> Any:
    try:
        return await writer_claim(self, decision, call)
    except AnswerLost:
        raise StoreUnavailable("the store has not answered; nothing was sent") from None


async def _left_to_whoever_ended_it(self: Attempts, flight: Any, record: Record, because: str) -> None:
    report = Observation(kind=Kind.REPORT_UNKNOWN, attempt=record.attempt, send=record.sends, because=because)
    applied = await self._writer.apply(record, report)
    if standing_of(applied.record) is not Standing.FINAL:
        flight.doubted(applied.record)


def _without_settled_rows(record: Record) -> bool:
    return record.reason is not Reason.SETTLED and needs_attention(record)


@contextmanager
def _without_patience(self: Attempts, flight: Any) -> Iterator[None]:
    yield


async def _for_ever(self: Engine, flight: Any) -> Record:
    record: Record = await flight.entered()
    return record


FAULTS = (
    Fault(
        "joining shortens the send deadline of others",
        engine,
        "joined",
        _with_my_deadline,
        test_agreement.test_a_process_that_joins_with_a_shorter_send_deadline_brings_no_second_effect,
    ),
    Fault(
        "settling counts by one's own windows",
        Writer,
        "_may_settle",
        _by_own_policy_alone,
        test_agreement.test_a_process_that_joins_with_a_longer_settle_window_brings_no_second_effect,
    ),
    Fault(
        "the weaker one goes on",
        Engine,
        "keep_to_agreement",
        _keeps_on,
        test_agreement.test_a_running_process_that_became_the_weaker_one_takes_no_more_claims,
    ),
    Fault(
        "once the weaker one, always the weaker one",
        Engine,
        "keep_to_agreement",
        _outvoted_for_good,
        test_agreement.test_it_takes_claims_again_as_soon_as_the_agreement_allows_it,
    ),
    Fault(
        "any row that I do not know was never sent",
        Writer,
        "gave_up",
        lambda self, stamp: True,
        test_clones.test_what_a_clone_is_sending_goes_in_doubt_and_never_to_not_sent,
    ),
    Fault(
        "no claim is known as given up",
        Writer,
        "gave_up",
        lambda self, stamp: False,
        test_clones.test_a_row_whose_claim_was_given_up_was_never_sent,
    ),
    Fault(
        "no retry is known as given up",
        Writer,
        "gave_up",
        lambda self, stamp: False,
        test_clones.test_a_row_whose_retry_was_given_up_was_never_sent,
    ),
    Fault(
        "an unanswered claim is not done",
        Writer,
        "claim",
        _unanswered_is_not_done,
        test_unanswered_claims.test_a_claim_without_an_answer_is_unknown_for_another_process_may_send_it,
    ),
    Fault(
        "an unanswered claim is not done, over HTTP",
        Writer,
        "claim",
        _unanswered_is_not_done,
        test_unanswered_claims.test_over_http_it_is_503_with_the_effect_unknown,
    ),
    Fault(
        "a stop during the claim is not done",
        engine,
        "AnswerLost",
        EngineStopping,
        test_unanswered_claims.test_a_stop_during_the_claim_is_unknown,
    ),
    Fault(
        "a stop during the claim is not done, over HTTP",
        engine,
        "AnswerLost",
        EngineStopping,
        test_unanswered_claims.test_a_stop_during_the_claim_is_503_with_the_effect_unknown,
    ),
    Fault(
        "the rail is asked only before the attempt after the settlement",
        engine,
        "reference_was_used",
        lambda record: False,
        test_settlements.test_the_rail_is_asked_before_every_attempt_under_a_reference_that_was_used,
    ),
    Fault(
        "another rail makes the next attempt",
        conditions,
        "reference_was_used",
        lambda record: False,
        test_settlements.test_a_process_with_another_rail_makes_no_attempt_for_a_reference_that_was_used,
    ),
    Fault(
        "a settlement is forgotten at a restart",
        writing,
        "needs_attention",
        _without_settled_rows,
        test_settlements.test_what_was_settled_as_failed_is_asked_about_once_more_after_a_restart,
    ),
    Fault(
        "a hanging send holds its callers though its row has ended",
        Attempts,
        "doubt",
        _left_to_whoever_ended_it,
        test_let_go.test_a_row_that_another_process_has_ended_lets_the_callers_of_a_hanging_send_go,
    ),
    Fault(
        "a hanging claim holds its first caller",
        Attempts,
        "claiming",
        _without_patience,
        test_let_go.test_callers_of_a_claim_that_the_store_never_answers_are_let_go,
    ),
    Fault(
        "a hanging claim holds those who join",
        Engine,
        "_entered",
        _for_ever,
        test_let_go.test_callers_of_a_claim_that_the_store_never_answers_are_let_go,
    ),
    Fault(
        "a client is told for ever to ask again where nothing can be done",
        answers,
        "reference_was_used",
        lambda record: False,
        test_another_rail.test_what_can_not_be_retried_here_is_replayed_as_failed,
    ),
)


def passes(test: Callable[[], None]) -> bool:
    """Whether a test passes; whatever it raises is a failure."""
    try:
        test()
    except (Exception, pytest.fail.Exception):
        return False
    return True


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    assert passes(fault.test), "the test fails without the fault too"
    monkeypatch.setattr(fault.owner, fault.member, fault.wrong)
    assert not passes(fault.test)


def test_words_written_as_they_come_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a NUL: a lone surrogate does the same, but no report of a parallel run can hold it."""
    text = "a NUL \0"
    for module in (writing, attempts):
        monkeypatch.setattr(module, "writable", lambda words: words)
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # no report can hold the words
    monkeypatch.setattr(test_error_texts, "PATIENCE_SECONDS", 1.0)
    with pytest.raises((AssertionError, TimeoutError)):
        test_error_texts.test_an_error_text_that_no_store_can_hold_is_written_in_other_signs(text, tmp_path)
    gc.collect()  # what was left behind speaks now, while nobody writes it down
