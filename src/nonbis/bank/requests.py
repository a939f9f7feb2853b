"""What the bank accepts: strict reading of a request. Nothing is repaired; what is odd is refused."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from nonbis.bank.ledger import Transfer

AMOUNT_MAX = 2**53 - 1
REFERENCE_LENGTH_MAX = 255
DESTINATION_LENGTH_MAX = 128
_CURRENCY = re.compile(r"[A-Z]{3}")
_REFERENCE = re.compile(rf"[\x21-\x7e]{{1,{REFERENCE_LENGTH_MAX}}}")
_DEADLINE = re.compile(r"@([0-9]{1,12})(\.[0-9]{1,6})?")
_MEMBERS = frozenset(("amount", "currency", "destination", "description", "metadata", "operation"))


class Malformed(ValueError):
    """The request can't be read as it must be; nothing was done."""


def read_reference(values: list[str]) -> str:
    """The one value of the header ``Reference``. Raises Malformed."""
    if len(values) != 1 or not _REFERENCE.fullmatch(values[0]):
        raise Malformed(
            f"one header Reference of 1 to {REFERENCE_LENGTH_MAX} visible ASCII characters is needed"
        )
    return values[0]


def read_deadline(values: list[str]) -> float | None:
    """Seconds since 1970 of the header ``Deadline: @<seconds>``; None without one. Raises Malformed."""
    if not values:
        return None
    if len(values) != 1 or not _DEADLINE.fullmatch(values[0]):
        raise Malformed("Deadline must be given once, as @ and seconds since 1970")
    return float(values[0][1:])


def read_transfer(body: bytes, reference: str) -> Transfer:
    """The transfer in a JSON body. Raises Malformed for the first thing that is wrong."""
    members = _object(body)
    unknown = members.keys() - _MEMBERS
    if unknown:
        raise Malformed(f"the member {min(unknown)[:40]!r} is not known")
    return Transfer(
        reference=reference,
        amount=_amount(members.get("amount")),
        currency=_currency(members.get("currency")),
        destination=_destination(members.get("destination")),
        operation=_text(members, "operation", 100),
        description=_text(members, "description", 1000),
        metadata=_metadata(members.get("metadata")),
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_constant)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Malformed(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise Malformed("the body must be a JSON object")
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise Malformed("a member stands twice in one object")
    return members


def _constant(name: str) -> NoReturn:
    raise Malformed(f"{name} is not JSON")


def _amount(amount: Any) -> int:
    if type(amount) is int and 1 <= amount <= AMOUNT_MAX:
        return amount
    raise Malformed(f"amount must be an integer from 1 to {AMOUNT_MAX}")


def _currency(currency: Any) -> str:
    if type(currency) is str and _CURRENCY.fullmatch(currency):
        return currency
    raise Malformed("currency must be three capital letters")


def _destination(destination: Any) -> str:
    if type(destination) is str and 1 <= len(destination) <= DESTINATION_LENGTH_MAX:
        if destination.isprintable() and " " not in destination:
            return destination
    raise Malformed(f"destination must be 1 to {DESTINATION_LENGTH_MAX} visible characters")


def _text(members: dict[str, Any], name: str, length_max: int) -> str:
    text = members.get(name)
    if text is None:
        return ""
    if type(text) is str and len(text) <= length_max and _encodable(text):
        return text
    raise Malformed(f"{name} must be text of up to {length_max} characters")


def _metadata(metadata: Any) -> str:
    if metadata is None:
        return ""
    if type(metadata) is dict and all(type(value) is str for value in metadata.values()):
        return json.dumps(metadata)
    raise Malformed("metadata must be an object of strings")


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)
