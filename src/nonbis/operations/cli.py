"""The command ``nonbis``: a table of commands, each loaded only when it is used.

``nonbis --help`` and ``nonbis ops`` need none of the packages of the service and the client.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
import traceback
from typing import Any, Final, NamedTuple, NoReturn

import click

import nonbis

EXIT_REFUSED: Final = 1
_PRINTERS: Final = ("click", "rich")


class Lazy(NamedTuple):
    """Where a command is, what it does in one line, and the packages of its extra that it needs."""

    target: str
    summary: str
    extra: str = ""
    packages: tuple[str, ...] = ()


COMMANDS: Final[dict[str, Lazy]] = {
    "serve": Lazy(
        "nonbis.faces.command:serve", "Run the payment service.", "server", ("granian", "httpx2", "starlette")
    ),
    "bank": Lazy(
        "nonbis.bank.command:bank", "Run a simulated bank with a durable journal, for trials and tests."
    ),
    "pay": Lazy(
        "nonbis.client.command:pay",
        "Pay once: up to six tries under one name, then an honest verdict.",
        "client",
        ("httpx2",),
    ),
    "ops": Lazy("nonbis.operations.ops:ops", "Look at operations, and settle what is in doubt."),
    "machines": Lazy("nonbis.operations.machines:machines", "List the processes that use a store."),
    "doctor": Lazy("nonbis.operations.doctor:doctor", "Examine a store and the host it is on."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are asked for, and not for its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which people meet them."""
        return [*super().list_commands(ctx), *COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, or None. Raises ClickException if its extra is not installed."""
        lazy = COMMANDS.get(cmd_name)
        return super().get_command(ctx, cmd_name) if lazy is None else load(cmd_name, lazy)

    def main(self, *arguments: Any, **settings: Any) -> Any:
        """Run a command; exit code 1 and one sentence if what it printed could not be written."""
        try:
            return super().main(*arguments, **settings)
        except OSError as error:
            if not _is_of_output(error):
                raise
            _end_without_output(error)
        finally:
            _flush_output()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].summary) for name in self.list_commands(ctx)])


def _is_of_output(error: OSError) -> bool:
    """Whether it was raised by what prints, and by nothing that a command works on."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _PRINTERS


def _flush_output() -> None:
    try:
        sys.stdout.flush()
    except OSError as error:
        _end_without_output(error)


def _end_without_output(error: OSError) -> NoReturn:
    """Say so and end; what stdout did not take must not be tried again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno != errno.EPIPE:  # else the reader has seen enough
        click.echo(f"Error: the output can't be written: {error.strerror}", err=True)
    sys.exit(EXIT_REFUSED)


def load(name: str, lazy: Lazy) -> click.Command:
    """Import a command. Raises ClickException where a package of its extra is missing."""
    missing = [package for package in lazy.packages if not _is_there(package)]
    if missing:
        raise click.ClickException(
            f"nonbis {name} needs the extra '{lazy.extra}' (missing: {', '.join(missing)}):"
            f" pip install 'nonbis[{lazy.extra}]'"
        )
    module, _, attribute = lazy.target.partition(":")
    command = getattr(importlib.import_module(module), attribute)
    if not isinstance(command, click.Command):
        raise TypeError(f"{lazy.target} is no command")
    return command


def _is_there(package: str) -> bool:
    """Whether a package could be imported, without doing so."""
    return any(finder.find_spec(package, None) is not None for finder in sys.meta_path)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(nonbis.__version__, prog_name="nonbis", message="%(prog)s %(version)s")
def main() -> None:
    """Make a payment happen at most once, and say honestly what happened.

    Data goes to stdout, words about it to stderr. Exit code 0: done; 1: refused or not found; 2: wrong
    usage.
    """
