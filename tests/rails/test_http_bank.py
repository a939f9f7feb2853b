"""The http rail and the bank, each in its own process."""

from __future__ import annotations

import asyncio

import pytest

from nonbis.core.payments import Transfer
from nonbis.errors import Declined, NotSent, OutcomeUnknown
from nonbis.ports import FoundKind
from nonbis.rails.http import HttpRail
from nonbis.rails.urls import parse_rail_url
from tests.bank.process import BankProcess
from tests.rails.gates import COFFEE, CountingGate


@pytest.fixture
def start(tmp_path):
    banks = []

    def make(*options):
        banks.append(BankProcess(tmp_path / f"bank{len(banks)}.db", *options))
        return banks[-1]

    yield make
    for bank in banks:
        bank.kill()


def with_rail(test):
    """Runs the coroutine with an opener of rails, all of which are closed at the end."""

    def wrapped(start):
        async def scenario():
            rails = []

            def open_rail(bank):
                parsed = parse_rail_url(f"{bank.url}?find=yes")
                rails.append(HttpRail(parsed.base_url, parsed.facts))
                return rails[-1]

            try:
                await test(start, open_rail)
            finally:
                for rail in rails:
                    await rail.close()

        asyncio.run(asyncio.wait_for(scenario(), 60))

    wrapped.__name__ = test.__name__
    return wrapped


@with_rail
async def test_a_transfer_and_its_repetition(start, open_rail):
    bank = start()
    rail = open_rail(bank)
    first = await rail.send(COFFEE, "r1", CountingGate())
    assert first.contradicts(COFFEE) is None
    assert await rail.send(COFFEE, "r1", CountingGate()) == first
    other = Transfer(amount=1, currency="EUR", destination="elsewhere")
    assert (await rail.send(other, "r1", CountingGate())).contradicts(other) == "amount"
    found = await rail.find("r1")
    assert (found.kind, found.receipt) == (FoundKind.APPLIED, first)
    assert (await rail.find("r2")).kind is FoundKind.NOT_FOUND
    assert bank.count() == 1


@with_rail
async def test_each_answer_of_the_bank_has_its_meaning(start, open_rail):
    bank = start("--decline=1")
    rail = open_rail(bank)
    with pytest.raises(Declined):
        await rail.send(COFFEE, "r1", CountingGate())
    assert (await rail.find("r1")).kind is FoundKind.REFUSED
    with pytest.raises(NotSent):
        await rail.send(COFFEE, "r2", CountingGate(seconds_left=-5))
    assert (await rail.find("r2")).kind is FoundKind.NOT_FOUND
    assert bank.count() == 0


@with_rail
async def test_a_bank_that_cannot_be_asked_settles_nothing(start, open_rail):
    rail = open_rail(start("--no-find"))
    with pytest.raises(OutcomeUnknown, match="501"):
        await rail.find("r1")


@with_rail
async def test_a_transfer_under_way_is_pending_and_its_repetition_unknown(start, open_rail):
    bank = start("--delay-ms=800")
    rail = open_rail(bank)
    first = asyncio.create_task(rail.send(COFFEE, "r1", CountingGate()))
    await asyncio.to_thread(bank.wait_for, "/transfers/r1", 409)
    assert (await rail.find("r1")).kind is FoundKind.PENDING
    with pytest.raises(OutcomeUnknown, match="409"):
        await rail.send(COFFEE, "r1", CountingGate())
    assert (await first).reference == "r1"
    assert bank.count() == 1


@with_rail
async def test_a_lost_answer_is_unknown_and_the_bank_knows_better(start, open_rail):
    bank = start("--lose-answer=1")
    rail = open_rail(bank)
    with pytest.raises(OutcomeUnknown):
        await rail.send(COFFEE, "r1", CountingGate())
    assert bank.count() == 1
    assert (await rail.find("r1")).kind is FoundKind.APPLIED
    assert (await rail.send(COFFEE, "r1", CountingGate())).reference == "r1"
    assert bank.count() == 1


@with_rail
async def test_a_bank_killed_while_it_waits_is_unknown_and_made_nothing(start, open_rail):
    bank = start("--delay-ms=60000")
    rail = open_rail(bank)
    send = asyncio.create_task(rail.send(COFFEE, "r1", CountingGate()))
    await asyncio.to_thread(bank.wait_for, "/transfers/r1", 409)
    bank.kill()
    with pytest.raises(OutcomeUnknown):
        await send
    with pytest.raises(NotSent):
        await rail.send(COFFEE, "r2", CountingGate())
    bank.start("--delay-ms=0")
    assert (await rail.find("r1")).kind is FoundKind.NOT_FOUND
    assert bank.count() == 0


@with_rail
async def test_many_transfers_at_once_share_the_connections(start, open_rail):
    bank = start()
    rail = open_rail(bank)
    receipts = await asyncio.gather(*(rail.send(COFFEE, f"r{n}", CountingGate()) for n in range(200)))
    assert {receipt.reference for receipt in receipts} == {f"r{n}" for n in range(200)}
    assert bank.count() == 200
