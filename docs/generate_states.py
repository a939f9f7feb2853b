"""Writes docs/states.md from the table of transitions.

``python docs/generate_states.py`` writes it, ``--check`` says whether it is up to date (exit code 1 if not).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from nonbis.core.conditions import GUARDS
from nonbis.core.machine import NONE, ROWS, SITUATIONS, TRANSITIONS, Transition
from nonbis.core.messages import Kind

PAGE = Path(__file__).with_name("states.md")

MEANINGS: dict[str, tuple[str, str]] = {
    "none": ("Nobody has used this name.", "the client's: the first call claims it"),
    "accepted": (
        "The name is claimed and the handler works; nothing dangerous has begun. Payments skip this state.",
        "the owner's: start the effect, or end; if the owner is lost, anyone's",
    ),
    "started": (
        "It is durable that a send is about to begin, has begun, or has ended without our knowing yet.",
        "the owner's: report how the send ended; if it is late or lost, anyone's: say in doubt",
    ),
    "in_doubt": (
        "The effect may or may not have happened. Nothing is sent again unless the rail refuses repeats.",
        "the sweeper's, if the rail can be asked or dedupes; else a person's",
    ),
    "applied": ("The effect happened, once. Every later call gets the same answer.", "nobody's: final"),
    "failed(declined)": (
        "The rail refused: surely no effect. The next attempt has a new reference.",
        "the client's: it may try again, where policy allows it",
    ),
    "failed(not_sent)": (
        "No byte ever left us: surely no effect. The next attempt keeps the reference.",
        "the client's: it may try again",
    ),
    "failed(settled)": (
        "It was in doubt, and the rail or a person said, late enough to know, that there was no effect.",
        "the client's: it may try again, where policy allows it",
    ),
    "failed(rejected)": ("The handler itself refused before any effect.", "nobody's: final"),
    "failed(cancelled)": (
        "The name was cancelled before anything happened under it. It never runs.",
        "nobody's: final",
    ),
}

EVENTS: dict[Kind, str] = {
    Kind.CLAIM: "a call for a new name",
    Kind.CANCEL: "somebody cancels the name",
    Kind.START: "the handler reaches its effect boundary",
    Kind.TAKE_OVER: "a call comes for a name whose owner is lost",
    Kind.HANDLER_ENDED: "the handler raised, or the process stops, before the effect",
    Kind.HANDLER_RETURNED: "the handler returned without an effect",
    Kind.OWNER_LOST: "someone sees that the owner is lost",
    Kind.OWNER_FORGOT: "the owner finds a row of its own that it never sent (a commit that came late)",
    Kind.OVERDUE: "someone sees that the send is past its deadline and the effect's time-out",
    Kind.REPORT_APPLIED: "a send ended: the rail did it",
    Kind.REPORT_DECLINED: "a send ended: the rail refused",
    Kind.REPORT_NOT_SENT: "a send ended: no byte left",
    Kind.REPORT_UNKNOWN: "a send ended: nobody knows how",
    Kind.FOUND_APPLIED: "the rail was asked: it did it",
    Kind.FOUND_REFUSED: "the rail was asked: it refused",
    Kind.FOUND_NOTHING: "the rail was asked: it knows nothing of it",
    Kind.PERSON_APPLIED: "a person says that it happened",
    Kind.PERSON_FAILED: "a person says that it did not happen",
    Kind.RESEND: "the sweeper sends again under the same reference",
    Kind.RETRY: "a call comes for a name that has failed",
}

CONDITIONS: dict[str, str] = {
    "bounded": "the handler marks its effect boundary",
    "fenced": "a recovery fence is open",
    "mine": "I own it, and the row is as I left it",
    "by owner": "said by the owner itself",
    "owner not living": "the owner is lost or has ended",
    "only send": "the attempt had one send",
    "overdue": "past deadline and time-out",
    "same attempt": "of this attempt",
    "present send": "of the present send",
    "open send": "of a send whose fate is open",
    "no other send open": "no other send is open",
    "another send open": "another send is open",
    "refusals bind": "a refusal by this rail holds for the reference",
    "only send of its reference": "nothing else was ever sent under this reference",
    "a send open": "a send is not accounted for",
    "same rail or an unused reference": (
        "the row's own rail and account, or no earlier attempt bore this reference"
    ),
    "same rail": "the row's own rail and account",
    "as seen": "the row has not moved since it was looked at",
    "settle window passed": "asked, or acted, after the settle window",
    "forced": "by force, with a reason",
    "may resend": "the rail dedupes, for long enough, and resends are left",
    "may retry": "policy, time and number of attempts allow it",
    "receipt differs": "the receipt is for another transfer",
    "contradicted": "the row is contradicted",
    "not contradicted": "the row is not contradicted",
}

HEAD = """# States

<!-- Written by docs/generate_states.py from the table of transitions. Don't edit it by hand. -->

An **operation** is what stands behind one name. This page says in which state it can be, whose turn it then
is, and what leads from one state to the next. It is generated from `TRANSITIONS` in
`src/nonbis/core/machine.py`, the table by which the program itself goes, with
`python docs/generate_states.py`; a test compares the two.

Two questions decide everything here: *did the effect happen?* and *does anybody know?* `applied` means yes,
every kind of `failed` means surely not, and `in_doubt` means that nobody knows yet. A time-out, a lost answer
or a process that died while sending never leads to `failed`: it leads to `in_doubt`.

## What each state means

| state | what it means | whose turn it is |
|---|---|---|
"""

DIAGRAM_HEAD = """
## The picture

Each arrow stands for one or more rows of the table below. Left out is what happens to a contradicted
operation and under a recovery fence.

```mermaid
stateDiagram-v2
"""

TABLE_HEAD = """```

## What contradicted means

A report that can't be reconciled with the row is never dropped: it raises the flag `contradicted`, which puts
the operation first on the operator's list. A contradicted operation is not started, not tried again, not sent
again and not cancelled, and its clients hear that the outcome is unknown, unless it is applied. Only a person
takes the flag down.

## Every transition

For one state and event the first row whose conditions all hold applies; where none does, nothing is written.
Every write is guarded by the stamp of the row that it was decided from and draws a new one, so that of two
writers one wins.

| from | event | if | to | also | journal |
|---|---|---|---|---|---|
"""

TAIL = """
## The events

| event | what happened |
|---|---|
"""


def page() -> str:
    """The whole document."""
    parts = [HEAD, *_meanings(), DIAGRAM_HEAD, *_arrows(), TABLE_HEAD, *_table(), TAIL, *_events()]
    return "".join(parts)


def _meanings() -> Iterator[str]:
    for name in SITUATIONS:
        meaning, turn = MEANINGS[name]
        yield f"| {_shown(name)} | {meaning} | {turn} |\n"


def _shown(name: str) -> str:
    return "(new)" if name == NONE else f"`{name}`"


def _node(name: str) -> str:
    return "[*]" if name == NONE else name.replace("(", "_").removesuffix(")")


def _target(transition: Transition, source: str) -> str:
    if transition.state is None:
        return source
    return transition.state.value if transition.reason is None else f"failed({transition.reason.value})"


def _arrows() -> Iterator[str]:
    """One arrow for each pair of states, with every event that leads along it."""
    for name in SITUATIONS[1:]:
        if _node(name) != name:
            yield f'    state "{name}" as {_node(name)}\n'
    arrows: dict[tuple[str, str], list[str]] = {}
    for transition in filter(_is_pictured, TRANSITIONS):
        for source in transition.sources:
            events = arrows.setdefault((source, _target(transition, source)), [])
            if transition.event.value not in events:
                events.append(transition.event.value)
    for (source, target), events in arrows.items():
        yield f"    {_node(source)} --> {_node(target)} : {', '.join(events)}\n"


def _is_pictured(transition: Transition) -> bool:
    return transition.state is not None and not {"contradicted", "fenced"} & set(transition.guards)


def _table() -> Iterator[str]:
    for transition in TRANSITIONS:
        cells = (
            "any" if transition.sources == ROWS else "<br>".join(map(_shown, transition.sources)),
            transition.event.value,
            "<br>".join(CONDITIONS[guard] for guard in transition.guards),
            _led_to(transition),
            "<br>".join(transition.changes),
            "" if transition.journal is None else transition.journal.value,
        )
        yield f"| {' | '.join(cells)} |\n".replace("|  |", "| |").replace("|  |", "| |")


def _led_to(transition: Transition) -> str:
    if not transition.writes:
        return "no write"
    return "the same" if transition.state is None else _shown(_target(transition, ""))


def _events() -> Iterator[str]:
    for kind in Kind:
        yield f"| {kind.value} | {EVENTS[kind]} |\n"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    assert CONDITIONS.keys() == GUARDS.keys(), "a condition has no words"
    if arguments == ["--check"]:
        if PAGE.read_text(encoding="utf-8") == page():
            return 0
        print(
            "docs/states.md is not what the table says; run: python docs/generate_states.py", file=sys.stderr
        )
        return 1
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
