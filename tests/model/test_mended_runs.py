"""The true table keeps every promise in every state that the budgets allow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nonbis.core.machine import TRANSITIONS, Transition
from nonbis.core.messages import JournalKind, State
from tests.model.cases import Mended
from tests.model.mended_cases import LARGE, SMALL
from tests.model.running import run
from tests.model.world import Budget, Setup

Recorder = Callable[[str, object], None]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_small_run_holds(case: Mended, record_property: Recorder) -> None:
    found, _ = run(case.setup, shows=case.shows)
    record_property("model", f"{found.summary()}  {case.name}")
    assert found.why == "", "\n".join((found.why, *found.trace))
    assert found.complete


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", LARGE, ids=lambda case: case.name)
def test_large_run_holds(case: Mended, record_property: Recorder) -> None:
    found, _ = run(case.setup, shows=case.shows, states_max=case.states_max, seconds_max=case.seconds_max)
    record_property("model", f"{found.summary()}  {case.name}")
    assert found.why == "", "\n".join((found.why, *found.trace))


def test_a_quiet_name_was_reached() -> None:
    """A search in which nothing ever comes to rest would make every liveness check idle."""
    found, _ = run(Setup(budget=Budget(calls=1)))
    assert found.complete
    assert found.quiet > 0


def _beyond_the_model(transition: Transition) -> bool:
    """Recovery fences, receipts and piled-up contradictions are held by the tests of the table alone."""
    return (
        "fenced" in transition.guards
        or "receipt differs" in transition.guards
        or "contradicted" in transition.guards
        or transition.journal is JournalKind.CONTRADICTED
    )


def test_the_runs_use_the_whole_table() -> None:
    used: set[tuple[str, str]] = set()
    for case in SMALL:
        _, world = run(case.setup, shows=case.shows, states_max=12_000)
        used |= world.used
    idle = [
        f"{source}: {transition.rule}"
        for transition in TRANSITIONS
        for source in transition.sources
        if (source, transition.rule) not in used and not _beyond_the_model(transition)
    ]
    assert idle == []


def test_a_bounded_search_says_so() -> None:
    found, _ = run(SMALL[0].setup, states_max=1_000)
    assert not found.complete
    assert found.states > 1_000
    assert "within the bound" in found.summary()


def test_the_search_stops_in_time() -> None:
    found, _ = run(SMALL[0].setup, seconds_max=0.0)
    assert not found.complete


def test_states_are_those_of_the_core() -> None:
    """The model would be blind to a new state: it must be taught first."""
    assert {state.value for state in State} == {"accepted", "started", "in_doubt", "applied", "failed"}
