"""docs/states.md says what the table says, in words for everything that the table names."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nonbis.core.conditions import GUARDS
from nonbis.core.machine import SITUATIONS, TRANSITIONS
from nonbis.core.messages import Kind

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(name="generator")
def _generator() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("generate_states", DOCS / "generate_states.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_table_says() -> None:
    command = [sys.executable, str(DOCS / "generate_states.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_everything_has_words(generator: ModuleType) -> None:
    assert generator.MEANINGS.keys() == set(SITUATIONS)
    assert generator.EVENTS.keys() == set(Kind)
    assert generator.CONDITIONS.keys() == GUARDS.keys()


def test_every_transition_has_a_row(generator: ModuleType) -> None:
    rows = generator.page().partition("## Every transition")[2].partition("## The events")[0]
    assert rows.count("\n| ") == len(TRANSITIONS) + 1


def test_every_state_stands_in_the_picture(generator: ModuleType) -> None:
    picture = generator.page().partition("```mermaid")[2].partition("```")[0]
    nodes = set(re.findall(r"(\S+) --> ", picture)) | set(re.findall(r"--> (\S+)", picture))
    assert nodes == {generator._node(name) for name in SITUATIONS}


def test_a_change_of_the_table_is_noticed(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generator, "TRANSITIONS", TRANSITIONS[:-1])
    assert generator.main(["--check"]) == 1
    assert "python docs/generate_states.py" in capsys.readouterr().err


def test_the_page_is_written_where_it_is_asked_for(
    generator: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(generator, "PAGE", tmp_path / "states.md")
    assert generator.main([]) == 0
    assert generator.main(["--check"]) == 0
    assert generator.main(["--nonsense"]) == 2
