"""Numbered migrations: plain SQL files that bring a store from one schema to the next.

They run inside one write transaction, so that of several starting processes one does the work and the
others find it done. The text of each is kept as a checksum: a file that was changed after it ran, or a
schema that is newer than this program, is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from importlib import resources
from typing import Final, NamedTuple

from nonbis.errors import SchemaNewer, StoreDamaged

_FILE: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


class Migration(NamedTuple):
    """One step. ``checksum`` is taken over the text."""

    number: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        """32 hexadecimal digits over the text."""
        return hashlib.blake2b(self.text.encode(), digest_size=16).hexdigest()


class Applied(NamedTuple):
    """One step as a store remembers it."""

    number: int
    name: str
    checksum: str


def available(dialect: str) -> list[Migration]:
    """All migrations of a dialect, in order; the numbers run from 1 without a gap."""
    folder = resources.files("nonbis.stores") / "sql" / dialect / "migrations"
    found = []
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        match = _FILE.fullmatch(file.name)
        if match:
            found.append(Migration(int(match[1]), match[2], file.read_text("utf-8")))
    if [step.number for step in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the migrations of {dialect} are not numbered 1, 2, 3, ...")
    return found


def pending(known: list[Migration], applied: Iterable[Applied]) -> list[Migration]:
    """What is still to be done.

    Raises SchemaNewer if the store has a step that this program doesn't know, StoreDamaged if a step
    was another one when it ran.
    """
    done = sorted(applied)
    for step in done:
        if step.number > len(known):
            raise SchemaNewer(
                f"the store's schema is at step {done[-1].number} ({done[-1].name}), this version of Nonbis"
                f" knows {len(known)}; use the newer version"
            )
        if known[step.number - 1].checksum != step.checksum:
            raise StoreDamaged(
                f"migration {step.number} ({step.name}) of the store is not the one known here"
            )
    if [step.number for step in done] != list(range(1, len(done) + 1)):
        raise StoreDamaged("the store's list of migrations has a gap")
    return known[len(done) :]
