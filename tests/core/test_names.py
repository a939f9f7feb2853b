"""Names, digests under the store's key, references, and the key's check value."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonbis.core.names import (
    DIGEST_BYTES,
    NAME_LENGTH_MAX,
    STORE_KEY_BYTES,
    Digester,
    check_name,
    length_prefixed,
    reference,
    store_key_check,
)
from nonbis.core.refusals import NameMalformed

KEY = bytes(range(32))
visible = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=255)


# -- names ---------------------------------------------------------------------------------------------


@given(visible)
def test_visible_ascii_is_a_name(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["!", "~", 'a"b', "a\\b", "x" * 255, "k;p=1", "0", "False", "../../etc"])
def test_the_edges_are_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", " ", "   ", "\t", "\n", "\u00a0", "\u3000"])
def test_a_blank_name_is_refused_and_not_taken_for_absent(name: str) -> None:
    with pytest.raises(NameMalformed, match=r"^the name is blank; give 1 to 255 visible ASCII characters$"):
        check_name(name)


def test_a_long_name_is_refused() -> None:
    assert NAME_LENGTH_MAX == 255
    with pytest.raises(NameMalformed, match=r"^the name has 256 characters; at most 255 are allowed$"):
        check_name("x" * 256)


@pytest.mark.parametrize(
    "name",
    [
        "x" * 254 + " ",
        "a b",
        " a",
        "a ",
        "a\tb",
        "a\0",
        "\0",
        "a\x1f",
        "a\x7f",
        "a\x80",
        "caf\u00e9",
        "\u200b",
        "\ud800",
        "a\n",
        "\uff21",
    ],
)
def test_a_character_that_is_not_visible_is_refused(name: str) -> None:
    said = r"^the name holds a character that is not visible ASCII \(0x21 to 0x7e\)$"
    with pytest.raises(NameMalformed, match=said) as refused:
        check_name(name)
    assert refused.value.code == "name-malformed"


@pytest.mark.parametrize("name", ["", "a b", "k" * 256])
def test_the_refusal_says_where_the_name_was_given(name: str) -> None:
    with pytest.raises(NameMalformed) as refused:
        check_name(name, "uuid")
    assert refused.value.member == "uuid"


@given(st.text(max_size=300))
def test_a_name_is_taken_whole_or_refused(name: str) -> None:
    good = 1 <= len(name) <= 255 and all("!" <= character <= "~" for character in name)
    try:
        assert check_name(name) == name
    except NameMalformed:
        assert not good
    else:
        assert good


# -- digests -------------------------------------------------------------------------------------------


def test_the_digest_is_keyed_blake2b_over_length_prefixed_parts() -> None:
    """Written out once by hand: a change here would turn every known name into a new one."""
    text = b"\0\0\0\x04acme" + b"\0\0\0\x08payments" + b"\0\0\0\x03k-1"
    expected = hashlib.blake2b(text, digest_size=16, key=KEY, person=b"nonbis-name").digest()
    assert Digester(KEY, "acme", "payments").digest("k-1") == expected
    assert expected.hex() == "fafda34e5f9ae6020fc70391a528ab85"
    assert (DIGEST_BYTES, STORE_KEY_BYTES) == (16, 32)


def test_a_digester_may_be_used_again() -> None:
    digester = Digester(KEY, "", "payments")
    first = digester.digest("a")
    assert digester.digest("b") != first
    assert digester.digest("a") == first


def test_a_digester_tells_for_whom_it_is() -> None:
    digester = Digester(KEY, "acme", "payments")
    assert (digester.tenant, digester.scope) == ("acme", "payments")


@given(visible, visible)
def test_another_name_has_another_digest(one: str, two: str) -> None:
    digester = Digester(KEY, "", "payments")
    assert (digester.digest(one) == digester.digest(two)) == (one == two)


def test_another_tenant_scope_or_key_gives_another_digest() -> None:
    digests = {
        Digester(KEY, "a", "b").digest("c"),
        Digester(KEY, "b", "a").digest("c"),
        Digester(KEY, "ab", "").digest("c"),
        Digester(KEY, "", "ab").digest("c"),
        Digester(KEY, "a", "").digest("bc"),
        Digester(bytes(32), "a", "b").digest("c"),
    }
    assert len(digests) == 6


def test_tenants_of_any_script_are_kept_apart() -> None:
    assert Digester(KEY, "caf\u00e9", "s").digest("n") != Digester(KEY, "cafe\u0301", "s").digest("n")


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=rf"^the store key has {length} bytes, not 32$"):
        Digester(bytes(length), "", "")


parts = st.lists(st.binary(max_size=8), max_size=5)


@given(parts, parts)
def test_two_lists_never_look_alike(one: list[bytes], two: list[bytes]) -> None:
    assert (length_prefixed(*one) == length_prefixed(*two)) == (one == two)


def test_a_part_stands_behind_its_length() -> None:
    assert length_prefixed() == b""
    assert length_prefixed(b"") == b"\0\0\0\0"
    assert length_prefixed(b"ab", bytes(258)) == b"\0\0\0\x02ab\0\0\x01\x02" + bytes(258)


# -- references ------------------------------------------------------------------------------------------


def test_the_reference_is_made_of_the_digest() -> None:
    digest = bytes(range(16))
    assert reference(digest, 0) == "aaaqeayeaudaocajbifqydiob4"
    assert reference(digest, 1) == "aaaqeayeaudaocajbifqydiob4-2"
    assert reference(digest, 9) == "aaaqeayeaudaocajbifqydiob4-10"


@given(st.binary(min_size=16, max_size=16), st.integers(0, 50))
def test_a_reference_can_be_read_back_and_travels_in_any_header(digest: bytes, refusals: int) -> None:
    text = reference(digest, refusals)
    base, dash, suffix = text.partition("-")
    assert re.fullmatch(r"[a-z2-7]{26}", base)
    assert base64.b32decode(base.upper() + "======") == digest
    assert (dash, suffix) == (("-", str(refusals + 1)) if refusals else ("", ""))


# -- the store key ---------------------------------------------------------------------------------------


def test_the_check_value_tells_keys_apart_and_gives_none_away() -> None:
    assert store_key_check(KEY).hex() == "3324750bd163df58"
    assert len(store_key_check(KEY)) == 8
    assert store_key_check(KEY) != store_key_check(bytes(32))
    assert store_key_check(KEY) not in KEY


@given(st.binary(min_size=16, max_size=16))
def test_a_reference_is_base32_of_the_digest(digest: bytes) -> None:
    assert reference(digest, 0) == base64.b32encode(digest).decode().rstrip("=").lower()
