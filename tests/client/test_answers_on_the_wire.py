"""Every row of the verdict table, against a server on a raw socket, with both clients."""

from __future__ import annotations

import json

import pytest

from nonbis.client import Refused
from nonbis.client.answers import RULES
from nonbis.client.verdict import Meaning
from tests.client.paying import BOTH, SHORT
from tests.client.scripted import (
    APPLIED,
    CANCELLED,
    DECLINED,
    EXPIRED,
    IN_DOUBT,
    IN_DOUBT_ASKED,
    IN_PROGRESS,
    NAME_REUSED,
    PROXY_502,
    RAIL_UNREACHABLE,
    SIMULATED,
    STORE_UNAVAILABLE,
    UNAUTHORISED,
    Close,
    Hang,
    Reset,
    Scripted,
    free_port,
    http,
    payment,
    problem,
    say,
)

TRUNCATED = Close(http(201, payment())[:-20])
ROWS = {
    # name: (script, verdict, how many posts arrive)
    "applied": ([APPLIED], "applied", 1),
    "declined stops": ([DECLINED, APPLIED], "failed", 1),
    "rail unreachable, then applied": ([RAIL_UNREACHABLE, APPLIED], "applied", 2),
    "rail unreachable to the end": ([RAIL_UNREACHABLE], "failed", 6),
    "store unavailable, then applied": ([STORE_UNAVAILABLE, APPLIED], "applied", 2),
    "store unavailable to the end": ([STORE_UNAVAILABLE], "gave_up", 6),
    "simulated failure, then the replay": ([SIMULATED, APPLIED], "applied", 2),
    "simulated failure to the end": ([SIMULATED], "gave_up", 6),
    "in progress, then applied": ([IN_PROGRESS, IN_PROGRESS, APPLIED], "applied", 3),
    "in progress to the end": ([IN_PROGRESS], "gave_up", 6),
    "in doubt stops at once": ([IN_DOUBT, APPLIED], "in_doubt", 1),
    "in doubt, being asked, then applied": ([IN_DOUBT_ASKED, APPLIED], "applied", 2),
    "in doubt, being asked, then declined": ([IN_DOUBT_ASKED, DECLINED], "failed", 2),
    "in doubt, being asked, to the end": ([IN_DOUBT_ASKED], "in_doubt", 6),
    "in doubt, being asked, then no more": ([IN_DOUBT_ASKED, IN_DOUBT], "in_doubt", 2),
    "in doubt with an unreadable Retry-After": (
        [problem(409, "outcome-unknown", retry_after="soon"), APPLIED],
        "in_doubt",
        1,
    ),
    "in doubt, then resets": ([IN_DOUBT_ASKED, Reset()], "in_doubt", 6),
    "in doubt, then unauthorised": ([IN_DOUBT_ASKED, UNAUTHORISED], "in_doubt", 2),
    "cancelled": ([CANCELLED], "failed", 1),
    "expired": ([EXPIRED], "in_doubt", 1),
    "a 410 that says nothing": ([say(410, b"gone", "text/plain")], "gave_up", 1),
    "a 409 that says nothing": ([say(409, b"conflict", "text/plain")], "gave_up", 1),
    "proxy's 502 to the end": ([PROXY_502], "gave_up", 6),
    "proxy's 502, then applied": ([PROXY_502, APPLIED], "applied", 2),
    "504, 500, 501 retry": ([say(504), say(500), say(501), APPLIED], "applied", 4),
    "408, 425, 429 retry": ([say(408), say(425), say(429), APPLIED], "applied", 4),
    "201 that is not JSON": ([say(201, b"{oops")], "gave_up", 6),
    "201 with a member twice": ([say(201, b'{"state":"failed","state":"applied"}')], "gave_up", 6),
    "201 without a payment": ([say(201, {"state": "applied"})], "gave_up", 6),
    "201 with another amount": ([say(201, payment(amount=99))], "gave_up", 6),
    "201 with another payee": ([say(201, payment(destination="mallory"))], "gave_up", 6),
    "201 that is a list": ([say(201, b"[]")], "gave_up", 6),
    "201 still started": ([say(201, payment("started"))], "gave_up", 6),
    "200 from a captive portal": ([say(200, b"<html>", "text/html")], "gave_up", 6),
    "200 with a payment is not the contract": ([say(200, payment())], "gave_up", 6),
    "truncated body, then the replay": ([TRUNCATED, APPLIED], "applied", 2),
    "truncated body to the end": ([TRUNCATED], "gave_up", 6),
    "reset inside the body": ([Reset(http(201, payment())[:-20])], "gave_up", 6),
    "not HTTP": ([Close(b"220 smtp ready\r\n")], "gave_up", 6),
    "reset before any answer": ([Reset()], "gave_up", 6),
    "closed before any answer": ([Close(), APPLIED], "applied", 2),
    "read time-out, then the replay": ([Hang(), APPLIED], "applied", 2),
    "time-out inside the body": ([Hang(http(201, payment())[:-20]), APPLIED], "applied", 2),
    "redirect": ([say(307, Location="/elsewhere"), APPLIED], "gave_up", 1),
    "see other": ([say(303, Location="/payments/7:42"), APPLIED], "gave_up", 1),
    "a body beyond 1 MiB": (
        [say(201, b" " * (1 << 20) + json.dumps(payment()).encode()), APPLIED],
        "applied",
        2,
    ),
    "a code outside a problem document": ([say(409, {"code": "in-progress"}), APPLIED], "gave_up", 1),
    "not done, but nobody says why": ([problem(503, "", "not_done"), UNAUTHORISED], "gave_up", 2),
    "time-out, then bad permission": ([Hang(), UNAUTHORISED], "gave_up", 2),
    "reset, then name reused": ([Reset(), NAME_REUSED], "gave_up", 2),
    "reset, then store unavailable": ([Reset(), STORE_UNAVAILABLE], "gave_up", 6),
    "reset, then declined": ([Reset(), DECLINED], "failed", 2),
    "reset, then rail unreachable to the end": ([Reset(), RAIL_UNREACHABLE], "failed", 6),
    "rail unreachable, then resets": ([RAIL_UNREACHABLE, Reset()], "gave_up", 6),
    "rail unreachable, then store unavailable": ([RAIL_UNREACHABLE, STORE_UNAVAILABLE], "failed", 6),
    "rail unreachable, then unauthorised": ([RAIL_UNREACHABLE, UNAUTHORISED], "failed", 2),
    "rail unreachable, then in progress": ([RAIL_UNREACHABLE, IN_PROGRESS], "gave_up", 6),
}
REFUSALS = {
    "bad member": (problem(400, "member-invalid", "not_done", member="amount"), 400, "member-invalid"),
    "bad body": (problem(400, "body-malformed", "not_done"), 400, "body-malformed"),
    "too large": (problem(413, "too-large", "not_done"), 413, "too-large"),
    "wrong type": (problem(415, "unsupported-type", "not_done"), 415, "unsupported-type"),
    "name reused": (NAME_REUSED, 422, "name-reused"),
    "name in the future": (problem(400, "name-in-future", "not_done"), 400, "name-in-future"),
    "possible duplicate": (problem(409, "possible-duplicate", "not_done"), 409, "possible-duplicate"),
    "unauthorised": (UNAUTHORISED, 401, "unauthorised"),
    "forbidden by a proxy": (say(403, b"<html>no</html>", "text/html"), 403, ""),
    "wrong address": (say(404, b"nothing here", "text/plain"), 404, ""),
    "payment required": (say(402), 402, ""),
}


@pytest.mark.parametrize("pays", BOTH)
@pytest.mark.parametrize("row", ROWS)
def test_rows(row, pays):
    script, state, posts = ROWS[row]
    timeout = SHORT if any(isinstance(action, Hang) for action in script) else None
    with Scripted(script) as server:
        payer = pays(server.url, timeout=timeout)
        verdict = payer.pay()
    assert verdict.state == state
    assert len(server.received) == posts == len(verdict.tries)
    assert len(payer.pause.slept) == posts - 1
    assert len({(one.body, *one.values("idempotency-key")) for one in server.received}) == 1
    assert server.received[0].values("idempotency-key") == [f'"{verdict.name}"']


@pytest.mark.parametrize("pays", BOTH)
@pytest.mark.parametrize("row", REFUSALS)
def test_refusals_stop_at_once_and_are_raised(row, pays):
    action, status, code = REFUSALS[row]
    with Scripted([action, APPLIED]) as server, pytest.raises(Refused) as caught:
        pays(server.url).pay(name="order-1")
    refused = caught.value
    assert (refused.status, refused.problem.code, refused.name) == (status, code, "order-1")
    assert [one.meaning for one in refused.tries] == [Meaning.REFUSED]
    assert len(server.received) == 1
    assert str(status) in str(refused)
    assert code in str(refused)


def test_every_rule_of_the_table_is_met_by_a_row():
    met = set()
    for script in [row[0] for row in ROWS.values()] + [[row[0]] for row in REFUSALS.values()]:
        with Scripted(script) as server:
            try:
                tries = BOTH[0](server.url, timeout=SHORT).pay().tries
            except Refused as refused:
                tries = refused.tries
        for one in tries:
            if one.status is not None:
                sign = "applied" if one.meaning == "applied" else one.code
                sign = "failed" if one.status == 201 and one.meaning == "failed" else sign
                met.add(next(r for r in RULES if one.status in r.statuses and r.sign in (None, sign)))
    assert met == set(RULES)


@pytest.mark.parametrize("pays", BOTH)
def test_refused_connections_are_not_reached(pays):
    verdict = pays(f"http://127.0.0.1:{free_port()}").pay()
    assert verdict.state == "not_reached"
    assert [one.meaning for one in verdict.tries] == [Meaning.NOT_SENT] * 6
    assert verdict.unanswered == 0


@pytest.mark.parametrize("pays", BOTH)
def test_a_host_without_address_is_not_reached(pays):
    assert pays("http://nonbis.invalid:8000").pay().state == "not_reached"


@pytest.mark.parametrize("pays", BOTH)
def test_failed_tls_is_not_reached(pays):
    with Scripted([Close()]) as server:
        verdict = pays(server.url.replace("http:", "https:"), timeout=SHORT).pay()
    assert verdict.state == "not_reached"
    assert server.received == []


@pytest.mark.parametrize("first", [Hang(), Reset(), Close(), TRUNCATED, SIMULATED, PROXY_502])
@pytest.mark.parametrize("pays", BOTH)
def test_one_try_that_may_have_arrived_forbids_not_reached_for_good(first, pays):
    """The server takes one post and is gone: the other five are refused connections."""
    server = Scripted([first]).__enter__()
    ended = []

    def end_the_server(progress):
        if progress.number == 2:
            server.__exit__()
            ended.append(True)

    verdict = pays(server.url, timeout=SHORT, watch=end_the_server).pay()
    assert ended == [True]
    assert verdict.state == "gave_up"
    assert [one.meaning for one in verdict.tries] == [Meaning.UNKNOWN] + [Meaning.NOT_SENT] * 5
    assert verdict.unanswered == 1


@pytest.mark.parametrize("pays", BOTH)
def test_a_failed_answer_stands_when_nothing_left_afterwards(pays):
    server = Scripted([RAIL_UNREACHABLE]).__enter__()
    verdict = pays(server.url, watch=lambda told: told.number == 2 and server.__exit__()).pay()
    assert verdict.state == "failed"
    assert verdict.problem.code == "rail-unreachable"
    assert verdict.payment is None


@pytest.mark.parametrize("pays", BOTH)
def test_retry_failed_posts_again_under_the_same_name(pays):
    with Scripted([DECLINED, DECLINED, APPLIED]) as server:
        verdict = pays(server.url).pay(retry_failed=True)
    assert verdict.state == "applied"
    assert len(server.received) == 3
    assert len({one.body for one in server.received}) == 1


@pytest.mark.parametrize("pays", BOTH)
@pytest.mark.parametrize(
    "final",
    [
        CANCELLED,
        say(201, payment("failed", reason="rejected")),
        say(201, payment("failed", reason="cancelled")),
        say(201, payment("failed", reason="declined"), Idempotent_Replayed="true"),
    ],
)
def test_retry_failed_does_not_ask_for_what_can_never_be(pays, final):
    with Scripted([final, APPLIED]) as server:
        assert pays(server.url).pay(retry_failed=True).state == "failed"
    assert len(server.received) == 1


@pytest.mark.parametrize("pays", BOTH)
def test_what_the_verdict_carries(pays):
    with Scripted([IN_DOUBT_ASKED, Close(), APPLIED]) as server:
        verdict = pays(server.url).pay(name="order-7")
    assert verdict.operation_id == "7:42"
    assert (verdict.payment.amount, verdict.payment.currency) == (1250, "USD")
    assert verdict.payment.receipt == {"reference": "abc"}
    assert verdict.problem.code == "outcome-unknown"
    assert [(one.number, one.status, one.code) for one in verdict.tries] == [
        (1, 409, "outcome-unknown"),
        (2, None, ""),
        (3, 201, ""),
    ]
    assert "RemoteProtocolError" in verdict.tries[1].error
    assert [one.waited_seconds for one in verdict.tries] == [0.0, 2.0, 1.0]


@pytest.mark.parametrize("pays", BOTH)
def test_in_doubt_names_the_operation(pays):
    with Scripted([IN_DOUBT]) as server:
        verdict = pays(server.url).pay()
    assert (verdict.operation_id, verdict.payment) == ("7:42", None)


@pytest.mark.parametrize("pays", BOTH)
def test_the_waits_double_and_retry_after_is_honoured_and_capped(pays):
    script = [
        SIMULATED,
        SIMULATED,
        problem(503, "store-unavailable", retry_after="20"),
        problem(429, "", retry_after="99999"),
        say(503, Retry_After="Fri, 01 Jan 2027 00:00:11 GMT", Date="Fri, 01 Jan 2027 00:00:00 GMT"),
        APPLIED,
    ]
    with Scripted(script) as server:
        payer = pays(server.url)
        payer.pause.by_chance = 0.0
        assert payer.pay().state == "applied"
    assert payer.pause.slept == [0.25, 0.5, 20.0, 60.0, 11.0]


@pytest.mark.parametrize("pays", BOTH)
def test_a_payment_in_another_currency_is_not_this_one(pays):
    with Scripted([say(201, payment(currency="EUR"))]) as server:
        assert pays(server.url).pay(currency="USD").state == "gave_up"
        assert pays(server.url).pay(currency="EUR").state == "applied"
        assert pays(server.url).pay().state == "applied"


@pytest.mark.parametrize("pays", BOTH)
def test_not_done_and_then_refused_is_refused(pays):
    with Scripted([STORE_UNAVAILABLE, UNAUTHORISED]) as server, pytest.raises(Refused) as caught:
        pays(server.url).pay()
    assert [one.meaning for one in caught.value.tries] == [Meaning.NOT_DONE, Meaning.REFUSED]


@pytest.mark.parametrize("pays", BOTH)
def test_the_last_definite_answer_is_the_one_that_is_shown(pays):
    second = say(201, payment(attempt=2))
    with Scripted([DECLINED, second]) as server:
        verdict = pays(server.url).pay(retry_failed=True)
    assert (verdict.payment.state, verdict.payment.attempt) == ("applied", 2)
    with Scripted([problem(503, "rail-unreachable", operation_id="7:1"), IN_DOUBT]) as server:
        assert pays(server.url).pay().operation_id == "7:42"
