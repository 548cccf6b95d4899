"""What every rank says, exchanged by sums of bytes.

Each rank has a place of its own in the tensor that is summed, and zeros in the others' places, so that the sum holds
what all say. A rank that has joined adds zeros and says nothing. First comes a claim of a few bytes: a digest, which
tells whether all say the same; only where they do not, a second sum brings the whole of it. Used by `default_check`,
which submits the sums; nothing here knows the engine.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

__all__ = ["Claim", "agree", "claim", "read_claims", "read_texts", "with_claim", "with_text"]

_DIGEST_BYTES: Final = 16
_CLAIM: Final = struct.Struct(f"<{_DIGEST_BYTES}sII")


class Claim(NamedTuple):
    """What a rank says, in short.

    Attributes:
        digest: of it.
        parameters: how many.
        nbytes: how long it is.
    """

    digest: bytes
    parameters: int
    nbytes: int


def claim(text: bytes, count: int) -> Claim:
    """The claim of a rank that says `text`, of so many parameters."""
    return Claim(hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest(), count, len(text))


def with_claim(rank: int, size: int, own: Claim) -> bytearray:
    """What a rank adds to the first sum."""
    summand = bytearray(_CLAIM.size * size)
    _CLAIM.pack_into(summand, _CLAIM.size * rank, *own)
    return summand


def read_claims(total: bytearray) -> dict[int, Claim]:
    """The claims of the ranks that made one, from the first sum."""
    found = {rank: Claim(*entry) for rank, entry in enumerate(_CLAIM.iter_unpack(total))}
    return {rank: entry for rank, entry in found.items() if any(entry.digest)}


def agree(claims: Mapping[int, Claim]) -> bool:
    """True if all of them say the same."""
    return len(set(claims.values())) <= 1


def with_text(rank: int, claims: Mapping[int, Claim], text: bytes) -> bytearray:
    """What a rank adds to the second sum. Its length follows from the claims, and is the same on all ranks."""
    return bytearray().join(text if each == rank else bytes(entry.nbytes) for each, entry in sorted(claims.items()))


def read_texts(total: bytearray, claims: Mapping[int, Claim]) -> dict[int, bytes]:
    """What each rank says, from the second sum. A rank that has joined since says nothing."""
    found = {}
    start = 0
    for rank, entry in sorted(claims.items()):
        text = bytes(total[start : start + entry.nbytes])
        start += entry.nbytes
        if claim(text, entry.parameters) == entry:
            found[rank] = text
    return found
