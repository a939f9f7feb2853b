"""What the commands print, to where, and how they exit."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import nonbis as package
from nonbis.operations.cli import COMMANDS, Lazy, load, main
from tests.operations.commands import IDS, Nonbis, prepare, process
from tests.operations.test_queries import MEMBERS

DETAIL = [
    *MEMBERS,
    *("owner", "owner_state", "open_sends", "by_itself", "refusals", "tenant", "scope", "description"),
    *("metadata", "receipt", "journal"),
]
JOURNAL = [
    *("at", "kind", "state", "reason", "attempt", "machine", "node", "rule", "who", "because", "stamp"),
]
MACHINE = [
    *("id", "node", "pid", "kind", "state", "beat", "oldest_open", "registered_at", "changed_at"),
]


def ids(rows: list[dict[str, object]]) -> list[object]:
    return [row["id"] for row in rows]


# -- the group -----------------------------------------------------------------------------------------


def test_help_loads_no_command() -> None:
    script = (
        "import sys; from nonbis.operations.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: print('modules', *sorted(sys.modules))\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    helped, _, modules = printed.rpartition("modules ")
    assert all(re.search(rf"^  {name} ", helped, re.MULTILINE) for name in COMMANDS)
    loaded = set(modules.split())
    assert "nonbis.operations.cli" in loaded
    assert (
        loaded & {"starlette", "granian", "httpx2", "rich", "apsw", "nonbis.faces", "nonbis.engine"} == set()
    )


def test_version() -> None:
    assert Nonbis("memory:")("--version").stdout == f"nonbis {package.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_they_say(name: str) -> None:
    assert load(name, COMMANDS[name]).get_short_help_str(200) == COMMANDS[name].summary


def test_a_missing_extra_is_named() -> None:
    lazy = Lazy("nonbis.faces.command:serve", "Serve.", "server", ("no_such_package",))
    with pytest.raises(Exception, match=r"needs the extra 'server' \(missing: no_such_package\)"):
        load("serve", lazy)


def test_an_unknown_command_is_wrong_usage() -> None:
    result = Nonbis("memory:")("pay-twice")
    assert result.exit_code == 2
    assert "No such command" in result.stderr


# -- shapes of JSON ------------------------------------------------------------------------------------


def test_lists_are_arrays_of_the_contract(nonbis: Nonbis) -> None:
    for arguments in (("list",), ("around", "1:3"), ("in-doubt",)):
        rows = nonbis.data("ops", *arguments)
        assert rows
        assert all(list(row) == MEMBERS for row in rows)


def test_list_in_json(nonbis: Nonbis) -> None:
    assert ids(nonbis.data("ops", "list")) == list(IDS.values())
    assert ids(nonbis.data("ops", "list", "--last", "2")) == ["2:1", "2:3"]
    assert ids(nonbis.data("ops", "list", "--machine", "1")) == ["1:1", "1:3", "1:5"]
    assert ids(nonbis.data("ops", "list", "--state", "in_doubt")) == ["1:5", "2:1"]
    assert nonbis.data("ops", "list", "--machine", "7") == []


def test_around_in_json(nonbis: Nonbis) -> None:
    assert ids(nonbis.data("ops", "around", "1:3", "--span", "1")) == ["1:1", "1:3", "1:5"]
    assert ids(nonbis.data("ops", "around", "4", "--machine", "1", "--span", "1")) == ["1:3", "1:5"]


def test_in_doubt_is_exactly_what_is_unsettled(nonbis: Nonbis) -> None:
    rows = nonbis.data("ops", "in-doubt")
    assert [(row["id"], row["state"]) for row in rows] == [
        (IDS["unknown"], "in_doubt"),
        (IDS["other"], "in_doubt"),
        (IDS["orphan"], "started"),
    ]


def test_show_is_one_object(nonbis: Nonbis) -> None:
    found = nonbis.data("ops", "show", IDS["paid"])
    assert list(found) == DETAIL
    assert found["metadata"] == {"month": "May"}
    assert found["receipt"] == {"reference": found["reference"], "amount": 1250, "id": "t1"}
    assert found == nonbis.data("ops", "show", "--name", "paid")
    doubtful = nonbis.data("ops", "show", IDS["unknown"])
    assert [list(line) for line in doubtful["journal"]] == [JOURNAL]


def test_machines_in_json(nonbis: Nonbis) -> None:
    rows = nonbis.data("machines")
    assert all(list(row) == MACHINE for row in rows)
    assert [(row["id"], row["state"], row["kind"]) for row in rows] == [
        (1, "lost", "serve"),
        (2, "lost", "serve"),
    ]
    assert nonbis.data("machines", "--living") == []


def test_a_declined_payment_shows_the_reference_that_was_sent(nonbis: Nonbis) -> None:
    assert not nonbis.data("ops", "show", IDS["declined"])["reference"].endswith("-2")


# -- for people ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("command", ["ops list", "ops in-doubt", "machines"])
def test_tables_fit_and_keep_ids_whole(nonbis: Nonbis, command: str, width: int) -> None:
    result = nonbis(*command.split(), width=width)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) == 1 + len(nonbis.data(*command.split()))
    assert "\x1b" not in result.stdout


def test_a_wider_terminal_shows_more(nonbis: Nonbis) -> None:
    narrow, wide = nonbis("ops", "list", width=80), nonbis("ops", "list", width=200)
    assert "REFERENCE" not in narrow.stdout
    assert "REFERENCE" in wide.stdout


def test_the_reference_to_look_for_stands_at_80_columns(nonbis: Nonbis) -> None:
    shown = nonbis("ops", "in-doubt", width=80).stdout.splitlines()
    rows = nonbis.data("ops", "in-doubt")
    assert "REFERENCE" in shown[0]
    assert [row["reference"] in text for row, text in zip(rows, shown[1:], strict=True)] == [True] * 3
    assert "SETTLE AFTER" in nonbis("ops", "in-doubt", width=100).stdout


def test_colours_are_for_terminals_that_want_them(nonbis: Nonbis) -> None:
    coloured = re.compile(r"\x1b\[[\d;]*3\d")
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    assert coloured.search(nonbis("ops", "list", **terminal).stdout)
    for command in (["ops", "list"], ["ops", "show", IDS["unknown"]], ["machines"], ["doctor"]):
        assert "\x1b" in nonbis(*command, **terminal).stdout
        assert "\x1b" not in nonbis(*command, NO_COLOR="1", **terminal).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("ops list --machine 7", "no operations\n"),
        ("ops around 1:9999 --span 0", "no operations of machine 1\n"),
        ("machines --living", "no machines\n"),
    ],
)
def test_empty_lists_say_so(nonbis: Nonbis, arguments: str, said: str) -> None:
    result = nonbis(*arguments.split())
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", said)


def test_nothing_in_doubt_says_so(nonbis: Nonbis) -> None:
    for name in ("unknown", "other", "orphan"):
        assert (
            nonbis("ops", "resolve", IDS[name], "--as", "applied", "--because", "x", "--by", "me").exit_code
            == 0
        )
    result = nonbis("ops", "in-doubt")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing is in doubt\n")


def test_show_tells_whose_turn_it_is(nonbis: Nonbis) -> None:
    doubtful = nonbis("ops", "show", IDS["unknown"])
    assert f"nonbis ops resolve {IDS['unknown']} --as applied|failed" in doubtful.stdout
    assert "(--as failed before " in doubtful.stdout
    assert "the send ended without a clear answer: the connection was reset\n" in doubtful.stdout
    assert "OutcomeUnknown" not in doubtful.stdout
    journal = nonbis.data("ops", "show", IDS["unknown"])["journal"]
    assert journal[0]["because"] == "OutcomeUnknown: the connection was reset"
    assert "nonbis ops resolve" in nonbis("ops", "show", IDS["orphan"]).stdout
    assert "nonbis ops resolve" not in nonbis("ops", "show", IDS["paid"]).stdout


def test_what_a_client_wrote_does_not_steer_the_terminal(nonbis: Nonbis) -> None:
    shown = nonbis("ops", "show", IDS["paid"]).stdout
    assert "rent \N{REPLACEMENT CHARACTER}[31m" in shown
    assert "\x1b" not in shown


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        "ops show",
        "ops show 1:1 --name paid",
        "ops show 77",
        "ops show --name=%20",
        "ops show 8388608:1",
        "ops around 77",
        "ops around x --machine 1",
        "ops around 1:1 --machine 2",
        "ops around 9999999999999999 --machine 1",
        "ops list --state in-doubt",
        "ops list --last 0",
        "ops list --last 10001",
        "ops list --machine 0",
        "ops resolve 1:5",
        "ops resolve 1:5 --as paid --because x --by me",
        "ops resolve 1:5 --as failed --because=%20 --by me",
        "ops resolve 1:5 --as failed --because x",
        "ops resolve 1:5 --as failed --because x --by me --stamp x",
        "ops list --store mysql://x",
        "doctor --store mysql://x",
    ],
)
def test_wrong_usage(arguments: str) -> None:
    result = Nonbis("sqlite:///none.db")(*(argument.replace("%20", " ") for argument in arguments.split()))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: nonbis ")


@pytest.mark.parametrize(
    "arguments",
    ["ops show 1:99", "ops show --name nobody", "ops resolve 9:9 --as applied --because x --by me"],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_is_not_there(nonbis: Nonbis, arguments: str, as_json: bool) -> None:
    result = nonbis(*arguments.split(), *(["--json"] if as_json else []))
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"Error: there is no operation .* in sqlite:///.*\n", result.stderr)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_machine_that_is_not_there(nonbis: Nonbis, as_json: bool) -> None:
    result = nonbis("ops", "around", "9:9", *(["--json"] if as_json else []))
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"Error: there is no machine 9 in sqlite:///.*\n", result.stderr)


READING = ["ops list", "ops around 1:1", "ops show 1:1", "ops in-doubt", "machines", "doctor"]
WRITING = ["ops resolve 1:1 --as applied --because x --by me"]


@pytest.mark.parametrize("arguments", [*READING, *WRITING])
def test_a_store_that_is_not_there_is_not_made(tmp_path: Path, arguments: str) -> None:
    result = Nonbis(f"sqlite:///{tmp_path}/none.db")(*arguments.split())
    assert result.exit_code == 1
    assert "there is no store at" in result.output
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_memory_has_nothing_to_look_at() -> None:
    result = Nonbis("memory:")("ops", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: memory: lives inside the process")


def spoil_text(path: Path) -> None:
    path.write_text("this is no database, but it is long enough to be looked at as one\n" * 20)


def spoil_foreign(path: Path) -> None:
    other = sqlite3.connect(path)
    other.execute("create table t (a)")
    other.close()


def spoil_pages(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)
    path.write_bytes(raw)


def spoil_newer(path: Path) -> None:
    script = f"""
import apsw
connection = apsw.Connection({str(path)!r})
connection.execute("insert into migration (number, name, checksum, at_ms) values (999, 'later', 'x', 0)")
connection.close()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


SPOILED = {
    "text": (spoil_text, "not a database"),
    "foreign": (spoil_foreign, "not a Nonbis store"),
    "pages": (spoil_pages, ""),
    "newer": (spoil_newer, "newer"),
}


def spoiled(folder: Path, how: str) -> Path:
    path = folder / "spoiled.db"
    if how in {"pages", "newer"}:
        prepare(path)
    SPOILED[how][0](path)
    return path


@pytest.mark.parametrize("how", SPOILED)
def test_a_file_that_is_no_sound_store_is_refused_in_one_sentence(tmp_path: Path, how: str) -> None:
    commands = Nonbis(f"sqlite:///{spoiled(tmp_path, how)}")
    for arguments in [*READING, *WRITING]:
        result = commands(*arguments.split())
        assert result.exit_code == 1
        assert SPOILED[how][1] in " ".join(result.output.split())
        if arguments != "doctor":
            assert re.fullmatch(r"Error: [^\n]+\n", result.stderr)
            assert result.stdout == ""


@pytest.mark.parametrize("how", SPOILED)
def test_a_process_shows_no_trace_of_it(tmp_path: Path, how: str) -> None:
    spoiled(tmp_path, how)
    result = process("ops", "list", "--store", "sqlite:///spoiled.db", folder=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(r"Error: [^\n]+\n", result.stderr)


READ_ONLY = """
import os, sys
import nonbis.operations.doctor, nonbis.operations.ops, nonbis.stores.sqlite, nonbis.upkeep.queries
import encodings.idna, click.testing, rich.console, rich._unicode_data
from nonbis.operations.cli import main
if os.geteuid() == 0:
    os.setuid(65534)
main(sys.argv[1:])
"""


def test_a_file_that_can_only_be_read(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    prepare(tmp_path / "kept.db")
    (tmp_path / "kept.db").chmod(0o444)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == tmp_path.owner() and "pytest" in str(folder):
            folder.chmod(0o755)
    tmp_path.chmod(0o777)
    (tmp_path / "kept.db.nonbis-lock").chmod(0o666)
    result = subprocess.run(
        [sys.executable, "-c", READ_ONLY, "ops", "list", "--store", "sqlite:///kept.db"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(r"Error: [^\n]*can only be read[^\n]*\n", result.stderr)


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    spoil_text(tmp_path / "x.db")
    result = process("ops", "list", "--debug", "--store", "sqlite:///x.db", folder=tmp_path)
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "StoreDamaged" in result.stderr


# -- resolve -------------------------------------------------------------------------------------------

SAID = ["--because", "it is in the bank's list", "--by", "Ann"]


def test_resolve_as_applied(nonbis: Nonbis) -> None:
    result = nonbis("ops", "resolve", IDS["unknown"], "--as", "applied", *SAID)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "1:5 is applied: every retry under its name is told so from now on\n"
    shown = nonbis.data("ops", "show", IDS["unknown"])
    assert (shown["state"], shown["receipt"]) == ("applied", None)
    assert (shown["journal"][-1]["who"], shown["journal"][-1]["because"]) == ("Ann", SAID[1])


def test_resolve_registers_as_a_machine_and_ends_it(nonbis: Nonbis) -> None:
    nonbis.data("ops", "resolve", IDS["unknown"], "--as", "applied", *SAID)
    rows = nonbis.data("machines")
    assert [(row["id"], row["kind"], row["state"]) for row in rows[2:]] == [(3, "cli", "ended")]


@pytest.mark.parametrize("seconds", [20.0, 60.0])
def test_resolve_keeps_to_the_send_deadline_that_was_agreed(tmp_path: Path, seconds: float) -> None:
    commands = prepare(tmp_path / "agreed.db", send_deadline_seconds=seconds)
    assert commands.data("ops", "resolve", IDS["unknown"], "--as", "applied", *SAID)["resolved"]
    (agreed,) = (
        check["detail"] for check in commands.data("doctor")["checks"] if check["name"] == "agreement"
    )
    assert agreed.startswith(f"send deadline {seconds:g} s;")


def test_what_a_person_wrote_does_not_steer_the_terminal(nonbis: Nonbis) -> None:
    said = ["--because", "seen\x1b[2J", "--by", "Ann\x1b[31m"]
    assert nonbis("ops", "resolve", IDS["unknown"], "--as", "applied", *said).exit_code == 0
    shown = nonbis("ops", "show", IDS["unknown"]).stdout
    assert shown.count("Ann\N{REPLACEMENT CHARACTER}[31m") == 2
    assert "\x1b" not in shown


def test_resolve_in_json(nonbis: Nonbis) -> None:
    found = nonbis.data("ops", "resolve", IDS["orphan"], "--as", "applied", *SAID)
    assert list(found) == [*DETAIL, "resolved", "refused", "detail"]
    assert (found["id"], found["state"], found["resolved"], found["refused"]) == (
        "2:3",
        "applied",
        True,
        None,
    )


def test_resolve_as_failed_waits_for_the_settle_window(nonbis: Nonbis) -> None:
    arguments = ["ops", "resolve", IDS["unknown"], "--as", "failed", *SAID]
    early = nonbis(*arguments)
    assert early.exit_code == 1
    assert "it is too early to call it failed" in early.stderr
    assert "--force says that you know" in early.stderr
    assert early.stdout.startswith("1:5 in_doubt\n")
    refused = nonbis(*arguments, "--json")
    assert refused.exit_code == 1
    told = json.loads(refused.stdout)
    assert (told["state"], told["resolved"], told["refused"]) == ("in_doubt", False, "too_early")
    forced = nonbis.data(*arguments, "--force")
    assert (forced["state"], forced["reason"]) == ("failed", "settled")


def test_resolve_takes_the_stamp_that_was_seen(nonbis: Nonbis) -> None:
    seen = nonbis.data("ops", "show", IDS["unknown"])["stamp"]
    arguments = ["ops", "resolve", IDS["unknown"], "--as", "applied", *SAID, "--stamp"]
    old = nonbis(*arguments, str(seen - 1), "--json")
    assert old.exit_code == 1
    assert json.loads(old.stdout)["refused"] == "moved"
    assert json.loads(old.stdout)["stamp"] == seen
    assert nonbis.data(*arguments, str(seen))["state"] == "applied"


# -- as a process --------------------------------------------------------------------------------------


def test_json_goes_to_stdout_alone(nonbis: Nonbis, tmp_path: Path) -> None:
    environment = {"folder": tmp_path, "NONBIS_STORE": "sqlite:///prepared.db"}
    listed = process("ops", "in-doubt", "--json", **environment)  # type: ignore[arg-type]  # a folder among texts
    assert (listed.returncode, listed.stderr) == (0, "")
    seen = json.loads(listed.stdout)[0]
    assert seen["id"] == IDS["unknown"]
    early = process("ops", "resolve", seen["id"], "--as", "failed", *SAID, "--json", **environment)  # type: ignore[arg-type]  # likewise
    assert early.returncode == 1
    assert json.loads(early.stdout)["refused"] == "too_early"
    assert len(early.stderr.splitlines()) == 1
    done = process(
        "ops", "resolve", seen["id"], "--as", "applied", *SAID, "--stamp", str(seen["stamp"]), **environment
    )  # type: ignore[arg-type]  # likewise
    assert (done.returncode, done.stderr) == (0, "")
    left = process("ops", "in-doubt", "--json", **environment)  # type: ignore[arg-type]  # likewise
    assert ids(json.loads(left.stdout)) == [IDS["other"], IDS["orphan"]]


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", ["--help", "ops list", "ops list --json", "ops show 1:1", "doctor"])
def test_output_that_can_not_be_written_is_told_in_one_sentence(
    nonbis: Nonbis, arguments: str, unbuffered: str
) -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "nonbis", *arguments.split()],
            env={**os.environ, "NONBIS_STORE": nonbis.url, "PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == "Error: the output can't be written: No space left on device\n"


def test_another_error_of_the_system_keeps_its_trace(monkeypatch: pytest.MonkeyPatch, nonbis: Nonbis) -> None:
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nonbis.operations.machines.show_machines", broken)
    result = nonbis("machines")
    assert isinstance(result.exception, OSError)
    assert result.stderr == ""


def test_the_command_is_installed(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "nonbis"
    result = subprocess.run(
        [script, "ops", "list"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 1
    assert result.stderr == "Error: there is no store at nonbis.db; `nonbis serve` makes one\n"


def test_every_command_and_option_has_help() -> None:
    import click  # noqa: PLC0415 - only for its types

    def walk(command: click.Command, path: str) -> None:
        assert command.help, path
        for parameter in command.params:
            assert not isinstance(parameter, click.Option) or parameter.help, f"{path} {parameter.name}"
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                walk(found, f"{path} {name}")

    walk(main, "nonbis")
