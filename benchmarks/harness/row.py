"""The rows of the report: what was measured, the targets it is held against, and what several runs say together.

Used by `run_all` and the row files. Only values; measures and prints nothing. Ratios are of one run each; over runs
the median counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Optional

from harness.contest import Entry


@dataclass(frozen=True)
class Check:
    """A target and how close one run came.

    Attributes:
        what: the target in words, with its limit.
        value: measured; nan = could not be measured.
        limit: to compare with.
        at_least: the value must not be below the limit; otherwise not above.
        unit: of both: "" for ratios.
    """

    what: str
    value: float
    limit: float
    at_least: bool
    unit: str = ""

    @property
    def met(self) -> Optional[bool]:
        """None = no verdict, for something is missing."""
        if math.isnan(self.value):
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass
class Row:
    """One line of the target table, or one size of it.

    Attributes:
        name: group and size.
        entries: of all contenders.
        checks: targets.
        unit: of the printed times: us or ms.
        note: what a reader must know to judge it.
        operation, size_bytes: of a row that belongs into a curve of speed against size.
        ranks: how many took part.
    """

    name: str
    entries: list[Entry] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    unit: str = "us"
    note: str = ""
    operation: str = ""
    size_bytes: int = 0
    ranks: int = 2

    def median(self, label: str) -> float:
        """Seconds; nan if there is no such entry or it is void."""
        return next((entry.median for entry in self.entries if entry.label == label), math.nan)

    def best_peer(self) -> Optional[Entry]:
        """The fastest valid peer."""
        return self._best("peer")

    def best_ours(self) -> Optional[Entry]:
        """Our fastest valid entry."""
        return self._best("ours")

    def peer_median(self, names: Sequence[str] = ()) -> float:
        """Seconds of the fastest valid peer; nan if there is none. `names`: only peers whose label begins so."""
        valid = [
            e.median
            for e in self.entries
            if e.kind == "peer" and not math.isnan(e.median) and (not names or e.label.startswith(tuple(names)))
        ]
        return min(valid, default=math.nan)

    def ours(self) -> float:
        """Seconds of our best entry; nan if there is none."""
        best = self.best_ours()
        return best.median if best else math.nan

    def _best(self, kind: str) -> Optional[Entry]:
        valid = [entry for entry in self.entries if entry.kind == kind and not math.isnan(entry.median)]
        return min(valid, key=lambda entry: entry.median, default=None)


def size_label(size_bytes: int) -> str:
    """A size as people say it."""
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if size_bytes >= unit:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


MPI_NAMES = ("openmpi", "mpich")


def merged(runs: Sequence[Sequence[Row]]) -> list[tuple[Row, list[Row]]]:
    """Rows of equal name of all runs: the first one, and all."""
    order: dict[str, list[Row]] = {}
    for run in runs:
        for row in run:
            order.setdefault(row.name, []).append(row)
    return [(same[0], same) for same in order.values()]


def middle(values: Sequence[float]) -> float:
    """Median of those that are numbers; nan if none is."""
    numbers = [value for value in values if not math.isnan(value)]
    return statistics.median(numbers) if numbers else math.nan


def merged_checks(same: Sequence[Row]) -> list[tuple[Check, list[float]]]:
    """Per target the check with the median value of all runs, and the values themselves."""
    order: dict[str, list[Check]] = {}
    for row in same:
        for check in row.checks:
            order.setdefault(check.what, []).append(check)
    result = []
    for checks in order.values():
        first = checks[0]
        values = [check.value for check in checks]
        result.append(
            (Check(first.what, middle(values), middle([c.limit for c in checks]), first.at_least, first.unit), values)
        )
    return result
