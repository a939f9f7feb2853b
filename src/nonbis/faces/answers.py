"""One writer of replies: what an engine's answer is over HTTP, in the two forms of the service."""

from __future__ import annotations

from nonbis.core import windows
from nonbis.core.conditions import reference_was_used
from nonbis.core.ids import format_id
from nonbis.core.messages import Reason, Record, State
from nonbis.core.payments import Transfer, decode_transfer, differing_members
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Answer, Standing
from nonbis.faces.wire import JSON, REPLAYED, Reply, json_reply, problem

RETRY_SOON_SECONDS = 1
RETRY_UNKNOWN_SECONDS = 5
RETRY_UNAVAILABLE_SECONDS = 2


def location(record: Record) -> str:
    """Where the payment can be looked at."""
    return f"/payments/{format_id(record.id)}"


class AnswerWriter:
    """Turns answers into replies."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rails = {(facts.name, facts.account): facts for facts in engine.effects.facts}

    def payments(self, answer: Answer, transfer: Transfer) -> Reply:
        """The reply of ``POST /payments``."""
        record = answer.record
        refused = self._refused(answer, transfer)
        if refused is not None:
            return refused
        if record.reason is Reason.NOT_SENT and self._may_retry(record):
            return problem(
                "rail-unreachable",
                "The payment was not sent: the rail could not be reached. Ask again under the same name.",
                retry_after_seconds=RETRY_UNAVAILABLE_SECONDS,
                operation_id=format_id(record.id),
                instance=location(record),
            )
        if answer.outcome is None:
            raise AssertionError(f"{format_id(record.id)} has ended without an outcome")
        headers = [JSON, (b"location", location(record).encode())]
        if answer.replayed:
            headers.append(REPLAYED)
        return Reply(answer.outcome.status, headers, answer.outcome.body)

    def article(self, answer: Answer, transfer: Transfer) -> Reply:
        """The reply of ``POST /payment``: never a 2xx that could be read as sent when it was not."""
        refused = self._refused(answer, transfer, in_progress_status=503)
        if refused is not None:
            return refused
        reply = json_reply({"state": answer.record.state.value})
        return reply._replace(headers=[*reply.headers, REPLAYED]) if answer.replayed else reply

    def _refused(
        self, answer: Answer, transfer: Transfer, in_progress_status: int | None = None
    ) -> Reply | None:
        record = answer.record
        if answer.standing is Standing.MISMATCH:
            return self._mismatch(answer, transfer)
        if answer.standing is Standing.IN_PROGRESS:
            return problem(
                "in-progress",
                "The first request under this name is still running.",
                effect="unknown",
                status=in_progress_status,
                retry_after_seconds=RETRY_SOON_SECONDS,
                operation_id=format_id(record.id),
                instance=location(record),
            )
        if answer.standing is Standing.IN_DOUBT:
            return self._unknown(record)
        if record.reason is Reason.CANCELLED:
            return problem(
                "cancelled",
                "This name was cancelled; nothing was sent and nothing will be.",
                operation_id=format_id(record.id),
                instance=location(record),
            )
        return None

    def _mismatch(self, answer: Answer, transfer: Transfer) -> Reply:
        before = decode_transfer(answer.request) if answer.request else None
        members = [] if before is None else differing_members(before, transfer)
        return problem(
            "name-reused",
            f"This name belongs to a request with another {' and '.join(members) or 'body'};"
            " this request was not carried out. Use a new name for a new payment.",
            members=members,
            operation_id=format_id(answer.record.id),
        )

    def _unknown(self, record: Record) -> Reply:
        again = self._rail_will_be_asked(record)
        turn = "The rail will be asked." if again else "A person or a late report will settle it."
        return problem(
            "outcome-unknown",
            f"The payment may or may not have been made, and it will not be sent blindly again. {turn}",
            effect="unknown",
            retryable=again,
            retry_after_seconds=RETRY_UNKNOWN_SECONDS if again else None,
            operation_id=format_id(record.id),
            instance=location(record),
        )

    def _rail_will_be_asked(self, record: Record) -> bool:
        facts = self._rails.get((record.rail, record.account))
        if facts is None or record.contradicted or record.state is not State.IN_DOUBT:
            return False
        return facts.finds or windows.may_resend(record, self._engine.time.now(), self._engine.policy, facts)

    def _may_retry(self, record: Record) -> bool:
        if reference_was_used(record) and (record.rail, record.account) not in self._rails:
            return False  # only a process with the row's own rail makes another attempt
        return windows.may_retry(record, self._engine.time.now(), self._engine.policy)
