"""A prepared store for each test that asks for one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.operations.commands import Nonbis, prepare


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a prepared store that nobody has open: it is copied, never used."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder / "prepared.db")
    return folder


@pytest.fixture
def nonbis(prepared: Path, tmp_path: Path) -> Nonbis:
    """Commands on a store of their own."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return Nonbis(f"sqlite:///{tmp_path}/prepared.db")
