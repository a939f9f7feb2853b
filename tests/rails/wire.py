"""A raw TCP server whose behaviour a test scripts, and which remembers every byte that it got."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Self


class Connection:
    """One accepted connection, seen from the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.seen = bytearray()
        self.over = asyncio.Event()

    async def read_some(self) -> bytes:
        """What comes next; b"" at the end."""
        part = await self._reader.read(65536)
        self.seen += part
        return part

    async def read_request(self) -> tuple[dict[str, str], bytes]:
        """Headers (lower case, with ``:path``) and body of one request. Raises EOFError."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.seen += head
        first, *lines = head.decode().rstrip("\r\n").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        headers[":path"] = first.split()[1]
        body = await self._reader.readexactly(int(headers.get("content-length", "0")))
        self.seen += body
        return headers, body

    async def write(self, data: bytes) -> None:
        """Send these bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, status: int, value: object, *headers: str) -> None:
        """Send a JSON answer and keep the connection."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}"]
        await self.write("\r\n".join([*lines, *headers, "", ""]).encode() + body)

    def reset(self) -> None:
        """Send RST."""
        raw = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    def close(self) -> None:
        """Send FIN."""
        self._writer.close()


Behaviour = Callable[[Connection], Awaitable[None]]


class Wire:
    """The server. ``behave`` runs once for each connection; what it leaves open is closed after it."""

    def __init__(self, behave: Behaviour) -> None:
        self._behave = behave
        self._tasks: set[asyncio.Task] = set()
        self.connections: list[Connection] = []
        self.url = ""

    @property
    def requests(self) -> int:
        """How many transfer requests arrived, or began to arrive, on all connections."""
        return sum(connection.seen.count(b"POST ") for connection in self.connections)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self.connections.append(connection)
        self._tasks.add(asyncio.current_task())
        try:
            await self._behave(connection)
        except (EOFError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            connection.over.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
