"""What ``pay`` says in the end, and what that means for the money."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class VerdictState(StrEnum):
    """What is known of the payment when the client stops.

    APPLIED
        An answer said so: the money moved, once. Posting again under the name moves nothing more.
    FAILED
        The last definite answer said that the payment failed: no money had moved, and nothing that
        this call sent afterwards can have changed that. Posting again under the same name is a new
        attempt (unless the name was cancelled). If an earlier try of this call got no answer
        (``Verdict.unanswered``), its bytes may still arrive and count as such a new attempt: look the
        name up again before you pay in another way.
    IN_DOUBT
        The service has the payment and can't say whether the money moved (or could once and has
        forgotten). Don't pay in another way; ask again later under the same name, or ask a person.
    NOT_REACHED
        Every try ended before its first byte left: this call moved nothing and never will. It says
        nothing of earlier calls under the same name.
    GAVE_UP
        The client stopped without a definite answer: at least one try may have arrived and the
        payment may be applied, failed, running or unknown to the service. Go on under the same name.
    """

    APPLIED = "applied"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    NOT_REACHED = "not_reached"
    GAVE_UP = "gave_up"


class Meaning(StrEnum):
    """What one try says about the payment.

    APPLIED, FAILED, DOUBT and RUNNING speak of the payment under this name. NOT_DONE and REFUSED speak
    of this one post only: it surely changed nothing. NOT_SENT: no byte of it left. UNKNOWN: it may have
    arrived and may have had its effect.
    """

    APPLIED = "applied"
    FAILED = "failed"
    DOUBT = "doubt"
    RUNNING = "running"
    NOT_DONE = "not_done"
    REFUSED = "refused"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"


class Payment(msgspec.Struct, frozen=True, kw_only=True):
    """A payment as the service shows it; members that this client doesn't know are left out."""

    id: str
    state: str
    amount: int
    currency: str
    destination: str
    attempt: int = 1
    created_at: str = ""
    changed_at: str = ""
    receipt: dict[str, Any] | None = None
    reason: str | None = None
    description: str | None = None
    metadata: dict[str, str] | None = None
    contradicted: bool = False


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An RFC 9457 problem; members that are missing or no text are "".

    Attributes:
        code: of the service's closed list, such as ``name-reused``.
        effect: what the service says of the money: ``done``, ``not_done`` or ``unknown``.
        operation_id: the operation's id, printed ``machine:sequence``.
    """

    status: int
    code: str = ""
    title: str = ""
    detail: str = ""
    effect: str = ""
    operation_id: str = ""
    member: str = ""


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """One post.

    Attributes:
        number: 1, 2, ...
        meaning: what it says about the payment.
        status: the HTTP status, or None where no whole answer came.
        code: the problem's code, or "".
        error: why no whole or readable answer came, or "".
        waited_seconds: the wait before it.
    """

    number: int
    meaning: Meaning
    status: int | None = None
    code: str = ""
    error: str = ""
    waited_seconds: float = 0.0


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How a call of ``pay`` ended.

    Attributes:
        state: what is known of the money, see VerdictState.
        name: the name to go on under.
        operation_id: the service's id of the operation, where an answer told it.
        payment: the payment as the deciding answer showed it, with APPLIED and FAILED.
        problem: the last problem that the service answered with.
        tries: every post, in order.
    """

    state: VerdictState
    name: str
    operation_id: str | None = None
    payment: Payment | None = None
    problem: Problem | None = None
    tries: tuple[Try, ...] = ()

    @property
    def unanswered(self) -> int:
        """How many tries may have arrived although no answer to them was understood."""
        return sum(one.meaning is Meaning.UNKNOWN for one in self.tries)


class Refused(Exception):
    """The service refused the request, and no try of this call can have moved money.

    Raised and not returned, because the program or its settings must be mended before the payment can
    be tried again: invalid member (400), too large (413), wrong type (415), name used for another
    request (422 ``name-reused``), no permission (401, 403), wrong address (404), ... It says nothing of
    earlier calls under the same name.

    Attributes:
        name: the name that was posted.
        status: the HTTP status.
        problem: the service's reason; its members are "" where the answer was no problem document.
        tries: every post, in order.
    """

    def __init__(self, name: str, problem: Problem, tries: tuple[Try, ...]) -> None:
        reason = " ".join(part for part in (problem.code, problem.detail or problem.title) if part)
        super().__init__(f"refused with {problem.status}{': ' if reason else ''}{reason}")
        self.name = name
        self.status = problem.status
        self.problem = problem
        self.tries = tries
