"""The crew of an elastic job on this machine: its processes, and the roster where they ask. Used by `elastic`."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Mapping
from typing import Any, Optional

from horovod.runner.elastic.roster_keeper import RosterKeeper
from horovod.runner.job import Job
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.launchers.destinations import make_timeline_directory
from horovod.runner.launchers.elastic_streams import WorkerStreams, preliminary, worker_environ
from horovod.runner.launchers.local import environ_of
from horovod.runner.machines.limits import Limits
from horovod.runner.processes.command import executable
from horovod.runner.processes.crew import Event, Joined
from horovod.runner.processes.pipes import Pipes
from horovod.runner.processes.process import RankProcesses
from horovod.runner.processes.runtime_directory import JobDirectory
from horovod.runner.processes.shipment import Shipment
from horovod.runner.processes.strays import strays_in
from horovod.runner.processes.streams import Source, Stream


class CrewHere(RankProcesses):
    """See the head of the file; an `elastic.crew.ElasticCrew`.

    Args:
        job: with the first workers as its ranks.
        directory: of the job; stays the caller's.
        open_files: see `RankProcesses`.
        surroundings: where output goes.

    Attributes:
        streams: of the first workers.
    """

    def __init__(self, job: Job, directory: JobDirectory, open_files: Limits, surroundings: Surroundings) -> None:
        program, words = executable(job.command, job.environ.get("PATH"), job.cwd)
        make_timeline_directory(job)
        self._directory = directory.path
        self._worker_streams = WorkerStreams(job, surroundings)
        self._shipment = surroundings.shipment
        pipes = Pipes[Stream](self._shipment, Shipment.expect, job.settings.stdin_rank)
        environ = {**environ_of(job, directory), "HOROVOD_JOB_ID": os.urandom(16).hex()}
        with contextlib.ExitStack() as undo:
            self._poller = select.epoll()
            undo.callback(self._poller.close)
            self._roster = RosterKeeper(directory.path)
            undo.callback(self._roster.close)
            undo.callback(pipes.close)
            for slot in job.slots:
                pipes.add(slot.rank, self._worker_streams.of(slot), worker_environ(slot))
            super().__init__((program, *words), environ, pipes.specs(), job.cwd, directory, open_files)
            undo.pop_all()
        self.streams: Mapping[Source, Stream] = dict(pipes.streams.items())
        for fd in (super().fileno(), self._roster.fileno()):
            self._poller.register(fd, select.EPOLLIN)

    def fileno(self) -> int:
        return self._poller.fileno()

    def next_s(self) -> Optional[float]:
        return self._roster.next_s()

    def events(self) -> list[Event]:
        ready = [fd for fd, _ in self._poller.poll(0)]
        # What a worker has said before it ended comes before its end.
        found: list[Event] = list(self._roster.serve())
        return found + (super().events() if super().fileno() in ready else [])

    def assemble(self, surroundings: Surroundings) -> Optional[Outcome]:
        """See `ElasticCrew`; they are started already."""
        del surroundings
        return None

    def unusable(self) -> Mapping[str, str]:
        """See `ElasticCrew`."""
        return {}

    def begin(self, worker: int, host: str) -> Joined:
        """See `ElasticCrew`."""
        slot, pipes = preliminary(host, worker), Pipes[Stream](self._shipment, Shipment.expect)
        self.add(pipes.add(worker, self._worker_streams.of(slot), worker_environ(slot)))
        return Joined(worker, dict(pipes.streams.items()))

    def tell(self, worker: int, message: Mapping[str, Any]) -> None:
        """See `ElasticCrew`."""
        self._roster.say(worker, message)

    def renumber(self, worker: int, rank: int) -> None:
        """See `ElasticCrew`."""
        self._worker_streams.renumber(worker, rank)

    def address(self, host: str) -> str:
        """See `ElasticCrew`; nobody elsewhere asks."""
        del host
        return ""

    def release(self, host: str) -> None:
        """See `ElasticCrew`; this host is kept until the end."""

    def strays(self) -> int:
        """See `ElasticCrew`."""
        return strays_in(self._directory)

    def close(self) -> None:
        super().close()
        self._roster.close()
        self._poller.close()
