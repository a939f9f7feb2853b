"""The OpenAPI 3.1 document of the payment service, and a page that shows it.

A test holds the running service against it.
"""

from __future__ import annotations

import html

from nonbis import __version__
from nonbis.core.ids import MACHINE_MAX
from nonbis.core.messages import State
from nonbis.faces.schemas import ID_PATTERN, NAME_PATTERN, Json, schemas
from nonbis.faces.settings import BODY_BYTES_MAX, LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX

_BARE_NAME = "[\\x21\\x23-\\x7e][\\x21-\\x7e]{0,254}"
_QUOTED_NAME = '"([\\x21\\x23-\\x5b\\x5d-\\x7e]|\\\\["\\\\]){1,255}"'

_RETRY_AFTER: Json = {"headers": {"Retry-After": {"schema": {"type": "integer"}}}}


def _answers(*groups: tuple[int, str, str], **extra: Json) -> Json:
    """Responses: each (status, description, schema name); a Problem is application/problem+json."""
    found: Json = {}
    for status, description, schema in groups:
        media = "application/problem+json" if schema == "Problem" else "application/json"
        found[str(status)] = {
            "description": description,
            "content": {media: {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
            **(_RETRY_AFTER if status == 503 else {}),
        }
    for status_name, more in extra.items():
        found[status_name.removeprefix("s")].update(more)
    return found


_REPLAYED: Json = {
    "Idempotent-Replayed": {
        "schema": {"const": "true"},
        "description": "Only on an outcome that is given again.",
    }
}
_STORE_AWAY = (
    "`store-unavailable`: the store can't take the payment, or the service is being stopped; with `effect`"
    " not_done nothing was sent for this request, with `effect` unknown the store has not answered in time"
    " and only asking again under the same name tells what became of it."
)


def _post_problems(conflict: str, unavailable: str) -> tuple[tuple[int, str, str], ...]:
    """What both posts can be answered; they differ in where a call that is running is told."""
    return (
        (400, "Name or body can't be taken; nothing was claimed.", "Problem"),
        (409, conflict, "Problem"),
        (413, f"The body has more than {BODY_BYTES_MAX} bytes.", "Problem"),
        (415, "Not JSON, in another charset than UTF-8, or compressed.", "Problem"),
        (422, "The name belongs to another request; this one was not carried out.", "Problem"),
        (500, "A simulated failure, or an error of the service: ask again under the same name.", "Problem"),
        (503, unavailable, "Problem"),
    )


_PAYMENTS_PROBLEMS = _post_problems(
    "`in-progress`: the first request is still running. `outcome-unknown`: in doubt, or contradicted."
    " `cancelled`. Retry-After where asking again can help.",
    f"`rail-unreachable`: surely not sent, the next request is a new attempt. {_STORE_AWAY}",
)
_PAYMENT_PROBLEMS = _post_problems(
    "`outcome-unknown`: in doubt, or contradicted. `cancelled`. Retry-After where asking again can help.",
    f"`in-progress`: the first request is still running. {_STORE_AWAY}",
)


def _body() -> Json:
    schema = {"$ref": "#/components/schemas/Transfer"}
    return {
        "required": True,
        "description": (
            f"JSON in UTF-8, at most {BODY_BYTES_MAX} bytes, not compressed. Its type may also be"
            " application/*+json, or be left out. Refused are what readers understand differently: a member"
            " given twice, a member that is not known, an integer beyond 2^53-1, NaN, a lone surrogate."
        ),
        "content": {"application/json": {"schema": schema}},
    }


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


def _post(summary: str, operation: str, *answers: tuple[int, str, str], **headers: Json) -> Json:
    return {
        "summary": summary,
        "operationId": operation,
        "parameters": [_name_header()],
        "requestBody": _body(),
        "responses": _answers(*answers, s409=_RETRY_AFTER, **headers),
    }


def _get(summary: str, operation: str, parameters: list[Json], *answers: tuple[int, str, str]) -> Json:
    return {
        "summary": summary,
        "operationId": operation,
        "parameters": parameters,
        "responses": _answers(*answers),
    }


def _query(name: str, schema: Json, description: str) -> Json:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "schema": schema,
        "description": description,
    }


def _filters() -> list[Json]:
    number = {"type": "string", "pattern": ID_PATTERN}
    return [
        _query(
            "machine",
            {"type": "integer", "minimum": 1, "maximum": MACHINE_MAX},
            "Only ids that this machine drew.",
        ),
        _query("state", {"enum": [state.value for state in State]}, "Only payments in this state."),
        _query(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": LIST_LIMIT_MAX, "default": LIST_LIMIT_DEFAULT},
            f"At most this many in one page: 1 to {LIST_LIMIT_MAX}, {LIST_LIMIT_DEFAULT} if it is left out.",
        ),
        _query("after", number, "Only ids above this one: the `next` of the page before."),
        _query(
            "before",
            number,
            "Only ids below this one. Pages begin at the lowest id all the same, or behind `after`: without"
            " `after` it gives the first ones, not those just below it.",
        ),
    ]


def _paths() -> Json:
    replay = {"headers": {"Location": {"schema": {"type": "string"}}, **_REPLAYED}}
    store_down = (503, "The store can't be reached.", "Problem")
    missing = (404, "There is no such payment.", "Problem")
    number = {"type": "string", "pattern": ID_PATTERN}
    identity = {"name": "id", "in": "path", "required": True, "schema": number}
    text = {"type": "string", "pattern": NAME_PATTERN}
    name = {"name": "name", "in": "path", "required": True, "schema": text}
    bad = (400, "A query member or name is invalid.", "Problem")
    return {
        "/payments": {
            "post": _post(
                "Make a payment, at most once under its name",
                "createPayment",
                (201, "The payment exists; its state says what happened.", "Payment"),
                *_PAYMENTS_PROBLEMS,
                s201=replay,
            ),
            "get": _get(
                "Payments in id order", "listPayments", _filters(), (200, "A page.", "Page"), bad, store_down
            ),
        },
        "/payment": {
            "post": _post(
                "The same in a plain form",
                "pay",
                (200, "What became of it; failed also if the rail could not be reached.", "State"),
                *_PAYMENT_PROBLEMS,
                s200={"headers": _REPLAYED},
            )
        },
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
            "get": _get(
                "It would take a payment",
                "readyz",
                [],
                (200, "It would.", "Status"),
                (503, "The store can't be read or written, or the service is being stopped.", "Problem"),
            )
        },
    }


def document(currency: str = "USD") -> Json:
    """The whole document of a service that takes this currency where none is named."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Nonbis payments",
            "version": __version__,
            "description": "Payments that happen at most once under their name.",
        },
        "paths": _paths(),
        "components": {"schemas": schemas(currency)},
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
