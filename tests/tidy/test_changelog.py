"""CHANGELOG.md keeps one form: versions newest first, under each the kinds of change."""

from __future__ import annotations

import re

import nonbis
from tests.tidy.source import ROOT

KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
VERSION = re.compile(r"## \[(\d+\.\d+\.\d+)\] - \d{4}-\d{2}-\d{2}")


def form_errors(text: str) -> list[str]:
    """Where a change log departs from its form."""
    lines = text.splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    found = [] if lines[:1] == ["# Changelog"] else ["the first line is '# Changelog'"]
    if headings[:1] != ["## [Unreleased]"]:
        found.append("the first section is '## [Unreleased]'")
    found += [f"not a version: {line}" for line in headings[1:] if not VERSION.fullmatch(line)]
    versions = [
        tuple(map(int, match[1].split("."))) for line in headings if (match := VERSION.fullmatch(line))
    ]
    if versions != sorted(versions, reverse=True):
        found.append("the newest version comes first")
    found += [
        f"not a kind of change: {line}" for line in lines if line.startswith("### ") and line[4:] not in KINDS
    ]
    return found + [f"an empty section: {name}" for name in empty_sections(lines)]


def empty_sections(lines: list[str]) -> list[str]:
    """Kinds of change under which nothing is listed."""
    content = [line for line in lines if line.strip()]
    pairs = zip(content, [*content[1:], "# end"], strict=True)
    return [line[4:] for line, after in pairs if line.startswith("### ") and after.startswith("#")]


def test_the_change_log_has_its_form() -> None:
    assert form_errors((ROOT / "CHANGELOG.md").read_text()) == []


def test_a_departure_is_found() -> None:
    assert form_errors("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- One.\n") == []
    assert form_errors("# Changes\n\n## 0.1\n\n### News\n") == [
        "the first line is '# Changelog'",
        "the first section is '## [Unreleased]'",
        "not a kind of change: ### News",
        "an empty section: News",
    ]


def test_a_released_version_is_in_it() -> None:
    """Once the version that the package bears is released it has its section; before, Unreleased does."""
    text = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{nonbis.__version__}]" in text or "### Added" in text.split("## [", 2)[1]
