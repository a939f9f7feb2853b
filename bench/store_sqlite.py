"""Claims and advances per second of the SQLite store, by batch size, on this machine's disk.

    python bench/store_sqlite.py [--rows 20000] [--folder DIR]

``batch``: one call hands in that many rows. ``callers``: that many tasks hand in one row each, claim,
then finish; the store groups them. Each operation is one durable claim and one durable advance. The
CPU includes the making of the records.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.core.ids import pack_id
from nonbis.core.machine import decide
from nonbis.core.messages import Event, Kind, Moment
from nonbis.ports import Advance, Claim, Verdict
from nonbis.stores.sqlite import SqliteStore

REQUEST = b'{"amount":1250,"currency":"USD","destination":"NL91ABNA0417164300"}'
OUTCOME = os.urandom(240)


class Workload:
    """Fresh claims of one machine and the advances that finish them."""

    def __init__(self, machine: int) -> None:
        self.machine = machine
        self.sequence = 0

    def stamp(self) -> int:
        self.sequence += 1
        return pack_id(self.machine, self.sequence)

    def claim(self) -> Claim:
        event = Event(
            kind=Kind.CLAIM,
            me=self.machine,
            stamp=self.stamp(),
            now=Moment(time.time_ns() // 1_000_000, 1000),
            digest=os.urandom(16),
            fingerprint=os.urandom(16),
            rail="simulated",
            account="main",
        )
        record = decide(None, event).record
        assert record is not None
        return Claim(record=record, tenant="default", scope="payments", request=REQUEST)

    def finish(self, claim: Claim) -> Advance:
        now = Moment(time.time_ns() // 1_000_000, 1000)
        event = Event(
            kind=Kind.REPORT_APPLIED, me=self.machine, stamp=self.stamp(), now=now, attempt=1, send=1
        )
        record = decide(claim.record, event).record
        assert record is not None
        return Advance(record=record, expected=claim.record.stamp, outcome=OUTCOME)


async def by_batch(store: SqliteStore, work: Workload, rows: int, size: int) -> float:
    """Operations per second with one caller that hands in ``size`` rows at a time."""
    batches = []
    for _ in range(max(1, rows // size)):
        claims = [work.claim() for _ in range(size)]
        batches.append((claims, [work.finish(claim) for claim in claims]))
    begun = time.perf_counter()
    for claims, advances in batches:
        assert all(answer.existing is None for answer in await store.claim(claims))
        assert all(answer.verdict is Verdict.WON for answer in await store.advance(advances))
    return len(batches) * size / (time.perf_counter() - begun)


async def by_callers(store: SqliteStore, work: Workload, rows: int, callers: int) -> float:
    """Operations per second with ``callers`` tasks that hand in one row at a time."""
    each = max(1, rows // callers)

    async def caller() -> None:
        for _ in range(each):
            claim = work.claim()
            await store.claim([claim])
            [answer] = await store.advance([work.finish(claim)])
            assert answer.verdict is Verdict.WON

    begun = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return callers * each / (time.perf_counter() - begun)


async def measure(folder: str, rows: int) -> None:
    store = await SqliteStore.open(Path(folder, "bench.db"), clock=SystemClock(), entropy=SystemEntropy())
    machine = await store.register(node="bench", pid=os.getpid(), kind="bench", at_ms=0)
    work = Workload(machine.id)
    for name, run in (("batch", by_batch), ("callers", by_callers)):
        for size in (1, 64, 512):
            count = rows if size > 1 else rows // 20
            cpu = time.process_time()
            rates = [await run(store, work, count, size) for _ in range(3)]
            cpu = (time.process_time() - cpu) / (3 * count) * 1e6
            rate = statistics.median(rates)
            print(f"{name:8} {size:4}: {rate:9,.0f} operations/s, {cpu:6.1f} us of CPU each", flush=True)
    await store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--folder", help="where the file is made (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        asyncio.run(measure(folder, options.rows))


if __name__ == "__main__":
    main()
