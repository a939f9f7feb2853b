"""What a bank-like upstream's answers mean. Whatever is not clear is unknown, never a failure."""

from __future__ import annotations

from typing import Any

import msgspec

from nonbis.core.fingerprint import parse_json
from nonbis.core.payments import Receipt
from nonbis.core.refusals import BodyMalformed
from nonbis.errors import Declined, NotSent, OutcomeUnknown
from nonbis.ports import Found, FoundKind


def read_send_answer(status: int, body: bytes, reference: str) -> Receipt:
    """The receipt in the answer to POST /transfers.

    Raises Declined, NotSent (the bank says that it came too late and did nothing) or OutcomeUnknown.
    """
    if status in (200, 201):
        return _receipt(status, body, reference)
    code = _code(body, reference)
    if status == 422 and code == "declined":
        raise Declined("the bank declined the transfer")
    if status == 422 and code == "too-late":
        raise NotSent("the bank got the transfer after its deadline and did not make it")
    raise OutcomeUnknown(f"the bank answered {status}" + (f" ({code})" if code else ""))


def read_find_answer(status: int, body: bytes, reference: str) -> Found:
    """What the answer to GET /transfers/{reference} says. Raises OutcomeUnknown where it says nothing."""
    if status == 200:
        return Found(FoundKind.APPLIED, _receipt(status, body, reference))
    if status == 409:
        return Found(FoundKind.PENDING)
    code = _code(body, reference)
    if status == 422 and code == "declined":
        return Found(FoundKind.REFUSED)
    if status == 404 and code in ("", "not-found"):
        return Found(FoundKind.NOT_FOUND)
    raise OutcomeUnknown(f"the bank, asked, answered {status}" + (f" ({code})" if code else ""))


def _receipt(status: int, body: bytes, reference: str) -> Receipt:
    try:
        receipt = msgspec.convert(parse_json(body), Receipt)
    except (BodyMalformed, msgspec.ValidationError) as error:
        raise OutcomeUnknown(f"the bank answered {status} with what is no transfer: {error}") from error
    if receipt.reference != reference:
        raise OutcomeUnknown(f"the bank answered {status} with the transfer of another reference")
    return receipt


def _code(body: bytes, reference: str) -> str:
    """The answer's code, cut short; "" if there is none, or if it is about another reference."""
    try:
        members: Any = parse_json(body)
    except BodyMalformed:
        return ""
    if not isinstance(members, dict) or members.get("reference", reference) != reference:
        return ""
    code = members.get("code")
    return code[:40] if isinstance(code, str) else ""
