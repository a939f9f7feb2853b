"""Which machines stand still, and which dead ones are to be looked at again. No wall clock."""

from __future__ import annotations

from collections.abc import Iterable

from nonbis.ports import MachineRow

DEAD_ROUND_MAX_SECONDS = 600.0


class Observer:
    """Counts read of other machines, with this process's own monotonic clock."""

    def __init__(self, lost_after_seconds: float) -> None:
        self._lost_after_seconds = lost_after_seconds
        self._first_seen: dict[int, tuple[int, float]] = {}
        self._last_read: float | None = None

    def standing_still(self, others: Iterable[MachineRow], asked: float, read: float) -> list[MachineRow]:
        """Machines whose count is the same as it was at least ``lost_after_seconds`` ago.

        ``asked`` and ``read`` are the moments before and after the counts were read: a pause of this
        process in between must not look like one of the others. Call it only right after an own beat
        that succeeded; when one fails, ``forget_all``: a store that takes nobody's beats must not make
        everybody lost. A gap in which this process would be lost itself, as when the whole host stood
        still, ends all observations too.
        """
        if self._last_read is not None and asked - self._last_read >= self._lost_after_seconds:
            self.forget_all()
        self._last_read = read
        before, self._first_seen = self._first_seen, {}
        still = []
        for row in others:
            beat, since = before.get(row.id, (row.beat, read))
            if beat != row.beat:
                since = read
            self._first_seen[row.id] = (row.beat, since)
            if asked - since >= self._lost_after_seconds:
                still.append(row)
        return still

    def forget_all(self) -> None:
        """Begin all observations anew."""
        self._first_seen.clear()


class DeadRounds:
    """Machines that are lost or ended, each looked at again after doubling delays.

    A machine that was declared lost and has not noticed may still commit a batch; so one look is not
    enough. It notices at its next beat, so the looks may become rare.
    """

    def __init__(self, first_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._rows: dict[int, tuple[MachineRow, float, float]] = {}

    def add(self, row: MachineRow) -> None:
        """Look at this machine's rows from the next round on."""
        self._rows.setdefault(row.id, (row, 0.0, self._first_seconds))

    def due(self, now: float) -> list[MachineRow]:
        """The machines to be looked at now."""
        found = []
        for number, (row, at, delay) in self._rows.items():
            if at <= now:
                found.append(row)
                self._rows[number] = (row, now + delay, min(2 * delay, DEAD_ROUND_MAX_SECONDS))
        return found
