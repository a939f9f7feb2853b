from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonbis.core.payments import Receipt
from nonbis.errors import Declined, NotSent, OutcomeUnknown, RailError
from nonbis.ports import Found, FoundKind
from nonbis.rails.http_answers import read_find_answer, read_send_answer

MADE = {"reference": "r1", "amount": 350, "currency": "EUR", "destination": "roastery", "at": "now"}
RECEIPT = Receipt(reference="r1", amount=350, currency="EUR", destination="roastery", at="now")
BODY = json.dumps(MADE).encode()


def code(text, **more):
    return json.dumps({"code": text, **more}).encode()


@pytest.mark.parametrize("status", [200, 201])
def test_the_transfer_is_the_receipt(status):
    assert read_send_answer(status, BODY, "r1") == RECEIPT


def test_members_that_the_bank_does_not_repeat_are_none():
    assert read_send_answer(201, b'{"reference":"r1","fee":3}', "r1") == Receipt(reference="r1")


def test_a_receipt_for_another_amount_is_returned_for_the_engine_to_judge():
    assert read_send_answer(201, json.dumps({**MADE, "amount": 1}).encode(), "r1").amount == 1


@pytest.mark.parametrize("status", [200, 201])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"ok",
        b'{"amount":350}',
        BODY[:-1],
        json.dumps({**MADE, "reference": "r2"}).encode(),
        json.dumps({**MADE, "amount": "350"}).encode(),
        json.dumps({**MADE, "amount": 350.5}).encode(),
        json.dumps({**MADE, "currency": None, "destination": 5}).encode(),
        BODY[:-1] + b',"amount":1}',
        b'{"code":"declined"}',
    ],
)
def test_a_malformed_transfer_is_unknown(status, body):
    with pytest.raises(OutcomeUnknown):
        read_send_answer(status, body, "r1")
    with pytest.raises(OutcomeUnknown):
        read_find_answer(200, body, "r1")


def test_what_the_bank_says_it_did_not_do():
    with pytest.raises(Declined):
        read_send_answer(422, code("declined"), "r1")
    with pytest.raises(Declined):
        read_send_answer(422, code("declined", reference="r1"), "r1")
    with pytest.raises(NotSent):
        read_send_answer(422, code("too-late"), "r1")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (422, b""),
        (422, b"declined"),
        (422, b'"declined"'),
        (422, code("DECLINED")),
        (422, code("mismatch")),
        (422, b'{"code":["declined"]}'),
        (422, b'{"code":"mismatch","code":"declined"}'),
        (422, code("declined", reference="r2")),
        (400, code("declined")),
        (402, code("declined")),
        (404, code("too-late")),
        (409, code("under-way")),
        (409, code("declined")),
        (202, BODY),
        (204, b""),
        (301, b""),
        (429, b""),
        (500, code("declined")),
        (503, b""),
    ],
)
def test_everything_else_is_unknown(status, body):
    with pytest.raises(OutcomeUnknown):
        read_send_answer(status, body, "r1")


@given(
    status=st.integers(100, 599),
    body=st.one_of(st.binary(max_size=60), st.sampled_from([BODY, code("declined")])),
)
def test_no_answer_leads_elsewhere(status, body):
    if status not in (200, 201, 422):
        with pytest.raises(OutcomeUnknown):
            read_send_answer(status, body, "r1")
        return
    try:
        answer = read_send_answer(status, body, "r1")
    except RailError as error:
        answer = error
    clear = (Declined, NotSent) if status == 422 else (Receipt,)
    assert isinstance(answer, (OutcomeUnknown, *clear))


def test_what_the_bank_says_when_asked():
    assert read_find_answer(200, BODY, "r1") == Found(FoundKind.APPLIED, RECEIPT)
    assert read_find_answer(404, code("not-found"), "r1") == Found(FoundKind.NOT_FOUND)
    assert read_find_answer(404, b"", "r1") == Found(FoundKind.NOT_FOUND)
    assert read_find_answer(409, code("pending"), "r1") == Found(FoundKind.PENDING)
    assert read_find_answer(422, code("declined"), "r1") == Found(FoundKind.REFUSED)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (201, BODY),
        (204, b""),
        (404, code("no-such-route")),
        (422, code("too-late")),
        (422, b""),
        (400, code("not-found")),
        (401, b""),
        (500, code("not-found")),
        (501, code("not-available")),
        (503, b""),
    ],
)
def test_everything_else_is_no_answer(status, body):
    with pytest.raises(OutcomeUnknown):
        read_find_answer(status, body, "r1")
