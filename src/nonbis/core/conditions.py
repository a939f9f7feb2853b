"""What transitions ask of a row and an event, and what they change: the words of the table.

Guards are predicates and changes are the columns that get new values; both are looked up by the names
that stand in TRANSITIONS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nonbis.core.messages import Event, Record


def send_bit(send: int) -> int:
    """The bit of ``open_sends`` that stands for this send."""
    return 1 << (send - 1) if send > 0 else 0


def _is_present_send(record: Record, event: Event) -> bool:
    return event.attempt == record.attempt and event.send == record.sends


def _is_open_send(record: Record, event: Event) -> bool:
    return event.attempt == record.attempt and bool(record.open_sends & send_bit(event.send))


def _others_open(record: Record, event: Event) -> bool:
    return bool(record.open_sends & ~send_bit(event.send))


def _is_only_send_of_its_reference(record: Record, _: Event) -> bool:
    """Whether a refusal that the rail shows under this reference can only be that of the open send.

    Where a rail does not bind refusals, it may show that of an earlier resend or attempt while the
    open one is under way.
    """
    return record.sends <= 1 and not reference_was_used(record)


def reference_was_used(record: Record) -> bool:
    """Whether an attempt before this one bore the present reference, so that its effect may still come.

    The reference is new for each attempt exactly if each one before was refused by the rail.
    """
    return record.attempt > record.refusals + 1


Guard = Callable[[Record, Event], bool]

GUARDS: dict[str, Guard] = {
    "bounded": lambda record, event: event.bounded,
    "fenced": lambda record, event: event.fenced,
    "mine": lambda record, event: record.owner == event.me and event.seen == record.stamp,
    "by owner": lambda record, event: record.owner == event.me,
    "owner not living": lambda record, event: not event.owner_living,
    "only send": lambda record, event: record.sends <= 1,
    "overdue": lambda record, event: event.overdue,
    "same attempt": lambda record, event: event.attempt == record.attempt,
    "present send": _is_present_send,
    "open send": _is_open_send,
    "no other send open": lambda record, event: not _others_open(record, event),
    "another send open": _others_open,
    "refusals bind": lambda record, event: event.binds_refusals,
    "only send of its reference": _is_only_send_of_its_reference,
    "a send open": lambda record, event: record.open_sends != 0,
    "same rail or an unused reference": lambda record, event: (
        event.same_rail or not reference_was_used(record)
    ),
    "same rail": lambda record, event: event.same_rail,
    "as seen": lambda record, event: event.seen == record.stamp,
    "settle window passed": lambda record, event: event.may_settle,
    "forced": lambda record, event: event.forced,
    "may resend": lambda record, event: event.may_resend,
    "may retry": lambda record, event: event.may_retry,
    "receipt differs": lambda record, event: event.receipt_differs,
    "contradicted": lambda record, event: record.contradicted,
    "not contradicted": lambda record, event: not record.contradicted,
}

Change = Callable[[Record, Event], dict[str, Any]]

CHANGES: dict[str, Change] = {
    "first send": lambda record, event: {
        "sends": 1,
        "open_sends": 1,
        "started": event.now,
        "referenced": record.referenced or event.now,
    },
    "one more send": lambda record, event: {
        "sends": record.sends + 1,
        "open_sends": record.open_sends | send_bit(record.sends + 1),
        "owner": event.me,
        "started": event.now,
    },
    "next attempt, first send": lambda record, event: {
        "attempt": record.attempt + 1,
        "sends": 1,
        "open_sends": 1,
        "owner": event.me,
        "started": event.now,
        "referenced": record.referenced or event.now,
    },
    "next attempt, no send yet": lambda record, event: {
        "attempt": record.attempt + 1,
        "sends": 0,
        "open_sends": 0,
        "owner": event.me,
        "started": None,
    },
    "new reference": lambda record, event: {"referenced": event.now},
    "rail at hand": lambda record, event: {"rail": event.rail, "account": event.account},
    "owner is me": lambda record, event: {"owner": event.me},
    "this send is closed": lambda record, event: {"open_sends": record.open_sends & ~send_bit(event.send)},
    "all sends are closed": lambda record, event: {"open_sends": 0},
    "one more refusal": lambda record, event: {"refusals": record.refusals + 1},
    "flag raised": lambda record, event: {"contradicted": True},
    "flag cleared": lambda record, event: {"contradicted": False},
}
