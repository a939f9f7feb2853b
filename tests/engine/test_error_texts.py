"""The words of an error go into the journal whatever they hold, and never keep an outcome from it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nonbis.core.messages import State
from nonbis.engine.flights import Standing
from tests.engine.test_on_sqlite import Process, on_file
from tests.simulation.rail import ScriptedRail, raises_after

PATIENCE_SECONDS = 10.0
TEXTS = {"a lone surrogate \udcff": "a lone surrogate \\udcff", "a NUL \0": "a NUL \\0"}


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_an_error_text_that_no_store_can_hold_is_written_in_other_signs(text: str, tmp_path: Path) -> None:
    @on_file
    async def test(path: Path) -> None:
        rail = ScriptedRail()
        rail.script(raises_after(RuntimeError(text)))
        process = await Process.open(path, rail)
        answer = await asyncio.wait_for(process.pay(), PATIENCE_SECONDS)
        assert answer.standing is Standing.IN_DOUBT
        row = await process.row()
        assert row.state is State.IN_DOUBT
        (entry,) = await process.store.journal(row.id)
        assert entry.because == f"RuntimeError: {TEXTS[text]}"
        await process.close()

    test(tmp_path)
