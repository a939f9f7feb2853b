"""The public names of the package are a list that is changed on purpose."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import nonbis

EXPORTS = ["__version__"]
EXTRAS = {"starlette", "granian", "httpx2", "uvicorn", "aiohttp", "psycopg", "graphql"}


def test_the_export_list() -> None:
    assert sorted(getattr(nonbis, "__all__", ["__version__"])) == sorted(EXPORTS)


@pytest.mark.parametrize("name", EXPORTS)
def test_each_exported_name_is_there(name: str) -> None:
    assert getattr(nonbis, name) is not None


def test_version_is_that_of_the_distribution() -> None:
    metadata = importlib.import_module("importlib.metadata")
    assert metadata.version("nonbis") == nonbis.__version__


def test_importing_the_package_needs_no_extra() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", "import sys, nonbis; print(*sorted(sys.modules))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "nonbis" in printed.split()
    assert EXTRAS & set(printed.split()) == set()
