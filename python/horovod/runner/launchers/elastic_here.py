"""The crew of an elastic job on this machine: its processes, and the roster where they ask. Used by `elastic`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Optional

from horovod.runner.elastic.roster_keeper import RosterKeeper
from horovod.runner.job import Job
from horovod.runner.launchers.base import Outcome, Surroundings
from horovod.runner.launchers.destinations import make_timeline_directory
from horovod.runner.launchers.elastic_streams import WorkerStreams, preliminary, worker_environ
from horovod.runner.launchers.local import environ_of
from horovod.runner.loop import Loop
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
        self._found: list[Event] = []
        self._worker_streams = WorkerStreams(job, surroundings)
        self._shipment = surroundings.shipment
        pipes = Pipes[Stream](self._shipment, Shipment.expect, job.settings.stdin_rank)
        environ = {**environ_of(job, directory), "HOROVOD_JOB_ID": os.urandom(16).hex()}
        with contextlib.ExitStack() as undo:
            self._loop = Loop()
            undo.callback(self._loop.close)
            self._roster = RosterKeeper(self._loop, directory.lock_fd, self._found.append)
            undo.callback(self._roster.close)
            undo.callback(pipes.close)
            for slot in job.slots:
                pipes.add(slot.rank, self._worker_streams.of(slot), worker_environ(slot))
            super().__init__((program, *words), environ, pipes.specs(), job.cwd, directory, open_files)
            undo.pop_all()
        self.streams: Mapping[Source, Stream] = dict(pipes.streams.items())
        self._loop.watch(super().fileno(), self._hear_keeper)

    def fileno(self) -> int:
        return self._loop.fileno()

    def next_s(self) -> Optional[float]:
        return self._roster.socket.again_s

    def events(self) -> list[Event]:
        self._roster.socket.look_again()
        self._loop.turn(0)
        found, self._found[:] = list(self._found), []
        return found

    def _hear_keeper(self) -> None:
        self._roster.hear_all()
        self._found += super().events()

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
        self._loop.close()
