"""What a function has returned on the ranks of a job, or how the job has failed, in words.

Used by `function`, and by `horovod.spark`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from horovod.runner.job import Job
from horovod.runner.launchers.base import Outcome
from horovod.runner.supervising.report import Exit, culprit


class Answers(NamedTuple):
    """What the ranks have sent.

    Attributes:
        caller: what the user has called, for messages: "horovod.run".
        by_rank: as `run_task` gives it, pickled.
        whole: of an elastic job, those of all ranks of its last epoch count that have run to their ends.
    """

    caller: str
    by_rank: Mapping[int, memoryview]
    whole: bool = False

    def results(self, job: Job, outcome: Outcome) -> list[Any]:
        """What the function has returned, by rank; of an elastic job, on the first ranks of its last epoch, or on
        all of them.

        Raises:
            RuntimeError: the job has failed; the message names the rank and has its traceback.
            KeyboardInterrupt: the user has stopped it.
        """
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.exit_code:
            raise RuntimeError(self._failure(outcome))
        wanted = list(range(job.size))
        if outcome.results is not None:
            wanted = list(outcome.results[: job.settings.min_num_proc])
            wanted += [rank for rank in outcome.results[len(wanted) :] if self.whole and rank in self.by_rank]
        missing = [rank for rank in wanted if rank not in self.by_rank]
        if missing:
            raise RuntimeError(
                f"{self.caller}: rank {missing[0]} ended with code 0 before the function returned (os._exit?)."
            )
        return [self._unpickled(rank)[1] for rank in wanted]

    def _failure(self, outcome: Outcome) -> str:
        found = culprit(outcome.exits)
        text = f"{self.caller}: {outcome.message}"
        if found is None:  # mpirun does not tell how each rank has ended
            found = culprit(list(self._failed()))
        elif outcome.complaint:
            return text
        if found is not None and found.rank in self.by_rank:
            succeeded, traceback_text = self._unpickled(found.rank)
            if not succeeded:
                head = text.partition(" Last lines of ")[0]
                return f"{head} The exception of rank {found.rank}:\n{traceback_text}"
        return text

    def _failed(self) -> Iterator[Exit]:
        """The ranks on which the function has raised, as if each had ended with its traceback."""
        for rank in sorted(self.by_rank):
            succeeded, text = self._unpickled(rank)
            if not succeeded:
                yield Exit(rank, "", 0, 1 << 8, 0.0, tail=tuple(text.encode(errors="replace").splitlines()[-1:]))

    def _unpickled(self, rank: int) -> tuple[bool, Any]:
        try:
            succeeded, value = pickle.loads(self.by_rank[rank])
        except Exception as error:  # whatever the classes of the user's objects raise
            raise RuntimeError(
                f"{self.caller}: the result of rank {rank} cannot be unpickled here: {error!r}."
            ) from error
        return bool(succeeded), value
