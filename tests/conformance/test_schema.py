"""The SQLite schema: rows that can't be are refused, rows that can be are taken, files agree."""

from __future__ import annotations

import re
from importlib import resources

import apsw
import pytest

from nonbis.clocks import SystemEntropy
from nonbis.core.messages import JournalKind, Reason, State
from nonbis.errors import SchemaNewer, StoreDamaged
from nonbis.ports import MachineState
from nonbis.stores import sqlite_rows
from nonbis.stores.migrations import Applied, Migration, available, pending
from nonbis.stores.sqlite_schema import prepare
from tests.conformance.walks import lives
from tests.conformance.workload import Machine, name

SCHEMA = resources.files("nonbis.stores") / "sql" / "sqlite" / "schema.sql"


def fresh() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    prepare(connection, SystemEntropy(), 0)
    return connection


def objects(connection: apsw.Connection) -> dict[str, str]:
    """Every table and index with its text, comments and white space taken out."""
    rows = connection.execute("select type || ' ' || name, sql from sqlite_schema where sql is not null")
    return {key: re.sub(r"\s+", " ", re.sub(r"--.*", "", text)).strip() for key, text in rows}


def test_schema_file_and_migrations_agree() -> None:
    described = apsw.Connection(":memory:")
    described.execute(SCHEMA.read_text("utf-8"))
    migrated = fresh()
    assert objects(described) == objects(migrated)
    for table in [key.split()[1] for key in objects(migrated) if key.startswith("table")]:
        columns = f"pragma table_xinfo({table})"
        assert described.execute(columns).fetchall() == migrated.execute(columns).fetchall()


COLUMNS = [row[0] for row in fresh().execute("select name from pragma_table_info('operation')")]
GOOD = dict(zip(COLUMNS, sqlite_rows.row_of(Machine(3).claim(name(1)).record), strict=True))


def insert(connection: apsw.Connection, **columns: object) -> None:
    connection.execute(sqlite_rows.SQL.insert_operations.rows(1), tuple((GOOD | columns).values()))


def test_the_good_row_is_taken() -> None:
    connection = fresh()
    insert(connection)
    assert connection.execute("select count(*) from operation").get == 1


FAILED = {"state": "failed", "reason": "not_sent", "open_sends": 0}
NO_SEND = {
    "sends": 0,
    "open_sends": 0,
    "started_wall_ms": None,
    "started_age_ms": None,
}
IMPOSSIBLE = {
    "id without machine": {"id": 5},
    "id of zero": {"id": 0},
    "negative id": {"id": -(1 << 41)},
    "stamp without machine": {"stamp": 5},
    "owner of zero": {"owner": 0},
    "owner beyond 23 bits": {"owner": 1 << 23},
    "short digest": {"digest": bytes(15)},
    "long digest": {"digest": bytes(17)},
    "no digest": {"digest": None},
    "short fingerprint": {"fingerprint": bytes(8)},
    "fingerprint as text": {"fingerprint": "f" * 16},
    "fingerprint version of zero": {"fingerprint_version": 0},
    "unknown state": {"state": "sending"},
    "unknown reason": {**FAILED, "reason": "timeout"},
    "failed without reason": {**FAILED, "reason": None},
    "started with reason": {"reason": "declined"},
    "applied with reason": {"state": "applied", "reason": "settled"},
    "in doubt with reason": {"state": "in_doubt", "reason": "settled"},
    "attempt of zero": {"attempt": 0},
    "negative sends": {"sends": -1},
    "more sends than bits": {"sends": 62, "open_sends": 1 << 61},
    "open send that was never sent": {"open_sends": 2},
    "negative open sends": {"state": "in_doubt", "open_sends": -1},
    "negative refusals": {"refusals": -1},
    "more refusals than attempts": {"refusals": 2},
    "accepted with a send": {"state": "accepted"},
    "started without send": {**NO_SEND, "state": "started"},
    "started whose send is closed": {"open_sends": 0},
    "started whose present send is closed": {"sends": 2, "open_sends": 1},
    "in doubt without send": {**NO_SEND, "state": "in_doubt"},
    "in doubt with all sends closed": {"state": "in_doubt", "open_sends": 0},
    "send without moment": {"started_wall_ms": None, "started_age_ms": None},
    "moment without send": {**FAILED, "sends": 0},
    "started on one clock": {"started_age_ms": None},
    "referenced on one clock": {"referenced_age_ms": None},
    "created on no clock": {"created_wall_ms": None},
    "changed on one clock": {"changed_age_ms": None},
    "contradicted of two": {"contradicted": 2},
    "no rail": {"rail": None},
    "text as attempt": {"attempt": "one"},
}


@pytest.mark.parametrize("columns", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_impossible_rows_are_refused(columns: dict[str, object]) -> None:
    connection = fresh()
    with pytest.raises(apsw.ConstraintError):
        insert(connection, **columns)
    assert connection.execute("select count(*) from operation").get == 0


def test_each_constraint_of_the_operation_is_tried() -> None:
    """Take one constraint away and some impossible row gets in: each of them carries weight."""
    [text] = fresh().execute("select sql from sqlite_schema where name = 'operation'").fetchone()
    constraints = re.findall(r"constraint (\w+) check", text)
    assert len(constraints) > 15
    for constraint in constraints:
        assert any(_refused_by(constraint, columns) for columns in IMPOSSIBLE.values()), constraint


def _refused_by(constraint: str, columns: dict[str, object]) -> bool:
    try:
        insert(fresh(), **columns)
    except apsw.ConstraintError as error:
        return str(error).endswith(f": {constraint}")
    return False


def test_every_row_that_decide_makes_is_taken() -> None:
    connection = fresh()
    count = 0
    for decisions in lives(seed=3, count=1500, steps=30):
        for decision in decisions:
            assert decision.record is not None
            connection.execute("delete from operation")
            connection.execute(sqlite_rows.SQL.insert_operations.rows(1), sqlite_rows.row_of(decision.record))
            found = connection.execute("select * from operation").fetchone()
            assert sqlite_rows.record_of(found) == decision.record
            count += 1
    assert count > 5000


def test_closed_sets_are_those_of_the_core() -> None:
    tables = objects(fresh())
    for values, table, constraint in (
        (State, "operation", "state_is_known"),
        (Reason, "operation", "reason_is_known"),
        (JournalKind, "journal", "kind_is_known"),
        (MachineState, "machine", "state_is_known"),
    ):
        text = tables[f"table {table}"].split(f"constraint {constraint} check")[1].split("constraint")[0]
        assert set(re.findall(r"'(\w+)'", text)) == {value.value for value in values}


def test_no_finish_touches_an_index() -> None:
    """The digest's is the only index of the hot table, and no advance writes the digest."""
    indexes = fresh().execute("select name from pragma_index_list('operation')").fetchall()
    assert indexes == [("operation_digest",)]
    assert "digest =" not in sqlite_rows.SQL.advance_operations.rows(1).split("from next")[0]


def test_migrations_are_checked() -> None:
    known = [Migration(1, "first", "select 1"), Migration(2, "second", "select 2")]
    done = [Applied(step.number, step.name, step.checksum) for step in known]
    assert pending(known, []) == known
    assert pending(known, done[:1]) == known[1:]
    assert pending(known, done) == []
    with pytest.raises(SchemaNewer, match="newer version"):
        pending(known[:1], done)
    with pytest.raises(StoreDamaged, match="not the one known here"):
        pending([known[0], Migration(2, "second", "select 3")], done)
    with pytest.raises(StoreDamaged, match="gap"):
        pending(known, done[1:])


def test_the_migrations_that_ship_are_numbered() -> None:
    assert [step.number for step in available("sqlite")] == [1]
    assert available("sqlite")[0].name == "first"
