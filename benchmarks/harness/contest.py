"""Measures contenders against each other in one run: short slices in turn, so that what disturbs the machine disturbs
all of them.

Used by the row files. A slice is some iterations of one contender while the others sleep; the time of an iteration is
that of its slowest rank. How many iterations fill a slice is learnt from the slice before. A wrong result voids the
contender's part of the row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

from contenders.peers import Contender

from harness.job import Job, JobError, try_start
from harness.progress import Progress

_MOST_ITERATIONS = 4000
NO_TIME = "left out: its time was over"


@dataclass
class Entry:
    """One contender's part of a row.

    Attributes:
        label: in the report.
        kind: ours, peer, limit or info (measured, but in no comparison).
        slices: times in seconds of each slice.
        void: why there is no valid number (missing, not offered, failed, wrong); None = there is one.
        notes: further facts, such as a checksum.
    """

    label: str
    kind: str
    slices: list[list[float]] = field(default_factory=list)
    void: Optional[str] = None
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> list[float]:
        return sorted(time_s for part in self.slices for time_s in part)

    def quantile(self, share: float) -> float:
        """Seconds; nan if void."""
        samples = self.samples
        if self.void or not samples:
            return float("nan")
        return samples[min(len(samples) - 1, int(share * len(samples)))]

    @property
    def median(self) -> float:
        return self.quantile(0.5)


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        rounds: slices per contender and row.
        slice_s: wanted length of a slice, with everything around the measured calls.
        pin: each rank's main thread on a core of its own.
        least: iterations of a slice, however long one takes.
    """

    rounds: int
    slice_s: float
    pin: bool = False
    least: int = 3


@dataclass(frozen=True)
class Part:
    """What one contender is asked to do in a row.

    Attributes:
        label, kind: of its entry.
        job: name under which `Contest` knows the job.
        order: for the ranks, without the number of iterations.
    """

    label: str
    kind: str
    job: str
    order: dict[str, Any]


class Contest:
    """The jobs of one run, and the measuring of rows with them.

    Args:
        contenders: started at once; those that do not start stay with the reason.
        ranks: of each job.
        effort: default of the rows.
        progress: told what is measured; says when to stop.
    """

    def __init__(
        self, contenders: Sequence[Contender], ranks: int, effort: Effort, progress: Optional[Progress] = None
    ) -> None:
        self.effort, self.ranks = effort, ranks
        self._progress = progress
        self._jobs: dict[str, Job] = {}
        self._absent: dict[str, str] = {}
        try:
            for contender in contenders:
                self._show(f"starting {contender.name}, {ranks} ranks")
                job, reason = (None, NO_TIME) if self.over() else try_start(contender, ranks, effort.pin)
                if job is None:
                    self._absent[contender.name] = reason
                else:
                    self._jobs[contender.name] = job
        except BaseException:  # Ctrl-C too
            self.__exit__()
            raise

    def __enter__(self) -> Contest:
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs.values():
            job.close()
        self._jobs.clear()

    @property
    def versions(self) -> dict[str, str]:
        """Of the running contenders; of the absent the reason."""
        return {
            **{name: job.versions for name, job in self._jobs.items()},
            **{n: f"missing: {r}" for n, r in self._absent.items()},
        }

    def knows(self, name: str) -> bool:
        """Whether it was asked for, running or not."""
        return name in self._jobs or name in self._absent

    def job(self, name: str) -> Optional[Job]:
        """A running job."""
        return self._jobs.get(name)

    def measure(self, parts: Sequence[Part], effort: Optional[Effort] = None, what: str = "") -> list[Entry]:
        """Runs all parts in turn, for as many rounds as wanted, and has the ranks let go of their buffers.

        When the time of the group is over it stops after the round that is under way.

        Args:
            what: is measured, in words.
        """
        effort = effort or self.effort
        if what and not self.over():
            self._show(what)
        entries = [Entry(part.label, part.kind) for part in parts]
        iterations = [effort.least] * len(parts)
        # Two rounds more, unrecorded: the first warms up, the second finds the number of iterations.
        for turn in range(-2, effort.rounds):
            if self.over():
                break
            for index, (part, entry) in enumerate(zip(parts, entries)):
                if entry.void is None:
                    limit = effort.slice_s if turn >= 0 else min(effort.slice_s, 0.2)
                    fitting = self._slice(part, entry, iterations[index], limit, turn >= 0)
                    iterations[index] = max(effort.least, fitting)
        for name in {part.job for part in parts}:
            self._release(name)
        for entry in entries:
            if entry.void is None and not entry.slices:
                entry.void = NO_TIME
        return entries

    def over(self) -> bool:
        """Whether there is no time left for another round."""
        return self._progress is not None and self._progress.over()

    def _show(self, what: str) -> None:
        if self._progress is not None:
            self._progress.show(what)

    def _slice(self, part: Part, entry: Entry, iterations: int, slice_s: float, record: bool) -> int:
        """Runs one slice; the number of iterations that would have filled it."""
        job = self._jobs.get(part.job)
        if job is None:
            reason = self._absent.get(part.job, "not started")
            entry.void = reason if reason == NO_TIME else f"missing: {reason}"
            return 0
        try:
            answers = job.order(**part.order, iterations=iterations)
        except JobError as error:
            entry.void = f"failed: {error}"
            self._absent[part.job] = entry.void
            self._jobs.pop(part.job).close()
            return 0
        entry.void = _refusal(answers)
        if entry.void is not None:
            return 0
        slowest = [max(times) / 1e9 for times in zip(*(answer["times"] for answer in answers))]
        if record:
            entry.slices.append(slowest)
        entry.notes.update({key: answers[0][key] for key in ("checksum", "steps") if key in answers[0]})
        spent = max(answer["wall_s"] for answer in answers) / iterations
        return min(_MOST_ITERATIONS, int(slice_s / spent))

    def _release(self, name: str) -> None:
        job = self._jobs.get(name)
        if job is not None:
            job.order(task="release")


def _refusal(answers: list[dict[str, Any]]) -> Optional[str]:
    """Why the answers of a slice do not count; None = they do."""
    for rank, answer in enumerate(answers):
        for word in ("lacking", "failed"):
            if word in answer:
                return str(answer[word]) if word == "lacking" else f"failed on rank {rank}: {answer[word]}"
        if answer["wrong"]:
            return f"WRONG on rank {rank}: {answer['wrong']}"
    if any(answer.get("checksum") != answers[0].get("checksum") for answer in answers) and answers[0].get("checksum"):
        return "WRONG: the ranks' parameters differ"
    return None


def alternate(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Calls functions in turn; what each returned, by name. For things that are no jobs, such as starting a program."""
    results: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            results[name].append(run())
    return results


def timed(run: Callable[[], Any]) -> float:
    """Seconds that a call takes."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
