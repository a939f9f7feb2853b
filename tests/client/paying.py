"""Both clients behind one face, so that each test holds for the blocking and the asyncio one."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

from nonbis.client import AsyncClient, Client, Verdict
from tests.client.quick import QuickAsyncPause, QuickPause

ORDER: dict[str, Any] = {"destination": "alice", "amount": 1250}
SHORT = httpx2.Timeout(0.3)


class Blocking:
    """Pays with Client."""

    def __init__(
        self, url: str, *, transport: Any = None, timeout: httpx2.Timeout | None = None, **settings: Any
    ):
        self.pause = QuickPause()
        self.url = url
        self.settings = settings
        self.transport = transport
        self.timeout = timeout
        self.caller: dict[str, Any] | None = None

    def pay(self, **order: Any) -> Verdict:
        http = self._http(httpx2.Client)
        with Client(
            self.url, http=http, transport=self.transport, pause=self.pause, **self.settings
        ) as client:
            verdict = client.pay(**{**ORDER, **order})
        if http:
            http.close()
        return verdict

    def _http(self, kind: Any) -> Any:
        if self.caller is not None:
            return kind(**self.caller)
        return kind(timeout=self.timeout, trust_env=False) if self.timeout else None


class Awaiting(Blocking):
    """Pays with AsyncClient."""

    def pay(self, **order: Any) -> Verdict:
        return asyncio.run(self._pay(order))

    async def _pay(self, order: dict[str, Any]) -> Verdict:
        pause = QuickAsyncPause(self.pause.slept, self.pause.by_chance, self.pause.wall)
        http = self._http(httpx2.AsyncClient)
        async with AsyncClient(
            self.url, http=http, transport=self.transport, pause=pause, **self.settings
        ) as client:
            verdict = await client.pay(**{**ORDER, **order})
        if http:
            await http.aclose()
        return verdict


BOTH = [Blocking, Awaiting]
