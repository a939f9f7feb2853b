"""Every situation and event put to ``decide``, and what came of it, as text.

``python -m tests.core.situations > tests/core/transitions.txt`` (from the root, with ``src`` on the path)
writes the file that the test compares with; a change of the table then shows in review.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

from nonbis.core.machine import ROWS, SITUATIONS, decide, situation
from nonbis.core.messages import Decision, Event, Kind, Moment, Reason, Record, State

ME, OTHER = 2, 1
STAMP, FRESH = 1_000, 2_000
BORN, NOW = Moment(1, 1), Moment(9, 9)

_EITHER = (False, True)
_SEEN = {"seen": (STAMP, 1)}
_REPORT = {"attempt": (2, 1), "send": (1, 2)}
RELEVANT: dict[Kind, dict[str, tuple[Any, ...]]] = {
    Kind.CLAIM: {"bounded": _EITHER, "fenced": _EITHER},
    Kind.CANCEL: {},
    Kind.START: _SEEN,
    Kind.HANDLER_ENDED: _SEEN,
    Kind.HANDLER_RETURNED: _SEEN,
    Kind.TAKE_OVER: {"owner_living": _EITHER},
    Kind.OWNER_LOST: {"owner_living": _EITHER},
    Kind.OWNER_FORGOT: {},
    Kind.OVERDUE: {"overdue": _EITHER},
    Kind.REPORT_APPLIED: {**_REPORT, "receipt_differs": _EITHER},
    Kind.REPORT_DECLINED: {**_REPORT, "binds_refusals": _EITHER},
    Kind.REPORT_NOT_SENT: _REPORT,
    Kind.REPORT_UNKNOWN: _REPORT,
    Kind.FOUND_APPLIED: {"attempt": (2, 1), "same_rail": _EITHER, "receipt_differs": _EITHER},
    Kind.FOUND_REFUSED: {**_SEEN, "same_rail": _EITHER, "binds_refusals": _EITHER, "may_settle": _EITHER},
    Kind.FOUND_NOTHING: {**_SEEN, "same_rail": _EITHER, "may_settle": _EITHER},
    Kind.PERSON_APPLIED: _SEEN,
    Kind.PERSON_FAILED: {**_SEEN, "may_settle": _EITHER, "forced": _EITHER},
    Kind.RESEND: {"same_rail": _EITHER, "may_resend": _EITHER},
    Kind.RETRY: {
        "may_retry": _EITHER,
        "bounded": _EITHER,
        "fenced": _EITHER,
        "same_rail": _EITHER,
    },
}
"""Which facts an event is judged by; no other may make a difference."""


def state_of(name: str) -> tuple[State, Reason | None]:
    """State and reason of a situation's name."""
    state, _, reason = name.removesuffix(")").partition("(")
    return State(state), Reason(reason) if reason else None


_ACCOUNTED = ((1, 0), (2, 0))
_OPEN = ((1, 1), (2, 3), (2, 2), (2, 1))
_SENDS = {
    State.ACCEPTED: ((0, 0),),
    State.STARTED: (*_OPEN, *_ACCOUNTED),
    State.IN_DOUBT: (*_OPEN, *_ACCOUNTED),
    State.APPLIED: (*_OPEN, *_ACCOUNTED),
    State.FAILED: ((0, 0), *_ACCOUNTED),
}
"""Sends and open sends that a row can have in each state."""


def rows_in(name: str) -> Iterator[Record | None]:
    """Rows of the second attempt in this situation: one or two sends, open or not, flagged or not, whose."""
    if name not in ROWS:
        yield None
        return
    state, reason = state_of(name)
    for (count, bits), owner, refusals, contradicted in product(_SENDS[state], (ME, OTHER), (0, 1), _EITHER):
        yield Record(
            digest=b"d" * 16,
            id=STAMP - 1,
            fingerprint=b"f" * 16,
            state=state,
            reason=reason,
            attempt=2,
            sends=count,
            open_sends=bits,
            refusals=refusals,
            owner=owner,
            stamp=STAMP,
            rail="bank",
            account="main",
            contradicted=contradicted,
            created=BORN,
            started=BORN if count else None,
            referenced=BORN,
            changed=BORN,
        )


def events_of(kind: Kind) -> Iterator[Event]:
    """Every combination of the facts that matter to this event."""
    facts = RELEVANT[kind]
    for values in product(*facts.values()):
        yield Event(
            kind=kind,
            me=ME,
            stamp=FRESH,
            now=NOW,
            digest=b"d" * 16,
            fingerprint=b"g" * 16,
            rail="other",
            account="second",
            **dict(zip(facts, values, strict=True)),
        )


def everything() -> Iterator[tuple[Record, Event]]:
    """Every row with every event."""
    for name in ROWS:
        for record in rows_in(name):
            assert record is not None
            for kind in Kind:
                yield from ((record, event) for event in events_of(kind))


def outcomes(name: str, kind: Kind) -> Counter[str]:
    """What came of all rows in this situation and all events of this kind, and how often."""
    return Counter(described(row, decide(row, event)) for row in rows_in(name) for event in events_of(kind))


def described(row: Record | None, decision: Decision) -> str:
    """One decision in words."""
    noted = f", journal {decision.journal}" if decision.journal else ""
    if decision.record is None:
        return f"no write{noted}"
    changed = _changed(row, decision.record)
    return f"{situation(decision.record)}{noted}" + (f": {', '.join(changed)}" if changed else "")


_EVERY_WRITE = {"stamp", "changed", "state", "reason"}
_AT_BIRTH = {"digest", "id", "fingerprint", "fingerprint_version", "created"}


def _changed(row: Record | None, after: Record) -> list[str]:
    before = row or Record(digest=b"", id=0, fingerprint=None, state=State.ACCEPTED, owner=0, stamp=0)
    return [
        _column(name, getattr(before, name), getattr(after, name))
        for name in Record.__struct_fields__
        if name not in _EVERY_WRITE | (_AT_BIRTH if row is None else set())
        and getattr(before, name) != getattr(after, name)
    ]


def _column(name: str, before: Any, after: Any) -> str:
    if isinstance(after, Moment):
        return f"{name} now" if after == NOW else f"{name} {after}"
    if name == "owner":
        return "owner me" if after == ME else f"owner {after}"
    if name == "open_sends":
        return f"{name} {after:02b}"
    if name in ("attempt", "refusals"):
        return f"{name} {after - before:+d}"
    return f"{name} {after}"


def lines() -> Iterator[str]:
    """The whole text, line by line."""
    for name in SITUATIONS:
        for kind in Kind:
            found = outcomes(name, kind)
            total = sum(found.values())
            if set(found) == {"no write"}:
                yield f"{name} | {kind} | nothing ever"
                continue
            for outcome, count in sorted(found.items()):
                yield f"{name} | {kind} | {count} of {total} | {outcome}"


if __name__ == "__main__":
    print(*lines(), sep="\n")
