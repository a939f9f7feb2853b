"""What is on the wire: one request for each try, one name, the same bytes, no redirect, no surprise."""

from __future__ import annotations

import json
import uuid

import httpx2
import pytest

from nonbis.client import Backoff, Client
from nonbis.client.client import _Wire
from nonbis.client.verdict import Meaning
from tests.client.paying import BOTH, ORDER
from tests.client.quick import QuickPause
from tests.client.scripted import APPLIED, STORE_UNAVAILABLE, Close, Reset, Say, Scripted, http, payment, say

KEEP = Say(http(201, payment()), keep=True)


@pytest.mark.parametrize("pays", BOTH)
@pytest.mark.parametrize("loss", [Close(), Reset()])
def test_a_lost_connection_is_one_request_and_the_next_try_another(pays, loss):
    with Scripted([loss, APPLIED]) as server:
        verdict = pays(server.url).pay()
    assert len(server.received) == 2 == len(verdict.tries)


@pytest.mark.parametrize("pays", BOTH)
def test_with_one_try_there_is_one_request_and_it_has_a_name(pays):
    with Scripted([Close(), APPLIED]) as server:
        verdict = pays(server.url, backoff=Backoff(tries=1)).pay()
    assert verdict.state == "gave_up"
    assert len(server.received) == 1
    assert server.received[0].values("idempotency-key") == [f'"{verdict.name}"']


def test_a_kept_connection_that_dies_after_the_request_is_not_used_to_send_twice():
    with Scripted([KEEP, Close(), KEEP]) as server:
        with Client(server.url, pause=QuickPause(), backoff=Backoff(tries=1)) as client:
            assert client.pay(**ORDER).state == "applied"
            lost = client.pay(**ORDER)
        assert server.connections == 1
    assert len(server.received) == 2
    assert lost.state == "gave_up"


@pytest.mark.parametrize("pays", BOTH)
def test_a_callers_client_that_follows_redirects_is_told_not_to(pays):
    with Scripted([APPLIED]) as elsewhere, Scripted([say(307, Location=elsewhere.url)]) as server:
        payer = pays(server.url)
        payer.caller = {"follow_redirects": True}
        assert payer.pay().state == "gave_up"
    assert (len(server.received), elsewhere.received) == (1, [])


@pytest.mark.parametrize("pays", BOTH)
@pytest.mark.parametrize("spelling", ["Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY"])
def test_one_name_wins_over_a_default_header_in_any_spelling(pays, spelling):
    with Scripted([STORE_UNAVAILABLE, STORE_UNAVAILABLE, APPLIED]) as server:
        payer = pays(server.url)
        payer.caller = {"headers": {spelling: "a-default", "X-Tenant": "t1"}}
        payer.pay(name="order-7")
    assert [one.values("idempotency-key") for one in server.received] == [['"order-7"']] * 3
    assert server.received[0].values("x-tenant") == ["t1"]


@pytest.mark.parametrize("pays", BOTH)
def test_a_hook_of_the_caller_that_raises_never_becomes_a_lie(pays):
    def raise_for_status(response):
        response.raise_for_status()

    async def raise_for_status_async(response):
        response.raise_for_status()

    hook = raise_for_status if pays is BOTH[0] else raise_for_status_async
    with Scripted([say(500)]) as server:
        payer = pays(server.url)
        payer.caller = {"event_hooks": {"response": [hook]}}
        verdict = payer.pay()
    assert verdict.state == "gave_up"
    assert len(server.received) == 6


@pytest.mark.parametrize("pays", BOTH)
def test_proxies_of_the_environment_are_not_used(pays, monkeypatch):
    with Scripted([APPLIED]) as server, Scripted([APPLIED]) as proxy:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(variable, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        pays(server.url).pay()
    assert (len(server.received), len(proxy.received)) == (1, 0)


@pytest.mark.parametrize("pays", BOTH)
def test_an_answer_of_a_proxy_that_takes_the_post_is_unknown(pays):
    with Scripted([say(502, b"<html>")]) as proxy:
        payer = pays("http://nonbis.invalid")
        payer.caller = {"proxy": proxy.url}
        verdict = payer.pay()
    assert verdict.state == "gave_up"
    assert len(proxy.received) == 6


@pytest.mark.parametrize("pays", BOTH)
def test_a_proxy_that_refuses_the_tunnel_is_not_reached(pays):
    with Scripted([say(403, b"<html>")]) as proxy:
        payer = pays("https://nonbis.invalid")
        payer.caller = {"proxy": proxy.url}
        verdict = payer.pay()
    assert verdict.state == "not_reached"
    assert proxy.received[0].head.startswith(b"CONNECT ")
    assert proxy.received[0].body == b""


def test_a_transport_that_sends_again_by_itself_is_not_believed():
    """It loses the first post, tries again by itself and reports the refused connection of the second."""

    class Resending(httpx2.HTTPTransport):
        def handle_request(self, request):
            try:
                return super().handle_request(request)
            except httpx2.RemoteProtocolError:
                raise httpx2.ConnectError("refused") from None

    with (
        Scripted([Close()]) as server,
        Client(server.url, transport=Resending(), pause=QuickPause(), backoff=Backoff(tries=2)) as client,
    ):
        verdict = client.pay(**ORDER)
    assert verdict.state == "gave_up"
    assert [one.meaning for one in verdict.tries] == [Meaning.UNKNOWN] * 2


def test_the_first_byte_is_seen_in_http2_too():
    wire = _Wire()
    wire.hear("connection.connect_tcp.complete", {})
    assert not wire.began
    wire.hear("http2.send_request_headers.started", {"stream_id": 1})
    assert wire.began


@pytest.mark.parametrize("pays", BOTH)
def test_the_request(pays):
    with Scripted([APPLIED]) as server:
        pays(server.url + "/api/").pay(
            name='a"b\\c', currency="USD", description="Käse", metadata={"order": "7"}
        )
    [request] = server.received
    assert request.head.startswith(b"POST /api/payments HTTP/1.1")
    assert request.values("idempotency-key") == ['"a\\"b\\\\c"']
    assert request.values("content-type") == ["application/json"]
    assert request.values("accept-encoding") == ["identity"]
    assert json.loads(request.body) == {
        "amount": 1250,
        "currency": "USD",
        "destination": "alice",
        "description": "Käse",
        "metadata": {"order": "7"},
    }


@pytest.mark.parametrize("pays", BOTH)
def test_members_that_were_not_given_are_not_sent_and_the_name_is_a_random_uuid(pays):
    with Scripted([APPLIED]) as server:
        names = {pays(server.url).pay().name for _ in range(3)}
    assert len(names) == 3
    assert {uuid.UUID(name).version for name in names} == {4}
    assert json.loads(server.received[0].body) == {"amount": 1250, "destination": "alice"}
