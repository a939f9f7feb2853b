"""One name, one transfer in the bank's journal: retries and concurrent calls, one process and several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.processes import ORDER, ServeProcess, Site, at_once, until
from tests.acceptance.sizes import sized
from tests.faces.contract import Answer

CALLS = 50
ROUNDS = sized(2, 20)


def test_six_plain_retries(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve()
        answers = [server.pay("order-1") for _ in range(6)]
        assert [answer.status for answer in answers] == [201] * 6
        assert [answer.replayed for answer in answers] == [False] + [True] * 5
        assert len({answer.body for answer in answers}) == 1
        assert {answer.headers["location"] for answer in answers} == {f"/payments/{answers[0].json['id']}"}
        assert site.transfers() == 1
        assert site.in_doubt() == []


def check_one_transfer(site: Site, name: str, answers: list[Answer], pay: Callable[[int], Answer]) -> None:
    """Of these concurrent answers one is the first, the others 409 or replays; afterwards all replay."""
    told = Counter((answer.status, answer.code, answer.replayed) for answer in answers)
    assert told[(201, None, False)] == 1, told
    assert set(told) <= {(201, None, False), (201, None, True), (409, "in-progress", False)}, told
    afterwards = [pay(number) for number in range(6)]
    assert {(answer.status, answer.replayed) for answer in afterwards} == {(201, True)}, afterwards
    assert len({answer.body for answer in [*afterwards, *answers] if answer.status == 201}) == 1
    journal = site.bank.journal()
    assert [one["amount"] for one in journal].count(amount_of(name)) == 1, journal
    assert site.in_doubt() == []


def amount_of(name: str) -> int:
    """A different amount for each name, so that the journal shows which name it was."""
    return 1000 + int(name.rpartition("-")[2])


def post_at_once(site: Site, servers: list[ServeProcess], name: str) -> None:
    """CALLS identical posts, spread over the servers."""

    def pay(number: int) -> Answer:
        return servers[number % len(servers)].pay(name, amount=amount_of(name))

    check_one_transfer(site, name, at_once(CALLS, pay), pay)


@pytest.mark.parametrize("processes", [1, 2])
def test_concurrent_identical_posts(tmp_path: Path, processes: int) -> None:
    """A bank that takes its time, so that the calls really meet."""
    with Site(tmp_path, "--no-dedupe", "--delay-ms=150") as site:
        servers = [site.serve() for _ in range(processes)]
        for number in range(ROUNDS):
            post_at_once(site, servers, f"order-{number}")
        assert site.transfers() == ROUNDS
        for server in servers:
            assert server.stop() == 0


def test_concurrent_identical_posts_to_two_workers(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe", "--delay-ms=150") as site:
        server = site.serve("--workers=2")
        until(lambda: _both_have_paid(site, server), what="a payment by each worker")
        before = site.transfers()
        for number in range(ROUNDS):
            post_at_once(site, [server], f"order-{number}")
        assert site.transfers() - before == ROUNDS
        assert server.stop() == 0


def _both_have_paid(site: Site, server: ServeProcess) -> bool:
    """Whether the two workers have each claimed a payment: then the kernel spreads connections."""
    number = site.transfers()
    server.pay(f"warm-{number}", amount=1)
    return len({view["id"].partition(":")[0] for view in server.call("GET", "/payments").json["data"]}) == 2


def test_many_names_at_once_on_two_processes(tmp_path: Path) -> None:
    """Each of many names posted three times, shuffled over two processes: one transfer each."""
    names = sized(40, 400)
    with Site(tmp_path, "--no-dedupe") as site:
        servers = [site.serve(), site.serve()]

        def pay(number: int) -> Answer:
            name = f"order-{number % names}"
            return servers[number % 2].pay(name, amount=amount_of(name))

        answers = [answer for start in range(0, 3 * names, 40) for answer in _batch(pay, start, 40)]
        assert {answer.status for answer in answers} <= {201, 409}
        made = Counter(one["amount"] for one in site.bank.journal())
        assert made == {amount_of(f"order-{number}"): 1 for number in range(names)}
        again = [pay(number) for number in range(names)]
        assert {(answer.status, answer.replayed) for answer in again} == {(201, True)}


def _batch(pay: Callable[[int], Answer], start: int, count: int) -> list[Answer]:
    return at_once(count, lambda number: pay(start + number))


def test_header_member_and_plain_form_share_one_name(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve()
        first = server.call("POST", "/payment", {**ORDER, "uuid": "one"})
        assert (first.status, first.json, first.replayed) == (200, {"state": "applied"}, False)
        again = [
            server.call("POST", "/payment", {**ORDER, "uuid": "one"}),
            server.call("POST", "/payments", {**ORDER, "uuid": "one"}),
            server.call("POST", "/payments", {**ORDER, "uuid": "one"}, Idempotency_Key='"one"'),
            server.call("POST", "/payments", {**ORDER, "currency": "USD"}, Idempotency_Key="one"),
        ]
        assert [(answer.status, answer.replayed) for answer in again] == [(200, True), *[(201, True)] * 3]
        assert site.transfers() == 1


def test_another_request_under_a_known_name(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        check_another_request_is_refused(site)


def check_another_request_is_refused(site: Site) -> None:
    """Whoever asks for something else under a known name is told so, and not that it was done."""
    server = site.serve()
    first = server.pay("order-1")
    for other in ({"amount": 351}, {"destination": "mill"}, {"currency": "EUR"}, {"description": "beans"}):
        answer = server.pay("order-1", **other)
        assert (answer.status, answer.code, answer.json.get("members")) == (422, "name-reused", [*other])
    again = server.pay("order-1")
    assert (again.replayed, again.body) == (True, first.body)
    assert site.transfers() == 1
