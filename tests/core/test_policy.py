"""Settings are checked when made; a process that promises less than agreed is found out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nonbis.core.policy import Agreement, Policy, RailFacts, SettingsUnsafe, joined, settle_seconds, weaker

POSITIVE = (
    "beat_seconds",
    "lost_after_seconds",
    "send_deadline_seconds",
    "effect_timeout_seconds",
    "attempts_max",
    "store_wait_seconds",
    "batch_max",
)
NOT_NEGATIVE = ("wait_seconds", "stop_seconds", "resends_max", "retry_within_seconds")


def test_the_defaults_are_those_of_the_contract() -> None:
    policy = Policy()
    assert (policy.beat_seconds, policy.lost_after_seconds) == (2, 10)
    assert (policy.send_deadline_seconds, policy.effect_timeout_seconds) == (30, 30)
    assert (policy.retry_within_seconds, policy.attempts_max, policy.retry_failed) == (86_400, 20, True)
    assert (policy.wait_seconds, policy.resends_max) == (0, 8)
    assert RailFacts(name="bank") == RailFacts(
        name="bank",
        account="main",
        settle_window_seconds=900,
        dedupes_for_seconds=None,
        binds_refusals=False,
        honours_deadline=False,
        finds=False,
    )


@pytest.mark.parametrize("name", POSITIVE)
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_what_must_be_more_than_nothing(name: str, value: Any) -> None:
    with pytest.raises(SettingsUnsafe, match=f"^{name} must be more than 0, not {value}$"):
        Policy(**{name: value})


def test_a_fraction_of_a_second_is_more_than_nothing() -> None:
    quick = Policy(
        beat_seconds=0.1, lost_after_seconds=0.3, send_deadline_seconds=0.2, store_wait_seconds=0.5
    )
    assert quick.send_deadline_seconds == 0.2
    assert RailFacts(name="bank", dedupes_for_seconds=0.5).dedupes_for_seconds == 0.5


def test_beats_are_no_coarser_than_the_grain_of_the_age() -> None:
    said = (
        "^beat_seconds must be at most 2: the store's age moves with the beats,"
        " and the windows allow for no coarser steps$"
    )
    with pytest.raises(SettingsUnsafe, match=said):
        Policy(beat_seconds=2.1)


@pytest.mark.parametrize("name", NOT_NEGATIVE)
@pytest.mark.parametrize("value", [-1, -0.001, math.nan])
def test_what_must_not_be_negative(name: str, value: Any) -> None:
    with pytest.raises(SettingsUnsafe, match=f"^{name} must not be negative, but is {value}$"):
        Policy(**{name: value})
    nothing: dict[str, Any] = {name: 0}
    assert getattr(Policy(**nothing), name) == 0


def test_living_machines_must_not_be_declared_lost() -> None:
    said = r"^lost_after_seconds \(3\.9\) must be at least two beats \(2\.0 each\), or living machines"
    with pytest.raises(SettingsUnsafe, match=said):
        Policy(lost_after_seconds=3.9)
    assert Policy(lost_after_seconds=4.0).lost_after_seconds == 4


def test_sends_must_fit_one_integer() -> None:
    with pytest.raises(SettingsUnsafe, match="^resends_max must be at most 60: "):
        Policy(resends_max=61)
    assert Policy(resends_max=60).resends_max == 60


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"name": ""}, "a rail has a name and an account"),
        ({"account": ""}, "a rail has a name and an account"),
        ({"settle_window_seconds": -1}, "settle_window must not be negative"),
        ({"settle_window_seconds": math.nan}, "settle_window must not be negative"),
        ({"dedupes_for_seconds": 0}, "dedupes_for must be more than 0"),
        ({"dedupes_for_seconds": -5}, "dedupes_for must be more than 0"),
        ({"dedupes_for_seconds": math.nan}, "dedupes_for must be more than 0"),
    ],
)
def test_facts_of_a_rail_that_no_one_can_mean(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsUnsafe, match=f"^{said}$"):
        RailFacts(**{"name": "bank", **facts})


def test_a_window_of_nothing_is_allowed_to_settle() -> None:
    assert RailFacts(name="bank", settle_window_seconds=0).settle_window_seconds == 0


def test_a_dedupe_window_must_outlast_deadline_and_settling() -> None:
    assert not RailFacts(name="bank").dedupes(30)
    assert not RailFacts(name="bank", dedupes_for_seconds=930).dedupes(30)
    assert RailFacts(name="bank", dedupes_for_seconds=930.5).dedupes(30)


# -- agreements ---------------------------------------------------------------------------------------------

BANK = RailFacts(
    name="bank",
    dedupes_for_seconds=86_400,
    binds_refusals=True,
    honours_deadline=True,
    finds=True,
)
OTHER = RailFacts(name="bank", account="second")


def agreed(*rails: RailFacts, deadline: float = 30) -> Agreement:
    """An agreement."""
    return Agreement(send_deadline_seconds=deadline, rails=rails)


def with_facts(**facts: Any) -> RailFacts:
    """BANK with other facts."""
    return RailFacts(**{**{name: getattr(BANK, name) for name in BANK.__struct_fields__}, **facts})


def test_the_same_is_not_weaker() -> None:
    assert weaker(agreed(BANK), agreed(BANK)) == []


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"settle_window_seconds": 60}, "settle_window 60 s is shorter than 900 s"),
        ({"dedupes_for_seconds": 3600}, "dedupes_for 3600 s is shorter than 86400 s"),
        ({"dedupes_for_seconds": None}, "dedupes_for 0 s is shorter than 86400 s"),
        ({"binds_refusals": False}, "it no longer says binds_refusals"),
        ({"honours_deadline": False}, "it no longer says honours_deadline"),
        ({"finds": False}, "it no longer says finds"),
    ],
)
def test_a_rail_said_to_do_less_is_weaker(facts: dict[str, Any], said: str) -> None:
    assert weaker(agreed(BANK), agreed(with_facts(**facts))) == [f"rail bank/main: {said}"]


def test_a_longer_send_deadline_is_weaker() -> None:
    said = "the send deadline is 60 s here and 30 s in the store"
    assert weaker(agreed(), agreed(deadline=60)) == [said]
    assert weaker(agreed(), agreed(deadline=29)) == []


def test_every_weakness_is_said() -> None:
    mine = agreed(with_facts(settle_window_seconds=1, dedupes_for_seconds=None, finds=False), deadline=31)
    assert len(weaker(agreed(BANK), mine)) == 4


def test_more_is_not_weaker_and_another_rail_is_none_of_it() -> None:
    assert weaker(agreed(RailFacts(name="bank")), agreed(with_facts(settle_window_seconds=901))) == []
    assert weaker(agreed(BANK), agreed(OTHER)) == []
    assert weaker(agreed(BANK), agreed(RailFacts(name="other"))) == []


def test_a_rail_that_begins_to_dedupe_is_not_weaker() -> None:
    assert (
        weaker(agreed(RailFacts(name="bank")), agreed(RailFacts(name="bank", dedupes_for_seconds=0.5))) == []
    )
    assert weaker(
        agreed(RailFacts(name="bank", dedupes_for_seconds=0.5)), agreed(RailFacts(name="bank"))
    ) == ["rail bank/main: dedupes_for 0 s is shorter than 0.5 s"]


def test_a_rail_is_known_by_name_and_account() -> None:
    both = agreed(BANK, OTHER)
    assert both.rail("bank", "main") is BANK
    assert both.rail("bank", "second") is OTHER
    assert both.rail("bank", "third") is None
    assert both.rail("other", "main") is None


def test_the_first_process_makes_the_agreement() -> None:
    assert joined(None, agreed(BANK)) == agreed(BANK)


def test_a_process_brings_its_own_facts_and_keeps_those_of_other_rails() -> None:
    mine = with_facts(settle_window_seconds=1_000)
    after = joined(agreed(OTHER, BANK), agreed(mine, deadline=20))
    assert after == agreed(mine, OTHER, deadline=30)


def test_a_shorter_deadline_shortens_nothing_for_others_unless_it_replaces() -> None:
    """Else the process with the longer one is settled against while its send may still begin."""
    for first, second in ((30.0, 1.0), (1.0, 30.0)):
        both = joined(agreed(BANK, deadline=first), agreed(BANK, deadline=second))
        assert both.send_deadline_seconds == 30
    replaced = joined(agreed(BANK, deadline=30), agreed(BANK, deadline=1), replaces=True)
    assert replaced.send_deadline_seconds == 1


def test_settling_counts_by_the_longest_that_anybody_may_take() -> None:
    short, long = with_facts(settle_window_seconds=1), with_facts(settle_window_seconds=900)
    name, account = BANK.name, BANK.account
    assert settle_seconds(agreed(long, deadline=30), agreed(short, deadline=1), name, account) == 930
    assert settle_seconds(agreed(short, deadline=1), agreed(long, deadline=30), name, account) == 930
    assert settle_seconds(agreed(long), agreed(), name, account) == 930
    assert settle_seconds(None, agreed(short), name, account) == 31
    assert settle_seconds(agreed(OTHER), agreed(), name, account) is None


def test_the_order_of_joining_does_not_matter() -> None:
    one = joined(joined(None, agreed(OTHER)), agreed(BANK))
    two = joined(joined(None, agreed(BANK)), agreed(OTHER))
    assert one == two == agreed(BANK, OTHER)
