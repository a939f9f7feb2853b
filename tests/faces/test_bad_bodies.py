"""Bodies that are not taken: the right problem, the member by its name, nothing claimed, nothing sent."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from nonbis.faces.settings import BODY_BYTES_MAX
from tests.faces.asgi import ORDER, Face, HangUp
from tests.faces.test_bad_names import KEY, check_nothing_happened

NAME = (KEY, b"order-1")
GOOD = json.dumps(ORDER).encode()
MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "blank": b"  ",
    "not JSON": b"hello",
    "a form": b"amount=350&destination=roastery",
    "truncated": GOOD[:-1],
    "truncated in a string": GOOD[:-5],
    "more after it": GOOD + b"{}",
    "an array": b"[" + GOOD + b"]",
    "a string": b'"hello"',
    "a number": b"5",
    "null": b"null",
    "single quotes": b"{'amount':350,'destination':'roastery'}",
    "trailing comma": b'{"amount":350,"destination":"roastery",}',
    "a comment": b'{"amount":350,/**/"destination":"roastery"}',
    "byte order mark": b"\xef\xbb\xbf" + GOOD,
    "UTF-16": GOOD.decode().encode("utf-16"),
    "not UTF-8": b'{"amount":350,"destination":"\xff"}',
    "overlong UTF-8": b'{"amount":350,"destination":"\xc0\xaf"}',
    "a raw control character": b'{"amount":350,"destination":"a\x01b"}',
    "amount twice": b'{"amount":350,"amount":350,"destination":"roastery"}',
    "uuid twice": b'{"amount":350,"destination":"roastery","uuid":"a","uuid":"b"}',
    "a member of metadata twice": b'{"amount":350,"destination":"roastery","metadata":{"a":"1","a":"2"}}',
    "the same member escaped": b'{"amount":350,"\\u0061mount":350,"destination":"roastery"}',
    "NaN": b'{"amount":NaN,"destination":"roastery"}',
    "Infinity": b'{"amount":Infinity,"destination":"roastery"}',
    "-Infinity": b'{"amount":-Infinity,"destination":"roastery"}',
    "a number too large for a float": b'{"amount":1e999,"destination":"roastery"}',
    "2^53": b'{"amount":9007199254740992,"destination":"roastery"}',
    "2^64": b'{"amount":18446744073709551616,"destination":"roastery"}',
    "5000 digits": b'{"amount":' + b"9" * 5000 + b',"destination":"roastery"}',
    "leading zero": b'{"amount":0350,"destination":"roastery"}',
    "plus sign": b'{"amount":+350,"destination":"roastery"}',
    "hexadecimal": b'{"amount":0x10,"destination":"roastery"}',
    "lone surrogate": b'{"amount":350,"destination":"a\\ud800b"}',
    "lone low surrogate in metadata": b'{"amount":350,"destination":"x","metadata":{"a":"\\udc00"}}',
    "lone surrogate in a name": b'{"amount":350,"destination":"x","metadata":{"\\ud800":"a"}}',
    "deep nesting": b'{"amount":' + b"[" * 100_000 + b"]" * 100_000 + b',"destination":"x"}',
    "deep nesting of objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
}
MEMBERS = {
    "amount twice": "amount",
    "uuid twice": "uuid",
    "a member of metadata twice": "a",
    "the same member escaped": "amount",
    "NaN": "amount",
    "Infinity": "amount",
    "-Infinity": "amount",
    "a number too large for a float": "amount",
    "2^53": "amount",
    "2^64": "amount",
    "5000 digits": "amount",
    "lone surrogate": "destination",
    "lone low surrogate in metadata": "a",
    "lone surrogate in a name": "\\ud800",
}
"""The member that is named, where the fault stands in one."""
INVALID: dict[str, tuple[str, dict[str, Any]]] = {
    "no amount": ("amount", {"amount": ...}),
    "no destination": ("destination", {"destination": ...}),
    **{
        f"amount {value!r}": ("amount", {"amount": value})
        for value in (10.5, 1e2, 350.0, True, False, "10", "", None, -1, 0, [350], {"value": 350})
    },
    **{
        f"currency {value!r}": ("currency", {"currency": value})
        for value in ("ABC", "usd", "US", "USDD", "", "XAU", None, 840, ["USD"], "EUR ")
    },
    **{
        f"destination {value[:9]!r} of {len(value)}": ("destination", {"destination": value})
        for value in ("", " ", "a b", "a\tb", "a\nb", "a\x00b", "a\x7fb", "d" * 129, "a\u200bb", "a\u00a0b")
    },
    **{
        f"destination {value!r}": ("destination", {"destination": value})
        for value in (None, 5, True, ["roastery"])
    },
    **{
        f"description {what}": ("description", {"description": value})
        for what, value in (("number", 5), ("too long", "d" * 1001), ("NUL", "a\x00"), ("list", ["a"]))
    },
    **{
        f"metadata {what}": ("metadata", {"metadata": value})
        for what, value in (
            ("list", []),
            ("text", "a"),
            ("number inside", {"a": 1}),
            ("null inside", {"a": None}),
            ("object inside", {"a": {"b": "c"}}),
            ("empty name", {"": "a"}),
            ("name of 41", {"n" * 41: "a"}),
            ("value of 501", {"a": "v" * 501}),
            ("51 members", {f"n{number}": "v" for number in range(51)}),
            ("NUL", {"a": "\x00"}),
            ("NUL in a name", {"\x00": "a"}),
        )
    },
    "an unknown member": ("ammount", {"ammount": 350}),
    "another one": ("id", {"id": "7:1"}),
    "a member in other case": ("Amount", {"Amount": 350}),
}


@pytest.mark.parametrize("path", ["/payments", "/payment"])
def test_malformed_bodies(tmp_path: Path, path: str) -> None:
    with Face(tmp_path) as face:
        for case, body in MALFORMED.items():
            answer = face.post(body, NAME, path=path)
            assert (answer.status, answer.code) == (400, "body-malformed"), (case, answer)
            assert answer.json.get("member") == MEMBERS.get(case), case
        check_nothing_happened(face)


@pytest.mark.parametrize("path", ["/payments", "/payment"])
def test_invalid_members(tmp_path: Path, path: str) -> None:
    with Face(tmp_path) as face:
        for case, (member, change) in INVALID.items():
            order = {name: value for name, value in {**ORDER, **change}.items() if value is not ...}
            answer = face.post(json.dumps(order).encode(), NAME, path=path)
            assert (answer.status, answer.code) == (400, "member-invalid"), (case, answer)
            assert answer.json["member"] == member, case
            assert member in answer.json["detail"], case
        check_nothing_happened(face)


def test_amounts_as_they_are_written(tmp_path: Path) -> None:
    """``1e2`` is one hundred to some readers and a float to others, so it is refused as written."""
    with Face(tmp_path) as face:
        for text in (b"10.5", b"1e2", b"1E2", b"10.0", b"-1", b"0", b"-0", b"true", b'"10"', b"null"):
            answer = face.post(b'{"destination":"roastery","amount":' + text + b"}", NAME)
            assert (answer.status, answer.json.get("member")) == (400, "amount"), text
        check_nothing_happened(face)


def test_what_stands_on_the_border_is_taken(tmp_path: Path) -> None:
    orders: list[dict[str, Any]] = [
        {"amount": 1},
        {"amount": 2**53 - 1},
        {"destination": "d"},
        {"destination": "d" * 128},
        {"destination": "B\u00e4ckerei"},
        {"description": ""},
        {"description": "d" * 1000},
        {"description": None},
        {"metadata": None},
        {"metadata": {}},
        {"metadata": {"n" * 40: "v" * 500}},
        {"metadata": {f"n{number}": "v" for number in range(50)}},
        {"currency": "JPY"},
    ]
    with Face(tmp_path) as face:
        for number, order in enumerate(orders):
            answer = face.pay(f"order-{number}", **order)
            assert (answer.status, answer.json["state"]) == (201, "applied"), order
        assert face.transfers() == len(orders)


def padded(length: int) -> bytes:
    """A good body of exactly this many bytes."""
    return GOOD[:-1] + b" " * (length - len(GOOD)) + b"}"


def test_the_limit_of_the_body(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        too_long = padded(BODY_BYTES_MAX + 1)
        for head in ((), ((b"content-length", str(len(too_long)).encode()),)):
            answer = face.post(too_long, NAME, *head)
            assert (answer.status, answer.code) == (413, "too-large")
        check_nothing_happened(face)
        exact = padded(BODY_BYTES_MAX)
        answer = face.post(exact, NAME, (b"content-length", str(len(exact)).encode()))
        assert answer.status == 201


def test_the_limit_of_a_chunked_body(tmp_path: Path) -> None:
    """Without a length the service reads no more than the limit, however much is sent."""
    head = [(b"content-type", b"application/json"), NAME]
    with Face(tmp_path) as face:
        parts = [padded(BODY_BYTES_MAX + 1)[start : start + 65536] for start in range(0, 1 << 20, 65536)]
        answer = face.run(face.request("POST", "/payments", [*parts, b"}", b"x" * 10], head))
        assert answer is not None
        assert (answer.status, answer.code) == (413, "too-large")
        check_nothing_happened(face)
        whole = padded(BODY_BYTES_MAX)
        pieces = [whole[start : start + 65536] for start in range(0, len(whole), 65536)]
        taken = face.run(face.request("POST", "/payments", [*pieces, b""], head))
        assert taken is not None
        assert taken.status == 201


@pytest.mark.parametrize(
    "kind",
    [
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=x",
        b"application/xml",
        b"application/jsonp",
        b"text/json",
        b"application/json-seq",
        b"application/json; charset=latin-1",
        b"application/json;charset=utf-16",
        b'application/json; charset="iso-8859-1"',
        b"application/json; v=1; CHARSET=UTF-16LE",
        b"application/json; charset=utf-8; charset=latin-1",
        b"application/json; charset=",
        b"application/vnd.shop+json; charset=us-ascii",
    ],
)
def test_wrong_content_types(tmp_path: Path, kind: bytes) -> None:
    with Face(tmp_path) as face:
        for path in ("/payments", "/payment"):
            answer = face.post(GOOD, NAME, path=path, kind=kind)
            assert (answer.status, answer.code) == (415, "unsupported-type")
        check_nothing_happened(face)


def test_content_types_that_are_taken(tmp_path: Path) -> None:
    kinds = [
        b"application/json",
        b"application/json; charset=utf-8",
        b'application/json;charset="UTF-8"',
        b"application/json; v=1 ; Charset=Utf-8",
        b"application/json; v=1",
        b"Application/JSON",
        b"application/vnd.shop+json",
        None,
    ]
    with Face(tmp_path) as face:
        for number, kind in enumerate(kinds):
            assert face.post(GOOD, (KEY, b"order-%d" % number), kind=kind).status == 201, kind


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"br", b"gzip, identity"])
def test_compressed_bodies(tmp_path: Path, encoding: bytes) -> None:
    with Face(tmp_path) as face:
        answer = face.post(zlib.compress(GOOD), NAME, (b"content-encoding", encoding))
        assert (answer.status, answer.code) == (415, "unsupported-type")
        check_nothing_happened(face)


def test_a_client_that_hangs_up_in_mid_body(tmp_path: Path) -> None:
    head = [(b"content-type", b"application/json"), NAME]
    with Face(tmp_path) as face:
        for parts in ([HangUp], [GOOD[:10], HangUp], [GOOD[:-1], HangUp], [GOOD, HangUp]):
            answer = face.run(face.request("POST", "/payments", parts, head))
            assert answer is not None
            assert (answer.status, answer.code) == (400, "body-malformed")
        check_nothing_happened(face)


def test_no_secret_is_in_an_answer(tmp_path: Path) -> None:
    """Neither the store's key nor a path of the host is told to a client."""
    with Face(tmp_path, store=f"sqlite:///{tmp_path / 'nonbis.db'}") as face:
        key = face.service.engine.store.key
        answers = [face.post(body, NAME) for body in MALFORMED.values()]
        answers += [face.get("/readyz"), face.get("/payments"), face.get("/openapi.json"), face.pay("a")]
        for answer in answers:
            assert key not in answer.body
            assert key.hex().encode() not in answer.body
            assert str(tmp_path).encode() not in answer.body
