"""Every planted mistake with the smallest setup in which it must show, and the breaks that stay possible."""

from __future__ import annotations

from typing import Any

from tests.model.cases import Planted
from tests.model.world import Budget, Setup


def _planted(
    name: str, shows: str, budget: Budget, *, table: str = "", also: str = "", **facts: Any
) -> Planted:
    mistakes = frozenset(mistake for mistake in (name if not table else "", also) if mistake)
    setup = Setup(budget=budget, mistakes=mistakes, **facts)
    return Planted(name=name, shows=tuple(shows.split("|")), setup=setup, table=table)


def _table(name: str, shows: str, budget: Budget, *, also: str = "", **facts: Any) -> Planted:
    return _planted(name, shows, budget, table=name, also=also, **facts)


_B = Budget
PLANTED = (
    # -- in the engine and the store
    _planted("effect before state", "UNGUARDED", _B(crashes=1)),
    _planted("start without a write", "UNGUARDED", _B(), bounded=True),
    _planted(
        "start without a write", "DOUBLE", _B(false_losses=1), bounded=True, also="own rows not compared"
    ),
    _planted("guarded by state and attempt", "DOUBLE", _B(calls=3, lost_answers=2, declines=1)),
    _planted(
        "read instead of repeat",
        "WEDGE",
        _B(calls=1, lost_answers=1, late_commits=1),
        also="own rows not compared",
    ),
    _planted("own rows not compared", "WEDGE", _B(calls=1, lost_answers=1, give_ups=1)),
    _planted("no send deadline", "DOUBLE|FALSE", _B(false_losses=1)),
    _planted("deadline from the answer", "DOUBLE|FALSE", _B(false_losses=1, lost_answers=1)),
    _planted("deadline from the re-read", "DOUBLE|FALSE", _B(false_losses=1, lost_answers=1)),
    _planted("resend without a write", "UNGUARDED", _B(resends=1), dedupes=True, binds_refusals=True),
    _planted(
        "resend without a write", "FALSE", _B(resends=1, lost_messages=1), dedupes=True, binds_refusals=True
    ),
    _planted("told from memory", "FALSE", _B(false_losses=1, resends=1), dedupes=True, binds_refusals=True),
    _planted("loss swept once", "WEDGE", _B(calls=1, crashes=1, false_losses=1)),
    _planted("owner from the id", "WEDGE", _B(crashes=1, declines=1)),
    _planted("refusals taken as bound", "FALSE", _B(declines=1), finds=True),
    _planted(
        "refusals taken as bound",
        "FALSE|DOUBLE",
        _B(declines=1, resends=1),
        dedupes=True,
    ),
    _planted("window counted from the answer", "FALSE", _B(questions=1), finds=True),
    # -- in the table
    _table("lease re-run", "DOUBLE", _B(false_losses=1), also="own rows not compared"),
    _table("report from any attempt", "FALSE|DOUBLE", _B(false_losses=1)),
    _table("time-out is failed", "FALSE", _B()),
    _table("lost machine is failed", "FALSE", _B(false_losses=1)),
    _table("overdue is failed", "FALSE", _B(), never_returns=True),
    _table("person settles without window", "FALSE", _B()),
    _table("not found settles without window", "FALSE", _B(), finds=True),
    _table(
        "not_sent of one of two sends settles",
        "FALSE",
        _B(false_losses=1, resends=1),
        dedupes=True,
        binds_refusals=True,
    ),
    _table(
        "declined of one of two sends settles",
        "FALSE",
        _B(declines=1, resends=1),
        dedupes=True,
    ),
    _table(
        "refusal shown for another send settles",
        "FALSE",
        _B(declines=1, resends=1),
        dedupes=True,
        finds=True,
    ),
    _table(
        "send of a forgotten row is forgotten too",
        "FALSE",
        _B(lost_answers=1, give_ups=1, resends=1),
        dedupes=True,
        binds_refusals=True,
    ),
    _table("anyone may forget a row", "FALSE", _B(), also="others' rows compared"),
    _table(
        "resend is not counted", "FALSE", _B(false_losses=1, resends=1), dedupes=True, binds_refusals=True
    ),
    _table("new reference after a settlement", "DOUBLE", _B(forces=1), dedupes=True, binds_refusals=True),
    _table("retryable tombstone", "CANCELLED|DOUBLE", _B(calls=1, cancels=1)),
    _table("in doubt is retried", "DOUBLE", _B()),
    _table(
        "answer used under another stamp",
        "FALSE",
        _B(questions=1, resends=1, lost_messages=1),
        dedupes=True,
        binds_refusals=True,
        finds=True,
    ),
    _table("late applied is dropped", "DROPPED", _B(false_losses=1, forces=1)),
    _table("contradiction does not block", "REPEATED", _B(calls=3, false_losses=1, not_sent=1, forces=1)),
    _table(
        "contradiction does not block a start",
        "REPEATED",
        _B(calls=3, crashes=1, false_losses=1, forces=1),
        bounded=True,
    ),
    _table(
        "contradiction does not block a resend",
        "REPEATED",
        _B(calls=2, false_losses=1, forces=1, resends=1),
        dedupes=True,
        binds_refusals=True,
    ),
    _table("abandoned accepted rows stay", "WEDGE", _B(calls=1, crashes=1), bounded=True),
    _table("started rows of lost machines stay", "WEDGE", _B(calls=1, crashes=1)),
    _table("overdue is never said", "WEDGE", _B(calls=1, lost_messages=1), never_returns=True),
)

REMAINING = (
    Planted(
        name="pause after the gate, rail neither dedupes nor honours the deadline",
        shows=("DOUBLE",),
        setup=Setup(pause_after_gate=True, budget=_B(false_losses=1)),
    ),
    Planted(
        name="force while a message is under way, rail does not dedupe",
        shows=("DOUBLE",),
        setup=Setup(budget=_B(forces=1)),
    ),
    Planted(
        name="force while a message is under way, rail dedupes without binding refusals",
        shows=("DOUBLE",),
        setup=Setup(dedupes=True, budget=_B(calls=3, declines=1, forces=1)),
    ),
)
"""What stays possible, and is said in the guarantees: no library can prevent it."""
