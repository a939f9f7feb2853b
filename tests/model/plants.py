"""Planted mistakes: altered tables for ``decide``, and names of switches in the modelled surroundings.

A table mistake is planted where a real one would be made: in TRANSITIONS. ``planted`` swaps the index
that ``decide`` reads for one built from the altered table, and puts the true one back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nonbis.core import machine
from nonbis.core.machine import CANCELLED, IN_DOUBT, SETTLED, STARTED, TRANSITIONS, Transition
from nonbis.core.messages import Kind, Reason, State

Table = tuple[Transition, ...]
Chosen = Callable[[Transition], bool]


@contextmanager
def planted(table: Table) -> Iterator[None]:
    """Let ``decide`` go by another table."""
    true_index = machine._INDEX
    machine._INDEX = machine._index(table)
    try:
        yield
    finally:
        machine._INDEX = true_index


def on(*kinds: Kind) -> Chosen:
    """The transitions of these events."""
    return lambda transition: transition.event in kinds


def _altered(chosen: Chosen, alter: Callable[[Transition], Transition | None]) -> Table:
    """The table with the chosen transitions altered, or left out; something must differ."""
    table = tuple(
        made
        for transition in TRANSITIONS
        if (made := alter(transition) if chosen(transition) else transition) is not None
    )
    assert table != TRANSITIONS, "the planted mistake changes nothing"
    return table


def without_guards(chosen: Chosen, *guards: str) -> Table:
    """The chosen transitions no longer ask these questions."""
    return _altered(
        chosen,
        lambda transition: transition._replace(
            guards=tuple(guard for guard in transition.guards if guard not in guards)
        ),
    )


def dropped(chosen: Chosen) -> Table:
    """The table without the chosen transitions."""
    return _altered(chosen, lambda _: None)


def leading_to(chosen: Chosen, state: State, reason: Reason | None) -> Table:
    """The chosen transitions end elsewhere."""
    return _altered(chosen, lambda transition: transition._replace(state=state, reason=reason))


def with_changes(chosen: Chosen, *changes: str) -> Table:
    """The chosen transitions change these columns and no others."""
    return _altered(chosen, lambda transition: transition._replace(changes=changes))


def _from(source: str, *kinds: Kind) -> Chosen:
    return lambda transition: source in transition.sources and transition.event in kinds


def _reachable_by_anyone() -> Table:
    """A started operation of a lost machine is taken over and run again, as with a lease."""
    lease = Transition(
        (STARTED,), Kind.TAKE_OVER, ("owner not living",), State.STARTED, None, ("owner is me",)
    )
    return (*TRANSITIONS, lease)


def _tombstone_retried() -> Table:
    return _altered(
        lambda transition: transition.event is Kind.RETRY and SETTLED in transition.sources,
        lambda transition: transition._replace(sources=(*transition.sources, CANCELLED)),
    )


def _new_reference_after_settlement() -> Table:
    return _altered(
        lambda transition: transition.event is Kind.RETRY and SETTLED in transition.sources,
        lambda transition: transition._replace(changes=(*transition.changes, "one more refusal")),
    )


REPORTS_OF_NO_EFFECT = (Kind.REPORT_DECLINED, Kind.REPORT_NOT_SENT)

TABLES: dict[str, Table] = {
    "lease re-run": _reachable_by_anyone(),
    "report from any attempt": without_guards(
        on(*REPORTS_OF_NO_EFFECT), "present send", "open send", "no other send open"
    ),
    "time-out is failed": leading_to(on(Kind.REPORT_UNKNOWN), State.FAILED, Reason.NOT_SENT),
    "lost machine is failed": leading_to(_from(STARTED, Kind.OWNER_LOST), State.FAILED, Reason.NOT_SENT),
    "overdue is failed": leading_to(on(Kind.OVERDUE), State.FAILED, Reason.NOT_SENT),
    "person settles without window": without_guards(on(Kind.PERSON_FAILED), "settle window passed"),
    "not found settles without window": without_guards(on(Kind.FOUND_NOTHING), "settle window passed"),
    "not_sent of one of two sends settles": without_guards(on(Kind.REPORT_NOT_SENT), "no other send open"),
    "declined of one of two sends settles": without_guards(on(Kind.REPORT_DECLINED), "no other send open"),
    "refusal shown for another send settles": without_guards(
        on(Kind.FOUND_REFUSED), "only send of its reference"
    ),
    "send of a forgotten row is forgotten too": without_guards(
        _from(STARTED, Kind.OWNER_FORGOT), "only send"
    ),
    "anyone may forget a row": without_guards(on(Kind.OWNER_FORGOT), "by owner"),
    "resend is not counted": with_changes(on(Kind.RESEND), "owner is me"),
    "new reference after a settlement": _new_reference_after_settlement(),
    "retryable tombstone": _tombstone_retried(),
    "in doubt is retried": _altered(
        lambda transition: transition.event is Kind.RETRY and SETTLED in transition.sources,
        lambda transition: transition._replace(sources=(*transition.sources, IN_DOUBT)),
    ),
    "answer used under another stamp": without_guards(on(Kind.FOUND_NOTHING, Kind.PERSON_FAILED), "as seen"),
    "late applied is dropped": _altered(
        _from(SETTLED, Kind.REPORT_APPLIED),
        lambda transition: transition._replace(
            sources=tuple(source for source in transition.sources if source != SETTLED)
        ),
    ),
    "contradiction does not block": without_guards(on(Kind.RETRY), "not contradicted"),
    "contradiction does not block a start": without_guards(
        on(Kind.START, Kind.TAKE_OVER), "not contradicted"
    ),
    "contradiction does not block a resend": without_guards(on(Kind.RESEND), "not contradicted"),
    "abandoned accepted rows stay": dropped(_from("accepted", Kind.OWNER_LOST)),
    "started rows of lost machines stay": dropped(_from(STARTED, Kind.OWNER_LOST)),
    "overdue is never said": dropped(on(Kind.OVERDUE)),
}
