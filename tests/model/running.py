"""Carry out one run and keep its figures."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from tests.model.explorer import Explored, Explorer
from tests.model.plants import TABLES, planted
from tests.model.promises import stuck, violations
from tests.model.surroundings import successors
from tests.model.world import Setup, Situation, World


@contextmanager
def _without_collector() -> Iterator[None]:
    """States hold no cycles, and looking for some in millions of them costs more than the search."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def run(
    setup: Setup,
    *,
    table: str = "",
    shows: tuple[str, ...] = ("",),
    states_max: int = 5_000_000,
    seconds_max: float = 3_600.0,
) -> tuple[Explored, World]:
    """Explore a setup, by an altered table if one is named.

    Only violations that begin with one of ``shows`` end the search: a mistake may break several
    promises, and the shortest trace to each is of interest.
    """
    world = World(setup)

    def wrong(state: Situation) -> str:
        return next((why for why in violations(world, state) if why.startswith(shows)), "")

    def wedged(state: Situation) -> str:
        why = stuck(world, state)
        return why if why.startswith(shows) else ""

    explorer = Explorer(
        lambda state: successors(world, state),
        wrong,
        wedged,
        states_max=states_max,
        seconds_max=seconds_max,
    )
    with _without_collector(), planted(TABLES[table]) if table else nullcontext():
        return explorer.explore(world.initial()), world
