from __future__ import annotations

import http.client
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.bank.bytes_on_wire import post_bytes, raw
from tests.bank.process import BankProcess

COFFEE = {"amount": 350, "currency": "EUR", "destination": "roastery"}


@pytest.fixture
def make_bank(tmp_path):
    banks = []

    def make(*options):
        bank = BankProcess(tmp_path / f"bank{len(banks)}.db", *options)
        banks.append(bank)
        return bank

    yield make
    for bank in banks:
        bank.kill()


def posts_at_once(bank, count, reference="r1"):
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: bank.post(reference), range(count)))


def test_a_transfer_is_made_and_stands_in_the_journal(make_bank):
    bank = make_bank()
    status, made = bank.post(
        "r1", {**COFFEE, "operation": "7:1", "description": "beans", "metadata": {"a": "b"}}
    )
    assert status == 201
    assert {name: made[name] for name in COFFEE} == COFFEE
    assert made["reference"] == "r1"
    assert bank.journal() == [made]
    assert set(made) == {"reference", "amount", "currency", "destination", "at"}
    assert bank.get("/transfers/r1") == (200, made)


def test_a_repeated_reference_gets_the_earlier_transfer_whatever_it_asks(make_bank):
    bank = make_bank()
    _, made = bank.post("r1")
    assert bank.post("r1", {**COFFEE, "amount": 1}) == (200, made)
    assert bank.journal() == [made]


def test_fifty_posts_at_once_of_one_reference_make_one_transfer(make_bank):
    bank = make_bank("--delay-ms=100")
    statuses = [status for status, _ in posts_at_once(bank, 50)]
    assert bank.count() == 1
    assert statuses.count(201) == 1
    assert set(statuses) <= {200, 201, 409}


def test_without_dedupe_fifty_posts_make_fifty_transfers(make_bank):
    bank = make_bank("--no-dedupe", "--delay-ms=100")
    assert {status for status, _ in posts_at_once(bank, 50)} == {201}
    assert bank.count() == 50
    assert bank.get("/transfers/r1")[0] == 200


def test_a_refusal_is_bound_to_its_reference(make_bank):
    bank = make_bank("--decline=1")
    status, refusal = bank.post("r1")
    assert (status, refusal["code"], refusal["reference"]) == (422, "declined", "r1")
    assert bank.get("/transfers/r1") == (422, refusal)
    bank.kill()
    bank.start("--decline=0")
    assert bank.post("r1") == (422, refusal)
    assert bank.post("r1-2")[0] == 201
    assert [made["reference"] for made in bank.journal()] == ["r1-2"]


def test_without_dedupe_a_refusal_does_not_bind(make_bank):
    bank = make_bank("--decline=1", "--no-dedupe")
    assert bank.post("r1")[0] == 422
    assert bank.get("/transfers/r1")[0] == 404
    bank.stop()
    bank.start("--decline=0", "--no-dedupe")
    assert bank.post("r1")[0] == 201


def test_a_bank_that_finds_nothing_says_that_it_cannot(make_bank):
    bank = make_bank("--no-find")
    bank.post("r1")
    assert bank.get("/transfers/r1")[0] == 501
    assert bank.get("/transfers/r2")[0] == 501
    assert bank.count() == 1


def test_a_lost_answer_leaves_the_transfer_and_not_a_byte(make_bank):
    bank = make_bank("--lose-answer=1")
    body = json.dumps(COFFEE).encode()
    try:
        answer = raw(bank, post_bytes("r1", body))
    except ConnectionResetError:
        answer = b""
    assert answer == b""
    assert [made["reference"] for made in bank.journal()] == ["r1"]
    assert bank.post("r1")[0] == 200, "the earlier transfer is told, only the first answer is lost"


def test_a_delayed_transfer_is_pending_and_then_there(make_bank):
    bank = make_bank("--delay-ms=700")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(bank.post, "r1")
        pending = bank.wait_for("/transfers/r1", 409)
        assert pending["code"] == "pending"
        assert bank.post("r1")[0] == 409
        assert bank.count() == 0
        assert first.result()[0] == 201
    assert bank.get("/transfers/r1")[0] == 200
    assert bank.count() == 1


def test_the_deadline_is_looked_at_after_the_delay(make_bank):
    bank = make_bank("--delay-ms=300")
    now = time.time()
    status, problem = bank.post("r1", Deadline=f"@{now + 0.1:.3f}")
    assert (status, problem["code"]) == (422, "too-late")
    assert bank.get("/transfers/r1")[0] == 404
    assert bank.post("r1", Deadline=f"@{int(now) + 60}")[0] == 201, "too late binds nothing"
    assert bank.count() == 1


def test_too_late_is_no_refusal(make_bank):
    bank = make_bank("--decline=1")
    assert bank.post("r1", Deadline="@1")[1]["code"] == "too-late"
    assert bank.get("/transfers/r1")[0] == 404


def test_a_client_that_hangs_up_does_not_stop_a_transfer(make_bank):
    bank = make_bank("--delay-ms=300")
    connection = socket.create_connection(("127.0.0.1", bank.port), timeout=10)
    connection.sendall(post_bytes("r1", json.dumps(COFFEE).encode()))
    bank.wait_for("/transfers/r1", 409)
    connection.close()
    bank.wait_for("/transfers/r1", 200)
    assert bank.count() == 1


# -- the ledger outlives the process ------------------------------------------------------------------------


def test_a_killed_bank_keeps_its_journal_and_its_memory(make_bank):
    bank = make_bank()
    made = [bank.post(f"r{number}")[1] for number in range(20)]
    bank.kill()
    bank.start()
    assert bank.journal() == made
    assert bank.post("r7") == (200, made[7])
    assert bank.count() == 20


def test_kill_during_the_delay_means_no_transfer(make_bank):
    bank = make_bank("--delay-ms=60000")
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(bank.post, "r1")
        bank.wait_for("/transfers/r1", 409)
        bank.kill()
        with pytest.raises(OSError):
            lost.result()
    bank.start("--delay-ms=0")
    assert bank.get("/transfers/r1")[0] == 404
    assert bank.journal() == []


def test_kill_under_load_loses_no_transfer_that_was_acknowledged(make_bank):
    bank = make_bank()
    acknowledged = []

    def post_until_dead(worker):
        try:
            for number in range(10_000):
                if bank.post(f"{worker}-{number}")[0] == 201:
                    acknowledged.append(f"{worker}-{number}")
        except (OSError, http.client.HTTPException):
            pass

    with ThreadPoolExecutor(4) as pool:
        for worker in range(4):
            pool.submit(post_until_dead, worker)
        while len(acknowledged) < 50:
            time.sleep(0.005)
        bank.kill()
    bank.start()
    references = [made["reference"] for made in bank.journal()]
    assert set(acknowledged) <= set(references)
    assert len(references) == len(set(references))
    assert len(references) <= len(acknowledged) + 4


def test_sigterm_finishes_what_is_under_way(make_bank):
    bank = make_bank("--delay-ms=300")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(bank.post, "r1")
        bank.wait_for("/transfers/r1", 409)
        assert bank.stop() == 0
        assert first.result()[0] == 201
    bank.start()
    assert bank.count() == 1


def test_one_ledger_belongs_to_one_bank(make_bank, tmp_path):
    bank = make_bank()
    bank.post("r1")
    with pytest.raises(AssertionError, match="can't be used as the bank's ledger"), BankProcess(bank.ledger):
        pass
    assert bank.count() == 1


@pytest.mark.parametrize("kind", ["text", "other database", "folder missing"])
def test_another_file_is_refused_and_left_as_it_is(tmp_path, kind):
    path = tmp_path / "precious.db"
    if kind == "text":
        path.write_bytes(b"dear diary " * 100)
    elif kind == "other database":
        with sqlite3.connect(path) as connection:
            connection.execute("create table diary (day text)")
        connection.close()
    else:
        path = tmp_path / "nowhere" / "bank.db"
    before = path.read_bytes() if path.exists() else None
    done = subprocess.run(
        [sys.executable, "-m", "nonbis.bank", "--port=0", f"--ledger={path}"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_port_in_use_is_an_error_with_a_message(make_bank, tmp_path):
    bank = make_bank()
    done = subprocess.run(
        [sys.executable, "-m", "nonbis.bank", f"--port={bank.port}", f"--ledger={tmp_path / 'other.db'}"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert "can't listen" in done.stderr


def test_it_ends_on_interrupt_without_a_trace_of_python(tmp_path):
    bank = BankProcess(tmp_path / "bank.db")
    process = bank._process
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    bank._process = None
    assert process.returncode == 0
    assert errors == ""
