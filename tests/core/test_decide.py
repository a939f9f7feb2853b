"""What ``decide`` writes: the same answer every time, guarded, fresh, and exactly these columns."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonbis.core.conditions import send_bit
from nonbis.core.ids import pack_id
from nonbis.core.machine import (
    ACCEPTED,
    APPLIED,
    CANCELLED,
    DECLINED,
    FAILURES,
    IN_DOUBT,
    NOT_SENT,
    RETRYABLE,
    ROWS,
    SETTLED,
    decide,
    needs_attention,
    situation,
)
from nonbis.core.messages import Decision, Event, JournalKind, Kind, Moment, Reason, Record, State
from tests.core.rows import FLAGS, but, event, events, row, rows
from tests.core.situations import FRESH, ME, NOW, OTHER, RELEVANT, STAMP, everything

# -- decide ------------------------------------------------------------------------------------------


@given(rows, events)
def test_the_same_question_has_the_same_answer(record: Record, happened: Event) -> None:
    before = msgspec.structs.asdict(record)
    assert decide(record, happened) == decide(record, happened)
    assert msgspec.structs.asdict(record) == before


def test_a_write_is_guarded_by_the_stamp_that_was_read() -> None:
    assert decide(row(), event(Kind.REPORT_APPLIED)).expected == STAMP


@given(rows | st.none(), events)
def test_every_write_is_guarded_and_freshly_stamped(record: Record | None, happened: Event) -> None:
    decision = decide(record, happened)
    if decision.record is None:
        assert decision.expected is None
        return
    assert decision.record.stamp == FRESH
    assert decision.record.changed == NOW
    assert decision.expected == (None if record is None else STAMP)
    assert (decision.record.reason is None) == (decision.record.state is not State.FAILED)
    if record is not None:
        for name in ("digest", "id", "fingerprint", "fingerprint_version", "created"):
            assert getattr(decision.record, name) == getattr(record, name)
    else:
        assert decision.record.id == FRESH


def test_no_event_makes_a_second_attempt_beside_an_open_one() -> None:
    begun = 0
    for record, happened in everything():
        after = decide(record, happened).record
        if after is not None and after.attempt != record.attempt:
            begun += 1
            assert after.attempt == record.attempt + 1
            assert situation(record) in RETRYABLE
            assert not record.contradicted
            assert happened.kind is Kind.RETRY
    assert begun > 0


def test_a_flag_is_taken_down_by_a_person_only() -> None:
    taken_down = 0
    for record, happened in everything():
        after = decide(record, happened).record
        if record.contradicted and after is not None and not after.contradicted:
            taken_down += 1
            assert happened.kind in (Kind.PERSON_APPLIED, Kind.PERSON_FAILED)
    assert taken_down > 0


@given(rows, events, st.sets(st.sampled_from(FLAGS)))
def test_only_the_facts_that_matter_matter(record: Record, happened: Event, flags: set[str]) -> None:
    idle = {flag: not getattr(happened, flag) for flag in flags if flag not in RELEVANT[happened.kind]}
    assert decide(record, msgspec.structs.replace(happened, **idle)) == decide(record, happened)


def test_a_decision_names_its_rule() -> None:
    assert decide(row(), event(Kind.REPORT_APPLIED)).rule == "report applied [same attempt] -> applied"
    assert decide(row(ACCEPTED), event(Kind.CANCEL)).rule == "cancel [not contradicted] -> failed(cancelled)"
    named = decide(row(APPLIED), event(Kind.REPORT_APPLIED, receipt_differs=True)).rule
    assert named == "report applied [same attempt, receipt differs, not contradicted] -> same"
    assert decide(None, event(Kind.CLAIM)).rule == "claim -> started"
    noted = decide(row(sends=2, open_sends=3), event(Kind.REPORT_UNKNOWN, send=1))
    assert noted == Decision(None, None, JournalKind.NOTED, "report unknown [same attempt] -> same")
    assert decide(row(CANCELLED), event(Kind.RETRY, may_retry=True)) == Decision(None, None, None, "")


# -- rows that are born, and rows that change --------------------------------------------------------


def test_a_claim_is_the_whole_row() -> None:
    claim = event(
        Kind.CLAIM, digest=b"n" * 16, fingerprint=b"r" * 16, fingerprint_version=3, rail="bank", account="a"
    )
    started = Record(
        digest=b"n" * 16,
        id=FRESH,
        fingerprint=b"r" * 16,
        fingerprint_version=3,
        state=State.STARTED,
        attempt=1,
        sends=1,
        open_sends=1,
        owner=ME,
        stamp=FRESH,
        rail="bank",
        account="a",
        created=NOW,
        started=NOW,
        referenced=NOW,
        changed=NOW,
    )
    assert decide(None, claim) == Decision(started, None, None, "claim -> started")
    bounded = decide(None, msgspec.structs.replace(claim, bounded=True)).record
    assert bounded == but(started, state=State.ACCEPTED, sends=0, open_sends=0, started=None, referenced=None)
    fenced = decide(None, msgspec.structs.replace(claim, fenced=True, bounded=True))
    assert fenced.record == but(started, state=State.IN_DOUBT)
    assert fenced.journal is JournalKind.IN_DOUBT


def test_a_tombstone_matches_every_request() -> None:
    tomb = decide(None, event(Kind.CANCEL, digest=b"n" * 16, fingerprint=None)).record
    assert tomb is not None
    assert situation(tomb) == CANCELLED
    assert (tomb.fingerprint, tomb.sends, tomb.started) == (None, 0, None)


def test_a_start_counts_the_first_send() -> None:
    accepted = row(ACCEPTED, sends=0, open_sends=0, started=None, referenced=None)
    started = but(
        accepted,
        state=State.STARTED,
        sends=1,
        open_sends=1,
        started=NOW,
        referenced=NOW,
        stamp=FRESH,
        changed=NOW,
    )
    assert decide(accepted, event(Kind.START)).record == started
    used = but(accepted, referenced=Moment(5, 6))
    assert decide(used, event(Kind.START)).record == but(started, referenced=Moment(5, 6))


def test_a_resend_is_one_more_send_by_me_under_the_same_reference() -> None:
    doubt = row(IN_DOUBT, sends=2, open_sends=2, owner=OTHER, refusals=1)
    again = decide(doubt, event(Kind.RESEND, may_resend=True)).record
    assert again == but(
        doubt, state=State.STARTED, sends=3, open_sends=6, owner=ME, started=NOW, stamp=FRESH, changed=NOW
    )


@pytest.mark.parametrize("name", RETRYABLE)
def test_a_retry_is_a_new_attempt_by_me(name: str) -> None:
    failed = row(name, sends=2, open_sends=0, owner=OTHER, refusals=1)
    again = decide(failed, event(Kind.RETRY, may_retry=True, rail="other", account="second")).record
    new_rail = {} if name == SETTLED else {"rail": "other", "account": "second"}
    assert again == but(
        failed,
        state=State.STARTED,
        reason=None,
        attempt=3,
        sends=1,
        open_sends=1,
        owner=ME,
        started=NOW,
        referenced=NOW if name == DECLINED else Moment(5, 6),
        stamp=FRESH,
        changed=NOW,
        **new_rail,
    )


def test_a_bounded_retry_has_no_send_yet() -> None:
    failed = row(NOT_SENT, sends=2, open_sends=0, owner=OTHER)
    again = decide(failed, event(Kind.RETRY, may_retry=True, bounded=True)).record
    assert again is not None
    assert (again.state, again.attempt, again.sends, again.open_sends) == (State.ACCEPTED, 3, 0, 0)
    assert (again.owner, again.started, again.referenced) == (ME, None, Moment(5, 6))


def test_a_settled_name_stays_on_its_rail() -> None:
    settled = row(SETTLED, open_sends=0)
    assert decide(settled, event(Kind.RETRY, may_retry=True, same_rail=False)).record is None
    elsewhere = event(Kind.RETRY, may_retry=True, same_rail=False)
    assert decide(row(NOT_SENT, open_sends=0, attempt=1), elsewhere).record
    assert decide(row(NOT_SENT, open_sends=0, attempt=2, refusals=1), elsewhere).record
    assert decide(row(NOT_SENT, open_sends=0, attempt=2), elsewhere).record is None


def test_what_a_person_settled_as_failed_stays_open_until_it_is_accounted_for() -> None:
    doubt = row(IN_DOUBT, sends=2, open_sends=3)
    settled = decide(doubt, event(Kind.PERSON_FAILED, forced=True)).record
    assert settled is not None
    assert (situation(settled), settled.open_sends) == (SETTLED, 3)
    assert needs_attention(settled)
    one = decide(settled, event(Kind.REPORT_NOT_SENT, send=1)).record
    assert one is not None
    assert (situation(one), one.open_sends) == (SETTLED, 2)
    for kind in (Kind.FOUND_NOTHING, Kind.FOUND_REFUSED):
        assert decide(settled, event(kind, seen=settled.stamp)).record is None
        verified = decide(settled, event(kind, seen=settled.stamp, may_settle=True)).record
        assert verified is not None
        assert (situation(verified), verified.open_sends) == (SETTLED, 0)
        assert not needs_attention(verified)


def test_a_refusal_closes_every_send_and_counts() -> None:
    failed = decide(row(sends=1), event(Kind.REPORT_DECLINED)).record
    assert failed == but(
        row(), state=State.FAILED, reason=Reason.DECLINED, open_sends=0, refusals=1, stamp=FRESH, changed=NOW
    )
    bound = decide(
        row(sends=2, open_sends=3), event(Kind.REPORT_DECLINED, send=2, binds_refusals=True)
    ).record
    assert bound is not None
    assert (situation(bound), bound.open_sends) == (DECLINED, 0)


def test_a_send_that_had_no_effect_is_closed_and_the_other_stays_open() -> None:
    both = row(IN_DOUBT, sends=2, open_sends=3)
    for kind in (Kind.REPORT_DECLINED, Kind.REPORT_NOT_SENT):
        assert decide(both, event(kind, send=1)).record == but(both, open_sends=2, stamp=FRESH, changed=NOW)
        after = decide(but(both, open_sends=2), event(kind, send=1))
        assert (after.record, after.journal) == (None, None), "one decided again is not counted twice"


def test_only_the_present_send_moves_a_started_row() -> None:
    both = row(sends=2, open_sends=3)
    for kind in (Kind.REPORT_DECLINED, Kind.REPORT_NOT_SENT, Kind.REPORT_UNKNOWN):
        earlier = decide(both, event(kind, send=1))
        assert (earlier.record, earlier.journal) == (None, JournalKind.NOTED)
    applied = decide(both, event(Kind.REPORT_APPLIED, send=1)).record
    assert applied is not None
    assert applied.state is State.APPLIED


def test_a_rails_refusal_counts_at_once_only_for_the_only_send_of_its_reference() -> None:
    shown = event(Kind.FOUND_REFUSED)
    assert decide(row(IN_DOUBT, attempt=1, refusals=0), shown).record
    assert decide(row(IN_DOUBT, attempt=3, refusals=2), shown).record
    assert decide(row(IN_DOUBT, attempt=2, refusals=0), shown).record is None
    assert decide(row(IN_DOUBT, attempt=1, refusals=0, sends=2, open_sends=2), shown).record is None
    bound = event(Kind.FOUND_REFUSED, binds_refusals=True)
    assert decide(row(IN_DOUBT, attempt=2, refusals=0), bound).record
    late = event(Kind.FOUND_REFUSED, may_settle=True)
    assert decide(row(IN_DOUBT, attempt=2, refusals=0, sends=2), late).record


@pytest.mark.parametrize(
    "kind", [Kind.FOUND_REFUSED, Kind.FOUND_NOTHING, Kind.PERSON_APPLIED, Kind.PERSON_FAILED]
)
def test_an_answer_counts_for_the_row_that_was_seen(kind: Kind) -> None:
    sure = {"binds_refusals": True, "may_settle": True, "forced": True}
    assert decide(row(IN_DOUBT), event(kind, **sure)).record
    assert decide(row(IN_DOUBT), event(kind, seen=STAMP - 1, **sure)).record is None


def test_a_start_is_the_owners_under_its_own_stamp() -> None:
    accepted = row(ACCEPTED, sends=0, open_sends=0)
    assert decide(accepted, event(Kind.START)).record
    assert decide(accepted, event(Kind.START, seen=STAMP - 1)).record is None
    assert decide(but(accepted, owner=OTHER), event(Kind.START)).record is None
    assert decide(but(accepted, contradicted=True), event(Kind.START)).record is None


@pytest.mark.parametrize(("send", "bit"), [(-1, 0), (0, 0), (1, 1), (2, 2), (3, 4), (61, 2**60)])
def test_the_bit_of_a_send(send: int, bit: int) -> None:
    assert send_bit(send) == bit


# -- attention ---------------------------------------------------------------------------------------

PLAIN = {"id": pack_id(ME, 5), "owner": ME, "attempt": 1, "sends": 1, "contradicted": False}


@pytest.mark.parametrize("name", ROWS)
def test_a_plain_row_needs_attention_only_in_doubt(name: str) -> None:
    """... or settled by a person while a send is not accounted for."""
    assert needs_attention(row(name, **PLAIN)) == (name in {IN_DOUBT, SETTLED})


@pytest.mark.parametrize("name", ROWS)
def test_a_contradicted_row_always_needs_attention(name: str) -> None:
    assert needs_attention(row(name, **{**PLAIN, "contradicted": True}))


@pytest.mark.parametrize("unusual", [{"attempt": 2}, {"sends": 2}, {"owner": OTHER}])
@pytest.mark.parametrize("name", ROWS)
def test_an_unusual_row_needs_attention_until_it_is_final(name: str, unusual: dict[str, Any]) -> None:
    final = name == APPLIED or (name in FAILURES and name != SETTLED)
    assert needs_attention(row(name, **{**PLAIN, **unusual})) == (not final)


def test_an_accepted_row_without_a_send_needs_none() -> None:
    assert not needs_attention(row(ACCEPTED, **{**PLAIN, "sends": 0}))
