"""``nonbis doctor``: examine a store and the host it is on."""

from __future__ import annotations

import asyncio
import sys

import click

from nonbis.clocks import SystemClock
from nonbis.errors import NonbisError
from nonbis.operations.examination import Check, Examination, Status, examination, examine
from nonbis.operations.session import Session, on_store, one_line
from nonbis.operations.tables import show_checks
from nonbis.ports import Store


@click.command("doctor")
@on_store
def doctor(session: Session) -> None:
    """Examine a store and the host it is on.

    The version of SQLite, its settings as they really are, the file and its system, the schema, who uses
    the store, what they agreed on, the clock and the disk. Exit code 1 if anything fails.
    """
    found = _examined(session)
    if session.as_json:
        session.print_json(found)
    else:
        show_checks(found.checks)
    if found.status is Status.FAIL:
        sys.exit(1)


def _examined(session: Session) -> Examination:
    """The examination; a store that refuses to be opened is a finding, not an error."""

    async def work(store: Store) -> list[Check]:
        opened = Check("store", Status.OK, store.url)
        return [opened, *await examine(store, SystemClock())]

    try:
        checks = asyncio.run(session.work(work))
    except (NonbisError, OSError) as error:
        if session.debug:
            raise
        checks = [Check("store", Status.FAIL, one_line(error))]
    return examination(session.store_url, checks)
