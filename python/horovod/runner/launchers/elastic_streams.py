"""The output of an elastic job's workers, each shown under the rank that it has at the time.

Used by `elastic_here` and `elastic_over_hosts`.
"""

from __future__ import annotations

from horovod.runner.display.output import RankStream
from horovod.runner.job import Job
from horovod.runner.launchers.base import Surroundings
from horovod.runner.launchers.destinations import output_directory, rank_streams
from horovod.runner.machines.hosts import Slot
from horovod.runner.machines.this_host import rank_environ

WORKER_VARIABLE = "_HOROVOD_WORKER"


class WorkerStreams:
    """See the head of the file.

    Args:
        job: whose workers.
        surroundings: where their output goes.
    """

    def __init__(self, job: Job, surroundings: Surroundings) -> None:
        self._job = job
        self._surroundings = surroundings
        self._base = output_directory(job)
        self._streams: dict[int, tuple[RankStream, RankStream]] = {}

    def of(self, slot: Slot) -> tuple[RankStream, RankStream]:
        """What takes stdout and stderr of one more worker, whose number is the rank of the slot."""
        one = self._job._replace(slots=(slot,))
        output_directory(one)
        (self._streams[slot.rank],) = rank_streams(one, self._base, self._surroundings)
        return self._streams[slot.rank]

    def renumber(self, worker: int, rank: int) -> None:
        """The worker is this rank from here on."""
        for stream in self._streams[worker]:
            stream.rank = rank

    def rank_of(self, worker: int) -> int:
        """The rank that a worker has, or had at last."""
        return self._streams[worker][0].rank


def worker_environ(slot: Slot) -> dict[str, str]:
    """The variables that tell a worker its number."""
    return {**rank_environ(slot), WORKER_VARIABLE: str(slot.rank)}


def preliminary(host: str, worker: int) -> Slot:
    """What the variables of a worker that comes later say until it has asked for its place."""
    return Slot(host, worker, worker, 0, worker + 1, worker + 1, 1)
