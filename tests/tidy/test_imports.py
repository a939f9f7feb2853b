"""The import rule of pyproject.toml: each contract is broken by a planted import, each room is in one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tidy.source import PACKAGE, ROOT

# (module, the import that it must not have); together they break every contract.
PLANTED = (
    ("core/ids.py", "import time"),
    ("core/names.py", "import nonbis.errors"),
    ("ports.py", "import nonbis.engine"),
    ("stores/__init__.py", "import nonbis.rails"),
    ("rails/__init__.py", "import nonbis.upkeep"),
    ("engine/__init__.py", "import nonbis.stores"),
    ("upkeep/__init__.py", "import nonbis.opening"),
    ("opening.py", "import nonbis.faces"),
    ("faces/__init__.py", "import nonbis.operations"),
    ("client/__init__.py", "import nonbis.ports"),
    ("bank/__init__.py", "import nonbis.core"),
)


def contracts() -> list[dict[str, object]]:
    """The contracts as pyproject.toml has them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, object]] = settings["tool"]["importlinter"]["contracts"]
    return found


def lint_copy(folder: Path, planted: tuple[tuple[str, str], ...]) -> str:
    """The report of import-linter over a copy of the package with these imports added."""
    shutil.copytree(PACKAGE, folder / "nonbis", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, line in planted:
        with (folder / "nonbis" / name).open("a") as file:
            file.write(f"\n{line}\n")
    run = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-logo", "--no-cache"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == (1 if planted else 0), run.stdout + run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    return lint_copy(tmp_path_factory.mktemp("planted"), PLANTED)


def test_the_package_keeps_every_contract(tmp_path: Path) -> None:
    assert f"Contracts: {len(contracts())} kept, 0 broken." in lint_copy(tmp_path, ())


@pytest.mark.parametrize("name", [str(contract["name"]) for contract in contracts()])
def test_the_contract_can_be_broken(name: str, report: str) -> None:
    assert f"{name} BROKEN" in " ".join(report.split())


def test_every_room_stands_in_a_contract() -> None:
    rooms = {f"nonbis.{path.stem}" for path in PACKAGE.iterdir() if is_room(path)}
    placed = {source for contract in contracts() for source in sources(contract)}
    assert rooms - placed == {"nonbis.operations"}


def is_room(path: Path) -> bool:
    """A module or package directly below the package."""
    package = path.is_dir() and (path / "__init__.py").exists()
    return package or (path.suffix == ".py" and not path.stem.startswith("__"))


def sources(contract: dict[str, object]) -> list[str]:
    """The modules whose imports a contract judges."""
    listed = contract.get("source_modules", [])
    assert isinstance(listed, list)
    return listed
