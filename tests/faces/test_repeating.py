"""Warnings that come with every request: the first at once, then one each 30 seconds with a count."""

from __future__ import annotations

import logging

import pytest

from nonbis.faces.repeating import EVERY_SECONDS, RepeatingWarning


def test_the_first_is_told_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = [1000.0]
    warning = RepeatingWarning(logging.getLogger("nonbis.test"), lambda: now[0])
    for _ in range(5):
        warning.warn("the bank is away")
    assert caplog.messages == ["the bank is away"]
    now[0] += EVERY_SECONDS - 0.001
    warning.warn("the bank is away")
    assert len(caplog.messages) == 1
    now[0] += 0.001
    warning.warn("the bank is still away")
    assert caplog.messages[1:] == ["the bank is still away (and 5 more like it since)"]
    now[0] += EVERY_SECONDS
    warning.warn("the bank is away again")
    assert caplog.messages[2:] == ["the bank is away again"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
