"""One process incarnation: its machine number, and the ids and stamps that it draws."""

from __future__ import annotations

import os
import threading

from nonbis.core.ids import SEQUENCE_MAX, pack_id
from nonbis.errors import MachineLost


class Incarnation:
    """A machine number and its sequence. Ids and stamps come from the same sequence.

    A fork must not go on with it: parent and child would issue the same ids. The process id is
    checked at each draw, and the child's copy is spent by ``os.register_at_fork`` besides.
    """

    def __init__(self, machine: int) -> None:
        self.machine = machine
        self.beat = 0
        self._lock = threading.Lock()
        self._next = 1
        self._pid = os.getpid()
        _ALIVE.append(self)

    def draw(self) -> int:
        """The next id or stamp. Raises MachineLost after a fork and at the end of the sequence."""
        with self._lock:
            if self._pid != os.getpid():
                raise MachineLost("this process is a fork of the machine that drew these ids")
            if self._next > SEQUENCE_MAX:
                raise MachineLost(f"machine {self.machine} has used up its sequence")
            number = pack_id(self.machine, self._next)
            self._next += 1
        return number

    @property
    def next_id(self) -> int:
        """The id that the next draw will give."""
        return pack_id(self.machine, min(self._next, SEQUENCE_MAX))

    @property
    def spent(self) -> bool:
        """Whether no more can be drawn here. A fork is seen by its hook, and once more at each draw."""
        return self._next > SEQUENCE_MAX

    def retire(self) -> None:
        """Draw no more: the machine is lost or has ended."""
        with self._lock:
            self._next = SEQUENCE_MAX + 1
        if self in _ALIVE:
            _ALIVE.remove(self)

    def _forked(self) -> None:
        self._lock = threading.Lock()
        self._next = SEQUENCE_MAX + 1


_ALIVE: list[Incarnation] = []


def _after_fork_in_child() -> None:
    for incarnation in _ALIVE:
        incarnation._forked()  # noqa: SLF001  (the module's own class)
    _ALIVE.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
