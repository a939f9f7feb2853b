"""Payments: the transfer that a client asks for, its identity, and what is kept of its outcome.

One fingerprint is taken over the parsed transfer with its defaults filled in, so that every form in
which the same payment can be posted is the same request.
"""

from __future__ import annotations

import datetime
import functools
from typing import Any

import msgspec

from nonbis.core.currencies import EXPONENTS
from nonbis.core.fingerprint import SAFE_INTEGER_MAX, fingerprint
from nonbis.core.ids import format_id
from nonbis.core.messages import Reason, Record, State
from nonbis.core.refusals import BodyMalformed, MemberInvalid

SCOPE = "payments"
"""``/payment``, ``/payments`` and every later face for payments share one scope."""
AMOUNT_MAX = SAFE_INTEGER_MAX
DESTINATION_LENGTH_MAX = 128
DESCRIPTION_LENGTH_MAX = 1000
METADATA_MEMBERS_MAX = 50
METADATA_NAME_LENGTH_MAX = 40
METADATA_VALUE_LENGTH_MAX = 500


class Transfer(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is to be paid. ``amount`` is an integer in the minor unit of ``currency``."""

    amount: int
    currency: str
    destination: str
    description: str | None = None
    metadata: dict[str, str] | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What a rail says of a transfer that it made; members that it can't repeat are None."""

    reference: str
    amount: int | None = None
    currency: str | None = None
    destination: str | None = None
    at: str | None = None
    id: str | None = None

    def contradicts(self, transfer: Transfer) -> str | None:
        """The first member in which this receipt is for another transfer, or None."""
        for name in ("amount", "currency", "destination"):
            mine = getattr(self, name)
            if mine is not None and mine != getattr(transfer, name):
                return name
        return None


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What is kept of an operation's end: the rail's receipt and the reply, byte for byte."""

    status: int
    body: bytes
    receipt: Receipt | None = None
    detail: str | None = None


_ENCODER = msgspec.json.Encoder()
_TRANSFER = msgspec.json.Decoder(Transfer)
_OUTCOME = msgspec.msgpack.Decoder(Outcome)
_OUTCOME_ENCODER = msgspec.msgpack.Encoder()


def encode_transfer(transfer: Transfer) -> bytes:
    """The bytes that a store keeps of the request."""
    return _ENCODER.encode(transfer)


def decode_transfer(request: bytes) -> Transfer:
    """The transfer of bytes that encode_transfer made."""
    return _TRANSFER.decode(request)


def encode_outcome(outcome: Outcome) -> bytes:
    """The bytes that a store keeps of an outcome."""
    return _OUTCOME_ENCODER.encode(outcome)


def decode_outcome(outcome: bytes) -> Outcome:
    """The outcome of bytes that encode_outcome made."""
    return _OUTCOME.decode(outcome)


def transfer_fingerprint(transfer: Transfer) -> bytes:
    """16 bytes over every member of the transfer; metadata in the order of its names."""
    metadata = transfer.metadata or {}
    return fingerprint(
        str(transfer.amount).encode(),
        transfer.currency.encode(),
        transfer.destination.encode(),
        b"" if transfer.description is None else b"=" + transfer.description.encode(),
        *(part.encode() for name in sorted(metadata) for part in (name, metadata[name])),
    )


def differing_members(before: Transfer, now: Transfer) -> list[str]:
    """The members in which two transfers differ, in the order of their declaration."""
    return [name for name in Transfer.__struct_fields__ if getattr(before, name) != getattr(now, name)]


_MEMBERS = frozenset(Transfer.__struct_fields__)


def parse_transfer(body: Any, default_currency: str, beside: frozenset[str] = frozenset()) -> Transfer:
    """The transfer in a parsed JSON body.

    ``beside`` names members that the face itself reads (``uuid``). Raises BodyMalformed if the body is
    no object, MemberInvalid for the first member that is missing, unknown or out of range.
    """
    if not isinstance(body, dict):
        raise BodyMalformed("the body must be a JSON object")
    if not body.keys() <= _MEMBERS:
        for name in body:
            if name not in _MEMBERS and name not in beside:
                raise MemberInvalid(name[:40], f"the member {name[:40]!r} is not known")
    return Transfer(
        amount=_amount(body.get("amount")),
        currency=_currency(body.get("currency", default_currency)),
        destination=_destination(body.get("destination")),
        description=_description(body.get("description")),
        metadata=_metadata(body.get("metadata")),
    )


def _amount(amount: Any) -> int:
    if type(amount) is int and 1 <= amount <= AMOUNT_MAX:
        return amount
    raise MemberInvalid(
        "amount", f"amount must be an integer from 1 to {AMOUNT_MAX}, in the currency's minor unit"
    )


def _currency(currency: Any) -> str:
    if type(currency) is str and currency in EXPONENTS:
        return currency
    raise MemberInvalid("currency", "currency must be an ISO 4217 code with a minor unit, such as USD")


def _destination(destination: Any) -> str:
    if type(destination) is str and 1 <= len(destination) <= DESTINATION_LENGTH_MAX:
        if destination.isprintable() and " " not in destination:
            return destination
    raise MemberInvalid(
        "destination", f"destination must be 1 to {DESTINATION_LENGTH_MAX} visible characters"
    )


def _description(description: Any) -> str | None:
    if description is None:
        return None
    if type(description) is str and len(description) <= DESCRIPTION_LENGTH_MAX and "\0" not in description:
        return description
    raise MemberInvalid(
        "description",
        f"description must be text of up to {DESCRIPTION_LENGTH_MAX} characters, without NUL",
    )


def _metadata(metadata: Any) -> dict[str, str] | None:
    if metadata is None:
        return None
    if (
        type(metadata) is dict
        and len(metadata) <= METADATA_MEMBERS_MAX
        and all(
            1 <= len(name) <= METADATA_NAME_LENGTH_MAX
            and "\0" not in name
            and type(value) is str
            and len(value) <= METADATA_VALUE_LENGTH_MAX
            and "\0" not in value
            for name, value in metadata.items()
        )
    ):
        return metadata or None
    raise MemberInvalid(
        "metadata",
        f"metadata must be an object of at most {METADATA_MEMBERS_MAX} strings of up to"
        f" {METADATA_VALUE_LENGTH_MAX} characters under names of 1 to {METADATA_NAME_LENGTH_MAX}, no NUL",
    )


def timestamp(wall_ms: int) -> str:
    """RFC 3339 in UTC with milliseconds."""
    return f"{_second(wall_ms // 1000)}.{wall_ms % 1000:03d}Z"


@functools.lru_cache(maxsize=1024)
def _second(seconds: int) -> str:
    """Formatting a date costs more than the rest of a reply; most of them are in the same second."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")


class PaymentView(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The payment as clients see it. Members with a default are left out where they have it."""

    id: str
    state: State
    amount: int
    currency: str
    destination: str
    attempt: int
    created_at: str
    changed_at: str
    receipt: Receipt | None
    reason: Reason | None = None
    contradicted: bool = False
    description: str | None = None
    metadata: dict[str, str] | None = None


def payment_view(record: Record, transfer: Transfer, receipt: Receipt | None) -> PaymentView:
    """The payment in the state that ``record`` tells."""
    return PaymentView(
        id=format_id(record.id),
        state=record.state,
        amount=transfer.amount,
        currency=transfer.currency,
        destination=transfer.destination,
        attempt=record.attempt,
        created_at=timestamp(record.created.wall_ms),
        changed_at=timestamp(record.changed.wall_ms),
        receipt=receipt,
        reason=record.reason,
        contradicted=record.contradicted,
        description=transfer.description,
        metadata=transfer.metadata,
    )


def payment_outcome(record: Record, transfer: Transfer, receipt: Receipt | None) -> Outcome:
    """What is kept of a payment that has ended: built once, with the write that ends it."""
    body = _ENCODER.encode(payment_view(record, transfer, receipt))
    return Outcome(status=201, body=body, receipt=receipt)
