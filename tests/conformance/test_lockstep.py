"""Memory and SQLite in lockstep: random calls on both, and after each all reads are the same.

``NONBIS_LONG=1`` runs the full counts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from nonbis.clocks import SystemClock, SystemEntropy
from nonbis.core.ids import pack_id
from nonbis.core.machine import decide, needs_attention
from nonbis.core.messages import Event, Kind, Moment, Record, State
from nonbis.core.policy import Agreement
from nonbis.errors import NonbisError
from nonbis.ports import Advance, Claim, Selection, Store
from nonbis.stores.memory import MemoryStore
from nonbis.stores.sqlite import SqliteStore
from tests.conformance.workload import entry_of, name, replace

LONG = bool(os.environ.get("NONBIS_LONG"))
NAMES = 6
numbers = st.integers(0, NAMES - 1)
machines = st.integers(1, 4)
yes = st.booleans()
FACTS = (
    "bounded",
    "owner_living",
    "binds_refusals",
    "receipt_differs",
    "overdue",
    "may_settle",
    "may_resend",
    "may_retry",
    "forced",
    "fenced",
)
facts = st.fixed_dictionaries(dict.fromkeys(FACTS, yes))


class Lockstep(RuleBasedStateMachine):
    """Two stores that must not be told apart. ``seen`` are rows as they once were: stale stamps."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        self.memory = MemoryStore(entropy=SystemEntropy())
        self.sqlite = self.runner.run(
            SqliteStore.open(self.folder / "s.db", clock=SystemClock(), entropy=SystemEntropy())
        )
        self.sequence = 0
        self.seen: list[Record] = []
        self.written: list[Claim | Advance] = []

    def teardown(self) -> None:
        self.runner.run(self.sqlite.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    # -- both do the same

    def both(self, method: str, *arguments: Any, **named: Any) -> Any:
        answers = [self._answer(store, method, arguments, named) for store in (self.memory, self.sqlite)]
        assert answers[0] == answers[1], method
        return answers[0]

    def _answer(self, store: Store, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        try:
            return self.runner.run(getattr(store, method)(*arguments, **named))
        except NonbisError as error:
            return type(error)

    def compare(self) -> None:
        for number in range(NAMES):
            stored = self.both("find", name(number))
            if stored is not None:
                self.both("show", stored.record.id)
                self.both("journal", stored.record.id)
        self.both("attention")
        self.both("machines")
        self.both("age_ms")
        for machine in range(1, 5):
            self.both("open_of", machine, 0)

    def stamp(self, machine: int) -> int:
        self.sequence += 1
        return pack_id(machine, self.sequence)

    def event(self, kind: Kind, machine: int, digest: bytes, **more: Any) -> Event:
        return Event(
            kind=kind,
            me=machine,
            stamp=self.stamp(machine),
            now=Moment(1_000 + self.sequence, self.sequence),
            digest=digest,
            fingerprint=None if kind is Kind.CANCEL else b"f" * 16,
            rail="bank",
            account="main",
            **more,
        )

    def new_claim(self, number: int, machine: int, given: dict[str, bool], kind: Kind) -> Claim:
        decision = decide(None, self.event(kind, machine, name(number), **given))
        assert decision.record is not None
        return Claim(
            record=decision.record,
            tenant=f"tenant {number % 2}",
            scope=f"scope {number % 3}",
            request=bytes([number]),
            attention=needs_attention(decision.record),
            journal=entry_of(decision.record, decision.journal),
        )

    def event_on(self, record: Record, kind: Kind, machine: int, given: dict[str, bool]) -> Event:
        return self.event(
            kind,
            machine,
            record.digest,
            attempt=record.attempt,
            send=record.sends,
            seen=record.stamp,
            **given,
        )

    def new_advance(
        self, record: Record, choice: int, machine: int, given: dict[str, bool], outcome: bytes | None
    ) -> Advance | None:
        """One of the writes that fit the row under these facts, or None where there is none."""
        decisions = [decide(record, self.event_on(record, kind, machine, given)) for kind in Kind]
        fitting = [decision for decision in decisions if decision.record and decision.record.sends < 50]
        if not fitting:
            return None
        decision = fitting[choice % len(fitting)]
        assert decision.record is not None
        return Advance(
            record=decision.record,
            expected=record.stamp,
            outcome=outcome,
            attention=needs_attention(decision.record),
            journal=entry_of(decision.record, decision.journal),
        )

    # -- what can happen

    @rule(
        batch=st.lists(
            st.tuples(numbers, machines, facts, st.sampled_from((Kind.CLAIM, Kind.CANCEL))), max_size=4
        )
    )
    def claim(self, batch: list[tuple[int, int, dict[str, bool], Kind]]) -> None:
        claims = [self.new_claim(*item) for item in batch]
        self.both("claim", claims)
        self.written += claims
        self.seen += [claim.record for claim in claims]
        self.compare()

    @rule(
        batch=st.lists(
            st.tuples(
                st.integers(0, 10_000),
                st.integers(0, len(Kind)),
                machines,
                facts,
                st.sampled_from((None, b"", b"outcome")),
            ),
            min_size=1,
            max_size=5,
        )
    )
    def advance(self, batch: list[tuple[int, int, int, dict[str, bool], bytes | None]]) -> None:
        if not self.seen:
            return
        advances = []
        for place, choice, machine, given, outcome in batch:
            record = self.seen[-1 - place % min(len(self.seen), 12)]
            advances.append(self.new_advance(record, choice, machine, given, outcome))
        chosen = [advance for advance in advances if advance is not None]
        self.both("advance", chosen)
        self.written += chosen
        self.seen += [advance.record for advance in chosen]
        self.compare()

    @rule(place=st.integers(0, 10_000), clone=yes)
    def repeat(self, place: int, clone: bool) -> None:
        """The same write again, or a clone's: the same stamp in another row."""
        if not self.written:
            return
        item = self.written[place % len(self.written)]
        if clone:
            changed = replace(item.record.changed, wall_ms=77)
            item = replace(item, record=replace(item.record, changed=changed))
        self.both("claim" if isinstance(item, Claim) else "advance", [item])
        self.compare()

    @rule(kind=st.sampled_from(("serve", "cli")))
    def register(self, kind: str) -> None:
        self.both("register", node="n", pid=7, kind=kind, at_ms=self.sequence)
        self.compare()

    @rule(machine=machines, back=st.integers(0, 2), age_back=st.integers(0, 1), elapsed=st.integers(0, 3000))
    def beat(self, machine: int, back: int, age_back: int, elapsed: int) -> None:
        rows = {row.id: row for row in self.runner.run(self.memory.machines())}
        count = rows[machine].beat if machine in rows else 0
        self.both(
            "beat",
            machine,
            max(0, count - back),
            oldest_open=1,
            lowest_in_flight=2,
            seen_age_ms=max(0, self.runner.run(self.memory.age_ms()) - age_back),
            elapsed_ms=elapsed,
            at_ms=5,
        )
        self.compare()

    @rule(machine=machines, count=st.integers(0, 3))
    def lose(self, machine: int, count: int) -> None:
        self.both("lose", machine, count, at_ms=6)
        self.compare()

    @rule(machine=machines)
    def end(self, machine: int) -> None:
        self.both("end", machine, at_ms=8)
        self.compare()

    @rule(before=st.sampled_from((None, 1.0, 2.0)), after=st.sampled_from((1.0, 2.0)))
    def agree(self, before: float | None, after: float) -> None:
        agreed = None if before is None else Agreement(send_deadline_seconds=before)
        self.both("agree", agreed, Agreement(send_deadline_seconds=after))
        self.both("agreement")

    @rule(
        tenant=st.sampled_from((None, "tenant 0", "nobody")),
        scope=st.sampled_from((None, "scope 1")),
        machine=st.sampled_from((None, 1, 3)),
        state=st.sampled_from((None, *State)),
        after=st.integers(-1, 40),
        before=st.integers(-1, 40),
        limit=st.integers(0, 5),
        newest_first=yes,
    )
    def select(self, after: int, before: int, **chosen: Any) -> None:
        bounds = {"after": after, "before": before}
        bounds = {side: pack_id(1, number) for side, number in bounds.items() if number >= 0}
        self.both("select", Selection(**bounds, **chosen))

    @rule(after=st.integers(0, 40), limit=st.integers(0, 3))
    def look_at_attention(self, after: int, limit: int) -> None:
        self.both("attention", after=pack_id(1, after), limit=limit)


def test_memory_and_sqlite_cannot_be_told_apart() -> None:
    run_state_machine_as_test(
        Lockstep,
        settings=settings(
            max_examples=600 if LONG else 25,
            stateful_step_count=50 if LONG else 25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_lockstep_notices_a_store_that_forgets_the_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison itself can fail: a memory store that ignores the expected stamp is caught."""
    advance = MemoryStore._advance

    def careless(self: MemoryStore, item: Advance) -> Any:
        there = self._rows.get(item.record.digest)
        if there is not None and there.record.stamp != item.record.stamp:
            item = replace(item, expected=there.record.stamp)
        return advance(self, item)

    monkeypatch.setattr(MemoryStore, "_advance", careless)
    lockstep = Lockstep()
    given = dict.fromkeys(FACTS, False)
    lockstep.claim([(0, 1, given, Kind.CLAIM)])
    lockstep.advance([(0, 0, 1, given, b"first")])
    with pytest.raises(AssertionError, match="advance"):
        lockstep.advance([(1, 1, 1, given, b"from a row that has moved on")])
    lockstep.teardown()


def test_most_steps_of_the_lockstep_write() -> None:
    """Random facts seldom fit a row, so the steps choose among the writes that do."""
    lockstep = Lockstep()
    given = dict.fromkeys(FACTS, True) | {"fenced": False, "bounded": False}
    lockstep.claim([(number, 1, given, Kind.CLAIM) for number in range(4)])
    for choice in range(30):
        lockstep.advance([(choice % 3, choice, 2, given, None)])
    assert len(lockstep.seen) > 25
    assert len({record.state for record in lockstep.seen}) >= 4
    lockstep.teardown()
