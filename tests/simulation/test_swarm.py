"""Random trouble by seed: nothing takes effect twice, nobody is told a lie, and all ends well afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.swarm import simulate

LONG = os.environ.get("NONBIS_LONG") == "1"
BLOCKS = 40 if LONG else 4
SEEDS_PER_BLOCK = 500 if LONG else 50
# Seeds that once broke a promise, or the harness; each is run for ever.
KEPT = (69, 253, 1020, 3514)
ROOT = Path(__file__).parents[2]


def run_all(seeds: range | tuple[int, ...]) -> Counter[str]:
    """What was told in all these runs; raises at the first broken promise."""
    counted: Counter[str] = Counter()
    for seed in seeds:
        swarm = simulate(seed)
        counted.update(swarm.told)
        counted["effects"] += len(swarm.rail.effects)
    return counted


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_seed_breaks_a_promise(block: int, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK)
    counted = run_all(seeds)
    with capsys.disabled():
        told = ", ".join(f"{count} {what}" for what, count in sorted(counted.items()))
        print(f"\nseeds {seeds.start} to {seeds.stop - 1}: {told}")
    for what in ("applied", "failed", "in_doubt", "in_progress", "mismatch", "refused", "effects"):
        assert counted[what] > SEEDS_PER_BLOCK / 4, f"hardly any {what}: these runs prove little"


def test_no_seed_that_once_broke_a_promise_breaks_it_again() -> None:
    assert run_all(KEPT)["effects"] > 0


def test_a_seed_repeats_its_run_and_another_seed_does_not() -> None:
    assert simulate(7).fingerprint() == simulate(7).fingerprint()
    assert simulate(7).fingerprint() != simulate(8).fingerprint()


def test_a_seed_repeats_its_run_in_another_process() -> None:
    program = "from tests.simulation.swarm import simulate; print(simulate(11).fingerprint())"
    fingerprints = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert fingerprints == {simulate(11).fingerprint() + "\n"}
