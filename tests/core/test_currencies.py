"""Currency codes and their minor units, compared with the published table of ISO 4217."""

from __future__ import annotations

from iso4217 import Currency

from nonbis.core.currencies import EXPONENTS


def test_every_code_with_a_minor_unit_is_known() -> None:
    published = {currency.code: currency.exponent for currency in Currency if currency.exponent is not None}
    assert published == EXPONENTS


def test_codes_without_a_minor_unit_are_left_out() -> None:
    without = {currency.code for currency in Currency if currency.exponent is None}
    assert {"XAU", "XTS", "XBA", "XDR"} <= without
    assert not without & EXPONENTS.keys()


def test_the_ones_that_go_wrong() -> None:
    assert {code: EXPONENTS[code] for code in ("USD", "JPY", "KWD", "CLF", "UGX", "ISK")} == {
        "USD": 2,
        "JPY": 0,
        "KWD": 3,
        "CLF": 4,
        "UGX": 0,
        "ISK": 0,
    }
