"""The pipes of ranks on this machine: what the keeper starts each with, and what reads its output.

Used by `local` and `elastic_here`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence

from horovod.runner.job import Job
from horovod.runner.launchers.base import Surroundings
from horovod.runner.machines.hosts import Slot
from horovod.runner.processes.process import RankSpec
from horovod.runner.processes.streams import Source, Stream


class Pipes:
    """See the head of the file.

    Args:
        job: whose ranks.
        surroundings: the function that they are to call, and the input that one may read.

    Attributes:
        specs: for the keeper, of all ranks so far.
        streams: by the read end of each pipe.
    """

    def __init__(self, job: Job, surroundings: Surroundings) -> None:
        self._stdin_rank = job.settings.stdin_rank
        self._shipment = surroundings.shipment
        self.specs: list[RankSpec] = []
        self.streams: dict[Source, Stream] = {}
        self._given: list[int] = []  # the keeper's

    def add(self, slot: Slot, streams: Sequence[Stream], variables: Mapping[str, str]) -> RankSpec:
        """Makes the pipes of one more rank.

        Args:
            slot: its place; the rank in it is the keeper's name for it.
            streams: what takes its stdout and stderr.
            variables: of its own.

        Raises:
            OSError: there are no more descriptors.
        """
        stdout_fd, stderr_fd = map(self._pipe, streams)
        stdin_fd = self._copy(0) if slot.rank == self._stdin_rank else -1
        function_fd = result_fd = -1
        if self._shipment is not None:
            function_fd, result_fd = self._shipment.function_fd, self._pipe(self._shipment.expect(slot.rank))
            variables = {**variables, **self._shipment.variables(result_fd)}
        spec = RankSpec(slot.rank, variables, stdout_fd, stderr_fd, function_fd, result_fd, stdin_fd)
        self.specs.append(spec)
        return spec

    def started(self) -> None:
        """The keeper has its ends."""
        self._given.clear()

    def close(self) -> None:
        """Closes what nobody is going to use after all."""
        for fd in (*self._given, *(source for source in self.streams if isinstance(source, int))):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _copy(self, fd: int) -> int:
        copied = os.dup(fd)
        self._given.append(copied)
        return copied

    def _pipe(self, stream: Stream) -> int:
        read_fd, write_fd = os.pipe()
        self.streams[read_fd] = stream
        self._given.append(write_fd)
        return write_fd
