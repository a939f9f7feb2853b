"""ISO 4217 currency codes and the number of digits of their minor unit (list of 2026-01-01).

Facts of the standard as data; a test compares them with the published table. Codes without a minor
unit (gold, test codes, drawing rights) are left out: an amount in minor units means nothing there.
"""

from __future__ import annotations

_BY_EXPONENT = {
    0: ("BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
    2: (
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD "
        "CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP "
        "GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK "
        "LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO "
        "NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS "
        "SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST "
        "XAD XCD XCG YER ZAR ZMW ZWG"
    ),
    3: ("BHD IQD JOD KWD LYD OMR TND"),
    4: ("CLF UYW"),
}

EXPONENTS: dict[str, int] = {
    code: exponent for exponent, codes in _BY_EXPONENT.items() for code in codes.split()
}
"""Digits after the decimal point for each currency code."""
