"""The http rail: a bank-like upstream that is reached over HTTP/1.1.

One send is one request: the client neither retries nor follows redirects, and the gate is called when
pool, connection and TLS stand and the next thing is the request's first byte. HTTP/2 stays off, for
there a request can be refused and tried again below this level.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Final
from urllib.parse import quote

import httpx2
import msgspec

from nonbis.core.payments import Receipt, Transfer
from nonbis.core.policy import RailFacts
from nonbis.errors import OutcomeUnknown, RailError
from nonbis.ports import Found, Gate
from nonbis.rails.http_answers import read_find_answer, read_send_answer
from nonbis.rails.http_errors import sort_error

CONNECT_SECONDS = 10.0
POOL_SECONDS = 10.0
WRITE_SECONDS = 30.0
FIND_SECONDS = 15.0
USER_TIMEOUT_MS = 30_000
"""The kernel gives up on bytes that stay unacknowledged this long (TCP_USER_TIMEOUT)."""
ANSWER_BYTES_MAX = 1 << 16
CONNECTIONS_MAX = 256
IDLE_CONNECTIONS_MAX = 32
IDLE_SECONDS = 4.0
"""Shorter than the idle time-out of common servers, so that a stale connection is seldom used."""
FIRST_BYTE_EVENTS: Final = frozenset(
    ("http11.send_request_headers.started", "http2.send_request_headers.started")
)
"""What the client reports right before it writes a request."""
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "nonbis"}


class _Passage:
    """The gate, called when the client reports that it is about to write the request."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.passed = False

    async def __call__(self, event: str, info: dict[str, Any]) -> None:  # noqa: ARG002 - the client's form
        if event in FIRST_BYTE_EVENTS:
            self._gate()
            self.passed = True


class HttpRail:
    """A bank at ``base_url``. ``facts`` is what it is said to do, see nonbis.rails.urls.

    The engine ends its wait by itself and leaves the send going; an answer is awaited here for as long
    as it may still count: ``send_deadline_seconds`` and the settle window. ``tls`` replaces the default
    settings of certificates.
    """

    def __init__(
        self,
        base_url: str,
        facts: RailFacts,
        *,
        send_deadline_seconds: float = 30.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.facts = facts
        self._transfers_url = f"{base_url}/transfers"
        self._answer_seconds = send_deadline_seconds + facts.settle_window_seconds
        self._encoder = msgspec.json.Encoder()
        self._client = _client(base_url, self._answer_seconds, tls)

    async def send(self, transfer: Transfer, reference: str, gate: Gate) -> Receipt:
        """See Rail. Raises Declined, NotSent or OutcomeUnknown."""
        passage = _Passage(gate)
        request = self._client.build_request(
            "POST",
            self._transfers_url,
            headers={
                "Content-Type": "application/json",
                "Reference": reference,
                # Whole seconds, rounded down: the upstream may act a little less long, never longer.
                "Deadline": f"@{gate.deadline_ms // 1000}",
            },
            content=self._body(transfer, gate.operation),
            extensions={"trace": passage},
        )
        try:
            async with asyncio.timeout(self._answer_seconds):
                status, body = await self._exchange(request)
        except RailError:
            raise
        except Exception as error:
            raise sort_error(error, gate_passed=passage.passed) from error
        if not passage.passed:
            raise OutcomeUnknown("the HTTP client did not call the gate before it sent")
        return read_send_answer(status, body, reference)

    async def find(self, reference: str) -> Found:
        """See Rail. Raises OutcomeUnknown where the bank gives no clear answer of its own."""
        if not self.facts.finds:
            raise OutcomeUnknown("this bank is not said to answer questions")
        request = self._client.build_request(
            "GET",
            f"{self._transfers_url}/{quote(reference, safe='')}",
            headers={"Cache-Control": "no-store"},
        )
        try:
            async with asyncio.timeout(FIND_SECONDS):
                status, body = await self._exchange(request)
        except RailError:
            raise
        except Exception as error:
            raise sort_error(error, gate_passed=True) from error
        return read_find_answer(status, body, reference)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _exchange(self, request: httpx2.Request) -> tuple[int, bytes]:
        response = await self._client.send(request, stream=True)
        try:
            if "age" in response.headers:
                raise OutcomeUnknown("a cache answered in the bank's place")
            return response.status_code, await _read(response)
        finally:
            await response.aclose()

    def _body(self, transfer: Transfer, operation: str) -> bytes:
        members: dict[str, Any] = {
            "amount": transfer.amount,
            "currency": transfer.currency,
            "destination": transfer.destination,
            "operation": operation,
        }
        if transfer.description is not None:
            members["description"] = transfer.description
        if transfer.metadata is not None:
            members["metadata"] = transfer.metadata
        return self._encoder.encode(members)


def _client(base_url: str, answer_seconds: float, tls: ssl.SSLContext | None) -> httpx2.AsyncClient:
    transport = httpx2.AsyncHTTPTransport(
        # Reading the system's certificates takes long; without TLS nobody needs them.
        verify=tls or base_url.startswith("https:"),
        trust_env=False,
        http2=False,
        retries=0,
        limits=httpx2.Limits(
            max_connections=CONNECTIONS_MAX,
            max_keepalive_connections=IDLE_CONNECTIONS_MAX,
            keepalive_expiry=IDLE_SECONDS,
        ),
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)],
    )
    return httpx2.AsyncClient(
        transport=transport,
        trust_env=False,
        follow_redirects=False,
        headers=_HEADERS,
        timeout=httpx2.Timeout(
            connect=CONNECT_SECONDS, read=answer_seconds, write=WRITE_SECONDS, pool=POOL_SECONDS
        ),
    )


async def _read(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > ANSWER_BYTES_MAX:
            raise OutcomeUnknown(f"the bank's answer is longer than {ANSWER_BYTES_MAX} bytes")
    return bytes(body)
