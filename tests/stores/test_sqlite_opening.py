"""Files that can't be a store, or not safely, are refused with a clear sentence."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from nonbis.core.names import store_key_check
from nonbis.errors import SchemaNewer, StoreDamaged, StoreError, StoreUnsafe
from nonbis.stores import sqlite, sqlite_files, sqlite_link
from tests.conformance.places import runs
from tests.conformance.workload import claimed, name, new_machine
from tests.stores.stands import in_child, meddle, opened, said_by_child, sqlite_store


async def made(path: Path) -> None:
    """A store with one operation, closed."""
    async with sqlite_store(path) as store:
        await claimed(store, await new_machine(store), 1)


def change(path: Path, statement: str) -> None:
    """Change a closed store's file, in another process."""
    code = "import apsw, sys; apsw.Connection(sys.argv[1]).execute(sys.argv[2]).fetchall()"
    said_by_child(code, path, statement)


@runs
async def test_what_was_written_is_there_after_opening_anew(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await made(path)
    async with sqlite_store(path) as store:
        assert await store.find(name(1)) is not None
        assert store.url == f"sqlite:///{path}"
        assert store.shared
        key = store.key
    async with sqlite_store(path) as store:
        assert store.key == key


@runs
async def test_two_stores_have_two_keys(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "a.db") as first, sqlite_store(tmp_path / "b.db") as second:
        assert first.key != second.key


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("synchronous", 2), ("locking_mode", "normal"), ("busy_timeout", 5000)],
)
@runs
async def test_every_connection_is_as_safe_as_asked(tmp_path: Path, pragma: str, value: object) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        for link in store._links:
            assert link.connected().execute(f"pragma {pragma}").get == value
            link.drop()
            assert link.connected().execute(f"pragma {pragma}").get == value


@runs
async def test_the_reader_cannot_write(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        with pytest.raises(apsw.ReadOnlyError):
            store._links[1].connected().execute("delete from operation")


SILENT = ["journal_mode", "synchronous", "busy_timeout", "mmap_size"]


@pytest.mark.parametrize("pragma", SILENT)
@runs
async def test_a_pragma_that_does_not_take_is_noticed(tmp_path: Path, monkeypatch, pragma: str) -> None:
    """What an injected I/O error does to an unfetched pragma: nothing is raised and nothing is set."""
    given = tuple(
        (name, "delete" if name == "journal_mode" else "1", wanted)
        if name == pragma
        else (name, asked, wanted)
        for name, asked, wanted in sqlite_link._PRAGMAS
    )
    if pragma == "busy_timeout":
        given = tuple(
            (name, asked.replace("{busy_ms}", "{query_only}"), wanted) for name, asked, wanted in given
        )
        monkeypatch.setattr(sqlite_link, "int", lambda _: 5000, raising=False)
    monkeypatch.setattr(sqlite_link, "_PRAGMAS", given)
    if pragma == "mmap_size":
        monkeypatch.setattr(
            sqlite_link, "_PRAGMAS", tuple((n, "4096" if n == pragma else a, w) for n, a, w in given)
        )
    with pytest.raises(StoreUnsafe, match=f"SQLite's {pragma} is"):
        await opened(tmp_path / "s.db")


@runs
async def test_an_old_sqlite_library_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreUnsafe, match=r"3\.51\.2 is older than 3\.51\.3"):
        await opened(tmp_path / "s.db")


@runs
async def test_the_oldest_safe_library_is_taken(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.3")
    async with sqlite_store(tmp_path / "s.db") as store:
        assert await store.machines() == []


@runs
async def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch) -> None:
    magic = sqlite_files.refuse_network(tmp_path)
    monkeypatch.setitem(sqlite_files._SHARED_FILE_SYSTEMS, magic, "NFS")
    with pytest.raises(StoreUnsafe, match="is on NFS"):
        await opened(tmp_path / "s.db")
    assert not (tmp_path / "s.db").exists()


def test_the_kernel_tells_the_file_system() -> None:
    assert sqlite_files.refuse_network(Path("/proc")) == 0x9FA0


@runs
async def test_text_is_not_a_store(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.write_text("these are not the rows you are looking for\n" * 100)
    with pytest.raises(StoreDamaged, match="not a database"):
        await opened(path)
    assert path.read_text().startswith("these are not")


@runs
async def test_another_program_s_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    change(path, "create table users (id)")
    with pytest.raises(StoreDamaged, match="not a Nonbis store"):
        await opened(path)
    assert (
        said_by_child(
            "import apsw, sys; print(apsw.Connection(sys.argv[1]).execute('pragma journal_mode').get)", path
        )
        == "delete"
    )


@runs
async def test_a_corrupt_file_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await made(path)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    with pytest.raises(StoreDamaged):
        await opened(path)


@runs
async def test_a_corrupt_page_is_damage_while_running(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await made(path)
    root = said_by_child(
        "import apsw, sys; print(apsw.Connection(sys.argv[1])"
        ".execute(\"select rootpage from sqlite_schema where name = 'operation'\").get)",
        path,
    )
    with path.open("r+b") as file:
        file.seek((int(root) - 1) * 4096)
        file.write(b"\xff" * 4096)
    store = await opened(path)
    machine = await new_machine(store)
    with pytest.raises(StoreDamaged):
        await store.claim([machine.claim(name(2))])
    with pytest.raises(StoreDamaged):
        await store.find(name(1))
    await store.close()


@runs
async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await made(path)
    change(path, "insert into migration values (2, 'later', 'x', 0)")
    with pytest.raises(SchemaNewer, match="use the newer version"):
        await opened(path)


@runs
async def test_a_changed_migration_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await made(path)
    change(path, "update migration set checksum = 'other'")
    with pytest.raises(StoreDamaged, match="migration 1"):
        await opened(path)


@runs
async def test_a_wrong_key_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await made(path)
    change(path, "update fence set store_key = zeroblob(32)")
    with pytest.raises(StoreDamaged, match="key is damaged"):
        await opened(path)
    change(path, f"update fence set store_key_check = x'{store_key_check(bytes(32)).hex()}'")
    async with sqlite_store(path) as store:
        assert store.key == bytes(32)


@runs
async def test_a_missing_key_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await made(path)
    change(path, "delete from fence")
    with pytest.raises(StoreDamaged, match="has no key"):
        await opened(path)


@runs
async def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't be looked at"):
        await opened(tmp_path / "nowhere" / "s.db")


@runs
async def test_a_folder_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't be opened"):
        await opened(tmp_path)


@runs
async def test_a_refused_file_can_be_opened_after_it_was_mended(tmp_path: Path) -> None:
    """A refusal leaves no descriptor behind."""
    path = tmp_path / "s.db"
    await made(path)
    change(path, "insert into migration values (2, 'later', 'x', 0)")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(SchemaNewer):
            await opened(path)
    assert len(os.listdir("/proc/self/fd")) == before
    change(path, "delete from migration where number = 2")
    async with sqlite_store(path) as store:
        assert await store.find(name(1)) is not None


@runs
async def test_nothing_is_made_if_making_fails_half_way(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "s.db"

    def plan(statement: str, run: Callable[[], Any]) -> Any:
        if "insert into fence" in statement:
            raise apsw.FullError("database or disk is full")
        return run()

    with monkeypatch.context() as planted:
        meddle(planted, plan)
        with pytest.raises(StoreError, match="is full"):
            await opened(path)
    async with sqlite_store(path) as store:
        assert len(store.key) == 32


READ_ONLY = """
import asyncio, concurrent.futures.thread, os, sys
from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.errors import StoreError
from nonbis.stores.sqlite import SqliteStore
async def main():
    try:
        await SqliteStore.open(sys.argv[1], clock=SystemClock(), entropy=SystemEntropy())
    except StoreError as error:
        print(type(error).__name__, error)
os.setgroups([]); os.setgid(65534); os.setuid(65534)
asyncio.run(main())
"""


@runs
async def test_a_file_that_can_only_be_read_is_refused() -> None:
    """Tried as a user without rights where the tests run as root, else by the file's mode."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.db")
        await made(path)
        Path(folder, "s.db.nonbis-lock").chmod(0o666)
        path.chmod(0o444)
        Path(folder).chmod(0o777)
        code = READ_ONLY
        if os.geteuid() != 0:
            code = "\n".join(line for line in code.splitlines() if "setuid" not in line)
        said = said_by_child(code, path)
    assert "StoreUnsafe" in said
    assert "can only be read" in said


STARTER = """
import asyncio, sys
from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.stores.sqlite import SqliteStore
async def main():
    sys.stdin.readline()
    store = await SqliteStore.open(sys.argv[1], clock=SystemClock(), entropy=SystemEntropy())
    print(store.key.hex())
    await store.close()
asyncio.run(main())
"""


def test_several_processes_make_one_store_together(tmp_path: Path) -> None:
    starters: list[subprocess.Popen[str]] = [in_child(STARTER, tmp_path / "s.db") for _ in range(4)]
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write("go\n")
        starter.stdin.flush()
    keys = {starter.communicate(timeout=60)[0].strip() for starter in starters}
    assert [starter.returncode for starter in starters] == [0] * 4
    assert len(keys) == 1
    assert len(keys.pop()) == 64


@runs
async def test_doctor_tells_the_settings(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        await new_machine(store)
        found = await store.doctor()
    assert found["journal_mode"] == "wal"
    assert found["synchronous"] == "full"
    assert found["sqlite"] == apsw.sqlite_lib_version()
    assert found["check"] == "ok"
    assert found["schema"] == "1"
    assert found["machine_numbers_used"].startswith("1 of 8388607")
    assert all(isinstance(text, str) for text in found.values())
    assert sqlite.BUSY_SECONDS == 5.0
