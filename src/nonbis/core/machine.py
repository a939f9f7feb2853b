"""The state machine: every transition that an operation can make, as data.

``TRANSITIONS`` is the promise in one table. Documentation, diagram, schema checks and the model are
generated from it or held against it. ``decide`` only looks things up: it takes a row and an event and
returns the row to write, guarded by the stamp of the row that it was decided from. For one situation
and event the first transition whose guards all hold applies; where none does, nothing is written.

Why these rules: an attempt may start only if every send before it surely had no effect, and only one
writer can win the write that starts it, because the stamp is fresh for every write. A time-out, a lost
machine, or a lost answer therefore leads to ``in_doubt`` and never to another send.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from nonbis.core.conditions import CHANGES, GUARDS, Change, Guard
from nonbis.core.ids import machine_of
from nonbis.core.messages import Decision, Event, JournalKind, Kind, Reason, Record, State

_replace = msgspec.structs.replace


class Transition(NamedTuple):
    """One row of the table.

    Attributes:
        sources: the situations it starts from, see ``situation``.
        event: what happened.
        guards: names in GUARDS; all must hold.
        state, reason: where it leads; state None keeps both.
        changes: names in CHANGES, applied in order.
        journal: what is written beside it.
        writes: False where only the journal learns of it.
    """

    sources: tuple[str, ...]
    event: Kind
    guards: tuple[str, ...]
    state: State | None
    reason: Reason | None = None
    changes: tuple[str, ...] = ()
    journal: JournalKind | None = None
    writes: bool = True

    @property
    def rule(self) -> str:
        """A readable name: event, guards and target."""
        condition = f" [{', '.join(self.guards)}]" if self.guards else ""
        target = "same" if self.state is None else self.state.value
        return f"{self.event.value}{condition} -> {target}" + (
            f"({self.reason.value})" if self.reason else ""
        )


NONE = "none"
ACCEPTED, STARTED, IN_DOUBT, APPLIED = "accepted", "started", "in_doubt", "applied"
DECLINED, NOT_SENT, SETTLED = "failed(declined)", "failed(not_sent)", "failed(settled)"
REJECTED, CANCELLED = "failed(rejected)", "failed(cancelled)"
RETRYABLE = (DECLINED, NOT_SENT, SETTLED)
FAILURES = (*RETRYABLE, REJECTED, CANCELLED)
ROWS = (ACCEPTED, STARTED, IN_DOUBT, APPLIED, *FAILURES)
SITUATIONS = (NONE, *ROWS)


def situation(record: Record | None) -> str:
    """The source of a transition: ``none``, a state, or ``failed(reason)``."""
    if record is None:
        return NONE
    if record.reason is None:
        return record.state.value
    return f"failed({record.reason.value})"


_T = Transition
_NO_EFFECT_OF_THIS_SEND = ("this send is closed",)
_REFUSED = ("all sends are closed", "one more refusal")
_UNKNOWN = JournalKind.IN_DOUBT

# fmt: off
TRANSITIONS: tuple[Transition, ...] = (
    # -- a new name
    _T((NONE,), Kind.CLAIM, ("fenced",), State.IN_DOUBT, None, ("first send",), _UNKNOWN),
    _T((NONE,), Kind.CLAIM, ("bounded",), State.ACCEPTED),
    _T((NONE,), Kind.CLAIM, (), State.STARTED, None, ("first send",)),
    _T((NONE,), Kind.CANCEL, (), State.FAILED, Reason.CANCELLED, (), JournalKind.CANCELLED),
    # -- accepted: the handler works before its effect boundary
    _T((ACCEPTED,), Kind.START, ("mine", "not contradicted"), State.STARTED, None, ("first send",)),
    _T((ACCEPTED,), Kind.TAKE_OVER, ("owner not living", "not contradicted"), State.ACCEPTED, None,
       ("owner is me",), JournalKind.TAKEN_OVER),
    _T((ACCEPTED,), Kind.OWNER_LOST, ("owner not living",), State.FAILED, Reason.NOT_SENT, (),
       JournalKind.ABANDONED),
    _T((ACCEPTED,), Kind.OWNER_FORGOT, ("by owner",), State.FAILED, Reason.NOT_SENT, (),
       JournalKind.ABANDONED),
    _T((ACCEPTED,), Kind.HANDLER_ENDED, ("mine",), State.FAILED, Reason.NOT_SENT),
    _T((ACCEPTED,), Kind.HANDLER_RETURNED, ("mine",), State.FAILED, Reason.REJECTED),
    _T((ACCEPTED, *RETRYABLE), Kind.CANCEL, ("not contradicted",), State.FAILED, Reason.CANCELLED, (),
       JournalKind.CANCELLED),
    # -- reports of a send: applied
    _T((STARTED,), Kind.REPORT_APPLIED, ("same attempt",), State.APPLIED),
    _T((IN_DOUBT,), Kind.REPORT_APPLIED, ("same attempt",), State.APPLIED, None, (), JournalKind.SETTLED),
    _T((SETTLED,), Kind.REPORT_APPLIED, ("same attempt",), State.APPLIED, None, (), JournalKind.CORRECTED),
    _T((APPLIED,), Kind.REPORT_APPLIED, ("same attempt", "receipt differs", "not contradicted"), None,
       None, ("flag raised",), JournalKind.CONTRADICTED),
    _T((APPLIED,), Kind.REPORT_APPLIED, ("same attempt",), None, None, (), None, False),
    _T(ROWS, Kind.REPORT_APPLIED, ("not contradicted",), None, None, ("flag raised",),
       JournalKind.CONTRADICTED),
    _T(ROWS, Kind.REPORT_APPLIED, (), None, None, (), JournalKind.CONTRADICTED, False),
    # -- reports of a send: declined
    _T((STARTED,), Kind.REPORT_DECLINED, ("present send", "open send", "no other send open"),
       State.FAILED, Reason.DECLINED, _REFUSED),
    _T((STARTED,), Kind.REPORT_DECLINED, ("present send", "open send", "refusals bind"), State.FAILED,
       Reason.DECLINED, _REFUSED),
    _T((STARTED,), Kind.REPORT_DECLINED, ("present send", "open send"), State.IN_DOUBT, None,
       _NO_EFFECT_OF_THIS_SEND, _UNKNOWN),
    _T((IN_DOUBT,), Kind.REPORT_DECLINED, ("open send", "no other send open"), State.FAILED,
       Reason.DECLINED, _REFUSED, JournalKind.SETTLED),
    _T((IN_DOUBT,), Kind.REPORT_DECLINED, ("open send", "refusals bind"), State.FAILED, Reason.DECLINED,
       _REFUSED, JournalKind.SETTLED),
    _T((IN_DOUBT,), Kind.REPORT_DECLINED, ("open send",), State.IN_DOUBT, None, _NO_EFFECT_OF_THIS_SEND,
       JournalKind.NOTED),
    # -- reports of a send: not sent
    _T((STARTED,), Kind.REPORT_NOT_SENT, ("present send", "open send", "no other send open"),
       State.FAILED, Reason.NOT_SENT, ("all sends are closed",)),
    _T((STARTED,), Kind.REPORT_NOT_SENT, ("present send", "open send"), State.IN_DOUBT, None,
       _NO_EFFECT_OF_THIS_SEND, _UNKNOWN),
    _T((IN_DOUBT,), Kind.REPORT_NOT_SENT, ("open send", "no other send open"), State.FAILED,
       Reason.NOT_SENT, ("all sends are closed",), JournalKind.SETTLED),
    _T((IN_DOUBT,), Kind.REPORT_NOT_SENT, ("open send",), State.IN_DOUBT, None, _NO_EFFECT_OF_THIS_SEND,
       JournalKind.NOTED),
    # -- reports of a send: no effect, though the row is applied
    *(
        _T((APPLIED,), kind, guards, None, None, changes, journal)
        for kind in (Kind.REPORT_DECLINED, Kind.REPORT_NOT_SENT)
        for guards, changes, journal in (
            (("open send", "another send open"), _NO_EFFECT_OF_THIS_SEND, JournalKind.NOTED),
            (
                ("open send", "no other send open", "not contradicted"),
                ("flag raised",),
                JournalKind.CONTRADICTED,
            ),
        )
    ),
    # -- reports of a send: unknown
    _T((STARTED,), Kind.REPORT_UNKNOWN, ("present send",), State.IN_DOUBT, None, (), _UNKNOWN),
    *(
        _T((STARTED,), kind, ("same attempt",), None, None, (), JournalKind.NOTED, False)
        for kind in (Kind.REPORT_DECLINED, Kind.REPORT_NOT_SENT, Kind.REPORT_UNKNOWN)
    ),
    # -- nobody will report
    _T((STARTED,), Kind.OVERDUE, ("overdue",), State.IN_DOUBT, None, (), _UNKNOWN),
    _T((STARTED,), Kind.OWNER_LOST, ("owner not living",), State.IN_DOUBT, None, (), _UNKNOWN),
    _T((STARTED,), Kind.OWNER_FORGOT, ("by owner", "only send"), State.FAILED, Reason.NOT_SENT,
       ("all sends are closed",), JournalKind.ABANDONED),
    _T((STARTED,), Kind.OWNER_FORGOT, ("by owner",), State.IN_DOUBT, None, (), _UNKNOWN),
    # -- the rail is asked
    _T((STARTED, IN_DOUBT), Kind.FOUND_APPLIED, ("same rail", "same attempt"), State.APPLIED, None, (),
       JournalKind.SETTLED),
    _T((SETTLED,), Kind.FOUND_APPLIED, ("same rail", "same attempt"), State.APPLIED, None, (),
       JournalKind.CORRECTED),
    _T((APPLIED,), Kind.FOUND_APPLIED, ("same rail", "same attempt", "receipt differs",
       "not contradicted"), None, None, ("flag raised",), JournalKind.CONTRADICTED),
    _T((APPLIED,), Kind.FOUND_APPLIED, ("same rail", "same attempt"), None, None, (), None, False),
    _T(ROWS, Kind.FOUND_APPLIED, ("same rail", "not contradicted"), None, None, ("flag raised",),
       JournalKind.CONTRADICTED),
    *(
        _T((IN_DOUBT,), Kind.FOUND_REFUSED, ("same rail", "as seen", condition), State.FAILED,
           Reason.DECLINED, _REFUSED, JournalKind.SETTLED)
        for condition in ("only send of its reference", "refusals bind", "settle window passed")
    ),
    _T((IN_DOUBT,), Kind.FOUND_NOTHING, ("same rail", "as seen", "settle window passed"), State.FAILED,
       Reason.SETTLED, ("all sends are closed",), JournalKind.SETTLED),
    # -- a person has said "failed": the sends stay open until the rail or a report accounts for them
    *(
        _T((SETTLED,), kind, ("same rail", "as seen", "a send open", "settle window passed"), None, None,
           ("all sends are closed",), JournalKind.NOTED)
        for kind in (Kind.FOUND_REFUSED, Kind.FOUND_NOTHING)
    ),
    *(
        _T((SETTLED,), kind, ("open send",), None, None, _NO_EFFECT_OF_THIS_SEND, JournalKind.NOTED)
        for kind in (Kind.REPORT_DECLINED, Kind.REPORT_NOT_SENT)
    ),
    _T((IN_DOUBT,), Kind.RESEND, ("same rail", "may resend", "not contradicted"), State.STARTED, None,
       ("one more send",), JournalKind.RESENT),
    # -- a person says
    _T((IN_DOUBT,), Kind.PERSON_APPLIED, ("as seen",), State.APPLIED, None, ("flag cleared",),
       JournalKind.SETTLED),
    *(
        _T((IN_DOUBT,), Kind.PERSON_FAILED, ("as seen", condition), State.FAILED, Reason.SETTLED,
           ("flag cleared",), JournalKind.SETTLED)
        for condition in ("settle window passed", "forced")
    ),
    _T((APPLIED, *FAILURES), Kind.PERSON_APPLIED, ("as seen", "contradicted"), State.APPLIED, None,
       ("all sends are closed", "flag cleared"), JournalKind.SETTLED),
    _T((APPLIED, *RETRYABLE), Kind.PERSON_FAILED, ("as seen", "contradicted"), State.FAILED,
       Reason.SETTLED, ("all sends are closed", "flag cleared"), JournalKind.SETTLED),
    _T((REJECTED, CANCELLED), Kind.PERSON_FAILED, ("as seen", "contradicted"), None, None,
       ("flag cleared",), JournalKind.SETTLED),
    # -- another attempt under the same name; a settlement binds it to the rail that may still act
    *(
        _T(sources, Kind.RETRY, (*guards, *rail), state, None, changes, journal)
        for sources, rail, also in (
            ((DECLINED,), (), ("rail at hand", "new reference")),
            ((NOT_SENT,), ("same rail or an unused reference",), ("rail at hand",)),
            ((SETTLED,), ("same rail",), ()),
        )
        for guards, state, changes, journal in (
            (("may retry", "not contradicted", "fenced"), State.IN_DOUBT,
             ("next attempt, first send",), _UNKNOWN),
            (("may retry", "not contradicted", "bounded"), State.ACCEPTED,
             ("next attempt, no send yet", *also), JournalKind.RETRIED),
            (("may retry", "not contradicted"), State.STARTED,
             ("next attempt, first send", *also), JournalKind.RETRIED),
        )
    ),
)
# fmt: on


class _Rule(NamedTuple):
    """A transition with its guards and changes looked up once."""

    transition: Transition
    guards: tuple[Guard, ...]
    changes: tuple[Change, ...]
    name: str


def _index(table: tuple[Transition, ...]) -> dict[tuple[str, Kind], tuple[_Rule, ...]]:
    index: dict[tuple[str, Kind], list[_Rule]] = {}
    for transition in table:
        rule = _Rule(
            transition,
            tuple(GUARDS[name] for name in transition.guards),
            tuple(CHANGES[name] for name in transition.changes),
            transition.rule,
        )
        for source in transition.sources:
            index.setdefault((source, transition.event), []).append(rule)
    return {key: tuple(rules) for key, rules in index.items()}


_INDEX = _index(TRANSITIONS)
_NOTHING = Decision(None, None, None, "")


def decide(record: Record | None, event: Event) -> Decision:
    """What to write about ``event``, given the row as it was read (None: there is no row).

    Pure: the same arguments give the same decision. The decision holds only under the stamp that
    ``record`` bears; a store that finds another one refuses it, and the caller decides anew.
    """
    rules = _INDEX.get((situation(record), event.kind), ())
    base = record if record is not None else _born(event)
    for rule in rules:
        for guard in rule.guards:
            if not guard(base, event):
                break
        else:
            return _carry_out(rule, record, base, event)
    return _NOTHING


def _born(event: Event) -> Record:
    """The row of a new name before its first transition: the id is the stamp of the claim."""
    return Record(
        digest=event.digest,
        id=event.stamp,
        stamp=event.stamp,
        owner=event.me,
        fingerprint=event.fingerprint,
        fingerprint_version=event.fingerprint_version,
        state=State.ACCEPTED,
        rail=event.rail,
        account=event.account,
        created=event.now,
    )


def _carry_out(rule: _Rule, record: Record | None, base: Record, event: Event) -> Decision:
    transition = rule.transition
    if not transition.writes:
        return Decision(None, None, transition.journal, rule.name)
    changes: dict[str, Any] = {"stamp": event.stamp, "changed": event.now}
    if transition.state is not None:
        changes["state"] = transition.state
        changes["reason"] = transition.reason
    for change in rule.changes:
        changes.update(change(base, event))
    expected = None if record is None else record.stamp
    return Decision(_replace(base, **changes), expected, transition.journal, rule.name)


def needs_attention(record: Record) -> bool:
    """Whether the row belongs into the side table that sweepers and operators read.

    In doubt, contradicted, owned by another machine than the one in its id, and every row not final
    with attempt or sends above 1: all that the range of open ids does not show. And every row that a
    person settled as failed while a send of it is not accounted for: the rail is asked once more.
    """
    if record.contradicted or record.state is State.IN_DOUBT:
        return True
    if record.reason is Reason.SETTLED:
        return record.open_sends != 0
    if record.state is State.APPLIED or record.state is State.FAILED:
        return False
    return record.attempt > 1 or record.sends > 1 or record.owner != machine_of(record.id)
