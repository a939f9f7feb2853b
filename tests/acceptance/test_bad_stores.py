"""A store that is corrupt, read-only, full, foreign or newer: a clear sentence and exit code 1 at the start,
or 503 while running. Never an effect."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from nonbis.errors import StoreDamaged
from tests.acceptance.processes import NONBIS, ServeProcess, Site, environment, until
from tests.faces.asgi import Face, quick
from tests.faces.contract import Answer

WITHOUT_PRIVILEGE = ["setpriv", "--bounding-set=-dac_override"] if os.geteuid() == 0 else []
"""Root may write what nobody may write, unless this power is taken away from it."""


def change(path: Path, sql: str) -> None:
    """Change a store that nobody has open."""
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


def overwrite(path: Path, start: int, length: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xa5" * length)


def make_readonly(path: Path) -> None:
    path.chmod(0o444)


def empty_folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def foreign(path: Path) -> None:
    path.unlink()
    change(path, "create table other (a)")


def text_file(path: Path) -> None:
    path.write_text("this is no database, but a text of some length\n" * 100)


NEWER = "insert into migration (number, name, checksum, at_ms) values (999, 'later', 'x', 0)"
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "header overwritten": (lambda path: overwrite(path, 0, 100), "not a database"),
    "first page overwritten": (lambda path: overwrite(path, 100, 3996), "malformed"),
    "a text file": (text_file, "not a database"),
    "a folder": (empty_folder_instead, "can't be opened"),
    "another program's database": (foreign, "not a Nonbis store"),
    "read-only": (make_readonly, "can only be read"),
    "newer schema": (lambda path: change(path, NEWER), "newer"),
    "no store key": (lambda path: change(path, "delete from fence"), "key"),
    "a changed migration": (
        lambda path: change(path, "update migration set checksum = 'other'"),
        "migration",
    ),
}


@pytest.fixture(scope="module")
def good_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one payment in it, closed."""
    folder = tmp_path_factory.mktemp("good")
    with Site(folder) as site:
        server = site.serve()
        assert server.pay("order-1").status == 201
        assert server.stop() == 0
    return folder / "nonbis.db"


def start(folder: Path, store: str) -> subprocess.CompletedProcess[str]:
    """``nonbis serve`` on a store that it must refuse."""
    return subprocess.run(
        [*WITHOUT_PRIVILEGE, *NONBIS, "serve", "--port=0", f"--store={store}", "--rail=http://127.0.0.1:1"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def check_refused(done: subprocess.CompletedProcess[str], sentence: str) -> None:
    """One line that says what is wrong, no trace, exit code 1."""
    assert done.returncode == 1, done
    assert sentence in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("Error: ")
    assert done.stdout == ""


@pytest.mark.parametrize("case", BROKEN)
def test_refused_at_the_start(tmp_path: Path, good_store: Path, case: str) -> None:
    breaks, sentence = BROKEN[case]
    path = tmp_path / "nonbis.db"
    shutil.copy(good_store, path)
    breaks(path)
    check_refused(start(tmp_path, f"sqlite:///{path}"), sentence)


def test_a_folder_in_which_nothing_can_be_made(tmp_path: Path) -> None:
    check_refused(start(tmp_path, "sqlite:////proc/nonbis.db"), "/proc/nonbis.db")
    check_refused(start(tmp_path, "sqlite:///no/such/folder/nonbis.db"), "no/such/folder")


def test_several_workers_are_refused_once(tmp_path: Path, good_store: Path) -> None:
    """The parent ends with its workers instead of starting them again for ever."""
    path = tmp_path / "nonbis.db"
    shutil.copy(good_store, path)
    overwrite(path, 0, 100)
    done = subprocess.run(
        [*NONBIS, "serve", "--port=0", "--workers=2", f"--store=sqlite:///{path}"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "not a database" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("page", range(2, 12))
def test_a_page_that_is_overwritten(tmp_path: Path, good_store: Path, page: int) -> None:
    """Refused at the start, or 503 for what needs that page; "not done" and "done" are true, else unknown."""
    path = tmp_path / "nonbis.db"
    shutil.copy(good_store, path)
    overwrite(path, (page - 1) * 4096, 4096)
    face = Face(tmp_path, store=f"sqlite:///{path}", policy=quick())
    try:
        face.__enter__()
    except StoreDamaged:
        return
    with contextlib.ExitStack() as stack:
        stack.push(face)
        answer = face.pay("order-2")
        assert answer.status in (201, 503), answer
        effect = "done" if answer.status == 201 else answer.json["effect"]
        assert effect == "unknown" or face.transfers() == (effect == "done")
        assert answer.status == 503 or face.get("/payments/by-name/order-2").status in (200, 503)


def limit_file_size(server: ServeProcess, soft: int) -> None:
    """As if the disk were full from this length of a file on."""
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (soft, hard))


def check_unavailable(answer: Answer, *effects: str) -> None:
    """A commit that fails for want of room may leave its frames in the log: the row may still appear."""
    assert (answer.status, answer.code) == (503, "store-unavailable")
    assert answer.json["effect"] in (effects or ("not_done",))


def test_a_disk_that_is_full_while_running(tmp_path: Path) -> None:
    """Nothing is sent while nothing can be written; with room again the same names are paid once."""
    with Site(tmp_path, "--no-dedupe", policy={"store_wait_seconds": 0.3}) as site:
        server = site.serve()
        assert server.pay("order-0").status == 201
        limit_file_size(server, 4096)
        for number in range(1, 4):
            check_unavailable(server.pay(f"order-{number}"), "not_done", "unknown")
        assert server.call("GET", "/readyz").status == 503
        assert server.pay("order-0").replayed or server.pay("order-0").status == 503
        assert site.transfers() == 1
        limit_file_size(server, resource.RLIM_INFINITY)
        for number in range(1, 4):
            until(lambda number=number: server.pay(f"order-{number}").status == 201, what="room again")
        until(lambda: server.call("GET", "/readyz").status == 200, what="ready again")
        assert site.transfers() == 4
        assert site.in_doubt() == []


def test_a_disk_that_is_full_between_effect_and_record(tmp_path: Path) -> None:
    """The outcome's write is repeated until there is room; nobody is told "failed", nothing is sent again."""
    with Site(tmp_path, "--no-dedupe", "--delay-ms=700", policy={"effect_timeout_seconds": 30.0}) as site:
        server = site.serve()
        answers: list[Answer] = []
        caller = threading.Thread(target=lambda: answers.append(server.pay("order-1")))
        caller.start()
        until(lambda: server.call("GET", "/payments/by-name/order-1").status == 200, what="the claim")
        limit_file_size(server, 4096)
        until(lambda: site.transfers() == 1, what="the transfer")
        again = server.pay("order-1")
        assert (again.status, again.code) in [(409, "in-progress"), (503, "store-unavailable")]
        limit_file_size(server, resource.RLIM_INFINITY)
        caller.join(30)
        assert [(answer.status, answer.json["state"]) for answer in answers] == [(201, "applied")]
        assert (site.transfers(), server.pay("order-1").replayed) == (1, True)


def test_a_file_that_is_replaced_while_running(tmp_path: Path, good_store: Path) -> None:
    """Noticed with the next beat: from then on 503, and nothing is sent."""
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve()
        assert server.pay("order-0").status == 201
        (tmp_path / "nonbis.db").rename(tmp_path / "moved.db")
        shutil.copy(good_store, tmp_path / "nonbis.db")
        until(lambda: server.call("GET", "/readyz").status == 503, what="the refusal")
        until(lambda: server.pay("order-0").status == 503, what="the refusal of a payment")
        before = site.transfers()
        for number in range(1, 4):
            check_unavailable(server.pay(f"order-{number}"))
        assert site.transfers() == before == 1


def test_a_full_disk_is_noticed_without_a_payment(tmp_path: Path) -> None:
    """Nobody pays, the reads go on: a beat shows that no write would succeed."""
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve()
        assert server.pay("order-0").status == 201
        limit_file_size(server, 4096)
        until(lambda: server.call("GET", "/readyz").status == 503, what="the refusal")
        assert (server.call("GET", "/payments").status, server.call("GET", "/livez").status) == (200, 200)
        limit_file_size(server, resource.RLIM_INFINITY)
        until(lambda: server.call("GET", "/readyz").status == 200, what="room again")


def test_a_file_that_is_deleted_while_running(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site:
        server = site.serve()
        assert server.pay("order-0").status == 201
        (tmp_path / "nonbis.db").unlink()
        until(lambda: server.call("GET", "/readyz").status == 503, what="the refusal")
        until(lambda: server.pay("order-1").status == 503, what="the refusal of a payment")
        assert server.call("GET", "/readyz").status == 503
        assert site.transfers() == 1


def test_a_second_library_in_the_process_is_noticed(tmp_path: Path) -> None:
    """The standard library's sqlite3 on the same file: the service takes no more payments."""
    program = tmp_path / "stranger.py"
    program.write_text(STRANGER)
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["201", "503"], done.stderr


STRANGER = """
import asyncio, json, sqlite3
from nonbis.core.policy import Policy
from nonbis.faces.service import PaymentService
from nonbis.faces.settings import ServiceSettings

async def run():
    policy = Policy(beat_seconds=0.1, lost_after_seconds=1.0)
    settings = ServiceSettings(store="sqlite:///nonbis.db", rail="simulated:", policy=policy)
    service = await PaymentService.open(settings)
    async def pay(name):
        body = json.dumps({"amount": 1, "destination": "x"}).encode()
        return await service.routes.post_payments([(b"idempotency-key", name)], body)
    print((await pay(b"a")).status)
    stranger = sqlite3.connect("nonbis.db")
    stranger.execute("select count(*) from sqlite_schema").fetchall()
    for number in range(100):
        reply = await pay(b"b%d" % number)
        if reply.status != 201:
            break
        await asyncio.sleep(0.05)
    print(reply.status)
    stranger.close()
    await service.drain()
    await service.close()

asyncio.run(run())
"""
