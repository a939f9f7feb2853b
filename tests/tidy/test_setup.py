"""The set-up that `make` does: the lock is whole and says nothing about where packages come from."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib

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


def dry_run(target: str, *settings: str) -> str:
    """The commands that make would run for a target, all set-up included."""
    return subprocess.run(
        ["make", "--dry-run", "--always-make", target, *settings],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_serve_and_test_do_their_own_set_up() -> None:
    for target, last in (("serve", "nonbis serve"), ("test", "pytest")):
        commands = dry_run(target)
        assert commands.index("--require-hashes") < commands.index(last)


def test_the_environment_is_renewed_with_the_lock() -> None:
    text = (ROOT / "Makefile").read_text()
    assert "$(READY): requirements.lock pyproject.toml" in text


def test_an_old_python_is_told_in_one_line(tmp_path) -> None:
    old = tmp_path / "old"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n')
    old.chmod(0o755)
    run = subprocess.run(
        ["make", "--always-make", "install", f"PYTHON={old}"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode != 0
    assert "needs Python 3.11 or newer, but this is: Python 3.9.2" in run.stdout
