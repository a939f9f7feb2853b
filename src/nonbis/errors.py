"""One tree of errors; each says what happened to the effect.

::

    Refusal                 not done   input refused before anything was claimed (core.refusals)
    NonbisError
    +-- StoreError
    |   +-- StoreUnavailable    not done   the write surely did not happen
    |   +-- AnswerLost          unknown    the write may or may not have happened; repeat the same one
    |   +-- StoreUnsafe         not done   refuse to start: settings, file system, foreign library
    |   +-- StoreDamaged        not done   the file is not a store, or is corrupt
    |   +-- SchemaNewer         not done   written by a newer version
    +-- MachineLost         not done   this process was declared lost; register anew
    +-- EngineStopping      not done   no new claims are taken
    +-- RailError
        +-- Declined            not done   the rail said no
        +-- NotSent             not done   surely no byte left
        +-- OutcomeUnknown      unknown    anything else
"""

from __future__ import annotations

from typing import Literal

Effect = Literal["done", "not_done", "unknown"]


class NonbisError(Exception):
    """Base of all errors of this package."""

    effect: Effect = "not_done"


class StoreError(NonbisError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store can't be reached or can't write; this write surely did not happen."""


class AnswerLost(StoreError):
    """The store's answer was lost: the write may have happened. Repeat the same write."""

    effect: Effect = "unknown"


class StoreUnsafe(StoreError):
    """The store is set up so that the promise can't be kept; it is refused."""


class StoreDamaged(StoreError):
    """The file is not a Nonbis store, or it is corrupt."""


class SchemaNewer(StoreError):
    """The store was written by a newer version of Nonbis."""


class MachineLost(NonbisError):
    """The store says that this machine was declared lost or has ended."""


class EngineStopping(NonbisError):
    """The engine is being stopped and takes no new claims."""


class RailError(NonbisError):
    """What a rail raises instead of returning a receipt."""


class Declined(RailError):
    """The rail refused: surely no effect."""


class NotSent(RailError):
    """Surely no byte of the request left this process."""


class OutcomeUnknown(RailError):
    """The effect may or may not have happened."""

    effect: Effect = "unknown"
