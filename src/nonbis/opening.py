"""URLs to things: the only place that names concrete stores and rails."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.core.policy import Policy
from nonbis.errors import StoreUnsafe
from nonbis.ports import Clock, Entropy, Rail, Store
from nonbis.rails.urls import HttpRailUrl, parse_rail_url

DEFAULT_STORE = "sqlite:///nonbis.db"
DEFAULT_RAIL = "simulated:"
_LATER_STORES = ("postgresql", "postgres")


async def open_store(
    url: str, *, clock: Clock | None = None, entropy: Entropy | None = None, create: bool = True
) -> Store:
    """The store at ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``memory:``.

    With ``create=False`` a SQLite file that is not there raises StoreUnsafe instead of being made.
    Raises ValueError for a URL of another form, StoreError if the store is refused.
    """
    clock = clock or SystemClock()
    entropy = entropy or SystemEntropy()
    if url == "memory:":
        from nonbis.stores.memory import MemoryStore  # noqa: PLC0415  (only what is asked for is loaded)

        return MemoryStore(entropy=entropy)
    path = sqlite_path(url)
    from nonbis.stores.sqlite import SqliteStore  # noqa: PLC0415  (only what is asked for is loaded)

    if not create and not path.exists():
        raise StoreUnsafe(f"there is no store at {path}; `nonbis serve` makes one")
    return await SqliteStore.open(path, clock=clock, entropy=entropy)


def sqlite_path(url: str) -> Path:
    """The file of a SQLite URL. Raises ValueError for any other URL."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme in _LATER_STORES:
        raise ValueError(f"this version has no store for {parts.scheme}: yet; it has sqlite:///nonbis.db")
    if parts.scheme != "sqlite" or parts.netloc or parts.query or parts.fragment or len(path) < 2:
        raise ValueError(
            "a store URL looks like sqlite:///nonbis.db or sqlite:////var/nonbis.db,"
            f" not {_without_secret(url)!r}"
        )
    return Path(path[1:])


def _without_secret(url: str) -> str:
    """The URL without what may be a user's name and password, for telling people."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://...{rest[rest.rindex('@') :]}" if "@" in rest else url


def check_urls(store: str, rail: str) -> None:
    """Raise ValueError, with a sentence for a person, for a URL that open_store or open_rail can't take."""
    if store != "memory:":
        sqlite_path(store)
    parse_rail_url(rail)


def open_rail(url: str, *, send_deadline_seconds: float = Policy().send_deadline_seconds) -> Rail:
    """The rail at ``simulated:``, ``simulated:///ledger.jsonl`` or ``http://host:port?find=yes``.

    Raises ValueError for a URL of another form, and for a ledger that can't be read.
    """
    parsed = parse_rail_url(url)
    if isinstance(parsed, HttpRailUrl):
        from nonbis.rails.http import HttpRail  # noqa: PLC0415  (only what is asked for is loaded)

        return HttpRail(parsed.base_url, parsed.facts, send_deadline_seconds=send_deadline_seconds)
    from nonbis.rails.simulated import FileLedger, SimulatedRail  # noqa: PLC0415  (only what is asked for is loaded)

    return SimulatedRail(FileLedger(parsed.path))
