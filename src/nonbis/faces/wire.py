"""The words that every HTTP face shares: header names, the name in a header, problems, replies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import http_sf
import msgspec

from nonbis.core.names import check_name
from nonbis.core.refusals import NameMalformed
from nonbis.errors import Effect

IDEMPOTENCY_KEY = b"idempotency-key"
NAME_HEADER = "Idempotency-Key"
"""The same as it is written in refusals."""
REPLAYED = (b"idempotent-replayed", b"true")
JSON = (b"content-type", b"application/json")
PROBLEM_JSON = (b"content-type", b"application/problem+json")
PROBLEM_BASE = "https://nonbis.example/problems/"

Header = tuple[bytes, bytes]


class Reply(NamedTuple):
    """What goes back over HTTP."""

    status: int
    headers: list[Header]
    body: bytes


class Kind(NamedTuple):
    """A problem type: its HTTP status, its title, and whether asking again under the name can help."""

    status: int
    title: str
    retryable: bool


PROBLEMS: dict[str, Kind] = {
    "name-missing": Kind(400, "A name is required", retryable=False),
    "name-malformed": Kind(400, "The name is malformed", retryable=False),
    "body-malformed": Kind(400, "The body is malformed", retryable=False),
    "member-invalid": Kind(400, "A member is invalid", retryable=False),
    "too-large": Kind(413, "The body is too large", retryable=False),
    "unsupported-type": Kind(415, "The body's type is not supported", retryable=False),
    "name-reused": Kind(422, "The name belongs to another request", retryable=False),
    "in-progress": Kind(409, "The first request is still running", retryable=True),
    "outcome-unknown": Kind(409, "The outcome is not known", retryable=False),
    "name-expired": Kind(410, "The name has expired", retryable=False),
    "name-in-future": Kind(400, "The name is dated in the future", retryable=False),
    "cancelled": Kind(409, "The name was cancelled", retryable=False),
    "possible-duplicate": Kind(409, "This looks like a duplicate", retryable=False),
    "rail-unreachable": Kind(503, "The rail could not be reached", retryable=True),
    "store-unavailable": Kind(503, "No payment can be taken now", retryable=True),
    "simulated-failure": Kind(500, "Simulated failure", retryable=True),
    "not-found": Kind(404, "There is no such thing", retryable=False),
    "unauthorised": Kind(401, "Not authorised", retryable=False),
}
"""The closed list of problem codes (RFC 9457); the type URI is PROBLEM_BASE and the code."""


def problem(
    code: str,
    detail: str,
    *,
    effect: Effect = "not_done",
    status: int | None = None,
    retryable: bool | None = None,
    retry_after_seconds: int | None = None,
    **members: Any,
) -> Reply:
    """A problem reply: what is wrong, what became of the effect, and whether a retry can help."""
    kind = PROBLEMS[code]
    body = {
        "type": PROBLEM_BASE + code,
        "title": kind.title,
        "status": status or kind.status,
        "detail": detail,
        "code": code,
        "retryable": kind.retryable if retryable is None else retryable,
        "effect": effect,
        **members,
    }
    headers = [PROBLEM_JSON]
    if retry_after_seconds is not None:
        headers.append((b"retry-after", str(retry_after_seconds).encode()))
    return Reply(status or kind.status, headers, msgspec.json.encode(body))


def json_reply(value: Any, status: int = 200) -> Reply:
    """A JSON reply."""
    return Reply(status, [JSON], msgspec.json.encode(value))


def name_in_headers(headers: Iterable[Header]) -> str | None:
    """The name in ``Idempotency-Key``, quoted (RFC 9651 String) or bare; None if there is no such line.

    Both forms of one text are one name; parameters of the quoted form are ignored (RFC 9651 section
    2). Raises NameMalformed for two lines, a blank or malformed value.
    """
    found: bytes | None = None
    for header, value in headers:
        if header == IDEMPOTENCY_KEY:
            if found is not None:
                raise NameMalformed("Idempotency-Key is given twice", NAME_HEADER)
            found = value
    return None if found is None else parse_name(found)


def parse_name(value: bytes) -> str:
    """The name in one header value."""
    value = value.strip(b" \t")
    try:
        if not value.startswith(b'"'):
            return check_name(value.decode("ascii"), NAME_HEADER)
        item = http_sf.parse(value, tltype="item")
    except UnicodeDecodeError:
        raise NameMalformed("the name holds bytes that are not ASCII", NAME_HEADER) from None
    except NameMalformed:
        raise
    except Exception:  # noqa: BLE001  (the parser's errors are of many kinds; all mean malformed)
        raise NameMalformed("the quoted name is not a String of RFC 9651", NAME_HEADER) from None
    text = item[0] if isinstance(item, tuple) else item
    return check_name(str(text), NAME_HEADER)
