"""The pipes of ranks on this machine: what the keeper starts each with, and what reads its output.

Used by `launchers.local`, `launchers.elastic_here` and `remote.host_side.workplace`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Callable, Generic, Optional, TypeVar

from horovod.runner.processes.process import RankSpec
from horovod.runner.processes.shipment import Shipment

_Stream = TypeVar("_Stream")


class Pipes(Generic[_Stream]):
    """See the head of the file.

    Args:
        shipment: the function that the ranks are to call, if there is one.
        result_of: what takes the result of a rank.
        stdin_rank: the rank that may read this process's standard input.

    Attributes:
        streams: by the read end of each pipe.
    """

    def __init__(
        self,
        shipment: Optional[Shipment],
        result_of: Callable[[Shipment, int], _Stream],
        stdin_rank: Optional[int] = None,
    ) -> None:
        self._shipment = shipment
        self._result_of = result_of
        self._stdin_rank = stdin_rank
        self.streams: dict[int, _Stream] = {}
        self._specs: list[RankSpec] = []
        self._given: list[int] = []  # the keeper's

    def add(self, rank: int, streams: Sequence[_Stream], variables: Mapping[str, str]) -> RankSpec:
        """Makes the pipes of one more rank.

        Args:
            rank: the keeper's name for it.
            streams: what takes its stdout and stderr.
            variables: of its own.

        Raises:
            OSError: there are no more descriptors.
        """
        stdout_fd, stderr_fd = map(self._pipe, streams)
        stdin_fd = function_fd = result_fd = -1
        if rank == self._stdin_rank:
            stdin_fd = os.dup(0)
            self._given.append(stdin_fd)
        if self._shipment is not None:
            function_fd, result_fd = self._shipment.function_fd, self._pipe(self._result_of(self._shipment, rank))
            variables = {**variables, **self._shipment.variables(result_fd)}
        self._specs.append(RankSpec(rank, variables, stdout_fd, stderr_fd, function_fd, result_fd, stdin_fd))
        return self._specs[-1]

    def specs(self) -> list[RankSpec]:
        """Of all ranks, for the keeper: from here on its ends belong to the caller."""
        self._given.clear()
        return self._specs

    def close(self) -> None:
        """Closes what nobody is going to use after all."""
        for fd in (*self._given, *self.streams):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _pipe(self, stream: _Stream) -> int:
        read_fd, write_fd = os.pipe()
        self.streams[read_fd] = stream
        self._given.append(write_fd)
        return write_fd
