"""The score of a sample, from what the core counts: bytes per second over whole steps. Pure except for its inputs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Callable, Final, NamedTuple

from horovod._core.tuning.parameters import Parameters

_PARTS: Final = 5


class Count(NamedTuple):
    """hvd_steps: steps that have ended, the bytes in them, and when the last of them ended."""

    steps: int
    bytes: int
    at_s: float


class Sampler:
    """Takes samples of a running job.

    Args:
        await_steps: waits until this many steps have ended, and returns the counts of that time.
        in_force: what the batches go by now.
        steps: of a sample.
    """

    def __init__(self, await_steps: Callable[[int], Count], in_force: Callable[[], Parameters], steps: int) -> None:
        self._await = await_steps
        self._in_force = in_force
        self._ends = part_ends(max(1, steps))

    def sample(self, of: Parameters) -> float:
        """Waits until these parameters are in force and one step has passed, and measures."""
        begun = self._await(0)
        while self._in_force() != of:
            begun = self._await(begun.steps + 1)
        counts = [self._await(begun.steps + 1)]
        first = counts[0].steps
        counts += [self._await(first + end) for end in self._ends]
        return score(counts)


def part_ends(steps: int) -> list[int]:
    """After how many steps each part of a sample ends."""
    parts = min(_PARTS, steps)
    return [steps * part // parts for part in range(1, parts + 1)]


def score(counts: Sequence[Count]) -> float:
    """Bytes per second: the median over the parts between one count and the next."""
    rates = [
        (after.bytes - before.bytes) / (after.at_s - before.at_s)
        for before, after in zip(counts, counts[1:])
        if after.at_s > before.at_s
    ]
    return statistics.median(rates) if rates else 0.0
