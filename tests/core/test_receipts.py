"""Receipts, outcomes, and the payment as clients see it."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from nonbis.core.ids import pack_id
from nonbis.core.messages import Moment, Reason, Record, State
from nonbis.core.payments import (
    Outcome,
    Receipt,
    Transfer,
    decode_outcome,
    encode_outcome,
    payment_outcome,
    payment_view,
    timestamp,
)

TRANSFER = Transfer(amount=1050, currency="EUR", destination="acct-1")


# -- receipts and outcomes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("receipt", "member"),
    [
        ({}, None),
        ({"amount": 1050, "currency": "EUR", "destination": "acct-1", "at": "x", "id": "y"}, None),
        ({"amount": 1051}, "amount"),
        ({"currency": "USD"}, "currency"),
        ({"destination": "acct-2"}, "destination"),
        ({"amount": 0}, "amount"),
        ({"destination": ""}, "destination"),
        ({"currency": "USD", "destination": "acct-2"}, "currency"),
    ],
)
def test_a_receipt_for_another_transfer_is_noticed(receipt: dict[str, Any], member: str | None) -> None:
    assert Receipt(reference="r", **receipt).contradicts(TRANSFER) == member


def test_an_outcome_is_kept_byte_for_byte() -> None:
    outcome = Outcome(status=201, body=b"\0\xff{}", receipt=Receipt(reference="r", at="\0"), detail="d")
    assert decode_outcome(encode_outcome(outcome)) == outcome
    bare = Outcome(status=503, body=b"")
    assert decode_outcome(encode_outcome(bare)) == bare


def record(**facts: Any) -> Record:
    """An applied row."""
    return msgspec.structs.replace(
        Record(
            digest=b"d" * 16,
            id=pack_id(7, 8_400_000),
            fingerprint=b"f" * 16,
            state=State.APPLIED,
            owner=7,
            stamp=1,
            attempt=2,
            created=Moment(1_700_000_000_001, 0),
            changed=Moment(1_700_000_060_120, 0),
        ),
        **facts,
    )


def test_the_payment_as_clients_see_it() -> None:
    receipt = Receipt(reference="r")
    assert msgspec.to_builtins(payment_view(record(), TRANSFER, receipt)) == {
        "id": "7:8400000",
        "state": "applied",
        "amount": 1050,
        "currency": "EUR",
        "destination": "acct-1",
        "attempt": 2,
        "created_at": "2023-11-14T22:13:20.001Z",
        "changed_at": "2023-11-14T22:14:20.120Z",
        "receipt": {"reference": "r"},
    }


def test_what_is_out_of_the_ordinary_is_seen() -> None:
    full = msgspec.structs.replace(TRANSFER, description="rent", metadata={"a": "b"})
    failed = record(state=State.FAILED, reason=Reason.DECLINED, contradicted=True)
    view = msgspec.to_builtins(payment_view(failed, full, None))
    assert view["state"] == "failed"
    assert view["reason"] == "declined"
    assert view["contradicted"] is True
    assert view["receipt"] is None
    assert (view["description"], view["metadata"]) == ("rent", {"a": "b"})


def test_the_outcome_holds_the_body_that_is_sent_and_replayed() -> None:
    receipt = Receipt(reference="r", amount=1050)
    outcome = payment_outcome(record(), TRANSFER, receipt)
    assert outcome.status == 201
    assert outcome.receipt == receipt
    assert json.loads(outcome.body) == msgspec.to_builtins(payment_view(record(), TRANSFER, receipt))


@pytest.mark.parametrize(
    ("wall_ms", "said"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (951_782_400_050, "2000-02-29T00:00:00.050Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_moments_are_written_in_utc_to_the_millisecond(wall_ms: int, said: str) -> None:
    assert timestamp(wall_ms) == said
