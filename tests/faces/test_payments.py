"""Each row of the contract's table for POST, replays byte for byte, and the plain form."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from nonbis.core.ids import parse_id
from nonbis.core.messages import Kind
from nonbis.core.names import Digester
from nonbis.core.payments import SCOPE
from nonbis.engine.engine import Engine
from nonbis.engine.writing import Observation
from nonbis.errors import AnswerLost, StoreDamaged, StoreError, StoreUnavailable, StoreUnsafe
from nonbis.opening import open_rail
from nonbis.rails.simulated import Fault, FaultKind, Hold
from nonbis.upkeep.resolving import resolve
from tests.faces.asgi import Face, quick
from tests.faces.contract import Answer

MEMBERS = [
    "id",
    "state",
    "amount",
    "currency",
    "destination",
    "attempt",
    "created_at",
    "changed_at",
    "receipt",
]
RAIL_THAT_KNOWS_NOTHING = "http://127.0.0.1:1"


def store_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'nonbis.db'}"


def test_applied(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        answer = face.pay("order-1", description="beans", metadata={"cart": "7"})
        assert answer.status == 201
        view = answer.json
        assert [*view] == [*MEMBERS, "description", "metadata"]
        assert (view["state"], view["amount"], view["currency"], view["attempt"]) == (
            "applied",
            350,
            "USD",
            1,
        )
        assert re.fullmatch(r"[0-9]+:[0-9]+", view["id"])
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", view["created_at"])
        assert view["receipt"]["amount"] == 350
        assert answer.headers["location"] == f"/payments/{view['id']}"
        assert "idempotent-replayed" not in answer.headers
        assert face.get(answer.headers["location"]).body == answer.body


def test_the_default_currency_comes_from_the_settings(tmp_path: Path) -> None:
    with Face(tmp_path, currency="CHF") as face:
        assert face.pay("order-1").json["currency"] == "CHF"
        assert face.pay("order-1", currency="CHF").replayed


def test_replays_are_byte_identical_also_after_a_restart(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    with Face(tmp_path, store=store) as face:
        first = face.pay("order-1", metadata={"b": "2", "a": "1"})
        again = face.pay("order-1", metadata={"a": "1", "b": "2"})
    with Face(tmp_path, store=store) as face:
        later = face.pay("order-1", metadata={"b": "2", "a": "1"})
        assert face.transfers() == 1
    assert {answer.body for answer in (first, again, later)} == {first.body}
    assert [answer.replayed for answer in (first, again, later)] == [False, True, True]
    assert {answer.headers["location"] for answer in (first, again, later)} == {first.headers["location"]}


def test_declined_then_retried(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        face.rail.plan(FaultKind.DECLINE)
        first = face.pay("order-1")
        assert (first.status, first.replayed) == (201, False)
        assert (first.json["state"], first.json["reason"], first.json["receipt"]) == (
            "failed",
            "declined",
            None,
        )
        assert first.headers["location"] == f"/payments/{first.json['id']}"
        second = face.pay("order-1")
        assert (second.status, second.replayed, second.json["attempt"]) == (201, False, 2)
        assert second.json["id"] == first.json["id"]
        references = {receipt.reference for receipt in face.run(face.rail.transfers())}
        assert len(references) == 1
        assert references.pop().endswith("-2")


@pytest.mark.parametrize(
    "policy", [{"retry_failed": False}, {"attempts_max": 1}, {"retry_within_seconds": 0.0}]
)
def test_a_failure_that_may_not_be_retried_is_replayed(tmp_path: Path, policy: dict[str, Any]) -> None:
    with Face(tmp_path, policy=quick(**policy)) as face:
        face.rail.plan(FaultKind.DECLINE)
        first = face.pay("order-1")
        again = face.pay("order-1")
        assert (first.status, first.json["reason"]) == (201, "declined")
        assert (again.status, again.replayed, again.body) == (201, True, first.body)
        assert face.pay("order-1", path="/payment").json == {"state": "failed"}
        assert face.transfers() == 0


def test_not_sent_then_retried(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        face.rail.plan(FaultKind.NOT_SENT)
        first = face.pay("order-1")
        assert (first.status, first.code) == (503, "rail-unreachable")
        assert (first.json["effect"], first.json["retryable"]) == ("not_done", True)
        assert face.get(first.json["instance"]).json["reason"] == "not_sent"
        second = face.pay("order-1")
        assert (second.status, second.json["attempt"], face.transfers()) == (201, 2, 1)


def test_not_sent_that_may_not_be_retried_is_replayed(tmp_path: Path) -> None:
    with Face(tmp_path, policy=quick(attempts_max=1)) as face:
        face.rail.plan(FaultKind.NOT_SENT)
        first, again = face.pay("order-1"), face.pay("order-1")
        assert [(one.status, one.json["reason"]) for one in (first, again)] == [(201, "not_sent")] * 2
        assert (again.replayed, face.transfers()) == (True, 0)


def test_an_unreachable_bank(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so once, with the reason, however many payments meet with it."""
    with Face(tmp_path, rail=RAIL_THAT_KNOWS_NOTHING) as face:
        first = face.pay("order-1")
        assert first.code == "rail-unreachable"
        assert face.pay("order-2", path="/payment").json == {"state": "failed"}
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    number = first.json["operation_id"]
    assert told[0].startswith(f"rail 127.0.0.1:1: {number} was not sent: the transfer was not sent: ")
    assert "refused" in told[0].lower() or "connect" in told[0].lower()


def test_cancelled(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        face.rail.plan(FaultKind.DECLINE)
        face.pay("order-1")
        face.run(_cancel(face.service.engine, "order-1"))
        for path in ("/payments", "/payment"):
            answer = face.pay("order-1", path=path)
            assert (answer.status, answer.code) == (409, "cancelled")
            assert (answer.json["effect"], answer.json["retryable"]) == ("not_done", False)
            assert "retry-after" not in answer.headers
        assert face.transfers() == 0


async def _cancel(engine: Engine, name: str) -> None:
    stored = await engine.store.find(Digester(engine.store.key, "", SCOPE).digest(name))
    assert stored is not None
    applied = await engine.writer.apply(stored.record, Observation(kind=Kind.CANCEL))
    assert applied.won


DUMB = {"rail": RAIL_THAT_KNOWS_NOTHING}
"""A rail that can neither be asked nor resent to, so that what is in doubt stays so."""


def doubtful(face: Face, name: str = "order-1") -> Answer:
    """A payment that went in doubt, because the rail's code failed after the effect."""
    face.service.routes._rail = Failing()
    return face.pay(name)


class Failing:
    """A rail whose code fails where nobody can know what became of the effect."""

    def __init__(self) -> None:
        self.facts = open_rail(RAIL_THAT_KNOWS_NOTHING).facts

    async def send(self, *_: object) -> Any:
        raise RuntimeError("a fault in the rail's code")


def test_outcome_unknown(tmp_path: Path) -> None:
    with Face(tmp_path, **DUMB) as face:
        first = doubtful(face)
        again = face.pay("order-1")
        plain = face.pay("order-1", path="/payment")
        for answer in (first, again, plain):
            assert (answer.status, answer.code) == (409, "outcome-unknown")
            assert (answer.json["effect"], answer.json["retryable"]) == ("unknown", False)
            assert answer.json["type"].endswith("/outcome-unknown")
            assert answer.json["instance"] == f"/payments/{answer.json['operation_id']}"
            assert "retry-after" not in answer.headers
        assert face.get(first.json["instance"]).json["state"] == "in_doubt"


def test_outcome_unknown_with_a_rail_that_will_be_asked(tmp_path: Path) -> None:
    with Face(tmp_path, rail=RAIL_THAT_KNOWS_NOTHING + "?find=yes") as face:
        rail = Failing()
        rail.facts = face.service.routes._rail.facts
        face.service.routes._rail = rail
        answer = face.pay("order-1")
        assert (answer.code, answer.json["retryable"]) == ("outcome-unknown", True)
        assert answer.headers["retry-after"].isdigit()


@pytest.mark.parametrize(("verdict", "state"), [("applied", "applied"), ("failed", "failed")])
def test_settled_by_a_person(tmp_path: Path, verdict: Any, state: str) -> None:
    with Face(tmp_path, policy=quick(attempts_max=1), **DUMB) as face:
        first = doubtful(face)
        number = parse_id(first.json["operation_id"])
        done = resolve(face.service.engine, number, verdict, who="ada", because="asked", force=True)
        assert face.run(done).refused is None
        answers = [face.pay("order-1") for _ in range(2)]
        for answer in answers:
            assert (answer.status, answer.replayed, answer.json["state"]) == (201, True, state)
            assert (answer.json["receipt"], answer.body) == (None, answers[0].body)
        assert face.pay("order-1", path="/payment").json == {"state": state}


def test_contradicted_and_not_applied(tmp_path: Path) -> None:
    """A person said failed, the next attempt was declined, then the first one reports its success."""
    with Face(tmp_path) as face:
        face.rail.plan(FaultKind.DECLINE)
        number = face.pay("order-1").json["id"]
        report = Observation(kind=Kind.REPORT_APPLIED, attempt=7, send=1, because="a late report")
        face.run(_observe(face.service.engine, "order-1", report))
        for path in ("/payments", "/payment"):
            answer = face.pay("order-1", path=path)
            assert (answer.status, answer.code) == (409, "outcome-unknown")
            assert (answer.json["operation_id"], answer.json["retryable"]) == (number, False)
        assert face.get(f"/payments/{number}").json["contradicted"] is True
        assert face.transfers() == 0


async def _observe(engine: Engine, name: str, observation: Observation) -> None:
    stored = await engine.store.find(Digester(engine.store.key, "", SCOPE).digest(name))
    assert stored is not None
    await engine.writer.apply(stored.record, observation)


def test_still_running(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        answers = face.run(_while_one_is_running(face))
        first, second, plain = answers
        assert (first.status, first.replayed) == (201, False)
        assert (second.status, second.code, second.json["effect"]) == (409, "in-progress", "unknown")
        assert second.json["instance"] == f"/payments/{first.json['id']}"
        assert (plain.status, plain.code) == (503, "in-progress")
        assert face.transfers() == 1


async def _while_one_is_running(face: Face) -> list[Answer]:
    hold = Hold()
    face.rail.plan(Fault(before_effect=hold))
    first = asyncio.create_task(face.paying("order-1"))
    await hold.reached.wait()
    second = await face.paying("order-1")
    plain = await face.paying("order-1", path="/payment")
    hold.release()
    return [await first, second, plain]


def test_a_second_call_may_wait(tmp_path: Path) -> None:
    async def both() -> list[Answer]:
        hold = Hold()
        face.rail.plan(Fault(before_effect=hold))
        calls = [asyncio.create_task(face.paying("order-1")) for _ in range(5)]
        await hold.reached.wait()
        hold.release()
        return [await call for call in calls]

    with Face(tmp_path, policy=quick(wait_seconds=5.0)) as face:
        answers = face.run(both())
        assert {(answer.status, answer.body) for answer in answers} == {(201, answers[0].body)}
        assert sorted(answer.replayed for answer in answers) == [False, True, True, True, True]
        assert face.transfers() == 1


OTHERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "amount": ({"amount": 351}, ["amount"]),
    "destination": ({"destination": "roastery2"}, ["destination"]),
    "currency": ({"currency": "EUR"}, ["currency"]),
    "description": ({"description": "beans"}, ["description"]),
    "an empty description": ({"description": ""}, ["description"]),
    "metadata": ({"metadata": {"a": "b"}}, ["metadata"]),
    "two members": ({"amount": 1, "destination": "x"}, ["amount", "destination"]),
}


@pytest.mark.parametrize("case", OTHERS)
def test_another_request_under_the_name(tmp_path: Path, case: str) -> None:
    order, members = OTHERS[case]
    with Face(tmp_path) as face:
        first = face.pay("order-1")
        for path in ("/payments", "/payment"):
            answer = face.pay("order-1", path=path, **order)
            assert (answer.status, answer.code, answer.json["members"]) == (422, "name-reused", members)
            assert all(member in answer.json["detail"] for member in members)
        assert face.pay("order-1").body == first.body
        assert face.transfers() == 1


@pytest.mark.parametrize("before", ["in doubt", "declined", "running"])
def test_another_request_is_refused_before_anything_else_is_judged(tmp_path: Path, before: str) -> None:
    async def beside_a_running_one() -> Answer:
        hold = Hold()
        face.rail.plan(Fault(before_effect=hold))
        first = asyncio.create_task(face.paying("order-1"))
        await hold.reached.wait()
        other = await face.paying("order-1", amount=1)
        hold.release()
        assert (await first).status == 201
        return other

    with Face(tmp_path) as face:
        if before == "running":
            answer = face.run(beside_a_running_one())
        else:
            face.rail.plan(FaultKind.DECLINE if before == "declined" else FaultKind.RAISE_AFTER)
            face.pay("order-1")
            answer = face.pay("order-1", amount=1)
        assert (answer.status, answer.code, answer.json["members"]) == (422, "name-reused", ["amount"])


@pytest.mark.parametrize("error", [StoreUnavailable, StoreDamaged, StoreUnsafe, StoreError])
def test_the_store_is_away(tmp_path: Path, error: type[StoreError]) -> None:
    async def away(*_: object, **__: object) -> Any:
        raise error("the disk is gone, said the store at /secret/path")

    with Face(tmp_path, policy=quick()) as face, pytest.MonkeyPatch.context() as patch:
        engine = face.service.engine
        patch.setattr(engine.writer._claims, "_write", away)
        for method in ("find", "show", "select", "age_ms"):
            patch.setattr(engine.store, method, away)
        for path in ("/payments", "/payment"):
            answer = face.pay("order-1", path=path)
            assert (answer.status, answer.code) == (503, "store-unavailable")
            assert answer.json["effect"] == "not_done"
            assert b"secret" not in answer.body
        for target in ("/payments", "/payments/1:1", "/payments/by-name/order-1", "/readyz"):
            answer = face.get(target)
            assert (answer.status, answer.code) == (503, "store-unavailable"), target
            assert b"secret" not in answer.body
        assert face.get("/livez").status == 200
        assert face.transfers() == 0
        patch.undo()
        assert face.pay("order-1").status == 201


def test_the_store_does_not_answer(tmp_path: Path) -> None:
    """The claim's answer stays lost: nothing is sent here, but the row may appear and another may send."""

    async def lost(*_: object) -> Any:
        raise AnswerLost("the connection was cut")

    async def gone_after_the_claim(*_: object) -> Any:
        raise StoreUnavailable("gone")

    with Face(tmp_path, policy=quick()) as face, pytest.MonkeyPatch.context() as patch:
        engine = face.service.engine
        patch.setattr(engine.writer._claims, "_write", lost)
        answer = face.pay("order-1")
        assert (answer.status, answer.code, answer.json["effect"]) == (503, "store-unavailable", "unknown")
        patch.undo()
        face.rail.plan(FaultKind.DECLINE)
        assert face.pay("order-2").json["state"] == "failed"
        patch.setattr(engine.writer._advances, "_write", gone_after_the_claim)
        answer = face.pay("order-2")
        assert (answer.status, answer.code, answer.json["effect"]) == (503, "store-unavailable", "unknown")
        assert face.transfers() == 0


async def full(*_: object, **__: object) -> Any:
    raise StoreUnavailable("the disk is full, said the store at /secret/path")


def check_ready(face: Face, *, ready: bool) -> None:
    answer = face.get("/readyz")
    assert (answer.status, answer.code) == ((200, None) if ready else (503, "store-unavailable"))
    assert b"secret" not in answer.body


def test_not_ready_while_beats_fail(tmp_path: Path) -> None:
    """Reads go on all the time: they show nothing."""
    with Face(tmp_path, policy=quick()) as face, pytest.MonkeyPatch.context() as patch:
        assert face.pay("order-1").status == 201
        face.sweep()
        check_ready(face, ready=True)
        patch.setattr(face.service.engine.store, "beat", full)
        with pytest.raises(StoreUnavailable):
            face.sweep()
        check_ready(face, ready=False)
        patch.undo()
        check_ready(face, ready=False)
        face.sweep()
        check_ready(face, ready=True)


@pytest.mark.parametrize("error", [StoreUnavailable, AnswerLost, StoreUnsafe])
def test_not_ready_between_a_payment_that_failed_and_the_next_good_beat(
    tmp_path: Path, error: type[StoreError]
) -> None:
    async def fail(*_: object) -> Any:
        raise error("gone")

    policy = quick(beat_seconds=2.0)
    with Face(tmp_path, policy=policy) as face, pytest.MonkeyPatch.context() as patch:
        assert face.pay("order-1").status == 201
        patch.setattr(face.service.engine.writer._claims, "_write", fail)
        assert face.pay("order-2").status == 503
        check_ready(face, ready=False)
        patch.undo()
        check_ready(face, ready=False)
        face.sweep()
        check_ready(face, ready=True)


def test_not_ready_where_this_process_can_not_be_registered(tmp_path: Path) -> None:
    """No machine, no beats: readiness itself tries again what the payment could not do."""
    with Face(tmp_path, policy=quick()) as face, pytest.MonkeyPatch.context() as patch:
        patch.setattr(face.service.engine.store, "register", full)
        assert face.pay("order-1").status == 503
        for _ in range(2):
            check_ready(face, ready=False)
        patch.undo()
        check_ready(face, ready=True)
        assert face.pay("order-1").status == 201


def test_not_ready_while_the_store_does_not_answer(tmp_path: Path) -> None:
    async def hang(*_: object) -> Any:
        await asyncio.Event().wait()

    with Face(tmp_path, policy=quick()) as face, pytest.MonkeyPatch.context() as patch:
        patch.setattr(face.service.engine.store, "age_ms", hang)
        check_ready(face, ready=False)
        assert face.get("/livez").status == 200


def test_draining(tmp_path: Path) -> None:
    """After the stop has begun nothing new is claimed; what is known is still told."""
    with Face(tmp_path, store=store_in(tmp_path)) as face:
        assert face.get("/readyz").json == {"status": "ready"}
        first = face.pay("order-1")
        face.run(face.service.drain())
        assert (face.get("/readyz").status, face.get("/readyz").code) == (503, "store-unavailable")
        assert face.get("/livez").json == {"status": "live"}
        answer = face.pay("order-2")
        assert (answer.status, answer.code, answer.json["effect"]) == (503, "store-unavailable", "not_done")
        assert answer.headers["retry-after"].isdigit()
        assert answer.json["detail"].startswith("The service is being stopped; nothing was sent")
        assert "can't be reached" not in answer.body.decode()
        assert face.get(first.headers["location"]).body == first.body
        assert (face.rows(), face.transfers()) == (1, 1)


def test_a_client_that_hangs_up_after_the_body(tmp_path: Path) -> None:
    """The payment goes on without its caller, and the retry is told what became of it."""

    async def hang_up() -> None:
        hold = Hold()
        face.rail.plan(Fault(before_effect=hold))
        call = asyncio.create_task(face.paying("order-1"))
        await hold.reached.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        hold.release()
        while face.service.engine._flights:
            await asyncio.sleep(0)

    with Face(tmp_path) as face:
        face.run(hang_up())
        answer = face.pay("order-1")
        assert (answer.status, answer.replayed, face.transfers()) == (201, True, 1)


class Chance:
    """Says "now" at the n-th question and "not now" at all others."""

    def __init__(self, strike_at: int) -> None:
        self._left = strike_at

    def uniform(self) -> float:
        self._left -= 1
        return 0.0 if self._left == 0 else 0.999

    def token(self, length: int) -> bytes:
        return bytes(length)


@pytest.mark.parametrize("path", ["/payments", "/payment"])
@pytest.mark.parametrize(
    ("point", "effect", "made"), [(1, "not_done", 0), (2, "not_done", 0), (3, "done", 1)]
)
def test_simulated_failures(tmp_path: Path, path: str, point: int, effect: str, made: int) -> None:
    with Face(tmp_path, simulate_failures=0.5) as face:
        face.service.routes._entropy = Chance(point)
        answer = face.pay("order-1", path=path)
        assert (answer.status, answer.code, answer.json["detail"]) == (
            500,
            "simulated-failure",
            f"Simulated failure {point}",
        )
        assert (answer.json["effect"], answer.json["retryable"]) == (effect, True)
        assert face.transfers() == made
        again = face.pay("order-1", path=path)
        assert again.status in (200, 201)
        assert again.replayed is (point == 3)
        assert again.json["state"] == "applied"
        assert face.transfers() == 1


def test_no_simulated_failure_unless_asked_for(tmp_path: Path) -> None:
    with Face(tmp_path) as face:
        face.service.routes._entropy = Chance(1)
        assert face.pay("order-1").status == 201


def test_an_error_of_ours_is_told_without_its_trace(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: object) -> Any:
        raise ZeroDivisionError("secret detail")

    with Face(tmp_path) as face:
        setattr(face.service.engine, "run", broken)
        answer = face.pay("order-1")
        assert (answer.status, answer.json["effect"], answer.json["retryable"]) == (500, "unknown", True)
        assert b"secret" not in answer.body
        assert "ZeroDivisionError" in caplog.text
