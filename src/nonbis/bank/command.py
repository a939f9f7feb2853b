"""``nonbis bank``: the simulated bank as a command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from nonbis.bank.counter import BankCounter, Manners
from nonbis.bank.ledger import Ledger, LedgerUnusable
from nonbis.bank.server import serve

_PROBABILITY = click.FloatRange(0, 1)


@click.command("bank")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8001, show_default=True, help="0: a free one.")
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("bank.db"),
    show_default=True,
    help="The file that holds every transfer really made.",
)
@click.option("--dedupe/--no-dedupe", default=True, show_default=True, help="Know a repeated reference.")
@click.option("--find/--no-find", default=True, show_default=True, help="Answer questions about a reference.")
@click.option("--decline", type=_PROBABILITY, default=0.0, metavar="P", help="Refuse with probability P.")
@click.option(
    "--lose-answer",
    type=_PROBABILITY,
    default=0.0,
    metavar="P",
    help="Make the transfer, then cut the connection, with probability P.",
)
@click.option("--delay-ms", type=click.IntRange(0), default=0, metavar="N", help="Wait before acting.")
def bank(
    host: str,
    port: int,
    ledger: Path,
    *,
    dedupe: bool,
    find: bool,
    decline: float,
    lose_answer: float,
    delay_ms: int,
) -> None:
    """Run a simulated bank with a durable journal, for trials and tests.

    It prints its URL as one line. POST /transfers makes a transfer, GET /transfers/{reference} tells what
    became of one, GET /journal lists every transfer really made.
    """
    manners = Manners(dedupe=dedupe, find=find, decline=decline, lose_answer=lose_answer, delay_ms=delay_ms)
    try:
        counter = BankCounter(Ledger(ledger), manners)
    except LedgerUnusable as error:
        raise click.ClickException(str(error)) from error
    try:
        asyncio.run(serve(counter, host, port))
    except OSError as error:
        raise click.ClickException(f"can't listen on {host} port {port}: {error}") from error
    finally:
        counter.close()


command = bank
"""The name under which other commands mount it."""
