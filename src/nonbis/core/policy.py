"""Settings: one frozen type, checked when made, and the facts that a rail declares of itself."""

from __future__ import annotations

import msgspec

DAY_SECONDS = 86_400
BEAT_SECONDS_MAX = 2.0
"""The age of the store moves with the beats; windows.AGE_GRAIN_SECONDS allows for steps of this size."""


class SettingsUnsafe(ValueError):
    """A setting that would break the promise, or that no one can mean."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an engine behaves. All durations are in seconds.

    Attributes:
        beat_seconds: time between two beats of a machine.
        lost_after_seconds: a machine is lost when its beat stood still for this long.
        send_deadline_seconds: a send may begin this long after the clock was read before its write.
        effect_timeout_seconds: how long a caller waits for the effect; the send goes on after it.
        wait_seconds: how long a second call waits for one in flight; 0 answers 409 at once.
        retry_failed: a failed name may be tried again under the same name (the payment service).
        retry_within_seconds: counted from the claim.
        attempts_max: at most this many attempts under one name.
        resends_max: at most this many resends of one attempt in doubt.
        store_wait_seconds: how long a call waits for an unreachable store before it is told so.
        batch_max: at most this many rows in one commit.
        stop_seconds: how long a graceful stop waits for running effects.
    """

    beat_seconds: float = 2.0
    lost_after_seconds: float = 10.0
    send_deadline_seconds: float = 30.0
    effect_timeout_seconds: float = 30.0
    wait_seconds: float = 0.0
    retry_failed: bool = True
    retry_within_seconds: float = float(DAY_SECONDS)
    attempts_max: int = 20
    resends_max: int = 8
    store_wait_seconds: float = 5.0
    batch_max: int = 512
    stop_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise SettingsUnsafe(f"{name} must be more than 0, not {getattr(self, name)}")
        for name in ("wait_seconds", "stop_seconds", "resends_max", "retry_within_seconds"):
            if not getattr(self, name) >= 0:
                raise SettingsUnsafe(f"{name} must not be negative, but is {getattr(self, name)}")
        if self.lost_after_seconds < 2 * self.beat_seconds:
            raise SettingsUnsafe(
                f"lost_after_seconds ({self.lost_after_seconds}) must be at least two beats"
                f" ({self.beat_seconds} each), or living machines are declared lost"
            )
        if self.beat_seconds > BEAT_SECONDS_MAX:
            raise SettingsUnsafe(
                f"beat_seconds must be at most {BEAT_SECONDS_MAX:g}: the store's age moves with the beats,"
                " and the windows allow for no coarser steps"
            )
        if self.resends_max > 60:
            raise SettingsUnsafe("resends_max must be at most 60: the sends of an attempt share one integer")


_POSITIVE = (
    "beat_seconds",
    "lost_after_seconds",
    "send_deadline_seconds",
    "effect_timeout_seconds",
    "attempts_max",
    "store_wait_seconds",
    "batch_max",
)


class RailFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a rail says of itself; told nothing, the worst is assumed.

    Attributes:
        name, account: which rail; only the same two may resend, be asked, or settle.
        settle_window_seconds: wire, receipt to effect, and until ``find`` shows it.
        dedupes_for_seconds: how long it refuses a repeated reference itself; None: it does not.
        binds_refusals: its refusal holds for the reference, not only for that send.
        honours_deadline: it refuses late arrivals itself.
        finds: it can be asked about a reference.
    """

    name: str
    account: str = "main"
    settle_window_seconds: float = 900.0
    dedupes_for_seconds: float | None = None
    binds_refusals: bool = False
    honours_deadline: bool = False
    finds: bool = False

    def __post_init__(self) -> None:
        if not self.name or not self.account:
            raise SettingsUnsafe("a rail has a name and an account")
        if not self.settle_window_seconds >= 0:
            raise SettingsUnsafe("settle_window must not be negative")
        if self.dedupes_for_seconds is not None and not self.dedupes_for_seconds > 0:
            raise SettingsUnsafe("dedupes_for must be more than 0")

    def dedupes(self, send_deadline_seconds: float) -> bool:
        """Whether its dedupe window is long enough to be of any use for a resend."""
        window = self.dedupes_for_seconds
        return window is not None and window > send_deadline_seconds + self.settle_window_seconds


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes on one store have agreed on: the send deadline and each rail's facts."""

    send_deadline_seconds: float
    rails: tuple[RailFacts, ...] = ()

    def rail(self, name: str, account: str) -> RailFacts | None:
        """The agreed facts of this rail and account, or None."""
        for facts in self.rails:
            if facts.name == name and facts.account == account:
                return facts
        return None


def weaker(agreed: Agreement, mine: Agreement) -> list[str]:
    """Where ``mine`` promises less than what is agreed, one sentence each.

    A window that is counted as passed must cover what every process may do, so a shorter settle
    window or a rail that is said to do less is weaker; so is a longer send deadline, for another
    process would settle before it has passed.
    """
    found = []
    if mine.send_deadline_seconds > agreed.send_deadline_seconds:
        found.append(
            f"the send deadline is {mine.send_deadline_seconds:g} s here and"
            f" {agreed.send_deadline_seconds:g} s in the store"
        )
    for facts in mine.rails:
        before = agreed.rail(facts.name, facts.account)
        if before is not None:
            found += [f"rail {facts.name}/{facts.account}: {what}" for what in _less(before, facts)]
    return found


def _less(before: RailFacts, after: RailFacts) -> list[str]:
    found = []
    if after.settle_window_seconds < before.settle_window_seconds:
        found.append(
            f"settle_window {after.settle_window_seconds:g} s is shorter than"
            f" {before.settle_window_seconds:g} s"
        )
    if (after.dedupes_for_seconds or 0) < (before.dedupes_for_seconds or 0):
        found.append(
            f"dedupes_for {after.dedupes_for_seconds or 0:g} s is shorter than"
            f" {before.dedupes_for_seconds:g} s"
        )
    found += [
        f"it no longer says {name}"
        for name in ("binds_refusals", "honours_deadline", "finds")
        if getattr(before, name) and not getattr(after, name)
    ]
    return found


def joined(agreed: Agreement | None, mine: Agreement, *, replaces: bool = False) -> Agreement:
    """The agreement after a process with ``mine`` has joined: its facts, and those of other rails.

    ``mine`` is not weaker than what is agreed, unless it ``replaces`` it. A shorter send deadline is no
    reason to shorten what others count by: their sends may still begin until theirs has passed.
    """
    if agreed is None:
        return mine
    own = {(facts.name, facts.account) for facts in mine.rails}
    others = [facts for facts in agreed.rails if (facts.name, facts.account) not in own]
    rails = tuple(sorted((*others, *mine.rails), key=lambda facts: (facts.name, facts.account)))
    deadline = mine.send_deadline_seconds
    if not replaces:
        deadline = max(deadline, agreed.send_deadline_seconds)
    return Agreement(send_deadline_seconds=deadline, rails=rails)


def settle_seconds(agreed: Agreement | None, mine: Agreement, rail: str, account: str) -> float | None:
    """From the last send until "not found" or a person's "failed" counts, for operations of this rail.

    The longer of what is agreed and what this process is configured with; None if nobody knows the rail.
    """
    known = [
        facts.settle_window_seconds
        for agreement in (agreed, mine)
        if agreement is not None and (facts := agreement.rail(rail, account)) is not None
    ]
    if not known:
        return None
    deadlines = [mine.send_deadline_seconds, agreed.send_deadline_seconds if agreed else 0.0]
    return max(deadlines) + max(known)
