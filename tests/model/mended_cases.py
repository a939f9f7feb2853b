"""The runs of the true table: small ones for every push, large ones for ``make long``."""

from __future__ import annotations

from typing import Any

from tests.model.cases import KEPT_UNDER_FORCE, Mended
from tests.model.world import Budget, Setup

_B = Budget


def _mended(name: str, budget: Budget, *, shows: tuple[str, ...] = ("",), **facts: Any) -> Mended:
    return Mended(name=name, shows=shows, setup=Setup(budget=budget, **facts))


SMALL = (
    _mended("direct", _B(crashes=1, false_losses=1, lost_answers=1, not_sent=1)),
    _mended("direct, declines", _B(crashes=1, false_losses=1, lost_answers=1, declines=1)),
    _mended("accepted first", _B(crashes=1, false_losses=1, lost_answers=1, handler_ends=1), bounded=True),
    _mended("accepted first, retried", _B(false_losses=1, not_sent=1, declines=1, cancels=1), bounded=True),
    _mended("calls given up", _B(lost_answers=2, late_commits=1, give_ups=1, declines=1)),
    _mended("calls given up, accepted first", _B(lost_answers=2, late_commits=1, give_ups=1), bounded=True),
    _mended(
        "resends given up",
        _B(lost_answers=1, late_commits=1, give_ups=1, resends=1, lost_messages=1),
        dedupes=True,
        binds_refusals=True,
    ),
    _mended("competing retries", _B(calls=3, lost_answers=1, declines=1)),
    _mended("cancel by name", _B(crashes=1, false_losses=1, declines=1, cancels=1)),
    _mended(
        "effect never returns", _B(crashes=1, false_losses=1, declines=1, lost_messages=1), never_returns=True
    ),
    _mended("overdue while the owner works", _B(false_losses=1, not_sent=1, declines=1), overdue=True),
    _mended(
        "rail dedupes, resend",
        _B(false_losses=1, declines=1, not_sent=1, resends=1),
        dedupes=True,
        binds_refusals=True,
    ),
    _mended(
        "rail dedupes, refusals not bound",
        _B(false_losses=1, declines=1, resends=1, lost_messages=1),
        dedupes=True,
    ),
    _mended(
        "rail can be asked",
        _B(crashes=1, false_losses=1, declines=1, lost_messages=1),
        finds=True,
        binds_refusals=False,
    ),
    _mended(
        "rail can be asked, refusals bound",
        _B(false_losses=1, declines=2, lost_messages=1),
        finds=True,
        binds_refusals=True,
    ),
    _mended("refusals bound", _B(crashes=1, false_losses=1, declines=2), binds_refusals=True),
    _mended(
        "rail dedupes and can be asked",
        _B(declines=1, resends=1, lost_messages=1),
        dedupes=True,
        binds_refusals=True,
        finds=True,
    ),
    _mended(
        "the same, refusals not bound",
        _B(false_losses=1, declines=1, resends=1),
        dedupes=True,
        finds=True,
    ),
    _mended(
        "answers kept in hand",
        _B(calls=2, declines=1, resends=1, questions=1, lost_messages=1),
        dedupes=True,
        binds_refusals=True,
        finds=True,
    ),
    _mended(
        "force, rail dedupes",
        _B(crashes=1, false_losses=1, declines=1, forces=1),
        dedupes=True,
        binds_refusals=True,
    ),
    _mended(
        "force, rail dedupes and can be asked",
        _B(false_losses=1, declines=1, forces=1),
        dedupes=True,
        binds_refusals=True,
        finds=True,
    ),
    _mended("force, contradicted", _B(calls=3, false_losses=1, not_sent=1, forces=1), shows=KEPT_UNDER_FORCE),
    _mended(
        "pause after the gate, rail dedupes",
        _B(crashes=1, false_losses=1, declines=1),
        dedupes=True,
        binds_refusals=True,
        pause_after_gate=True,
    ),
    _mended(
        "pause after the gate, rail honours the deadline",
        _B(crashes=1, false_losses=1, declines=1),
        honours_deadline=True,
        pause_after_gate=True,
    ),
)
"""On every push. Each is exhaustive."""

_ALL = {"crashes": 1, "false_losses": 1, "lost_answers": 1}
_LARGE: tuple[tuple[str, Budget, dict[str, Any]], ...] = (
    ("direct, 2 calls", _B(**_ALL, late_commits=1, declines=1, not_sent=1), {}),
    ("direct, 3 calls", _B(calls=3, **_ALL, declines=1, not_sent=1, lost_messages=1), {}),
    (
        "direct, 3 calls, late commit",
        _B(calls=3, **_ALL, late_commits=1, declines=1, not_sent=1, lost_messages=1),
        {},
    ),
    ("accepted first, 3 calls", _B(calls=3, **_ALL, late_commits=1), {"bounded": True}),
    (
        "accepted first, 2 calls, all faults",
        _B(**_ALL, late_commits=1, declines=1, not_sent=1, handler_ends=1),
        {"bounded": True},
    ),
    (
        "accepted first, 2 false losses, 2 lost answers",
        _B(crashes=1, false_losses=2, lost_answers=2),
        {"bounded": True},
    ),
    (
        "calls given up, false loss",
        _B(false_losses=1, lost_answers=2, late_commits=1, give_ups=1, declines=1),
        {},
    ),
    ("competing retries, 2 lost answers", _B(calls=3, false_losses=1, lost_answers=2, declines=1), {}),
    ("rail dedupes, resend", _B(**_ALL, declines=1, resends=1), {"dedupes": True, "binds_refusals": True}),
    (
        "rail dedupes, refusals not bound",
        _B(**_ALL, declines=1, resends=1, lost_messages=1),
        {"dedupes": True},
    ),
    (
        "rail dedupes and can be asked",
        _B(crashes=1, false_losses=1, declines=1, resends=1, lost_messages=1),
        {"dedupes": True, "binds_refusals": True, "finds": True},
    ),
    (
        "rail dedupes, can be asked, refusals not bound",
        _B(false_losses=1, declines=2, resends=2),
        {"dedupes": True, "finds": True},
    ),
    (
        "answers kept in hand",
        _B(false_losses=1, declines=1, resends=1, questions=1, lost_messages=1),
        {"dedupes": True, "finds": True},
    ),
    ("rail can be asked, 3 calls", _B(calls=3, **_ALL, declines=1, lost_messages=1), {"finds": True}),
    (
        "rail can be asked, 3 calls, refusals bound",
        _B(calls=3, **_ALL, declines=1, lost_messages=1),
        {"finds": True, "binds_refusals": True},
    ),
    ("force, rail dedupes", _B(**_ALL, declines=1, forces=1), {"dedupes": True, "binds_refusals": True}),
    (
        "force, rail dedupes and can be asked, resend",
        _B(false_losses=1, declines=1, forces=1, resends=1),
        {"dedupes": True, "binds_refusals": True, "finds": True},
    ),
    (
        "pause after the gate, 3 calls, rail dedupes",
        _B(calls=3, crashes=1, false_losses=1),
        {"dedupes": True, "binds_refusals": True, "pause_after_gate": True},
    ),
    (
        "pause after the gate, resend, rail dedupes",
        _B(false_losses=1, declines=1, resends=1),
        {"dedupes": True, "binds_refusals": True, "pause_after_gate": True},
    ),
    (
        "pause after the gate, 3 calls, rail honours the deadline",
        _B(calls=3, crashes=1, false_losses=1, declines=1),
        {"honours_deadline": True, "pause_after_gate": True},
    ),
    (
        "overdue, resend",
        _B(false_losses=1, declines=1, not_sent=1, resends=1),
        {"dedupes": True, "binds_refusals": True, "overdue": True},
    ),
    ("cancel by name, lost answers", _B(**_ALL, declines=1, cancels=1), {}),
    ("3 machines, 3 calls, 2 crashes", _B(calls=3, crashes=2, lost_answers=1, declines=1), {"machines": 3}),
)
LARGE = tuple(
    Mended(name=name, setup=Setup(budget=budget, **facts), states_max=3_000_000, seconds_max=400.0)
    for name, budget, facts in _LARGE
) + (
    Mended(
        name="force, contradicted, accepted first",
        shows=KEPT_UNDER_FORCE,
        setup=Setup(bounded=True, budget=_B(calls=3, crashes=1, false_losses=1, forces=1)),
        states_max=3_000_000,
        seconds_max=400.0,
    ),
)
"""In make long. Each is exhaustive unless it meets one of its two bounds."""
