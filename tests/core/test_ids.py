"""Operation ids: one 63-bit integer that holds machine and sequence, printed ``machine:sequence``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nonbis.core.ids import (
    MACHINE_BITS,
    MACHINE_MAX,
    SEQUENCE_BITS,
    SEQUENCE_MAX,
    format_id,
    machine_of,
    pack_id,
    parse_id,
    sequence_of,
)

machines = st.integers(1, MACHINE_MAX)
sequences = st.integers(0, SEQUENCE_MAX)


def test_the_layout_fits_a_signed_column() -> None:
    assert (MACHINE_BITS, SEQUENCE_BITS) == (23, 40)
    assert (MACHINE_MAX, SEQUENCE_MAX) == (2**23 - 1, 2**40 - 1)
    assert pack_id(MACHINE_MAX, SEQUENCE_MAX) == 2**63 - 1


def test_the_example_of_the_design() -> None:
    assert pack_id(7, 8_400_000) == 7 * 2**40 + 8_400_000
    assert format_id(pack_id(7, 8_400_000)) == "7:8400000"
    assert parse_id("7:8400000") == pack_id(7, 8_400_000)


@given(machines, sequences)
def test_packing_loses_nothing(machine: int, sequence: int) -> None:
    number = pack_id(machine, sequence)
    assert 0 < number < 2**63
    assert (machine_of(number), sequence_of(number)) == (machine, sequence)
    assert parse_id(format_id(number)) == number


@given(machines, sequences, machines, sequences)
def test_no_two_draws_share_an_id(machine: int, sequence: int, other: int, later: int) -> None:
    same = (machine, sequence) == (other, later)
    assert (pack_id(machine, sequence) == pack_id(other, later)) == same


@given(machines, sequences, sequences)
def test_order_within_a_machine_is_that_of_the_draws(machine: int, one: int, two: int) -> None:
    assert (pack_id(machine, one) < pack_id(machine, two)) == (one < two)


@pytest.mark.parametrize("machine", [0, -1, MACHINE_MAX + 1])
def test_a_machine_out_of_range_is_refused(machine: int) -> None:
    with pytest.raises(ValueError, match=rf"^machine {machine} is outside 1\.\.8388607$"):
        pack_id(machine, 0)


@pytest.mark.parametrize("sequence", [-1, SEQUENCE_MAX + 1])
def test_a_sequence_out_of_range_is_refused(sequence: int) -> None:
    with pytest.raises(ValueError, match=rf"^sequence {sequence} is outside 0\.\.1099511627775$"):
        pack_id(1, sequence)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "7",
        "7:",
        ":7",
        "7:8:9",
        "a:1",
        "1:a",
        "-1:1",
        "1:-1",
        "+1:1",
        " 1:1",
        "1:1 ",
        "1_0:1",
        "1.0:1",
    ]
    + ["\u0661:1", "1:\u00b2", "\uff11:1", "0x1:1", "7;1", "7:1\n", "7\0:1"],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^an operation id looks like 7:8400000, not "):
        parse_id(text)


@pytest.mark.parametrize("text", ["12345678:1", "1:12345678901234", "1" * 5000 + ":1", "1:" + "1" * 5000])
def test_what_is_too_long_is_refused_before_it_is_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"^the operation id .* is out of range$"):
        parse_id(text)


@pytest.mark.parametrize("text", ["0:1", "8388608:1", "1:1099511627776"])
def test_what_is_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is outside"):
        parse_id(text)


def test_the_longest_ids_are_read() -> None:
    assert parse_id("8388607:1099511627775") == 2**63 - 1


def test_a_refusal_repeats_no_more_than_forty_characters() -> None:
    with pytest.raises(ValueError) as refused:
        parse_id("x" * 1000)
    assert str(refused.value) == f"an operation id looks like 7:8400000, not {'x' * 40!r}"
    with pytest.raises(ValueError) as refused:
        parse_id("1" * 1000 + ":1")
    assert str(refused.value) == f"the operation id {'1' * 40!r} is out of range"
