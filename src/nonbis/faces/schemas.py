"""The schemas of the payment service's OpenAPI document: what it takes and what it gives."""

from __future__ import annotations

from typing import Any

from nonbis.core.currencies import EXPONENTS
from nonbis.core.ids import MACHINE_MAX, SEQUENCE_MAX
from nonbis.core.messages import Reason, State
from nonbis.core.payments import (
    AMOUNT_MAX,
    DESCRIPTION_LENGTH_MAX,
    DESTINATION_LENGTH_MAX,
    METADATA_MEMBERS_MAX,
    METADATA_NAME_LENGTH_MAX,
    METADATA_VALUE_LENGTH_MAX,
)
from nonbis.faces.wire import PROBLEMS

Json = dict[str, Any]

NAME_PATTERN = "^[\\x21-\\x7e]{1,255}$"
_NO_NUL = "^[^\\x00]*$"


def _up_to(highest: int, first: str = "") -> str:
    """A regular expression for the decimal numbers from 0 (or ``first``) to ``highest``."""
    digits = str(highest)
    ways = [f"{first or '[0-9]'}[0-9]{{0,{len(digits) - 2}}}"]
    for place, digit in enumerate(digits):
        lowest = 0 if place else 1
        if int(digit) > lowest:
            rest = len(digits) - place - 1
            ways.append(f"{digits[:place]}[{lowest}-{int(digit) - 1}][0-9]{{{rest}}}")
    return f"({'|'.join([*ways, digits])})"


ID_PATTERN = f"^{_up_to(MACHINE_MAX, first='[1-9]')}:{_up_to(SEQUENCE_MAX)}$"


def _transfer() -> Json:
    return {
        "amount": {
            "type": "integer",
            "minimum": 1,
            "maximum": AMOUNT_MAX,
            "description": "In the currency's minor unit, written without point and exponent.",
        },
        "currency": {"type": "string", "enum": sorted(EXPONENTS), "description": "ISO 4217."},
        "destination": {
            "type": "string",
            "minLength": 1,
            "maxLength": DESTINATION_LENGTH_MAX,
            "description": "Visible characters, no blanks.",
        },
        "description": {"type": ["string", "null"], "maxLength": DESCRIPTION_LENGTH_MAX, "pattern": _NO_NUL},
        "metadata": {
            "type": ["object", "null"],
            "maxProperties": METADATA_MEMBERS_MAX,
            "propertyNames": {"minLength": 1, "maxLength": METADATA_NAME_LENGTH_MAX, "pattern": _NO_NUL},
            "additionalProperties": {
                "type": "string",
                "maxLength": METADATA_VALUE_LENGTH_MAX,
                "pattern": _NO_NUL,
            },
        },
    }


def _transfer_asked_for(currency: str) -> Json:
    members = _transfer()
    members["currency"]["default"] = currency
    members["destination"]["description"] += f" At most {DESTINATION_LENGTH_MAX}."
    members["description"]["description"] = (
        f"At most {DESCRIPTION_LENGTH_MAX} characters, without NUL; null is as if it were left out."
    )
    members["metadata"]["description"] = (
        f"At most {METADATA_MEMBERS_MAX} texts of up to {METADATA_VALUE_LENGTH_MAX} characters under names of"
        f" 1 to {METADATA_NAME_LENGTH_MAX}, without NUL; null and {{}} are as if it were left out."
    )
    return members


def _payment() -> Json:
    return {
        "type": "object",
        "required": [
            "id",
            "state",
            "amount",
            "currency",
            "destination",
            "attempt",
            "created_at",
            "changed_at",
            "receipt",
        ],
        "properties": {
            "id": {"type": "string", "pattern": ID_PATTERN, "description": "machine:sequence"},
            "state": {"enum": [state.value for state in State]},
            "reason": {"enum": [reason.value for reason in Reason], "description": "Why it failed."},
            "contradicted": {"const": True, "description": "There is evidence against this state."},
            **_transfer(),
            "attempt": {"type": "integer", "minimum": 1},
            "created_at": {"type": "string", "format": "date-time"},
            "changed_at": {"type": "string", "format": "date-time"},
            "receipt": {"anyOf": [{"type": "null"}, {"$ref": "#/components/schemas/Receipt"}]},
        },
        "additionalProperties": False,
    }


def _receipt() -> Json:
    return {
        "type": "object",
        "required": ["reference"],
        "properties": {
            "reference": {"type": "string", "description": "The rail's idempotency key."},
            "amount": {"type": "integer"},
            "currency": {"type": "string"},
            "destination": {"type": "string"},
            "at": {"type": "string"},
            "id": {"type": "string"},
        },
        "additionalProperties": False,
    }


def schemas(currency: str) -> Json:
    """All schemas, for a service that takes this currency where none is named."""
    uuid = {
        "type": ["string", "null"],
        "pattern": NAME_PATTERN,
        "description": "The name, if the header Idempotency-Key does not give it.",
    }
    return {
        "Transfer": {
            "type": "object",
            "required": ["amount", "destination"],
            "properties": {**_transfer_asked_for(currency), "uuid": uuid},
            "additionalProperties": False,
        },
        "Payment": _payment(),
        "Receipt": _receipt(),
        "State": {
            "type": "object",
            "required": ["state"],
            "properties": {"state": {"enum": ["applied", "failed"]}},
            "additionalProperties": False,
        },
        "Page": {
            "type": "object",
            "required": ["data", "next"],
            "properties": {
                "data": {"type": "array", "items": {"$ref": "#/components/schemas/Payment"}},
                "next": {"type": ["string", "null"], "description": "Give it as `after` for the next page."},
            },
            "additionalProperties": False,
        },
        "Status": {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}},
        "Problem": _problem_schema(),
    }


def _problem_schema() -> Json:
    return {
        "type": "object",
        "description": "RFC 9457. `effect` says what became of the payment that was asked for.",
        "required": ["type", "title", "status", "detail", "code", "retryable", "effect"],
        "properties": {
            "type": {"type": "string", "format": "uri"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {"enum": sorted(PROBLEMS)},
            "retryable": {"type": "boolean", "description": "Asking again under the same name can help."},
            "effect": {"enum": ["done", "not_done", "unknown"]},
            "operation_id": {"type": "string", "pattern": ID_PATTERN},
            "instance": {"type": "string", "description": "Where the payment can be looked at."},
            "member": {
                "type": "string",
                "description": "The member of the body, header, query or path that was wrong, if it was one.",
            },
            "members": {
                "type": "array",
                "items": {"type": "string"},
                "description": "With name-reused: the members in which the two requests differ.",
            },
        },
    }
