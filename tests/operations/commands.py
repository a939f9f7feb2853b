"""Runs ``nonbis`` commands in this process and as processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from nonbis.operations.cli import main
from tests.operations.prepared import LOST, NO, Bench


class Nonbis:
    """Commands on one store."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: str, width: int = 80, **environment: str) -> Result:
        """Run a command here."""
        given = {"NONBIS_STORE": self.url, "COLUMNS": str(width), **environment}
        return CliRunner().invoke(main, arguments, env=given, prog_name="nonbis")

    def data(self, *arguments: str) -> Any:
        """The JSON that a command prints; it must print nothing else, and succeed."""
        result = self(*arguments, "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        return json.loads(result.stdout)


def process(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NONBIS_")}
    return subprocess.run(
        [sys.executable, "-m", "nonbis", *arguments],
        cwd=folder,
        env={**kept, "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def _prepare(path: Path, settings: dict[str, float]) -> None:
    bench = await Bench.in_file(path)
    first = await bench.engine(**settings)
    await bench.pay(first, "paid", description="rent \x1b[31m", metadata={"month": "May"})
    await bench.pay(first, "declined", NO)
    await bench.pay(first, "unknown", LOST)
    second = await bench.engine(**settings)
    await bench.pay(second, "other", LOST)
    await bench.hang(second, "orphan")
    await bench.close()


def prepare(path: Path, **settings: float) -> Nonbis:
    """A store with two machines that are gone: paid, declined, unknown; other, orphan (never answered)."""
    asyncio.run(_prepare(path, settings))
    return Nonbis(f"sqlite:///{path}")


IDS = {"paid": "1:1", "declined": "1:3", "unknown": "1:5", "other": "2:1", "orphan": "2:3"}
