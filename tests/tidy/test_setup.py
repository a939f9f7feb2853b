"""The set-up that `make` does: the lock is whole and says nothing about where packages come from."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.tidy.source import ROOT


def plain(requirement: str) -> str:
    """The name of a requirement as the lock spells it."""
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0].lower().replace("_", "-").replace(".", "-")


def wanted() -> set[str]:
    """Every package that pyproject.toml asks for, extras included."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = settings["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    groups.append(settings["build-system"]["requires"])
    return {plain(one) for group in groups for one in group} - {"nonbis"}


def locked(text: str) -> dict[str, int]:
    """Package -> how many hashes the lock has for it."""
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if match := re.match(r"([A-Za-z0-9._-]+)==", line):
            name = match[1]
            found[name] = 0
        found[name] += line.count("--hash=sha256:")
    return found


def test_the_lock_has_every_dependency() -> None:
    assert wanted() - set(locked((ROOT / "requirements.lock").read_text())) == set()


def test_every_locked_package_has_a_hash() -> None:
    packages = locked((ROOT / "requirements.lock").read_text())
    assert len(packages) > 20
    assert [name for name, hashes in packages.items() if hashes == 0] == []


def test_the_lock_names_no_place() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert re.findall(r"https?://\S+|--index-url.*|--find-links.*|file:\S+", text) == []


def test_continuous_integration_runs_the_same_as_a_person() -> None:
    script = ROOT / ".ci" / "run"
    text = script.read_text()
    assert os.access(script, os.X_OK)
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in text
    assert "make test" in text
    subprocess.run(["bash", "-n", str(script)], check=True)


def make(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """A make of its own, whatever the make that runs these tests was told."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=kept, check=False, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("target", "last"), [("serve", "nonbis serve"), ("test", "pytest"), ("lint", "mypy")]
)
def test_each_target_does_its_own_set_up(target: str, last: str) -> None:
    commands = make("--dry-run", "--always-make", target).stdout
    assert commands.index("-m venv") < commands.index("--require-hashes") < commands.index(last)


def test_the_environment_is_renewed_with_the_lock(tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    ready = tmp_path / ".venv" / ".ready"
    ready.parent.mkdir()
    ready.touch()
    assert make("--question", "install", folder=tmp_path).returncode == 0
    later = ready.stat().st_mtime + 10
    os.utime(tmp_path / "requirements.lock", (later, later))
    assert make("--question", "install", folder=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 1", "Nonbis needs Python 3.11 or newer, but this is: Python 3.9.2"),
        ('case "$2" in *ensurepip*) exit 1 ;; esac', "apt-get install python3-venv"),
    ],
)
def test_an_unfit_python_is_told_in_one_line(script: str, told: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    unfit = tmp_path / "unfit"
    unfit.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\n{script}\nexit 0\n')
    unfit.chmod(0o755)
    run = make("install", f"PYTHON={unfit}", folder=tmp_path)
    assert run.returncode != 0
    assert told in run.stdout
    assert len(run.stdout.splitlines()) == 1
    assert not (tmp_path / ".venv").exists()
