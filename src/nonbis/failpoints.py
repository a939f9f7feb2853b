"""Named crash points, inert unless ``NONBIS_FAILPOINT`` is set to ``name:action``.

Actions: ``kill`` (SIGKILL to this process), ``raise`` (FailpointReached) and ``hang`` (never go on).
Each fires once per process. They stand where the promise is decided, so that tests can put a crash
exactly there.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Final

VARIABLE: Final = "NONBIS_FAILPOINT"
NAMES: Final = {
    "claimed": "the state is durable, nothing is sent",
    "sent": "the rail has answered, nothing is recorded",
    "recorded": "the outcome is durable, the reply is not sent",
}
ACTIONS: Final = ("kill", "raise", "hang")


class FailpointReached(RuntimeError):
    """The action ``raise`` of a failpoint."""


class Failpoint:
    """The one crash point that is armed in this process, or none."""

    def __init__(self, setting: str | None) -> None:
        name, _, action = (setting or "").partition(":")
        if setting and (name not in NAMES or action not in ACTIONS):
            raise ValueError(
                f"{VARIABLE}={setting!r}: give NAME:ACTION with a name of {', '.join(NAMES)}"
                f" and an action of {', '.join(ACTIONS)}"
            )
        self.armed: str | None = name or None
        self._action = action

    async def reach(self, name: str) -> None:
        """Act if this point is the armed one."""
        if self.armed != name:
            return
        self.armed = None
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._action == "raise":
            raise FailpointReached(name)
        await asyncio.Event().wait()


def from_environment() -> Failpoint:
    """The failpoint that the environment asks for."""
    return Failpoint(os.environ.get(VARIABLE))
