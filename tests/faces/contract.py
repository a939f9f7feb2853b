"""Holds each answer of the service against its own OpenAPI document and against the written contract."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jsonschema
import msgspec

from nonbis.faces.openapi import document

PROBLEM_BASE = "https://nonbis.example/problems/"
CODES = frozenset(
    (
        "name-missing",
        "name-malformed",
        "body-malformed",
        "member-invalid",
        "too-large",
        "unsupported-type",
        "name-reused",
        "in-progress",
        "outcome-unknown",
        "name-expired",
        "name-in-future",
        "cancelled",
        "possible-duplicate",
        "rail-unreachable",
        "store-unavailable",
        "simulated-failure",
        "not-found",
        "unauthorised",
    )
)
"""The closed list of the contract, written down here a second time on purpose."""
AGAIN_LATER = frozenset({"in-progress", "store-unavailable", "rail-unreachable"})
_PLAIN_PAGES = ("/docs", "/openapi.json")


class Answer(NamedTuple):
    """What came back over HTTP. ``headers`` has names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str | None:
        """The problem's code, or None if this is no problem."""
        problem = self.headers.get("content-type") == "application/problem+json"
        return self.json["code"] if problem else None

    @property
    def replayed(self) -> bool:
        """Whether it is marked as an outcome that is given again."""
        return self.headers.get("idempotent-replayed") == "true"


@functools.cache
def _document() -> dict[str, Any]:
    return document()


@functools.cache
def _operation(method: str, path: str) -> dict[str, Any] | None:
    """What the document says of a request, or None if it has no such path or method."""
    for template, methods in _document()["paths"].items():
        pattern = re.escape(template).replace(r"\{id\}", "[^/]*").replace(r"\{name\}", ".*")
        if re.fullmatch(pattern, path):
            found: dict[str, Any] | None = methods.get(method.lower())
            return found
    return None


@functools.cache
def _validator(schema: str) -> jsonschema.Draft202012Validator:
    whole = {"$ref": schema, "components": _document()["components"]}
    return jsonschema.Draft202012Validator(
        whole, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )


def check(method: str, target: str, answer: Answer) -> Answer:
    """The same answer; AssertionError where it breaks the document or the contract."""
    path = target.partition("?")[0]
    what = f"{method} {target} -> {answer.status} {answer.body[:300]!r}"
    assert b"Traceback" not in answer.body, what
    if path in _PLAIN_PAGES:
        return answer
    assert int(answer.headers["content-length"]) == len(answer.body) or method == "HEAD", what
    if method == "HEAD":
        # The server takes the bodies of the other pages away; a test on a socket sees to it.
        assert answer.body == b"" or not path.startswith("/payment"), what
        return answer
    operation = _operation(method, path)
    if operation is not None:
        _check_documented(operation, answer, what)
    else:
        assert answer.status in (404, 405), what
    if answer.status >= 400:
        check_problem(answer, what)
    else:
        assert "retry-after" not in answer.headers, what
    if answer.replayed:
        assert answer.status in (200, 201), what
        assert method == "POST", what
    return answer


def _check_documented(operation: Mapping[str, Any], answer: Answer, what: str) -> None:
    response = operation["responses"].get(str(answer.status))
    assert response is not None, f"undocumented status: {what}"
    media = response["content"].get(answer.headers["content-type"])
    assert media is not None, f"undocumented type {answer.headers['content-type']}: {what}"
    for header in ("location", "idempotent-replayed", "retry-after"):
        documented = {name.lower() for name in response.get("headers", {})}
        assert header in documented or header not in answer.headers, f"undocumented {header}: {what}"
    errors = [error.message for error in _validator(media["schema"]["$ref"]).iter_errors(answer.json)]
    assert errors == [], f"{what}: {errors}"


def check_problem(answer: Answer, what: str) -> None:
    """The shape of every problem."""
    problem = answer.json
    assert answer.headers["content-type"] == "application/problem+json", what
    assert problem["code"] in CODES, what
    assert problem["type"] == PROBLEM_BASE + problem["code"], what
    assert problem["status"] == answer.status, what
    assert problem["effect"] in ("done", "not_done", "unknown"), what
    assert isinstance(problem["retryable"], bool), what
    assert problem["title"], what
    assert problem["detail"], what
    if problem["code"] in AGAIN_LATER:
        assert answer.headers["retry-after"].isdigit(), what
        assert problem["retryable"], what
    if answer.status in (400, 413, 415, 422):
        assert problem["effect"] == "not_done", what
        assert not problem["retryable"], what
        assert "retry-after" not in answer.headers, what
