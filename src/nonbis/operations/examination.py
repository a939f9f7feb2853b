"""What ``nonbis doctor`` looks at: each check is one line that says ok, warn or fail, and why."""

from __future__ import annotations

import shutil
import stat
from collections import Counter
from enum import StrEnum
from pathlib import Path

import msgspec

from nonbis.core.ids import MACHINE_MAX
from nonbis.core.payments import timestamp
from nonbis.core.policy import Agreement, Policy, RailFacts
from nonbis.operations.words import duration
from nonbis.ports import Clock, MachineRow, MachineState, Selection, Store
from nonbis.upkeep import queries

MEBIBYTE = 2**20
DISK_WARN_BYTES = 1024 * MEBIBYTE
DISK_FAIL_BYTES = 64 * MEBIBYTE
CLOCK_STEP_MAX_SECONDS = 0.05
CLOCK_AHEAD_MAX_SECONDS = 5.0
CLOCK_EARLIEST_MS = 1_704_067_200_000
"""The beginning of 2024: a clock that shows less was never set."""
AGE_AHEAD_MAX_SECONDS = 60.0


class Status(StrEnum):
    """How a check ended. Only ``fail`` makes the exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True):
    """One line of the examination."""

    name: str
    status: Status
    detail: str


class Examination(msgspec.Struct, frozen=True):
    """All of it; ``status`` is the worst of its checks."""

    store: str
    status: Status
    checks: list[Check]


def examination(store_url: str, checks: list[Check]) -> Examination:
    """The checks and the worst of them."""
    found = {check.status for check in checks}
    worst = next((status for status in (Status.FAIL, Status.WARN) if status in found), Status.OK)
    return Examination(store_url, worst, checks)


async def examine(store: Store, clock: Clock) -> list[Check]:
    """Look at the store, those who use it, the host's clock and disk. Raises StoreError."""
    wall_ms, boottime = clock.wall_ms(), clock.boottime()
    facts = await store.doctor()
    machines, vanished = await store.machines(), await store.vanished()
    newest = await store.select(Selection(limit=1, newest_first=True))
    last_ms = max(
        [
            *(row.changed_at_ms for row in machines),
            *(stored.record.changed.wall_ms for stored in newest),
        ],
        default=0,
    )
    return [
        *store_checks(facts),
        machine_numbers(max([row.id for row in machines], default=0)),
        machines_living(machines, vanished, clock.wall_ms()),
        agreed(await store.agreement()),
        await in_doubt(store),
        clock_set(clock.wall_ms(), last_ms),
        clock_steady(clock.wall_ms() - wall_ms, clock.boottime() - boottime),
        age_plausible(await store.age_ms(), machines, clock.wall_ms()),
        *(_of_the_file(Path(facts["file"])) if "file" in facts else []),
    ]


# -- the store -----------------------------------------------------------------------------------------


def store_checks(facts: dict[str, str]) -> list[Check]:
    """What the store says of itself: known facts are judged, the others are shown."""
    found = []
    if "sqlite" in facts:
        found.append(Check("sqlite", Status.OK, f"{facts['sqlite']} (apsw {facts.get('apsw', 'unknown')})"))
        found.append(Check("strangers", Status.OK, "nothing else in this process has the file open"))
    for name, good, why in _JUDGED:
        if name in facts:
            sound = facts[name] in good
            detail = facts[name] if sound else f"{facts[name]}: {why}"
            found.append(Check(name, Status.OK if sound else Status.FAIL, detail))
    if "page_count" in facts and "page_size" in facts:
        size = int(facts["page_count"]) * int(facts["page_size"])
        found.append(Check("size", Status.OK, f"{size / MEBIBYTE:.1f} MiB in {facts.get('file', '?')}"))
    if "file_system" in facts:
        found.append(file_system(facts["file_system"]))
    return found + [Check(name, Status.OK, facts[name]) for name in _SHOWN if name in facts]


def file_system(magic: str) -> Check:
    """Which one the file is on; network file systems are refused when the store is opened."""
    name = _FILE_SYSTEMS.get(int(magic, 16), "unknown")
    if name in ("tmpfs", "ramfs"):
        return Check("file_system", Status.WARN, f"{name} is in memory: all is lost when the host restarts")
    return Check("file_system", Status.OK, f"{name} ({magic})")


_JUDGED = (
    ("check", ("ok",), "the file is damaged; keep it and restore from a backup"),
    ("journal_mode", ("wal",), "the store relies on a write-ahead log"),
    ("synchronous", ("full", "extra"), "what was acknowledged is lost when the power fails"),
)
_FILE_SYSTEMS = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0x2FC12FC1: "zfs",
    0xF2F52010: "f2fs",
    0x794C7630: "overlayfs",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
}
_BESIDE = ("-wal", "-shm", ".nonbis-lock", ".machines")
_OTHERS = 0o077
_SHOWN = ("schema", "generation", "epoch", "store_id", "memory")


def _of_the_file(path: Path) -> list[Check]:
    return [permissions(path), disk_space(path.parent)]


def permissions(path: Path) -> Check:
    """Whether others than the owner may read or change the store: it holds every request and its key."""
    open_to = [
        f"{name} ({mode:04o})"
        for name in (path.name, *(f"{path.name}{suffix}" for suffix in _BESIDE))
        if (mode := _mode(path.with_name(name))) & _OTHERS
    ]
    if open_to:
        detail = f"others can read or change {', '.join(open_to)}: chmod go= on it"
        return Check("permissions", Status.WARN, detail)
    return Check("permissions", Status.OK, "the files are their owner's alone")


def _mode(path: Path) -> int:
    """The permissions of a file, 0 if it is not there. Looks, but does not open."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0


# -- who uses it ---------------------------------------------------------------------------------------


def machine_numbers(used: int) -> Check:
    """How many of the 2^23 machine numbers are gone: they are never given out twice."""
    detail = f"{used} of {MACHINE_MAX} used ({used / MACHINE_MAX:.1%})"
    if used >= MACHINE_MAX:
        return Check("machine_numbers", Status.FAIL, f"{detail}: no process can write to this store any more")
    if used > MACHINE_MAX // 2:
        return Check("machine_numbers", Status.WARN, f"{detail}: find out what restarts so often")
    return Check("machine_numbers", Status.OK, detail)


def machines_living(machines: list[MachineRow], vanished: list[MachineRow], wall_ms: int) -> Check:
    """How many machines live, and whether one that should beat does not."""
    gone = {row.id for row in vanished}
    counts = Counter(MachineState.LOST if row.id in gone else row.state for row in machines)
    detail = ", ".join(f"{counts[state]} {state.value}" for state in MachineState)
    lost_after_ms = int(Policy().lost_after_seconds * 1000)
    silent = [
        row.id
        for row in machines
        if row.state is MachineState.LIVING
        and row.id not in gone
        and wall_ms - row.changed_at_ms > lost_after_ms
    ]
    said = []
    if gone:
        said.append(
            f"the process of machine {_list(sorted(gone))} is gone; a service writes that down when it runs"
        )
    if silent:
        said.append(
            f"no beat for {duration(lost_after_ms / 1000)} from machine {_list(silent)}: paused or overloaded"
        )
    return Check("machines", Status.WARN if said else Status.OK, "; ".join([detail, *said]))


def _list(numbers: list[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return f"{shown} and {len(numbers) - 5} more" if len(numbers) > 5 else shown


def agreed(agreement: Agreement | None) -> Check:
    """What all processes on the store count on."""
    if agreement is None:
        return Check("agreement", Status.WARN, "none: no service has used this store yet")
    rails = "; ".join(_rail(facts) for facts in agreement.rails) or "no rail yet"
    return Check(
        "agreement", Status.OK, f"send deadline {duration(agreement.send_deadline_seconds)}; {rails}"
    )


def _rail(facts: RailFacts) -> str:
    known = [f"settle window {duration(facts.settle_window_seconds)}"]
    if facts.dedupes_for_seconds is not None:
        known.append(f"dedupes for {duration(facts.dedupes_for_seconds)}")
    known += [
        words
        for words, has in (
            ("binds refusals", facts.binds_refusals),
            ("honours the deadline", facts.honours_deadline),
            ("can be asked", facts.finds),
        )
        if has
    ]
    return f"rail {facts.name}/{facts.account}: {', '.join(known)}"


async def in_doubt(store: Store) -> Check:
    """How many operations wait for somebody."""
    rows = await queries.in_doubt(store)
    contradicted = sum(row.contradicted for row in rows)
    if not rows:
        return Check("in_doubt", Status.OK, "none")
    more = f", {contradicted} of them contradicted" if contradicted else ""
    return Check("in_doubt", Status.WARN, f"{len(rows)}{more}: see nonbis ops in-doubt")


# -- the host ------------------------------------------------------------------------------------------


def clock_set(wall_ms: int, last_ms: int) -> Check:
    """Whether the wall clock was ever set, and is not behind what the store has seen already."""
    if wall_ms < CLOCK_EARLIEST_MS:
        return Check("clock", Status.FAIL, f"the wall clock says {timestamp(wall_ms)}: it was never set")
    ahead = (last_ms - wall_ms) / 1000
    if ahead > CLOCK_AHEAD_MAX_SECONDS:
        return Check(
            "clock",
            Status.WARN,
            f"{timestamp(wall_ms)}, but the store has seen {timestamp(last_ms)}, {duration(ahead)} later:"
            " the clock of this or of another host is wrong",
        )
    return Check("clock", Status.OK, timestamp(wall_ms))


def clock_steady(wall_ms: int, boottime_seconds: float) -> Check:
    """Whether wall clock and CLOCK_BOOTTIME agreed on how long this examination took."""
    apart = abs(wall_ms / 1000 - boottime_seconds)
    if apart > CLOCK_STEP_MAX_SECONDS:
        return Check(
            "clock_steady",
            Status.WARN,
            f"the wall clock jumped by {apart:.3f} s while this ran: no harm, but it should be slewed",
        )
    return Check("clock_steady", Status.OK, f"wall clock and boot time agree to {apart * 1000:.0f} ms")


def age_plausible(age_ms: int, machines: list[MachineRow], wall_ms: int) -> Check:
    """Whether the store was served for no longer than it has existed by the wall clock."""
    age = age_ms / 1000
    if not machines:
        return Check("age", Status.OK, f"served for {duration(age)}")
    existed = (wall_ms - min(row.registered_at_ms for row in machines)) / 1000
    detail = f"served for {duration(age)} of {duration(max(existed, 0))}"
    if age > existed + AGE_AHEAD_MAX_SECONDS:
        return Check("age", Status.WARN, f"{detail}: the wall clock was set back")
    return Check("age", Status.OK, detail)


def disk_space(folder: Path) -> Check:
    """Whether the disk has room. A full disk takes no payments, and loses none."""
    usage = shutil.disk_usage(folder)
    detail = f"{usage.free / MEBIBYTE:.0f} MiB free of {usage.total / MEBIBYTE:.0f} MiB"
    if usage.free < DISK_FAIL_BYTES:
        return Check("disk", Status.FAIL, detail)
    return Check("disk", Status.WARN if usage.free < DISK_WARN_BYTES else Status.OK, detail)
