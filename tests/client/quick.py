"""Time that doesn't pass: pauses that only write down how long they would have waited."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class QuickPause:
    slept: list[float] = field(default_factory=list)
    by_chance: float = 1.0
    wall: float = 1_800_000_000.0

    def chance(self) -> float:
        return self.by_chance

    def wall_seconds(self) -> float:
        return self.wall

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.wall += seconds


class QuickAsyncPause(QuickPause):
    async def sleep(self, seconds: float) -> None:  # type: ignore[override] - the same, to be awaited
        QuickPause.sleep(self, seconds)
