"""Rail URLs: ``simulated:``, ``simulated:///file`` and ``http://host:port?find=yes&dedupes_for=24h``.

An http rail is told by the query what its upstream can do. Told nothing, it assumes the worst; told
something that it does not know, it refuses, for a misspelt promise would silently be no promise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from nonbis.core.policy import RailFacts

DEFAULT_LEDGER = "nonbis-simulated.jsonl"
_PORTS = {"http": 80, "https": 443}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_WORD = re.compile(r"[\x21-\x7e]{1,100}")
_HOST = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45}")


class SimulatedRailUrl(msgspec.Struct, frozen=True):
    """The simulated rail with its ledger at ``path``."""

    path: Path


class HttpRailUrl(msgspec.Struct, frozen=True):
    """A bank-like upstream: ``base_url`` without query and final slash, and what it is said to do."""

    base_url: str
    facts: RailFacts


RailUrl: TypeAlias = SimulatedRailUrl | HttpRailUrl


def parse_rail_url(url: str) -> RailUrl:
    """What a rail URL says. Raises ValueError, with a sentence for a person, for any other text."""
    if not url.isprintable():
        raise ValueError("the rail URL holds a character that can't be printed")
    scheme, colon, rest = url.partition(":")
    if colon and scheme.lower() == "simulated":
        return SimulatedRailUrl(_ledger_path(rest))
    if colon and scheme.lower() in _PORTS:
        return _http(url)
    if colon and scheme.lower() == "ledger":
        raise ValueError("this version has no rail ledger: yet; it has simulated:, http:// and https://")
    raise ValueError(f"the rail URL must begin with simulated:, http:// or https://, not {scheme[:40]!r}")


def _ledger_path(rest: str) -> Path:
    if not rest:
        return Path(DEFAULT_LEDGER)
    path = unquote(rest.removeprefix("///"), errors="strict") if rest.startswith("///") else ""
    if not path or "\0" in path or rest.endswith("/") or "?" in rest or "#" in rest:
        raise ValueError(
            "the simulated rail is simulated: or simulated:///FILE"
            " (three slashes: relative to the working folder, four: absolute), without a query"
        )
    return Path(path)


def _http(url: str) -> HttpRailUrl:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ValueError("a rail URL takes no user name or password")
    if "#" in url:
        raise ValueError("a rail URL takes no fragment")
    if not url.isascii() or " " in url:
        raise ValueError("a rail URL is ASCII without blanks; encode other characters with %")
    address = _address(parts)
    path = parts.path.rstrip("/")
    return HttpRailUrl(f"{parts.scheme}://{address}{path}", _facts(parts.query, address))


def _address(parts: SplitResult) -> str:
    host = parts.hostname or ""
    if not _HOST.fullmatch(host):
        raise ValueError("the rail URL has no host, or one that can't be")
    port = _PORTS[parts.scheme] if parts.port is None else parts.port
    if port == 0:
        raise ValueError("the rail URL's port must be from 1 to 65535")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _facts(query: str, address: str) -> RailFacts:
    given: dict[str, Any] = {}
    for member, value in _members(query):
        if member not in _MEMBERS:
            raise ValueError(f"the rail URL's {member[:40]!r} is not known; it takes {', '.join(_MEMBERS)}")
        field, read = _MEMBERS[member]
        if field in given:
            raise ValueError(f"the rail URL says {member} twice")
        given[field] = read(member, value)
    return RailFacts(**{"name": address, **given})


def _members(query: str) -> list[tuple[str, str]]:
    if not query:
        return []
    try:
        return parse_qsl(
            query, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=50
        )
    except ValueError:
        raise ValueError("the rail URL's query must be members like find=yes, joined by &") from None


def parse_duration(text: str) -> float:
    """Seconds of ``250ms``, ``30s``, ``15m``, ``24h`` or ``7d``. Raises ValueError."""
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"a duration is a whole number and ms, s, m, h or d, such as 15m, not {text[:40]!r}")
    return int(match[1]) * _SECONDS[match[2]]


def _duration(member: str, value: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise ValueError(f"the rail URL's {member}: {error}") from None


def _flag(member: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise ValueError(f"the rail URL's {member} must be yes or no, not {value[:40]!r}")
    return value == "yes"


def _word(member: str, value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError(f"the rail URL's {member} must be 1 to 100 visible ASCII characters")
    return value


_MEMBERS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "find": ("finds", _flag),
    "dedupes_for": ("dedupes_for_seconds", _duration),
    "binds_refusals": ("binds_refusals", _flag),
    "honours_deadline": ("honours_deadline", _flag),
    "settle_window": ("settle_window_seconds", _duration),
    "account": ("account", _word),
    "name": ("name", _word),
}
