"""What people read: whose turn it is, why a line is in the journal, how long a time is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nonbis.core.messages import Kind
from nonbis.core.payments import timestamp
from nonbis.engine.engine import Engine
from nonbis.engine.writing import Observation
from nonbis.operations.words import HAPPENED, duration, whose_turn, why
from nonbis.upkeep import queries
from nonbis.upkeep.queries import Detail, JournalLine
from nonbis.upkeep.resolving import resolve
from tests.operations.prepared import LOST, Bench, run

RESOLVE = "nonbis ops resolve 1:1 --as applied|failed --because TEXT --by WHO --stamp"
EARLY = "2027-01-15T08:10:00.000Z"
LATE = "2027-01-15T08:20:00.000Z"
END = "2027-01-15 08:15:30Z"


async def doubtful(**facts: Any) -> tuple[Bench, Engine, Detail]:
    """A payment in doubt at a rail that says so of itself."""
    bench = Bench.in_memory()
    bench.rail.facts = msgspec.structs.replace(bench.rail.facts, **facts)
    engine = await bench.engine()
    await bench.pay(engine, "a", LOST)
    return bench, engine, await seen(bench)


async def seen(bench: Bench) -> Detail:
    found = await queries.by_name(bench.store, "a")
    assert found is not None
    return found


@run
async def test_a_rail_that_can_be_asked_needs_nobody_before_the_window_has_passed() -> None:
    _, _, row = await doubtful(finds=True)
    assert row.by_itself == "asks"
    assert whose_turn(row, EARLY) == (
        "the service asks the rail by itself, while it runs with this rail: there is nothing to do before"
        f" {END}"
    )
    late = whose_turn(row, LATE)
    assert late.startswith(
        "the service asks the rail by itself, while it runs with this rail; if it stays in"
    )
    assert f"{RESOLVE} {row.stamp}" in late
    assert "--force" not in late


@run
async def test_a_rail_that_dedupes_is_sent_the_same_again() -> None:
    _, _, row = await doubtful(finds=True, dedupes_for_seconds=86_400.0)
    assert row.by_itself == "resends"
    assert "sends it again by itself under the same reference" in whose_turn(row, EARLY)
    assert "nonbis ops resolve" not in whose_turn(row, EARLY)


@pytest.mark.parametrize(
    ("facts", "sends", "does"),
    [
        ({"dedupes_for_seconds": 930.0}, 1, None),
        ({"dedupes_for_seconds": 930.0, "finds": True}, 1, "asks"),
        ({"dedupes_for_seconds": 86_400.0}, 8, "resends"),
        ({"dedupes_for_seconds": 86_400.0}, 9, None),
        ({"dedupes_for_seconds": 86_400.0, "finds": True}, 9, "asks"),
    ],
)
@run
async def test_what_the_service_does_by_itself(facts: Any, sends: int, does: str | None) -> None:
    bench, _, _ = await doubtful(**facts)
    around = await queries.Surroundings.read(bench.store)
    record = msgspec.structs.replace(await bench.row("a"), sends=sends)
    assert around.by_itself(record) == does
    assert around.by_itself(msgspec.structs.replace(record, contradicted=True)) is None


@run
async def test_a_rail_that_can_not_be_asked_needs_a_person_and_failed_needs_force() -> None:
    _, _, row = await doubtful()
    assert row.by_itself is None
    assert whose_turn(row, EARLY) == (
        f"look for the reference on the rail's side, then: {RESOLVE} {row.stamp}"
        f" (--as failed before {END} needs --force)"
    )
    assert "--force" not in whose_turn(row, LATE)
    unknown = msgspec.structs.replace(row, settle_after=None)
    assert whose_turn(unknown, LATE).endswith("(--as failed needs --force: no settle window is known)")


@run
async def test_a_contradiction_is_a_persons_whatever_the_rail_can() -> None:
    bench, engine, _ = await doubtful(finds=True)
    await engine.writer.apply(await bench.row("a"), Observation(kind=Kind.REPORT_APPLIED, attempt=1, send=1))
    await engine.writer.apply(await bench.row("a"), Observation(kind=Kind.REPORT_DECLINED, attempt=1, send=1))
    row = await seen(bench)
    assert (row.state, row.contradicted, row.by_itself) == ("applied", True, None)
    assert whose_turn(row, EARLY) == f"look for the reference on the rail's side, then: {RESOLVE} {row.stamp}"


@run
async def test_a_persons_failed_is_asked_about_once_more() -> None:
    bench, _, before = await doubtful(finds=True)
    cli = await bench.engine("cli")
    await resolve(cli, (await bench.row("a")).id, "failed", who="Ann", because="x", force=True)
    row = await seen(bench)
    assert (row.state, row.by_itself) == ("failed", "asks")
    assert whose_turn(row, EARLY) == (f"the service asks the rail once more after {END}, or before a retry")
    assert whose_turn(before, timestamp(0)) != ""


@run
async def test_what_is_final_is_nobodys_turn() -> None:
    bench = Bench.in_memory()
    await bench.pay(await bench.engine(), "a")
    assert whose_turn(await seen(bench), EARLY) == ""


# -- the journal ---------------------------------------------------------------------------------------


def line(because: str | None, who: str | None = None, rule: str = "report unknown [x] -> in_doubt") -> str:
    return why(
        JournalLine(
            at=EARLY,
            kind="in_doubt",
            state="in_doubt",
            reason=None,
            attempt=1,
            machine=1,
            node=None,
            rule=rule,
            who=who,
            because=because,
            stamp=1,
        )
    )


@pytest.mark.parametrize(
    ("because", "told"),
    [
        ("OutcomeUnknown: the connection was reset", ": the connection was reset"),
        ("OutcomeUnknown: no answer: RemoteProtocolError: it closed.", ": no answer: it closed."),
        ("OutcomeUnknown: no answer: ReadTimeout: ", ": no answer: read timeout"),
        ("CancelledError: ", ": cancelled"),
        ("ReadTimeout: ", ": read timeout"),
        (None, ""),
    ],
)
def test_class_names_are_for_programs(because: str | None, told: str) -> None:
    assert line(because) == f"the send ended without a clear answer{told}"


def test_words_stay_as_they_are() -> None:
    assert line("its machine is not living") == "its machine is not living"
    assert line("asked, it says: applied", "rail bank/main") == "asked, it says: applied"
    assert line("BankList: it is there", "Ann") == "BankList: it is there"
    assert line("OutcomeUnknown: x", rule="") == "x"


def test_every_event_has_words() -> None:
    assert set(HAPPENED) == set(Kind)
    assert line(None, rule="retry -> started") == "another attempt began"


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (1.26, "1.3 s"),
        (30, "30 s"),
        (60, "60 s"),
        (900, "15 min"),
        (5400, "90 min"),
        (86_400, "24 h"),
        (7 * 86_400, "7 days"),
        (100 * 365 * 86_400, "100 years"),
    ],
)
def test_a_time_for_people(seconds: float, told: str) -> None:
    assert duration(seconds) == told
