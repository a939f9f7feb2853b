from __future__ import annotations

import pytest

from nonbis.bank.ledger import Ledger, LedgerUnusable, Refused, Transfer

COFFEE = Transfer(reference="r1", amount=350, currency="EUR", destination="roastery", operation="7:1")


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "bank.db")
    yield opened
    opened.close()


def test_every_commit_is_synced(ledger):
    settings = {
        name: ledger._connection.pragma(name) for name in ("journal_mode", "synchronous", "locking_mode")
    }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "locking_mode": "exclusive"}


def test_what_was_asked_for_is_kept_whole(ledger):
    ledger.make(COFFEE)
    row = ledger._connection.execute("select operation, description, metadata from transfers").get
    assert row == ("7:1", "", "")


def test_the_first_transfer_of_a_reference_is_the_one_that_is_told(ledger):
    first = ledger.make(COFFEE)
    ledger.make(COFFEE)
    assert ledger.find("r1") == first
    assert len(ledger.journal()) == 2


def test_a_transfer_outweighs_a_refusal(ledger):
    ledger.refuse("r1")
    assert ledger.find("r1") == Refused()
    made = ledger.make(COFFEE)
    assert ledger.find("r1") == made
    assert ledger.find("r2") is None


def test_a_setting_that_does_not_hold_is_no_ledger(tmp_path):
    with pytest.raises(LedgerUnusable):
        # SQLite can't keep a write-ahead log for this one.
        Ledger(":memory:")
