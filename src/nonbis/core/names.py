"""Names, digests and references.

A name is what the client calls one logical operation. It is opaque: nothing about order, shard or id
follows from it. A store keeps only its **digest**, keyed with a secret of the store, so a client can
neither choose where a row lands nor guess another's.
"""

from __future__ import annotations

import hashlib
import re
import struct

from nonbis.core.refusals import NameMalformed

NAME_LENGTH_MAX = 255
DIGEST_BYTES = 16
STORE_KEY_BYTES = 32
_NAME = re.compile(r"[\x21-\x7e]{1,255}")


def check_name(name: str, member: str | None = None) -> str:
    """The name itself, if it is 1 to 255 visible ASCII characters.

    ``member`` is where it was given, for the refusal. Raises NameMalformed.
    """
    if _NAME.fullmatch(name):
        return name
    if not name.strip():
        detail = "the name is blank; give 1 to 255 visible ASCII characters"
    elif len(name) > NAME_LENGTH_MAX:
        detail = f"the name has {len(name)} characters; at most {NAME_LENGTH_MAX} are allowed"
    else:
        detail = "the name holds a character that is not visible ASCII (0x21 to 0x7e)"
    raise NameMalformed(detail, member)


_length = struct.Struct(">I").pack


def length_prefixed(*parts: bytes) -> bytes:
    """The parts one after the other, each behind its length, so that no two lists look alike."""
    return b"".join([piece for part in parts for piece in (_length(len(part)), part)])


class Digester:
    """Digests of the names of one tenant and scope, under one store's key.

    The keyed state over tenant and scope is prepared once and copied for each name.
    """

    def __init__(self, store_key: bytes, tenant: str, scope: str) -> None:
        if len(store_key) != STORE_KEY_BYTES:
            raise ValueError(f"the store key has {len(store_key)} bytes, not {STORE_KEY_BYTES}")
        self.tenant = tenant
        self.scope = scope
        self._prepared = hashlib.blake2b(
            length_prefixed(tenant.encode(), scope.encode()),
            digest_size=DIGEST_BYTES,
            key=store_key,
            person=b"nonbis-name",
        )

    def digest(self, name: str) -> bytes:
        """16 bytes for a name that check_name has taken."""
        state = self._prepared.copy()
        raw = name.encode("ascii")
        state.update(_length(len(raw)) + raw)
        return state.digest()


_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_BASE32_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_PADDING_BITS = 2
"""128 bits and two zero bits are 26 characters of 5 bits (RFC 4648 section 6)."""
_SHIFTS = range(120, -10, -10)
"""Two characters at a time. The library's encoder takes twice as long, on the path of every payment; a
test compares the two."""


def reference(digest: bytes, refusals: int) -> str:
    """The rail's idempotency key for this operation: 26 characters, then ``-2``, ``-3``, ...

    It is made of the digest and not of the operation id, so that the same name keeps the same
    reference after a restored backup. The suffix rises only when the rail itself refused: a rail
    that dedupes would replay its refusal for ever. After "not sent" or a settlement it stays, so
    that a late effect of an earlier attempt and the present one are one transfer for such a rail.
    """
    number = int.from_bytes(digest, "big") << _PADDING_BITS
    base = "".join([_BASE32_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
    return base if refusals == 0 else f"{base}-{refusals + 1}"


def store_key_check(store_key: bytes) -> bytes:
    """8 bytes kept beside the key, so that a damaged or foreign key is noticed at start."""
    return hashlib.blake2b(b"check", digest_size=8, key=store_key, person=b"nonbis-check").digest()
