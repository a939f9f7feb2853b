"""One payment as it will be posted: its name and its exact bytes, made once and never again.

The name belongs to the intent and not to a try. Whoever wants to go on after a crash needs nothing but
these two, which is why an outbox gets them before the first byte leaves.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Protocol

import msgspec

from nonbis.client.verdict import Refused, Verdict
from nonbis.core.names import check_name
from nonbis.core.payments import parse_transfer
from nonbis.core.refusals import BodyMalformed


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """What is posted on every try.

    Attributes:
        name: the payment's name, 1 to 255 visible ASCII characters.
        body: the JSON bytes, the same on every try.
        amount: what the body asks for, in the currency's minor unit.
        destination: whom it pays.
        currency: ISO 4217, or None where the service's default is meant.
    """

    name: str
    body: bytes
    amount: int
    destination: str
    currency: str | None

    @property
    def header(self) -> str:
        """The name as a structured-field string: in quotes, with quotes and backslashes escaped."""
        escaped = self.name.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'


class Outbox(Protocol):
    """A durable place for intents, so that a call survives the process that made it."""

    def put(self, intent: Intent) -> None:
        """Keep the intent durably before its first byte leaves; if this raises, nothing is sent."""

    def done(self, name: str, end: Verdict | Refused) -> None:
        """The call under this name has ended so; the outbox decides whether to keep the intent."""


def new_name() -> str:
    """A fresh name: a random UUID (version 4) from the operating system."""
    return str(uuid.uuid4())


def make_intent(
    *,
    destination: str,
    amount: int,
    currency: str | None = None,
    name: str | None = None,
    description: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Intent:
    """The intent of these members, by the service's own rules.

    Raises a core Refusal (a ValueError) for a name or a member that the service would refuse.
    """
    members = {
        "amount": amount,
        "currency": currency,
        "destination": destination,
        "description": description,
        "metadata": None if metadata is None else dict(metadata),
    }
    given = {member: value for member, value in members.items() if value is not None}
    parse_transfer(given, default_currency="USD")
    return Intent(
        name=check_name(new_name() if name is None else name),
        body=_encode(given),
        amount=amount,
        destination=destination,
        currency=currency,
    )


def _encode(members: Mapping[str, object]) -> bytes:
    try:
        return msgspec.json.encode(members)
    except UnicodeEncodeError:
        raise BodyMalformed("a text holds a lone surrogate, which is no character") from None
