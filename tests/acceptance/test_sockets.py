"""The service behind real sockets: granian and uvicorn, raw bytes, hang-ups, and the graceful stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import other_servers
from tests.acceptance.processes import (
    ORDER,
    ServeProcess,
    Site,
    environment,
    exchange,
    free_port,
    raw_connection,
    until,
)
from tests.acceptance.test_crashes import check_in_doubt
from tests.faces.contract import Answer

BODY = json.dumps(ORDER).encode()
MEBIBYTE = 1 << 20
KINDS = ["nonbis serve", "uvicorn", "asgi"]
"""Who brings the bytes: the command, another server, and granian with a lifespan."""


@contextlib.contextmanager
def other_server(site: Site, kind: str) -> Iterator[int]:
    """The service behind another entry than that of the command; its port."""
    port = free_port()
    with (site.folder / f"{kind}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, other_servers.__file__, kind, str(port), site.store, site.bank.url],
            env=environment(),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        until(lambda: _answers(port), seconds=30, what=kind)
        yield port
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answers(port: int) -> bool:
    try:
        return exchange(port, "GET", "/readyz").status == 200
    except OSError:
        return False


@contextlib.contextmanager
def server_of(site: Site, kind: str) -> Iterator[int]:
    """A port on which this kind of server serves the site."""
    if kind == "nonbis serve":
        yield site.serve().port
    else:
        with other_server(site, kind) as port:
            yield port


def raw(port: int, *parts: bytes) -> tuple[int, bytes]:
    """Status line's code and everything after the head, of bytes sent as they are."""
    with raw_connection(port, *parts) as connection:
        connection.settimeout(15)
        head, _, body = _read_all(connection).partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), body


def _read_all(connection: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            data += part
    return data


def post_head(*lines: bytes, name: bytes | None = b"order-1") -> bytes:
    """The head of a POST on a connection that is closed afterwards."""
    head = [b"POST /payments HTTP/1.1", b"Host: x", b"Connection: close", b"Content-Type: application/json"]
    head += [b"Idempotency-Key: " + name] if name is not None else []
    return b"\r\n".join([*head, *lines, b"", b""])


def with_length(body: bytes) -> bytes:
    return b"Content-Length: %d" % len(body)


def good(name: bytes = b"order-1") -> bytes:
    return post_head(with_length(BODY), name=name) + BODY


def chunked(body: bytes, size: int = 65536) -> bytes:
    """A body in chunks."""
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def padded(length: int) -> bytes:
    return BODY[:-1] + b" " * (length - len(BODY)) + b"}"


REFUSED: dict[str, tuple[bytes, int, bytes | None]] = {
    "blank name": (post_head(with_length(BODY), name=b" ") + BODY, 400, b"name-malformed"),
    "unterminated quote": (post_head(with_length(BODY), name=b'"a') + BODY, 400, b"name-malformed"),
    "256 characters": (post_head(with_length(BODY), name=b"k" * 256) + BODY, 400, b"name-malformed"),
    "not ASCII": (post_head(with_length(BODY), name=b"b\xfccher") + BODY, 400, b"name-malformed"),
    "two lines": (post_head(b"idempotency-key: b", with_length(BODY)) + BODY, 400, b"name-malformed"),
    "no name": (post_head(with_length(BODY), name=None) + BODY, 400, b"name-missing"),
    "a control character": (post_head(with_length(BODY), name=b"a\x01b") + BODY, 400, None),
    "NUL in a header": (post_head(with_length(BODY), name=b"a\x00b") + BODY, 400, None),
    "no body": (post_head(), 400, b"body-malformed"),
    "not JSON": (post_head(b"Content-Length: 5") + b"hello", 400, b"body-malformed"),
    "compressed": (post_head(b"Content-Encoding: gzip", with_length(BODY)) + BODY, 415, b"unsupported-type"),
    "1 MiB + 1 in chunks": (
        post_head(b"Transfer-Encoding: chunked") + chunked(padded(MEBIBYTE + 1)),
        413,
        b"too-large",
    ),
    "1 MiB + 1 as announced": (post_head(b"Content-Length: %d" % (MEBIBYTE + 1)), 413, b"too-large"),
    "a wrong length": (post_head(b"Content-Length: -1") + BODY, 400, None),
    "two lengths": (post_head(b"Content-Length: 3", with_length(BODY)) + BODY, 400, None),
    "broken chunks": (post_head(b"Transfer-Encoding: chunked") + b"zz\r\n" + BODY, 400, None),
}


# What can't stand in a header is refused by granian with an empty 400, not a problem document: the service
# never sees the request. Uvicorn lets some of it through, and then it is an ordinary refusal.
NEVER_SEEN = ("a control character", "NUL in a header")


@pytest.mark.parametrize("kind", KINDS)
def test_raw_bytes(tmp_path: Path, kind: str) -> None:
    """Refused by the service with its problem, or by the server before the service sees it."""
    with Site(tmp_path, "--no-dedupe") as site, server_of(site, kind) as port:
        for case, (sent, status, code) in REFUSED.items():
            told, body = raw(port, sent)
            assert told == status, (case, told, body)
            assert code is None or code in body, (case, body)
            assert case not in NEVER_SEEN or body == b"" or kind == "uvicorn", (case, body)
            assert b"Traceback" not in body, case
        assert exchange(port, "GET", "/payments").json == {"data": [], "next": None}
        assert site.transfers() == 0
        check_good_requests(site, port)


def check_good_requests(site: Site, port: int) -> None:
    """One mebibyte exactly, chunks, ``Expect``, percent-encoded names and HEAD, on the same server."""
    exact = padded(MEBIBYTE)
    assert raw(port, post_head(with_length(exact)), exact)[0] == 201
    assert raw(port, post_head(b"Transfer-Encoding: chunked") + chunked(exact))[0] == 201
    assert site.transfers() == 1
    assert raw(port, good(b'"a\\"b"'))[0] == 201
    assert raw(port, good(b"a/b"))[0] == 201
    for path in ("a%22b", "a%2Fb"):
        assert exchange(port, "GET", f"/payments/by-name/{path}").status == 200
    assert exchange(port, "GET", "/payments/by-name/a%252Fb").status == 404
    for path in (b"/livez", b"/payments", b"/docs"):
        assert raw(port, b"HEAD %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path) == (200, b"")
    assert site.transfers() == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_hangs_up(tmp_path: Path, kind: str) -> None:
    """In mid body: no claim. After the body: the payment goes on, and the retry replays."""
    with Site(tmp_path, "--no-dedupe", "--delay-ms=300") as site, server_of(site, kind) as port:
        for part in (BODY[:10], BODY[:-1]):
            with raw_connection(port, post_head(with_length(BODY), name=b"half"), part):
                pass
        with raw_connection(port, post_head(b"Transfer-Encoding: chunked", name=b"half"), chunked(BODY)[:-5]):
            pass
        with raw_connection(port, good(b"whole")):
            until(lambda: _known(port, "whole"), what="the claim")
        until(lambda: site.transfers() == 1, what="the transfer")
        until(lambda: _state(port, "whole") == "applied", what="the outcome")
        status, body = raw(port, good(b"whole"))
        assert (status, json.loads(body)["state"]) == (201, "applied")
        assert exchange(port, "GET", "/payments/by-name/half").status == 404
        assert site.transfers() == 1


def _known(port: int, name: str) -> bool:
    return exchange(port, "GET", f"/payments/by-name/{name}").status == 200


def _state(port: int, name: str) -> str:
    state: str = exchange(port, "GET", f"/payments/by-name/{name}").json["state"]
    return state


def test_two_servers_on_one_store_replay_each_other(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe") as site, other_server(site, "uvicorn") as port:
        first = site.serve().pay("order-1")
        again = exchange(port, "POST", "/payments", BODY, {"Idempotency-Key": "order-1"})
        assert (again.replayed, again.body) == (True, first.body)


def test_it_pays_within_ten_seconds_of_its_start_as_it_comes(tmp_path: Path) -> None:
    """No settings at all: SQLite in the working folder, the simulated rail with its ledger beside it."""
    begun = time.monotonic()
    with ServeProcess(tmp_path) as server:
        assert server.pay("order-1").json["state"] == "applied"
        assert time.monotonic() - begun < 10
        assert server.pay("order-1").replayed
        assert server.stop() == 0
    made = {path.name for path in tmp_path.iterdir()}
    assert {"nonbis.db", "nonbis-simulated.jsonl"} <= made


def begin(server: ServeProcess, name: str) -> tuple[threading.Thread, list[Answer]]:
    """A payment in a thread of its own, once its row is there."""
    answers: list[Answer] = []
    caller = threading.Thread(target=lambda: answers.append(server.pay(name)))
    caller.start()
    until(lambda: _known(server.port, name), what="the claim")
    return caller, answers


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_in_flight_finishes_before_the_stop(tmp_path: Path, workers: int) -> None:
    with Site(tmp_path, "--no-dedupe", "--delay-ms=1000", policy={"effect_timeout_seconds": 30.0}) as site:
        server = site.serve(f"--workers={workers}")
        caller, answers = begin(server, "order-1")
        assert server.stop() == 0
        caller.join(10)
        assert [(answer.status, answer.json["state"]) for answer in answers] == [(201, "applied")]
        assert (site.transfers(), site.in_doubt()) == (1, [])


def test_several_workers_say_once_that_they_serve(tmp_path: Path) -> None:
    """When the last of them does; one that replaces another says nothing."""
    with Site(tmp_path) as site:
        server = site.serve("--workers=3")
        until(lambda: server.log.read_text().count("nonbis serves "), what="the word")
        assert f"nonbis serves http://127.0.0.1:{server.port} on {site.store} with 3 workers\n" in (
            server.log.read_text()
        )
        first = children_of(server.pid)
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(set(children_of(server.pid)) - set(first)) == 1, what="another worker")
        until(lambda: server.pay("order-1").status == 201, what="a payment")
        assert server.stop() == 0
        assert server.log.read_text().count("nonbis serves ") == 1


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def test_a_long_stop_is_not_taken_for_a_loss(tmp_path: Path) -> None:
    """Beats go on while a request finishes: nobody puts it in doubt, and the machine ends as it should."""
    with Site(tmp_path, "--no-dedupe", "--delay-ms=2500", policy={"effect_timeout_seconds": 30.0}) as site:
        stopped, other = site.serve(), site.serve()
        caller, answers = begin(stopped, "order-1")
        assert check_in_progress(other.pay("order-1"))
        assert stopped.stop() == 0
        caller.join(10)
        assert (answers[0].status, answers[0].json["state"]) == (201, "applied")
        assert site.ops("show", answers[0].json["id"])["journal"] == []
        rows = [one["state"] for one in site.run("machines") if one["kind"] == "serve"]
        assert rows[0] == "ended"
        assert set(rows[1:]) <= {"living"}
        assert site.transfers() == 1


def check_in_progress(answer: Answer) -> bool:
    return (answer.status, answer.code) == (409, "in-progress")


def test_a_request_that_is_too_slow_for_the_stop_ends_in_doubt(tmp_path: Path) -> None:
    policy = {"effect_timeout_seconds": 60.0, "stop_seconds": 0.3}
    with Site(tmp_path, "--no-dedupe", "--delay-ms=4000", policy=policy) as site:
        server = site.serve()
        caller, answers = begin(server, "order-1")
        begun = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun < 3.5
        caller.join(10)
        number = check_in_doubt(answers[0])
        assert site.in_doubt() == [number]
        assert site.transfers() <= 1


def test_nothing_new_is_taken_during_the_stop(tmp_path: Path) -> None:
    with Site(tmp_path, "--no-dedupe", "--delay-ms=1500", policy={"effect_timeout_seconds": 30.0}) as site:
        server = site.serve()
        caller, answers = begin(server, "order-1")
        server.send_signal(signal.SIGTERM)
        until(lambda: server.call("GET", "/readyz").status == 503, what="the stop")
        refused = server.pay("order-2")
        assert (refused.status, refused.code) == (503, "store-unavailable")
        assert refused.json["detail"].startswith("The service is being stopped")
        assert server.pay("order-1").code == "in-progress"
        caller.join(30)
        assert server.process.wait(30) == 0
        assert (answers[0].status, site.transfers()) == (201, 1)
        log = server.log.read_text()
        assert "INFO stopping: no new payments; those under way have 30 s to finish" in log
        assert log.index("INFO stopping: ") < log.index("INFO stopped")
