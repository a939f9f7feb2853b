from __future__ import annotations

import json
import socket

import pytest

from tests.bank.bytes_on_wire import post_bytes, raw
from tests.bank.process import BankProcess, call

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


@pytest.fixture(scope="module")
def plain_bank(tmp_path_factory):
    with BankProcess(tmp_path_factory.mktemp("bank") / "bank.db") as bank:
        yield bank


BAD_BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"amount":350,"currency":"EUR","destination":"a"',
    b'{"amount":350,"currency":"EUR"}',
    b'{"currency":"EUR","destination":"a"}',
    b'{"amount":350,"destination":"a"}',
    b'{"amount":10.5,"currency":"EUR","destination":"a"}',
    b'{"amount":1e2,"currency":"EUR","destination":"a"}',
    b'{"amount":true,"currency":"EUR","destination":"a"}',
    b'{"amount":"10","currency":"EUR","destination":"a"}',
    b'{"amount":-1,"currency":"EUR","destination":"a"}',
    b'{"amount":0,"currency":"EUR","destination":"a"}',
    b'{"amount":9007199254740992,"currency":"EUR","destination":"a"}',
    b'{"amount":' + b"9" * 5000 + b',"currency":"EUR","destination":"a"}',
    b'{"amount":NaN,"currency":"EUR","destination":"a"}',
    b'{"amount":1,"amount":2,"currency":"EUR","destination":"a"}',
    b'{"amount":1,"currency":"EUR","destination":"a","surprise":1}',
    b'{"amount":1,"currency":"euro","destination":"a"}',
    b'{"amount":1,"currency":"EUR","destination":""}',
    b'{"amount":1,"currency":"EUR","destination":"a b"}',
    b'{"amount":1,"currency":"EUR","destination":"' + b"a" * 129 + b'"}',
    b'{"amount":1,"currency":"EUR","destination":"\\ud800"}',
    b'{"amount":1,"currency":"EUR","destination":"a","description":"\\ud800"}',
    b'{"amount":1,"currency":"EUR","destination":"a","description":5}',
    b'{"amount":1,"currency":"EUR","destination":"a","metadata":[]}',
    b'{"amount":1,"currency":"EUR","destination":"a","metadata":{"a":1}}',
    b'{"amount":1,"currency":"EUR","destination":"a","operation":7}',
    b"\xff\xfe",
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", BAD_BODIES, ids=lambda body: repr(body[:40]))
def test_a_bad_body_is_refused_and_makes_no_transfer(plain_bank, body):
    status, problem = call(f"{plain_bank.url}/transfers", body, {"Reference": "bad"})
    assert (status, problem["code"]) == (400, "malformed")
    assert plain_bank.get("/transfers/bad")[0] == 404
    assert plain_bank.journal() == []


GOOD_BODY = json.dumps(COFFEE).encode()
BAD_HEADS = {
    "no reference": post_bytes("x", GOOD_BODY).replace(b"Reference: x\r\n", b""),
    "empty reference": post_bytes("", GOOD_BODY),
    "blank in reference": post_bytes("a b", GOOD_BODY),
    "long reference": post_bytes("a" * 256, GOOD_BODY),
    "two references": post_bytes("a", GOOD_BODY, "Reference: b"),
    "deadline is no number": post_bytes("a", GOOD_BODY, "Deadline: soon"),
    "deadline without @": post_bytes("a", GOOD_BODY, "Deadline: 4000000000"),
    "deadline infinite": post_bytes("a", GOOD_BODY, "Deadline: @inf"),
    "two deadlines": post_bytes("a", GOOD_BODY, "Deadline: @4000000000", "Deadline: @4000000001"),
    "no HTTP": b"MAKE MONEY\r\n\r\n",
    "two lengths": post_bytes("a", GOOD_BODY, "Content-Length: 1"),
}


@pytest.mark.parametrize("request_bytes", BAD_HEADS.values(), ids=BAD_HEADS.keys())
def test_a_bad_head_is_refused_and_makes_no_transfer(plain_bank, request_bytes):
    assert raw(plain_bank, request_bytes).split(b"\r\n")[0].split()[1] == b"400"
    assert plain_bank.journal() == []


@pytest.mark.parametrize("missing_bytes", [1, len(GOOD_BODY)])
def test_a_body_that_ends_early_makes_no_transfer(plain_bank, missing_bytes):
    request = post_bytes("cut", GOOD_BODY)
    raw(plain_bank, request[: len(request) - missing_bytes], half_close=True)
    assert plain_bank.get("/transfers/cut")[0] == 404
    assert plain_bank.journal() == []


@pytest.mark.parametrize(("end", "status"), [(b"0\r\n\r\n", 201), (b"0\r\n", 400), (b"", 400), (b"x", 400)])
def test_a_chunked_body_without_its_end_makes_no_transfer(make_bank, end, status):
    bank = make_bank()
    head = post_bytes("r1", b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    chunk = f"{len(GOOD_BODY):x}\r\n".encode() + GOOD_BODY + b"\r\n"
    assert raw(bank, head + chunk + end, half_close=True).split()[1] == str(status).encode()
    assert bank.count() == (status == 201)


def test_a_body_that_is_too_long_makes_no_transfer(plain_bank):
    body = json.dumps({**COFFEE, "description": "a" * (1 << 20)}).encode()
    try:
        status = call(f"{plain_bank.url}/transfers", body, {"Reference": "long"})[0]
    except OSError:
        status = 413
    assert status == 413
    assert plain_bank.journal() == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/transfers", 405),
        ("DELETE", "/transfers/r1", 405),
        ("POST", "/journal", 405),
        ("GET", "/", 404),
        ("GET", "/transfers/", 404),
        ("HEAD", "/journal", 405),
    ],
)
def test_other_routes_and_methods(plain_bank, method, path, status):
    answer = raw(plain_bank, f"{method} {path} HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n".encode())
    assert answer.split()[1] == str(status).encode()


def test_a_reference_in_a_path_is_decoded_once(make_bank):
    bank = make_bank()
    bank.post("a/b%20c")
    assert bank.get("/transfers/a%2Fb%2520c")[0] == 200
    assert bank.get("/transfers/a%2Fb%20c")[0] == 404


def test_expect_continue_and_pipelining_are_understood(make_bank):
    bank = make_bank()
    with socket.create_connection(("127.0.0.1", bank.port), timeout=10) as connection:
        head, _, body = post_bytes("r1", GOOD_BODY, "Expect: 100-continue").partition(b"\r\n\r\n")
        connection.sendall(head.replace(b"Connection: close\r\n", b"") + b"\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 100")
        connection.sendall(body + post_bytes("r2", GOOD_BODY))
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.count(b"HTTP/1.1 201") == 2
    assert bank.count() == 2
