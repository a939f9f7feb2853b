"""Rows and events for the tests of ``decide``, by hand and by chance."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from nonbis.core.machine import (
    STARTED,
)
from nonbis.core.messages import Event, Kind, Moment, Reason, Record, State
from tests.core.situations import FRESH, ME, NOW, OTHER, STAMP, state_of

FLAGS = (
    "bounded",
    "owner_living",
    "same_rail",
    "binds_refusals",
    "receipt_differs",
    "overdue",
    "may_settle",
    "may_resend",
    "may_retry",
    "forced",
    "fenced",
)
kinds = st.sampled_from(list(Kind))
rows = st.builds(
    Record,
    digest=st.just(b"d" * 16),
    id=st.just(STAMP - 1),
    fingerprint=st.none() | st.just(b"f" * 16),
    state=st.sampled_from(list(State)),
    attempt=st.integers(1, 3),
    sends=st.integers(0, 3),
    open_sends=st.integers(0, 7),
    refusals=st.integers(0, 2),
    owner=st.sampled_from([ME, OTHER]),
    stamp=st.just(STAMP),
    contradicted=st.booleans(),
).flatmap(
    lambda row: (
        st.sampled_from(list(Reason)).map(lambda reason: but(row, reason=reason))
        if row.state is State.FAILED
        else st.just(row)
    )
)
events = st.builds(
    Event,
    kind=kinds,
    me=st.just(ME),
    stamp=st.just(FRESH),
    now=st.just(NOW),
    attempt=st.integers(0, 3),
    send=st.integers(0, 4),
    seen=st.sampled_from([STAMP, 1]),
    **{flag: st.booleans() for flag in FLAGS},
)


def but(record: Record, **facts: Any) -> Record:
    """The row with other facts."""
    return msgspec.structs.replace(record, **facts)


def row(name: str = STARTED, **facts: Any) -> Record:
    """A row of the second attempt in this situation, with one open send, mine."""
    state, reason = state_of(name)
    record = Record(
        digest=b"d" * 16,
        id=STAMP - 1,
        fingerprint=b"f" * 16,
        state=state,
        reason=reason,
        attempt=2,
        sends=1,
        open_sends=1,
        owner=ME,
        stamp=STAMP,
        rail="bank",
        account="main",
        created=Moment(1, 2),
        started=Moment(3, 4),
        referenced=Moment(5, 6),
        changed=Moment(7, 8),
    )
    return but(record, **facts)


def event(kind: Kind, **facts: Any) -> Event:
    """An event of the present send under the present stamp."""
    return Event(
        **{"me": ME, "stamp": FRESH, "now": NOW, "attempt": 2, "send": 1, "seen": STAMP, **facts}, kind=kind
    )
