"""Each check of the doctor, its findings included, and the command."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nonbis.clocks import SystemClock
from nonbis.core.ids import MACHINE_MAX
from nonbis.core.policy import Agreement, RailFacts
from nonbis.operations import examination as doctor
from nonbis.operations.examination import Check, Status, examination
from nonbis.ports import MachineRow, MachineState
from tests.operations.commands import Nonbis, process
from tests.operations.prepared import LOST, Bench, run
from tests.operations.test_queries import contradict

NOW = 1_800_000_000_000


def machine(number: int, state: MachineState = MachineState.LIVING, changed_at_ms: int = NOW) -> MachineRow:
    return MachineRow(
        id=number,
        node="n",
        pid=1,
        kind="serve",
        state=state,
        beat=3,
        oldest_open=0,
        lowest_in_flight=0,
        registered_at_ms=NOW - 60_000,
        changed_at_ms=changed_at_ms,
    )


SOUND = {
    "sqlite": "3.54.1",
    "apsw": "3.54.1.0",
    "file": "x.db",
    "check": "ok",
    "journal_mode": "wal",
    "synchronous": "full",
    "page_size": "4096",
    "page_count": "512",
    "file_system": "0xef53",
    "schema": "1",
}


def statuses(checks: list[Check]) -> dict[str, Status]:
    return {check.name: check.status for check in checks}


def test_a_sound_store_is_ok() -> None:
    checks = doctor.store_checks(SOUND)
    assert set(statuses(checks).values()) == {Status.OK}
    assert {
        "sqlite",
        "strangers",
        "check",
        "journal_mode",
        "synchronous",
        "size",
        "file_system",
        "schema",
    } == set(statuses(checks))
    assert Check("size", Status.OK, "2.0 MiB in x.db") in checks


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("check", "row 3 missing from index"),
        ("journal_mode", "delete"),
        ("synchronous", "normal"),
        ("synchronous", "off"),
    ],
)
def test_what_breaks_the_promise_fails(name: str, value: str) -> None:
    checks = doctor.store_checks({**SOUND, name: value})
    assert [check.name for check in checks if check.status is Status.FAIL] == [name]
    assert value in next(check.detail for check in checks if check.name == name)


@pytest.mark.parametrize(
    ("magic", "status", "said"),
    [
        ("0xef53", Status.OK, "ext4 (0xef53)"),
        ("0x1021994", Status.WARN, "tmpfs is in memory: all is lost when the host restarts"),
        ("0x1234", Status.OK, "unknown (0x1234)"),
    ],
)
def test_file_systems(magic: str, status: Status, said: str) -> None:
    assert doctor.file_system(magic) == Check("file_system", status, said)


@pytest.mark.parametrize(
    ("used", "status"),
    [
        (0, Status.OK),
        (MACHINE_MAX // 2, Status.OK),
        (MACHINE_MAX // 2 + 1, Status.WARN),
        (MACHINE_MAX, Status.FAIL),
    ],
)
def test_machine_numbers_are_watched(used: int, status: Status) -> None:
    assert doctor.machine_numbers(used).status is status


def test_machines_that_beat_are_ok() -> None:
    rows = [machine(1), machine(2, MachineState.LOST, 0), machine(3, MachineState.ENDED, 0)]
    assert doctor.machines_living(rows, [], NOW + 9000) == Check(
        "machines", Status.OK, "1 living, 1 lost, 1 ended"
    )


def test_a_machine_without_beats_is_noticed() -> None:
    found = doctor.machines_living([machine(1), machine(2, changed_at_ms=NOW - 10_001)], [], NOW)
    assert (found.status, "from machine 2:" in found.detail) == (Status.WARN, True)


def test_a_machine_whose_process_is_gone_is_noticed() -> None:
    rows = [machine(number, changed_at_ms=0) for number in range(1, 8)]
    found = doctor.machines_living(rows, rows, NOW)
    assert found.status is Status.WARN
    assert found.detail.startswith("0 living, 7 lost, 0 ended; ")
    assert "the process of machine 1, 2, 3, 4, 5 and 2 more is gone" in found.detail
    assert "no beat" not in found.detail


def test_the_agreement_is_told() -> None:
    assert doctor.agreed(None).status is Status.WARN
    facts = RailFacts(
        name="bank", dedupes_for_seconds=86400, binds_refusals=True, honours_deadline=True, finds=True
    )
    assert doctor.agreed(Agreement(send_deadline_seconds=30, rails=(facts,))) == Check(
        "agreement",
        Status.OK,
        "send deadline 30 s; rail bank/main: settle window 15 min, dedupes for 24 h, binds refusals,"
        " honours the deadline, can be asked",
    )


@run
async def test_what_is_in_doubt_is_counted() -> None:
    bench = Bench.in_memory()
    engine = await bench.engine()
    assert await doctor.in_doubt(bench.store) == Check("in_doubt", Status.OK, "none")
    await bench.pay(engine, "a", LOST)
    assert (await doctor.in_doubt(bench.store)).detail == "1: see nonbis ops in-doubt"
    await contradict(bench, engine, "b")
    found = await doctor.in_doubt(bench.store)
    assert (found.status, found.detail) == (
        Status.WARN,
        "2, 1 of them contradicted: see nonbis ops in-doubt",
    )


@pytest.mark.parametrize(
    ("wall_ms", "last_ms", "status"),
    [
        (NOW, 0, Status.OK),
        (NOW, NOW + 5000, Status.OK),
        (NOW, NOW + 5001, Status.WARN),
        (1_000_000, 0, Status.FAIL),
    ],
)
def test_the_wall_clock(wall_ms: int, last_ms: int, status: Status) -> None:
    assert doctor.clock_set(wall_ms, last_ms).status is status


@pytest.mark.parametrize(
    ("wall_ms", "boottime", "status"),
    [(20, 0.021, Status.OK), (120, 0.02, Status.WARN), (-3000, 0.02, Status.WARN)],
)
def test_a_clock_that_jumps(wall_ms: int, boottime: float, status: Status) -> None:
    assert doctor.clock_steady(wall_ms, boottime).status is status


@pytest.mark.parametrize(
    ("age_ms", "status"), [(60_000, Status.OK), (120_000, Status.OK), (120_001, Status.WARN)]
)
def test_an_age_that_can_not_be(age_ms: int, status: Status) -> None:
    assert doctor.age_plausible(age_ms, [machine(1)], NOW).status is status
    assert doctor.age_plausible(age_ms, [], NOW).status is Status.OK


@pytest.mark.parametrize(
    ("free", "status"),
    [(2**34, Status.OK), (2**30 - 1, Status.WARN), (2**26 - 1, Status.FAIL)],
)
def test_disk_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, status: Status) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 0, free))  # type: ignore[attr-defined]  # the type of its answer has no public name
    assert doctor.disk_space(tmp_path).status is status


def test_a_store_that_others_can_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    for suffix in ("", "-wal", ".nonbis-lock"):
        path.with_name(f"x.db{suffix}").touch(0o600)
    (tmp_path / "x.db.machines").mkdir(0o700)
    assert doctor.permissions(path) == Check("permissions", Status.OK, "the files are their owner's alone")
    path.with_name("x.db-wal").chmod(0o604)
    (tmp_path / "x.db.machines").chmod(0o750)
    found = doctor.permissions(path)
    assert found.status is Status.WARN
    assert found.detail == "others can read or change x.db-wal (0604), x.db.machines (0750): chmod go= on it"


def test_the_worst_check_decides() -> None:
    ok, warn, fail = (Check(status.value, status, "") for status in Status)
    assert examination("x", [ok]).status is Status.OK
    assert examination("x", [ok, warn]).status is Status.WARN
    assert examination("x", [fail, warn, ok]).status is Status.FAIL


@run
async def test_a_store_in_memory_can_be_examined() -> None:
    checks = statuses(await doctor.examine(Bench.in_memory().store, SystemClock()))
    assert list(checks) == [
        *("memory", "machine_numbers", "machines", "agreement", "in_doubt"),
        *("clock", "clock_steady", "age"),
    ]


# -- the command ---------------------------------------------------------------------------------------


def by_name(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {check["name"]: check for check in found["checks"]}


def test_doctor_in_json(nonbis: Nonbis) -> None:
    found = nonbis.data("doctor")
    assert list(found) == ["store", "status", "checks"]
    assert all(list(check) == ["name", "status", "detail"] for check in found["checks"])
    checks = by_name(found)
    assert {"sqlite", "journal_mode", "synchronous", "file_system", "clock", "schema", "strangers"} <= set(
        checks
    )
    assert {"machine_numbers", "agreement", "machines", "in_doubt", "disk", "check", "age"} <= set(checks)
    assert checks["permissions"]["status"] == "ok"
    assert checks["machines"]["detail"].startswith("0 living, 2 lost, 0 ended; ")
    assert {check["status"] for check in found["checks"]} <= {"ok", "warn"}
    assert checks["in_doubt"]["detail"] == "3: see nonbis ops in-doubt"
    assert checks["machine_numbers"]["detail"].startswith("2 of 8388607 ")
    assert found["status"] == "warn"


def test_doctor_for_people_keeps_to_the_width(nonbis: Nonbis) -> None:
    result = nonbis("doctor")
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert all(line[:4].strip() in {"ok", "warn", ""} for line in result.stdout.splitlines())


def test_a_store_that_is_refused_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database at all, but long enough to be read as if it were one\n" * 9)
    result = process("doctor", "--json", "--store", "sqlite:///x.db", folder=tmp_path)
    assert (result.returncode, result.stderr) == (1, "")
    found = msgspec.json.decode(result.stdout)
    assert found["status"] == "fail"
    assert by_name(found).keys() == {"store"}
    assert "not a database" in by_name(found)["store"]["detail"]


def test_a_stranger_on_the_file_is_a_finding(nonbis: Nonbis) -> None:
    """What a second SQLite library would do; the descriptor stays open until the command has ended."""
    stranger = os.open(nonbis.url.removeprefix("sqlite:///"), os.O_RDONLY)
    try:
        result = nonbis("doctor")
    finally:
        os.close(stranger)
    assert result.exit_code == 1
    assert "two SQLite libraries" in " ".join(result.stdout.split())
