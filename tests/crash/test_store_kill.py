"""Processes that race, and processes that are killed, on one SQLite file.

``NONBIS_LONG=1`` runs 200 kills and 10,000 contested names.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from pathlib import Path

import apsw

from tests.conformance.places import runs
from tests.conformance.workload import name, new_machine
from tests.stores.stands import in_child, opened, sqlite_store

LONG = bool(os.environ.get("NONBIS_LONG"))
NAMES = 10_000 if LONG else 1_000
KILLS = 200 if LONG else 20

CLAIMER = """
import asyncio, random, sys
from tests.conformance.workload import name, new_machine
from tests.stores.stands import sqlite_store
async def main(path, names, seed):
    async with sqlite_store(path) as store:
        machine = await new_machine(store)
        numbers = list(range(names))
        random.Random(seed).shuffle(numbers)
        print("ready", flush=True)
        sys.stdin.readline()
        won = []
        async def caller(mine):
            for number in mine:
                [answer] = await store.claim([machine.claim(name(number))])
                if answer.existing is None:
                    won.append(number)
        await asyncio.gather(*(caller(numbers[start::16]) for start in range(16)))
        print(*won)
asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


def race(code: str, path: Path, names: int) -> list[int]:
    """Two processes claim the same names at once; all that either believes to have won."""
    claimers: list[subprocess.Popen[str]] = [in_child(code, path, names, seed) for seed in (1, 2)]
    for claimer in claimers:
        assert claimer.stdout is not None
        assert claimer.stdout.readline() == "ready\n"
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.write("go\n")
        claimer.stdin.flush()
    said = [claimer.communicate(timeout=110)[0] for claimer in claimers]
    assert [claimer.returncode for claimer in claimers] == [0, 0]
    assert all(said)
    return [int(number) for text in said for number in text.split()]


def test_two_processes_claim_the_same_names(tmp_path: Path) -> None:
    asyncio.run(_make(tmp_path / "s.db"))
    won = race(CLAIMER, tmp_path / "s.db", NAMES)
    assert sorted(won) == list(range(NAMES))


async def _make(path: Path) -> None:
    await (await opened(path)).close()


STREAM = """
import asyncio, sys
from tests.conformance.workload import name, new_machine
from tests.stores.stands import sqlite_store
from nonbis.core.messages import Kind
async def main(path, first):
    async with sqlite_store(path) as store:
        machine = await new_machine(store)
        async def caller(start):
            number = first + start
            while True:
                claim = machine.claim(name(number))
                [answer] = await store.claim([claim])
                print("claimed", number, claim.record.id, claim.record.stamp, flush=True)
                finish = machine.advance(claim.record, Kind.REPORT_APPLIED, outcome=b"o" * 100)
                [answer] = await store.advance([finish])
                print("finished", number, claim.record.id, finish.record.stamp, flush=True)
                number += 8
        await asyncio.gather(*(caller(start) for start in range(8)))
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def _killed_stream(path: Path, first: int, lines: int) -> dict[int, int]:
    """The stamp of each row that a process acknowledged before it was killed in the middle."""
    child = in_child(STREAM, path, first)
    assert child.stdout is not None
    with child:
        said = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        said += child.stdout.readlines()
    complete = [line for line in said if line.endswith("\n")]
    acknowledged: dict[int, int] = {}
    for line in complete:
        _, _, number, stamp = line.split()
        acknowledged[int(number)] = int(stamp)
    return acknowledged


@runs
async def test_what_a_killed_process_acknowledged_is_there(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await _make(path)
    chance = random.Random(7)
    acknowledged: dict[int, int] = {}
    for cycle in range(KILLS):
        lines = chance.randint(1, 120)
        before = len(acknowledged)
        acknowledged |= await asyncio.to_thread(_killed_stream, path, cycle * 1_000_000, lines)
        assert len(acknowledged) > before
        async with sqlite_store(path) as store:
            assert [row.id for row in await store.vanished()] == [cycle + 1]
            for row in await store.vanished():
                assert await store.lose(row.id, row.beat, at_ms=1)
    async with sqlite_store(path) as store:
        await new_machine(store)
        assert (await store.doctor())["check"] == "ok"
        assert await store.find(name(0)) is not None
    connection = apsw.Connection(str(path))
    found = dict(connection.execute("select id, stamp from operation").fetchall())
    integrity = connection.execute("pragma integrity_check").get
    sides = connection.execute(
        "select count(*) from operation left join request using (id) left join outcome using (id)"
        " where request.id is null or (state = 'applied') <> (outcome is not null)"
    ).get
    connection.close()
    assert integrity == "ok"
    assert sides == 0
    # A finish that was committed but not acknowledged has moved the row on; never back.
    missing = {number for number, stamp in acknowledged.items() if found.get(number, 0) < stamp}
    assert missing == set()
