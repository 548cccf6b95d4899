"""What ranks tell one another of their parameters when nobody has asked for a check, and how they differ, in words.

Used by `default_check`. Pure: texts and numbers in, texts out.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from horovod._core.life.process_sets import listed
from horovod._core.training.digest_sum import Claim
from horovod._core.training.parameter_check import compare

__all__ = [
    "Form", "Measure", "forms_in", "forms_story", "have_common_names", "measures_story", "packed_forms",
    "packed_measures",
]  # fmt: skip

_SHOWN: Final = 4
_MEASURE: Final = struct.Struct("<?Bdd")
# What sums of equal parameters may differ by, as a part of their length, where processors of two kinds round
# otherwise.
_ROUNDING: Final = 1e-5
_COARSE_ROUNDING: Final = 1e-3  # of elements of less than 4 bytes


class Form(NamedTuple):
    """A parameter: the name that the ranks know it by, and "float32 [3, 4]"."""

    name: str
    form: str


class Measure(NamedTuple):
    """The values of a parameter.

    Attributes:
        name: equal on all ranks.
        has_gradient: False: its last gradient, that of all ranks, is zero; a parameter without a gradient on every
            rank may differ.
        item_bytes: of an element.
        total: sum of the elements, in double precision.
        norm: their Euclidean norm.
    """

    name: str
    has_gradient: bool
    item_bytes: int
    total: float
    norm: float


# ---- names and shapes


def packed_forms(forms: Iterable[Form]) -> bytes:
    """As bytes, whatever the order is: parameters meet by their names."""
    return "\n".join(sorted(f"{entry.name}\0{entry.form}" for entry in forms)).encode("utf-8", "surrogatepass")


def forms_in(text: bytes) -> list[Form]:
    """What `packed_forms` has packed, by the order of the names."""
    lines = text.decode("utf-8", "surrogatepass").split("\n")
    return [Form(name, form) for name, _, form in (line.partition("\0") for line in lines)]


def _unpacked_forms(text: bytes) -> dict[str, str]:
    return dict(forms_in(text))


def forms_story(claims: Mapping[int, Claim], texts: Mapping[int, bytes]) -> str:
    """How the ranks' parameters differ in number, name or shape, in words.

    Args:
        claims: of the ranks.
        texts: what they say at length; of some only, or of none, if they were too slow.
    """
    first = min(claims)
    others = [rank for rank, entry in claims.items() if entry != claims[first]]
    counts = _counts(claims)
    head = counts or f"The parameters of {listed(others)} have other names or shapes than rank {first}'s"
    other = next((rank for rank in others if rank in texts), None)
    if first not in texts or other is None:
        return f"{head}."
    differences = _differences(first, _unpacked_forms(texts[first]), other, _unpacked_forms(texts[other]))
    return f"{head}: {_cut(differences)}."


def have_common_names(texts: Mapping[int, bytes]) -> bool:
    """False if a rank speaks of none of the parameters of the first rank: it speaks of another optimizer.

    Args:
        texts: the names and shapes of each rank; of some only if others were too slow.
    """
    names = [set(_unpacked_forms(each)) for _, each in sorted(texts.items())]
    return all(not names[0].isdisjoint(each) for each in names)


def _counts(claims: Mapping[int, Claim]) -> str:
    """ "Rank 1 has 4 parameters, rank 0 has 2"; empty if all have as many."""
    ranks_of: dict[int, list[int]] = {}
    for rank in sorted(claims):
        ranks_of.setdefault(claims[rank].parameters, []).append(rank)
    if len(ranks_of) == 1:
        return ""
    reference, *others = ranks_of.items()
    pieces = [
        f"{listed(ranks)} {'has' if len(ranks) == 1 else 'have'} {count}" for count, ranks in (*others, reference)
    ]
    pieces[0] += " parameters" if others[0][0] != 1 else " parameter"
    text = ", ".join(pieces)
    return text[0].upper() + text[1:]


def _differences(first: int, mine: Mapping[str, str], other: int, theirs: Mapping[str, str]) -> list[str]:
    found = [
        f"'{name}' is {theirs[name]} on rank {other} and {form} on rank {first}"
        for name, form in mine.items()
        if theirs.get(name, form) != form
    ]
    for rank, some, others in ((other, theirs, mine), (first, mine, theirs)):
        lone = [f"'{name}'" for name in some if name not in others]
        if lone:
            found.append(f"only rank {rank} has {_cut(lone, ', ')}")
    return found


def _cut(pieces: Sequence[str], between: str = "; ") -> str:
    return between.join(pieces[:_SHOWN]) + (f" and {len(pieces) - _SHOWN} more" if len(pieces) > _SHOWN else "")


# ---- values


def packed_measures(measures: Sequence[Measure]) -> bytes:
    """As bytes, in the order given, without the names."""
    return b"".join(_MEASURE.pack(*entry[1:]) for entry in measures)


def measures_story(names: Sequence[str], texts: Mapping[int, bytes]) -> str:
    """Which parameters differ on which ranks by more than rounding, in words; empty if none does.

    Args:
        names: of the parameters, in the order of `packed_measures`.
        texts: what the ranks say.
    """
    tables = {rank: [Measure(name, *row) for name, row in zip(names, _MEASURE.iter_unpack(each))]
              for rank, each in sorted(texts.items())}  # fmt: skip
    if not tables:
        return ""
    first = tables[min(tables)]
    found: dict[int, dict[str, bytes]] = {rank: {} for rank in tables}
    for index, name in enumerate(names):
        of_rank = {rank: table[index] for rank, table in tables.items() if index < len(table)}
        if len(of_rank) == len(tables) and any(each.has_gradient for each in of_rank.values()):
            for rank, each in of_rank.items():
                found[rank][name] = b"" if _alike(first[index], each) else b"other"
    return compare(found)


def _alike(one: Measure, other: Measure) -> bool:
    if _MEASURE.pack(*one[1:]) == _MEASURE.pack(*other[1:]):
        return True
    if not all(map(math.isfinite, (one.total, other.total, one.norm, other.norm))):
        return repr(one[3:]) == repr(other[3:])
    most = (_ROUNDING if min(one.item_bytes, other.item_bytes) >= 4 else _COARSE_ROUNDING) * max(one.norm, other.norm)
    return abs(one.total - other.total) <= most and abs(one.norm - other.norm) <= most
