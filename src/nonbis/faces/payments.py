"""The payment service's own routes, apart from any server: bytes in, a reply out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from nonbis.core.fingerprint import FINGERPRINT_VERSION, parse_json
from nonbis.core.ids import format_id, parse_id
from nonbis.core.messages import State
from nonbis.core.names import Digester, check_name
from nonbis.core.payments import (
    SCOPE,
    PaymentView,
    Receipt,
    Transfer,
    decode_outcome,
    decode_transfer,
    encode_transfer,
    parse_transfer,
    payment_view,
    transfer_fingerprint,
)
from nonbis.core.refusals import MemberInvalid, NameMalformed, NameMissing, Refusal
from nonbis.engine.effects import PaymentEffect
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Answer, Call, Standing
from nonbis.errors import AnswerLost, Effect, EngineStopping, NotSent, StoreError
from nonbis.faces.answers import RETRY_UNAVAILABLE_SECONDS, AnswerWriter
from nonbis.faces.repeating import RepeatingWarning
from nonbis.faces.settings import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX
from nonbis.faces.simulation import SimulatedFailures
from nonbis.faces.wire import NAME_HEADER, Header, Reply, json_reply, name_in_headers, problem
from nonbis.ports import Entropy, Gate, Rail, Selection, Stored

_log = logging.getLogger("nonbis.service")

TENANT = ""
"""The tenant of a service without API keys."""
_NOTHING_SENT = "nothing was sent for this request. Ask again under the same name."
_NOT_ANSWERED = "The store has not answered; ask again under the same name to learn what became of it."
_NOT_READ = "The store can't be read now; nothing was asked for that could have an effect."
_BESIDE = frozenset({"uuid"})
_QUERY = frozenset({"machine", "state", "limit", "after", "before"})


class PaymentRoutes:
    """``POST /payments`` and ``/payment``, and the reads beside them.

    Attributes:
        currency: of payments that name none.
        on_store_trouble: called when the store did not do its part in a payment.
    """

    def __init__(
        self, engine: Engine, rail: Rail, entropy: Entropy, *, currency: str, simulate_failures: float
    ) -> None:
        self._engine = engine
        self._rail = rail
        self._facts = rail.facts
        self._entropy = entropy
        self.currency = currency
        self._simulate_failures = simulate_failures
        self._digester = Digester(engine.store.key, TENANT, SCOPE)
        self._answers = AnswerWriter(engine)
        self._unreached = RepeatingWarning(_log)
        self.on_store_trouble: Callable[[], None] = lambda: None

    # -- writes ----------------------------------------------------------------------------------------

    async def post_payments(self, headers: list[Header], body: bytes) -> Reply:
        """Make a payment, or tell what became of the one under this name."""
        return await self._post(headers, body, article=False)

    async def post_payment(self, headers: list[Header], body: bytes) -> Reply:
        """The same in the plain form: ``{"state": "applied"}`` or ``{"state": "failed"}``."""
        return await self._post(headers, body, article=True)

    async def _post(self, headers: list[Header], body: bytes, *, article: bool) -> Reply:
        try:
            named = name_in_headers(headers)
            members = parse_json(body)
            transfer = parse_transfer(members, self.currency, _BESIDE)
            name = _name(named, members)
        except Refusal as refusal:
            return refused(refusal)
        effect: Any = _ToldEffect(self._rail, transfer, self._unreached)
        if self._simulate_failures:
            effect = SimulatedFailures(effect, self._simulate_failures, self._entropy)
        try:
            answer = await self._engine.run(self._call(name, transfer), effect)
        except EngineStopping:
            return unavailable(f"The service is being stopped; {_NOTHING_SENT}")
        except AnswerLost:
            self.on_store_trouble()
            return unavailable(_NOT_ANSWERED, effect="unknown")
        except StoreError:
            self.on_store_trouble()
            return unavailable(f"The store can't be reached; {_NOTHING_SENT}")
        if self._simulate_failures and effect.struck:
            return _simulated(effect.struck, answer)
        return (
            self._answers.article(answer, transfer) if article else self._answers.payments(answer, transfer)
        )

    def _call(self, name: str, transfer: Transfer) -> Call:
        return Call(
            tenant=TENANT,
            scope=SCOPE,
            digest=self._digester.digest(name),
            fingerprint=transfer_fingerprint(transfer),
            fingerprint_version=FINGERPRINT_VERSION,
            request=encode_transfer(transfer),
        )

    # -- reads -----------------------------------------------------------------------------------------

    async def get(self, text: str) -> Reply:
        """One payment by its id, in its present state."""
        try:
            number = parse_id(text)
        except ValueError as error:
            return problem("not-found", str(error))
        return await self._read(self._engine.store.show(number))

    async def get_by_name(self, raw: str) -> Reply:
        """One payment by its name, percent-decoded once from the path as it came."""
        try:
            name = check_name(unquote_to_bytes(raw).decode("ascii"), "name")
        except UnicodeDecodeError:
            return refused(NameMalformed("the name holds bytes that are not ASCII", "name"))
        except NameMalformed as refusal:
            return refused(refusal)
        return await self._read(self._engine.store.find(self._digester.digest(name)))

    async def _read(self, reading: Any) -> Reply:
        try:
            stored: Stored | None = await reading
        except StoreError:
            return unavailable(_NOT_READ)
        if stored is None or (stored.tenant, stored.scope) != (TENANT, SCOPE) or not stored.request:
            return problem("not-found", "There is no such payment.")
        return json_reply(_view(stored))

    async def list(self, query: str) -> Reply:
        """Payments in id order, a page at a time."""
        try:
            selection = _selection(query)
        except Refusal as refusal:
            return refused(refusal)
        try:
            page = await self._engine.store.select(selection)
        except StoreError:
            return unavailable(_NOT_READ)
        more = len(page) == selection.limit
        views = [_view(stored) for stored in page if stored.request]
        return json_reply({"data": views, "next": format_id(page[-1].record.id) if more else None})


def _name(named: str | None, members: Any) -> str:
    """The name from the header, or from the member ``uuid``; both only if they are the same."""
    inside = members.get("uuid")
    if inside is None:
        if named is None:
            raise NameMissing("give a name: the header Idempotency-Key, or the member uuid", NAME_HEADER)
        return named
    if type(inside) is not str:
        raise MemberInvalid("uuid", "uuid must be a string")
    name = check_name(inside, "uuid")
    if named is not None and named != name:
        raise NameMalformed("Idempotency-Key and the member uuid are two different names", NAME_HEADER)
    return name


def refused(refusal: Refusal) -> Reply:
    """The problem for input that was refused before anything was claimed."""
    if refusal.member is None:
        return problem(refusal.code, refusal.detail)
    return problem(refusal.code, refusal.detail, member=refusal.member)


def unavailable(detail: str, effect: Effect = "not_done") -> Reply:
    """The problem for what the store or this process can't do now; asking again later can help."""
    return problem("store-unavailable", detail, effect=effect, retry_after_seconds=RETRY_UNAVAILABLE_SECONDS)


class _ToldEffect(PaymentEffect):
    """A transfer that says so in the log when it could not be sent; why is known here alone."""

    __slots__ = ("_unreached",)

    def __init__(self, rail: Rail, transfer: Transfer, unreached: RepeatingWarning) -> None:
        super().__init__(rail, transfer)
        self._unreached = unreached

    async def send(self, reference: str, gate: Gate) -> Receipt:
        """Hand the transfer to the rail. Raises what the rail raises."""
        try:
            return await self._rail.send(self._transfer, reference, gate)
        except NotSent as error:
            self._unreached.warn(f"rail {self._rail.facts.name}: {gate.operation} was not sent: {error}")
            raise


def _simulated(point: int, answer: Answer) -> Reply:
    effect: Effect = "unknown"
    if answer.standing is Standing.FINAL:
        effect = "done" if answer.record.state is State.APPLIED else "not_done"
    return problem(
        "simulated-failure",
        f"Simulated failure {point}",
        effect=effect,
        operation_id=format_id(answer.record.id),
    )


def _view(stored: Stored) -> PaymentView:
    receipt = None if stored.outcome is None else decode_outcome(stored.outcome).receipt
    return payment_view(stored.record, decode_transfer(stored.request), receipt)


def _selection(query: str) -> Selection:
    """The list's query. Raises MemberInvalid for what is unknown, repeated or out of range."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _QUERY:
            raise MemberInvalid(name[:40], f"the query member {name[:40]!r} is not known")
        if name in given:
            raise MemberInvalid(name, f"the query member {name!r} is given twice")
        given[name] = value
    machine = _number(given, "machine", 1, (1 << 23) - 1)
    return Selection(
        tenant=TENANT,
        scope=SCOPE,
        machine=machine,
        state=_state(given),
        after=_id(given, "after"),
        before=_id(given, "before"),
        limit=_number(given, "limit", 1, LIST_LIMIT_MAX) or LIST_LIMIT_DEFAULT,
    )


def _number(given: dict[str, str], name: str, lowest: int, highest: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= 10 and lowest <= int(text) <= highest:
        return int(text)
    raise MemberInvalid(name, f"{name} must be an integer from {lowest} to {highest}")


def _state(given: dict[str, str]) -> State | None:
    text = given.get("state")
    try:
        return None if text is None else State(text)
    except ValueError:
        raise MemberInvalid("state", f"state must be one of {', '.join(State)}") from None


def _id(given: dict[str, str], name: str) -> int | None:
    text = given.get(name)
    try:
        return None if text is None else parse_id(text)
    except ValueError as error:
        raise MemberInvalid(name, str(error)) from None
