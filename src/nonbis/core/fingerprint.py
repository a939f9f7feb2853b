"""Fingerprints: 16 bytes that stand for the request that a name was first used with.

JSON is compared by meaning: parsed strictly, put into the canonical form of RFC 8785 and hashed, so
that member order and white space don't matter. Everything else is compared byte by byte. What a
lenient parser would quietly repair (duplicate members, NaN, integers that other languages round, lone
surrogates) is refused: two parties could read two different payments from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, NoReturn

import rfc8785

from nonbis.core.names import length_prefixed
from nonbis.core.refusals import BodyMalformed

FINGERPRINT_BYTES = 16
FINGERPRINT_VERSION = 1
SAFE_INTEGER_MAX = 2**53 - 1
"""RFC 7493 section 2.2: beyond this, a receiver may read another number."""
_INTEGER_DIGITS_MAX = 16
_SURROGATES = range(0xD800, 0xE000)


def fingerprint(*parts: bytes) -> bytes:
    """16 bytes over the parts, each length-prefixed. Version FINGERPRINT_VERSION."""
    return hashlib.blake2b(
        length_prefixed(*parts), digest_size=FINGERPRINT_BYTES, person=b"nonbis-request"
    ).digest()


def canonical_json(value: Any) -> bytes:
    """The RFC 8785 form of a value that parse_json returned."""
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise BodyMalformed(f"the JSON has no canonical form: {error}") from None


def parse_json(body: bytes) -> Any:
    """The value of a strict JSON text (RFC 8259 in UTF-8, RFC 7493 numbers).

    Raises BodyMalformed for invalid or truncated JSON, a byte order mark, duplicate members, NaN and
    Infinity, numbers that overflow, integers beyond 2^53-1, lone surrogates and absurd nesting. It
    names the member in which the fault stands, if it stands in one.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyMalformed(f"the body is not UTF-8 (byte {error.start})") from None
    try:
        value = _DECODER.decode(text)
        if "\\u" in text:
            _refuse_surrogates(value, None)
    except BodyMalformed as refusal:
        if refusal.member is None:
            _refuse_with_member(text)
        raise
    except (ValueError, RecursionError) as error:
        raise BodyMalformed(_plain(error)) from None
    return value


def _plain(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"the body is not JSON: {error.msg} at character {error.pos}"
    return "the body is not JSON: it is nested too deeply"


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise BodyMalformed(f"the member {name[:40]!r} stands twice in one object", _shown(name))
            seen.add(name)
    return members


def _shown(name: str) -> str:
    """The beginning of a member's name, as it can be told in an answer: without lone surrogates."""
    return name[:40].encode("utf-8", "backslashreplace").decode("utf-8")


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) <= _INTEGER_DIGITS_MAX:
        number = int(digits)
        if -SAFE_INTEGER_MAX <= number <= SAFE_INTEGER_MAX:
            return number
    raise BodyMalformed("an integer is beyond 2^53-1 and would not be the same number for every reader")


def _float(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise BodyMalformed("a number is too large")
    return number


def _constant(name: str) -> NoReturn:
    raise BodyMalformed(f"{name} is not JSON")


def _refuse_surrogates(value: Any, member: str | None) -> None:
    if isinstance(value, str):
        if any(ord(character) in _SURROGATES for character in value):
            raise BodyMalformed("a string holds a lone surrogate", member)
    elif isinstance(value, dict):
        for name, inner in value.items():
            _refuse_surrogates(name, _shown(name))
            _refuse_surrogates(inner, _shown(name))
    elif isinstance(value, list):
        for item in value:
            _refuse_surrogates(item, member)


def _refuse_with_member(text: str) -> None:
    """Raise the refusal of a number again, with the name of the member in which the number stands.

    The hook that reads a number does not know where it stands, so the text is read once more: what can't
    be a number becomes its refusal, and the object around it is then refused by name. Only bodies that
    are refused are read twice.
    """
    try:
        _NAMING_DECODER.decode(text)
    except BodyMalformed:
        raise
    except (ValueError, RecursionError):
        return


def _refused_value(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def value(text: str) -> Any:
        try:
            return read(text)
        except BodyMalformed as refusal:
            return refusal

    return value


def _refuse_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for name, value in pairs:
        refusal = _refusal_in(value)
        if refusal is not None:
            raise BodyMalformed(refusal.detail, _shown(name))
    return dict(pairs)


def _refusal_in(value: Any) -> BodyMalformed | None:
    if isinstance(value, list):
        return next((found for item in value if (found := _refusal_in(item)) is not None), None)
    return value if isinstance(value, BodyMalformed) else None


_NAMING_DECODER = json.JSONDecoder(
    object_pairs_hook=_refuse_members,
    parse_int=_refused_value(_integer),
    parse_float=_refused_value(_float),
    parse_constant=_refused_value(_constant),
)
_DECODER = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
