"""Random courses of answers against an oracle that was written from the promise and not from the code.

Each event has a truth of its own: what it proves about the money. The oracle looks at the truths only.
"""

from __future__ import annotations

from typing import NamedTuple

import httpx2
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nonbis.client import Backoff, Client, Refused
from nonbis.client.course import judge
from nonbis.client.verdict import Meaning
from tests.client import scripted
from tests.client.quick import QuickPause


class Event(NamedTuple):
    """One try.

    says: what the payment's state surely is when it is answered: "applied", "failed", "doubt", or "".
    leaves: whether this post, by itself, may have had or may still have an effect afterwards.
    stops: whether nothing may be posted after it.
    """

    what: scripted.Say | type[Exception]
    says: str
    leaves: bool
    left: bool
    stops: bool


def answered(action, says, *, leaves, stops):
    return Event(action, says, leaves, True, stops)


def broken(error, *, left):
    return Event(error, "", left, left, stops=False)


EVENTS = {
    "applied": answered(scripted.APPLIED, "applied", leaves=False, stops=True),
    "declined": answered(scripted.DECLINED, "failed", leaves=False, stops=True),
    "rail": answered(scripted.RAIL_UNREACHABLE, "failed", leaves=False, stops=False),
    "cancelled": answered(scripted.CANCELLED, "failed", leaves=False, stops=True),
    "doubt": answered(scripted.IN_DOUBT, "doubt", leaves=True, stops=True),
    "doubt, asked": answered(scripted.IN_DOUBT_ASKED, "doubt", leaves=True, stops=False),
    "expired": answered(scripted.EXPIRED, "doubt", leaves=True, stops=True),
    "running": answered(scripted.IN_PROGRESS, "", leaves=True, stops=False),
    "store": answered(scripted.STORE_UNAVAILABLE, "", leaves=False, stops=False),
    "simulated": answered(scripted.SIMULATED, "", leaves=True, stops=False),
    "proxy": answered(scripted.PROXY_502, "", leaves=True, stops=False),
    "portal": answered(scripted.say(200, b"<html>"), "", leaves=True, stops=False),
    "redirect": answered(scripted.say(302, Location="/"), "", leaves=True, stops=True),
    "reused": answered(scripted.NAME_REUSED, "", leaves=False, stops=True),
    "unauthorised": answered(scripted.UNAUTHORISED, "", leaves=False, stops=True),
    "refused connection": broken(httpx2.ConnectError, left=False),
    "connect time-out": broken(httpx2.ConnectTimeout, left=False),
    "pool time-out": broken(httpx2.PoolTimeout, left=False),
    "read time-out": broken(httpx2.ReadTimeout, left=True),
    "write time-out": broken(httpx2.WriteTimeout, left=True),
    "read error": broken(httpx2.ReadError, left=True),
    "write error": broken(httpx2.WriteError, left=True),
    "protocol": broken(httpx2.RemoteProtocolError, left=True),
    "odd": broken(ZeroDivisionError, left=True),
}
courses = st.lists(st.sampled_from(sorted(EVENTS)), min_size=1, max_size=8)


def oracle(events):
    """What may be said, from the truths alone: the set of honest verdicts."""
    if any(event.says == "applied" for event in events):
        return {"applied"}
    stated = [position for position, event in enumerate(events) if event.says]
    last = stated[-1] if stated else -1
    if stated and events[last].says == "failed":
        after = events[last + 1 :]
        return {"gave_up"} if any(event.leaves for event in after) else {"failed"}
    if stated:
        return {"in_doubt"}
    if not any(event.left for event in events):
        return {"not_reached"}
    if events[-1].stops and not any(event.leaves for event in events):
        return {"refused"}
    return {"gave_up"}


def played(names, *, tries=6):
    """The verdict of the real client over these events, and how many of them it used."""
    used = []

    def handle(request):
        event = EVENTS[names[len(used)]]
        used.append(event)
        if isinstance(event.what, scripted.Say):
            head, _, body = event.what.raw.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = [tuple(line.split(": ", 1)) for line in lines[1:]]
            return httpx2.Response(int(lines[0].split()[1]), headers=headers, content=body)
        raise event.what("scripted")

    transport = httpx2.MockTransport(handle)
    with Client(transport=transport, pause=QuickPause(), backoff=Backoff(tries=tries)) as client:
        try:
            state = client.pay(destination="alice", amount=1250).state.value
        except Refused:
            state = "refused"
    return state, used


@settings(max_examples=600, deadline=None)
@given(names=courses)
@example(names=["read time-out", "refused connection"])
@example(names=["read time-out", "unauthorised"])
@example(names=["rail", "read time-out", "refused connection"])
@example(names=["doubt, asked", "read time-out", "unauthorised"])
@example(names=["doubt, asked", "rail", "reused"])
def test_the_verdict_is_the_honest_one(names):
    state, used = played(names, tries=len(names))
    assert {state} == oracle(used)


@settings(max_examples=200, deadline=None)
@given(names=courses)
def test_it_goes_on_exactly_until_something_stops_it(names):
    _, used = played(names, tries=len(names))
    assert all(not event.stops for event in used[:-1])
    assert used[-1].stops or len(used) == len(names)


@pytest.mark.parametrize("tries", [1, 2, 6])
def test_never_more_tries_than_allowed(tries):
    state, used = played(["read time-out"] * 9, tries=tries)
    assert (state, len(used)) == ("gave_up", tries)


PLANTED = {
    "a time-out is called failed": lambda seen: (
        "failed" if seen[-1] is Meaning.UNKNOWN else judge(seen) or "refused"
    ),
    "only the last try counts": lambda seen: judge(seen[-1:]) or "refused",
    "only the first try counts": lambda seen: judge(seen[:1]) or "refused",
    "failed stands for good": lambda seen: (
        "failed" if Meaning.FAILED in seen and Meaning.APPLIED not in seen else judge(seen) or "refused"
    ),
    "a refusal takes every doubt back": lambda seen: (
        "refused" if seen[-1] is Meaning.REFUSED else judge(seen) or "refused"
    ),
    "zero bytes received is not processed": lambda seen: (
        judge([Meaning.NOT_SENT if one is Meaning.UNKNOWN else one for one in seen]) or "refused"
    ),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_each_planted_mistake_is_caught(mistake, monkeypatch):
    from nonbis.client import course
    from nonbis.client.verdict import VerdictState

    def wrong(seen):
        state = PLANTED[mistake](seen)
        return None if state == "refused" else VerdictState(state)

    monkeypatch.setattr(course, "judge", wrong)
    pairs = [
        [first, second, third]
        for first in EVENTS
        for second in EVENTS
        for third in ("read time-out", "unauthorised", "refused connection")
    ]
    results = (played(names, tries=len(names)) for names in pairs)
    assert any({state} != oracle(used) for state, used in results)
