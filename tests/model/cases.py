"""What a run is: a mistake that must show, or a setup in which every promise must hold."""

from __future__ import annotations

import msgspec

from tests.model.world import Setup


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """A mistake, where it is planted, and how it must show."""

    name: str
    shows: tuple[str, ...]
    setup: Setup
    table: str = ""


class Mended(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the true table in which every promise must hold."""

    name: str
    setup: Setup
    shows: tuple[str, ...] = ("",)
    states_max: int = 5_000_000
    seconds_max: float = 3_600.0


KEPT_UNDER_FORCE = ("REPEATED", "DROPPED", "UNGUARDED", "WEDGE", "SILENT")
"""What holds even where force has made two effects possible."""
