"""Names that are taken and names that are not; where one is not, nothing is claimed and nothing is sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faces.asgi import ORDER, Face

KEY = b"idempotency-key"
GOOD = {
    "bare": (b"order-1", "order-1"),
    "quoted": (b'"order-1"', "order-1"),
    "a quote inside, escaped": (b'"a\\"b"', 'a"b'),
    "a quote inside, bare": (b'a"b', 'a"b'),
    "a backslash, escaped": (b'"a\\\\b"', "a\\b"),
    "blanks around": (b" \torder-1 \t", "order-1"),
    "parameters are ignored": (b'"order-1";v=1;w', "order-1"),
    "one character": (b"x", "x"),
    "255 characters": (b"k" * 255, "k" * 255),
    "255 characters quoted": (b'"' + b"k" * 255 + b'"', "k" * 255),
    "a slash": (b"a/b", "a/b"),
    "a percent sign": (b"a%2Fb", "a%2Fb"),
    "a UUID": (b"f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    "punctuation": (b"!#$%&'()*+,-./:;<=>?@[]^_`{|}~", "!#$%&'()*+,-./:;<=>?@[]^_`{|}~"),
}
MALFORMED = {
    "empty": b"",
    "blank": b"   ",
    "quoted empty": b'""',
    "quoted blank": b'"  "',
    "256 characters": b"k" * 256,
    "256 characters quoted": b'"' + b"k" * 256 + b'"',
    "a control character": b"order\x01",
    "DEL": b"order\x7f",
    "a tab inside": b"order\t1",
    "a tab inside, quoted": b'"order\t1"',
    "a blank inside": b"order 1",
    "a blank inside, quoted": b'"order 1"',
    "NUL": b"order\x00",
    "not ASCII": "b\u00fccher".encode(),
    "not ASCII, quoted": '"b\u00fccher"'.encode(),
    "Latin-1": b"b\xfccher",
    "unterminated quote": b'"order-1',
    "a lone quote": b'"',
    "ends in a backslash": b'"order-1\\"',
    "unknown escape": b'"order\\n1"',
    "text after the quote": b'"order-1" x',
    "two quoted in one line": b'"order-1", "order-2"',
    "bad parameter": b'"order-1";',
}


@pytest.mark.parametrize("case", GOOD)
def test_good_names(tmp_path: Path, case: str) -> None:
    raw, name = GOOD[case]
    with Face(tmp_path) as face:
        first = face.pay(raw)
        assert (first.status, first.replayed) == (201, False)
        again = face.post(json.dumps({**ORDER, "uuid": name}).encode())
        assert (again.status, again.replayed, again.body) == (201, True, first.body)
        assert (face.rows(), face.transfers()) == (1, 1)


def check_nothing_happened(face: Face) -> None:
    """No row, no transfer."""
    assert face.rows() == 0
    assert face.transfers() == 0


@pytest.mark.parametrize("path", ["/payments", "/payment"])
def test_malformed_names(tmp_path: Path, path: str) -> None:
    with Face(tmp_path) as face:
        for case, raw in MALFORMED.items():
            answer = face.pay(raw, path=path)
            assert (answer.status, answer.code) == (400, "name-malformed"), case
            assert answer.json["member"] == "Idempotency-Key", case
        check_nothing_happened(face)


def test_two_header_lines(tmp_path: Path) -> None:
    body = json.dumps(ORDER).encode()
    with Face(tmp_path) as face:
        for first, second in ((b"a", b"b"), (b"a", b"a"), (b"a", b""), (b"", b"a")):
            answer = face.post(body, (KEY, first), (KEY, second))
            assert (answer.status, answer.code) == (400, "name-malformed")
            assert answer.json["member"] == "Idempotency-Key"
        check_nothing_happened(face)


def test_no_name(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        for body in (ORDER, {**ORDER, "uuid": None}):
            for path in ("/payments", "/payment"):
                answer = face.post(json.dumps(body).encode(), path=path)
                assert (answer.status, answer.code) == (400, "name-missing")
                assert answer.json["member"] == "Idempotency-Key"
        check_nothing_happened(face)


@pytest.mark.parametrize("uuid", [5, True, 1.5, ["a"], {"a": 1}])
def test_uuid_of_a_wrong_type(tmp_path: Path, uuid: Any) -> None:
    with Face(tmp_path) as face:
        for headers in ((), ((KEY, b"order-1"),)):
            answer = face.post(json.dumps({**ORDER, "uuid": uuid}).encode(), *headers)
            assert (answer.status, answer.code, answer.json["member"]) == (400, "member-invalid", "uuid")
        check_nothing_happened(face)


@pytest.mark.parametrize("uuid", ["", " ", "a b", "k" * 256, "b\u00fccher", "a\x00b", "a\n"])
def test_malformed_uuid(tmp_path: Path, uuid: str) -> None:
    """A member that is there is never treated as absent, also beside a good header."""
    with Face(tmp_path) as face:
        for headers in ((), ((KEY, b"order-1"),)):
            answer = face.post(json.dumps({**ORDER, "uuid": uuid}).encode(), *headers)
            assert (answer.status, answer.code, answer.json["member"]) == (400, "name-malformed", "uuid")
        check_nothing_happened(face)


def test_header_and_uuid(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        different = face.post(json.dumps({**ORDER, "uuid": "b"}).encode(), (KEY, b"a"))
        assert (different.status, different.code) == (400, "name-malformed")
        assert different.json["member"] == "Idempotency-Key"
        check_nothing_happened(face)
        same = face.post(json.dumps({**ORDER, "uuid": 'a"b'}).encode(), (KEY, b'"a\\"b"'))
        assert (same.status, same.replayed) == (201, False)


def test_the_member_is_not_read_as_a_quoted_string(tmp_path: Path) -> None:
    """Quotes belong to the header's syntax; in JSON they are part of the name."""
    with Face(tmp_path) as face:
        assert face.post(json.dumps({**ORDER, "uuid": '"a"'}).encode()).status == 201
        assert face.pay("a").replayed is False
        assert face.rows() == 2
