"""What an operator should know about a SQLite store, asked through SQL and the kernel alone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw

from nonbis.core.ids import MACHINE_MAX
from nonbis.stores.sqlite_files import refuse_network
from nonbis.stores.sqlite_machines import SQL
from nonbis.stores.sqlite_schema import schema_steps

_SHOWN: Final = (
    "journal_mode",
    "synchronous",
    "wal_autocheckpoint",
    "page_size",
    "page_count",
    "freelist_count",
)
_SYNCHRONOUS: Final = {0: "off", 1: "normal", 2: "full", 3: "extra"}


def examine(connection: apsw.Connection, path: Path) -> dict[str, str]:
    """Versions, settings, sizes, and whether the file is sound (a quick check of its structure)."""
    found = {"sqlite": apsw.sqlite_lib_version(), "apsw": apsw.apsw_version(), "file": str(path)}
    for name in _SHOWN:
        value = connection.execute(f"pragma {name}").get
        found[name] = _SYNCHRONOUS[value] if name == "synchronous" else str(value)
    found["file_system"] = f"{refuse_network(path.parent):#x}"
    found["schema"] = str(schema_steps(connection))
    fence = connection.execute(str(SQL.fence)).get
    found["store_id"] = fence[0].hex()
    found["generation"] = str(fence[3])
    found["epoch"] = str(fence[5])
    found["age_seconds"] = f"{fence[6] / 1000:.0f}"
    found["machine_numbers_used"] = f"{fence[7]} of {MACHINE_MAX} ({fence[7] / MACHINE_MAX:.1%})"
    found["check"] = "; ".join(row[0] for row in connection.execute("pragma quick_check(5)"))
    return found
