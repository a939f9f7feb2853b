"""Breadth-first search through every reachable state, so that a trace to a bad one is a shortest one.

An action is a label, whether it is **progress** (something that a healthy system does by itself) and the
state that follows. Everything else is a fault or a wish of somebody outside, and is limited by a budget.
Where no progress is possible any more the state is quiet: only there can a wedge be told from a pause.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import msgspec

StateT = TypeVar("StateT", bound=Hashable)
Action = tuple[str, bool, StateT]


class Explored(msgspec.Struct, frozen=True):
    """What a search found: ``why`` is "" where nothing is wrong, ``complete`` where all was seen.

    ``seconds`` are those of the processor, so that a busy host does not look like a slow model.
    """

    why: str
    trace: tuple[str, ...]
    states: int
    edges: int
    depth: int
    quiet: int
    seconds: float
    complete: bool

    def summary(self) -> str:
        """States, depth and verdict on one line."""
        verdict = self.why or ("holds, exhaustive" if self.complete else "holds within the bound")
        return (
            f"{self.states:>9,} states {self.edges:>10,} edges depth {self.depth:>2}"
            f" {self.seconds:6.1f} s  {verdict}"
        )


class Explorer(Generic[StateT]):
    """One search over a model."""

    def __init__(
        self,
        successors: Callable[[StateT], list[Action[StateT]]],
        wrong: Callable[[StateT], str],
        stuck: Callable[[StateT], str],
        *,
        states_max: int = 5_000_000,
        seconds_max: float = 3_600.0,
    ) -> None:
        self._successors = successors
        self._wrong = wrong
        self._stuck = stuck
        self._states_max = states_max
        self._seconds_max = seconds_max

    def explore(self, initial: StateT) -> Explored:
        """Visit every state; stop at the first one that is wrong, or quiet and stuck."""
        self._began = time.process_time()
        self._parents: dict[StateT, tuple[StateT, str] | None] = {initial: None}
        self._edges = self._quiet = depth = 0
        layer = deque([initial])
        while layer:
            following: deque[StateT] = deque()
            for state in layer:
                if why := self._visit(state, following):
                    return self._result(why, depth, state)
                if len(self._parents) > self._states_max or self._late():
                    return self._result("", depth, None, complete=False)
            layer = following
            depth += bool(following)
        return self._result("", depth, None)

    def _late(self) -> bool:
        return time.process_time() - self._began > self._seconds_max

    def _visit(self, state: StateT, following: deque[StateT]) -> str:
        if why := self._wrong(state):
            return why
        actions = self._successors(state)
        if not any(progress for _, progress, _ in actions):
            self._quiet += 1
            if why := self._stuck(state):
                return why
        self._edges += len(actions)
        parents = self._parents
        for label, _, successor in actions:
            if successor not in parents:
                parents[successor] = (state, label)
                following.append(successor)
        return ""

    def _result(self, why: str, depth: int, state: StateT | None, *, complete: bool = True) -> Explored:
        return Explored(
            why=why,
            trace=self._trace(state),
            states=len(self._parents),
            edges=self._edges,
            depth=depth,
            quiet=self._quiet,
            seconds=time.process_time() - self._began,
            complete=complete and not why,
        )

    def _trace(self, state: StateT | None) -> tuple[str, ...]:
        labels = []
        while state is not None and (step := self._parents[state]) is not None:
            state, label = step
            labels.append(label)
        return tuple(reversed(labels))
