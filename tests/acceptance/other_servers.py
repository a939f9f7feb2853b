"""The same application behind other entries: ``other_servers.py uvicorn|asgi PORT STORE RAIL``."""

from __future__ import annotations

import asyncio
import signal
import sys

import uvicorn
from granian.constants import Interfaces
from granian.server.embed import Server

from nonbis.faces.service import Application, PaymentService
from nonbis.faces.settings import ServiceSettings


async def serve(kind: str, port: int, store: str, rail: str) -> None:
    """Until SIGTERM."""
    service = await PaymentService.open(ServiceSettings(store=store, rail=rail))
    application = Application(service)
    try:
        if kind == "uvicorn":
            await uvicorn.Server(uvicorn.Config(application, port=port, log_level="warning")).serve()
        else:
            await under_granian(Server(application, port=port, interface=Interfaces.ASGI))
    finally:
        await service.drain()
        await service.close()


async def under_granian(server: Server) -> None:
    """Until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    running = asyncio.ensure_future(server.serve())
    await stopping.wait()
    server.stop()
    await running


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
