"""The difference of two things that took turns, when the machine has other work too: few rounds with a great
difference, which are others' doing, must not decide."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Difference(NamedTuple):
    """The median of the differences within a round, and the 95 % interval of it by order statistics, which supposes
    nothing of how the differences are spread."""

    middle: float
    low: float
    high: float


def difference(values: Sequence[float], base: Sequence[float]) -> Difference:
    """By how much `values` are greater than `base`, by rounds.

    Raises:
        ValueError: fewer than six rounds, of which no such interval can be told.
    """
    ordered = sorted(one - other for one, other in zip(values, base))
    count = len(ordered)
    if count < 6:
        raise ValueError(f"a 95 % interval needs 6 rounds at least, not {count}")
    rank = max(0, math.floor(count / 2 - 1.96 * math.sqrt(count) / 2))
    return Difference(statistics.median(ordered), ordered[rank], ordered[count - 1 - rank])
