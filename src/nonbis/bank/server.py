"""HTTP/1.1 for the bank: small, and in command of its connections, since it must be able to cut them."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from typing import TypeAlias

import apsw
import h11

from nonbis.bank.counter import Answer, BankCounter, Request, problem

BODY_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 16
_STOP_SECONDS = 10.0

Event: TypeAlias = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class BankServer:
    """Serves a counter on one address until it is stopped.

    A request, once read, is carried out even if its client hangs up, as a real bank would do.
    """

    def __init__(self, counter: BankCounter) -> None:
        self._counter = counter
        self._writers: set[asyncio.StreamWriter] = set()
        self._busy: set[asyncio.Task[Answer]] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> str:
        """Listen, and return the URL; port 0 takes a free one. Raises OSError."""
        self._server = await asyncio.start_server(self._connection, host, port)
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        return (
            f"http://[{bound_host}]:{bound_port}"
            if ":" in bound_host
            else f"http://{bound_host}:{bound_port}"
        )

    async def stop(self) -> None:
        """Take no more connections, finish what is under way, close."""
        assert self._server is not None
        self._server.close()
        if self._busy:
            await asyncio.wait(self._busy, timeout=_STOP_SECONDS)
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with suppress(ConnectionError):
                await _Conversation(self, reader, writer).run()
        finally:
            self._writers.discard(writer)
            writer.close()

    async def answer(self, request: Request) -> Answer:
        """The counter's answer, also if the connection goes away meanwhile."""
        task = asyncio.create_task(self._answer(request))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)
        return await asyncio.shield(task)

    async def _answer(self, request: Request) -> Answer:
        try:
            return await self._counter.handle(request)
        except apsw.Error as error:
            print(f"the bank's ledger failed: {error}", file=sys.stderr, flush=True)
            return problem(500, "ledger-failed", "the bank can't say whether the transfer was made")


class _Conversation:
    """The requests of one connection, one after the other."""

    def __init__(
        self, server: BankServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER)

    async def run(self) -> None:
        try:
            while await self._one():
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            await self._reply(problem(error.error_status_hint, "malformed", "this is no HTTP request"), "")

    async def _one(self) -> bool:
        """Read one request and answer it; False when the connection is over."""
        head = await self._event()
        if not isinstance(head, h11.Request):
            return False
        body = await self._body()
        method = head.method.decode("ascii")
        if body is None:
            await self._reply(problem(413, "too-large", f"at most {BODY_BYTES_MAX} bytes"), method)
            return False
        answer = await self._server.answer(_request(head, body))
        if answer.cut:
            self._writer.transport.abort()
            return False
        await self._reply(answer, method)
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    async def _body(self) -> bytes | None:
        """The whole body; None if it is too long. Raises RemoteProtocolError if it ends early."""
        parts = bytearray()
        while not isinstance(event := await self._event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data), "h11 raises where a body ends early"
            parts += event.data
            if len(parts) > BODY_BYTES_MAX:
                return None
        return bytes(parts)

    async def _event(self) -> Event:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(_READ_BYTES))
        return event

    async def _reply(self, answer: Answer, method: str) -> None:
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(answer.body)))]
        self._send(h11.Response(status_code=answer.status, headers=headers))
        if method != "HEAD":
            self._send(h11.Data(data=answer.body))
        self._send(h11.EndOfMessage())
        await self._writer.drain()

    def _send(self, event: h11.Event) -> None:
        self._writer.write(self._http.send(event) or b"")


def _request(head: h11.Request, body: bytes) -> Request:
    return Request(
        method=head.method.decode("ascii"),
        path=head.target.decode("ascii").partition("?")[0],
        headers=[(name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers],
        body=body,
    )


async def serve(counter: BankCounter, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT; the URL is the one line on stdout. Raises OSError."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    server = BankServer(counter)
    print(await server.start(host, port), flush=True)
    await stopped.wait()
    await server.stop()
