"""The waits between tries, and Retry-After in all its spellings."""

from __future__ import annotations

import asyncio
import email.utils
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonbis.client.backoff import AsyncSystemPause, Backoff, SystemPause, retry_after_seconds

NOW = 1_800_000_000.0
chances = st.floats(0, 1, exclude_max=True)


def date(seconds: float) -> str:
    return email.utils.formatdate(seconds, usegmt=True)


def test_the_defaults_are_the_contract():
    backoff = Backoff()
    assert backoff.tries == 6
    longest = [backoff.wait_seconds(made, 0.9999999999, None) for made in range(1, 8)]
    assert longest == pytest.approx([0.5, 1, 2, 4, 8, 8, 8])
    assert [backoff.wait_seconds(made, 0.0, None) for made in (1, 5, 9)] == [0.25, 4, 4]


@given(made=st.integers(1, 100), chance=chances)
def test_jitter_keeps_at_least_half_and_never_more_than_the_doubled_wait(made, chance):
    whole = min(8.0, 0.5 * 2 ** (made - 1))
    assert whole / 2 <= Backoff().wait_seconds(made, chance, None) <= whole


@given(made=st.integers(1, 100), chance=chances, asked=st.floats(0, 1e15))
def test_what_the_service_asks_for_is_kept_up_to_the_cap(made, chance, asked):
    wait = Backoff(retry_after_longest_seconds=30).wait_seconds(made, chance, asked)
    assert wait >= min(asked, 30)
    assert wait <= max(30, 8)
    assert wait >= Backoff().wait_seconds(made, chance, None)


def test_chance_spreads_the_waits():
    waits = {Backoff().wait_seconds(3, chance / 10, None) for chance in range(10)}
    assert len(waits) == 10


@pytest.mark.parametrize(
    "settings",
    [
        {"tries": 0},
        {"tries": 101},
        {"first_seconds": -1.0},
        {"longest_seconds": float("nan")},
        {"retry_after_longest_seconds": float("inf")},
    ],
)
def test_settings_without_sense_are_refused(settings):
    with pytest.raises(ValueError):
        Backoff(**settings)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 7 ", 7),
        ("007", 7),
        ("9" * 5000, 1e12),
        (date(NOW + 90), 90),
        (date(NOW - 90), 0),
        ("Friday, 15-Jan-27 08:01:30 GMT", 90),
        ("-1", None),
        ("1.5", None),
        ("+3", None),
        ("\u0663", None),
        ("soon", None),
        ("1, 2", None),
        ("", None),
        (None, None),
        ("Mon, 99 Foo 2026 00:00:00 GMT", None),
    ],
)
def test_retry_after(value, seconds):
    assert retry_after_seconds(value, None, NOW) == seconds


def test_a_date_is_counted_by_the_services_own_clock():
    assert retry_after_seconds(date(NOW + 5000 + 4), date(NOW + 5000), NOW) == 4
    assert retry_after_seconds(date(NOW + 4), "no date", NOW) == 4


@given(value=st.text(max_size=40), sent=st.text(max_size=40))
def test_no_text_breaks_the_reader(value, sent):
    seconds = retry_after_seconds(value, sent, NOW)
    assert seconds is None or seconds >= 0


def test_the_real_pause_waits_and_its_chance_differs():
    pause = SystemPause()
    begun = time.monotonic()
    pause.sleep(0.02)
    asyncio.run(AsyncSystemPause().sleep(0.02))
    assert time.monotonic() - begun >= 0.04
    drawn = {pause.chance() for _ in range(20)}
    assert len(drawn) == 20
    assert all(0 <= chance < 1 for chance in drawn)
    assert abs(pause.wall_seconds() - time.time()) < 5
