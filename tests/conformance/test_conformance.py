"""Every case of the suite on every store."""

from __future__ import annotations

import pytest

from tests.conformance.places import PLACES, runs
from tests.conformance.suite import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("place", PLACES)
@runs
async def test_conformance(place: str, case: Case, tmp_path) -> None:
    opened = PLACES[place](tmp_path)
    try:
        await case(opened)
    finally:
        await opened.close()
