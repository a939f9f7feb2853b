"""The payment service as an ASGI application (any server), and what it holds together.

The hot routes are one function from method, path, headers and body to a reply and pass no router;
everything else goes to Starlette.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.engine.effects import PaymentEffects
from nonbis.engine.engine import Engine
from nonbis.errors import NonbisError
from nonbis.faces.openapi import document, page
from nonbis.faces.payments import PaymentRoutes, unavailable
from nonbis.faces.repeating import RepeatingWarning
from nonbis.faces.settings import BODY_BYTES_MAX, ServiceSettings
from nonbis.faces.wire import Header, Reply, json_reply, problem
from nonbis.faces.writability import Writability
from nonbis.failpoints import Failpoint
from nonbis.opening import open_rail, open_store
from nonbis.ports import Rail
from nonbis.upkeep.sweeper import Sweeper

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Post = Callable[[list[Header], bytes], Awaitable[Reply]]

_log = logging.getLogger("nonbis.service")
_BY_NAME = "/payments/by-name/"
_ONE = "/payments/"
_JSON_TYPES = (b"application/json", b"")
_CHARSET = re.compile(rb';[ \t]*charset[ \t]*=[ \t]*"?([^";, \t]*)', re.IGNORECASE)


class PaymentService:
    """Store, engine, sweeper and routes of one serving process."""

    def __init__(
        self, engine: Engine, sweeper: Sweeper, routes: PaymentRoutes, effects: PaymentEffects
    ) -> None:
        self.engine = engine
        self.routes = routes
        self._sweeper = sweeper
        self._effects = effects
        self._writability = Writability(engine.presence, sweeper)
        routes.on_store_trouble = self._writability.failed
        self._not_ready = RepeatingWarning(_log)
        self.ready = True

    @classmethod
    async def open(
        cls, settings: ServiceSettings, failpoint: Failpoint | None = None, rail: Rail | None = None
    ) -> PaymentService:
        """Open store and rail, agree on the settings, and begin to sweep.

        ``rail`` stands in for the one that the settings name.

        Raises StoreError if the store is refused, ValueError for a malformed URL.
        """
        clock, entropy = SystemClock(), SystemEntropy()
        rail = rail or open_rail(settings.rail, send_deadline_seconds=settings.policy.send_deadline_seconds)
        store = await open_store(settings.store, clock=clock, entropy=entropy)
        try:
            effects = PaymentEffects(rail)
            engine = Engine(store, effects, clock=clock, policy=settings.policy, failpoint=failpoint)
            await engine.start(raise_config=settings.raise_config)
        except BaseException:
            await store.close()
            await rail.close()
            raise
        if rail.facts.dedupes_for_seconds and not rail.facts.dedupes(settings.policy.send_deadline_seconds):
            _log.warning(
                "rail %s: dedupes_for is too short to resend; it counts as not deduping", rail.facts.name
            )
        routes = PaymentRoutes(
            engine,
            rail,
            entropy,
            currency=settings.currency,
            simulate_failures=settings.simulate_failures,
        )
        service = cls(engine, Sweeper(engine), routes, effects)
        service._sweeper.start()
        return service

    async def drain(self) -> None:
        """Take no new claims; let running effects finish, or leave them in doubt."""
        self.ready = False
        # beats go on meanwhile, or what still runs would be taken for that of a lost machine
        await self.engine.stop()
        await self._sweeper.stop()

    async def close(self) -> None:
        """Let go of rail and store, after ``drain`` and after the last reply."""
        await self._effects.close()
        await self.engine.store.close()

    async def readiness(self) -> Reply:
        """Whether this process would take a payment now: the store reads and writes, no stop is under way."""
        if not self.ready:
            return unavailable("The service is being stopped.")
        if self.engine.outvoted:
            return unavailable("This process promises less than the others of its store have agreed on.")
        try:
            async with asyncio.timeout(self.engine.policy.store_wait_seconds):
                await self.engine.store.age_ms()
                await self._writability.check()
        except TimeoutError:
            self._not_ready.warn("not ready: the store does not answer")
            return unavailable("The store does not answer.")
        except NonbisError as error:
            self._not_ready.warn(f"not ready: {error}")
            return unavailable("The store can't be read or written now.")
        return json_reply({"status": "ready"})


class Application:
    """The ASGI entry. Give it a service that is open; its lifespan messages are only acknowledged."""

    def __init__(self, service: PaymentService) -> None:
        self._service = service
        self.posts: dict[str, Post] = {
            "/payments": service.routes.post_payments,
            "/payment": service.routes.post_payment,
        }
        self._rest = _the_rest(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection's request."""
        if scope["type"] != "http":
            await self._rest(scope, receive, send)
            return
        path: str = scope["path"]
        method: str = scope["method"]
        if method == "POST" and (post := self.posts.get(path)) is not None:
            reply = await self.post(post, scope["headers"], receive)
        elif method in ("GET", "HEAD") and (path == "/payments" or path.startswith(_ONE)):
            reply = await self._get(path, scope)
        else:
            await self._rest(scope, receive, send)
            return
        await _send(reply, send, with_body=method != "HEAD")

    async def post(self, post: Post, headers: list[Header], receive: Receive) -> Reply:
        """The reply to a hot route: the head is judged first, then the body is read, at most the limit."""
        refused = _refuse_head(headers)
        if refused is not None:
            return refused
        body = await _body(receive)
        if body is None:
            return problem("body-malformed", "The body ended before it was complete.")
        if len(body) > BODY_BYTES_MAX:
            return _too_large()
        try:
            return await post(headers, body)
        except Exception:  # noqa: BLE001  (whatever it is, the effect is not known here)
            _log.exception("a payment request ended with an error of ours")
            return problem(
                "outcome-unknown",
                "An error inside the service; ask again under the same name to learn what became of it.",
                status=500,
                effect="unknown",
                retryable=True,
            )

    async def _get(self, path: str, scope: Scope) -> Reply:
        routes = self._service.routes
        if path == "/payments":
            return await routes.list(scope["query_string"].decode("latin-1"))
        raw = scope.get("raw_path") or path.encode()
        raw_text = raw.split(b"?", 1)[0].decode("latin-1")
        if raw_text.startswith(_BY_NAME):
            return await routes.get_by_name(raw_text[len(_BY_NAME) :])
        return await routes.get(path[len(_ONE) :])


def _refuse_head(headers: list[Header]) -> Reply | None:
    """A reply if the head alone shows that the body can't be taken."""
    for name, value in headers:
        if name == b"content-type":
            kind = value.split(b";", 1)[0].strip().lower()
            if kind not in _JSON_TYPES and not (kind.startswith(b"application/") and kind.endswith(b"+json")):
                return problem("unsupported-type", "The body must be application/json.")
            if any(charset.lower() != b"utf-8" for charset in _CHARSET.findall(value)):
                return problem(
                    "unsupported-type", "The body must be JSON in UTF-8; no other charset is read."
                )
        elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            return problem("unsupported-type", "The body must not be compressed.")
        elif name == b"content-length" and value.isdigit() and int(value[:20]) > BODY_BYTES_MAX:
            return _too_large()
    return None


def _too_large() -> Reply:
    return problem("too-large", f"The body may have at most {BODY_BYTES_MAX} bytes.")


async def _body(receive: Receive) -> bytes | None:
    """The whole body, or just more than the limit of it; None if the client left before it was sent."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        whole: bytes = message.get("body", b"")
        return whole
    parts: list[bytes] = []
    length = 0
    while message["type"] == "http.request":
        part: bytes = message.get("body", b"")
        parts.append(part)
        length += len(part)
        if not message.get("more_body") or length > BODY_BYTES_MAX:
            return b"".join(parts)
        message = await receive()
    return None


async def _send(reply: Reply, send: Send, *, with_body: bool) -> None:
    headers = [*reply.headers, (b"content-length", str(len(reply.body)).encode())]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body if with_body else b""})


def _the_rest(service: PaymentService) -> Starlette:
    """Every route that is not hot."""

    async def livez(_: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def readyz(_: Request) -> Response:
        return _response(await service.readiness())

    async def openapi(_: Request) -> Response:
        return JSONResponse(document(service.routes.currency))

    async def docs(_: Request) -> Response:
        return HTMLResponse(page())

    async def not_found(_: Request, __: Exception) -> Response:
        return _response(problem("not-found", "There is no such path."))

    async def not_allowed(_: Request, error: Exception) -> Response:
        reply = _response(problem("not-found", "This path does not take that method.", status=405))
        reply.headers.update(getattr(error, "headers", None) or {})
        return reply

    routes = [
        Route("/livez", livez),
        Route("/readyz", readyz),
        Route("/openapi.json", openapi),
        Route("/docs", docs),
        Route("/payments", not_found, methods=["GET", "POST"]),
        Route("/payment", not_found, methods=["POST"]),
    ]
    rest = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_allowed})
    # a redirect has no body that says what became of the payment, and a POST may not survive it
    rest.router.redirect_slashes = False
    return rest


def _response(reply: Reply) -> Response:
    response = Response(reply.body, reply.status)
    for name, value in reply.headers:
        response.headers[name.decode()] = value.decode()
    return response
