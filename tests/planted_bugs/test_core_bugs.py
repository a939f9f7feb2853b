"""Each rule of the core broken on purpose, and the test that holds it seen to fail."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from nonbis.core import fingerprint, ids, machine, messages, names, payments, policy, windows
from nonbis.core.machine import TRANSITIONS
from nonbis.core.messages import Kind
from nonbis.core.refusals import BodyMalformed
from tests.core import (
    rows,
    situations,
    test_decide,
    test_fingerprint,
    test_ids,
    test_names,
    test_payments,
    test_policy,
    test_receipts,
    test_table,
)
from tests.model import test_windows
from tests.model.plants import TABLES, dropped, on, planted, with_changes

Test = Callable[..., Any]


def caught(test: Test, *arguments: Any) -> bool:
    """Whether a test fails with what is in place now."""
    try:
        test(*arguments)
    except (AssertionError, pytest.fail.Exception):
        return True
    return False


class Bug:
    """A bug: what is replaced in which modules, and the named test that must catch it."""

    def __init__(self, name: str, test: Test, *arguments: Any, **replaced: Any) -> None:
        self.name = name
        self.test = test
        self.arguments = arguments
        self.replaced = replaced

    def places(self) -> list[tuple[Any, str, Any]]:
        """Every module that knows the name, with what stands there instead."""
        return [
            (module, name, value)
            for name, value in self.replaced.items()
            for module in MODULES
            if hasattr(module, name)
        ]


MODULES = (
    fingerprint,
    ids,
    machine,
    messages,
    names,
    payments,
    policy,
    windows,
    rows,
    situations,
    test_decide,
    test_fingerprint,
    test_ids,
    test_names,
    test_payments,
    test_policy,
    test_receipts,
    test_table,
    test_windows,
)


def _as_floats(value: Any) -> bytes:
    """Canonical JSON as some libraries write it: every number through a double."""
    return json.dumps(json.loads(json.dumps(value), parse_int=float), sort_keys=True).encode()


def _lenient(body: bytes) -> Any:
    """JSON as most decoders read it: the last of two members, any integer, NaN."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BodyMalformed(str(error)) from None


def _unkeyed(self: names.Digester, name: str) -> bytes:
    parts = names.length_prefixed(self.tenant.encode(), self.scope.encode(), name.encode())
    return hashlib.blake2b(parts, digest_size=16).digest()


def _run_together(*parts: bytes) -> bytes:
    return b"".join(parts)


def _without_metadata(transfer: payments.Transfer) -> bytes:
    return fingerprint.fingerprint(
        str(transfer.amount).encode(), transfer.currency.encode(), transfer.destination.encode()
    )


def _in_order_of_arrival(transfer: payments.Transfer) -> bytes:
    return fingerprint.fingerprint(payments.encode_transfer(transfer))


def _wall_alone(since: messages.Moment, now: messages.Moment, seconds: float) -> bool:
    return now.wall_ms - since.wall_ms >= seconds * 1000


def _wall_within(since: messages.Moment, now: messages.Moment, seconds: float) -> bool:
    return now.wall_ms - since.wall_ms < seconds * 1000


class BelievedReceipt(payments.Receipt, frozen=True, kw_only=True):
    """A receipt that nobody reads."""

    def contradicts(self, transfer: payments.Transfer) -> None:
        return None


BUGS = (
    Bug(
        "no fingerprint",
        test_fingerprint.test_other_parts_have_another_fingerprint,
        fingerprint=lambda *parts: bytes(16),
    ),
    Bug(
        "a fingerprint of parts run together",
        test_fingerprint.test_other_parts_have_another_fingerprint,
        fingerprint=lambda *parts: hashlib.blake2b(b"".join(parts), digest_size=16).digest(),
    ),
    Bug(
        "numbers through a double",
        test_fingerprint.test_a_value_without_canonical_form_is_refused,
        canonical_json=_as_floats,
    ),
    Bug(
        "integers beyond 2^53 read",
        test_fingerprint.test_refused_integers_are_refused_wherever_they_stand,
        parse_json=_lenient,
    ),
    Bug(
        "the last of two members wins",
        test_fingerprint.test_strict_json_refuses,
        b'{"a":1,"a":2}',
        "the member 'a' stands twice in one object",
        parse_json=_lenient,
    ),
    Bug(
        "NaN is read",
        test_fingerprint.test_strict_json_refuses,
        b'{"a":NaN}',
        "NaN is not JSON",
        parse_json=_lenient,
    ),
    Bug(
        "order of members counts",
        test_fingerprint.test_the_same_meaning_is_the_same_request,
        '{"a":1,"b":2}',
        '{"b":2,"a":1}',
        canonical_json=lambda value: json.dumps(value).encode(),
    ),
    Bug(
        "order of lists does not count",
        test_fingerprint.test_another_meaning_is_another_request,
        '{"l":[1,2]}',
        '{"l":[2,1]}',
        canonical_json=lambda value: bytes(sorted(json.dumps(value, sort_keys=True).encode())),
    ),
    Bug(
        "metadata outside the fingerprint",
        test_payments.test_each_member_counts,
        transfer_fingerprint=_without_metadata,
    ),
    Bug(
        "order of metadata counts",
        test_payments.test_the_order_of_metadata_does_not_count,
        transfer_fingerprint=_in_order_of_arrival,
    ),
    Bug(
        "digests without length prefixes",
        test_names.test_two_lists_never_look_alike,
        length_prefixed=_run_together,
    ),
    Bug(
        "names stripped",
        test_names.test_a_character_that_is_not_visible_is_refused,
        " a",
        check_name=str.strip,
    ),
    Bug(
        "the reference rises with every attempt",
        test_names.test_the_reference_is_made_of_the_digest,
        reference=lambda digest, refusals: f"{digest.hex()}-{refusals + 1}",
    ),
    Bug(
        "one key check for all",
        test_names.test_the_check_value_tells_keys_apart_and_gives_none_away,
        store_key_check=lambda key: bytes(8),
    ),
    Bug(
        "ids that share the sequence bits",
        test_ids.test_packing_loses_nothing,
        pack_id=lambda machine, sequence: machine << 39 | sequence,
    ),
    Bug(
        "lenient ids",
        test_ids.test_what_is_no_id_is_refused,
        " 1:1",
        parse_id=lambda text: ids.pack_id(*map(int, text.split(":"))),
    ),
    Bug("a window by the wall clock alone", test_windows.test_settling_is_never_early, passed=_wall_alone),
    Bug(
        "a resend by the wall clock alone",
        test_windows.test_a_resend_always_meets_the_rails_memory,
        within=_wall_within,
    ),
    Bug(
        "no settle window",
        test_windows.test_settling_is_never_early,
        settle_seconds=lambda deadline, facts: 0.0,
    ),
    Bug(
        "the flight of a resend forgotten",
        test_windows.test_a_resend_always_meets_the_rails_memory,
        settle_seconds=lambda deadline, facts: 0.0,
    ),
    Bug(
        "a resend window from the last send",
        test_windows.test_the_window_is_that_of_the_reference_not_of_the_last_send,
        may_resend=lambda record, now, policy, facts: windows.within(
            record.started, now, facts.dedupes_for_seconds or 0
        ),
    ),
    Bug(
        "nothing is weaker", test_policy.test_a_longer_send_deadline_is_weaker, weaker=lambda agreed, mine: []
    ),
    Bug(
        "facts of other rails are lost",
        test_policy.test_a_process_brings_its_own_facts_and_keeps_those_of_other_rails,
        joined=lambda agreed, mine, **how: mine,
    ),
    Bug(
        "a row without attention",
        test_decide.test_a_plain_row_needs_attention_only_in_doubt,
        "in_doubt",
        needs_attention=lambda record: False,
    ),
    Bug("every send has the first bit", test_decide.test_the_bit_of_a_send, 2, 2, send_bit=lambda send: 1),
    Bug(
        "a receipt is believed",
        test_receipts.test_a_receipt_for_another_transfer_is_noticed,
        {"amount": 1051},
        "amount",
        Receipt=BelievedReceipt,
    ),
)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_caught_by_the_named_test(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not caught(bug.test, *bug.arguments), "the test fails without the bug"
    assert bug.places(), "the bug is planted nowhere"
    with monkeypatch.context() as patch:
        for module, name, value in bug.places():
            patch.setattr(module, name, value)
        assert caught(bug.test, *bug.arguments)


def test_an_unkeyed_digest_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    test = test_names.test_another_tenant_scope_or_key_gives_another_digest
    assert not caught(test)
    monkeypatch.setattr(names.Digester, "digest", _unkeyed)
    assert caught(test)


TABLE_TESTS: dict[str, tuple[tuple[machine.Transition, ...], Test]] = {
    "a retryable tombstone": (
        TABLES["retryable tombstone"],
        test_table.test_what_the_table_gives_is_what_was_reviewed,
    ),
    "a retry of what is in doubt": (
        TABLES["in doubt is retried"],
        test_decide.test_no_event_makes_a_second_attempt_beside_an_open_one,
    ),
    "a contradiction that does not block": (
        TABLES["contradiction does not block"],
        test_decide.test_no_event_makes_a_second_attempt_beside_an_open_one,
    ),
    "a reference kept after a refusal": (
        with_changes(on(Kind.REPORT_DECLINED), "all sends are closed"),
        test_decide.test_a_refusal_closes_every_send_and_counts,
    ),
    "a resend that is not counted": (
        TABLES["resend is not counted"],
        test_decide.test_a_resend_is_one_more_send_by_me_under_the_same_reference,
    ),
    "overdue never said": (
        dropped(on(Kind.OVERDUE)),
        test_table.test_what_the_table_gives_is_what_was_reviewed,
    ),
}


@pytest.mark.parametrize("name", TABLE_TESTS)
def test_a_wrong_table_is_caught(name: str) -> None:
    table, test = TABLE_TESTS[name]
    assert table != TRANSITIONS
    assert not caught(test)
    with planted(table):
        assert caught(test)


def test_an_unguarded_advance_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that forgets under which stamp it was made would let any writer win."""
    true_decide = machine.decide

    def forgetful(record: messages.Record | None, event: messages.Event) -> messages.Decision:
        decision = true_decide(record, event)
        return messages.Decision(decision.record, None, decision.journal, decision.rule)

    test = test_decide.test_a_write_is_guarded_by_the_stamp_that_was_read
    assert not caught(test)
    monkeypatch.setattr(test_decide, "decide", forgetful)
    assert caught(test)
