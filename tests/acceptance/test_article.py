"""The client of one article against ``POST /payment``: no name twice, each success in the journal."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

from tests.acceptance import article_client
from tests.acceptance.processes import ServeProcess, Site, at_once
from tests.acceptance.sizes import sized

PAYMENTS = sized(60, 200)
CALLERS = 4


def pay_all(server: ServeProcess) -> dict[int, str]:
    """What the client says of each of PAYMENTS payments; the amount tells them apart."""
    url = f"http://127.0.0.1:{server.port}/payment"

    def pay(number: int) -> tuple[int, str]:
        key = str(uuid.uuid4())
        return 1000 + number, article_client.pay(
            url, 1000 + number, "alice", key=key, first_wait_seconds=0.01
        )

    batches = range(0, PAYMENTS, CALLERS)
    return dict(one for start in batches for one in at_once(CALLERS, lambda n, start=start: pay(start + n)))


def check_told_and_made(site: Site, told: dict[int, str]) -> Counter[str]:
    """No name was sent twice and every reported success was made; returns what was told how often."""
    made = Counter(one["amount"] for one in site.bank.journal())
    assert {amount: count for amount, count in made.items() if count > 1} == {}
    assert [amount for amount, result in told.items() if result == "applied" and made[amount] != 1] == []
    assert set(made) <= set(told)
    return Counter(told.values())


def test_with_simulated_failures(tmp_path: Path) -> None:
    """Each try fails with 1 - 0.9^3, so most payments meet one and nearly all succeed in six tries."""
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve("--simulate-failures=0.1")
        results = check_told_and_made(site, pay_all(server))
        assert results["applied"] > PAYMENTS * 0.9
        assert set(results) <= {"applied", "gave up"}
        assert site.in_doubt() == []


def test_with_a_bank_that_declines_and_loses_answers(tmp_path: Path) -> None:
    """What is in doubt is never told as success or failure: the client stops, the operator is told."""
    with Site(tmp_path, "--no-dedupe", "--decline=0.05", "--lose-answer=0.05") as site:
        server = site.serve("--simulate-failures=0.1")
        told = pay_all(server)
        results = check_told_and_made(site, told)
        assert results["applied"] > PAYMENTS * 0.7
        unsettled = site.ops("in-doubt")
        assert {one["state"] for one in unsettled} <= {"in_doubt"}
        doubtful = {one["amount"] for one in unsettled}
        assert {amount for amount, result in told.items() if result == "stopped"} <= doubtful
        assert {amount for amount, result in told.items() if result == "applied"} & doubtful == set()
        lost = {one["amount"] for one in site.bank.journal()} & doubtful
        assert lost == doubtful


def test_several_clients_under_one_uuid(tmp_path: Path) -> None:
    """The same order sent by four devices at once, with failures: still one transfer."""
    with Site(tmp_path, "--no-dedupe", "--delay-ms=20") as site:
        server = site.serve("--simulate-failures=0.1")
        url = f"http://127.0.0.1:{server.port}/payment"
        names = [str(uuid.uuid4()) for _ in range(sized(10, 50))]
        told = [
            at_once(CALLERS, lambda _, name=name: article_client.pay(url, 500, "alice", key=name))
            for name in names
        ]
        assert {result for results in told for result in results} <= {"applied", "gave up"}
        made = Counter(one["reference"] for one in site.bank.journal())
        assert set(made.values()) == {1}
        assert sum("applied" in results for results in told) <= len(made) <= len(names)
