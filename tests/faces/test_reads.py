"""Reads: one payment by id and by name, the list and its pages, and everything that is not there."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest

from nonbis.core.messages import Kind
from nonbis.core.names import Digester
from nonbis.core.payments import SCOPE
from nonbis.engine.writing import Observation
from nonbis.rails.simulated import FaultKind
from tests.faces.asgi import Face
from tests.faces.contract import Answer


@pytest.mark.parametrize(
    "text", ["1:999", "7:1", "0:1", "8388608:1", "1:1099511627776", "1", "1:", ":1", "a:b"]
)
def test_no_such_id(tmp_path: Path, text: str) -> None:
    with Face(tmp_path) as face:
        face.pay("order-1")
        answer = face.get(f"/payments/{text}")
        assert (answer.status, answer.code) == (404, "not-found")


@pytest.mark.parametrize(
    "text", ["", "1:1/", "1:1/x", "1%3A1/", "01:1x", "%00", "1:1%20", "-1:1", "\u0661:1"]
)
def test_what_is_no_id(tmp_path: Path, text: str) -> None:
    with Face(tmp_path) as face:
        face.pay("order-1")
        assert face.get(f"/payments/{quote(text, safe='%/:')}").status == 404


def test_by_id_also_percent_encoded(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        answer = face.pay("order-1")
        number = answer.json["id"]
        assert face.get(f"/payments/{number}").body == answer.body
        assert face.get(f"/payments/{quote(number, safe='')}").body == answer.body
        assert face.get(f"/payments/{number}?x=1").body == answer.body


NAMES = {
    "order-1": "order-1",
    "a/b": "a%2Fb",
    "a/b bare": "a/b",
    'a"b': "a%22b",
    "a%2Fb": "a%252Fb",
    "a%b": "a%25b",
    "a?b": "a%3Fb",
    "a#b": "a%23b",
    "a+b": "a+b",
    "..": "..",
    "a/": "a/",
    "/": "/",
    "100%": "100%25",
}


@pytest.mark.parametrize("case", NAMES)
def test_by_name_decoded_once(tmp_path: Path, case: str) -> None:
    name = case.removesuffix(" bare")
    with Face(tmp_path) as face:
        for other in ("a b", "other", "a", "b"):
            assert face.get(f"/payments/by-name/{quote(other, safe='')}").status in (400, 404)
        answer = face.pay(name)
        assert answer.status == 201
        assert face.get(f"/payments/by-name/{NAMES[case]}").body == answer.body
        assert face.get(f"/payments/by-name/{quote(name, safe='')}").body == answer.body


def test_a_name_that_is_encoded_twice_is_another_name(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        slash, encoded = face.pay("a/b"), face.pay("a%2Fb")
        assert face.get("/payments/by-name/a%2Fb").body == slash.body
        assert face.get("/payments/by-name/a%252Fb").body == encoded.body
        assert face.get("/payments/by-name/a%25252Fb").status == 404


@pytest.mark.parametrize("raw", ["", "%20", "a%20b", "%00", "a%0Ab", "%C3%BC", "%ff", "k" * 256])
def test_malformed_names_in_a_path(tmp_path: Path, raw: str) -> None:
    with Face(tmp_path) as face:
        answer = face.get(f"/payments/by-name/{raw}")
        assert (answer.status, answer.code) == (400, "name-malformed")


def test_by_name_shows_the_present_state(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        face.rail.plan(FaultKind.DECLINE)
        face.pay("order-1")
        assert face.get("/payments/by-name/order-1").json["reason"] == "declined"
        face.pay("order-1")
        assert face.get("/payments/by-name/order-1").json["attempt"] == 2


# -- the list


def pay_many(face: Face, count: int) -> list[str]:
    """Payments, each after the other; their ids in order."""

    async def pay() -> list[Answer]:
        return [await face.paying(f"order-{number}", amount=number + 1) for number in range(count)]

    return [answer.json["id"] for answer in face.run(pay())]


def pages(face: Face, query: str) -> list[list[str]]:
    """The ids of all pages, following ``next``."""
    found: list[list[str]] = []
    after = ""
    while True:
        page = face.get(f"/payments?{query}{after}").json
        found.append([view["id"] for view in page["data"]])
        if page["next"] is None:
            return found
        after = f"&after={page['next']}"


def test_pages_through_250_payments(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        numbers = pay_many(face, 250)
        assert [len(page) for page in pages(face, "")] == [100, 100, 50]
        for limit in (1, 7, 50, 250, 251, 10_000):
            found = pages(face, f"limit={limit}")
            assert sum(found, []) == numbers
            assert all(len(page) <= limit for page in found)
        assert face.get("/payments").json["data"][0] == face.get(f"/payments/{numbers[0]}").json


def test_empty_list(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        assert face.get("/payments").json == {"data": [], "next": None}


def test_filters_and_bounds(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        numbers = pay_many(face, 10)
        face.rail.plan(FaultKind.DECLINE)
        failed = face.pay("declined").json["id"]
        machine = numbers[0].partition(":")[0]
        assert sum(pages(face, "state=applied"), []) == numbers
        assert pages(face, "state=failed") == [[failed]]
        assert pages(face, "state=in_doubt") == [[]]
        assert sum(pages(face, f"machine={machine}"), []) == [*numbers, failed]
        assert pages(face, f"machine={int(machine) + 1}") == [[]]
        assert pages(face, f"after={numbers[3]}&before={numbers[7]}") == [numbers[4:7]]
        assert pages(face, f"before={numbers[0]}") == [[]]
        assert pages(face, f"after={failed}") == [[]]
        assert (
            sum(pages(face, f"machine={machine}&state=applied&limit=3&before={numbers[8]}"), [])
            == numbers[:8]
        )


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_bounds_at_both_ends_of_all_ids(tmp_path: Path, store: str) -> None:
    last, first = "8388607:1099511627775", "1:0"
    with Face(tmp_path, store=f"sqlite:///{tmp_path / 'nonbis.db'}" if store == "sqlite" else store) as face:
        numbers = pay_many(face, 3)
        assert pages(face, f"after={last}") == [[]]
        assert pages(face, f"after={last}&machine=8388607&before={last}") == [[]]
        assert pages(face, f"before={first}") == [[]]
        assert pages(face, f"after={first}&before={last}") == [numbers]
        assert pages(face, f"after={numbers[2]}&before={numbers[0]}") == [[]]


def test_a_cancelled_name_without_a_request_is_not_listed(tmp_path: Path) -> None:
    """The view of a payment needs its request; what was cancelled before it came has none."""
    with Face(tmp_path) as face:
        numbers = pay_many(face, 3)
        face.rail.plan(FaultKind.DECLINE)
        declined = face.pay("declined").json["id"]
        face.run(_cancel(face, "declined"))
        assert sum(pages(face, "limit=1"), []) == [*numbers, declined]
        assert face.get(f"/payments/{declined}").json["reason"] == "cancelled"


async def _cancel(face: Face, name: str) -> None:
    engine = face.service.engine
    stored = await engine.store.find(Digester(engine.store.key, "", SCOPE).digest(name))
    assert stored is not None
    await engine.writer.apply(stored.record, Observation(kind=Kind.CANCEL))


BAD_QUERIES = {
    "machine=0": "machine",
    "machine=8388608": "machine",
    "machine=-1": "machine",
    "machine=x": "machine",
    "machine=": "machine",
    "machine=1.0": "machine",
    "machine=%D9%A1": "machine",
    "state=done": "state",
    "state=": "state",
    "state=APPLIED": "state",
    "limit=0": "limit",
    "limit=10001": "limit",
    "limit=-1": "limit",
    "limit=99999999999999999999": "limit",
    "limit=ten": "limit",
    "limit=1&limit=2": "limit",
    "after=1": "after",
    "after=": "after",
    "after=1:x": "after",
    "before=0:1": "before",
    "before=8388608:0": "before",
    "offset=5": "offset",
    "Limit=5": "Limit",
    "x": "x",
}


def test_bad_queries(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        for query, member in BAD_QUERIES.items():
            answer = face.get(f"/payments?{query}")
            assert (answer.status, answer.code, answer.json["member"]) == (400, "member-invalid", member), (
                query
            )


# -- the rest


def test_head(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        number = face.pay("order-1").json["id"]
        for target in (f"/payments/{number}", "/payments", "/payments/by-name/order-1", "/livez", "/readyz"):
            head, get = face.call("HEAD", target), face.get(target)
            assert head.status == get.status, target
            assert head.headers["content-length"] == get.headers["content-length"], target
        assert face.call("HEAD", "/payments/9:9").status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/payment/1",
        "/paymentsx",
        "/console",
        "/metrics",
        "/payments/",
        "//payments",
        "/Payments",
        "/a%00b",
    ],
)
def test_no_such_path(tmp_path: Path, path: str) -> None:
    with Face(tmp_path) as face:
        answer = face.get(path)
        assert (answer.status, answer.code) == (404, "not-found")


@pytest.mark.parametrize("path", ["/payments/", "/payment/", "/livez/", "/readyz/", "/docs/", "/x/"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_no_redirect_from_a_path_with_a_slash_at_its_end(tmp_path: Path, method: str, path: str) -> None:
    with Face(tmp_path) as face:
        answer = face.call(method, path)
        assert (answer.status, answer.code) == (404, "not-found")
        assert face.rows() == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/payments"),
        ("DELETE", "/payments"),
        ("PATCH", "/payment"),
        ("GET", "/payment"),
        ("POST", "/livez"),
        ("DELETE", "/readyz"),
        ("POST", "/openapi.json"),
    ],
)
def test_no_such_method(tmp_path: Path, method: str, path: str) -> None:
    with Face(tmp_path) as face:
        answer = face.call(method, path)
        assert (answer.status, answer.code) == (405, "not-found")
        assert method not in answer.headers["allow"].split(", ")


@pytest.mark.parametrize("path", ["/payments/1:1", "/payments/by-name/a"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_payment_is_only_read(tmp_path: Path, method: str, path: str) -> None:
    with Face(tmp_path) as face:
        assert face.call(method, path).status in (404, 405)
        assert face.rows() == 0


def test_the_pages_for_people(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        page = face.get("/docs")
        assert page.status == 200
        assert page.headers["content-type"].startswith("text/html")
        for part in (b"POST /payments", b"GET /payments/by-name/{name}", b"openapi.json"):
            assert part in page.body
        assert face.get("/openapi.json").json["openapi"].startswith("3.1")


def test_other_protocols_are_not_answered(tmp_path: Path) -> None:
    """A WebSocket is closed, the lifespan of a server is acknowledged."""

    async def lifespan() -> list[str]:
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
        said: list[str] = []

        async def receive() -> dict[str, str]:
            return messages.pop(0)

        async def send(message: dict[str, str]) -> None:
            said.append(message["type"])

        await face.application({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)
        await asyncio.sleep(0)
        return said

    with Face(tmp_path) as face:
        assert face.run(lifespan()) == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
