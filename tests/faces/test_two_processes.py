"""Two services on one file, each with its own loop, as two processes would be."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from nonbis.rails.simulated import Fault, Hold
from tests.faces.asgi import Face, quick
from tests.faces.contract import Answer


def begin(face: Face, name: str, hold: Hold) -> asyncio.Task[Answer]:
    """A payment that stands still in the middle of its effect, whenever this face's loop stands still."""

    async def start() -> asyncio.Task[Answer]:
        face.rail.plan(Fault(before_effect=hold))
        call = asyncio.create_task(face.paying(name))
        await hold.reached.wait()
        return call

    return face.run(start())


def finish(face: Face, call: asyncio.Task[Answer], hold: Hold) -> Answer:
    async def end() -> Answer:
        hold.release()
        return await call

    return face.run(end())


def pay_until_decided(face: Face, name: str) -> Answer:
    """Retries while it is in progress: this face may be sending again under the same reference."""
    deadline = time.monotonic() + 10
    while (answer := face.pay(name)).code == "in-progress":
        assert time.monotonic() < deadline
        face.run(asyncio.sleep(0.02))
    return answer


def test_a_machine_that_registered_just_before_is_alive(tmp_path: Path) -> None:
    """The second process registers with this very call, and has never read the first one's row before."""
    store = f"sqlite:///{tmp_path / 'nonbis.db'}"
    with Face(tmp_path, store=store) as first, Face(tmp_path, store=store) as second:
        second.sweep()
        second.run(asyncio.sleep(0.05))
        hold = Hold()
        call = begin(first, "order-1", hold)
        told = second.pay("order-1")
        assert (told.status, told.code) == (409, "in-progress")
        answer = finish(first, call, hold)
        assert (answer.status, answer.json["state"]) == (201, "applied")
        again = second.pay("order-1")
        assert (again.replayed, again.body, second.transfers()) == (True, answer.body, 1)


def test_another_request_is_refused_while_the_first_runs_elsewhere(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'nonbis.db'}"
    with Face(tmp_path, store=store) as first, Face(tmp_path, store=store) as second:
        hold = Hold()
        call = begin(first, "order-1", hold)
        assert second.pay("order-1", amount=1).code == "name-reused"
        assert finish(first, call, hold).status == 201


def test_an_owner_that_stands_still_is_lost_and_its_report_still_counts(tmp_path: Path) -> None:
    """Its row is in doubt for whoever asks; then it wakes up, reports, and everybody replays that."""
    store = f"sqlite:///{tmp_path / 'nonbis.db'}"
    policy = quick(beat_seconds=0.02, lost_after_seconds=0.1)
    with (
        Face(tmp_path, store=store, policy=policy) as first,
        Face(tmp_path, store=store, policy=policy) as second,
    ):
        assert second.pay("warm-1").status == 201
        hold = Hold()
        call = begin(first, "order-1", hold)
        told = pay_until_decided(second, "order-1")
        answer = finish(first, call, hold)
        assert (answer.status, answer.json["state"]) == (201, "applied")
        assert told.code == "outcome-unknown" or told.body == answer.body
        again = pay_until_decided(second, "order-1")
        assert (again.replayed, again.body, second.transfers()) == (True, answer.body, 2)
