"""The http rail against real sockets: what is surely not sent, what is unknown, and never sent twice."""

from __future__ import annotations

import asyncio
import functools
import json
import socket
import time

import pytest

from nonbis.core.payments import Transfer
from nonbis.core.policy import RailFacts
from nonbis.errors import NotSent, OutcomeUnknown
from nonbis.ports import FoundKind
from nonbis.rails import http as http_rail
from nonbis.rails.http import HttpRail
from tests.rails.gates import COFFEE, CountingGate
from tests.rails.wire import Wire

MADE = {"reference": "r1", "amount": 350, "currency": "EUR", "destination": "roastery", "at": "now"}


def run(test):
    @functools.wraps(test)
    def wrapped(*arguments, **named):
        asyncio.run(asyncio.wait_for(test(*arguments, **named), 30))

    return wrapped


class Opened:
    """A rail that is closed at the end of its block."""

    def __init__(self, url, *, answer_seconds=10.0, **facts):
        self.rail = HttpRail(
            url,
            RailFacts(name="bank", settle_window_seconds=0.0, **facts),
            send_deadline_seconds=answer_seconds,
        )

    async def __aenter__(self):
        return self.rail

    async def __aexit__(self, *_):
        await self.rail.close()


async def send(rail, gate=None, reference="r1"):
    return await rail.send(COFFEE, reference, gate or CountingGate())


async def answer_all(connection):
    while True:
        headers, _ = await connection.read_request()
        await connection.answer(201, {**MADE, "reference": headers["reference"]})


# -- surely not sent ---------------------------------------------------------------------------------------


async def expect_not_sent(url):
    gate = CountingGate()
    async with Opened(url) as rail:
        with pytest.raises(NotSent):
            await send(rail, gate)
    assert gate.calls == 0, "the gate is called only when a request can be written"


@run
async def test_connection_refused_is_not_sent():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        await expect_not_sent(f"http://127.0.0.1:{unused.getsockname()[1]}")


@run
async def test_a_name_that_does_not_resolve_is_not_sent(monkeypatch):
    async def getaddrinfo(*arguments, **named):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo, raising=False)
    await expect_not_sent("http://bank.invalid:80")


@run
async def test_a_black_hole_is_not_sent(monkeypatch):
    monkeypatch.setattr(http_rail, "CONNECT_SECONDS", 0.3)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        crowd = []
        for _ in range(4):
            crowd.append(socket.socket())
            crowd[-1].setblocking(False)
            crowd[-1].connect_ex(listener.getsockname())
        try:
            await expect_not_sent(f"http://127.0.0.1:{listener.getsockname()[1]}")
        finally:
            for each in crowd:
                each.close()


@run
async def test_no_room_in_the_pool_is_not_sent(monkeypatch):
    monkeypatch.setattr(http_rail, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(http_rail, "POOL_SECONDS", 0.2)
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def hang(connection):
        await connection.read_request()
        arrived.set()
        await go_on.wait()
        await connection.answer(201, MADE)

    async with Wire(hang) as wire, Opened(wire.url) as rail:
        first = asyncio.create_task(send(rail))
        await arrived.wait()
        gate = CountingGate()
        with pytest.raises(NotSent, match="PoolTimeout"):
            await send(rail, gate, "r2")
        assert gate.calls == 0
        go_on.set()
        assert (await first).reference == "r1"
        assert wire.requests == 1


@pytest.mark.parametrize("reply", [b"HTTP/1.1 400 no TLS here\r\n\r\n", b""])
@run
async def test_a_failed_tls_handshake_is_not_sent(reply):
    async def no_tls(connection):
        await connection.read_some()
        await connection.write(reply)

    async with Wire(no_tls) as wire:
        await expect_not_sent(wire.url.replace("http:", "https:"))
        assert wire.requests == 0


@run
async def test_a_shut_gate_lets_no_byte_out_and_spoils_nothing():
    heard = []

    async def listen(connection):
        heard.append(connection)
        await answer_all(connection)

    async with Wire(listen) as wire, Opened(wire.url) as rail:
        for _ in range(3):
            gate = CountingGate(shut=True)
            with pytest.raises(NotSent, match="the gate is shut"):
                await send(rail, gate)
            assert gate.calls == 1
        for connection in heard:
            await connection.over.wait()
            assert connection.seen == b""
        gate = CountingGate()
        assert (await send(rail, gate)).reference == "r1"
        assert gate.calls == 1
        # Also on a connection that is open already.
        with pytest.raises(NotSent):
            await send(rail, CountingGate(shut=True), "r2")
        assert (await send(rail, reference="r3")).reference == "r3"
        assert wire.requests == 2


# -- unknown, and sent once ------------------------------------------------------------------------------


async def reset_after_request(connection):
    await connection.read_request()
    connection.reset()


async def reset_after_headers(connection):
    await connection._reader.readuntil(b"\r\n\r\n")
    connection.seen += b"POST "
    connection.reset()


async def close_after_request(connection):
    await connection.read_request()


async def reset_amid_head(connection):
    await connection.read_request()
    await connection.write(b"HTTP/1.1 201 Created\r\nContent-Le")
    connection.reset()


async def reset_amid_body(connection):
    await connection.read_request()
    await connection.write(b'HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{"reference"')
    connection.reset()


async def close_amid_body(connection):
    await connection.read_request()
    await connection.write(b'HTTP/1.1 422 No\r\nContent-Length: 500\r\n\r\n{"code":"declined"}')


async def continue_then_reset(connection):
    await connection.read_request()
    await connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    connection.reset()


async def no_http(connection):
    await connection.read_request()
    await connection.write(b"SSH-2.0-bank\r\n\r\n")


async def silence(connection):
    await connection.read_request()
    await connection.read_some()


async def trickle(connection):
    await connection.read_request()
    await connection.write(b"HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n")
    while True:
        await connection.write(b" ")
        await asyncio.sleep(0.05)


async def redirect(connection):
    await connection.read_request()
    await connection.answer(307, {}, "Location: /transfers")
    await connection.read_request()


async def too_long(connection):
    await connection.read_request()
    await connection.answer(201, json.dumps({**MADE, "note": "a" * 100_000}).encode())


async def from_a_cache(connection):
    await connection.read_request()
    await connection.answer(201, MADE, "Age: 3")


async def packed(connection):
    await connection.read_request()
    await connection.answer(201, b"\x1f\x8b\x08\x00", "Content-Encoding: gzip")


UNKNOWN = [
    reset_after_request,
    reset_after_headers,
    close_after_request,
    reset_amid_head,
    reset_amid_body,
    close_amid_body,
    continue_then_reset,
    no_http,
    silence,
    trickle,
    redirect,
    too_long,
    from_a_cache,
    packed,
]


@pytest.mark.parametrize("behave", UNKNOWN, ids=lambda behave: behave.__name__)
@run
async def test_what_breaks_after_the_first_byte_is_unknown_and_never_sent_again(behave):
    gate = CountingGate()
    async with Wire(behave) as wire, Opened(wire.url, answer_seconds=0.5) as rail:
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown) as caught:
            await send(rail, gate)
        assert time.monotonic() - began < 3, "an answer that trickles is not awaited for longer than one"
        assert caught.value.__cause__ is not caught.value
        await asyncio.sleep(0.05)
        assert wire.requests == 1
        assert len(wire.connections) == 1
    assert gate.calls == 1


@run
async def test_a_continue_before_the_answer_is_passed_over():
    async def behave(connection):
        await connection.read_request()
        await connection.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await connection.answer(201, MADE)

    async with Wire(behave) as wire, Opened(wire.url) as rail:
        assert (await send(rail)).amount == 350


# -- pooled connections ------------------------------------------------------------------------------------


@run
async def test_a_connection_is_used_again():
    async with Wire(answer_all) as wire, Opened(wire.url) as rail:
        for number in range(5):
            await send(rail, reference=f"r{number}")
        assert (len(wire.connections), wire.requests) == (1, 5)


@run
async def test_a_connection_that_was_closed_while_idle_is_not_used():
    async def one_each(connection):
        await connection.read_request()
        await connection.answer(201, MADE)

    async with Wire(one_each) as wire, Opened(wire.url) as rail:
        await send(rail)
        await wire.connections[0].over.wait()
        await asyncio.sleep(0.05)
        await send(rail)
        assert [bytes(each.seen).count(b"POST ") for each in wire.connections] == [1, 1]


@run
async def test_a_connection_that_closes_just_as_it_is_used_leaves_the_outcome_unknown():
    async def second_is_cut(connection):
        await connection.read_request()
        await connection.answer(201, MADE)
        await connection.read_request()
        connection.reset()

    async with Wire(second_is_cut) as wire, Opened(wire.url) as rail:
        await send(rail)
        with pytest.raises(OutcomeUnknown):
            await send(rail, reference="r2")
        await asyncio.sleep(0.05)
        assert (len(wire.connections), wire.requests) == (1, 2)


@run
async def test_a_late_answer_is_never_read_as_the_next_ones():
    async def too_slow(connection):
        await connection.read_request()
        if len(wire.connections) == 1:
            await asyncio.sleep(0.4)
        await connection.answer(201, {**MADE, "reference": f"r{len(wire.connections)}"})
        await connection.read_some()

    async with Wire(too_slow) as wire, Opened(wire.url, answer_seconds=0.2) as rail:
        with pytest.raises(OutcomeUnknown):
            await send(rail)
        assert (await send(rail, reference="r2")).reference == "r2"
        assert len(wire.connections) == 2


# -- the request ---------------------------------------------------------------------------------------------


@run
async def test_the_request_carries_reference_deadline_and_operation():
    got = []

    async def keep(connection):
        got.append(await connection.read_request())
        await connection.answer(201, MADE)

    gate = CountingGate(operation="7:8400000")
    gate.deadline_ms = 1_700_000_000_999
    transfer = Transfer(
        amount=350, currency="EUR", destination="roastery", description="beans", metadata={"a": "b"}
    )
    async with Wire(keep) as wire, Opened(f"{wire.url}/v1") as rail:
        await rail.send(transfer, "r1", gate)
    headers, body = got[0]
    assert headers[":path"] == "/v1/transfers"
    assert headers["reference"] == "r1"
    assert headers["deadline"] == "@1700000000"
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {
        "amount": 350,
        "currency": "EUR",
        "destination": "roastery",
        "operation": "7:8400000",
        "description": "beans",
        "metadata": {"a": "b"},
    }


@run
async def test_no_proxy_of_the_environment_stands_between(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with Wire(answer_all) as wire, Opened(wire.url) as rail:
        await send(rail)
        assert wire.requests == 1


@run
async def test_the_kernel_gives_up_on_unacknowledged_bytes():
    async with Wire(answer_all) as wire, Opened(wire.url) as rail:
        await send(rail)
        connection = rail._client._transport._pool.connections[0]._connection
        raw = connection._network_stream.get_extra_info("socket")
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000


@run
async def test_a_client_that_forgets_the_gate_is_noticed(monkeypatch):
    monkeypatch.setattr(http_rail, "FIRST_BYTE_EVENTS", frozenset(("renamed",)))
    async with Wire(answer_all) as wire, Opened(wire.url) as rail:
        with pytest.raises(OutcomeUnknown, match="gate"):
            await send(rail)


# -- asking --------------------------------------------------------------------------------------------------


@run
async def test_asking_reads_the_path_once_encoded_and_allows_no_cache():
    got = []

    async def keep(connection):
        got.append(await connection.read_request())
        await connection.answer(404, {"code": "not-found"})

    async with Wire(keep) as wire, Opened(wire.url, finds=True) as rail:
        assert (await rail.find("a/b%20")).kind is FoundKind.NOT_FOUND
    assert got[0][0][":path"] == "/transfers/a%2Fb%2520"
    assert got[0][0]["cache-control"] == "no-store"


async def find_in_a_cache(connection):
    await connection.read_request()
    await connection.answer(404, {"code": "not-found"}, "Age: 0")


@pytest.mark.parametrize("behave", [close_after_request, reset_amid_body, find_in_a_cache, redirect])
@run
async def test_an_answer_that_is_none_settles_nothing(behave):
    async with Wire(behave) as wire, Opened(wire.url, finds=True) as rail:
        with pytest.raises(OutcomeUnknown):
            await rail.find("r1")


@run
async def test_a_bank_that_cannot_be_reached_settles_nothing():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with Opened(f"http://127.0.0.1:{unused.getsockname()[1]}", finds=True) as rail:
            with pytest.raises(OutcomeUnknown):
                await rail.find("r1")


@run
async def test_a_bank_that_is_not_said_to_find_is_not_asked():
    async with Wire(answer_all) as wire, Opened(wire.url) as rail:
        with pytest.raises(OutcomeUnknown):
            await rail.find("r1")
        assert wire.connections == []
