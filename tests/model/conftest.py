"""Figures of the model's runs at the end of a test run, and the large runs only when asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FIGURES = "model"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the large runs out unless NONBIS_LONG=1."""
    if os.environ.get("NONBIS_LONG") == "1":
        return
    large = [item for item in items if item.path.parent == HERE and item.get_closest_marker("long")]
    if large:
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """States, depth and verdict of every run."""
    lines = [
        f"{name}: {figures}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, figures in getattr(report, "user_properties", ())
        if name.startswith(FIGURES)
    ]
    if lines:
        terminalreporter.section("protocol model: states, edges, depth, processor seconds")
        for line in lines:
            terminalreporter.write_line(line.removeprefix(FIGURES).strip(": "))
