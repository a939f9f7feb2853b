"""The client: pays once under one name, tries again safely, and says honestly what happened.

Its parts are loaded when they are first asked for, so that the command line works without the extra
``client`` for everything but ``nonbis pay``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nonbis.client.backoff import Backoff
    from nonbis.client.client import AsyncClient, Client
    from nonbis.client.intent import Intent, Outbox, new_name
    from nonbis.client.verdict import Payment, Problem, Refused, Try, Verdict, VerdictState

__all__ = [
    "AsyncClient",
    "Backoff",
    "Client",
    "Intent",
    "Outbox",
    "Payment",
    "Problem",
    "Refused",
    "Try",
    "Verdict",
    "VerdictState",
    "new_name",
]

_HOMES = {
    "AsyncClient": "client",
    "Backoff": "backoff",
    "Client": "client",
    "Intent": "intent",
    "Outbox": "intent",
    "Payment": "verdict",
    "Problem": "verdict",
    "Refused": "verdict",
    "Try": "verdict",
    "Verdict": "verdict",
    "VerdictState": "verdict",
    "new_name": "intent",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
