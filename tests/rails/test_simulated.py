from __future__ import annotations

import asyncio
import fcntl
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nonbis.core.payments import Transfer, timestamp
from nonbis.core.policy import RailFacts
from nonbis.errors import Declined, NotSent, OutcomeUnknown
from nonbis.ports import Found, FoundKind
from nonbis.rails.simulated import (
    Fault,
    FaultKind,
    FileLedger,
    Hold,
    MemoryLedger,
    SimulatedFault,
    SimulatedRail,
)
from nonbis.rails.simulated_ledger import LedgerDamaged
from tests.rails.gates import COFFEE, CountingGate


def run(test):
    @functools.wraps(test)
    def wrapped(*arguments, **named):
        asyncio.run(test(*arguments, **named))

    return wrapped


@pytest.fixture(params=["file", "memory"])
def ledger(request, tmp_path):
    made = FileLedger(tmp_path / "ledger.jsonl") if request.param == "file" else MemoryLedger()
    yield made
    asyncio.run(made.close())


def suspensions(coroutine):
    """Steps that a coroutine takes before it ends, driven by hand."""
    steps = 0
    try:
        while True:
            coroutine.send(None)
            steps += 1
    except StopIteration:
        return steps


@run
async def test_a_transfer_is_made_once_and_its_receipt_repeats_it(ledger):
    rail = SimulatedRail(ledger)
    gate = CountingGate()
    receipt = await rail.send(COFFEE, "r1", gate)
    assert (receipt.reference, receipt.amount, receipt.currency, receipt.destination) == (
        "r1",
        350,
        "EUR",
        "roastery",
    )
    assert receipt.contradicts(COFFEE) is None
    assert gate.calls == 1
    assert await rail.find("r1") == Found(FoundKind.APPLIED, receipt)
    assert await rail.find("r2") == Found(FoundKind.NOT_FOUND)


@pytest.mark.parametrize("at_ms", [0, 999, 1_700_000_000_007, 1_700_000_059_999])
def test_a_receipt_tells_when(at_ms):
    rail = SimulatedRail(MemoryLedger(), clock=lambda: at_ms)
    receipt = asyncio.run(rail.send(COFFEE, "r1", CountingGate()))
    assert receipt.at == timestamp(at_ms)


@run
async def test_a_repeated_reference_makes_no_second_transfer_and_tells_the_first(ledger):
    rail = SimulatedRail(ledger)
    first = await rail.send(COFFEE, "r1", CountingGate())
    other = Transfer(amount=1, currency="EUR", destination="elsewhere")
    again = await rail.send(other, "r1", CountingGate())
    assert again == first
    assert again.contradicts(other) == "amount"
    assert await rail.transfers() == [first]


@run
async def test_fifty_sends_at_once_of_one_reference_are_one_transfer(ledger):
    rail = SimulatedRail(ledger)
    receipts = await asyncio.gather(*(rail.send(COFFEE, "r1", CountingGate()) for _ in range(50)))
    assert len(set(receipts)) == 1
    assert len(await rail.transfers()) == 1


@run
async def test_a_rail_that_does_not_dedupe_makes_each_transfer(ledger):
    rail = SimulatedRail(ledger, facts=RailFacts(name="weak"))
    for _ in range(3):
        await rail.send(COFFEE, "r1", CountingGate())
    assert len(await rail.transfers()) == 3
    with pytest.raises(OutcomeUnknown):
        await rail.find("r1")


@run
async def test_a_shut_gate_means_no_transfer(ledger):
    rail = SimulatedRail(ledger)
    with pytest.raises(NotSent):
        await rail.send(COFFEE, "r1", CountingGate(shut=True))
    assert await rail.transfers() == []


@run
async def test_a_transfer_that_arrives_after_its_deadline_is_not_made(ledger):
    rail = SimulatedRail(ledger)
    with pytest.raises(NotSent, match="deadline"):
        await rail.send(COFFEE, "r1", CountingGate(seconds_left=-1))
    assert await rail.transfers() == []
    deaf = SimulatedRail(ledger, facts=RailFacts(name="deaf"))
    await deaf.send(COFFEE, "r1", CountingGate(seconds_left=-1))
    assert len(await deaf.transfers()) == 1


@run
async def test_an_earlier_transfer_is_told_even_after_the_deadline(ledger):
    rail = SimulatedRail(ledger)
    first = await rail.send(COFFEE, "r1", CountingGate())
    assert await rail.send(COFFEE, "r1", CountingGate(seconds_left=-1)) == first


@pytest.mark.parametrize(
    ("kind", "error", "transfers"),
    [
        (FaultKind.DECLINE, Declined, 0),
        (FaultKind.NOT_SENT, NotSent, 0),
        (FaultKind.LOSE_ANSWER, OutcomeUnknown, 1),
        (FaultKind.RAISE_AFTER, SimulatedFault, 1),
    ],
)
def test_each_fault_has_its_effect_and_its_error(ledger, kind, error, transfers):
    async def scenario():
        rail = SimulatedRail(ledger)
        rail.plan(kind)
        gate = CountingGate()
        with pytest.raises(error) as caught:
            await rail.send(COFFEE, "r1", gate)
        assert type(caught.value) is error
        assert gate.calls == (0 if kind is FaultKind.NOT_SENT else 1)
        assert len(await rail.transfers()) == transfers
        await rail.send(COFFEE, "r2", CountingGate())
        assert len(await rail.transfers()) == transfers + 1, "a fault strikes one send only"

    asyncio.run(scenario())


@run
async def test_a_bound_refusal_holds_for_its_reference_only(ledger):
    rail = SimulatedRail(ledger)
    rail.plan(FaultKind.DECLINE)
    for _ in range(2):
        with pytest.raises(Declined):
            await rail.send(COFFEE, "r1", CountingGate())
    assert await rail.find("r1") == Found(FoundKind.REFUSED)
    await rail.send(COFFEE, "r1-2", CountingGate())
    assert [receipt.reference for receipt in await rail.transfers()] == ["r1-2"]


@run
async def test_a_refusal_that_does_not_bind_is_forgotten(ledger):
    rail = SimulatedRail(ledger, facts=RailFacts(name="loose", dedupes_for_seconds=86_400.0, finds=True))
    rail.plan(FaultKind.DECLINE)
    with pytest.raises(Declined):
        await rail.send(COFFEE, "r1", CountingGate())
    assert await rail.find("r1") == Found(FoundKind.NOT_FOUND)
    assert (await rail.send(COFFEE, "r1", CountingGate())).reference == "r1"


@run
async def test_a_refusal_never_hides_a_transfer_that_was_made(ledger):
    rail = SimulatedRail(ledger)
    first = await rail.send(COFFEE, "r1", CountingGate())
    rail.plan(FaultKind.DECLINE)
    assert await rail.send(COFFEE, "r1", CountingGate()) == first


@run
async def test_a_send_can_be_held_at_each_point(ledger):
    rail = SimulatedRail(ledger)
    holds = Hold(), Hold(), Hold()
    rail.plan(Fault(before_gate=holds[0], before_effect=holds[1], before_answer=holds[2]))
    gate = CountingGate()
    send = asyncio.create_task(rail.send(COFFEE, "r1", gate))
    seen = []
    for hold in holds:
        await hold.reached.wait()
        seen.append((gate.calls, len(await rail.transfers())))
        hold.release()
    assert seen == [(0, 0), (1, 0), (1, 1)]
    assert (await send).reference == "r1"


def test_the_ledger_in_memory_answers_without_suspending():
    rail = SimulatedRail(MemoryLedger())
    assert suspensions(rail.send(COFFEE, "r1", CountingGate())) == 0
    assert suspensions(rail.find("r1")) == 0


def test_another_ledger_is_another_account(tmp_path):
    first, second = FileLedger(tmp_path / "a"), FileLedger(tmp_path / "b")
    again = FileLedger(tmp_path / "a")
    accounts = [SimulatedRail(each).facts.account for each in (first, second, again, MemoryLedger())]
    assert len(set(accounts)) == 3
    assert accounts[0] == accounts[2]
    for each in (first, second, again):
        asyncio.run(each.close())


# -- the file ----------------------------------------------------------------------------------------------


@run
async def test_a_new_process_remembers_transfers_and_refusals(tmp_path):
    before = SimulatedRail(FileLedger(tmp_path / "ledger.jsonl"))
    first = await before.send(COFFEE, "r1", CountingGate())
    before.plan(FaultKind.DECLINE)
    with pytest.raises(Declined):
        await before.send(COFFEE, "r2", CountingGate())
    await before.close()
    after = SimulatedRail(FileLedger(tmp_path / "ledger.jsonl"))
    assert await after.send(COFFEE, "r1", CountingGate()) == first
    assert await after.find("r2") == Found(FoundKind.REFUSED)
    assert await after.transfers() == [first]
    await after.close()


@run
async def test_two_ledger_objects_on_one_file_are_one_ledger(tmp_path):
    rails = [SimulatedRail(FileLedger(tmp_path / "ledger.jsonl")) for _ in range(2)]
    receipts = await asyncio.gather(
        *(rail.send(COFFEE, f"r{number}", CountingGate()) for number in range(20) for rail in rails)
    )
    assert len(set(receipts)) == 20
    for rail in rails:
        assert len(await rail.transfers()) == 20
        await rail.close()


@run
async def test_who_decides_waits_for_another_process_that_is_about_to_write(tmp_path):
    path = tmp_path / "ledger.jsonl"
    rail = SimulatedRail(FileLedger(path))
    other = FileLedger(tmp_path / "other.jsonl")
    await SimulatedRail(other).send(Transfer(amount=1, currency="EUR", destination="a"), "r1", CountingGate())
    await other.close()
    line = (tmp_path / "other.jsonl").read_bytes().splitlines(keepends=True)[1]
    with path.open("ab", buffering=0) as foreign:
        fcntl.flock(foreign, fcntl.LOCK_EX)
        send = asyncio.create_task(rail.send(COFFEE, "r1", CountingGate()))
        done, _ = await asyncio.wait([send], timeout=0.2)
        assert not done
        foreign.write(line)
        fcntl.flock(foreign, fcntl.LOCK_UN)
        assert (await send).amount == 1
    assert len(await rail.transfers()) == 1
    await rail.close()


_CHILD = """
import asyncio, os, signal, sys
sys.path[:0] = sys.argv[2:]
from nonbis.rails.simulated import FileLedger, SimulatedRail
from tests.rails.gates import COFFEE, CountingGate

async def main():
    rail = SimulatedRail(FileLedger(sys.argv[1]))
    await rail.send(COFFEE, "r1", CountingGate())
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@run
async def test_a_killed_process_leaves_its_transfer_behind(tmp_path):
    path = tmp_path / "ledger.jsonl"
    root = Path(__file__).parents[2]
    child = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path), str(root / "src"), str(root)], check=False, timeout=30
    )
    assert child.returncode == -9
    rail = SimulatedRail(FileLedger(path))
    assert (await rail.find("r1")).kind is FoundKind.APPLIED
    await rail.close()


@run
async def test_a_torn_last_line_is_no_transfer_and_is_written_over(tmp_path):
    path = tmp_path / "ledger.jsonl"
    rail = SimulatedRail(FileLedger(path))
    await rail.send(COFFEE, "r1", CountingGate())
    await rail.close()
    whole = path.read_bytes()
    last = whole.splitlines(keepends=True)[-1]
    path.write_bytes(whole + last.replace(b"r1", b"r2")[:-9])
    rail = SimulatedRail(FileLedger(path))
    assert (await rail.find("r2")).kind is FoundKind.NOT_FOUND
    await rail.send(COFFEE, "r3", CountingGate())
    await rail.close()
    rail = SimulatedRail(FileLedger(path))
    assert [receipt.reference for receipt in await rail.transfers()] == ["r1", "r3"]
    await rail.close()


@pytest.mark.parametrize("content", [b"SQLite format 3\0", b"hello\n", b'{"ledger":"a"}\n{"kind":"gift"}\n'])
def test_another_file_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "precious"
    path.write_bytes(content)
    with pytest.raises(LedgerDamaged, match="precious"):
        FileLedger(path)
    assert path.read_bytes() == content


@run
async def test_each_transfer_is_synced_before_it_counts(tmp_path, monkeypatch):
    rail = SimulatedRail(FileLedger(tmp_path / "ledger.jsonl"))
    synced_bytes = []
    real = os.fsync

    def fsync(descriptor):
        real(descriptor)
        synced_bytes.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    for number in range(3):
        await rail.send(COFFEE, f"r{number}", CountingGate())
        assert synced_bytes[-1] == (tmp_path / "ledger.jsonl").stat().st_size
    assert len(synced_bytes) == 3
    await rail.close()


@run
async def test_after_a_failed_sync_nothing_is_said_to_be_made_or_not_made(tmp_path, monkeypatch):
    rail = SimulatedRail(FileLedger(tmp_path / "ledger.jsonl"))

    def fsync(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OutcomeUnknown):
        await rail.send(COFFEE, "r1", CountingGate())
    monkeypatch.undo()
    with pytest.raises(NotSent):
        await rail.send(COFFEE, "r2", CountingGate())
    with pytest.raises(OutcomeUnknown):
        await rail.find("r1")
    await rail.close()
