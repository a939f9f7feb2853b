"""kill -9 at each named point, restart, retry: 0, 1, 1 transfers; in doubt, in doubt, replay."""

from __future__ import annotations

from http.client import HTTPException
from pathlib import Path

import pytest

from tests.acceptance.processes import ServeProcess, Site, until
from tests.acceptance.sizes import LONG
from tests.faces.contract import Answer

POINTS = {"claimed": 0, "sent": 1, "recorded": 1}
SOME = list(POINTS) if LONG else ["sent"]
"""The points in those set-ups that differ only in who notices the death."""


def check_in_doubt(answer: Answer, *, asked_again: bool = False) -> str:
    """The id in an "outcome unknown" problem."""
    problem = answer.json
    assert (answer.status, problem["code"], problem["effect"]) == (409, "outcome-unknown", "unknown")
    assert problem["retryable"] is asked_again
    assert ("retry-after" in answer.headers) is asked_again
    assert problem["instance"] == f"/payments/{problem['operation_id']}"
    number: str = problem["operation_id"]
    return number


@pytest.mark.parametrize("point", POINTS)
def test_killed_and_restarted(tmp_path: Path, point: str) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        check_crash_and_retry(site, point)


def check_crash_and_retry(site: Site, point: str) -> None:
    """A payment that dies at this point, a restart, a retry: nothing is lost and nothing made twice."""
    server = site.serve(failpoint=f"{point}:kill")
    server.pay_and_die("order-1")
    assert site.transfers() == POINTS[point]
    server.start()
    answer = server.pay_until_decided("order-1")
    assert site.transfers() == POINTS[point]
    check_after_restart(site, server, answer, point)
    assert site.transfers() == POINTS[point]


def check_after_restart(site: Site, server: ServeProcess, answer: Answer, point: str) -> None:
    """The first retry after the restart, and what stays of it."""
    if point == "recorded":
        assert (answer.status, answer.replayed, answer.json["state"]) == (201, True, "applied")
        assert server.pay("order-1").body == answer.body
        assert site.in_doubt() == []
        return
    number = check_in_doubt(answer)
    assert [check_in_doubt(server.pay("order-1")) for _ in range(6)] == [number] * 6
    article = server.call("POST", "/payment", {"uuid": "order-1", "amount": 350, "destination": "roastery"})
    assert check_in_doubt(article) == number
    assert site.in_doubt() == [number]
    assert server.payment("order-1")["state"] == "in_doubt"


@pytest.mark.parametrize("point", SOME)
def test_killed_and_retried_elsewhere(tmp_path: Path, point: str) -> None:
    """Another process on the same file sees the free lock file, and need not wait for missed beats."""
    with Site(tmp_path, "--no-dedupe", policy={"lost_after_seconds": 60.0}) as site:
        first, second = site.serve(failpoint=f"{point}:kill"), site.serve()
        first.pay_and_die("order-1")
        answer = second.pay_until_decided("order-1")
        check_after_restart(site, second, answer, point)
        assert site.transfers() == POINTS[point]


@pytest.mark.parametrize("point", SOME)
def test_a_worker_is_killed_and_replaced(tmp_path: Path, point: str) -> None:
    """The parent takes the failpoint away from the worker that replaces a killed one."""
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve("--workers=2", failpoint=f"{point}:kill")
        with pytest.raises((OSError, HTTPException)):
            server.pay("order-1")
        answer = _decided_by_any(server)
        check_after_restart(site, server, answer, point)
        assert site.transfers() == POINTS[point]
        assert server.stop() == 0


def _decided_by_any(server: ServeProcess) -> Answer:
    """Retries also through the death of the other worker, whose failpoint is still armed."""
    answers: list[Answer] = []

    def decided() -> bool:
        try:
            answers.append(server.pay("order-1"))
        except (OSError, HTTPException):
            return False
        return answers[-1].code != "in-progress"

    until(decided, what="a decision")
    return answers[-1]


def test_started_but_unready_rows_are_found_at_start(tmp_path: Path) -> None:
    """Nobody asks again: the restart alone puts the row in doubt, for ``ops`` and for readers."""
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve(failpoint="sent:kill")
        server.pay_and_die("order-1")
        listed = site.ops("in-doubt")
        assert [(one["state"], one["amount"]) for one in listed] == [("started", 350)]
        server.start()
        assert server.wait_for_state("order-1", "in_doubt")["id"] == listed[0]["id"]
        assert site.in_doubt() == [listed[0]["id"]]
        assert site.transfers() == 1


def test_with_a_bank_that_can_be_asked_a_crash_settles_itself(tmp_path: Path) -> None:
    """``sent`` ends applied by itself, with the bank's receipt; the retry replays."""
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve(failpoint="sent:kill", rail_query="?find=yes")
        server.pay_and_die("order-1")
        server.start()
        view = server.wait_for_state("order-1", "applied")
        assert view["receipt"]["reference"] == site.bank.journal()[0]["reference"]
        answer = server.pay("order-1")
        assert (answer.status, answer.replayed, answer.json) == (201, True, view)
        assert site.transfers() == 1
        assert site.in_doubt() == []


def test_with_a_bank_that_can_be_asked_claimed_stays_in_doubt_within_the_window(tmp_path: Path) -> None:
    """ "Not found" does not count before the settle window has passed."""
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve(failpoint="claimed:kill", rail_query="?find=yes")
        server.pay_and_die("order-1")
        server.start()
        number = check_in_doubt(server.pay_until_decided("order-1"), asked_again=True)
        assert site.in_doubt() == [number]
        assert site.transfers() == 0


def test_with_a_short_window_not_found_settles_and_the_retry_pays(tmp_path: Path) -> None:
    policy = {"send_deadline_seconds": 2.0}
    with Site(tmp_path, "--no-dedupe", policy=policy) as site:
        server = site.serve(failpoint="claimed:kill", rail_query="?find=yes&settle_window=500ms")
        server.pay_and_die("order-1")
        server.start()
        view = server.wait_for_state("order-1", "failed", seconds=30)
        assert view["reason"] == "settled"
        answer = server.pay("order-1")
        assert (answer.status, answer.json["state"], answer.json["attempt"]) == (201, "applied", 2)
        assert site.transfers() == 1
