from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonbis.core.policy import RailFacts
from nonbis.rails.urls import HttpRailUrl, SimulatedRailUrl, parse_duration, parse_rail_url

FULL = (
    "http://127.0.0.1:8001?find=yes&dedupes_for=24h&binds_refusals=yes"
    "&honours_deadline=yes&settle_window=15m&account=main&name=bank"
)


def test_every_member_is_read():
    assert parse_rail_url(FULL) == HttpRailUrl(
        "http://127.0.0.1:8001",
        RailFacts(
            name="bank",
            account="main",
            settle_window_seconds=900.0,
            dedupes_for_seconds=86_400.0,
            binds_refusals=True,
            honours_deadline=True,
            finds=True,
        ),
    )


@pytest.mark.parametrize(
    ("url", "base", "name"),
    [
        ("http://bank.example:8001", "http://bank.example:8001", "bank.example:8001"),
        ("http://bank.example:8001/?", "http://bank.example:8001", "bank.example:8001"),
        ("http://Bank.Example", "http://bank.example:80", "bank.example:80"),
        ("https://bank.example/v1/", "https://bank.example:443/v1", "bank.example:443"),
        ("HTTP://[::1]:8001", "http://[::1]:8001", "[::1]:8001"),
    ],
)
def test_told_nothing_it_assumes_the_worst(url, base, name):
    parsed = parse_rail_url(url)
    assert parsed == HttpRailUrl(base, RailFacts(name=name))
    facts = parsed.facts
    assert (facts.finds, facts.dedupes_for_seconds, facts.binds_refusals, facts.honours_deadline) == (
        False,
        None,
        False,
        False,
    )
    assert facts.settle_window_seconds == 900.0
    assert facts.account == "main"


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("simulated:", "nonbis-simulated.jsonl"),
        ("simulated:///ledger.jsonl", "ledger.jsonl"),
        ("simulated:////var/lib/ledger.jsonl", "/var/lib/ledger.jsonl"),
        ("simulated:///a%3Fb c.jsonl", "a?b c.jsonl"),
    ],
)
def test_the_simulated_rail_has_a_ledger_file(url, path):
    assert parse_rail_url(url) == SimulatedRailUrl(Path(path))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "must begin with"),
        ("simulated", "must begin with"),
        ("ftp://bank:21", "must begin with"),
        ("memory:", "must begin with"),
        ("simulated:ledger.jsonl", "simulated:///FILE"),
        ("simulated://ledger.jsonl", "simulated:///FILE"),
        ("simulated:///", "simulated:///FILE"),
        ("simulated:///a?find=yes", "without a query"),
        ("simulated:///a%00b", "simulated:///FILE"),
        ("http://", "no host"),
        ("http:bank", "no host"),
        ("http://:8001", "no host"),
        ("http://ba nk:8001", "blanks"),
        ("http://bänk:8001", "ASCII"),
        ("http://bank:0", "port"),
        ("http://bank:65536", "Port"),
        ("http://bank:x", "[Pp]ort"),
        ("http://user:secret@bank:8001", "user name"),
        ("http://bank:8001#x", "fragment"),
        ("http://bank:8001#", "fragment"),
        ("http://bank\n:8001", "printed"),
        ("http://bank:8001?find", "find=yes"),
        ("http://bank:8001?find=", "yes or no"),
        ("http://bank:8001?find=true", "yes or no"),
        ("http://bank:8001?find=YES", "yes or no"),
        ("http://bank:8001?finds=yes", "'finds' is not known"),
        ("http://bank:8001?find=yes&find=yes", "find twice"),
        ("http://bank:8001?find=no&find=yes", "find twice"),
        ("http://bank:8001?&find=yes", "find=yes"),
        ("http://bank:8001?dedupes_for=yes", "dedupes_for: a duration"),
        ("http://bank:8001?dedupes_for=0s", "dedupes_for"),
        ("http://bank:8001?dedupes_for=24", "duration"),
        ("http://bank:8001?dedupes_for=-1h", "duration"),
        ("http://bank:8001?dedupes_for=1.5h", "duration"),
        ("http://bank:8001?settle_window=1w", "duration"),
        ("http://bank:8001?settle_window=inf", "duration"),
        ("http://bank:8001?name=", "name must be"),
        ("http://bank:8001?account=a+b", "account must be"),
        ("http://bank:8001?name=%ff", "query"),
    ],
)
def test_what_is_not_understood_is_refused_with_a_reason(url, told):
    with pytest.raises(ValueError, match=told) as caught:
        parse_rail_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("30s", 30.0), ("15m", 900.0), ("24h", 86_400.0), ("7d", 604_800.0), ("0s", 0.0)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "15", "15 m", "15M", "1h30m", "+1s", "1e3s", "١s", "15m\n"])
def test_no_durations(text):
    with pytest.raises(ValueError):
        parse_duration(text)


@given(st.text(max_size=40))
def test_no_text_does_anything_but_parse_or_be_refused(text):
    for url in (text, f"http://{text}", f"http://bank:8001?{text}", f"simulated:///{text}"):
        try:
            parsed = parse_rail_url(url)
        except ValueError:
            continue
        assert isinstance(parsed, HttpRailUrl | SimulatedRailUrl)


WORDS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=30)


@given(
    finds=st.booleans(),
    binds=st.booleans(),
    honours=st.booleans(),
    dedupe_hours=st.none() | st.integers(1, 10_000),
    window_ms=st.integers(0, 10**8),
    name=WORDS,
    account=WORDS,
)
def test_facts_survive_the_way_through_a_url(finds, binds, honours, dedupe_hours, window_ms, name, account):
    yes = {True: "yes", False: "no"}
    members = {
        "find": yes[finds],
        "binds_refusals": yes[binds],
        "honours_deadline": yes[honours],
        "settle_window": f"{window_ms}ms",
        "name": quote(name, safe=""),
        "account": quote(account, safe=""),
    }
    if dedupe_hours is not None:
        members["dedupes_for"] = f"{dedupe_hours}h"
    query = "&".join(f"{member}={value}" for member, value in members.items())
    facts = parse_rail_url(f"http://bank:8001?{query}").facts
    assert facts == RailFacts(
        name=name,
        account=account,
        settle_window_seconds=window_ms * 0.001,
        dedupes_for_seconds=None if dedupe_hours is None else dedupe_hours * 3600.0,
        binds_refusals=binds,
        honours_deadline=honours,
        finds=finds,
    )
