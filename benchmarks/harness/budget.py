"""How much is measured in a given time: fewer runs first, then shorter slices, then fewer rows. Pure.

Used by `run_all`. The costs are rough figures of a machine with two cores. A machine that is slower than they say is
caught up with by `share`: each group may take its part of the time that is left, and what does not fit is cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Extent:
    """What is measured.

    Attributes:
        runs: how often everything is.
        rounds: recorded slices per contender and row.
        slice_s: wanted length of a slice.
        rows: all; few; smoke: those that show that everything works.
    """

    runs: int
    rounds: int
    slice_s: float
    rows: str

    def __str__(self) -> str:
        runs = f"{self.runs} run{'s' * (self.runs > 1)}"
        return f"{runs}, {self.rounds} slices of {self.slice_s:g} s per contender and row, {self.rows} rows"


EVERYTHING = Extent(3, 7, 0.3, "all")
SMOKE = Extent(1, 2, 0.05, "smoke")
# The first one that fits is taken.
_LADDER = (
    EVERYTHING,
    Extent(3, 7, 0.2, "all"),
    Extent(2, 7, 0.2, "all"),
    Extent(1, 7, 0.2, "all"),
    Extent(1, 7, 0.2, "few"),
    Extent(1, 7, 0.1, "few"),
    Extent(1, 5, 0.1, "few"),
    Extent(1, 3, 0.1, "few"),
)


@dataclass(frozen=True)
class Cost:
    """Of a group of rows, in one run.

    Attributes:
        parts: contenders in all of its rows together; each has a slice in every round.
        round_s: what a round takes longer than its slices should, because a few iterations of a large row exceed one.
        fixed_s: what does not depend on the rounds.
    """

    parts: int
    round_s: float
    fixed_s: float


START = "start"  # of the jobs
_COSTS = {
    START: {"all": Cost(0, 0, 8), "few": Cost(0, 0, 8)},
    "allreduce": {"all": Cost(42, 2, 1), "few": Cost(36, 0.5, 1)},
    "collectives": {"all": Cost(72, 0, 1), "few": Cost(72, 0, 1)},
    "gradients": {"all": Cost(21, 2, 1), "few": Cost(15, 1, 1)},
    "training": {"all": Cost(8, 5.4, 2), "few": Cost(7, 2, 2)},
    "core": {"all": Cost(6, 0, 1), "few": Cost(6, 0, 1)},
    "idle": {"all": Cost(0, 0, 3), "few": Cost(0, 0, 3)},
    "sends": {"all": Cost(30, 1, 1), "few": Cost(15, 0.5, 1)},
    "import": {"all": Cost(0, 0, 120), "few": Cost(0, 0, 10)},
    "negotiation": {"all": Cost(0, 0, 8), "few": Cost(0, 0, 8)},
    "worlds": {"all": Cost(184, 16, 40), "few": Cost(92, 0, 10)},
}
GROUPS = tuple(_COSTS)[1:]


def estimate_s(group: str, extent: Extent) -> float:
    """Seconds that a group takes in one run."""
    cost = _COSTS[group]["all" if extent.rows == "all" else "few"]
    unrecorded_s = 2 * min(extent.slice_s, 0.2)
    return cost.fixed_s + cost.parts * (extent.rounds * extent.slice_s + unrecorded_s) + cost.round_s * extent.rounds


def total_s(groups: Sequence[str], extent: Extent) -> float:
    """Seconds of all runs."""
    return extent.runs * sum(estimate_s(group, extent) for group in groups)


def choose(budget_s: float, groups: Sequence[str]) -> Extent:
    """The largest extent that fits; the smallest one where none does, and then rows will be cut."""
    return next((extent for extent in _LADDER if total_s(groups, extent) <= budget_s), _LADDER[-1])


def share_s(left_s: float, group: str, later: Sequence[str], extent: Extent) -> float:
    """Seconds that a group may take when `left_s` are left for it and those that come later."""
    if math.isinf(left_s):
        return left_s
    own_s = estimate_s(group, extent)
    return max(0.0, left_s) * own_s / (own_s + sum(estimate_s(name, extent) for name in later))


def remaining_s(spent_s: float, done: Sequence[str], later: Sequence[str], extent: Extent) -> float:
    """Seconds that the groups to come will take, judged by how long those that are done have taken."""
    planned_s = sum(estimate_s(name, extent) for name in done)
    pace = spent_s / planned_s if planned_s else 1.0
    return pace * sum(estimate_s(name, extent) for name in later)
