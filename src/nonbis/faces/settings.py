"""Settings of the payment service: one frozen type, from a TOML file and the command line."""

from __future__ import annotations

import ipaddress
import tomllib
from pathlib import Path

import msgspec

from nonbis.core.currencies import EXPONENTS
from nonbis.core.policy import Policy, SettingsUnsafe
from nonbis.opening import DEFAULT_RAIL, DEFAULT_STORE, check_urls

BODY_BYTES_MAX = 1 << 20
LIST_LIMIT_DEFAULT = 100
LIST_LIMIT_MAX = 10_000


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How ``nonbis serve`` runs.

    Attributes:
        store, rail: URLs, see the command's help.
        host, port: where to listen; without API keys only loopback addresses are allowed.
        workers: processes that serve the same store.
        currency: ISO 4217 code for payments that name none.
        simulate_failures: probability of a made failure at each of three points, for trials.
        raise_config: make this process's windows and rail facts the store's new agreement.
        policy: the engine's settings.
    """

    store: str = DEFAULT_STORE
    rail: str = DEFAULT_RAIL
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    currency: str = "USD"
    simulate_failures: float = 0.0
    raise_config: bool = False
    policy: Policy = msgspec.field(default_factory=Policy)

    def __post_init__(self) -> None:
        try:
            check_urls(self.store, self.rail)
        except ValueError as error:
            raise SettingsUnsafe(str(error)) from None
        if not 0 <= self.port <= 65535:
            raise SettingsUnsafe(f"port must be 0 to 65535, not {self.port}")
        if self.workers < 1:
            raise SettingsUnsafe(f"workers must be at least 1, not {self.workers}")
        if self.currency not in EXPONENTS:
            raise SettingsUnsafe(f"currency {self.currency!r} is not an ISO 4217 code with a minor unit")
        if not 0 <= self.simulate_failures <= 1:
            raise SettingsUnsafe("simulate_failures must be a probability from 0 to 1")
        if self.workers > 1 and self.store == "memory:":
            raise SettingsUnsafe("several workers can't share a store in memory; give --store sqlite:///...")
        if not is_loopback(self.host):
            raise SettingsUnsafe(
                f"without API keys the service listens on loopback only, not on {self.host}:"
                " anyone who can reach it can pay"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_settings(path: Path | None, **given: object) -> ServiceSettings:
    """The settings of a TOML file, with what is given (not None) on the command line over them.

    Raises SettingsUnsafe naming the member that is wrong.
    """
    members: dict[str, object] = {}
    if path is not None:
        try:
            members = tomllib.loads(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingsUnsafe(f"{path} can't be read: {error}") from error
    members.update({name: value for name, value in given.items() if value is not None})
    try:
        return msgspec.convert(members, ServiceSettings)
    except msgspec.ValidationError as error:
        raise SettingsUnsafe(f"{path or 'the settings'}: {_in_words(str(error))}") from error


def _in_words(said: str) -> str:
    """What msgspec says of a value, with the member before it and not as a path behind it."""
    sentence, _, path = said.partition(" - at `$.")
    words = sentence.replace("`", "").replace("Object contains unknown field", "there is no setting")
    member = path.removesuffix("`")
    return f"{member}: {words}" if member else words
