"""The Python face: input that is refused at once, the outbox's seam, closing, cancelling, addresses."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import httpx2
import pytest

import nonbis.client
from nonbis.client import AsyncClient, Client, Refused
from nonbis.core.refusals import Refusal
from tests.client.paying import BOTH, ORDER
from tests.client.quick import QuickPause
from tests.client.scripted import APPLIED, UNAUTHORISED, Close, Hang, Scripted

BAD_ORDERS = [
    ({"amount": 0}, "member-invalid", "amount"),
    ({"amount": -1}, "member-invalid", "amount"),
    ({"amount": 10.5}, "member-invalid", "amount"),
    ({"amount": "10"}, "member-invalid", "amount"),
    ({"amount": True}, "member-invalid", "amount"),
    ({"amount": 2**53}, "member-invalid", "amount"),
    ({"amount": None}, "member-invalid", "amount"),
    ({"destination": ""}, "member-invalid", "destination"),
    ({"destination": "two words"}, "member-invalid", "destination"),
    ({"destination": "x" * 129}, "member-invalid", "destination"),
    ({"currency": "usd"}, "member-invalid", "currency"),
    ({"description": "\ud800"}, "body-malformed", None),
    ({"metadata": {"a": 1}}, "member-invalid", "metadata"),
    ({"name": ""}, "name-malformed", None),
    ({"name": "two words"}, "name-malformed", None),
    ({"name": "x" * 256}, "name-malformed", None),
    ({"name": "naïve"}, "name-malformed", None),
    ({"name": "a\r\nX-Evil: 1"}, "name-malformed", None),
]


@pytest.mark.parametrize("pays", BOTH)
@pytest.mark.parametrize(("order", "code", "member"), BAD_ORDERS)
def test_what_the_service_would_refuse_is_refused_before_a_byte_leaves(pays, order, code, member):
    with Scripted([APPLIED]) as server, pytest.raises(Refusal) as caught:
        pays(server.url).pay(**order)
    assert (caught.value.code, caught.value.member) == (code, member)
    assert (server.connections, server.received) == (0, [])


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8000", "ftp://host", "http://", "http://host/?a=1", "http://host/#a", "http://[::1"],
)
def test_addresses_that_are_none(url):
    with pytest.raises(ValueError, match="address"):
        Client(url)


def test_an_address_in_an_error_shows_no_password():
    with pytest.raises(ValueError) as caught:
        Client("ftp://me:secret@host")
    assert "secret" not in str(caught.value)


class Kept:
    """An outbox that remembers what it was told, and what the server had received by then."""

    def __init__(self, server, error=None):
        self.server = server
        self.error = error
        self.told = []

    def put(self, intent):
        self.told.append(("put", intent.name, intent.body, len(self.server.received)))
        if self.error:
            raise self.error

    def done(self, name, end):
        self.told.append(("done", name, end, len(self.server.received)))


@pytest.mark.parametrize("pays", BOTH)
def test_the_outbox_has_name_and_bytes_before_the_first_byte_leaves(pays):
    with Scripted([Close(), APPLIED]) as server:
        outbox = Kept(server)
        verdict = pays(server.url, outbox=outbox).pay(name="order-7")
    assert outbox.told == [
        ("put", "order-7", server.received[0].body, 0),
        ("done", "order-7", verdict, 2),
    ]


@pytest.mark.parametrize("pays", BOTH)
def test_an_outbox_that_can_not_keep_the_intent_stops_it(pays):
    with Scripted([APPLIED]) as server:
        outbox = Kept(server, OSError("disk full"))
        with pytest.raises(OSError, match="disk full"):
            pays(server.url, outbox=outbox).pay()
    assert server.received == []


@pytest.mark.parametrize("pays", BOTH)
def test_the_outbox_is_told_of_a_refusal(pays):
    with Scripted([UNAUTHORISED]) as server:
        outbox = Kept(server)
        with pytest.raises(Refused) as caught:
            pays(server.url, outbox=outbox).pay()
    assert outbox.told[-1][2] is caught.value


@pytest.mark.parametrize("pays", BOTH)
def test_the_watcher_knows_the_name_before_the_first_byte_leaves(pays):
    told = []
    with Scripted([Close(), APPLIED]) as server:
        verdict = pays(server.url, watch=lambda one: told.append((one, len(server.received)))).pay()
    assert [(one.number, one.tries_max, arrived) for one, arrived in told] == [(1, 6, 0), (2, 6, 1)]
    assert {one.name for one, _ in told} == {verdict.name}
    assert (told[0][0].last, told[0][0].wait_seconds) == (None, 0.0)
    assert (told[1][0].last.number, told[1][0].wait_seconds) == (1, 0.5)


def test_a_closed_client_says_so_and_sends_nothing():
    with Scripted([APPLIED]) as server:
        client = Client(server.url)
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            client.pay(**ORDER)
        asyncio.run(closed_async(server.url))
    assert server.received == []


async def closed_async(url):
    client = AsyncClient(url)
    await client.close()
    with pytest.raises(RuntimeError, match="closed"):
        await client.pay(**ORDER)


def test_a_client_that_was_handed_in_stays_open():
    with Scripted([APPLIED]) as server, httpx2.Client() as http:
        with Client(server.url, http=http) as client:
            client.pay(**ORDER)
        assert not http.is_closed


def test_cancelling_gives_no_verdict():
    async def cancel(server):
        async with AsyncClient(server.url) as client:
            paying = asyncio.create_task(client.pay(**ORDER))
            await asyncio.to_thread(server.arrived.wait, 5)
            paying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await paying

    with Scripted([Hang()]) as server:
        asyncio.run(cancel(server))
    assert len(server.received) == 1


def test_an_interrupt_in_a_wait_gives_no_verdict():
    class Interrupted(QuickPause):
        def sleep(self, seconds):
            raise KeyboardInterrupt

    with (
        Scripted([Close()]) as server,
        Client(server.url, pause=Interrupted()) as client,
        pytest.raises(KeyboardInterrupt),
    ):
        client.pay(**ORDER)
    assert len(server.received) == 1


def test_every_public_name_is_there_and_nothing_else():
    for name in nonbis.client.__all__:
        assert getattr(nonbis.client, name).__name__ == name
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = nonbis.client.no_such_thing


def test_the_command_loads_without_the_extra():
    program = (
        "import sys; sys.modules['httpx2'] = None\n"
        "import nonbis.client, nonbis.client.command\n"
        "from click.testing import CliRunner\n"
        "result = CliRunner().invoke(nonbis.client.command.pay, ['--to', 'a', '--amount', '1'])\n"
        "print(result.exit_code, result.output)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("1 ")
    assert "nonbis[client]" in done.stdout


def test_the_client_needs_nothing_of_ours_but_the_core():
    program = (
        "import sys, nonbis.client.client, nonbis.client.command\n"
        "rooms = {name.split('.')[1] for name in sys.modules if name.startswith('nonbis.')}\n"
        "print(sorted(rooms))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['client', 'core']"
