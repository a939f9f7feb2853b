"""The bank's counter: what it does with a request, whatever brought the request here."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from nonbis.bank.ledger import Ledger, Made, Refused, Transfer
from nonbis.bank.requests import Malformed, read_deadline, read_reference, read_transfer

T = TypeVar("T")


class Manners(msgspec.Struct, frozen=True, kw_only=True):
    """How the bank behaves.

    Attributes:
        dedupe: a repeated reference gets the earlier answer; else it makes another transfer.
        find: it can be asked about a reference.
        decline: probability of a refusal, from 0 to 1.
        lose_answer: probability that the connection is cut after the transfer, from 0 to 1.
        delay_ms: how long it waits before it acts.
    """

    dedupe: bool = True
    find: bool = True
    decline: float = 0.0
    lose_answer: float = 0.0
    delay_ms: int = 0


class Request(NamedTuple):
    """One request. ``headers`` has names in lower case; ``path`` is raw, without its query."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes

    def values(self, name: str) -> list[str]:
        """All values of a header, in order."""
        return [value for header, value in self.headers if header == name]


class Answer(NamedTuple):
    """Status and JSON body; with ``cut`` the connection is to be cut without a byte of it."""

    status: int
    body: bytes
    cut: bool = False


_ENCODER = msgspec.json.Encoder()
_CHANCE = secrets.SystemRandom()
_TRANSFERS = "/transfers/"


def _answer(status: int, value: object) -> Answer:
    return Answer(status, _ENCODER.encode(value))


def problem(status: int, code: str, detail: str, **more: str) -> Answer:
    """An answer that says what was wrong."""
    return _answer(status, {"code": code, "detail": detail, **more})


def _declined(reference: str) -> Answer:
    return problem(422, "declined", "the transfer was declined", reference=reference)


class BankCounter:
    """Takes requests, one ledger at a time. Its ledger is used in one thread only."""

    def __init__(
        self, ledger: Ledger, manners: Manners, chance: Callable[[], float] = _CHANCE.random
    ) -> None:
        self._ledger = ledger
        self._manners = manners
        self._chance = chance
        self._under_way: Counter[str] = Counter()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bank-ledger")

    async def handle(self, request: Request) -> Answer:
        """The answer to one request."""
        if request.path == "/transfers":
            return await self._post(request) if request.method == "POST" else _not_allowed("POST")
        if request.path.startswith(_TRANSFERS):
            return await self._find(request) if request.method == "GET" else _not_allowed("GET")
        if request.path == "/journal":
            return await self._journal() if request.method == "GET" else _not_allowed("GET")
        return problem(404, "no-such-route", "POST /transfers, GET /transfers/{reference}, GET /journal")

    def close(self) -> None:
        """Finish what is being written and close the ledger."""
        self._thread.shutdown(wait=True)
        self._ledger.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _post(self, request: Request) -> Answer:
        try:
            reference = read_reference(request.values("reference"))
            deadline = read_deadline(request.values("deadline"))
            transfer = read_transfer(request.body, reference)
        except Malformed as error:
            return problem(400, "malformed", str(error))
        if self._manners.dedupe and self._under_way[reference]:
            return problem(409, "under-way", "a transfer with this reference is under way")
        self._under_way[reference] += 1
        try:
            return await self._treat(transfer, deadline)
        finally:
            self._under_way[reference] -= 1
            if not self._under_way[reference]:
                del self._under_way[reference]

    async def _treat(self, transfer: Transfer, deadline: float | None) -> Answer:
        if self._manners.dedupe:
            known = await self._in_thread(lambda: self._ledger.find(transfer.reference))
            if known is not None:
                return _answer(200, known) if isinstance(known, Made) else _declined(transfer.reference)
        if self._manners.delay_ms:
            await asyncio.sleep(self._manners.delay_ms / 1000)
        declines = self._chance() < self._manners.decline
        result = await self._in_thread(lambda: self._act(transfer, deadline, declines=declines))
        if result is None:
            return problem(422, "too-late", "the deadline has passed; nothing was done")
        if isinstance(result, Refused):
            return _declined(transfer.reference)
        return Answer(201, _ENCODER.encode(result), cut=self._chance() < self._manners.lose_answer)

    def _act(self, transfer: Transfer, deadline: float | None, *, declines: bool) -> Made | Refused | None:
        """Make or refuse it, or do nothing and return None if it is too late. In the ledger's thread."""
        if deadline is not None and time.time() > deadline:
            return None
        if not declines:
            return self._ledger.make(transfer)
        if self._manners.dedupe:
            self._ledger.refuse(transfer.reference)
        return Refused()

    async def _find(self, request: Request) -> Answer:
        if not self._manners.find:
            return problem(501, "not-available", "this bank can't be asked")
        reference = unquote(request.path[len(_TRANSFERS) :])
        # Asked in this order: what is no longer under way is in the ledger by then.
        under_way = self._under_way[reference] > 0
        known = await self._in_thread(lambda: self._ledger.find(reference))
        if isinstance(known, Made):
            return _answer(200, known)
        if under_way:
            return problem(409, "pending", "a transfer with this reference is under way")
        if known is not None:
            return _declined(reference)
        return problem(404, "not-found", "no transfer has this reference")

    async def _journal(self) -> Answer:
        return _answer(200, await self._in_thread(self._ledger.journal))


def _not_allowed(method: str) -> Answer:
    return problem(405, "method-not-allowed", f"only {method} is answered here")
