"""The http rail against real sockets: pooled connections, the request itself, and asking."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from nonbis.core.payments import Transfer
from nonbis.errors import OutcomeUnknown
from nonbis.ports import FoundKind
from nonbis.rails import http as http_rail
from tests.rails.gates import CountingGate
from tests.rails.opened import MADE, Opened, answer_all, run, send
from tests.rails.wire import Wire

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


async def close_after_request(connection):
    await connection.read_request()


async def reset_amid_body(connection):
    await connection.read_request()
    await connection.write(b'HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{"reference"')
    connection.reset()


async def redirect(connection):
    await connection.read_request()
    await connection.answer(307, {}, "Location: /transfers")
    await connection.read_request()


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
