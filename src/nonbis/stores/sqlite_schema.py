"""Making and checking the schema, the store key and the store's identity."""

from __future__ import annotations

import apsw

from nonbis.core.names import STORE_KEY_BYTES, store_key_check
from nonbis.errors import StoreDamaged
from nonbis.ports import Entropy
from nonbis.stores.migrations import Applied, available, pending
from nonbis.stores.sqlite_link import APPLICATION_ID
from nonbis.stores.sqlite_machines import SQL

_LIST = """create table migration (
    number integer primary key,
    name text not null,
    checksum text not null,
    at_ms integer not null
) strict"""


class Identity:
    """What tells one store from another: its id and its key."""

    def __init__(self, store_id: bytes, key: bytes) -> None:
        self.store_id = store_id
        self.key = key


def prepare(connection: apsw.Connection, entropy: Entropy, at_ms: int) -> Identity:
    """Bring the schema up to date in one write transaction and return who the store is.

    Raises SchemaNewer or StoreDamaged; nothing is changed then.
    """
    connection.execute("begin immediate")
    try:
        new = not _exists(connection)
        if new:
            connection.execute(f"pragma application_id = {APPLICATION_ID}")
            connection.execute(_LIST)
        for step in pending(available("sqlite"), _applied(connection)):
            connection.execute(step.text)
            connection.execute(
                "insert into migration (number, name, checksum, at_ms) values (?, ?, ?, ?)",
                (step.number, step.name, step.checksum, at_ms),
            )
        if new:
            _make_key(connection, entropy)
        identity = identify(connection)
    except BaseException:
        connection.execute("rollback")
        raise
    connection.execute("commit")
    return identity


def _exists(connection: apsw.Connection) -> bool:
    return bool(connection.execute("select count(*) from sqlite_schema where name = 'migration'").get)


def _applied(connection: apsw.Connection) -> list[Applied]:
    rows = connection.execute("select number, name, checksum from migration order by number")
    return [Applied(*row) for row in rows]


def schema_steps(connection: apsw.Connection) -> int:
    """How many migrations the store has seen."""
    return len(_applied(connection))


def _make_key(connection: apsw.Connection, entropy: Entropy) -> None:
    key = entropy.token(STORE_KEY_BYTES)
    connection.execute(
        str(SQL.insert_fence),
        {"store_id": entropy.token(16), "store_key": key, "store_key_check": store_key_check(key)},
    )


def identify(connection: apsw.Connection) -> Identity:
    """Read the store's id and key. Raises StoreDamaged if the key is missing or not the one it was."""
    row = connection.execute(str(SQL.fence)).fetchone()
    if row is None:
        raise StoreDamaged("the store has no key: without it no name can be recognised")
    store_id, key, check = row[:3]
    if len(key) != STORE_KEY_BYTES or store_key_check(key) != check:
        raise StoreDamaged("the store's key is damaged: with it no name would be recognised")
    return Identity(store_id, key)
