"""The arithmetic of the windows, case by case: the right rule holds, each wrong one breaks.

Numbers are in steps of four seconds, so that the grain of the store's age is half a step. True time is
what a bystander would measure; of the two clocks that a store reads either one may have jumped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import msgspec
import pytest

from nonbis.core.messages import Moment, Record, State
from nonbis.core.policy import Policy, RailFacts
from nonbis.core.windows import (
    AGE_GRAIN_SECONDS,
    may_resend,
    may_retry,
    may_retry_until_ms,
    may_settle,
    overdue,
    passed,
    settle_after_ms,
    settle_seconds,
    within,
)

STEP = 4
FAR = 1_000
"""A jump that is longer than every window here."""
EPOCH = Moment(10_000_000, 10_000_000)
GRAIN = AGE_GRAIN_SECONDS / STEP
JUMPS = tuple(
    (wall, age)
    for wall, age in product((-FAR, -1, 0, 1, FAR), (-FAR, -GRAIN, 0, GRAIN, FAR))
    if wall == 0 or abs(age) * STEP <= AGE_GRAIN_SECONDS
)
"""How far each clock is off after a while: one of them is right, the age never by more than its grain."""


def read(steps: float, jump: tuple[float, float] = (0, 0)) -> Moment:
    """The store's two clocks at a true time, in steps since EPOCH."""
    wall, age = jump
    return Moment(
        EPOCH.wall_ms + int((steps + wall) * STEP * 1000), EPOCH.age_ms + int((steps + age) * STEP * 1000)
    )


def row(**facts: object) -> Record:
    """A started row whose moments are EPOCH."""
    record = Record(
        digest=b"d" * 16,
        id=1,
        fingerprint=None,
        state=State.IN_DOUBT,
        owner=1,
        stamp=1,
        sends=1,
        open_sends=1,
        created=EPOCH,
        started=EPOCH,
        referenced=EPOCH,
    )
    return msgspec.structs.replace(record, **facts)


def facts(settle_steps: int, dedupes_steps: int | None = None) -> RailFacts:
    """A rail with these windows."""
    dedupes = None if dedupes_steps is None else float(dedupes_steps * STEP)
    return RailFacts(
        name="bank", settle_window_seconds=float(settle_steps * STEP), dedupes_for_seconds=dedupes
    )


def policy(deadline_steps: int) -> Policy:
    """A policy with this send deadline."""
    return Policy(send_deadline_seconds=float(deadline_steps * STEP))


def broken(cases: Iterator[bool]) -> int | None:
    """The number of the first case that is broken, or None if every one holds."""
    count = 0
    for count, bad in enumerate(cases, 1):
        if bad:
            return count
    assert count > 100, "hardly anything was tried"
    return None


# -- passed and within ---------------------------------------------------------------------------------


def test_passed_never_says_so_early() -> None:
    cases = (
        passed(EPOCH, read(true, jump), window * STEP) and true < window
        for true, window, jump in product(range(8), range(1, 7), JUMPS)
    )
    assert broken(cases) is None


def test_within_never_says_so_late() -> None:
    cases = (
        within(EPOCH, read(true, jump), window * STEP) and true >= window
        for true, window, jump in product(range(8), range(1, 7), JUMPS)
    )
    assert broken(cases) is None


def test_both_say_so_in_the_end() -> None:
    """A rule that never opens a window would be safe and useless."""
    assert passed(EPOCH, read(6.5), 6 * STEP)
    assert within(EPOCH, read(5.25), 6 * STEP)
    assert not passed(EPOCH, read(6), 6 * STEP)
    assert not within(EPOCH, read(5.5), 6 * STEP)


def test_the_bounds_are_exact_to_the_millisecond() -> None:
    grain_ms = int(AGE_GRAIN_SECONDS * 1000)
    exact = Moment(EPOCH.wall_ms + 1000, EPOCH.age_ms + 1000 + grain_ms)
    assert passed(EPOCH, exact, 1)
    assert not passed(EPOCH, Moment(exact.wall_ms - 1, exact.age_ms), 1)
    assert not passed(EPOCH, Moment(exact.wall_ms, exact.age_ms - 1), 1)
    last = Moment(EPOCH.wall_ms + 9_999, EPOCH.age_ms + 9_999 - grain_ms)
    assert within(EPOCH, last, 10)
    assert not within(EPOCH, Moment(last.wall_ms + 1, last.age_ms), 10)
    assert not within(EPOCH, Moment(last.wall_ms, last.age_ms + 1), 10)


WRONG_PASSED: dict[str, Callable[[int, int, int], bool]] = {
    "wall clock alone": lambda wall, age, window: wall >= window,
    "age alone": lambda wall, age, window: age >= window + AGE_GRAIN_SECONDS * 1000,
    "either clock": lambda wall, age, window: max(wall, age) >= window,
    "grain forgotten": lambda wall, age, window: wall >= window and age >= window,
}


@pytest.mark.parametrize("name", WRONG_PASSED)
def test_a_wrong_passed_opens_a_window_early(name: str) -> None:
    cases = (
        WRONG_PASSED[name](now.wall_ms - EPOCH.wall_ms, now.age_ms - EPOCH.age_ms, window * STEP * 1000)
        and true < window
        for true, window, jump in product([steps / 2 for steps in range(16)], range(1, 7), JUMPS)
        for now in (read(true, jump),)
    )
    assert broken(cases) is not None


WRONG_WITHIN: dict[str, Callable[[int, int, int], bool]] = {
    "wall clock alone": lambda wall, age, window: wall < window,
    "age alone": lambda wall, age, window: age + AGE_GRAIN_SECONDS * 1000 < window,
    "either clock": lambda wall, age, window: min(wall, age) < window,
    "grain forgotten": lambda wall, age, window: wall < window and age < window,
}


@pytest.mark.parametrize("name", WRONG_WITHIN)
def test_a_wrong_within_keeps_a_window_open(name: str) -> None:
    cases = (
        WRONG_WITHIN[name](now.wall_ms - EPOCH.wall_ms, now.age_ms - EPOCH.age_ms, window * STEP * 1000)
        and true >= window
        for true, window, jump in product([steps / 2 for steps in range(16)], range(1, 7), JUMPS)
        for now in (read(true, jump),)
    )
    assert broken(cases) is not None


# -- settling by "not found" -----------------------------------------------------------------------------

Settles = Callable[[int, int, int, float, float, tuple[float, float]], bool]


def _settling(rule: Settles) -> Iterator[bool]:
    """Is a send settled as failed although its effect happens?

    It begins up to ``deadline`` after the reading before its write, takes up to ``reach`` to its effect
    and up to ``show`` until the rail shows it. The rail is asked at ``asked`` and answers ``wait`` later.
    """
    small = range(3)
    for deadline, reach, show in product((1, 2), small, small):
        for begins, takes, hides in product(range(deadline + 1), range(reach + 1), range(show + 1)):
            for asked, wait, jump in product([half / 2 for half in range(16)], small, JUMPS):
                hidden = asked < begins + takes + hides
                yield hidden and rule(deadline, reach, show, asked, asked + wait, jump)


def _rule(*, use_deadline: bool = True, use_show: bool = True, of_answer: bool = False) -> Settles:
    def rule(
        deadline: int, reach: int, show: int, asked: float, answered: float, jump: tuple[float, float]
    ) -> bool:
        window = facts(reach + (show if use_show else 0))
        seconds = settle_seconds(deadline * STEP if use_deadline else 0.0, window)
        return may_settle(row(), read(answered if of_answer else asked, jump), seconds)

    return rule


def test_settling_is_never_early() -> None:
    assert broken(_settling(_rule())) is None


@pytest.mark.parametrize(
    "wrong",
    [{"use_deadline": False}, {"use_show": False}, {"of_answer": True}],
    ids=["no send deadline", "the rail shows late", "time of the answer, not of the question"],
)
def test_a_wrong_settling_rule_is_early(wrong: dict[str, bool]) -> None:
    assert broken(_settling(_rule(**wrong))) is not None


def test_settling_comes_at_last() -> None:
    assert may_settle(row(), read(3.5), settle_seconds(STEP, facts(2)))
    assert not may_settle(row(started=None), read(FAR), 0.0)
    assert settle_after_ms(row(), settle_seconds(STEP, facts(2))) == EPOCH.wall_ms + 12_000
    assert settle_after_ms(row(started=None), 1.0) is None


# -- resending under the rail's own dedupe window ----------------------------------------------------------

Resends = Callable[[int, int, int, float, tuple[float, float]], bool]


def _resending(rule: Resends) -> Iterator[bool]:
    """Does a resend arrive when the rail may have forgotten the first send?

    The rail remembers a reference for ``dedupes`` after the first arrival. Each send begins up to
    ``deadline`` after its reading and arrives up to ``reach`` later; the resend is written at ``later``.
    """
    for dedupes, deadline, reach in product(range(1, 8), (1, 2), range(3)):
        for begins, takes in product(range(deadline + 1), range(reach + 1)):
            for again, flies in product(range(deadline + 1), range(reach + 1)):
                for later, jump in product(range(8), JUMPS):
                    forgotten = later + again + flies - (begins + takes) >= dedupes
                    yield forgotten and rule(dedupes, deadline, reach, later, jump)


def _right_resend(dedupes: int, deadline: int, reach: int, later: float, jump: tuple[float, float]) -> bool:
    return may_resend(row(), read(later, jump), policy(deadline), facts(reach, dedupes))


def test_a_resend_always_meets_the_rails_memory() -> None:
    assert broken(_resending(_right_resend)) is None


@pytest.mark.parametrize(
    "rule",
    [
        lambda dedupes, deadline, reach, later, jump: within(EPOCH, read(later, jump), dedupes * STEP),
        lambda dedupes, deadline, reach, later, jump: within(
            EPOCH, read(later, jump), (dedupes - deadline) * STEP
        ),
    ],
    ids=["deadline and flight forgotten", "flight forgotten"],
)
def test_a_wrong_resend_rule_comes_too_late(rule: Resends) -> None:
    assert broken(_resending(rule)) is not None


def test_a_resend_in_good_time_is_allowed() -> None:
    assert _right_resend(7, 1, 1, 4, (0, 0))
    assert not _right_resend(2, 1, 1, 0, (0, 0)), "a window that deadline and flight fill is none"


def test_a_resend_needs_a_window_a_reference_and_resends_left() -> None:
    most = Policy(resends_max=2)
    day = RailFacts(name="bank", dedupes_for_seconds=86_400.0)
    assert may_resend(row(sends=2), EPOCH, most, day)
    assert not may_resend(row(sends=3), EPOCH, most, day)
    assert not may_resend(row(referenced=None), EPOCH, most, day)
    assert not may_resend(row(), EPOCH, most, RailFacts(name="bank"))


def test_the_window_is_that_of_the_reference_not_of_the_last_send() -> None:
    late = row(started=read(1_000), referenced=EPOCH)
    assert not may_resend(late, read(1_000), policy(1), facts(1, 100))
    assert may_resend(row(started=EPOCH, referenced=read(990)), read(1_000), policy(1), facts(1, 100))


# -- the deadline of a send ------------------------------------------------------------------------------


def _beginning(*, from_answer: bool) -> Iterator[bool]:
    """Can a send begin so late that it takes effect after its row may be settled?

    The clock is read at 0, the row commits at ``commit`` and bears the reading in ``started``; the
    answer of the commit comes at ``answer``, the gate is reached ``pause`` later.
    """
    small = range(4)
    for deadline, reach, commit, late, pause, takes in product((1, 2), small, small, small, small, small):
        answer = commit + late
        base, begins = (answer if from_answer else 0), answer + pause
        if takes <= reach and begins <= base + deadline:
            seconds = settle_seconds(deadline * STEP, facts(reach))
            yield may_settle(row(), read(begins + takes - 0.5), seconds)


def test_a_deadline_from_before_the_write_is_covered() -> None:
    assert broken(_beginning(from_answer=False)) is None


def test_a_deadline_from_the_answer_is_not_covered() -> None:
    assert broken(_beginning(from_answer=True)) is not None


# -- overdue and retries -------------------------------------------------------------------------------


def test_overdue_is_past_deadline_and_effect_time_out() -> None:
    both = Policy(send_deadline_seconds=8.0, effect_timeout_seconds=12.0)
    assert not overdue(row(), read(5), both)
    assert overdue(row(), read(5.5), both)
    assert not overdue(row(started=None), read(FAR), both)


def test_retries_end_with_time_and_number() -> None:
    few = Policy(retry_within_seconds=20.0, attempts_max=3)
    assert may_retry(row(attempt=2), read(4), few)
    assert not may_retry(row(attempt=3), read(4), few)
    assert not may_retry(row(attempt=4), read(4), few)
    assert not may_retry(row(), read(5), few)
    assert may_retry_until_ms(row(), few) == EPOCH.wall_ms + 20_000
