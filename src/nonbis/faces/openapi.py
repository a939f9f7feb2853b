"""The OpenAPI 3.1 document of the payment service, and a page that shows it.

A test holds the running service against it.
"""

from __future__ import annotations

import html
from typing import Any

from nonbis import __version__
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

_NAME_PATTERN = "^[\\x21-\\x7e]{1,255}$"
_BARE_NAME = "[\\x21\\x23-\\x7e][\\x21-\\x7e]{0,254}"
_QUOTED_NAME = '"([\\x21\\x23-\\x5b\\x5d-\\x7e]|\\\\["\\\\]){1,255}"'
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


_ID_PATTERN = f"^{_up_to(MACHINE_MAX, first='[1-9]')}:{_up_to(SEQUENCE_MAX)}$"


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


def _schemas() -> Json:
    uuid = {
        "type": ["string", "null"],
        "pattern": _NAME_PATTERN,
        "description": "The name, if the header Idempotency-Key does not give it.",
    }
    return {
        "Transfer": {
            "type": "object",
            "required": ["amount", "destination"],
            "properties": {**_transfer(), "uuid": uuid},
            "additionalProperties": False,
        },
        "Payment": {
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
                "id": {"type": "string", "pattern": _ID_PATTERN, "description": "machine:sequence"},
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
        },
        "Receipt": {
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
        },
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
            "operation_id": {"type": "string", "pattern": _ID_PATTERN},
            "instance": {"type": "string", "description": "Where the payment can be looked at."},
            "member": {"type": "string", "description": "The member that was wrong."},
            "members": {"type": "array", "items": {"type": "string"}},
        },
    }


def _answers(*groups: tuple[int, str, str], **extra: Json) -> Json:
    """Responses: each (status, description, schema name); a Problem is application/problem+json."""
    found: Json = {}
    for status, description, schema in groups:
        media = "application/problem+json" if schema == "Problem" else "application/json"
        found[str(status)] = {
            "description": description,
            "content": {media: {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
        }
    for status_name, more in extra.items():
        found[status_name.removeprefix("s")].update(more)
    return found


_RETRY_AFTER: Json = {"headers": {"Retry-After": {"schema": {"type": "integer"}}}}
_POST_PROBLEMS = (
    (400, "Name or body can't be taken; nothing was claimed.", "Problem"),
    (409, "Running, in doubt, or cancelled.", "Problem"),
    (413, "Too large.", "Problem"),
    (415, "Not JSON, or compressed.", "Problem"),
    (422, "The name belongs to another request.", "Problem"),
    (500, "A simulated failure, or an error of the service: ask again under the same name.", "Problem"),
    (503, "Store or rail can't be reached; nothing was sent.", "Problem"),
)


def _body() -> Json:
    schema = {"$ref": "#/components/schemas/Transfer"}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _name_header() -> Json:
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "schema": {"type": "string", "pattern": f"^({_BARE_NAME}|{_QUOTED_NAME})$"},
        "description": (
            "The payment's name: 1 to 255 visible ASCII characters, bare or as a quoted string (RFC 9651)."
            " It may be given as the member uuid instead, or in both places if it is the same."
        ),
    }


def _post(summary: str, operation: str, success: tuple[int, str, str], **headers: Json) -> Json:
    return {
        "summary": summary,
        "operationId": operation,
        "parameters": [_name_header()],
        "requestBody": _body(),
        "responses": _answers(success, *_POST_PROBLEMS, s409=_RETRY_AFTER, s503=_RETRY_AFTER, **headers),
    }


def _get(summary: str, operation: str, parameters: list[Json], *answers: tuple[int, str, str]) -> Json:
    return {
        "summary": summary,
        "operationId": operation,
        "parameters": parameters,
        "responses": _answers(*answers),
    }


def _query(name: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _paths() -> Json:
    replay = {
        "headers": {
            "Location": {"schema": {"type": "string"}},
            "Idempotent-Replayed": {
                "schema": {"const": "true"},
                "description": "Only on an outcome that is given again.",
            },
        }
    }
    store_down = (503, "The store can't be reached.", "Problem")
    missing = (404, "There is no such payment.", "Problem")
    number = {"type": "string", "pattern": _ID_PATTERN}
    identity = {"name": "id", "in": "path", "required": True, "schema": number}
    text = {"type": "string", "pattern": _NAME_PATTERN}
    name = {"name": "name", "in": "path", "required": True, "schema": text}
    filters = [
        _query("machine", {"type": "integer", "minimum": 1, "maximum": MACHINE_MAX}),
        _query("state", {"enum": [state.value for state in State]}),
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100}),
        _query("after", number),
        _query("before", number),
    ]
    bad = (400, "A query member or name is invalid.", "Problem")
    return {
        "/payments": {
            "post": _post(
                "Make a payment, at most once under its name",
                "createPayment",
                (201, "The payment exists; its state says what happened.", "Payment"),
                s201=replay,
            ),
            "get": _get(
                "Payments in id order", "listPayments", filters, (200, "A page.", "Page"), bad, store_down
            ),
        },
        "/payment": {"post": _post("The same in a plain form", "pay", (200, "What became of it.", "State"))},
        "/payments/{id}": {
            "get": _get(
                "One payment",
                "getPayment",
                [identity],
                (200, "Its present state.", "Payment"),
                missing,
                store_down,
            )
        },
        "/payments/by-name/{name}": {
            "get": _get(
                "One payment by its name",
                "getPaymentByName",
                [name],
                (200, "Its present state.", "Payment"),
                bad,
                missing,
                store_down,
            )
        },
        "/livez": {"get": _get("The process runs", "livez", [], (200, "It does.", "Status"))},
        "/readyz": {
            "get": _get("It would take a payment", "readyz", [], (200, "It would.", "Status"), store_down)
        },
    }


def document() -> Json:
    """The whole document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Nonbis payments",
            "version": __version__,
            "description": "Payments that happen at most once under their name.",
        },
        "paths": _paths(),
        "components": {"schemas": _schemas()},
    }


def page() -> str:
    """The document as one HTML page without scripts."""
    rows = []
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            answers = "".join(
                f"<li><b>{status}</b> {html.escape(answer['description'])}</li>"
                for status, answer in operation["responses"].items()
            )
            rows.append(
                f"<section><h2><code>{method.upper()} {html.escape(path)}</code></h2>"
                f"<p>{html.escape(operation['summary'])}</p><ul>{answers}</ul></section>"
            )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Nonbis payments</title>"
        "<meta name=viewport content='width=device-width'>"
        "<style>body{font:16px/1.5 system-ui;max-width:46rem;margin:2rem auto;padding:0 1rem;"
        "color-scheme:light dark}h2{font-size:1rem;margin-top:2rem}</style>"
        "<h1>Nonbis payments</h1><p>The whole contract: <a href=/openapi.json>openapi.json</a>.</p>"
        f"{''.join(rows)}</html>"
    )
