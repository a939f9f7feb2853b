"""One server of the HTTP benchmark: ``python -m bench.http_server bare|route|payments PORT FOLDER``."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import uvloop
from granian.constants import Interfaces
from granian.server.embed import Server

from nonbis.core.fingerprint import parse_json
from nonbis.core.payments import parse_transfer, transfer_fingerprint
from nonbis.faces.command import _settle_memory
from nonbis.faces.service import Application, PaymentService, Receive, Scope, Send
from nonbis.faces.settings import ServiceSettings
from nonbis.faces.wire import JSON, Header, Reply, name_in_headers
from nonbis.rails.simulated import MemoryLedger, SimulatedRail

BODY = b'{"state":"applied"}'


async def bare(_: Scope, receive: Receive, send: Send) -> None:
    """The least that an ASGI application can do: read the body, answer."""
    await receive()
    await send(
        {
            "type": "http.response.start",
            "status": 201,
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"19")],
        }
    )
    await send({"type": "http.response.body", "body": BODY})


class WithoutEngine:
    """The payments route as it is, but for the engine: parsed, checked, fingerprinted, answered."""

    async def post_payments(self, headers: list[Header], body: bytes) -> Reply:
        name_in_headers(headers)
        transfer_fingerprint(parse_transfer(parse_json(body), "USD", frozenset({"uuid"})))
        return Reply(201, [JSON], BODY)


async def main(variant: str, port: int, folder: str) -> None:
    """Serve until SIGTERM."""
    service = None
    app: Any = bare
    if variant != "bare":
        settings = ServiceSettings(store=f"sqlite:///{Path(folder).absolute()}/bench.db")
        service = await PaymentService.open(settings, rail=SimulatedRail(MemoryLedger()))
        app = payments = Application(service)
        if variant == "route":
            payments.posts["/payments"] = WithoutEngine().post_payments
    server = Server(
        app, port=port, interface=Interfaces.ASGINL, log_enabled=False, websockets=False, backlog=1024
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    _settle_memory()
    running = asyncio.ensure_future(server.serve())
    await stop.wait()
    if service is not None:
        await service.drain()
    server.stop()  # type: ignore[no-untyped-call]  # the server has no annotation here
    await running
    if service is not None:
        await service.close()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
