"""A full disk: nothing is acknowledged that is not there, and the same write goes through afterwards."""

from __future__ import annotations

import json
from pathlib import Path

import apsw

from tests.stores.stands import said_by_child

FULL = """
import asyncio, json, os, resource, signal, sys
from nonbis.errors import StoreError
from tests.conformance.workload import name, new_machine
from tests.stores.stands import sqlite_store
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

def files_may_grow(more):
    largest = max(os.stat(sys.argv[1] + suffix).st_size for suffix in ("", "-wal"))
    limit = resource.RLIM_INFINITY if more is None else largest + more
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

async def main():
    acknowledged, errors = [], []
    async with sqlite_store(sys.argv[1]) as store:
        machine = await new_machine(store)
        files_may_grow(50_000)
        claims = [machine.claim(name(number)) for number in range(100)]
        for claim in claims:
            try:
                [answer] = await store.claim([claim])
            except StoreError as error:
                errors.append(type(error).__name__)
            else:
                assert answer.existing is None
                acknowledged.append(claim.record.id)
        there = [claim.record.id for claim in claims if await store.find(claim.record.digest)]
        files_may_grow(None)
        repeated = [answer.existing is None for answer in await store.claim(claims)]
        print(json.dumps([acknowledged, errors, there, repeated]))
asyncio.run(main())
"""


def test_a_full_disk_acknowledges_nothing_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    acknowledged, errors, there, repeated = json.loads(said_by_child(FULL, path))
    assert 1 <= len(acknowledged) < 100
    assert len(acknowledged) + len(errors) == 100
    assert set(errors) <= {"StoreUnavailable", "AnswerLost"}
    assert set(acknowledged) <= set(there)
    assert repeated == [True] * 100
    connection = apsw.Connection(str(path))
    assert connection.execute("select count(*) from operation").get == 100
    assert connection.execute("pragma integrity_check").get == "ok"
    connection.close()
