"""A prepared store for each test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operations.commands import Nonbis, prepare


@pytest.fixture
def nonbis(tmp_path: Path) -> Nonbis:
    """Commands on a store of their own."""
    return prepare(tmp_path / "prepared.db")
