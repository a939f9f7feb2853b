"""``nonbis ops``: look at operations, and settle by hand what is in doubt."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import click
import msgspec

from nonbis.clocks import SystemClock
from nonbis.core.ids import MACHINE_MAX, SEQUENCE_MAX, format_id, machine_of, pack_id, parse_id
from nonbis.core.messages import State
from nonbis.core.names import check_name
from nonbis.core.policy import Policy
from nonbis.core.refusals import NameMalformed
from nonbis.engine.effects import PaymentEffects
from nonbis.engine.engine import Engine
from nonbis.errors import StoreError
from nonbis.operations.session import Session, on_store
from nonbis.operations.tables import show_detail, show_in_doubt, show_operations
from nonbis.ports import Store
from nonbis.upkeep import queries
from nonbis.upkeep.queries import AROUND_SPAN, LIST_LIMIT, LIST_LIMIT_MAX, Detail, Element
from nonbis.upkeep.resolving import Resolution, Verdict, resolve

WORDS_LENGTH_MAX = 500
_MACHINE = click.IntRange(1, MACHINE_MAX)


class OperationId(click.ParamType[int]):
    """``7:8400000``."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The 63-bit integer; fails with a usage error."""
        try:
            return value if isinstance(value, int) else parse_id(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Words(click.ParamType[str]):
    """What a person says: not blank, and text that a store can keep."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text without surrounding space; fails with a usage error."""
        words = str(value).strip()
        if not words:
            self.fail("it must not be blank", param, ctx)
        if len(words) > WORDS_LENGTH_MAX or not _is_text(words):
            self.fail(f"it must be text of up to {WORDS_LENGTH_MAX} characters", param, ctx)
        return words


def _is_text(words: str) -> bool:
    """No NUL, and none of the lone surrogates by which Python carries bytes that are no UTF-8."""
    return "\0" not in words and not any("\ud800" <= character <= "\udfff" for character in words)


@click.group("ops")
def ops() -> None:
    """Look at operations, and settle what is in doubt.

    An operation id looks like 7:8400000: the machine that claimed it, and its place in that machine's
    sequence.
    """


def _print_list(
    session: Session,
    rows: Sequence[Element],
    nothing: str,
    show: Callable[[Sequence[Element]], None] = show_operations,
) -> None:
    if session.as_json:
        session.print_json(rows)
    elif rows:
        show(rows)
    else:
        session.say(nothing)


@ops.command("list")
@click.option("--machine", type=_MACHINE, metavar="N", help="Only those that this machine claimed.")
@click.option(
    "--state", type=click.Choice([state.value for state in State]), help="Only those in this state."
)
@click.option(
    "--last",
    type=click.IntRange(1, LIST_LIMIT_MAX),
    default=LIST_LIMIT,
    show_default=True,
    metavar="N",
    help="How many.",
)
@on_store
def list_command(session: Session, *, machine: int | None, state: str | None, last: int) -> None:
    """List the last operations, in the order of their ids."""
    wanted = None if state is None else State(state)
    rows = session.run(lambda store: queries.list_operations(store, machine=machine, state=wanted, last=last))
    _print_list(session, rows, "no operations")


@ops.command("around")
@click.argument("where", metavar="ID")
@click.option("--machine", type=_MACHINE, metavar="N", help="The machine, where ID is a bare number.")
@click.option(
    "--span",
    type=click.IntRange(0, LIST_LIMIT_MAX),
    default=AROUND_SPAN,
    show_default=True,
    metavar="N",
    help="How many on either side.",
)
@on_store
def around(session: Session, where: str, *, machine: int | None, span: int) -> None:
    """Show what a machine did just before and after an operation.

    ID is 7:8400000, or 8400000 with --machine 7. It need not be an operation's: ids and stamps come
    from one sequence.
    """
    number = _place(where, machine)

    async def work(store: Store) -> list[Element] | None:
        known = any(row.id == machine_of(number) for row in await store.machines())
        return await queries.around_operation(store, number, span=span) if known else None

    rows = session.run(work)
    if rows is None:
        session.not_found(f"machine {machine_of(number)}")
    _print_list(session, rows, f"no operations of machine {machine_of(number)}")


def _place(where: str, machine: int | None) -> int:
    try:
        if ":" in where:
            number = parse_id(where)
        elif machine is None:
            raise ValueError(f"give the machine too, as {where[:20]} --machine 7 or 7:{where[:20]}")
        elif where.isascii() and where.isdigit() and int(where[:20]) <= SEQUENCE_MAX:
            number = pack_id(machine, int(where))
        else:
            raise ValueError(f"{where[:40]!r} is no place in a machine's sequence")
        if machine is not None and machine_of(number) != machine:
            raise ValueError(f"{where} is not of machine {machine}")
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="ID") from None
    return number


@ops.command("show")
@click.argument("number", metavar="[ID]", type=OperationId(), required=False)
@click.option("--name", metavar="K", help="The name that the client gave it (its Idempotency-Key).")
@on_store
def show(session: Session, number: int | None, *, name: str | None) -> None:
    """Show everything about one operation: by its ID, or by the client's name for it."""
    what, question = _which(number, name)
    found = session.run(question)
    if found is None:
        session.not_found(what)
    elif session.as_json:
        session.print_json(found)
    else:
        show_detail(found)


def _which(number: int | None, name: str | None) -> tuple[str, Callable[[Store], Awaitable[Detail | None]]]:
    if number is not None and name is None:
        return f"operation {format_id(number)}", lambda store: queries.by_id(store, number)
    if name is None or number is not None:
        raise click.UsageError("give either an ID or --name")
    try:
        known_name = check_name(name)
    except NameMalformed as error:
        raise click.BadParameter(error.detail, param_hint="--name") from None
    return f"operation of the name {known_name}", lambda store: queries.by_name(store, known_name)


@ops.command("in-doubt")
@on_store
def in_doubt(session: Session) -> None:
    """List what waits for a person, contradicted operations first.

    In doubt, contradicted, and under way in a process that is gone. An empty list is the normal state.
    """
    _print_list(session, session.run(queries.in_doubt), "nothing is in doubt", show_in_doubt)


@ops.command("resolve")
@click.argument("number", metavar="ID", type=OperationId())
@click.option(
    "--as",
    "verdict",
    required=True,
    type=click.Choice(["applied", "failed"]),
    help="What you found on the rail's side under the operation's reference.",
)
@click.option("--because", required=True, type=Words(), metavar="TEXT", help="How you know. It is kept.")
@click.option("--by", "who", required=True, type=Words(), metavar="WHO", help="Who you are. It is kept.")
@click.option(
    "--stamp",
    type=click.IntRange(1),
    metavar="N",
    help="The stamp of the row that you saw; without it, the row as it is now.",
)
@click.option("--force", is_flag=True, help="Call it failed before the settle window has passed.")
@on_store
def resolve_command(
    session: Session, number: int, *, verdict: Verdict, because: str, who: str, stamp: int | None, force: bool
) -> None:
    """Settle an operation that is in doubt or contradicted.

    As applied: every retry under its name is told so, without a receipt. As failed: the next retry is a
    new attempt, under the same reference.

    --force says that you know that nothing is under way any more. If you are wrong, a send that arrives
    late and the next attempt may both take effect: it is paid twice.
    """

    async def work(store: Store) -> tuple[Resolution, Detail] | None:
        if await store.show(number) is None:
            return None
        resolution = await _resolve(
            store, number, verdict, who=who, because=because, stamp=stamp, force=force
        )
        seen = await queries.by_id(store, number)
        return None if seen is None else (resolution, seen)

    answer = session.run(work)
    if answer is None:
        session.not_found(f"operation {format_id(number)}")
    resolution, seen = answer
    _print_resolution(session, resolution, seen)
    if resolution.refused:
        sys.exit(1)


async def _resolve(store: Store, number: int, verdict: Verdict, **said: Any) -> Resolution:
    """As a machine of kind ``cli``, under the send deadline that all processes have agreed on."""
    agreement = await store.agreement()
    policy = Policy(send_deadline_seconds=agreement.send_deadline_seconds) if agreement else Policy()
    engine = Engine(store, PaymentEffects(), clock=SystemClock(), policy=policy, kind="cli")
    await engine.start()
    try:
        return await resolve(engine, number, verdict, **said)
    finally:
        try:
            await engine.presence.end()
        except StoreError:
            # What was settled is settled. A process that is gone is noticed by the others.
            pass


def _print_resolution(session: Session, resolution: Resolution, seen: Detail) -> None:
    if session.as_json:
        added = {
            "resolved": resolution.refused is None,
            "refused": resolution.refused,
            "detail": resolution.detail,
        }
        session.print_json(msgspec.structs.asdict(seen) | added)
    elif resolution.refused:
        show_detail(seen)
    else:
        click.echo(resolution.detail)
    if resolution.refused:
        session.say(resolution.detail)
