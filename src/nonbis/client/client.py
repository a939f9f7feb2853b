"""``Client`` and ``AsyncClient``: post a payment under one name until something definite is known.

They never follow a redirect and never let the transport send again: one try is one request on the wire.
Their own HTTP client takes nothing from the environment (no proxy, no netrc, no certificate paths);
whoever needs a proxy, a header or a certificate hands in an ``httpx2`` client that has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import httpx2
import msgspec

from nonbis.client.answers import BODY_BYTES_MAX, Answer, Finding, no_answer, read_answer
from nonbis.client.backoff import AsyncPause, AsyncSystemPause, Backoff, Pause, SystemPause
from nonbis.client.course import Course
from nonbis.client.intent import Intent, Outbox, make_intent
from nonbis.client.verdict import Refused, Try, Verdict

DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT = httpx2.Timeout(connect=5.0, read=40.0, write=10.0, pool=5.0)
"""Reading waits longer than the service's own 30 s for the rail, so that its answer is heard."""

SURELY_NOT_SENT: tuple[type[Exception], ...] = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
)
"""Errors from before the first byte of the post. Every other one means that it may have arrived."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Told before each try: its number, how many there may be, the wait before it, and the last one."""

    name: str
    number: int
    tries_max: int
    wait_seconds: float
    last: Try | None


Watch = Callable[[Progress], None]


class AnswerTooLarge(Exception):
    """The answer's body is longer than 1 MiB and so none of this service's."""


class _Wire:
    """Listens to the transport: whether a byte of the post may have left."""

    def __init__(self) -> None:
        self.began = False

    def hear(self, event: str, info: Mapping[str, Any]) -> None:
        # A proxy tunnel writes a CONNECT of its own before; that is no byte of the post.
        tunnel = getattr(info.get("request"), "method", b"") == b"CONNECT"
        if event.endswith("send_request_headers.started") and not tunnel:
            self.began = True

    async def hear_async(self, event: str, info: Mapping[str, Any]) -> None:
        self.hear(event, info)

    def finding(self, error: Exception) -> Finding:
        """What the error means; the transport's word is doubted where it began to write."""
        return no_answer(error, sent=self.began or not isinstance(error, SURELY_NOT_SENT))


class _Settings:
    """What both clients share: the address, the settings, and how a try is made and read."""

    def __init__(self, url: str, backoff: Backoff | None, outbox: Outbox | None, watch: Watch | None) -> None:
        self.url = _payments_url(url)
        self._backoff = Backoff() if backoff is None else backoff
        self._outbox = outbox
        self._watch = watch

    def _request(self, intent: Intent, trace: Any) -> dict[str, Any]:
        return {
            "method": "POST",
            "url": self.url,
            "content": intent.body,
            "headers": {
                "Idempotency-Key": intent.header,
                "Content-Type": "application/json",
                "Accept": "application/json, application/problem+json",
                "Accept-Encoding": "identity",
            },
            "follow_redirects": False,
            "extensions": {"trace": trace},
        }

    def _tell(self, course: Course, wait_seconds: float) -> None:
        if self._watch is not None:
            tries = course.tries
            self._watch(
                Progress(
                    name=course.intent.name,
                    number=len(tries) + 1,
                    tries_max=self._backoff.tries,
                    wait_seconds=wait_seconds,
                    last=tries[-1] if tries else None,
                )
            )


class Client(_Settings):
    """Pays through a Nonbis payment service, for programs that block.

    Args:
        url: the service's address, such as ``http://127.0.0.1:8000``.
        http: an ``httpx2.Client`` to use instead of an own one; it stays the caller's to close.
        transport: an ``httpx2`` transport for the own client.
        backoff: how often to try and how long to wait.
        pause: what waits.
        outbox: keeps each intent before its first byte leaves.
        watch: called before each try.

    Raises ValueError for an address that is none.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        http: httpx2.Client | None = None,
        transport: httpx2.BaseTransport | None = None,
        backoff: Backoff | None = None,
        pause: Pause | None = None,
        outbox: Outbox | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(url, backoff, outbox, watch)
        self._owns = http is None
        self._http = http or httpx2.Client(transport=transport, timeout=TIMEOUT, trust_env=False)
        self._pause = pause or SystemPause()

    def pay(
        self,
        *,
        destination: str,
        amount: int,
        currency: str | None = None,
        name: str | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_failed: bool = False,
    ) -> Verdict:
        """Pay ``amount`` (minor units) to ``destination``, once, and say what is known in the end.

        ``name`` is the payment's, the same for every call that means this payment; without one a random
        UUID is made. ``retry_failed`` posts again after a failed attempt that the service would repeat.

        Raises a core Refusal (a ValueError; nothing was sent) for members that can't be posted, Refused
        if the service won't take the request and none of it can have had an effect, and whatever
        ``outbox.put`` raises (nothing was sent). Everything else is in the verdict.
        """
        intent = make_intent(
            destination=destination,
            amount=amount,
            currency=currency,
            name=name,
            description=description,
            metadata=metadata,
        )
        return self._carry_out(Course(intent, self._backoff, retry_failed=retry_failed))

    def _carry_out(self, course: Course) -> Verdict:
        if self._http.is_closed:
            raise RuntimeError("the client is closed; nothing was sent")
        if self._outbox is not None:
            self._outbox.put(course.intent)
        wait_seconds: float | None = 0.0
        while wait_seconds is not None:
            self._tell(course, wait_seconds)
            if wait_seconds > 0:
                self._pause.sleep(wait_seconds)
            wait_seconds = course.take(self._try(course.intent), self._pause)
        end = course.end()
        if self._outbox is not None:
            self._outbox.done(course.intent.name, end)
        return _returned(end)

    def _try(self, intent: Intent) -> Finding:
        wire = _Wire()
        try:
            with self._http.stream(**self._request(intent, wire.hear)) as response:
                body = b""
                for chunk in response.iter_bytes():
                    body = _grown(body, chunk)
            return read_answer(_answer(response, body), intent)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the post may have arrived
            return wire.finding(error)

    def close(self) -> None:
        """Let go of the own connections; a client that was handed in stays open."""
        if self._owns:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Settings):
    """The same for programs on asyncio; arguments and errors as for ``Client``.

    A cancelled ``pay`` raises CancelledError and says nothing of the money: go on under the same name.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        http: httpx2.AsyncClient | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        backoff: Backoff | None = None,
        pause: AsyncPause | None = None,
        outbox: Outbox | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(url, backoff, outbox, watch)
        self._owns = http is None
        self._http = http or httpx2.AsyncClient(transport=transport, timeout=TIMEOUT, trust_env=False)
        self._pause = pause or AsyncSystemPause()

    async def pay(
        self,
        *,
        destination: str,
        amount: int,
        currency: str | None = None,
        name: str | None = None,
        description: str | None = None,
        metadata: Mapping[str, str] | None = None,
        retry_failed: bool = False,
    ) -> Verdict:
        """As ``Client.pay``."""
        intent = make_intent(
            destination=destination,
            amount=amount,
            currency=currency,
            name=name,
            description=description,
            metadata=metadata,
        )
        return await self._carry_out(Course(intent, self._backoff, retry_failed=retry_failed))

    async def _carry_out(self, course: Course) -> Verdict:
        if self._http.is_closed:
            raise RuntimeError("the client is closed; nothing was sent")
        if self._outbox is not None:
            await asyncio.to_thread(self._outbox.put, course.intent)
        wait_seconds: float | None = 0.0
        while wait_seconds is not None:
            self._tell(course, wait_seconds)
            if wait_seconds > 0:
                await self._pause.sleep(wait_seconds)
            wait_seconds = course.take(await self._try(course.intent), self._pause)
        end = course.end()
        if self._outbox is not None:
            await asyncio.to_thread(self._outbox.done, course.intent.name, end)
        return _returned(end)

    async def _try(self, intent: Intent) -> Finding:
        wire = _Wire()
        try:
            async with self._http.stream(**self._request(intent, wire.hear_async)) as response:
                body = b""
                async for chunk in response.aiter_bytes():
                    body = _grown(body, chunk)
            return read_answer(_answer(response, body), intent)
        except Exception as error:  # noqa: BLE001 - whatever went wrong, the post may have arrived
            return wire.finding(error)

    async def close(self) -> None:
        """Let go of the own connections; a client that was handed in stays open."""
        if self._owns:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _payments_url(url: str) -> httpx2.URL:
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise ValueError(f"the service's address can't be read: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        # Not shown: an address may hold a password.
        raise ValueError(f"the service's address must look like {DEFAULT_URL}")
    return parsed.copy_with(path=parsed.path.rstrip("/") + "/payments")


def _grown(body: bytes, chunk: bytes) -> bytes:
    if len(body) + len(chunk) > BODY_BYTES_MAX:
        raise AnswerTooLarge(f"the answer is longer than {BODY_BYTES_MAX} bytes")
    return body + chunk


def _answer(response: httpx2.Response, body: bytes) -> Answer:
    headers = response.headers
    return Answer(
        status=response.status_code,
        body=body,
        content_type=headers.get("content-type", ""),
        retry_after=headers.get("retry-after"),
        date=headers.get("date"),
        replayed=headers.get("idempotent-replayed", "").lower() == "true",
    )


def _returned(end: Verdict | Refused) -> Verdict:
    if isinstance(end, Refused):
        raise end
    return end
