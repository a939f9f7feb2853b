"""What an answer, or the lack of one, says about the payment: one table.

The first rule that matches stands. Whatever no rule of the contract covers is UNKNOWN: a guess would
sooner or later be told to somebody as "your money has not moved".
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum, auto
from typing import Any, NamedTuple

import msgspec

from nonbis.client.intent import Intent
from nonbis.client.verdict import Meaning, Payment, Problem
from nonbis.core.fingerprint import parse_json
from nonbis.core.refusals import BodyMalformed

BODY_BYTES_MAX = 1 << 20


class Again(Enum):
    """Whether to post again after such an answer, tries permitting."""

    NEVER = auto()
    ALWAYS = auto()
    IF_INVITED = auto()
    """Only if ``Retry-After`` says that the service itself will find out more."""
    IF_WANTED = auto()
    """Only if the caller asked for another attempt after a failed one, and the service allows one."""


class Rule(NamedTuple):
    """``sign`` is a payment's state (status 201) or a problem's code; None matches everything."""

    statuses: Container[int]
    sign: str | None
    meaning: Meaning
    again: Again


RULES: tuple[Rule, ...] = (
    Rule((201,), "applied", Meaning.APPLIED, Again.NEVER),
    Rule((201,), "failed", Meaning.FAILED, Again.IF_WANTED),
    Rule(range(200, 300), None, Meaning.UNKNOWN, Again.ALWAYS),
    Rule((409,), "in-progress", Meaning.RUNNING, Again.ALWAYS),
    Rule((409,), "outcome-unknown", Meaning.DOUBT, Again.IF_INVITED),
    Rule((409,), "cancelled", Meaning.FAILED, Again.NEVER),
    Rule((409,), "possible-duplicate", Meaning.REFUSED, Again.NEVER),
    Rule((410,), "name-expired", Meaning.DOUBT, Again.NEVER),
    Rule((408, 425, 429), None, Meaning.UNKNOWN, Again.ALWAYS),
    # A conflict or a loss that the service didn't explain may well be about a payment that ran.
    Rule((409, 410), None, Meaning.UNKNOWN, Again.NEVER),
    Rule(range(400, 500), None, Meaning.REFUSED, Again.NEVER),
    Rule((503,), "rail-unreachable", Meaning.FAILED, Again.ALWAYS),
    Rule(range(500, 600), None, Meaning.UNKNOWN, Again.ALWAYS),
    # Redirects above all: some services redirect after the effect, so "not here" is no "not done".
    Rule(range(1000), None, Meaning.UNKNOWN, Again.NEVER),
)
_RETRYABLE_REASONS = frozenset({"declined", "not_sent", "settled"})


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole HTTP answer, as far as it matters here."""

    status: int
    body: bytes = b""
    content_type: str = ""
    retry_after: str | None = None
    date: str | None = None
    replayed: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What one try came to."""

    meaning: Meaning
    again: Again
    status: int | None = None
    payment: Payment | None = None
    problem: Problem | None = None
    error: str = ""
    retry_after: str | None = None
    date: str | None = None


def no_answer(error: BaseException, *, sent: bool) -> Finding:
    """The finding where no whole answer came. ``sent``: a byte of the post may have left."""
    text = f"{type(error).__name__}: {error}".rstrip(": ")
    return Finding(
        meaning=Meaning.UNKNOWN if sent else Meaning.NOT_SENT, again=Again.ALWAYS, error=text[:300]
    )


def read_answer(answer: Answer, intent: Intent) -> Finding:
    """What this answer to this intent says."""
    payment = _read_payment(answer, intent) if answer.status == 201 else None
    problem = _read_problem(answer) if answer.status >= 400 else None
    sign = payment.state if payment else problem.code if problem else ""
    rule = next(one for one in RULES if answer.status in one.statuses and one.sign in (None, sign))
    meaning, again = rule.meaning, rule.again
    if meaning is Meaning.UNKNOWN and problem and problem.code and problem.effect == "not_done":
        meaning = Meaning.NOT_DONE
    if again is Again.IF_WANTED and (answer.replayed or not _may_try_again(payment)):
        again = Again.NEVER
    return Finding(
        meaning=meaning,
        again=again,
        status=answer.status,
        payment=payment if meaning in (Meaning.APPLIED, Meaning.FAILED) else None,
        problem=problem,
        error="the answer can't be understood" if meaning is Meaning.UNKNOWN and not sign else "",
        retry_after=answer.retry_after,
        date=answer.date,
    )


def _may_try_again(payment: Payment | None) -> bool:
    return payment is not None and payment.reason in _RETRYABLE_REASONS


def _read_payment(answer: Answer, intent: Intent) -> Payment | None:
    """The payment in the body, unless it is unreadable or somebody else's."""
    try:
        payment = msgspec.convert(_json_object(answer.body), Payment)
    except msgspec.ValidationError:
        return None
    mine = payment.amount == intent.amount and payment.destination == intent.destination
    return payment if mine and intent.currency in (None, payment.currency) else None


def _read_problem(answer: Answer) -> Problem:
    """The problem document in the body; anything else has no members."""
    kind = answer.content_type.partition(";")[0].strip().lower()
    members = _json_object(answer.body) if kind == "application/problem+json" else {}
    texts = {
        name: value
        for name in ("code", "title", "detail", "effect", "operation_id", "member")
        if isinstance(value := members.get(name), str)
    }
    return Problem(status=answer.status, **texts)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = parse_json(body)
    except BodyMalformed:
        return {}
    return value if isinstance(value, dict) else {}
