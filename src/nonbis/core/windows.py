"""The three places where time enters the safety argument, as arithmetic on two clocks.

A window that must have **passed** is counted by the slower of wall clock and store age, one that must
**not** have passed by the faster. A jump of either clock alone therefore opens no window.
"""

from __future__ import annotations

from nonbis.core.messages import Moment, Record
from nonbis.core.policy import BEAT_SECONDS_MAX, Policy, RailFacts

AGE_GRAIN_SECONDS = BEAT_SECONDS_MAX
"""The age moves in steps of a beat and is extrapolated in between, so two readings may differ by this
much more or less than the time that passed; both rules below allow for it on the safe side."""


def passed(since: Moment, now: Moment, seconds: float) -> bool:
    """Whether surely at least ``seconds`` lie between the two moments."""
    wall = now.wall_ms - since.wall_ms
    age = now.age_ms - since.age_ms
    return wall >= seconds * 1000 and age >= (seconds + AGE_GRAIN_SECONDS) * 1000


def within(since: Moment, now: Moment, seconds: float) -> bool:
    """Whether surely less than ``seconds`` lie between the two moments."""
    wall = now.wall_ms - since.wall_ms
    age = now.age_ms - since.age_ms
    return wall < seconds * 1000 and age + AGE_GRAIN_SECONDS * 1000 < seconds * 1000


def settle_seconds(send_deadline_seconds: float, facts: RailFacts) -> float:
    """From the last send until "not found" or a person's "failed" counts."""
    return send_deadline_seconds + facts.settle_window_seconds


def may_settle(record: Record, asked: Moment, seconds: float) -> bool:
    """Whether the question was asked, or the person acted, after the settle window."""
    return record.started is not None and passed(record.started, asked, seconds)


def settle_after_ms(record: Record, seconds: float) -> int | None:
    """The wall clock's moment at which the settle window ends, for people to read."""
    return None if record.started is None else record.started.wall_ms + int(seconds * 1000)


def may_resend(record: Record, now: Moment, policy: Policy, facts: RailFacts) -> bool:
    """Whether a resend begun now would surely still meet the rail's memory of the reference.

    (time since the first send under this reference) + send deadline + settle window < dedupes_for.
    """
    window = facts.dedupes_for_seconds
    if window is None or record.referenced is None or record.sends > policy.resends_max:
        return False
    left = window - settle_seconds(policy.send_deadline_seconds, facts)
    return left > 0 and within(record.referenced, now, left)


def overdue(record: Record, now: Moment, policy: Policy) -> bool:
    """Whether a started operation is past its send deadline and the effect's time-out."""
    seconds = policy.send_deadline_seconds + policy.effect_timeout_seconds
    return record.started is not None and passed(record.started, now, seconds)


def may_retry(record: Record, now: Moment, policy: Policy) -> bool:
    """Whether time and number of attempts allow another attempt under this name."""
    if record.attempt >= policy.attempts_max:
        return False
    return within(record.created, now, policy.retry_within_seconds)


def may_retry_until_ms(record: Record, policy: Policy) -> int:
    """The wall clock's moment after which a failed name is only replayed."""
    return record.created.wall_ms + int(policy.retry_within_seconds * 1000)
