"""kill -9 at random moments, under load, on two processes: no name twice, no lie, nothing forgotten."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.acceptance.processes import ServeProcess, Site, until
from tests.acceptance.sizes import sized
from tests.faces.contract import Answer

KILLS = sized(4, 60)
CALLERS = 6
AMOUNT_FIRST = 1000


class Load:
    """Callers that pay names one after the other, each name up to six times on either process."""

    def __init__(self, servers: list[ServeProcess]) -> None:
        self._servers = servers
        self._numbers = iter(range(AMOUNT_FIRST, 10**9))
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.told: dict[int, list[Answer]] = {}
        self._threads = [threading.Thread(target=self._pay_on, args=(seed,)) for seed in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def _pay_on(self, seed: int) -> None:
        chance = random.Random(seed)
        while not self._over.is_set():
            with self._lock:
                amount = next(self._numbers)
                answers = self.told[amount] = []
            for _ in range(6):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    answers.append(chance.choice(self._servers).pay(f"order-{amount}", amount=amount))
                    if answers[-1].status == 201 or answers[-1].code == "outcome-unknown":
                        break
                self._over.wait(chance.uniform(0.0, 0.2))

    def end(self) -> None:
        """Let each caller finish its name."""
        self._over.set()
        for thread in self._threads:
            thread.join(60)


def kill_at_random(servers: list[ServeProcess]) -> None:
    """Kill and restart one of the two after the other."""
    chance = random.Random(7)
    for number in range(KILLS):
        time.sleep(chance.uniform(0.2, 0.6))
        victim = servers[number % 2]
        victim.kill()
        victim.start()


def check_journal(site: Site, told: dict[int, list[Answer]]) -> None:
    """What the bank really did against what the callers were told."""
    made = Counter(one["amount"] for one in site.bank.journal())
    assert {amount: count for amount, count in made.items() if count > 1} == {}
    for amount, answers in told.items():
        applied = [answer for answer in answers if answer.status == 201]
        assert not applied or made[amount] == 1, (amount, answers)
        assert len({answer.body for answer in applied}) <= 1, (amount, answers)
    assert set(made) <= set(told)


def rows_of(site: Site) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = site.ops("list", "--last=10000")
    return rows


def check_rows(site: Site) -> None:
    """Every transfer has a row that is applied or in doubt; in doubt lists just those in doubt."""
    rows = rows_of(site)
    states = {row["amount"]: row["state"] for row in rows}
    made = {one["amount"] for one in site.bank.journal()}
    assert set(states.values()) <= {"applied", "in_doubt", "failed"}
    assert {amount for amount, state in states.items() if state == "applied"} <= made
    assert {amount for amount in made if states[amount] not in ("applied", "in_doubt")} == set()
    assert site.in_doubt() == [row["id"] for row in rows if row["state"] == "in_doubt"]
    assert len({row["id"] for row in rows}) == len(rows)


def test_random_kills_under_load(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe", "--delay-ms=5") as site:
        servers = [site.serve(), site.serve()]
        load = Load(servers)
        try:
            kill_at_random(servers)
        finally:
            load.end()
        until(
            lambda: not [row for row in rows_of(site) if row["state"] == "started"],
            what="no row left started",
        )
        check_journal(site, load.told)
        check_rows(site)
        assert sum(answer.status == 201 for answers in load.told.values() for answer in answers) > 10 * KILLS


def test_with_a_bank_that_can_be_asked_nothing_made_stays_in_doubt(tmp_path: Path) -> None:
    """Each transfer whose report was lost in a crash ends applied by itself; no person is needed for it."""
    with Site(tmp_path, "--no-dedupe", "--delay-ms=5") as site:
        servers = [site.serve(rail_query="?find=yes"), site.serve(rail_query="?find=yes")]
        load = Load(servers)
        try:
            kill_at_random(servers)
        finally:
            load.end()
        made = {one["amount"] for one in site.bank.journal()}
        until(
            lambda: {row["amount"] for row in rows_of(site) if row["state"] == "applied"} == made,
            seconds=30,
            what="every transfer applied",
        )
        check_journal(site, load.told)
        check_rows(site)
