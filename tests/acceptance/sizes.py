"""Counts of tests: small by default, full with ``NONBIS_LONG=1``."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("NONBIS_LONG"))


def sized(small: int, full: int) -> int:
    """The count for this run."""
    return full if LONG else small
