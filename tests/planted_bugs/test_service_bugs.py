"""Each rule of the service broken on purpose, and seen by the very check that the acceptance tests use."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.processes import Site
from tests.acceptance.test_crashes import check_crash_and_retry
from tests.acceptance.test_one_transfer import check_another_request_is_refused, post_at_once
from tests.planted_bugs import planted_server


def crash_after_the_send(site: Site) -> None:
    check_crash_and_retry(site, "sent")


def many_at_once(site: Site) -> None:
    post_at_once(site, [site.serve(), site.serve()], "order-1")


CAUGHT: dict[str, tuple[Callable[[Site], None], int]] = {
    "effect before state": (crash_after_the_send, 2),
    "second run of a lost machine's row": (crash_after_the_send, 2),
    "no fingerprint": (check_another_request_is_refused, 1),
    "check, then act": (many_at_once, 2),
}
"""For each plant the check that sees it, and the fewest transfers that the bank has made by then."""


def test_each_plant_is_caught() -> None:
    assert set(CAUGHT) == set(planted_server.PLANTS)


@pytest.mark.parametrize("plant", CAUGHT)
def test_the_check_sees_it(tmp_path: Path, plant: str) -> None:
    check, transfers = CAUGHT[plant]
    command = [sys.executable, planted_server.__file__, plant]
    with Site(tmp_path, "--no-dedupe", "--delay-ms=50", command=command) as site:
        with pytest.raises(AssertionError):
            check(site)
        assert site.transfers() >= transfers


@pytest.mark.parametrize(
    "check", sorted({check for check, _ in CAUGHT.values()}, key=lambda one: one.__name__)
)
def test_the_check_passes_without_the_plant(tmp_path: Path, check: Callable[[Site], None]) -> None:
    with Site(tmp_path, "--no-dedupe", "--delay-ms=50") as site:
        check(site)
