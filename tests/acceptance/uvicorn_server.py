"""The same application under uvicorn: ``python uvicorn_server.py PORT STORE RAIL``."""

from __future__ import annotations

import asyncio
import sys

import uvicorn

from nonbis.faces.service import Application, PaymentService
from nonbis.faces.settings import ServiceSettings


async def serve(port: int, store: str, rail: str) -> None:
    """Until SIGTERM."""
    service = await PaymentService.open(ServiceSettings(store=store, rail=rail))
    server = uvicorn.Server(uvicorn.Config(Application(service), port=port, log_level="warning"))
    try:
        await server.serve()
    finally:
        await service.drain()
        await service.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
