"""What all commands on a store share: its options, opening it, and telling of its errors."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from nonbis.errors import NonbisError, StoreUnsafe
from nonbis.opening import DEFAULT_STORE, open_store
from nonbis.ports import Store

Answer = TypeVar("Answer")
Command = TypeVar("Command", bound=Callable[..., Any])


class Session:
    """One run of a command on one store.

    Attributes:
        store_url: which store.
        as_json: data is printed as JSON.
        debug: errors are shown with their trace.
    """

    def __init__(self, store_url: str, *, as_json: bool, debug: bool) -> None:
        self.store_url = store_url
        self.as_json = as_json
        self.debug = debug

    def run(self, work: Callable[[Store], Awaitable[Answer]]) -> Answer:
        """Open the store, do the work and close it.

        Raises ClickException (exit code 1) for whatever the store refuses, BadParameter (2) for a URL
        that is none. A store that does not exist is not made.
        """
        try:
            return asyncio.run(self.work(work))
        except (NonbisError, OSError) as error:
            if self.debug:
                raise
            raise click.ClickException(one_line(error)) from error

    async def work(self, work: Callable[[Store], Awaitable[Answer]]) -> Answer:
        """The same inside a running loop; raises StoreError."""
        store = await self._open()
        try:
            return await work(store)
        finally:
            await store.close()

    async def _open(self) -> Store:
        try:
            store = await open_store(self.store_url, create=False)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--store") from None
        if not store.shared:
            raise StoreUnsafe(
                f"{self.store_url} lives inside the process that uses it; there is nothing to look at"
            )
        return store

    def print_json(self, value: Any) -> None:
        """Print data to stdout as one line of JSON."""
        click.echo(msgspec.json.encode(value))

    def say(self, words: str) -> None:
        """Print words to stderr."""
        click.echo(words, err=True)

    def not_found(self, what: str) -> NoReturn:
        """End with exit code 1."""
        raise click.ClickException(f"there is no {what} in {self.store_url}")


def one_line(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def on_store(command: Command) -> Command:
    """Give a command the options of every command on a store, and a Session as its first argument."""

    @click.option(
        "--store",
        "store_url",
        default=DEFAULT_STORE,
        show_default=True,
        envvar="NONBIS_STORE",
        show_envvar=True,
        metavar="URL",
        help="The store.",
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
    @click.option("--debug", is_flag=True, help="Show where an error came from.")
    @functools.wraps(command)
    def with_session(*arguments: Any, store_url: str, as_json: bool, debug: bool, **options: Any) -> Any:
        session = Session(store_url, as_json=as_json, debug=debug)
        return command(session, *arguments, **options)

    return with_session  # type: ignore[return-value]  # click reads the options from the wrapper
