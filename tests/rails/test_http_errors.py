from __future__ import annotations

import gc

import httpcore2
import httpx2
import pytest

from nonbis.errors import NotSent, OutcomeUnknown
from nonbis.rails.http_errors import FATES, Fate, sort_error

_SENT_NOTHING = {
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.InvalidURL,
    httpx2.UnsupportedProtocol,
    TimeoutError,
}


def descendants(kind):
    yield kind
    for child in kind.__subclasses__():
        yield from descendants(child)


def classes_of_the_client():
    roots = {
        value
        for value in vars(httpx2).values()
        if isinstance(value, type) and issubclass(value, Exception) and not issubclass(value, Warning)
    }
    return {
        kind
        for root in roots
        for kind in descendants(root)
        if kind.__module__.startswith("httpx2") and "websocket" not in kind.__module__.lower()
    }


def made(kind):
    error = kind.__new__(kind)
    Exception.__init__(error, "told")
    return error


def test_every_exception_of_the_client_is_sorted():
    classes = classes_of_the_client()
    assert len(classes) > 20
    assert {kind.__name__ for kind in classes - FATES.keys()} == set()


def test_a_class_of_a_later_release_would_be_noticed():
    kind = type("ConnectRefusedPolitely", (httpx2.ConnectError,), {"__module__": "httpx2._exceptions"})
    assert kind in classes_of_the_client()
    assert isinstance(sort_error(made(kind), gate_passed=False), OutcomeUnknown)
    del kind
    gc.collect()


@pytest.mark.parametrize("kind", FATES, ids=lambda kind: kind.__name__)
def test_only_what_surely_left_nothing_is_not_sent(kind):
    expected = NotSent if kind in _SENT_NOTHING else OutcomeUnknown
    assert type(sort_error(made(kind), gate_passed=False)) is expected
    assert (FATES[kind] is Fate.NOT_SENT) == (kind in _SENT_NOTHING)


@pytest.mark.parametrize("kind", [*FATES, OSError, ValueError, RuntimeError], ids=lambda kind: kind.__name__)
def test_behind_the_gate_everything_is_unknown(kind):
    assert type(sort_error(made(kind), gate_passed=True)) is OutcomeUnknown


@pytest.mark.parametrize(
    "kind", [OSError, ConnectionRefusedError, ValueError, httpcore2.ConnectError, KeyError]
)
def test_what_is_not_listed_is_unknown(kind):
    assert type(sort_error(made(kind), gate_passed=False)) is OutcomeUnknown
