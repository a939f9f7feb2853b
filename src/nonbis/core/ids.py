"""Operation ids and stamps: one 63-bit integer that holds a machine and its sequence number.

A machine is one process incarnation, numbered by the store from a counter that never goes back, so
an id is unique without any clock. 23 bits of machine and 40 bits of sequence leave the sign bit
free: the number fits a signed 64-bit column everywhere. Printed ``machine:sequence``.
"""

from __future__ import annotations

SEQUENCE_BITS = 40
MACHINE_BITS = 23
SEQUENCE_MAX = (1 << SEQUENCE_BITS) - 1
MACHINE_MAX = (1 << MACHINE_BITS) - 1


def pack_id(machine: int, sequence: int) -> int:
    """The 63-bit integer of ``machine`` (1 to 2^23-1) and ``sequence`` (0 to 2^40-1)."""
    if not 0 < machine <= MACHINE_MAX:
        raise ValueError(f"machine {machine} is outside 1..{MACHINE_MAX}")
    if not 0 <= sequence <= SEQUENCE_MAX:
        raise ValueError(f"sequence {sequence} is outside 0..{SEQUENCE_MAX}")
    return machine << SEQUENCE_BITS | sequence


def machine_of(number: int) -> int:
    """The machine that drew this id or stamp."""
    return number >> SEQUENCE_BITS


def sequence_of(number: int) -> int:
    """The position of this id or stamp in its machine's sequence."""
    return number & SEQUENCE_MAX


def format_id(number: int) -> str:
    """``7:8400000`` for the 63-bit integer."""
    return f"{number >> SEQUENCE_BITS}:{number & SEQUENCE_MAX}"


def parse_id(text: str) -> int:
    """The integer of ``7:8400000``.

    Raises ValueError for anything but two plain ASCII decimal numbers in range.
    """
    machine, colon, sequence = text.partition(":")
    digits = machine + sequence
    if not (colon and machine and sequence and digits.isascii() and digits.isdigit()):
        raise ValueError(f"an operation id looks like 7:8400000, not {text[:40]!r}")
    if len(machine) > 7 or len(sequence) > 13:
        raise ValueError(f"the operation id {text[:40]!r} is out of range")
    return pack_id(int(machine), int(sequence))
