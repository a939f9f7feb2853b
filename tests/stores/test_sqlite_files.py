"""Strangers on the file, forks, replaced files, and the lock files of machines."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from nonbis.errors import MachineLost, StoreError, StoreUnsafe
from nonbis.stores.sqlite import SqliteStore
from nonbis.stores.sqlite_files import DESCRIPTORS, LockFile, is_free, locked_files
from tests.conformance.places import runs
from tests.conformance.suite_machines import beat
from tests.conformance.workload import claimed, name, new_machine
from tests.stores.stands import in_child, opened, sqlite_store

SENTENCE = "two SQLite libraries on one file"


@runs
async def test_a_second_library_is_refused_at_open(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await (await opened(path)).close()
    foreign = sqlite3.connect(path)
    foreign.execute("select count(*) from operation").fetchone()
    with pytest.raises(StoreUnsafe, match=SENTENCE):
        await opened(path)
    foreign.close()
    await (await opened(path)).close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
@runs
async def test_a_plain_open_is_noticed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "s.db"
    store = await opened(path)
    machine = await new_machine(store)
    await beat(store, machine.number, 0)
    with open(f"{path}{suffix}", "rb"):
        with pytest.raises(StoreUnsafe, match=SENTENCE):
            await store.doctor()
        with pytest.raises(StoreUnsafe, match=SENTENCE):
            await beat(store, machine.number, 1)
        with pytest.raises(StoreUnsafe, match=SENTENCE):
            await store.claim([machine.claim(name(1))])
    await store.close()


@pytest.mark.parametrize("suffix", ["", "-shm"])
@runs
async def test_an_open_and_close_between_two_looks_is_noticed(tmp_path: Path, suffix: str) -> None:
    """No descriptor is left of it, but the kernel's list of locks shows what it did."""
    path = tmp_path / "s.db"
    store = await opened(path)
    machine = await new_machine(store)
    await beat(store, machine.number, 0)
    open(f"{path}{suffix}", "rb").close()
    for _ in range(2):
        with pytest.raises(StoreUnsafe, match="opened and closed"):
            await beat(store, machine.number, 1)
        with pytest.raises(StoreUnsafe, match="opened and closed"):
            await store.claim([machine.claim(name(1))])
    await store.close()


@runs
async def test_the_kernel_shows_our_locks(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with sqlite_store(path):
        assert locked_files(path) == {"", "-shm"}
    assert locked_files(path) == frozenset()


@runs
async def test_several_handles_of_ours_are_no_strangers(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stores = [await opened(path) for _ in range(3)]
    machine = await new_machine(stores[0])
    for count, store in enumerate(stores):
        await beat(stores[0], machine.number, count)
        await store.doctor()
    await stores.pop(1).close()
    stores.append(await opened(path))
    for link in stores[0]._links:
        link.drop()
    await claimed(stores[0], machine, 1)
    for store in stores:
        assert (await store.doctor())["check"] == "ok"
        await store.close()


@runs
async def test_a_stranger_beside_several_handles_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    stores = [await opened(path) for _ in range(2)]
    with open(path, "rb"):
        for store in stores:
            with pytest.raises(StoreUnsafe, match=SENTENCE):
                await store.doctor()
        with pytest.raises(StoreUnsafe, match=SENTENCE):
            await opened(path)
    for store in stores:
        await store.close()


@runs
async def test_a_number_that_was_ours_is_not_ours_for_ever(tmp_path: Path) -> None:
    """A stranger that gets the descriptor number of a closed connection is still a stranger."""
    path = tmp_path / "s.db"
    store = await opened(path)
    own = set(DESCRIPTORS._own)
    await store.close()
    strangers = [os.open(path, os.O_RDONLY) for _ in range(8)]
    assert own & set(strangers)
    with pytest.raises(StoreUnsafe, match=SENTENCE):
        await opened(path)
    for stranger in strangers:
        os.close(stranger)


@runs
async def test_a_replaced_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = await opened(path)
    machine = await new_machine(store)
    path.rename(tmp_path / "away.db")
    path.write_bytes(b"")
    with pytest.raises(StoreUnsafe, match="replaced"):
        await beat(store, machine.number, 0)
    with pytest.raises(StoreUnsafe, match="replaced"):
        await store.claim([machine.claim(name(1))])
    await store.close()


FORK = """
import asyncio, os, sys
from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.errors import StoreError
from nonbis.stores.sqlite import SqliteStore

async def use(store, path):
    for call in (
        lambda: store.find(b"n" * 16),
        lambda: store.register(node="n", pid=1, kind="k", at_ms=0),
        lambda: store.close(),
        lambda: SqliteStore.open(path, clock=SystemClock(), entropy=SystemEntropy()),
    ):
        try:
            await call()
            print("no error")
        except StoreError as error:
            print(type(error).__name__, error)

async def main():
    path = sys.argv[1]
    store = await SqliteStore.open(path, clock=SystemClock(), entropy=SystemEntropy())
    row = await store.register(node="n", pid=1, kind="k", at_ms=0)
    other = await SqliteStore.open(path, clock=SystemClock(), entropy=SystemEntropy())
    child = os.fork()
    if child == 0:
        asyncio.run(use(store, path))
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    assert [row.id for row in await other.vanished()] == []
    await store.beat(row.id, 0, oldest_open=0, lowest_in_flight=0, seen_age_ms=0, elapsed_ms=0, at_ms=0)
    print("the parent goes on")
    await store.close()
    await other.close()

asyncio.run(main())
"""


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    child = in_child(FORK, tmp_path / "s.db")
    said, _ = child.communicate(timeout=60)
    lines = said.strip().splitlines()
    assert child.returncode == 0, said
    assert lines[-1] == "the parent goes on"
    assert len(lines) == 5
    for line in lines[:3]:
        assert line.startswith("StoreError this store was opened before a fork")
    assert lines[3].startswith("StoreUnsafe")
    assert "a fork of a process that had the store open" in lines[3]


LIVING = """
import asyncio, os, sys
from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.stores.sqlite import SqliteStore
async def main():
    store = await SqliteStore.open(sys.argv[1], clock=SystemClock(), entropy=SystemEntropy())
    row = await store.register(node="n", pid=os.getpid(), kind="child", at_ms=0)
    if sys.argv[2] == "with a child":
        if os.fork() == 0:
            while True:
                await asyncio.sleep(60)
    print(row.id, flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""


async def _until_vanished(store: SqliteStore, number: int) -> None:
    """Polls another process's end; the test's time-out is the deadline."""
    while [row.id for row in await store.vanished()] != [number]:
        await asyncio.sleep(0.01)


@runs
async def test_a_killed_process_has_vanished(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with sqlite_store(path) as store:
        await new_machine(store)
        child = in_child(LIVING, path, "alone")
        assert child.stdout is not None
        number = int(await asyncio.to_thread(child.stdout.readline))
        assert await store.vanished() == []
        child.send_signal(signal.SIGSTOP)
        assert await store.vanished() == []
        child.kill()
        child.wait()
        await _until_vanished(store, number)
        assert await store.lose(number, 0, at_ms=1)
        assert await store.vanished() == []
        assert len(os.listdir(f"{path}.machines")) == 1
        child.communicate()


@runs
async def test_a_forked_child_does_not_keep_its_dead_parent_alive(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with sqlite_store(path) as store:
        child = in_child(
            LIVING.replace("await asyncio.sleep(60)", "await asyncio.sleep(3)\n                os._exit(0)"),
            path,
            "with a child",
        )
        assert child.stdout is not None
        number = int(await asyncio.to_thread(child.stdout.readline))
        assert await store.vanished() == []
        child.kill()
        child.wait()
        await asyncio.wait_for(_until_vanished(store, number), 2)
        child.communicate()


@runs
async def test_lock_files_come_and_go_with_their_machines(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    folder = Path(f"{path}.machines")
    first = await opened(path)
    second = await opened(path)
    machines = [await new_machine(first), await new_machine(first), await new_machine(second)]
    files = {file.name for file in folder.iterdir()}
    assert len(files) == 3
    assert not any(is_free(folder / file) for file in files)
    await first.end(machines[0].number, at_ms=1)
    assert len(list(folder.iterdir())) == 2
    await first.close()
    assert [row.id for row in await second.vanished()] == [machines[1].number]
    assert await second.lose(machines[1].number, 0, at_ms=2)
    assert len(list(folder.iterdir())) == 1
    assert await second.vanished() == []
    await second.close()


@runs
async def test_a_machine_declared_lost_lets_its_lock_file_go(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    first, second = await opened(path), await opened(path)
    machine = await new_machine(first)
    assert await second.lose(machine.number, 0, at_ms=1)
    with pytest.raises(MachineLost):
        await beat(first, machine.number, 0)
    assert first._machine_locks.own == {}
    await first.close()
    await second.close()


@runs
async def test_a_missing_lock_file_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    first, second = await opened(path), await opened(path)
    await new_machine(first)
    for file in Path(f"{path}.machines").iterdir():
        file.unlink()
    assert await second.vanished() == []
    await first.close()
    await second.close()


@runs
async def test_of_two_clones_with_the_same_arguments_one_is_refused(tmp_path: Path) -> None:
    """A clone knows all that the other knows, but draws its own chance."""
    path = tmp_path / "s.db"
    first, second = await opened(path), await opened(path)
    machine = await new_machine(first)
    answer = await beat(first, machine.number, 0)
    assert await beat(first, machine.number, 0) == answer
    with pytest.raises(MachineLost):
        await beat(second, machine.number, 0)
    await first.close()
    await second.close()


def test_an_unrelated_close_does_not_free_a_lock_file(tmp_path: Path) -> None:
    lock_file = LockFile(tmp_path / "x.lock")
    assert lock_file.take()
    open(tmp_path / "x.lock", "rb").close()
    assert not is_free(tmp_path / "x.lock")
    other = LockFile(tmp_path / "x.lock")
    assert not other.take()
    lock_file.close()
    assert other.take()
    other.close()
    assert is_free(tmp_path / "x.lock")
    assert not is_free(tmp_path / "nothing")
    with pytest.raises(StoreError):
        other.take()


@runs
async def test_the_last_machine_number_is_an_error(tmp_path: Path) -> None:
    async with sqlite_store(tmp_path / "s.db") as store:
        store._links[0].connected().execute("update fence set machine_counter = (1 << 23) - 2")
        assert (await store.register(node="n", pid=1, kind="k", at_ms=0)).id == (1 << 23) - 1
        for _ in range(2):
            with pytest.raises(StoreError, match="all 8388607 machine numbers"):
                await store.register(node="n", pid=1, kind="k", at_ms=0)
        assert len(await store.machines()) == 1
        assert len(os.listdir(f"{store._path}.machines")) == 1
