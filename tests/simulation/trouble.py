"""How much of which trouble a run of the swarm has."""

from __future__ import annotations

import random

import msgspec

from nonbis.core.policy import Policy

POLICY = Policy(
    send_deadline_seconds=10.0,
    effect_timeout_seconds=8.0,
    store_wait_seconds=3.0,
    attempts_max=6,
    resends_max=3,
    stop_seconds=5.0,
)
SETTLE_WINDOW_SECONDS = 16.0
CLOCK_JUMP_SECONDS = 5000.0


class Broken(AssertionError):
    """A promise was broken."""


class Odds(msgspec.Struct, frozen=True):
    """How likely each kind of trouble is in one run."""

    store_lost: float
    store_late: float
    store_away: float
    rail_declines: float
    rail_not_sent: float
    rail_lost: float
    rail_slow: float
    rail_bug: float
    rail_hangs: float
    pauses: float
    crashes: float
    outages: float
    clock_jumps: float
    dedupes: bool
    finds: bool
    binds_refusals: bool
    engines: int
    names: int
    calls: int
    think_seconds: float
    pause_seconds: float

    @classmethod
    def drawn(cls, chance: random.Random) -> Odds:
        def some(largest: float) -> float:
            return chance.uniform(0, largest) if chance.random() < 0.6 else 0.0

        return cls(
            store_lost=some(0.3),
            store_late=some(0.2),
            store_away=some(0.2),
            rail_declines=some(0.7),
            rail_not_sent=some(0.7),
            rail_lost=some(0.7),
            rail_slow=some(0.7),
            rail_bug=some(0.5),
            rail_hangs=some(0.2),
            pauses=some(0.8),
            crashes=some(0.6),
            outages=some(0.4),
            clock_jumps=some(0.4),
            dedupes=chance.random() < 0.5,
            finds=chance.random() < 0.5,
            binds_refusals=chance.random() < 0.5,
            engines=chance.randint(2, 3),
            names=chance.randint(1, 4),
            calls=chance.choice((3, 5, 12)),
            think_seconds=chance.choice((0.1, 1.0, 3.0)),
            pause_seconds=chance.choice((5, 20, 60)),
        )
