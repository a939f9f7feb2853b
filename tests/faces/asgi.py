"""The service's ASGI application called in this process, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, cast
from urllib.parse import unquote

from nonbis.core.policy import Policy
from nonbis.faces.service import Application, PaymentService
from nonbis.faces.settings import ServiceSettings
from nonbis.failpoints import Failpoint
from nonbis.ports import Selection
from nonbis.rails.simulated import SimulatedRail
from tests.faces.contract import Answer, check

ORDER: dict[str, Any] = {"amount": 350, "destination": "roastery"}
JSON = (b"content-type", b"application/json")
T = TypeVar("T")
Header = tuple[bytes, bytes]


class HangUp:
    """Stands in a list of body parts for a client that closes the connection."""


Parts = Sequence[bytes | type[HangUp]]


class Face:
    """One service on one event loop, as a context manager; every answer is held against the contract."""

    def __init__(self, folder: Path, *, failpoint: str | None = None, **settings: Any) -> None:
        self.folder = folder
        self.settings = ServiceSettings(
            **{"store": "memory:", "rail": f"simulated:///{folder / 'ledger.jsonl'}", **settings}
        )
        self._failpoint = Failpoint(failpoint)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.__enter__()
        try:
            self.service = self.run(PaymentService.open(self.settings, self._failpoint))
        except BaseException:
            self._runner.close()
            raise
        self.application = Application(self.service)
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.service.drain())
        self.run(self.service.close())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the service's loop."""
        return self._runner.run(work)

    @property
    def rail(self) -> SimulatedRail:
        """The rail behind the service."""
        return cast("SimulatedRail", self.service.routes._rail)

    # -- requests ------------------------------------------------------------------------------------

    async def request(
        self, method: str, target: str, parts: Parts = (b"",), headers: Sequence[Header] = ()
    ) -> Answer | None:
        """One request whose body comes in these parts; None if nothing was answered."""
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode("latin-1"),
            "query_string": query.encode("latin-1"),
            "root_path": "",
            "scheme": "http",
            "headers": list(headers),
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        exchange = _Exchange(parts)
        await self.application(scope, exchange.receive, exchange.send)
        answer = exchange.answer()
        return None if answer is None else check(method, target, answer)

    def call(self, method: str, target: str, body: bytes = b"", headers: Sequence[Header] = ()) -> Answer:
        """One request and its answer."""
        answer = self.run(self.request(method, target, (body,), headers))
        assert answer is not None
        return answer

    def get(self, target: str) -> Answer:
        """GET."""
        return self.call("GET", target)

    def post(
        self, body: bytes, *headers: Header, path: str = "/payments", kind: bytes | None = b"application/json"
    ) -> Answer:
        """POST of raw bytes."""
        head = list(headers) if kind is None else [(b"content-type", kind), *headers]
        return self.call("POST", path, body, head)

    def pay(self, name: str | bytes, *, path: str = "/payments", **order: Any) -> Answer:
        """A good payment under this name."""
        return self.run(self.paying(name, path=path, **order))

    async def paying(self, name: str | bytes, *, path: str = "/payments", **order: Any) -> Answer:
        """The same inside the loop."""
        raw = name if isinstance(name, bytes) else name.encode()
        body = json.dumps({**ORDER, **order}).encode()
        answer = await self.request("POST", path, (body,), [JSON, (b"idempotency-key", raw)])
        assert answer is not None
        return answer

    # -- what happened -------------------------------------------------------------------------------

    def transfers(self) -> int:
        """How many transfers the rail really made."""
        return len(self.run(self.rail.transfers()))

    def rows(self) -> int:
        """How many operations the store holds."""
        return len(self.run(self.service.engine.store.select(Selection(limit=10_000))))

    def sweep(self) -> None:
        """One round of the sweeper."""
        self.run(self.service._sweeper.round())


class _Exchange:
    """The two halves of an ASGI connection."""

    def __init__(self, parts: Parts) -> None:
        self._parts = list(parts)
        self._sent: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        """The next part of the body; after the last, the client waits and then leaves."""
        if not self._parts:
            await asyncio.sleep(0)
            return {"type": "http.disconnect"}
        part = self._parts.pop(0)
        if isinstance(part, bytes):
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        self._parts.clear()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Keep what the service says."""
        self._sent.append(message)

    def answer(self) -> Answer | None:
        """What was said, or None."""
        if not self._sent:
            return None
        start, *rest = self._sent
        assert start["type"] == "http.response.start"
        assert [one["type"] for one in rest] == ["http.response.body"] * len(rest)
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        assert len(headers) == len(start["headers"]), "a header is sent twice"
        assert all(name == name.lower() for name in headers)
        return Answer(start["status"], headers, b"".join(one.get("body", b"") for one in rest))


def quick(**policy: Any) -> Policy:
    """A policy whose waits are short enough for tests."""
    return Policy(**{"store_wait_seconds": 0.2, "stop_seconds": 1.0, **policy})
