"""What faults cost a training that goes on: from the steps that rank 0 has committed, and the faults. Pure.

Used by `elastic_long`. Of two steps in a row that belong to one epoch the time between them is a step of that many
ranks; if the second begins an epoch, the job stood still meanwhile, but for one step.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional


class Step(NamedTuple):
    """A step that was committed: when, in which epoch, by how many ranks."""

    at_s: float
    epoch: int
    size: int


class Fault(NamedTuple):
    """What was done, to the host of which number, and when."""

    kind: str
    host: int
    at_s: float


class Recovery(NamedTuple):
    """From a fault until the job did something again.

    Attributes:
        kind: of the fault.
        again_s: until the first step of a later epoch was committed; None: it never was.
        whole_s: until one was committed by all ranks; None: it never was.
    """

    kind: str
    again_s: Optional[float]
    whole_s: Optional[float]


class Shares(NamedTuple):
    """Of the time between the first and the last step: stood still, and what ranks that were missing did not do, each
    from 0 to 1."""

    still: float
    missing: float


def recoveries(steps: Sequence[Step], faults: Sequence[Fault], full: int) -> list[Recovery]:
    """One for each fault.

    Args:
        steps: by time.
        full: number of all ranks.
    """
    found = []
    for fault in faults:
        epoch = max((step.epoch for step in steps if step.at_s <= fault.at_s), default=-1)
        later = [step for step in steps if step.epoch > epoch]
        again_s = next((step.at_s - fault.at_s for step in later), None)
        whole_s = next((step.at_s - fault.at_s for step in later if step.size == full), None)
        found.append(Recovery(fault.kind, again_s, whole_s))
    return found


def shares(steps: Sequence[Step], full: int, step_s: float) -> Shares:
    """Where the time went. A step takes `step_s` without faults."""
    still_s = missing_s = 0.0
    for before, step in zip(steps, steps[1:]):
        passed_s = step.at_s - before.at_s
        if step.epoch != before.epoch:
            still_s += max(0.0, passed_s - step_s)
            passed_s = min(passed_s, step_s)
        missing_s += passed_s * (full - step.size) / full
    total_s = steps[-1].at_s - steps[0].at_s
    return Shares(still_s / total_s, missing_s / total_s)


def told(found: Sequence[Recovery]) -> list[str]:
    """A line for each kind of fault, and one for all."""
    kinds: Mapping[str, list[Recovery]] = {
        kind: [each for each in found if each.kind == kind] for kind in dict.fromkeys(each.kind for each in found)
    }
    lines = [f"{kind}: {_until(of_kind)}" for kind, of_kind in kinds.items()]
    return [*lines, f"all faults: {_until(found)}"] if len(kinds) > 1 else lines


def _until(found: Sequence[Recovery]) -> str:
    again = _seconds([each.again_s for each in found])
    whole = _seconds([each.whole_s for each in found])
    return f"{len(found)} times; the next step committed after {again}; all ranks there again after {whole}"


def _seconds(found: Sequence[Optional[float]]) -> str:
    """Mean, median and worst, and how many there are none of."""
    there = [each for each in found if each is not None]
    never = f", never in {len(found) - len(there)} of {len(found)}" if len(there) < len(found) else ""
    if not there:
        return f"- s{never}"
    return f"{statistics.mean(there):.1f} s (median {statistics.median(there):.1f}, worst {max(there):.1f}){never}"
