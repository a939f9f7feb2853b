"""The http rail against real sockets: what is surely not sent, what is unknown, and never sent twice."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import pytest

from nonbis.errors import NotSent, OutcomeUnknown
from nonbis.rails import http as http_rail
from tests.rails.gates import CountingGate
from tests.rails.opened import MADE, Opened, answer_all, run, send
from tests.rails.wire import Wire

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
