"""Each mistake of the protocol's review, planted in the table or around it, is caught by the model."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from nonbis.core import machine
from nonbis.core.machine import TRANSITIONS
from tests.model.cases import Planted
from tests.model.planted_cases import PLANTED, REMAINING
from tests.model.plants import TABLES, planted
from tests.model.running import run

Recorder = Callable[[str, object], None]


def _label(case: Planted) -> str:
    return f"{case.name}: {'|'.join(case.shows)}"


@pytest.mark.parametrize("case", PLANTED, ids=_label)
def test_a_planted_mistake_is_caught(case: Planted, record_property: Recorder) -> None:
    found, _ = run(case.setup, table=case.table, shows=case.shows, seconds_max=30)
    assert found.why.startswith(case.shows), found.why or "nothing was found"
    assert len(found.trace) > 0
    record_property("model planted", f"{case.name}: {len(found.trace)} steps, {found.summary()}")
    print(case.name, *found.trace, sep="\n    ")
    _holds_without_the_mistake(case, found.states)


def _holds_without_the_mistake(case: Planted, states: int) -> None:
    """The search must be sharp, not merely suspicious: the true table passes where the altered one fails."""
    honest = msgspec.structs.replace(case.setup, mistakes=frozenset())
    found, _ = run(honest, shows=case.shows, states_max=states + 1_000, seconds_max=30)
    assert found.why == "", found.trace


@pytest.mark.parametrize("case", REMAINING, ids=lambda case: case.name)
def test_what_stays_possible_is_found(case: Planted, record_property: Recorder) -> None:
    """The guarantees name these breaks; were one not found, the model would be blind to its kind."""
    found, _ = run(case.setup, shows=case.shows, seconds_max=30)
    assert found.why.startswith(case.shows)
    assert len(found.trace) > 0
    record_property("model remaining", f"{case.name}: {len(found.trace)} steps, {found.summary()}")


def test_every_altered_table_is_tried() -> None:
    assert set(TABLES) == {case.table for case in PLANTED if case.table}


def test_a_planted_table_is_taken_out_again() -> None:
    before = machine._INDEX
    with planted(TABLES["time-out is failed"]):
        assert before != machine._INDEX
    assert before is machine._INDEX
    assert machine._index(TRANSITIONS).keys() == before.keys()
