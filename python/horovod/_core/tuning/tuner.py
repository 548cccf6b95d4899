"""Warm-up, search, run-off: what to measure next, and what to keep in the end. Pure but for the search's library."""

from __future__ import annotations

import statistics
from typing import Final, NamedTuple, Optional

from horovod._core.tuning.parameters import Parameters
from horovod._core.tuning.search import Search
from horovod._core.tuning.space import Space

_RUNS_EACH: Final = 3  # of two that are equal, one is better in all runs once in 20 times


class Effort(NamedTuple):
    """How long a tuner may look. Attributes: samples of the warm-up, samples of the search, noise of a sample."""

    warmup_samples: int
    max_samples: int
    noise: float


class Tuner:
    """See the head of the file.

    Args:
        space: what may be tried.
        effort: how long.

    Attributes:
        start: where the job stood.
        trying: the parameters that the next sample is of; when `finished`, those to keep.
        finished: nothing more is to be measured.
        samples: taken so far.
    """

    def __init__(self, space: Space, effort: Effort) -> None:
        self.start = space.start
        self._warmup_left = effort.warmup_samples
        self._search_left = effort.max_samples
        self._search = Search(space, effort.noise)
        self._run_off: list[Parameters] = []
        self._runs: dict[Parameters, list[float]] = {}
        self.trying = space.start
        self.finished = self._search_left == 0
        self.samples = 0

    def take(self, score: float) -> None:
        """The score of a sample of what was tried; decides what comes next."""
        self.samples += 1
        if self._warmup_left:
            self._warmup_left -= 1
        elif self._search_left:
            self._search.tell(self.trying, score)
            self._search_left -= 1
            following = self._search.ask() if self._search_left else None
            if following is None:
                self._begin_run_off()
            else:
                self.trying = following
        else:
            self._runs[self._run_off.pop(0)].append(score)
            self._go_on_with_run_off()

    @property
    def gain(self) -> float:
        """How much more what is kept has scored than the start, in the run-off; 0 while nothing is known."""
        start = self._runs.get(self.start)
        return statistics.mean(self._runs[self.trying]) / statistics.mean(start) - 1 if self.finished and start else 0.0

    @property
    def score(self) -> Optional[float]:
        """Of what is kept, in the run-off; None where none was needed."""
        runs = self._runs.get(self.trying)
        return statistics.mean(runs) if self.finished and runs else None

    def best_so_far(self) -> Optional[Parameters]:
        """Of an unfinished search: what is expected to be best; None before two points were compared."""
        if self.finished:
            return self.trying
        return self._search.best() if self.samples >= 2 and self._search.tried > 1 else None

    def _begin_run_off(self) -> None:
        self._search_left = 0
        best, start = self._search.best(), self.start
        self._runs = {best: [], start: []}
        self._run_off = [best, start] * _RUNS_EACH if best != start else []
        self._go_on_with_run_off()

    def _go_on_with_run_off(self) -> None:
        if self._run_off:
            self.trying = self._run_off[0]
            return
        best, *_ = self._runs
        better = best != self.start and min(self._runs[best]) > max(self._runs[self.start])
        self.trying, self.finished = best if better else self.start, True
