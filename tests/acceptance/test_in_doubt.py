"""Every way to be in doubt, one transfer in each, and every way out of it."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

from tests.acceptance.processes import ServeProcess, Site, until
from tests.acceptance.test_crashes import check_in_doubt
from tests.faces.contract import Answer

SAID = ("--because=asked the bank by telephone", "--by=ada")


def test_a_bank_slower_than_the_time_out(tmp_path: Path) -> None:
    """In doubt at the time-out, then settled by the late report, and from then on replayed."""
    with Site(tmp_path, "--no-dedupe", "--delay-ms=4000") as site:
        server = site.serve()
        begun = time.monotonic()
        number = check_in_doubt(server.pay("order-1"))
        assert time.monotonic() - begun < 3.9
        assert check_in_doubt(server.pay("order-1")) == number
        assert site.in_doubt() == [number]
        view = server.wait_for_state("order-1", "applied")
        answer = server.pay("order-1")
        assert (answer.status, answer.replayed, answer.json) == (201, True, view)
        assert view["receipt"]["reference"] == site.bank.journal()[0]["reference"]
        assert site.transfers() == 1
        assert site.in_doubt() == []
        kinds = [line["kind"] for line in site.ops("show", number)["journal"]]
        assert kinds == ["in_doubt", "settled"]


def test_the_owner_stands_still_until_it_is_lost(tmp_path: Path) -> None:
    """SIGSTOP while the bank works, a retry elsewhere, SIGCONT: the owner's report is the truth."""
    with Site(tmp_path, "--no-dedupe", "--delay-ms=500", policy={"effect_timeout_seconds": 60.0}) as site:
        owner, other = site.serve(), site.serve()
        assert other.pay("warm-1").status == 201
        answers: list[Answer] = []
        caller = threading.Thread(target=lambda: answers.append(owner.pay("order-1")))
        caller.start()
        until(lambda: _is_started(other, "order-1"), what="order-1 started")
        owner.send_signal(signal.SIGSTOP)
        number = check_in_doubt(other.pay_until_decided("order-1"))
        assert site.in_doubt() == [number]
        assert [one["state"] for one in site_machines(site)] == ["lost", "living"]
        owner.send_signal(signal.SIGCONT)
        caller.join(30)
        assert [(answer.status, answer.json["state"]) for answer in answers] == [(201, "applied")]
        replay = other.pay("order-1")
        assert (replay.status, replay.replayed, replay.body) == (201, True, answers[0].body)
        assert (site.transfers(), site.in_doubt()) == (2, [])
        check_it_registers_anew(owner, number)


def site_machines(site: Site) -> list[dict[str, Any]]:
    """The serving machines, the lost one first."""
    rows = [one for one in site.run("machines") if one["kind"] == "serve"]
    return sorted(rows, key=lambda one: one["state"] == "living")


def _is_started(server: ServeProcess, name: str) -> bool:
    answer = server.call("GET", f"/payments/by-name/{name}")
    return answer.status == 200 and answer.json["state"] == "started"


def check_it_registers_anew(owner: ServeProcess, number: str) -> None:
    """A machine that was declared lost draws no more ids: its next payment bears another number."""
    answer = owner.pay("order-2")
    assert answer.status == 201
    assert answer.json["id"].partition(":")[0] not in ("1", "2")
    assert number.partition(":")[0] in ("1", "2")


def test_the_bank_loses_its_answer(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe", "--lose-answer=1") as site:
        server = site.serve()
        number = check_in_doubt(server.pay("order-1"))
        assert [check_in_doubt(server.pay("order-1")) for _ in range(5)] == [number] * 5
        assert site.in_doubt() == [number]
        assert site.transfers() == 1


def test_an_exception_after_the_effect(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve(failpoint="sent:raise")
        number = check_in_doubt(server.pay("order-1"))
        assert check_in_doubt(server.pay("order-1")) == number
        assert server.pay("order-2").status == 201
        assert site.in_doubt() == [number]
        assert site.transfers() == 2


def test_an_exception_before_the_effect_lets_the_retry_pay(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve(failpoint="claimed:raise")
        first = server.pay("order-1")
        assert (first.status, first.code, first.json["effect"]) == (503, "rail-unreachable", "not_done")
        assert site.transfers() == 0
        second = server.pay("order-1")
        assert (second.status, second.json["attempt"], site.transfers()) == (201, 2, 1)


def test_an_exception_after_the_record_loses_only_the_reply(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve(failpoint="recorded:raise")
        first = server.pay("order-1")
        assert (first.status, first.json["effect"], first.json["retryable"]) == (500, "unknown", True)
        second = server.pay("order-1")
        assert (second.status, second.replayed, site.transfers()) == (201, True, 1)


def test_a_bank_that_can_be_asked_settles_a_lost_answer_by_itself(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe", "--lose-answer=1") as site:
        server = site.serve(rail_query="?find=yes")
        check_in_doubt(server.pay("order-1"), asked_again=True)
        view = server.wait_for_state("order-1", "applied")
        answer = server.pay("order-1")
        assert (answer.status, answer.replayed, answer.json) == (201, True, view)
        assert (site.transfers(), site.in_doubt()) == (1, [])


def test_in_doubt_lists_exactly_the_unsettled(tmp_path: Path) -> None:
    """Among applied, declined and not sent ones, in the order of their ids."""
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve()
        assert server.pay("fine-1").json["state"] == "applied"
        site.bank.stop()
        assert server.pay("away-1").code == "rail-unreachable"
        site.bank.start("--no-dedupe", "--decline=1")
        assert server.pay("declined-1").json["reason"] == "declined"
        site.bank.stop()
        site.bank.start("--no-dedupe", "--lose-answer=1")
        doubtful = [check_in_doubt(server.pay(f"lost-{number}")) for number in range(3)]
        listed = site.ops("in-doubt")
        assert [one["id"] for one in listed] == doubtful
        assert {one["state"] for one in listed} == {"in_doubt"}
        references = {one["reference"] for one in site.bank.journal()}
        assert {one["reference"] for one in listed} < references
        site.ops("resolve", doubtful[1], "--as=applied", *SAID)
        assert site.in_doubt() == [doubtful[0], doubtful[2]]


def test_resolve_as_applied_makes_it_replay(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve(failpoint="sent:raise")
        number = check_in_doubt(server.pay("order-1"))
        told = site.ops("resolve", number, "--as=applied", *SAID)
        assert (told["resolved"], told["state"]) == (True, "applied")
        replays = [server.pay("order-1") for _ in range(3)]
        assert {(one.status, one.replayed) for one in replays} == {(201, True)}
        assert {one.body for one in replays} == {replays[0].body}
        assert (replays[0].json["state"], replays[0].json["receipt"]) == ("applied", None)
        plain = server.call("POST", "/payment", {"uuid": "order-1", "amount": 350, "destination": "roastery"})
        assert (plain.json, plain.replayed) == ({"state": "applied"}, True)
        assert (site.transfers(), site.in_doubt()) == (1, [])
        last = site.ops("show", number)["journal"][-1]
        assert (last["kind"], last["who"], last["because"]) == (
            "settled",
            "ada",
            "asked the bank by telephone",
        )


def test_resolve_as_failed_is_too_early_without_force(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve(failpoint="claimed:kill")
        server.pay_and_die("order-1")
        server.start()
        number = check_in_doubt(server.pay_until_decided("order-1"))
        refused = site.run_ops("resolve", number, "--as=failed", *SAID)
        assert refused.exit_code == 1
        assert "too early" in refused.stderr
        assert site.in_doubt() == [number]
        site.ops("resolve", number, "--as=failed", "--force", *SAID)
        assert site.in_doubt() == []
        retried = server.pay("order-1")
        assert (retried.status, retried.replayed, retried.json["attempt"]) == (201, False, 2)
        assert [server.pay("order-1").replayed for _ in range(3)] == [True] * 3
        assert site.transfers() == 1


def test_forced_wrongly_it_runs_once_more_under_the_same_reference(tmp_path: Path) -> None:
    """The person was wrong: the first transfer was made. A bank that does not dedupe makes another one,
    and exactly one, under the same reference; nothing but --force can bring that about."""
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve(failpoint="sent:raise")
        number = check_in_doubt(server.pay("order-1"))
        site.ops("resolve", number, "--as=failed", "--force", *SAID)
        retried = server.pay("order-1")
        assert (retried.status, retried.json["attempt"], retried.json["id"]) == (201, 2, number)
        assert [server.pay("order-1").replayed for _ in range(3)] == [True] * 3
        journal = site.bank.journal()
        assert len(journal) == 2
        assert len({one["reference"] for one in journal}) == 1


def test_forced_wrongly_a_bank_that_dedupes_makes_no_second_transfer(tmp_path: Path) -> None:
    with Site(tmp_path) as site:
        server = site.serve(failpoint="sent:raise")
        number = check_in_doubt(server.pay("order-1"))
        site.ops("resolve", number, "--as=failed", "--force", *SAID)
        retried = server.pay("order-1")
        assert (retried.status, retried.json["state"], retried.json["attempt"]) == (201, "applied", 2)
        assert site.transfers() == 1


def test_forced_wrongly_a_bank_that_can_be_asked_is_asked_first(tmp_path: Path) -> None:
    """The sweeper is kept from asking by a bank that is away until the person has spoken."""
    with Site(tmp_path, "--no-dedupe", "--no-find") as site:
        server = site.serve(failpoint="sent:raise", rail_query="?find=yes")
        number = check_in_doubt(server.pay("order-1"), asked_again=True)
        site.ops("resolve", number, "--as=failed", "--force", *SAID)
        site.bank.stop()
        site.bank.start("--no-dedupe")
        retried = server.pay("order-1")
        assert (retried.status, retried.json["state"], retried.json["attempt"]) == (201, "applied", 1)
        assert retried.replayed
        assert site.transfers() == 1
