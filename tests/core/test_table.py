"""The table of transitions as a whole: known names, reachable, final where it says so, as reviewed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nonbis.core.conditions import CHANGES, GUARDS
from nonbis.core.machine import (
    ACCEPTED,
    APPLIED,
    CANCELLED,
    FAILURES,
    IN_DOUBT,
    NONE,
    REJECTED,
    RETRYABLE,
    ROWS,
    SITUATIONS,
    TRANSITIONS,
    Transition,
    situation,
)
from nonbis.core.messages import JournalKind, Kind, Reason, State
from tests.core.rows import FLAGS, row
from tests.core.situations import RELEVANT, events_of, lines, rows_in

GOLDEN = Path(__file__).with_name("transitions.txt")


# -- the table as a whole ----------------------------------------------------------------------------


def test_every_name_in_the_table_is_known() -> None:
    for transition in TRANSITIONS:
        assert set(transition.sources) <= set(SITUATIONS)
        assert set(transition.guards) <= GUARDS.keys(), transition.rule
        assert set(transition.changes) <= CHANGES.keys(), transition.rule


def test_every_name_is_used() -> None:
    assert {name for transition in TRANSITIONS for name in transition.guards} == GUARDS.keys()
    assert {name for transition in TRANSITIONS for name in transition.changes} == CHANGES.keys()
    assert {transition.event for transition in TRANSITIONS} == set(Kind)
    used = {transition.journal for transition in TRANSITIONS if transition.journal}
    assert used == set(JournalKind)


def test_situations_are_the_states_and_the_reasons() -> None:
    assert set(ROWS) == {
        *(state.value for state in State if state is not State.FAILED),
        *(f"failed({reason.value})" for reason in Reason),
    }
    assert (NONE, *ROWS) == SITUATIONS
    assert set(FAILURES) == {*RETRYABLE, REJECTED, CANCELLED}
    assert situation(None) == NONE
    assert [situation(row(name)) for name in ROWS] == list(ROWS)


def test_a_reason_stands_exactly_with_failed() -> None:
    for transition in TRANSITIONS:
        assert (transition.state is State.FAILED) == (transition.reason is not None), transition.rule


def test_no_transition_stands_behind_one_that_always_applies() -> None:
    """For one situation and event the first whose guards hold applies: none after an unguarded one could."""
    for name in SITUATIONS:
        for kind in Kind:
            guards = [rule.guards for rule in _rules(name, kind)]
            for position, earlier in enumerate(guards):
                for later in guards[position + 1 :]:
                    assert not set(earlier) <= set(later), (name, kind, earlier, later)


def _rules(name: str, kind: Kind) -> list[Transition]:
    return [rule for rule in TRANSITIONS if name in rule.sources and rule.event is kind]


def _target(transition: Transition, source: str) -> str:
    if transition.state is None:
        return source
    return transition.state.value if transition.reason is None else f"failed({transition.reason.value})"


def _edges() -> set[tuple[str, str]]:
    return {
        (source, _target(transition, source))
        for transition in TRANSITIONS
        for source in transition.sources
        if transition.writes
    }


def test_every_situation_can_be_reached() -> None:
    reached, edges = {NONE}, _edges()
    for _ in SITUATIONS:
        reached |= {target for source, target in edges if source in reached}
    assert reached == set(SITUATIONS)


def test_every_open_situation_can_come_to_an_end() -> None:
    ending, edges = {APPLIED, *FAILURES}, _edges()
    for _ in SITUATIONS:
        ending |= {source for source, target in edges if target in ending}
    assert ending == set(SITUATIONS)


def test_only_a_person_and_a_contradiction_lead_away_from_applied() -> None:
    away = [rule for rule in TRANSITIONS if APPLIED in rule.sources and _target(rule, APPLIED) != APPLIED]
    assert [rule.event for rule in away] == [Kind.PERSON_FAILED]
    assert {"as seen", "contradicted"} <= set(away[0].guards)


@pytest.mark.parametrize("name", [CANCELLED, REJECTED])
def test_cancelled_and_rejected_stay(name: str) -> None:
    away = [rule for rule in TRANSITIONS if name in rule.sources and _target(rule, name) != name]
    assert [rule.event for rule in away] == [Kind.PERSON_APPLIED]
    assert {"as seen", "contradicted"} <= set(away[0].guards)


def test_an_attempt_begins_from_nothing_or_a_sure_failure_only() -> None:
    for rule in TRANSITIONS:
        if {"next attempt, first send", "next attempt, no send yet"} & set(rule.changes):
            assert set(rule.sources) <= set(RETRYABLE), rule.rule
            assert {"may retry", "not contradicted"} <= set(rule.guards), rule.rule
        if rule.state is State.STARTED:
            assert set(rule.sources) <= {NONE, ACCEPTED, IN_DOUBT, *RETRYABLE}, rule.rule


def test_every_send_is_counted_and_no_contradicted_name_sends() -> None:
    counting = {"first send", "one more send", "next attempt, first send"}
    for rule in TRANSITIONS:
        if rule.state is State.STARTED:
            assert len(counting & set(rule.changes)) == 1, rule.rule
            assert NONE in rule.sources or "not contradicted" in rule.guards, rule.rule


def test_in_doubt_ends_as_failed_only_for_a_reason_that_is_sure() -> None:
    sure = {
        Kind.REPORT_DECLINED: {"open send"},
        Kind.REPORT_NOT_SENT: {"open send", "no other send open"},
        Kind.FOUND_REFUSED: {"same rail", "as seen"},
        Kind.FOUND_NOTHING: {"same rail", "as seen", "settle window passed"},
        Kind.PERSON_FAILED: {"as seen"},
    }
    found = [rule for rule in TRANSITIONS if IN_DOUBT in rule.sources and rule.state is State.FAILED]
    assert {rule.event for rule in found} == set(sure)
    for rule in found:
        assert sure[rule.event] <= set(rule.guards), rule.rule
        if rule.event is Kind.PERSON_FAILED:
            assert {"settle window passed", "forced"} & set(rule.guards), rule.rule


def test_the_reference_rises_only_when_the_rail_refused() -> None:
    for rule in TRANSITIONS:
        rises = "one more refusal" in rule.changes
        assert rises == (rule.reason is Reason.DECLINED and rule.writes), rule.rule


def test_what_the_table_gives_is_what_was_reviewed() -> None:
    """After a meant change of the table write the file anew, see ``situations``."""
    assert list(lines()) == GOLDEN.read_text().splitlines()


def test_the_text_speaks_of_every_situation_and_event() -> None:
    pairs = {tuple(line.split(" | ")[:2]) for line in GOLDEN.read_text().splitlines()}
    assert pairs == {(name, str(kind)) for name in SITUATIONS for kind in Kind}


# -- the enumeration itself --------------------------------------------------------------------------


def test_the_enumeration_covers_flags_and_situations() -> None:
    assert RELEVANT.keys() == set(Kind)
    assert {flag for facts in RELEVANT.values() for flag in facts} >= set(FLAGS)
    assert all(len(list(rows_in(name))) >= 8 for name in ROWS)
    assert len(list(events_of(Kind.RETRY))) == 16
