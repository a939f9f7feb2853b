"""The article's client itself, against a scripted server, before it is let loose on the service."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.acceptance import article_client
from tests.client.scripted import Close, Hang, Reset, Scripted, free_port, http, say

APPLIED = say(200, {"state": "applied"})
FAILED = say(200, {"state": "failed"})
ERROR = say(500, b"Simulated failure 1", "text/plain")
ROWS = {
    "applied": ([APPLIED], "applied", 1),
    "failed, then applied": ([FAILED, APPLIED], "applied", 2),
    "failed to the end": ([FAILED], "failed", 6),
    "errors, then applied": ([ERROR, ERROR, ERROR, ERROR, ERROR, APPLIED], "applied", 6),
    "errors to the end": ([ERROR], "gave up", 6),
    "failed, then errors": ([FAILED, ERROR], "gave up", 6),
    "in progress is a 503 on this route": ([say(503), APPLIED], "applied", 2),
    "in doubt is a 409 and stops": ([say(409), APPLIED], "stopped", 1),
    "bad request": ([say(400), APPLIED], "stopped", 1),
    "errors, then bad request": ([ERROR, say(422)], "stopped", 2),
    "lost answer": ([Close(), Reset(), APPLIED], "applied", 3),
    "time-out": ([Hang(), APPLIED], "applied", 2),
    "truncated": ([Close(http(200, {"state": "applied"})[:-3]), APPLIED], "applied", 2),
    "no JSON": ([say(200, b"hello"), say(200, b"[]"), APPLIED], "applied", 3),
    "unknown state": ([say(200, {"state": "started"}), APPLIED], "applied", 2),
    "redirect": ([say(307, Location="/other"), APPLIED], "applied", 2),
}


@pytest.mark.parametrize("row", ROWS)
def test_rows(row):
    script, result, posts = ROWS[row]
    with Scripted(script) as server:
        paid = article_client.pay(
            server.url + "/payment", 1250, "alice", first_wait_seconds=0.001, timeout_seconds=0.3
        )
    assert (paid, len(server.received)) == (result, posts)
    assert len({one.body for one in server.received}) == 1
    assert {one.target for one in server.received} == {"/payment"}


def test_the_body_is_the_articles():
    with Scripted([APPLIED]) as server:
        for _ in range(3):
            article_client.pay(server.url + "/payment", 1250, "alice")
    bodies = [json.loads(one.body) for one in server.received]
    assert {(one["amount"], one["destination"], len(one)) for one in bodies} == {(1250, "alice", 3)}
    assert {uuid.UUID(one["uuid"]).version for one in bodies} == {4}
    assert len({one["uuid"] for one in bodies}) == 3


def test_nobody_listens():
    url = f"http://127.0.0.1:{free_port()}/payment"
    assert article_client.pay(url, 1, "alice", first_wait_seconds=0.001) == "gave up"


@pytest.mark.parametrize(("answer", "told", "code"), [(APPLIED, "applied\n", 0), (say(400), "stopped\n", 1)])
def test_as_a_program(answer, told, code):
    with Scripted([answer]) as server:
        done = subprocess.run(
            [sys.executable, "-I", str(Path(article_client.__file__)), server.url + "/payment", "5", "bob"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.stdout, done.returncode, done.stderr) == (told, code, "")
