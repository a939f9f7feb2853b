"""The course of one call: takes what each try came to, says how long to wait, and in the end the verdict.

Pure. ``Client`` and ``AsyncClient`` only carry it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from nonbis.client.answers import Again, Finding
from nonbis.client.backoff import Backoff, Chance, retry_after_seconds
from nonbis.client.intent import Intent
from nonbis.client.verdict import Meaning, Payment, Problem, Refused, Try, Verdict, VerdictState


class Course:
    """From the first try to the end.

    ``retry_failed`` makes a failed payment that may be tried again count as a reason to post again.
    """

    def __init__(self, intent: Intent, backoff: Backoff, *, retry_failed: bool) -> None:
        self.intent = intent
        self._backoff = backoff
        self._retry_failed = retry_failed
        self._findings: list[Finding] = []
        self._tries: list[Try] = []
        self._wait_seconds = 0.0

    @property
    def tries(self) -> tuple[Try, ...]:
        """What was tried so far."""
        return tuple(self._tries)

    def take(self, finding: Finding, world: Chance) -> float | None:
        """Note what a try came to; the seconds to wait before the next, or None if there is none."""
        self._findings.append(finding)
        self._tries.append(_as_try(len(self._findings), finding, self._wait_seconds))
        asked = retry_after_seconds(finding.retry_after, finding.date, world.wall_seconds())
        if len(self._findings) >= self._backoff.tries or not self._goes_on(finding, asked):
            return None
        self._wait_seconds = self._backoff.wait_seconds(len(self._findings), world.chance(), asked)
        return self._wait_seconds

    def _goes_on(self, finding: Finding, asked_seconds: float | None) -> bool:
        if finding.again is Again.IF_INVITED:
            return asked_seconds is not None
        if finding.again is Again.IF_WANTED:
            return self._retry_failed
        return finding.again is Again.ALWAYS

    def end(self) -> Verdict | Refused:
        """The verdict over all tries so far."""
        state = judge([finding.meaning for finding in self._findings])
        problems = [finding.problem for finding in self._findings if finding.problem]
        if state is None:
            return Refused(self.intent.name, problems[-1], self.tries)
        payment = self._deciding_payment(state)
        return Verdict(
            state=state,
            name=self.intent.name,
            operation_id=_operation_id(payment, problems),
            payment=payment,
            problem=problems[-1] if problems else None,
            tries=self.tries,
        )

    def _deciding_payment(self, state: VerdictState) -> Payment | None:
        definite = [one for one in self._findings if one.meaning in (Meaning.APPLIED, Meaning.FAILED)]
        if state not in (VerdictState.APPLIED, VerdictState.FAILED):
            return None
        return definite[-1].payment


def judge(meanings: Sequence[Meaning]) -> VerdictState | None:
    """What is known after these tries; None if the request was refused and nothing can have happened.

    ``failed`` takes back every doubt before it, since it speaks of the payment and not of one post.
    A refusal or "not done" speaks of its own post only and takes nothing back.
    """
    failed = doubt = unsure = False
    for meaning in meanings:
        if meaning is Meaning.APPLIED:
            return VerdictState.APPLIED
        if meaning is Meaning.FAILED:
            failed, doubt, unsure = True, False, False
        doubt = doubt or meaning is Meaning.DOUBT
        unsure = unsure or meaning in (Meaning.RUNNING, Meaning.UNKNOWN)
    if doubt:
        return VerdictState.IN_DOUBT
    if unsure:
        return VerdictState.GAVE_UP
    if failed:
        return VerdictState.FAILED
    if Meaning.REFUSED in meanings:
        return None
    return VerdictState.GAVE_UP if Meaning.NOT_DONE in meanings else VerdictState.NOT_REACHED


def _as_try(number: int, finding: Finding, waited_seconds: float) -> Try:
    return Try(
        number=number,
        meaning=finding.meaning,
        status=finding.status,
        code=finding.problem.code if finding.problem else "",
        error=finding.error,
        waited_seconds=waited_seconds,
    )


def _operation_id(payment: Payment | None, problems: Sequence[Problem]) -> str | None:
    if payment is not None:
        return payment.id
    return next((one.operation_id for one in reversed(problems) if one.operation_id), None)
