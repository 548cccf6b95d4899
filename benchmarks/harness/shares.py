"""How fast ours is beside the best peer: ratios of neighbouring slices, their median, and how sure that is. Pure.

Used by `report`, the page of results and `compare`. Two slices of one round saw the same machine, therefore the ratio
is taken of each pair and not of two medians. The interval of the median lies between two order statistics, as the sign
test gives them (W. J. Conover, Practical Nonparametric Statistics, 3rd edition, section 3.2): nothing is assumed of how
the ratios are distributed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from harness.row import Row, size_label

TABLE_SIZES = (4, 1 << 10, 64 << 10, 1 << 20, 16 << 20)
LEAST_PAIRS = 7
_OUTSIDE = 0.025  # the chance that the median lies beyond one end of the interval
_LEAST_MEDIAN, _LEAST_LOW = 1.0, 0.97
MEANING = (
    "Time of the fastest peer of the same run / ours: above 1, ours is faster. The median over pairs of neighbouring "
    f"slices; bold: slower, that is a median below {_LEAST_MEDIAN:g} or a 95 % interval that begins below {_LEAST_LOW}."
)


@dataclass(frozen=True)
class Share:
    """The speed of ours in a row, as a share of the best peer's.

    Attributes:
        row, operation, size_bytes, ranks: of the row.
        peers: the fastest of each run.
        pairs: how many ratios there are.
        median: of them.
        low, high: 95 % interval of the median; None with fewer than 7 pairs.
    """

    row: str
    operation: str
    size_bytes: int
    ranks: int
    peers: Sequence[str]
    pairs: int
    median: float
    low: Optional[float]
    high: Optional[float]

    @property
    def slower(self) -> bool:
        """Whether the best peer is, or may well be, faster."""
        return self.median < _LEAST_MEDIAN or (self.low is not None and self.low < _LEAST_LOW)

    def __str__(self) -> str:
        peers = ", ".join(self.peers)
        sure = (
            f"95 % interval {self.low:.2f} to {self.high:.2f}, {self.pairs} pairs"
            if self.low is not None
            else f"{self.pairs} pair{'s' * (self.pairs > 1)}, too few for an interval"
        )
        return f"{self.row}: {self.median:.2f} of the best peer's speed ({sure}; {peers})"


def ratios(slices: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> list[float]:
    """Median time of each slice of `others` / that of its neighbour in `slices`. Differences of times may be below 0:
    noise, and no pair."""
    pairs = [(statistics.median(one), statistics.median(other)) for one, other in zip(slices, others)]
    return [other / one for one, other in pairs if one > 0 and other > 0]


def interval(values: Sequence[float]) -> Optional[tuple[float, float]]:
    """At least 95 % sure to hold the median that the values are drawn around; None for fewer than 7 values."""
    if len(values) < LEAST_PAIRS:
        return None
    left_out, tail = 0, 2.0 ** -len(values)
    while tail <= _OUTSIDE:
        left_out += 1
        tail += math.comb(len(values), left_out) * 2.0 ** -len(values)
    ordered = sorted(values)
    return ordered[left_out - 1], ordered[-left_out]


def share(same: Sequence[Row]) -> Optional[Share]:
    """Of one row in all runs, each run against its own best peer; None where nothing can be compared."""
    found: list[float] = []
    peers: list[str] = []
    for row in same:
        ours, peer = row.best_ours(), row.best_peer()
        if ours and peer:
            found += ratios(ours.slices, peer.slices)
            peers.append(peer.label)
    if not found:
        return None
    low, high = interval(found) or (None, None)
    row, names = same[0], list(dict.fromkeys(peers))
    return Share(
        row.name, row.operation, row.size_bytes, row.ranks, names, len(found), statistics.median(found), low, high
    )


def table(shares: Sequence[Share]) -> list[str]:
    """Markdown: a line for each operation, a column for each size and number of ranks that was measured."""
    cells = {(one.operation, (one.ranks, one.size_bytes)): one for one in shares if one.size_bytes in TABLE_SIZES}
    columns = sorted({place for _, place in cells})
    if not columns:
        return ["None measured."]
    heads = [("" if ranks == 2 else f"{ranks} ranks: ") + size_label(size) for ranks, size in columns]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for operation in dict.fromkeys(operation for operation, _ in cells):
        words = [_cell(cells.get((operation, place))) for place in columns]
        lines.append(f"| {operation} | {' | '.join(words)} |")
    return lines


def _cell(one: Optional[Share]) -> str:
    if one is None:
        return ""
    return f"**{one.median:.2f}**" if one.slower else f"{one.median:.2f}"
