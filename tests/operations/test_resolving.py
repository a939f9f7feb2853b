"""Settling by a person: only in doubt, only the row that was seen, only after the settle window."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from nonbis.core.ids import format_id
from nonbis.core.messages import JournalKind, Kind, Reason, Record, State
from nonbis.core.names import reference
from nonbis.core.payments import SCOPE, Receipt, encode_transfer
from nonbis.engine.engine import Engine
from nonbis.engine.flights import Standing
from nonbis.engine.writing import Observation
from nonbis.ports import Claim
from nonbis.upkeep.resolving import Refused, Resolution, resolve
from tests.operations.prepared import LOST, NO, Bench, run

Resolve = Callable[..., Awaitable[Resolution]]
SAID = {"who": "Ann", "because": "seen in the bank's list"}


async def in_doubt() -> tuple[Bench, Engine, Engine, Record]:
    """A payment in doubt, the engine that serves and the one of the command line."""
    bench = Bench.in_memory()
    serving = await bench.engine()
    await bench.pay(serving, "a", LOST)
    return bench, serving, await bench.engine("cli"), await bench.row("a")


async def window_passes(bench: Bench, serving: Engine, cli: Engine) -> None:
    """The settle window, and the step of the age's clock that it allows for."""
    await bench.later(serving, 930 + 2)
    cli.time.saw_age(await bench.store.age_ms())


@run
async def test_applied_is_replayed_without_a_receipt() -> None:
    bench, serving, cli, record = await in_doubt()
    done = await resolve(cli, record.id, "applied", stamp=record.stamp, **SAID)
    assert done.refused is None
    assert done.detail == "1:1 is applied: every retry under its name is told so from now on"
    assert (done.stored.record.state, done.stored.record.reason) == (State.APPLIED, None)
    assert done.stored.outcome is not None
    answer = await serving.run(*bench.call("a"))
    assert (answer.standing, answer.replayed) == (Standing.FINAL, True)
    assert answer.outcome is not None
    assert answer.outcome.status == 201
    body = msgspec.json.decode(answer.outcome.body)
    assert (body["id"], body["state"], body["receipt"]) == (format_id(record.id), "applied", None)
    assert len(bench.rail.sent) == 1


@run
async def test_failed_after_the_window_lets_the_name_run_again_under_its_reference() -> None:
    bench, serving, cli, record = await in_doubt()
    await window_passes(bench, serving, cli)
    done = await resolve(cli, record.id, "failed", **SAID)
    assert done.refused is None
    assert done.stored.record.reason is Reason.SETTLED
    answer = await bench.pay(serving, "a")
    assert (answer.record.state, answer.record.attempt) == (State.APPLIED, 2)
    assert bench.rail.sent == [reference(record.digest, 0)] * 2


@run
async def test_the_journal_keeps_who_and_why() -> None:
    bench, _, cli, record = await in_doubt()
    await resolve(cli, record.id, "applied", **SAID)
    entry = (await bench.store.journal(record.id))[-1]
    assert (entry.kind, entry.who, entry.because) == (JournalKind.SETTLED, SAID["who"], SAID["because"])
    assert cli.presence.incarnation is not None
    assert entry.machine == cli.presence.incarnation.machine


@run
async def test_too_early_says_until_when_and_what_force_risks() -> None:
    bench, _, cli, record = await in_doubt()
    refused = await resolve(cli, record.id, "failed", **SAID)
    assert refused.refused is Refused.TOO_EARLY
    assert "until 2027-01-15T08:15:30.000Z" in refused.detail
    assert "paid twice" in refused.detail
    assert refused.stored.record == record == await bench.row("a")


@run
async def test_a_jump_of_the_wall_clock_opens_no_window() -> None:
    bench, _, cli, record = await in_doubt()
    bench.hand.wall += 10_000_000
    refused = await resolve(cli, record.id, "failed", **SAID)
    assert refused.refused is Refused.TOO_EARLY
    assert "932 s less" in refused.detail
    assert await bench.row("a") == record


@run
async def test_force_takes_it_at_once() -> None:
    bench, serving, cli, record = await in_doubt()
    done = await resolve(cli, record.id, "failed", force=True, **SAID)
    assert done.refused is None
    assert (await bench.pay(serving, "a")).record.attempt == 2


@run
async def test_a_rail_that_the_store_does_not_know_needs_force() -> None:
    bench, serving, cli, record = await in_doubt()
    agreement = await bench.store.agreement()
    assert agreement is not None
    assert await bench.store.agree(agreement, msgspec.structs.replace(agreement, rails=()))
    await window_passes(bench, serving, cli)
    refused = await resolve(cli, record.id, "failed", **SAID)
    assert refused.refused is Refused.TOO_EARLY
    assert "no agreed settle window for the rail double/main" in refused.detail
    assert (await resolve(cli, record.id, "failed", force=True, **SAID)).refused is None


@run
async def test_a_row_that_moved_on_is_shown_anew() -> None:
    bench, serving, cli, record = await in_doubt()
    receipt = Receipt(reference="r")
    await serving.writer.apply(
        record, Observation(kind=Kind.REPORT_APPLIED, attempt=1, send=1, receipt=receipt)
    )
    refused = await resolve(cli, record.id, "failed", stamp=record.stamp, force=True, **SAID)
    assert refused.refused is Refused.MOVED
    assert str(record.stamp) in refused.detail
    assert refused.stored.record.state is State.APPLIED
    assert await bench.row("a") == refused.stored.record


class Meanwhile:
    """A store in which something happens just before a call of one method, once."""

    def __init__(self, store: Any, method: str, happens: Callable[[], Awaitable[Any]]) -> None:
        self._store = store
        self._method = method
        self._happens: Callable[[], Awaitable[Any]] | None = happens

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name != self._method:
            return method

        async def late(*arguments: Any, **named: Any) -> Any:
            if self._happens is not None:
                happens, self._happens = self._happens, None
                await happens()
            return await method(*arguments, **named)

        return late


@run
async def test_a_report_that_overtakes_the_person_wins() -> None:
    bench, serving, cli, record = await in_doubt()

    async def report() -> None:
        await serving.writer.apply(record, Observation(kind=Kind.REPORT_APPLIED, attempt=1, send=1))

    cli.store = Meanwhile(bench.store, "agreement", report)  # type: ignore[assignment]  # a store but for one call
    refused = await resolve(cli, record.id, "failed", force=True, **SAID)
    assert refused.refused is Refused.MOVED
    assert (await bench.row("a")).state is State.APPLIED
    told = [(entry.kind, entry.who) for entry in await bench.store.journal(record.id)]
    assert told == [(JournalKind.IN_DOUBT, ""), (JournalKind.SETTLED, "")]


# -- whose turn it is ----------------------------------------------------------------------------------


@run
async def test_a_send_of_a_living_machine_is_left_alone() -> None:
    bench = Bench.in_memory()
    serving, cli = await bench.engine(), await bench.engine("cli")
    record = await bench.hang(serving, "a")
    refused = await resolve(cli, record.id, "failed", force=True, **SAID)
    assert refused.refused is Refused.RUNNING
    assert "machine 1" in refused.detail
    assert await bench.row("a") == record
    await bench.close()


@run
async def test_a_send_of_a_machine_that_is_gone_is_settled_in_one_go() -> None:
    bench = Bench.in_memory()
    serving, cli = await bench.engine(), await bench.engine("cli")
    record = await bench.hang(serving, "a")
    bench.memory.vanish(record.owner)
    done = await resolve(cli, record.id, "applied", stamp=record.stamp, **SAID)
    assert done.refused is None
    assert done.stored.record.state is State.APPLIED
    kinds = [entry.kind.value for entry in await bench.store.journal(record.id)]
    assert kinds == ["in_doubt", "settled"]
    assert [row.state.value for row in await bench.store.machines()] == ["lost", "living"]
    await bench.close()


@run
async def test_that_its_machine_is_gone_does_not_shorten_the_window() -> None:
    bench = Bench.in_memory()
    serving, cli = await bench.engine(), await bench.engine("cli")
    record = await bench.hang(serving, "a")
    bench.memory.vanish(record.owner)
    refused = await resolve(cli, record.id, "failed", **SAID)
    assert refused.refused is Refused.TOO_EARLY
    assert refused.stored.record.state is State.IN_DOUBT
    await bench.close()


@run
async def test_a_refused_verdict_signs_nothing_and_says_what_was_written() -> None:
    bench = Bench.in_memory()
    serving, cli = await bench.engine(), await bench.engine("cli")
    record = await bench.hang(serving, "a")
    bench.memory.vanish(record.owner)
    refused = await resolve(cli, record.id, "failed", stamp=record.stamp, **SAID)
    now = refused.stored.record.stamp
    assert now != record.stamp
    assert refused.detail.startswith(
        f"It is in doubt now, with the stamp {now}; your verdict was not taken. 1:1: it is too early"
    )
    (entry,) = await bench.store.journal(record.id)
    assert (entry.who, entry.stamp) == ("", now)
    assert entry.because == "its machine is not living; seen when somebody wanted to settle it"
    assert (await resolve(cli, record.id, "applied", stamp=now, **SAID)).refused is None
    assert [entry.who for entry in await bench.store.journal(record.id)] == ["", SAID["who"]]
    await bench.close()


@run
async def test_a_refusal_that_wrote_nothing_says_nothing_of_a_write() -> None:
    _, _, cli, record = await in_doubt()
    assert "your verdict was not taken" not in (await resolve(cli, record.id, "failed", **SAID)).detail


@run
async def test_an_overdue_send_can_be_settled() -> None:
    bench = Bench.in_memory()
    serving, cli = await bench.engine(), await bench.engine("cli")
    record = await bench.hang(serving, "a")
    await window_passes(bench, serving, cli)
    done = await resolve(cli, record.id, "failed", **SAID)
    assert done.refused is None
    assert done.stored.record.reason is Reason.SETTLED
    await bench.close()


@run
async def test_a_retry_that_dies_meanwhile_is_not_what_the_person_saw() -> None:
    bench = Bench.in_memory()
    first, second, cli = await bench.engine(), await bench.engine(), await bench.engine("cli")
    record = await bench.hang(first, "a")
    bench.memory.vanish(record.owner)

    async def retried_and_dead() -> None:
        await second.writer.apply(record, Observation(kind=Kind.REPORT_DECLINED, attempt=1, send=1))
        again = await bench.hang(second, "a")
        assert (again.attempt, again.state) == (2, State.STARTED)
        bench.memory.vanish(again.owner)
        for row in await bench.store.machines(living=True):
            if row.id == again.owner:
                assert await bench.store.lose(row.id, row.beat, at_ms=1)

    cli.store = Meanwhile(bench.store, "vanished", retried_and_dead)  # type: ignore[assignment]  # likewise
    refused = await resolve(cli, record.id, "failed", stamp=record.stamp, force=True, **SAID)
    assert refused.refused is Refused.MOVED
    assert (await bench.row("a")).state is State.STARTED
    await bench.close()


@run
async def test_what_is_final_is_not_settled_again() -> None:
    bench = Bench.in_memory()
    serving, cli = await bench.engine(), await bench.engine("cli")
    await bench.pay(serving, "a")
    await bench.pay(serving, "b", NO)
    for name, verdict, word in (("a", "failed", "applied"), ("b", "applied", "declined")):
        before = await bench.row(name)
        refused = await resolve(cli, before.id, verdict, force=True, **SAID)
        assert refused.refused is Refused.FINAL
        assert word in refused.detail
        assert await bench.row(name) == before


@run
async def test_settling_twice_is_refused_the_second_time() -> None:
    _, _, cli, record = await in_doubt()
    assert (await resolve(cli, record.id, "applied", **SAID)).refused is None
    assert (await resolve(cli, record.id, "applied", **SAID)).refused is Refused.FINAL


@run
async def test_accepted_has_nothing_to_settle() -> None:
    bench = Bench.in_memory()
    serving, cli = await bench.engine(), await bench.engine("cli")
    number = (await serving.presence.present()).draw()
    call, _ = bench.call("a")
    record = Record(
        digest=call.digest, id=number, stamp=number, owner=1, fingerprint=b"f" * 16, state=State.ACCEPTED
    )
    transfer = encode_transfer(msgspec.json.decode(call.request))
    await bench.store.claim([Claim(record=record, tenant="", scope=SCOPE, request=transfer)])
    refused = await resolve(cli, number, "failed", force=True, **SAID)
    assert refused.refused is Refused.RUNNING
    assert "nothing was sent" in refused.detail


@pytest.mark.parametrize(("verdict", "state"), [("applied", State.APPLIED), ("failed", State.FAILED)])
@run
async def test_a_contradiction_is_cleared_by_a_person(verdict: str, state: State) -> None:
    bench = Bench.in_memory()
    serving, cli = await bench.engine(), await bench.engine("cli")
    await bench.pay(serving, "a", NO)
    await serving.writer.apply(await bench.row("a"), Observation(kind=Kind.REPORT_APPLIED, attempt=1, send=1))
    record = await bench.row("a")
    assert record.contradicted
    done = await resolve(cli, record.id, verdict, stamp=record.stamp, **SAID)
    assert done.refused is None
    assert (done.stored.record.state, done.stored.record.contradicted) == (state, False)


@run
async def test_an_unknown_operation_is_an_error() -> None:
    _, _, cli, record = await in_doubt()
    with pytest.raises(LookupError, match="no operation 1:77"):
        await resolve(cli, record.id + 76, "applied", **SAID)


# -- the rules can fail --------------------------------------------------------------------------------


async def check_the_stamp_counts(resolve: Resolve) -> None:
    """Somebody settles meanwhile, a retry goes in doubt: the first person's word is of another send."""
    bench, serving, cli, seen = await in_doubt()
    await resolve(cli, seen.id, "failed", force=True, **SAID)
    await bench.pay(serving, "a", LOST)
    second = await bench.row("a")
    assert (second.attempt, second.state) == (2, State.IN_DOUBT)
    refused = await resolve(cli, seen.id, "failed", stamp=seen.stamp, force=True, **SAID)
    assert refused.refused is Refused.MOVED
    assert await bench.row("a") == second


async def check_the_window_counts(resolve: Resolve) -> None:
    """Without force, no second send begins while the first may still be on its way."""
    bench, serving, cli, seen = await in_doubt()
    await resolve(cli, seen.id, "failed", stamp=seen.stamp, **SAID)
    await bench.pay(serving, "a")
    assert len(bench.rail.sent) == 1


@functools.wraps(resolve)
async def without_stamp(*arguments: Any, **named: Any) -> Resolution:
    """The planted bug: whatever row is there now is settled."""
    return await resolve(*arguments, **named | {"stamp": None})


@functools.wraps(resolve)
async def without_window(*arguments: Any, **named: Any) -> Resolution:
    """The planted bug: every word is taken at once."""
    return await resolve(*arguments, **named | {"force": True})


@pytest.mark.parametrize("check", [check_the_stamp_counts, check_the_window_counts])
@run
async def test_the_rule_holds(check: Callable[[Resolve], Awaitable[None]]) -> None:
    await check(resolve)


@pytest.mark.parametrize(
    ("check", "planted"),
    [(check_the_stamp_counts, without_stamp), (check_the_window_counts, without_window)],
)
@run
async def test_the_planted_bug_is_caught(
    check: Callable[[Resolve], Awaitable[None]], planted: Resolve
) -> None:
    with pytest.raises(AssertionError):
        await check(planted)
