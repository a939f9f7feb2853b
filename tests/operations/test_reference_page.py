"""docs/cli.md tells of every command, every option and every member, and of no other."""

from __future__ import annotations

import re

import click
import pytest

from nonbis.client.command import as_object
from nonbis.client.verdict import Meaning, Payment, Problem, Try, Verdict, VerdictState
from nonbis.operations.cli import main
from nonbis.upkeep.queries import Detail, Element, JournalLine, MachineElement
from nonbis.upkeep.resolving import Refused
from tests.operations.test_doctor import SOUND
from tests.tidy.source import ROOT

PAGE = (ROOT / "docs" / "cli.md").read_text()


def commands_of(command: click.Command, path: str) -> dict[str, click.Command]:
    """Every command below one, by its full name."""
    found = {} if command is main else {path: command}
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            found |= commands_of(below, f"{path} {name}")
    return found


COMMANDS = commands_of(main, "nonbis")


def sections(page: str) -> dict[str, str]:
    """The text below each heading of a command."""
    parts = re.split(r"^#+ (.*)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def options_of(command: click.Command) -> set[str]:
    return {
        name
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def options_told(section: str) -> set[str]:
    """The options in the paragraph that lists them."""
    listed = re.search(r"^Options: (.*?)\n\n", section, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`(--[a-z-]+)`", listed[1])) if listed else set()


def members_told(page: str, head: str) -> list[str]:
    """The first column of the table under this head."""
    table = re.search(rf"^\| {head} \| \|\n\|---\|---\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    assert table is not None, head
    return [name for line in table[1].splitlines() for name in re.findall(r"`(\w+)`", line.split("|")[1])]


def test_every_command_has_its_section() -> None:
    assert {name for name in sections(PAGE) if name.startswith("nonbis ")} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_told(name: str) -> None:
    assert options_told(sections(PAGE)[name]) == options_of(COMMANDS[name])


def test_an_option_that_is_not_told_is_found() -> None:
    section = sections(PAGE.replace("`--span` (how many", "(how many"))["nonbis ops around"]
    assert options_of(COMMANDS["nonbis ops around"]) - options_told(section) == {"--span"}


@pytest.mark.parametrize(
    ("head", "members"),
    [
        ("member of an operation", Element.__struct_fields__),
        ("further member of `ops show`", Detail.__struct_fields__[len(Element.__struct_fields__) :]),
        ("further member of `ops resolve`", ("resolved", "refused", "detail")),
        ("member of a machine", MachineElement.__struct_fields__),
        ("member of `nonbis pay`", tuple(as_object(Verdict(state=VerdictState.APPLIED, name="x")))),
        ("member of a payment", Payment.__struct_fields__),
        ("member of a problem", Problem.__struct_fields__),
        ("member of a try", Try.__struct_fields__),
    ],
)
def test_every_member_is_told(head: str, members: tuple[str, ...]) -> None:
    assert members_told(PAGE, head) == list(members)


def test_journal_lines_refusals_and_checks_are_told() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE))
    assert set(JournalLine.__struct_fields__) <= told
    assert {refused.value for refused in Refused} <= told
    assert {state.value for state in VerdictState} | {meaning.value for meaning in Meaning} <= told
    assert {*SOUND, "permissions"} - {"apsw", "file", "page_size", "page_count"} <= told
