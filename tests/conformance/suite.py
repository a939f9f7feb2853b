"""ONE suite that every store passes. Each case gets a place and opens as many handles as it needs.

Cases are plain coroutines that assert; ``exercise_store`` runs them all and is also how planted bugs
are caught.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.conformance.places import Place
from tests.conformance.suite_advances import ADVANCE_CASES
from tests.conformance.suite_claims import CLAIM_CASES
from tests.conformance.suite_lists import LIST_CASES
from tests.conformance.suite_machines import MACHINE_CASES

Case = Callable[[Place], Awaitable[None]]
OPERATION_CASES: tuple[Case, ...] = (*CLAIM_CASES, *ADVANCE_CASES)
CASES: tuple[Case, ...] = (*OPERATION_CASES, *MACHINE_CASES, *LIST_CASES)


async def exercise_store(make_place: Callable[[], Place], cases: Sequence[Case] = CASES) -> list[str]:
    """Run the cases, each on a fresh place, and return the names of those that failed."""
    failed = []
    for case in cases:
        place = make_place()
        try:
            await case(place)
        except (Exception, pytest.fail.Exception):
            failed.append(case.__name__)
        finally:
            await place.close()
    return failed
