"""What a profile of a training step says: how much of the reduction lay beside backward, and how often the host waited.

Used by `probe_training`. Pure: of names and times.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_REDUCTION = re.compile(r"nccl|^pack_|Memcpy (HtoD|DtoH)")
_OPTIMIZER = re.compile(r"multi_tensor_apply|foreach|^Optimizer\.", re.IGNORECASE)
_WAIT = re.compile(r"^cu(da)?(Stream|Event|Ctx|Device)Synchronize$")


class Work(NamedTuple):
    """Something that the device did."""

    name: str
    begin: float
    end: float


def waits(calls: Iterable[str]) -> int:
    """How many of the host's calls, by name, wait for the device."""
    return sum(bool(_WAIT.match(name)) for name in calls)


def beside_backward(work: Sequence[Work], backward_begin: float) -> tuple[float, float]:
    """How long the device reduced while it computed gradients, and how long it reduced, in the unit of the times.

    Backward is from `backward_begin` to the end of the last kernel that is neither the optimizer's nor reduces. Two
    reductions at once count once.
    """
    own = [one for one in work if _REDUCTION.search(one.name)]
    others = [one.end for one in work if one not in own and not _OPTIMIZER.search(one.name)]
    end = max(others, default=backward_begin)
    spans: list[tuple[float, float]] = []
    for one in sorted(own, key=lambda one: one.begin):
        if spans and one.begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], one.end))
        elif one.end > backward_begin:
            spans.append((max(one.begin, backward_begin), one.end))
    beside = sum(max(0.0, min(last, end) - first) for first, last in spans)
    return beside, sum(last - first for first, last in spans)
