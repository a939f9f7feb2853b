"""``nonbis machines``: the processes that use a store."""

from __future__ import annotations

import click

from nonbis.operations.session import Session, on_store
from nonbis.operations.tables import show_machines
from nonbis.upkeep.queries import list_machines


@click.command("machines")
@click.option("--living", is_flag=True, help="Only those that may still act.")
@on_store
def machines(session: Session, *, living: bool) -> None:
    """List the processes that use a store.

    Each start of a process is a machine of its own, numbered by the store. A machine is lost when its
    process is known to be gone or its beats stood still; it is ended when it said so itself.
    """
    rows = session.run(lambda store: list_machines(store, living=living))
    if session.as_json:
        session.print_json(rows)
    elif rows:
        show_machines(rows)
    else:
        session.say("no machines")
