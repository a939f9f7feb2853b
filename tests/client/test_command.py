"""``nonbis pay``: what a person and a program see, exit codes, and the name before the first byte."""

from __future__ import annotations

import datetime
import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from nonbis.client import Client, Verdict, VerdictState, command
from nonbis.client.command import as_object
from nonbis.client.verdict import Payment
from tests.client.quick import QuickPause
from tests.client.scripted import (
    APPLIED,
    CANCELLED,
    DECLINED,
    IN_DOUBT,
    NAME_REUSED,
    RAIL_UNREACHABLE,
    SIMULATED,
    UNAUTHORISED,
    Close,
    Hang,
    Scripted,
    free_port,
    payment,
    problem,
    say,
)

PROGRAM = [sys.executable, "-c", "from nonbis.client.command import pay; pay()"]
ORDER = ["--to", "alice", "--amount", "1250"]


@pytest.fixture
def run(monkeypatch):
    """Runs the command in this process, without waiting between tries."""
    real_init = Client.__init__

    def quick_init(self, *arguments, **settings):
        real_init(self, *arguments, pause=QuickPause(), **settings)

    monkeypatch.setattr(Client, "__init__", quick_init)
    return lambda *arguments: CliRunner().invoke(command.pay, [*ORDER, *arguments])


def served(run, script, *arguments):
    with Scripted(script) as server:
        result = run("--url", server.url, *arguments)
    return result, server


CASES = {
    # name: (script, exit code, state, what a person reads)
    "applied": ([APPLIED], 0, "applied", "applied: the money moved, once"),
    "declined": ([DECLINED], 1, "failed", "failed: no money moved"),
    "rail": ([RAIL_UNREACHABLE], 1, "failed", "failed: no money moved"),
    "in doubt": ([IN_DOUBT], 1, "in_doubt", "Don't pay in another way"),
    "gave up": ([SIMULATED], 1, "gave_up", "it is not known whether the money moved"),
    "refused": ([UNAUTHORISED], 1, "refused", "401 unauthorised"),
    "name reused": ([NAME_REUSED], 1, "refused", "A new payment needs a new name"),
    "cancelled": ([CANCELLED], 1, "failed", "nothing will ever be paid under it"),
    "late": ([Close(), DECLINED], 1, "failed", "may still arrive"),
}


@pytest.mark.parametrize("case", CASES)
def test_exit_code_and_text(run, case):
    script, code, _, text = CASES[case]
    result, _ = served(run, script, "--name", "order-7")
    assert result.exit_code == code
    assert text in result.stdout
    assert "order-7" in result.stdout


@pytest.mark.parametrize("case", CASES)
def test_json_is_one_object_on_stdout_and_nothing_else(run, case):
    script, code, state, _ = CASES[case]
    result, server = served(run, script, "--json", "--name", "order-7")
    told = json.loads(result.stdout)
    assert result.exit_code == code
    assert (told["state"], told["name"]) == (state, "order-7")
    assert len(told["tries"]) == len(server.received)
    assert set(told) == {"state", "name", "operation_id", "payment", "problem", "tries"}


def test_json_of_an_applied_payment(run):
    told = json.loads(served(run, [APPLIED], "--json")[0].stdout)
    assert told["operation_id"] == told["payment"]["id"] == "7:42"
    assert told["payment"]["amount"] == 1250
    assert told["tries"][0]["status"] == 201
    assert told["problem"] is None


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_known_is_null(run, case):
    told = json.loads(served(run, CASES[case][0], "--json")[0].stdout)
    for part in (told["payment"], told["problem"], *told["tries"]):
        assert part is None or "" not in part.values()
    assert told["tries"][-1]["error"] is None


def test_a_text_that_a_client_chose_empty_stays_so():
    paid = Payment(id="7:1", state="applied", amount=1, currency="EUR", destination="d", description="")
    told = as_object(Verdict(state=VerdictState.APPLIED, name="order-7", payment=paid))["payment"]
    assert (told["description"], told["created_at"]) == ("", None)


def ago(**time):
    moment = datetime.datetime.now(datetime.UTC) - datetime.timedelta(**time)
    return moment.isoformat().replace("+00:00", "Z")


AGAIN = "To try again, give the same name: --name order-7\nThat is a new attempt within 24 hours"
OVER = "The service takes no new attempt under this name any more"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"created_at": ago(hours=23)}, AGAIN),
        ({"created_at": ago(hours=25)}, OVER),
        ({"created_at": ago(hours=1), "attempt": 19}, AGAIN),
        ({"created_at": ago(hours=1), "attempt": 20}, OVER),
    ],
)
def test_a_failed_payment_says_until_when_its_name_can_be_tried_again(run, changes, told):
    failed = say(201, payment("failed", reason="declined", **changes))
    result, _ = served(run, [failed], "--name", "order-7")
    assert told in result.stdout
    assert (OVER if told is AGAIN else AGAIN) not in result.stdout


def test_a_moment_that_can_not_be_read_ends_nothing():
    failed = Payment(id="7:1", state="failed", amount=1, currency="EUR", destination="d", created_at="soon")
    assert not command._is_over(failed, 2e9)
    assert not command._is_over(None, 2e9)


def test_not_reached(run):
    result = run("--url", f"http://127.0.0.1:{free_port()}")
    assert result.exit_code == 1
    assert "no byte left this machine" in result.stdout


def test_progress_goes_to_stderr(run):
    result, _ = served(run, [SIMULATED, Close(), APPLIED], "--json", "--name", "order-7")
    lines = result.stderr.splitlines()
    assert lines[0] == "name order-7"
    assert lines[1] == "try 1 of 6"
    assert lines[2] == "no clear answer (500 simulated-failure); try 2 of 6, waiting 0.5 s"
    assert lines[3].startswith("no clear answer (RemoteProtocolError: ")
    assert lines[3].endswith("; try 3 of 6, waiting 1.0 s")
    assert "try" not in result.stdout.split('"tries"')[0]


def test_options_reach_the_service(run):
    result, server = served(
        run, [DECLINED, APPLIED], "--currency", "USD", "--name", "order-7", "--retry-failed"
    )
    assert result.exit_code == 0
    assert len(server.received) == 2
    assert json.loads(server.received[0].body) == {"amount": 1250, "currency": "USD", "destination": "alice"}
    assert server.received[0].values("idempotency-key") == ['"order-7"']


@pytest.mark.parametrize(
    "arguments",
    [
        ("--amount", "0"),
        ("--amount", "1e2"),
        ("--amount", "10.5"),
        ("--amount", str(2**53)),
        ("--name", "two words"),
        ("--name", ""),
        ("--currency", "dollars"),
        ("--to", "two words"),
        ("--url", "localhost"),
        ("--outbox", "file"),
        ("surplus",),
    ],
)
def test_wrong_usage_is_exit_code_2_and_sends_nothing(run, arguments):
    with Scripted([APPLIED]) as server:
        result = run("--url", server.url, *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: ")
    assert server.received == []


def test_an_answer_can_not_steer_the_terminal(run):
    nasty = problem(400, "member-invalid", "not_done", detail="\x1b]0;owned\x07[bold]x[/bold]\nname forged")
    result, _ = served(run, [nasty])
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
    assert "\nname forged" not in result.stdout
    assert "[bold]x[/bold]" in result.stdout


def test_the_name_is_shown_before_the_first_byte_leaves_and_survives_kill_9():
    with Scripted([Hang(), APPLIED]) as server:
        process = subprocess.Popen(
            [*PROGRAM, *ORDER, "--url", server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert server.arrived.wait(30)
        process.send_signal(signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=30)
        name = stderr.splitlines()[0].removeprefix("name ")
        again = subprocess.run(
            [*PROGRAM, *ORDER, "--url", server.url, "--name", name, "--json"], capture_output=True, timeout=60
        )
    assert stdout == ""
    assert json.loads(again.stdout)["state"] == "applied"
    assert server.received[0].values("idempotency-key") == server.received[1].values("idempotency-key")
    assert server.received[0].values("idempotency-key") == [f'"{name}"']
    assert server.received[0].body == server.received[1].body


def test_an_interrupt_says_how_to_go_on():
    # Where the tests run in the background, their children begin with SIGINT ignored.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    with Scripted([Hang()]) as server:
        process = subprocess.Popen(
            [*PROGRAM[:2], heard + PROGRAM[2], *ORDER, "--url", server.url, "--name", "order-7"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert server.arrived.wait(30)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert stdout == ""
    assert "Go on under the same name: --name order-7" in stderr
    assert "Traceback" not in stderr


def in_terminal(url, **environment):
    """What the command writes to a terminal."""
    leader, follower = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [*PROGRAM, *ORDER, "--url", url],
        stdout=follower,
        stderr=subprocess.DEVNULL,
        env={**inherited, "TERM": "xterm", **environment},
    )
    os.close(follower)
    written = b""
    try:
        while more := os.read(leader, 65536):
            written += more
    except OSError:
        pass  # the terminal's other end is closed: the command has ended
    os.close(leader)
    assert process.wait(30) == 0
    return written


def test_colour_on_a_terminal_unless_no_color():
    with Scripted([APPLIED]) as server:
        assert b"\x1b[1;32m" in in_terminal(server.url)
        plain = in_terminal(server.url, NO_COLOR="1")
    assert b"\x1b" not in plain
    assert b"applied: the money moved, once" in plain


def test_no_colour_in_a_pipe(run):
    result, _ = served(run, [APPLIED])
    assert "\x1b" not in result.output


def test_help_says_one_name_per_payment():
    text = " ".join(CliRunner().invoke(command.pay, ["--help"]).output.split())
    assert "one per payment, the same again when you retry" in text


def test_a_refusal_without_a_problem_document(run):
    result, _ = served(run, [say(404, b"<html>", "text/html")])
    assert result.exit_code == 1
    assert "answer    404" in result.stdout
