"""Tables for people: as many columns as the terminal holds, and no id is ever cut or wrapped."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nonbis.clocks import SystemClock
from nonbis.core.payments import timestamp
from nonbis.operations.examination import Check
from nonbis.operations.words import moment, whose_turn, why
from nonbis.upkeep.queries import Detail, Element, JournalLine, MachineElement

_GAP: Final = 2
_SHORT_MIN: Final = 8
_UNSETTLED: Final = ("started", "in_doubt")
_STYLES: Final = {
    "applied": "green",
    "failed": "red",
    "in_doubt": "bold yellow",
    "started": "cyan",
    "accepted": "cyan",
    "living": "green",
    "lost": "bold yellow",
    "ok": "green",
    "warn": "bold yellow",
    "fail": "bold red",
}


class Column(NamedTuple):
    """One column.

    Attributes:
        title: its head.
        cell: makes the text of one row.
        rank: 0 always stands; others are added, smallest first, while there is room.
        right: numbers stand at the right.
        shortened: the text may be cut at its end to make room.
        styled: coloured by its first word.
    """

    title: str
    cell: Callable[[Any], str]
    rank: int = 0
    right: bool = False
    shortened: bool = False
    styled: bool = False


def _state(row: Element) -> str:
    words = [
        row.state,
        *([row.reason] if row.reason else []),
        *(["contradicted"] if row.contradicted else []),
    ]
    return " ".join(words)


def _money(row: Element) -> str:
    return "-" if row.amount is None else f"{row.amount} {row.currency}"


def _settle_after(row: Element) -> str:
    return moment(row.settle_after) if row.state in _UNSETTLED or row.contradicted else "-"


OPERATIONS: Final = (
    Column("ID", lambda row: row.id),
    Column("STATE", _state, styled=True),
    Column("AMOUNT", _money, right=True),
    Column("DESTINATION", lambda row: row.destination or "-", shortened=True),
    Column("ATTEMPT", lambda row: str(row.attempt), rank=3, right=True),
    Column("SENDS", lambda row: str(row.sends), rank=5, right=True),
    Column("CREATED", lambda row: moment(row.created_at), rank=6),
    Column("CHANGED", lambda row: moment(row.changed_at), rank=1),
    Column("SETTLE AFTER", _settle_after, rank=2),
    Column("NODE", lambda row: row.node or "-", rank=4),
    Column("RAIL", lambda row: f"{row.rail}/{row.account}", rank=7),
    Column("REFERENCE", lambda row: row.reference, rank=8),
)
IN_DOUBT: Final = (
    Column("ID", lambda row: row.id),
    Column("STATE", _state, styled=True),
    Column("REFERENCE", lambda row: row.reference),
    Column("AMOUNT", _money, right=True),
    Column("DESTINATION", lambda row: row.destination or "-", rank=1, shortened=True),
    Column("SETTLE AFTER", _settle_after, rank=2),
    Column("CHANGED", lambda row: moment(row.changed_at), rank=3),
    Column("RAIL", lambda row: f"{row.rail}/{row.account}", rank=4),
    Column("NODE", lambda row: row.node or "-", rank=5),
    Column("ATTEMPT", lambda row: str(row.attempt), rank=6, right=True),
    Column("SENDS", lambda row: str(row.sends), rank=7, right=True),
)
"""The reference is what a person looks for on the rail's side, so it always stands."""
MACHINES: Final = (
    Column("MACHINE", lambda row: str(row.id), right=True),
    Column("STATE", lambda row: row.state, styled=True),
    Column("KIND", lambda row: row.kind),
    Column("NODE", lambda row: row.node, shortened=True),
    Column("PID", lambda row: str(row.pid), right=True),
    Column("BEATS", lambda row: str(row.beat), rank=3, right=True),
    Column("CHANGED", lambda row: moment(row.changed_at), rank=1),
    Column("REGISTERED", lambda row: moment(row.registered_at), rank=2),
    Column("OLDEST OPEN", lambda row: row.oldest_open or "-", rank=4),
)
JOURNAL: Final = (
    Column("AT", lambda row: moment(row.at)),
    Column("WHAT", lambda row: row.kind),
    Column("STATE", lambda row: f"{row.state} {row.reason or ''}".strip(), styled=True),
    Column("ATTEMPT", lambda row: str(row.attempt), rank=1, right=True),
    Column("MACHINE", lambda row: str(row.machine), rank=2, right=True),
    Column("WHO", lambda row: row.who or "-", rank=3),
)


def printable(text: str) -> str:
    """The text without control characters: what a client or a rail wrote must not steer the terminal."""
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )


def _natural(column: Column, rows: Sequence[Any]) -> int:
    if column.shortened:
        return max(len(column.title), _SHORT_MIN)
    return max([len(column.title), *(len(column.cell(row)) for row in rows)])


def fitting(columns: Sequence[Column], rows: Sequence[Any], width: int) -> list[Column]:
    """The columns that stand in ``width`` characters, in their order."""
    chosen: list[Column] = []
    used = -_GAP
    for column in sorted(columns, key=lambda column: column.rank):
        needed = _natural(column, rows) + _GAP
        if column.rank == 0 or used + needed <= width:
            chosen.append(column)
            used += needed
        else:
            break
    return [column for column in columns if column in chosen]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 2] + ".."


def table(columns: Sequence[Column], rows: Sequence[Any], console: Console) -> None:
    """Print a table. A terminal that is narrower than what must stand gets long lines."""
    chosen = fitting(columns, rows, console.width)
    used = sum(_natural(column, rows) + _GAP for column in chosen) - _GAP
    spare = max(0, console.width - used)
    printed = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for column in chosen:
        printed.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        printed.add_row(*(_text(column, row, spare) for column in chosen))
    console.width = max(console.width, used + spare + _GAP)
    console.print(printed)


def _text(column: Column, row: Any, spare: int) -> Text:
    words = printable(column.cell(row))
    if column.shortened:
        words = _cut(words, max(len(column.title), _SHORT_MIN) + spare)
    style = _STYLES.get(words.partition(" ")[0], "") if column.styled else ""
    return Text(words, style="bold red" if "contradicted" in words and column.styled else style)


def new_console() -> Console:
    """Made for stdout; NO_COLOR (no escapes at all) and the terminal's width are honoured."""
    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    return Console(color_system=colours, highlight=False, markup=False, emoji=False)


def show_operations(rows: Sequence[Element]) -> None:
    """Print operations, one in a line."""
    table(OPERATIONS, rows, new_console())


def show_in_doubt(rows: Sequence[Element]) -> None:
    """Print what waits for a person, one in a line, with the reference to look for."""
    table(IN_DOUBT, rows, new_console())


def show_machines(rows: Sequence[MachineElement]) -> None:
    """Print machines, one in a line."""
    table(MACHINES, rows, new_console())


def show_checks(checks: Sequence[Check]) -> None:
    """Print an examination, one check in a line; what it says may go on in the next."""
    console = new_console()
    printed = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=False)
    printed.add_column(no_wrap=True)
    printed.add_column(no_wrap=True)
    printed.add_column(overflow="fold")
    for check in checks:
        status = Text(check.status.value, style=_STYLES[check.status.value])
        printed.add_row(status, check.name, Text(printable(check.detail)))
    console.print(printed)


def show_detail(row: Detail) -> None:
    """Print one operation: what it is, whose turn it is, and its journal."""
    console = new_console()
    head = _state(row)
    console.print(Text(row.id, style="bold"), Text(head, style=_STYLES.get(row.state, "")))
    for label, value in _facts(row):
        console.print(Text(f"  {label:<13}{printable(value)}"), soft_wrap=True)
    if row.journal:
        console.print()
        table(JOURNAL, row.journal, console)
        for line in row.journal:
            _reason(line, console)


def _reason(line: JournalLine, console: Console) -> None:
    said = f"  {moment(line.at)} {line.kind}, {line.who or f'machine {line.machine}'}: {why(line)}"
    console.print(Text(printable(said)), soft_wrap=True)


def _sends(row: Detail) -> str:
    unknown = f", fate of {row.open_sends} unknown" if row.state in _UNSETTLED else ""
    return f"{row.attempt}, sends {row.sends}{unknown}, refusals {row.refusals}"


def _facts(row: Detail) -> list[tuple[str, str]]:
    facts = [
        ("payment", f"{_money(row)} to {row.destination or '-'}"),
        ("reference", row.reference),
        ("rail", f"{row.rail}/{row.account}"),
        ("attempt", _sends(row)),
        ("claimed by", f"machine {row.machine} on {row.node or 'an unknown node'}"),
        ("owner", f"machine {row.owner}, {row.owner_state or 'unknown'}"),
        ("created", moment(row.created_at)),
        ("last send", moment(row.started_at)),
        ("changed", moment(row.changed_at)),
        ("settle after", _settle_after(row)),
        ("stamp", str(row.stamp)),
    ]
    if row.description is not None:
        facts.append(("description", row.description))
    facts += [(f"metadata {name}", value) for name, value in (row.metadata or {}).items()]
    if row.receipt is not None:
        receipt = row.receipt
        said = ", ".join(
            f"{name} {value}"
            for name in receipt.__struct_fields__
            if (value := getattr(receipt, name)) is not None
        )
        facts.append(("receipt", said))
    if turn := whose_turn(row, timestamp(SystemClock().wall_ms())):
        facts.append(("next", turn))
    return facts
