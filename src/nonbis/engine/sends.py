"""One send: its gate, and how its end is reported."""

from __future__ import annotations

from nonbis.core.messages import Kind
from nonbis.engine.timekeeping import Deadline
from nonbis.errors import Declined, NotSent


class SendGate:
    """The last check before the first byte; see ports.Gate.

    It shuts when the deadline passes, when the callers were told that nothing happens, and when this
    machine has been declared lost.
    """

    __slots__ = ("_deadline", "_shut", "deadline_ms", "operation", "passed")

    def __init__(self, operation: str, deadline: Deadline) -> None:
        self.operation = operation
        self.deadline_ms = deadline.wall_ms
        self.passed = False
        self._deadline = deadline
        self._shut: str | None = None

    def shut(self, why: str) -> None:
        """Let no send begin any more."""
        self._shut = why

    def __call__(self) -> None:
        """Raise NotSent if the send may not begin."""
        if self._shut is not None:
            raise NotSent(self._shut)
        if self._deadline.passed():
            raise NotSent("the send deadline has passed")
        self.passed = True


def report_of(error: BaseException) -> Kind:
    """The report that an exception of a rail amounts to.

    Only what a rail says in so many words counts as "no effect". Everything else, a time-out, a
    cancelled task or a bug in the rail's own code, leaves the effect unknown.
    """
    if isinstance(error, Declined):
        return Kind.REPORT_DECLINED
    if isinstance(error, NotSent):
        return Kind.REPORT_NOT_SENT
    return Kind.REPORT_UNKNOWN
