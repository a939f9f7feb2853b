"""Words for people: whose turn an operation is, why something is in its journal, how long a time is."""

from __future__ import annotations

import re
from typing import Final

from nonbis.core.messages import Kind
from nonbis.upkeep.queries import Detail, JournalLine

_UNITS: Final = (
    ("years", 365 * 86_400),
    ("days", 86_400),
    ("h", 3600),
    ("min", 60),
)
_BY_ITSELF: Final = {
    "asks": "the service asks the rail by itself, while it runs with this rail",
    "resends": "the service sends it again by itself under the same reference, while it runs with this rail",
}
HAPPENED: Final = {
    Kind.CLAIM: "the name was claimed",
    Kind.CANCEL: "the name was cancelled",
    Kind.START: "the effect was about to begin",
    Kind.TAKE_OVER: "another machine took it over",
    Kind.HANDLER_ENDED: "its handler ended before the effect",
    Kind.HANDLER_RETURNED: "its handler returned without an effect",
    Kind.OWNER_LOST: "its machine is not living",
    Kind.OWNER_FORGOT: "its process does not know it",
    Kind.OVERDUE: "nobody has reported in time",
    Kind.REPORT_APPLIED: "the rail confirmed it",
    Kind.REPORT_DECLINED: "the rail refused it",
    Kind.REPORT_NOT_SENT: "it was not sent",
    Kind.REPORT_UNKNOWN: "the send ended without a clear answer",
    Kind.FOUND_APPLIED: "the rail was asked and has it",
    Kind.FOUND_REFUSED: "the rail was asked and has refused it",
    Kind.FOUND_NOTHING: "the rail was asked and does not have it",
    Kind.PERSON_APPLIED: "somebody said that it is applied",
    Kind.PERSON_FAILED: "somebody said that it failed",
    Kind.RESEND: "it was sent again under the same reference",
    Kind.RETRY: "another attempt began",
}
"""What each event is to a person who reads the journal."""
_CLASS: Final = re.compile(r"(?:^|(?<=: ))([A-Z]\w*[a-z0-9][A-Z]\w*): ?(?=(.?))", re.DOTALL)
"""How programs write down what was raised: the class, then what it says, which may be nothing."""


def duration(seconds: float) -> str:
    """A time for people, in the largest unit of which it is at least two: ``15 min``, ``100 years``."""
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(seconds, 1):g} s"


def moment(text: str | None) -> str:
    """An RFC 3339 text for people: to the second, in UTC."""
    return "-" if text is None else f"{text[:10]} {text[11:19]}Z"


# -- whose turn it is ----------------------------------------------------------------------------------


def whose_turn(row: Detail, now: str) -> str:
    """What comes next, or nothing where nothing does. ``now`` is an RFC 3339 text in UTC."""
    dead = row.state == "started" and row.owner_state != "living"
    if row.state == "in_doubt" or row.contradicted or dead:
        return _to_be_settled(row, now)
    if row.state == "started":
        return f"machine {row.owner} goes on"
    if row.state == "accepted":
        living = row.owner_state == "living"
        return f"machine {row.owner} goes on" if living else "the service, or a retry, ends it as not sent"
    if row.by_itself is not None:
        return f"the service asks the rail once more after {moment(row.settle_after)}, or before a retry"
    return ""


def _to_be_settled(row: Detail, now: str) -> str:
    early = row.settle_after is not None and now < row.settle_after
    after = moment(row.settle_after)
    waiting = "" if row.by_itself is None else _BY_ITSELF[row.by_itself]
    if waiting and early:
        return f"{waiting}: there is nothing to do before {after}"
    look = "look for the reference on the rail's side, then:"
    command = f"nonbis ops resolve {row.id} --as applied|failed --because TEXT --by WHO --stamp {row.stamp}"
    start = f"{waiting}; if it stays in doubt, " if waiting else ""
    return f"{start}{look} {command}{_needs_force(row, early)}"


def _needs_force(row: Detail, early: bool) -> str:
    """When ``--as failed`` is refused without ``--force``; a contradicted final row waits for none."""
    if row.state not in ("started", "in_doubt"):
        return ""
    if row.settle_after is None:
        return " (--as failed needs --force: no settle window is known)"
    return f" (--as failed before {moment(row.settle_after)} needs --force)" if early else ""


# -- the journal ---------------------------------------------------------------------------------------


def why(line: JournalLine) -> str:
    """Why a line is in the journal: a person's words as they are, a program's without its class names."""
    because = line.because or ""
    if because and (line.who is not None or _CLASS.match(because) is None):
        return because
    said = _CLASS.sub(lambda raised: "" if raised[2] else _spelled(raised[1]), because)
    return ": ".join(part for part in (_happened(line.rule), said) if part)


def _happened(rule: str) -> str:
    """The event of a rule such as ``report unknown [present send] -> in_doubt``."""
    event = re.split(r" \[| -> ", rule, maxsplit=1)[0]
    return next((words for kind, words in HAPPENED.items() if kind.value == event), event)


def _spelled(name: str) -> str:
    """``ReadTimeoutError`` as words: read timeout."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", re.sub(r"(Error|Exception)$", "", name)).lower()
